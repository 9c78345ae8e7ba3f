"""Greedy equality where numbers are rounded: two answers may part only where the target itself hesitates."""

from typing import NamedTuple

import torch

LOGIT_SLACK = 8  # rounding steps of the largest logit within which two logits count as tied


class Parting(NamedTuple):
    """Where two greedy answers part, and whether rounding may have parted them.

    `at` is the position, `gap` how far the lower of the two tokens' logits lies below the target's largest (infinite
    where one answer has ended), `allowed` the gap that rounding excuses.
    """

    at: int
    gap: float
    allowed: float

    @property
    def tied(self) -> bool:
        """Return whether rounding excuses it."""
        return self.gap <= self.allowed


def parting(ours: list[int], theirs: list[int]) -> int | None:
    """The first position at which two answers differ, None where they are equal."""
    if ours == theirs:
        return None
    differing = [index for index, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]]
    return differing[0] if differing else min(len(ours), len(theirs))


@torch.inference_mode()
def parted(target, input_ids: torch.Tensor, ours: list[int], theirs: list[int]) -> Parting | None:
    """Where two greedy answers to input_ids [1, n] part and how near to a tie the target is there; None where they are
    equal.

    A block and a single token go through different kernels, which round differently. In float32 that shows in no
    answer; in 16 bits two logits within LOGIT_SLACK rounding steps of each other can change places.
    """
    at = parting(ours, theirs)
    if at is None:
        return None
    if at >= min(len(ours), len(theirs)):
        return Parting(at, float("inf"), 0.0)
    prefix = torch.tensor([ours[:at]], dtype=torch.long, device=input_ids.device)
    step, _ = target.prefill(torch.cat([input_ids, prefix], 1))
    logits = step.logits[0, -1]
    allowed = LOGIT_SLACK * torch.finfo(target.dtype).eps * logits.abs().max()
    return Parting(at, float(logits.max() - logits[[ours[at], theirs[at]]].min()), float(allowed))


def same_or_tied(target, input_ids: torch.Tensor, ours: list[int], theirs: list[int]) -> bool:
    """Return whether two greedy answers to input_ids [1, n] are equal, or part at a tie of the target's logits."""
    found = parted(target, input_ids, ours, theirs)
    return found is None or found.tied


TENSOR_SLACK = 32  # rounding steps of the largest number within which two tensors count as equal


def agree(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether two tensors are equal up to rounding in the data type of `theirs`."""
    return bool(
        (ours - theirs).abs().max()
        <= TENSOR_SLACK * torch.finfo(theirs.dtype).eps * theirs.abs().max()
    )
