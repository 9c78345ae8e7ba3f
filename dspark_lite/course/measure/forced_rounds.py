"""Rounds of decoding with a forced outcome: the time of a round with random weights.

Random weights agree on nothing, so nothing would be accepted. Here each round does all its work,
and then commits as many drafts as a pattern says: the time is real, the acceptance is not, and
whoever shows such a number says so.
"""

from collections.abc import Callable
from contextlib import contextmanager

import torch

from ...common.timing import WallSeconds
from ...decoding.answer import Outcome
from ...decoding.lockstep import play_round
from ...decoding.rounds import Sequence
from ...decoding.sampling import Verdict, accept
from .. import paper
from ..names import DOMAINS

ROUND_PARTS = ("draft", "verify", "accept", "commit")  # scheduling takes no time without a policy


class ForcedAccept:
    """An accept rule that runs the real rule, and then accepts as many drafts as `pattern` says,
    round by round, at most the verified ones."""

    def __init__(self, pattern: list[int], device: torch.device):
        self._forced = iter(torch.tensor(pattern, device=device).split(1))  # [1] for each round

    def __call__(self, target_probs, draft_probs, draft_tokens, lengths, generator) -> Verdict:
        verdict = accept(target_probs, draft_probs, draft_tokens, lengths, generator)
        return verdict._replace(accepted=next(self._forced).clamp(max=draft_tokens.shape[1]))


@torch.inference_mode()
def forced_text(
    target,
    drafter,
    input_ids: torch.Tensor,
    pattern: list[int],
    *,
    temperature: float = 1.0,
    generator=None,
) -> Sequence:
    """Return a prompt [1, n], read for rounds that accept as many drafts as `pattern` says, at most
    the whole block."""
    output, cache = target.prefill(input_ids, drafter.taps if drafter else ())
    state = drafter.begin(input_ids, output.features) if drafter else None
    return Sequence(
        target,
        drafter,
        cache,
        state,
        output.logits[:, -1].argmax(-1),
        temperature,
        generator,
        rule=ForcedAccept(pattern, target.device),
    )


def timed_rounds(text: Sequence, count: int) -> list[dict[str, float]]:
    """Play `count` rounds; return the milliseconds of each part by round."""
    return [
        {part: 1e3 * spent for part, spent in measure_parts(text)[1].items()} for _ in range(count)
    ]


def measure_parts(text: Sequence, gauge: Callable = WallSeconds) -> tuple[Outcome, dict]:
    """Play a round of a text; return its outcome, and the `total` of the `gauge(device)` of each of
    ROUND_PARTS."""
    totals = {}

    @contextmanager
    def observe(part: str):
        with gauge(text.target.device) as gauged:
            yield
        totals[part] = gauged.total

    text.observe = observe
    (outcome,) = play_round([text])
    return outcome, {part: totals[part] for part in ROUND_PARTS}


def paper_pattern(drafter: str, rounds: int, seed: int = 0) -> list[int]:
    """Return accepted drafts of `rounds` rounds, drawn from the paper's conditional acceptance by
    position (Figure 2, Qwen3-4B), one domain after the other in turn; the same ones for a seed."""
    generator = torch.Generator().manual_seed(seed)
    # [domains, g]
    by_domain = torch.tensor([paper.conditional_acceptance(drafter, domain) for domain in DOMAINS])
    coins = torch.rand(rounds, by_domain.shape[1], generator=generator)
    accepted = coins < by_domain[torch.arange(rounds) % len(DOMAINS)]
    return accepted.long().cumprod(1).sum(1).tolist()
