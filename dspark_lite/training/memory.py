"""Memory that a training on a CPU frees and asks for again in every step."""

import ctypes
import sys

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of mallopt(3) in glibc's malloc.h
NEVER = -1  # as a threshold
KEPT_UPDATES = 20  # updates for which freed memory is kept: the longer, the more of it lies in pieces that fit nothing


def keep_freed_memory(device: torch.device) -> bool:
    """Has the C library keep freed memory for a CPU's tensors to come, from now on; returns whether it does (glibc).

    Otherwise each large tensor comes from the kernel, page by page and zeroed, and goes back to it: half of the time of a
    DSpark's update on a CPU where the vocabulary is wide. What is kept is given back by `give_back_freed_memory`.
    """
    mallopt = _of_the_c_library("mallopt", device)
    return mallopt is not None and mallopt(M_MMAP_MAX, 0) == mallopt(M_TRIM_THRESHOLD, NEVER) == 1


def give_back_freed_memory(device: torch.device, updates: int) -> None:
    """After every KEPT_UPDATES updates, gives to the kernel what the C library keeps of a CPU's freed memory; without that a long
    training takes ever more."""
    malloc_trim = _of_the_c_library("malloc_trim", device)
    if malloc_trim is not None and updates % KEPT_UPDATES == 0:
        malloc_trim(0)


def _of_the_c_library(name: str, device: torch.device):
    """A function of glibc; None where there is none, or no tensor of a CPU."""
    return getattr(ctypes.CDLL(None), name, None) if (device.type, sys.platform) == ("cpu", "linux") else None
