"""Fingerprints of weights (a digest of every number in a target or a drafter) and of JSON."""

import functools
import hashlib
import json

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from .errors import CheckpointError

LANES = 4093  # sums of a checksum; a prime, so that swapped rows change lanes
PART = 1 << 24  # numbers that a fingerprint converts at a time


def module_of(model) -> nn.Module | None:
    """Return the torch module of a target or a drafter, or None for a drafter without weights."""
    while not isinstance(model, nn.Module) and hasattr(model, "model"):
        model = model.model  # a small language model has a target, a target has its model
    return model if isinstance(model, nn.Module) else None


@functools.cache
def _lane_factors(device: torch.device) -> torch.Tensor:
    """Return an odd 64-bit factor for each lane, [LANES], the same on every machine."""
    return torch.from_numpy(
        np.frombuffer(hashlib.shake_256(b"lanes").digest(8 * LANES), "<i8") | 1
    ).to(device)


def checksum(tensor: torch.Tensor) -> torch.Tensor:
    """Return a 64-bit checksum of the bytes of a plain tensor, as an int64 tensor [] on its device.

    Reads the tensor once. A change of a single number always changes the checksum, any other change
    with a probability of about 1 - 2^-64. Shape and dtype do not enter.
    """
    raw = tensor.detach().contiguous().flatten().view(torch.uint8)
    if raw.storage_offset() % 8:
        raw = raw.clone()
    if raw.numel() % 8:
        raw = nn.functional.pad(raw, (0, -raw.numel() % 8))
    words, weights = raw.view(torch.int64), _lane_factors(raw.device)
    whole = len(words) // LANES * LANES
    rest = (words[whole:] * weights[: len(words) - whole]).sum()
    return rest + (words[:whole].view(-1, LANES).sum(0) * weights).sum() if whole else rest


def fingerprint(model) -> str | None:
    """Return a digest of every number in a model, 12 hexadecimal digits; None without weights.

    `model` is a target or a drafter. The digest covers the tensors that a checkpoint would store,
    and the active adapters. 16-bit weights give the same digest in every dtype: they enter as
    float16, so numbers below 6e-8 count as 0. Raise CheckpointError for weights that are not in
    memory.
    """
    module = module_of(model)
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
    content = (
        shapes,
        torch.stack([part.cpu() for part in sums]).tolist() if sums else [],
        *([adapters] if adapters else []),
    )
    return hashlib.sha256(repr(content).encode()).hexdigest()[:12]


def _plain(value) -> list[torch.Tensor]:
    """Return the plain tensors of an entry of a state dict. A quantised weight has several."""
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
    """Return numbers as float16 if a 16-bit format holds them exactly, otherwise unchanged."""
    if not numbers.is_floating_point() or numbers.itemsize == 1:
        return numbers
    kinds = (torch.bfloat16, torch.float16)
    exact = numbers.dtype in kinds or any(
        torch.equal(numbers.to(kind).to(numbers.dtype), numbers) for kind in kinds
    )
    return numbers.half() if exact else numbers


def json_digest(value) -> str:
    """Return 16 hexadecimal digits that identify a value: a hash of its JSON with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
