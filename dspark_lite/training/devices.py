"""Choose the processes, device and number formats of a training, and return freed memory."""

import ctypes
import sys
from contextlib import nullcontext
from datetime import timedelta
from functools import cache

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs

from ..common.timing import fastest
from ..models.checkpoints import default_dtype

WAIT = timedelta(days=30)  # other processes wait while the main one writes answers and cache
REACHED = 0.4  # share of the fastest matrix product that a pass reaches
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of mallopt(3) in glibc's malloc.h


def processes() -> Accelerator:
    """Return the processes of `accelerate launch`, or this process alone. Tensors stay on their
    device."""
    return Accelerator(
        device_placement=False, kwargs_handlers=[InitProcessGroupKwargs(timeout=WAIT)]
    )


def training_device(device: str | None) -> torch.device:
    """Return the device asked for, by default a GPU if there is one. A launched process has a
    device of its own."""
    accelerator = processes()
    if accelerator.num_processes > 1:
        return accelerator.device
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def autocast(device: torch.device, precision: str):
    """Return a context in which matrix products have this precision: "float32", "bfloat16" or
    "float16"."""
    return (
        nullcontext()
        if precision == "float32"
        else torch.autocast(device.type, getattr(torch, precision))
    )


@cache
def precision_on(device: torch.device, asked: str) -> str:
    """Return the precision that a recipe asks for, or one that the device computes faster.

    A CPU uses float32 if 16 bit is slower: many have no 16-bit arithmetic and take a hundred times
    as long. A GPU that would emulate bfloat16 (compute capability below 8.0) uses float16.
    """
    if device.type == "cuda" and asked == "bfloat16":
        return str(default_dtype(device)).removeprefix("torch.")
    if device.type != "cpu" or asked == "float32":
        return asked
    faster = operations_a_second(device, getattr(torch, asked)) > operations_a_second(
        device, torch.float32
    )
    return asked if faster else "float32"


def operations_a_second(device: torch.device, dtype: torch.dtype) -> float:
    """Return the arithmetic operations a second of a model's pass: a share of those of a matrix
    product."""
    side = 4096 if device.type == "cuda" else 256
    # A generator of its own: the caller's random numbers stay as they are.
    generator = torch.Generator(device).manual_seed(0)
    matrix = torch.randn(side, side, generator=generator, device=device, dtype=dtype)
    return REACHED * 2 * side**3 / fastest(lambda: matrix @ matrix, device)


def c_library(device: torch.device):
    """Return the C library if it is glibc and `device` is a CPU, else None."""
    library = ctypes.CDLL(None) if (device.type, sys.platform) == ("cpu", "linux") else None
    return library if hasattr(library, "malloc_trim") else None


def keep_freed_memory(device: torch.device) -> None:
    """Let glibc keep the memory of freed tensors for the next ones, on a CPU.

    Otherwise the kernel hands out each large tensor page by page and zeroed, and takes it back: a
    quarter of an update's time. `optimise` trims the memory now and then, or it would grow. The
    setting holds for the whole process and cannot be undone, so only a process that does nothing
    but train may call this.
    """
    if library := c_library(device):
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)  # never
