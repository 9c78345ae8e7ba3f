"""Greedy equality up to rounding: two answers may part only at a near-tie of target logits."""

from typing import NamedTuple

import torch

LOGIT_SLACK = 8  # rounding steps of the largest logit within which two logits count as tied


class Divergence(NamedTuple):
    """The position `at` which two greedy answers part, and the near-tie of the logits there.

    `gap` is the distance from the target's largest logit to the smaller logit of the two tokens
    (infinite if an answer has ended), `allowed` the gap that rounding explains.
    """

    at: int
    gap: float
    allowed: float

    @property
    def tied(self) -> bool:
        """Return whether rounding explains the divergence."""
        return self.gap <= self.allowed


def first_difference(ours: list[int], theirs: list[int]) -> int | None:
    """Return the first position at which two answers differ, or None if they are equal."""
    if ours == theirs:
        return None
    differing = [index for index, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]]
    return differing[0] if differing else min(len(ours), len(theirs))


@torch.inference_mode()
def divergence(
    target, input_ids: torch.Tensor, ours: list[int], theirs: list[int]
) -> Divergence | None:
    """Return where two greedy answers to input_ids [1, n] part, or None if they are equal.

    A block and a single token go through different kernels, which round differently. In float32
    this changes no answer. In 16 bits it can swap two logits within LOGIT_SLACK rounding steps.
    """
    at = first_difference(ours, theirs)
    if at is None:
        return None
    if at >= min(len(ours), len(theirs)):
        return Divergence(at, float("inf"), 0.0)
    prefix = torch.tensor([ours[:at]], dtype=torch.long, device=input_ids.device)
    output, _ = target.prefill(torch.cat([input_ids, prefix], 1))
    logits = output.logits[0, -1]
    allowed = LOGIT_SLACK * torch.finfo(target.dtype).eps * logits.abs().max()
    return Divergence(
        at, float(logits.max() - logits[[ours[at], theirs[at]]].min()), float(allowed)
    )


def same_or_tied(target, input_ids: torch.Tensor, ours: list[int], theirs: list[int]) -> bool:
    """Return whether two greedy answers to input_ids [1, n] are equal or part at a tie."""
    found = divergence(target, input_ids, ours, theirs)
    return found is None or found.tied


TENSOR_SLACK = 32  # rounding steps of the largest number within which two tensors count as equal


def agree(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether two tensors are equal up to rounding in the data type of `theirs`."""
    return bool(
        (ours - theirs).abs().max()
        <= TENSOR_SLACK * torch.finfo(theirs.dtype).eps * theirs.abs().max()
    )
