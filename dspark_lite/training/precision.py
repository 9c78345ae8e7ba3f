"""What a device multiplies fast: autocast to 16 bit where the recipe asks for it and the device gains by it."""

from contextlib import nullcontext
from functools import cache

import torch

from ..common.timing import fastest
from ..models.checkpoints import default_dtype

REACHED = 0.4  # share of the fastest matrix product that a pass reaches


def autocast(device: torch.device, precision: str):
    """16-bit matrix products, "bfloat16" or "float16", plain float32 for "float32"."""
    return nullcontext() if precision == "float32" else torch.autocast(device.type, getattr(torch, precision))


@cache
def precision_on(device: torch.device, asked: str) -> str:
    """The precision a recipe asks for; "float32" on a CPU that is slower in it (many have no 16-bit arithmetic and take a
    hundred times as long), "float16" for "bfloat16" on a GPU that would emulate it."""
    if device.type == "cuda" and asked == "bfloat16":
        return str(default_dtype(device)).removeprefix("torch.")
    if device.type != "cpu" or asked == "float32":
        return asked
    faster = operations_a_second(device, getattr(torch, asked)) > operations_a_second(device, torch.float32)
    return asked if faster else "float32"


def operations_a_second(device: torch.device, dtype: torch.dtype) -> float:
    """Arithmetic operations a second that a pass reaches on this device: a share of what a matrix product reaches."""
    side = 4096 if device.type == "cuda" else 256
    matrix = torch.randn(side, side, device=device, dtype=dtype)
    return REACHED * 2 * side**3 / fastest(lambda: matrix @ matrix, device)
