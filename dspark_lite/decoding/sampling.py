"""From logits to tokens: probabilities, draws, and the lossless accept rule.

Source: paper, section 2; Leviathan et al., 2023.
"""

import math
from numbers import Integral, Real
from typing import NamedTuple

import torch
import torch.nn.functional as F

from ..common.errors import RequestError


class Verdict(NamedTuple):
    """The result of verification: how many drafts were `accepted` [B], and the `next_token` [B] after
    them."""

    accepted: torch.Tensor
    next_token: torch.Tensor


def check_temperature(temperature: float) -> None:
    """Raise RequestError unless the temperature is a finite number, 0 or more."""
    if not isinstance(temperature, Real) or not 0 <= temperature < math.inf:
        raise RequestError(
            f"the temperature is {temperature!r}; it must be 0 (greedy) or more, and finite"
        )


def check_seed(seed: int, of: str = "") -> None:
    """Raise RequestError unless torch accepts the seed; `of` names its owner in the message."""
    if not isinstance(seed, Integral) or not 0 <= seed < 2**63:
        raise RequestError(
            f"the seed{of} is {seed!r}; it must be a whole number from 0 to 2**63 - 1"
        )


# Below this temperature, logits / temperature overflows float32; only the largest logit counts.
LEAST_TEMPERATURE = 1e-30


def is_greedy(temperature: float | torch.Tensor) -> bool:
    """Return whether a temperature is that of greedy decoding; of rows that have their own, False."""
    return not isinstance(temperature, torch.Tensor) and temperature < LEAST_TEMPERATURE


def probabilities(logits: torch.Tensor, temperature: float | torch.Tensor) -> torch.Tensor:
    """Return float32 probabilities [..., V] of logits [..., V]. Below LEAST_TEMPERATURE the largest
    logit has probability 1. `temperature` is a number, or those [R] of the rows of logits
    [R, ..., V]."""
    if is_greedy(temperature):
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    if not isinstance(temperature, torch.Tensor):
        return torch.softmax(logits.float() / temperature, -1)
    of_row = temperature.reshape(-1, *[1] * (logits.ndim - 1))
    greedy = of_row < LEAST_TEMPERATURE
    sampled = torch.softmax(logits.float() / of_row.masked_fill(greedy, 1.0), -1)
    return torch.where(greedy, probabilities(logits, 0.0), sampled)


