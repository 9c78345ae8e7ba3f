"""Snapshots of everything that a prepared pass depends on besides its inputs.

A pass that is captured, or compiled without guards, runs no Python of the model. It uses the
adapters, modules, settings and weights that the model had when it was prepared. So the fast path
takes a snapshot before each answer, and prepares its passes anew if it differs from the last one.
It refuses whatever changes a pass unseen, such as a hook.
"""

import functools
import types

import torch
from torch import nn
from torch.nn.modules import module as hooks_of_all_modules

from ..common.errors import RequestError
from ..common.fingerprint import checksum

REFUSED = "{0}; the fast path {1}: decode without it"
# The module of the hooks with which transformers collects hidden states.
OWN_HOOKS = "transformers.utils.output_capturing"
# Attributes that no pass reads, or that are checked by themselves.
PASSED_OVER = {
    "_forward_hooks",
    "_forward_pre_hooks",
    "_output_capturing_hooks_installed",
    "prepared",
    "prepared_for",
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
    """Return everything that a pass of `model` reads, for comparison with `==`.

    This is: every setting of a module, of its config or of another object in a module; the modules
    and adapters; address, layout and checksum of each tensor; the precision of matrix products.
    Objects without settings, such as functions, are compared by identity. Reads all weights once,
    as a pass does. Raise RequestError under autocast, and for a model that cannot be watched, such
    as one with forward hooks or quantised weights. The error calls the model `described`.
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
    """Visits every object in a module once. `found` collects values, `tensors` the tensors."""

    def __init__(self, described: str):
        self.described, self.found, self.tensors, self.seen = described, [], [], {}

    def read(self, path: str, value) -> None:
        """Record a value and everything in it, under its path in the model."""
        if isinstance(value, PLAIN):
            self.found.append((path, type(value), value))
        elif id(value) in self.seen:
            self.found.append((path, self.seen[id(value)][0]))
        else:
            self.seen[id(value)] = path, value  # stored, so that no other object gets this id
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
            self.found.append((path, _Identity(value)))
        else:
            self.found.append((path, type(value)))
            self._read_items(path, vars(value).items())

    def _read_items(self, path: str, items) -> None:
        for name, part in list(items):
            # A path names modules as the model does: model.layers.0, not _modules.model.
            if name in ("_modules", "_parameters", "_buffers"):
                self.read(path, part)
            else:
                self.read(f"{path}.{name}" if path else str(name), part)

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
        if kind := _unwatched(tensor):
            raise RequestError(
                REFUSED.format(
                    f"{self.described}'s {path} is no plain tensor ({kind})",
                    "reads plain weights alone",
                )
            )


def _unwatched(tensor: torch.Tensor) -> str:
    """Return why a tensor cannot be watched, in brackets of an error; "" if it can."""
    if type(tensor) not in (torch.Tensor, nn.Parameter, nn.Buffer):
        return type(tensor).__name__
    if tensor.is_meta:
        return "offloaded"
    eight_bit_float = tensor.is_floating_point() and tensor.itemsize == 1
    if tensor.layout is not torch.strided or eight_bit_float:
        return f"{tensor.dtype}, {tensor.layout}"
    return ""


class _Identity:
    """An object that is compared by identity; a bound method by its object and function."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other) -> bool:
        return isinstance(other, _Identity) and (
            self.value is other.value
            or isinstance(self.value, types.MethodType)
            and self.value == other.value
        )
