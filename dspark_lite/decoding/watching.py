"""What a prepared pass depends on besides its inputs, read anew before each answer of the fast path.

A pass that was compiled without guards, or captured, runs no Python of the model. It keeps to the adapters, modules, settings
and weights of the moment in which it was prepared. So the fast path compares snapshots, and prepares its passes anew when
they differ. Whatever could change a pass without a trace in the model, such as a hook, is refused.
"""

import functools
import types

import torch
from torch import nn
from torch.nn.modules import module as hooks_of_all_modules

from ..common.errors import RequestError
from ..common.fingerprint import checksum

REFUSED = "{0}; the fast path {1}: decode with fast=False"
OWN_HOOKS = "transformers.utils.output_capturing"  # where transformers' hooks are from, with which it collects hidden states
# What no pass reads, or what is looked at by itself.
PASSED_OVER = {
    "_forward_hooks",
    "_forward_pre_hooks",
    "_output_capturing_hooks_installed",
    "fast_parts",
    "fast_parts_of",
    "forward",
}
PASSED_OVER |= {name for name in vars(nn.Module()) if "hook" in name} | {"_compiled_call_impl"}
PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout)
CODE = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)


def snapshot(model: nn.Module, described: str) -> list:
    """Return everything that a pass of `model` reads, to be compared with `==`.

    This is: every setting in a module, in its config or in another object that a module has; which modules and adapters there
    are; place, layout and checksum of each tensor; the precision of matrix products. Objects without settings,
    such as functions, are compared as they are. All weights are read once, as in one pass. Raise RequestError for a model
    that cannot be watched, such as one with forward hooks or quantised weights, and under autocast; `described` is its name in that sentence.
    """
    if hooks_of_all_modules._global_forward_hooks or hooks_of_all_modules._global_forward_pre_hooks:
        raise RequestError(
            REFUSED.format("a forward hook of all modules is registered", "calls none")
        )
    reader = _Reader(described)
    reader.read("", model)
    sums: dict[torch.device, list] = {}
    for tensor in reader.tensors:
        sums.setdefault(tensor.device, []).append(checksum(tensor))
    if any(torch.is_autocast_enabled(device.type) for device in sums):
        raise RequestError(
            REFUSED.format("autocast is on", "computes in the number format of the weights")
        )
    return [
        *reader.found,
        *(torch.stack(some).tolist() for some in sums.values()),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
    ]


class _Reader:
    """Walks over the objects that a module holds, each once, and notes what it finds."""

    def __init__(self, described: str):
        self.described, self.found, self.tensors, self.seen = described, [], [], {}

    def read(self, path: str, value) -> None:
        """Note a value and what is in it."""
        if isinstance(value, PLAIN):
            self.found.append((path, type(value), value))
        elif id(value) in self.seen:
            self.found.append((path, self.seen[id(value)][0]))
        else:
            self.seen[id(value)] = path, value  # held, so that no other object gets this id
            self._read_once(path, value)

    def _read_once(self, path: str, value) -> None:
        if isinstance(value, torch.Tensor):
            self._check_tensor(path, value)
            self.tensors.append(value)
            self.found.append(
                (path, value.data_ptr(), value.dtype, value.device, value.shape, value.stride())
            )
        elif isinstance(value, nn.Module):
            self._check_module(path, value)
            self.found.append((path, type(value), type(value).forward))
            self._read_items(
                path,
                ((name, part) for name, part in vars(value).items() if name not in PASSED_OVER),
            )
        elif isinstance(value, dict):
            self._read_items(path, value.items())
        elif isinstance(value, (list, tuple)):
            self._read_items(path, enumerate(value))
        elif isinstance(value, (set, frozenset)):
            self._read_items(path, enumerate(sorted(value, key=repr)))
        elif isinstance(value, CODE) or not hasattr(value, "__dict__"):
            self.found.append((path, _Same(value)))
        else:
            self.found.append((path, type(value)))
            self._read_items(path, vars(value).items())

    def _read_items(self, path: str, items) -> None:
        for name, part in list(items):
            # Modules are told by their name in the model: model.layers.0, not _modules.model._modules.layers.
            self.read(
                path
                if name in ("_modules", "_parameters", "_buffers")
                else f"{path}.{name}"
                if path
                else str(name),
                part,
            )

    def _check_module(self, path: str, module: nn.Module) -> None:
        where = f"{self.described}'s {path or type(module).__name__}"
        hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
        if any(getattr(hook, "__module__", None) != OWN_HOOKS for hook in hooks):
            raise RequestError(REFUSED.format(f"{where} has a forward hook", "calls none"))
        forward = vars(module).get("forward")
        if forward is not None and getattr(forward, "__func__", None) is not type(module).forward:
            raise RequestError(
                REFUSED.format(
                    f"{where} has a forward of its own, not that of its class",
                    "compiles a class's code alone",
                )
            )
        if getattr(module, "is_quantized", False) is True:
            raise RequestError(REFUSED.format(f"{where} is quantised", "reads plain weights alone"))

    def _check_tensor(self, path: str, tensor: torch.Tensor) -> None:
        kind = (
            type(tensor).__name__
            if type(tensor) not in (torch.Tensor, nn.Parameter, nn.Buffer)
            else "offloaded"
            if tensor.is_meta
            else ""
        )
        if not kind and (
            tensor.layout is not torch.strided
            or tensor.is_floating_point()
            and tensor.itemsize == 1
        ):
            kind = f"{tensor.dtype}, {tensor.layout}"
        if kind:
            raise RequestError(
                REFUSED.format(
                    f"{self.described}'s {path} is no plain tensor ({kind})",
                    "reads plain weights alone",
                )
            )


class _Same:
    """An object that is compared by what it is, not by what it holds."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other) -> bool:
        return isinstance(other, _Same) and (
            self.value is other.value
            or isinstance(self.value, types.MethodType)
            and self.value == other.value
        )
