"""Memory that a training on a CPU frees and asks for again in every step."""

import ctypes
import sys

import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of mallopt(3) in glibc's malloc.h
NEVER = -1  # as a threshold


def keep_freed_memory(device: torch.device) -> bool:
    """Has the C library keep freed memory for a CPU's tensors to come, from now on; returns whether it does (glibc).

    Otherwise each large tensor comes from the kernel, page by page and zeroed, and goes back to it: half of the time of a
    DSpark's update on a CPU where the vocabulary is wide.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if (device.type, sys.platform) == ("cpu", "linux") else None
    return mallopt is not None and mallopt(M_MMAP_MAX, 0) == mallopt(M_TRIM_THRESHOLD, NEVER) == 1
