"""Two computations of the same thing differ by rounding, and rounding depends on the data type."""

import torch

SLACK = 32  # rounding steps of the largest number within which two tensors count as equal


def agree(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two tensors are equal up to rounding in the data type of `theirs`."""
    return bool((ours - theirs).abs().max() <= SLACK * torch.finfo(theirs.dtype).eps * theirs.abs().max())