def nucleus(probs: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """Return the distributions [R, ..., V] of the most probable tokens that together have at least
    the probability `top_p` [R] of each row; a row of 1 keeps all."""
    ordered, order = probs.sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    share = top_p.reshape(-1, *[1] * (probs.ndim - 1))
    kept = torch.where((before < share) | (share >= 1), ordered, 0.0)
    kept = torch.zeros_like(probs).scatter(-1, order, kept)
    return kept / kept.sum(-1, keepdim=True)


def undefined(logits: torch.Tensor) -> torch.Tensor:
    """Return whether logits [..., V] give no distribution: one is nan, or the largest is infinite.
    Shape [...]."""
    return ~logits.amax(-1).isfinite()


NOT_FINITE = (
    "the {} are not finite; load the model in bfloat16 or float32 (float16 overflows "
    "above 65,504), or check its weights"
)


class RandomSource:
    """Replaces a torch.Generator: losslessness/enumeration.py visits every choice, serving/runner.py
    draws from numbers of each request."""

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Choose tokens [...] from distributions [..., V]."""
        raise NotImplementedError

    def accepted_prefix_length(self, keep: torch.Tensor) -> torch.Tensor:
        """Toss coins [B, g] that are true with probability `keep`; return the number [B] of trues
        before the first false."""
        raise NotImplementedError


Randomness = torch.Generator | RandomSource | None


def draw(probs: torch.Tensor, generator: Randomness) -> torch.Tensor:
    """Draw one token [...] from each distribution of probs [..., V]."""
    if isinstance(generator, RandomSource):
        return generator.draw(probs)
    return first_to_ring(probs, torch.empty_like(probs).exponential_(generator=generator))


def draw_at(
    probs: torch.Tensor, temperature: float | torch.Tensor, generator: Randomness
) -> torch.Tensor:
    """Draw tokens [...] as `draw` from probs [..., V] at this temperature. Greedy tokens are certain
    and take no random numbers, unless other rows are sampled."""
    if is_greedy(temperature):
        return probs.argmax(-1)
    return draw(probs, generator)


def first_to_ring(probs: torch.Tensor, exponential: torch.Tensor) -> torch.Tensor:
    """Return the token [...] whose clock rings first, if each of probs [..., V] is a clock's rate.

    A clock rings after an `exponential` number divided by its rate, so a token is first with its
    own probability. The numbers must be positive: with a 0, a token of probability 0 would win.
    torch guarantees this. torch.multinomial uses the same numbers, but makes the host wait.
    """
    return (probs / exponential).argmax(-1)


def accepted_prefix_length(keep: torch.Tensor, generator: Randomness) -> torch.Tensor:
    """Toss a coin for each probability of keep [B, g]; return the number [B] of trues before the
    first false."""
    if isinstance(generator, RandomSource):
        return generator.accepted_prefix_length(keep)
    uniform = torch.rand(keep.shape, generator=generator, device=keep.device)
    return (uniform < keep).long().cumprod(-1).sum(-1)


def residual(target_probs: torch.Tensor, draft_probs: torch.Tensor) -> torch.Tensor:
    """Return the distribution after a rejection: max(p - q, 0), normalised, [..., V].

    If p equals q, no token can be rejected; the result is then p.
    """
    owed = (target_probs - draft_probs).clamp(min=0)
    total = owed.sum(-1, keepdim=True)
    return torch.where(
        total > 0, owed / total.clamp(min=torch.finfo(owed.dtype).tiny), target_probs
    )


def probability_ratios(
    target_probs: torch.Tensor, draft_probs: torch.Tensor, draft_tokens: torch.Tensor
) -> torch.Tensor:
    """Return p_k(x) / q_k(x) [B, g] of the drafted tokens x [B, g]; arguments as of `accept`."""
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
    """Accept a prefix of each block and draw the token after it (Leviathan et al., 2023).

    Draft x at position k is accepted with probability min(1, p_k(x) / q_k(x)). After a rejection,
    the next token is drawn from the residual of that position; after a whole accepted block, from
    the target (the bonus).

    target_probs [B, g+1, V], draft_probs [B, g, V], draft_tokens [B, g]; `lengths` [B] are the
    verification lengths, None for whole blocks. The host does not wait for the device.
    """
    batch, gamma = draft_tokens.shape
    keep = probability_ratios(target_probs, draft_probs, draft_tokens).clamp(max=1)
    if lengths is None:
        lengths = torch.full((batch,), gamma, device=draft_tokens.device)
    keep = keep * (torch.arange(gamma, device=keep.device) < lengths[:, None])
    accepted = accepted_prefix_length(keep, generator)  # [B]

    row = torch.arange(batch, device=accepted.device)
    last_target = target_probs[row, accepted]  # [B, V]
    # Where no draft was rejected, q is 0 and the residual is p: after a whole block by the row of
    # zeros, after a shortened one by `rejected`.
    padded = F.pad(draft_probs, (0, 0, 0, 1))
    rejected = (accepted < lengths)[:, None]
    last_draft = padded[row, accepted] * rejected
    return Verdict(accepted, draw(residual(last_target, last_draft), generator))


def accept_greedy(
    logits: torch.Tensor, draft_tokens: torch.Tensor, lengths: torch.Tensor | None
) -> Verdict:
    """Accept the prefix of each block that the target itself would write, without a random number.

    logits [B, g+1, V]; otherwise as `accept` at temperature 0.
    """
    written = logits.argmax(-1)  # [B, g+1]
    equal = draft_tokens == written[:, : draft_tokens.shape[1]]
    if lengths is not None:
        equal &= torch.arange(equal.shape[1], device=equal.device) < lengths[:, None]
    accepted = equal.long().cumprod(-1).sum(-1)
    return Verdict(accepted, written.gather(1, accepted[:, None])[:, 0])
