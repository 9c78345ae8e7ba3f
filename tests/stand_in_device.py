"""A stand-in accelerator: a device "card" whose tensors live in the CPU's memory, and that refuses what a GPU refuses.

A tensor of the card does not meet a CPU tensor of one dimension or more; what it holds reaches the host by a read, and
reads are counted. It says nothing about speed, memory, number formats, captured graphs or a generator's device, and
does not count what is moved to the card, for which a GPU's host may wait as well.

It rests on PyTorch's Python backend for PrivateUse1. What PyTorch or safetensors do below the dispatcher is replaced
once `switch_on` was called, for the rest of the process: so test_stand_in_device.py gives it a process of its own, which
calls `switch_on` before it imports what is tested.
"""

import contextlib
import functools

import safetensors
import torch
from torch.utils import backend_registration
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves, tree_map

CARD = "card"
AVAILABLE = hasattr(backend_registration, "_setup_privateuseone_for_python_backend")

# The result, or how many elements it has, is for the host to know: each makes a GPU's host wait.
READING = {
    "aten::_local_scalar_dense",
    "aten::equal",
    "aten::is_nonzero",
    "aten::nonzero",
    "aten::masked_select",
    "aten::bincount",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
}
MOVING = {"aten::_to_copy", "aten::copy_"}  # what may see both devices
SIZED_LATER = ("arange", "arange.start", "arange.start_step")  # PyTorch makes these empty first
# What torch.autocast does on CUDA, of the operations that are used here: products in 16 bit, sums and logarithms in 32.
NARROW = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
WIDE = (
    "softmax.int",
    "log_softmax.int",
    "logsumexp",
    "cross_entropy_loss",
    "nll_loss",
    "l1_loss",
    "binary_cross_entropy_with_logits",
    "exp",
    "log",
    "pow.Tensor_Scalar",
    "rsqrt",
    "sum",
    "sum.dim_IntList",
    "cumsum",
    "cumprod",
    "norm.Scalar",
    "linalg_vector_norm",
)

_reads: list[str] = []


@contextlib.contextmanager
def host_reads():
    """The names of the operations by which the host reads the card, in the order of the reads made inside."""
    first, inside = len(_reads), []
    yield inside
    inside += _reads[first:]


class CardTensor(torch.Tensor):
    """A tensor of the card; `held` is the same tensor in the CPU's memory."""

    @staticmethod
    def __new__(cls, held):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            layout=held.layout,
            requires_grad=held.requires_grad,
            device=torch.device(CARD, 0),
        )
        made.held = held
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return _run(function, args, kwargs or {})

    # What a tensor does below the dispatcher.

    def __getitem__(self, index):
        at = tree_map(
            lambda part: torch.tensor(part, device=CARD) if isinstance(part, list) else part,
            index,
            is_leaf=lambda part: isinstance(part, list),
        )
        return super().__getitem__(at)

    def __repr__(self):
        return f"CardTensor({self.held})"

    def __format__(self, spec):
        return format(self.item(), spec) if self.dim() == 0 else super().__format__(spec)

    def tolist(self):
        return self.cpu().tolist()

    def numpy(self, *args, **kwargs):
        raise TypeError("can't convert card:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    def new_tensor(self, data, *, dtype=None, device=None, **kwargs):
        return torch.tensor(data, dtype=dtype or self.dtype, device=device or CARD, **kwargs)

    def data_ptr(self):
        return self.held.data_ptr()

    def untyped_storage(self):
        return self.held.untyped_storage()

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, other):
        torch.Tensor.data.__set__(self, other)
        self.held = other.held


def _run(function, args, kwargs):
    """An operation on tensors of the card, or one that makes one, carried out in the CPU's memory."""
    name, device = function._schema.name, kwargs.get("device")
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    on_card = [isinstance(tensor, CardTensor) for tensor in tensors]
    if any(on_card):
        if name not in MOVING and any(
            not here and tensor.dim() for here, tensor in zip(on_card, tensors)
        ):
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found card:0 and cpu ({name})"
            )
        if _reads_card(name, args, device):
            _reads.append(name)
    held_args, held_kwargs = tree_map(
        lambda leaf: leaf.held if isinstance(leaf, CardTensor) else leaf, (args, kwargs)
    )
    if device is not None:
        held_kwargs["device"] = torch.device("cpu")
    made = function(
        *held_args, **{key: value for key, value in held_kwargs.items() if key != "pin_memory"}
    )
    if function._schema.is_mutable:
        return _written(function, args, kwargs, made)
    stays = any(on_card) if device is None else torch.device(device).type == CARD
    return tree_map(
        lambda leaf: CardTensor(leaf) if isinstance(leaf, torch.Tensor) and stays else leaf, made
    )


def _reads_card(name: str, args, device) -> bool:
    """Whether this operation on tensors of the card makes its host wait for a result."""
    if name in MOVING:
        return (
            device is not None
            and torch.device(device).type == "cpu"
            or not isinstance(args[0], CardTensor)
        )
    return name in READING or name in ("aten::index", "aten::index_put_") and _has_mask(args[1])


