"""Which part of a drafted block is worth verifying: policies that turn a proposal into verification lengths.

A policy is a function `policy(proposal) -> lengths` [B], each between 0 and the drafted length. It keeps the output
distribution exact when the decision about position k looks at nothing drawn at k or later (paper, Appendix A).
"""

import torch

from .drafters.base import Proposal
from .errors import RequestError


def fixed(length: int):
    """Verifies the first `length` tokens of every block."""
    if length < 0:
        raise RequestError(f"the verification length is {length}; it must be 0 or more")

    def policy(proposal: Proposal) -> torch.Tensor:
        batch, drafted = proposal.tokens.shape
        return torch.full((batch,), min(length, drafted), device=proposal.tokens.device)

    return policy


def survival(confidence: torch.Tensor) -> torch.Tensor:
    """The chance [B, g] that the prefix up to each position survives: the product of confidences (section 3.3)."""
    return confidence.cumprod(-1)


def threshold(least: float):
    """Cuts the block at the first position whose confidence is below `least`."""

    def policy(proposal: Proposal) -> torch.Tensor:
        return (_confidence(proposal) >= least).long().cumprod(-1).sum(-1)

    return policy


def retrospective(steps_per_second):
    """The tempting mistake of Appendix A: the length that maximises expected tokens a second over the whole block.

    `steps_per_second[B - 1]` is SPS(B), one entry for each batch of 1 to g + 1 tokens. Keeping k drafts is worth
    (1 + survival_1 + ... + survival_k) * SPS(k + 1). Survival behind position 1 was computed from the token drawn
    there, so that token takes part in deciding whether it is verified at all: lossy.
    """
    speed = torch.as_tensor(steps_per_second, dtype=torch.float32)

    def policy(proposal: Proposal) -> torch.Tensor:
        alive = survival(_confidence(proposal))
        if len(speed) < alive.shape[1] + 1:
            raise RequestError(f"SPS has {len(speed)} entries; a block of {alive.shape[1]} drafts needs "
                               f"{alive.shape[1] + 1}")
        expected = torch.cat([torch.ones_like(alive[:, :1]), alive], 1).cumsum(1)
        return (expected * speed[:expected.shape[1]].to(alive.device)).argmax(1)

    return policy


def _confidence(proposal: Proposal) -> torch.Tensor:
    if proposal.confidence is None:
        raise RequestError("this policy needs a confidence head, and the drafter has none; use a DSpark drafter or a "
                           "fixed length")
    return proposal.confidence
