"""Which weights a target or a drafter has: the torch module in it, and a digest of every number in it."""

import functools
import hashlib

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .errors import CheckpointError

LANES = 4093  # sums of a checksum: a prime, so that rows which change places change lanes
PART = 1 << 24  # numbers of a tensor that a fingerprint converts at a time


def network(model) -> nn.Module | None:
    """The torch module in a target or a drafter; None in a drafter without weights."""
    while not isinstance(model, nn.Module) and hasattr(model, "model"):
        model = model.model  # a target holds its model, a small language model holds a target
    return model if isinstance(model, nn.Module) else None


@functools.cache
def _weights(device: torch.device) -> torch.Tensor:
    """An odd 64-bit factor for each lane, the same on every machine."""
    return torch.from_numpy(
        np.frombuffer(hashlib.shake_256(b"lanes").digest(8 * LANES), "<i8") | 1
    ).to(device)


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Return a 64-bit checksum of the bytes of a plain tensor, as an int64 tensor [] on its device.

    Reads the tensor once. It differs after each change of one number, and after other changes with a probability of about
    1 - 2^-64. It does not tell shapes and number formats apart.
    """
    raw = tensor.detach().contiguous().flatten().view(torch.uint8)
    if raw.storage_offset() % 8:
        raw = raw.clone()
    if raw.numel() % 8:
        raw = nn.functional.pad(raw, (0, -raw.numel() % 8))
    words, weights = raw.view(torch.int64), _weights(raw.device)
    whole = len(words) // LANES * LANES
    rest = (words[whole:] * weights[: len(words) - whole]).sum()
    return rest + (words[:whole].view(-1, LANES).sum(0) * weights).sum() if whole else rest


def fingerprint(model) -> str | None:
    """Return a digest of every number in a target or a drafter, 12 hexadecimal digits; None for a drafter without weights.

    Covers the tensors that a checkpoint would store, and which adapters are active. A file of 16-bit weights gives the same
    digest in every number format, so 16-bit numbers are compared as float16: numbers below 6e-8 count as 0.
    Raise CheckpointError for weights that are not in memory.
    """
    module = network(model)
    if module is None:
        return None
    shapes, sums = [], []
    for name, value in module.state_dict().items():
        for tensor in _plain(value):
            if tensor.is_meta:
                raise CheckpointError(
                    f"{name} is not in memory (offloaded, or on the meta device), so its weights have no fingerprint; load the "
                    "model without offloading"
                )
            shapes.append(tuple(tensor.shape))
            sums += [checksum(_in_16_bits(part)) for part in tensor.flatten().split(PART)]
    adapters = [
        (name, active, getattr(part, "disable_adapters", None) is True)
        for name, part in module.named_modules()
        if isinstance(active := getattr(part, "active_adapter", None), (str, list))
    ]
    told = (
        shapes,
        torch.stack([part.cpu() for part in sums]).tolist() if sums else [],
        *([adapters] if adapters else []),
    )
    return hashlib.sha256(repr(told).encode()).hexdigest()[:12]


def _plain(value) -> list[torch.Tensor]:
    """The tensors that an entry of a state dict consists of: quantised weights consist of several."""
    if not isinstance(value, torch.Tensor):
        return []
    if is_traceable_wrapper_subclass(value):
        return [
            tensor
            for name in value.__tensor_flatten__()[0]
            for tensor in _plain(getattr(value, name))
        ]
    return [value.detach().as_subclass(torch.Tensor)]


def _in_16_bits(numbers: torch.Tensor) -> torch.Tensor:
    """Numbers as float16 if they are 16-bit floats or could be read from a file of such; as they are otherwise."""
    if not numbers.is_floating_point() or numbers.itemsize == 1:
        return numbers
    kinds = (torch.bfloat16, torch.float16)
    exact = numbers.dtype in kinds or any(
        torch.equal(numbers.to(kind).to(numbers.dtype), numbers) for kind in kinds
    )
    return numbers.half() if exact else numbers