def _run_called(function, *args, **kwargs):
    """`_run` as the dispatcher calls it."""
    return _run(function, args, kwargs)


def _written(function, args, kwargs, made):
    """What an operation that writes to its arguments returns: these, the same objects as before."""
    written = [
        args[index] if index < len(args) else kwargs.get(argument.name)
        for index, argument in enumerate(function._schema.arguments)
        if argument.alias_info and argument.alias_info.is_write
    ]
    if any(
        isinstance(tensor, CardTensor) and tensor.shape != tensor.held.shape for tensor in written
    ):
        raise NotImplementedError(
            f"{function} changes a tensor's shape, which the stand-in device does not follow"
        )
    if not isinstance(made, (tuple, list)):
        return written[0] if function._schema.returns else None
    return type(made)(written)


def _has_mask(indices) -> bool:
    """Whether one of these indices is a mask, which selects as many elements as it has trues."""
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


# What is replaced


class _Backend:
    """torch.card: what PyTorch asks a device's module for."""

    is_available = is_initialized = staticmethod(lambda: True)
    _is_in_bad_fork = staticmethod(lambda: False)
    current_device = staticmethod(lambda: 0)
    device_count = staticmethod(lambda: 1)
    manual_seed_all = staticmethod(lambda seed: None)
    get_amp_supported_dtype = staticmethod(lambda: [torch.bfloat16, torch.float16])


def _through_the_cpu(make):
    """A factory that builds on the CPU and then moves, for those that PyTorch does not take through the dispatcher."""

    def made(*args, device=None, **kwargs):
        if device is None or torch.device(device).type != CARD:
            return make(*args, device=device, **kwargs)
        if isinstance(args[0], CardTensor):
            return args[0].to(kwargs.get("dtype") or args[0].dtype)
        return make(*args, **kwargs).to(CARD)

    return made


class _Generator(torch.Generator):
    """A generator, the CPU's whatever device it is for."""

    def __new__(cls, device="cpu"):
        return super().__new__(cls, "cpu" if torch.device(device).type == CARD else device)

    def __init__(self, device="cpu"):
        super().__init__()


class _SafeOpen:
    """safetensors.safe_open whose tensors may go to the card."""

    def __init__(self, filename, framework="pt", device="cpu", **options):
        self.to_card = str(device).startswith(CARD)
        self.file = _safe_open(
            filename, framework, device="cpu" if self.to_card else device, **options
        )

    def __enter__(self):
        self.file.__enter__()
        return self

    def __exit__(self, *error):
        return self.file.__exit__(*error)

    def __getattr__(self, name):
        return getattr(self.file, name)

    def _moved(self, tensor):
        return tensor.to(CARD) if self.to_card else tensor

    def get_tensor(self, name):
        return self._moved(self.file.get_tensor(name))

    def get_slice(self, name):
        return _Slice(self.file.get_slice(name), self._moved)


class _Slice:
    """A slice of _SafeOpen."""

    def __init__(self, part, moved):
        self.part, self.moved = part, moved

    def __getitem__(self, index):
        return self.moved(self.part[index])

    def __getattr__(self, name):
        return getattr(self.part, name)


_safe_open = safetensors.safe_open


def _overload(operation: str):
    """An operation of PyTorch by its name and overload, as "sum.dim_IntList"."""
    packet, _, overload = operation.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload or "default")


def _autocast(library, operation: str, dtype_of) -> None:
    """Has autocast give this operation its floating-point tensors of the card in the type that `dtype_of()` says."""
    function = _overload(operation)

    def cast(leaf):
        narrow = (
            isinstance(leaf, CardTensor)
            and leaf.is_floating_point()
            and leaf.dtype != torch.float64
        )
        return leaf.to(dtype_of()) if narrow else leaf

    def run(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        ):
            args, kwargs = tree_map(cast, (args, kwargs))
            return function(*args, **kwargs)

    library.impl(operation, run, "AutocastPrivateUse1")


def switch_on() -> None:
    """Makes the device, and replaces what does not go through the dispatcher, for the rest of this process."""
    global _libraries
    _device_constructors()  # kept by PyTorch, so that it knows the functions of that set before they are replaced
    backend_registration._setup_privateuseone_for_python_backend(CARD, _Backend())
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(_run_called, "PrivateUse1")
    for operation in SIZED_LATER:
        aten.impl(operation, functools.partial(_run_called, _overload(operation)), "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for operation in NARROW:
        _autocast(aten, operation, lambda: torch.get_autocast_dtype(CARD))
    for operation in WIDE:
        _autocast(aten, operation, lambda: torch.float32)
    _libraries = everything, aten  # what they register ends with them
    torch.inference_mode = torch.no_grad  # a wrapper cannot be an inference tensor
    torch.Generator, safetensors.safe_open = _Generator, _SafeOpen
    for name in ("tensor", "as_tensor"):
        setattr(torch, name, _through_the_cpu(getattr(torch, name)))
