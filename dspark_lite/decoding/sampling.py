"""From logits to tokens: probabilities, draws, the lossless accept rule (paper, section 2; Leviathan et al. 2023)."""

from numbers import Integral, Real
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..common.errors import RequestError


class Verdict(NamedTuple):
    """What verification decided: `accepted` [B] draft tokens kept, and the `next_token` [B] drawn after them."""

    accepted: torch.Tensor
    next_token: torch.Tensor


def check_temperature(temperature: float) -> None:
    """Raises RequestError for a temperature below zero, or none at all."""
    if not isinstance(temperature, Real) or not temperature >= 0:
        raise RequestError(f"the temperature is {temperature!r}; it must be 0 (greedy) or more")


def check_seed(seed: int, of: str = "") -> None:
    """Raises RequestError for what torch takes as no seed; `of` says whose it is."""
    if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
        raise RequestError(
            f"the seed{of} is {seed!r}; it must be a whole number from 0 to 2**63 - 1"
        )


LEAST_TEMPERATURE = (
    1e-30  # below, logits over it overflow float32, and only the largest one has any mass
)


def probabilities(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Float32 probabilities [..., V] of logits [..., V]; below LEAST_TEMPERATURE all mass is on the largest one."""
    if temperature < LEAST_TEMPERATURE:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    return torch.softmax(logits.float() / temperature, -1)


def undefined(logits: torch.Tensor) -> torch.Tensor:
    """Whether no distribution can be made of logits [..., V], because one is nan or the largest is infinite; [...]."""
    return ~logits.amax(-1).isfinite()


class RandomSource:
    """Stands in for a torch.Generator where choices are visited (losslessness/enumeration.py) or drawn in another way (serving/engine.py)."""

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Chooses tokens [...] for distributions [..., V]."""
        raise NotImplementedError

    def accepted_prefix_length(self, keep: torch.Tensor) -> torch.Tensor:
        """Chooses how many of the leading coins [B, g], each true with probability `keep`, come up true; [B]."""
        raise NotImplementedError


Randomness = torch.Generator | RandomSource | None


def draw(probs: torch.Tensor, generator: Randomness) -> torch.Tensor:
    """One token [...] from each distribution of probs [..., V]."""
    if isinstance(generator, RandomSource):
        return generator.draw(probs)
    return race(probs, torch.empty_like(probs).exponential_(generator=generator))


def race(probs: torch.Tensor, exponential: torch.Tensor) -> torch.Tensor:
    """The token [...] that arrives first where each of probs [..., V] is a rate: arrival times are `exponential` numbers over
    the rates, so a token wins with its own probability. They must be above 0, as torch says those of `exponential_` are: at exactly 0
    a token that is impossible would win.

    torch.multinomial draws one token in this way too, from the same numbers, but asks the host whether probs are valid.
    """
    return (probs / exponential).argmax(-1)


def accepted_prefix_length(keep: torch.Tensor, generator: Randomness) -> torch.Tensor:
    """Tosses one coin for each probability of keep [B, g]; the number [B] of trues before the first false."""
    if isinstance(generator, RandomSource):
        return generator.accepted_prefix_length(keep)
    uniform = torch.rand(keep.shape, generator=generator, device=keep.device)
    return (uniform < keep).long().cumprod(-1).sum(-1)


def residual(target_probs: torch.Tensor, draft_probs: torch.Tensor) -> torch.Tensor:
    """What the target still owes after the draft's share: max(p - q, 0), renormalised, [..., V].

    Where p equals q nothing is owed and no token can be rejected; p itself is returned there.
    """
    owed = (target_probs - draft_probs).clamp(min=0)
    total = owed.sum(-1, keepdim=True)
    return torch.where(
        total > 0, owed / total.clamp(min=torch.finfo(owed.dtype).tiny), target_probs
    )


def probability_ratios(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, draft_tokens: torch.Tensor
) -> torch.Tensor:
    """p_k(x) / q_k(x) [B, g] of the drafted tokens x [B, g]; probabilities as `accept` takes them."""
    at = draft_tokens.unsqueeze(-1)
    return (
        target_probs[:, : draft_tokens.shape[1]].gather(-1, at) / draft_probs.gather(-1, at)
    ).squeeze(-1)


def accept(
    target_probs: torch.Tensor,
    draft_probs: torch.Tensor,
    draft_tokens: torch.Tensor,
    lengths: torch.Tensor | None,
    generator: Randomness,
) -> Verdict:
    """Keeps the longest accepted prefix of each block and draws the token that follows it.

    Draft token x at position k is accepted with probability min(1, p_k(x) / q_k(x)). After a rejection the next token
    comes from the residual of that position, after a whole accepted block from the target itself (the bonus).

    target_probs [B, g+1, V], draft_probs [B, g, V], draft_tokens [B, g]; `lengths` [B] are the verification lengths,
    None for the whole block. Everything stays on the device; nothing is asked of the host.
    """
    batch, gamma = draft_tokens.shape
    keep = probability_ratios(target_probs, draft_probs, draft_tokens).clamp(max=1)
    if lengths is None:
        lengths = torch.full((batch,), gamma, device=draft_tokens.device)
    keep = keep * (torch.arange(gamma, device=keep.device) < lengths[:, None])
    accepted = accepted_prefix_length(keep, generator)  # [B]

    row = torch.arange(batch, device=accepted.device)
    last_target = target_probs[row, accepted]  # [B, V]
    # A zero row after the block makes the bonus a residual like any other: nothing was drafted, all of p is owed.
    padded = F.pad(draft_probs, (0, 0, 0, 1))
    rejected = (accepted < lengths)[:, None]
    last_draft = padded[row, accepted] * rejected
    return Verdict(accepted, draw(residual(last_target, last_draft), generator))
