"""Rounds of decoding whose outcome is forced: what a round costs where the weights are random.

Random weights agree on nothing, so nothing would be accepted. Here each round does all its work, and then commits as
many drafts as a pattern says: the time is real, the acceptance is not, and whoever shows such a number says so.
"""

from functools import partial

import torch

from dspark_lite.common import paper
from dspark_lite.common.names import DOMAINS
from dspark_lite.common.timing import wall_seconds
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.decoding.rounds import ROUND_PARTS, Decoder
from dspark_lite.decoding.sampling import Verdict
from dspark_lite.decoding.target import Step


class ForcedRounds(Decoder):
    """One request after its prompt [1, n]; its rounds accept as many drafts as `pattern` says, at most the whole block."""

    def __init__(self, target, drafter, input_ids: torch.Tensor, pattern: list[int], *, temperature: float = 1.0,
                 generator=None):
        step, cache = target.prefill(input_ids, drafter.taps if drafter else ())
        state = drafter.begin(input_ids, step.features) if drafter else None
        super().__init__(target, drafter, cache, state, step.logits[:, -1].argmax(-1), temperature, generator)
        self.pattern = [min(accepted, drafter.gamma if drafter else 0) for accepted in pattern]
        self._forced = iter(torch.tensor(self.pattern, device=target.device).split(1))  # [1] for each round

    def accept(self, proposal: Proposal, step: Step) -> Verdict:
        """Judges the block, and says what the pattern says."""
        return super().accept(proposal, step)._replace(accepted=next(self._forced))


@torch.inference_mode()
def timed_rounds(rounds: ForcedRounds, count: int) -> list[dict[str, float]]:
    """Plays so many rounds: milliseconds of each part by round."""
    return [{part: 1e3 * spent for part, spent in measure_parts(rounds).items()} for _ in range(count)]


def measure_parts(decoder: Decoder, measure=wall_seconds) -> dict:
    """Plays a round of a decoder; `measure(function, device)` is called with each of ROUND_PARTS."""
    parts = decoder.parts()
    return {part: measure(partial(next, parts), decoder.target.device) for part in ROUND_PARTS}


def paper_pattern(drafter: str, rounds: int, seed: int = 0) -> list[int]:
    """Accepted drafts of `rounds` rounds, drawn from the paper's conditional acceptance by position (Figure 2,
    Qwen3-4B), one domain after the other in turn; the same ones for a seed."""
    generator = torch.Generator().manual_seed(seed)
    by_domain = torch.tensor([paper.conditional_acceptance(drafter, domain) for domain in DOMAINS])  # [domains, g]
    coins = torch.rand(rounds, by_domain.shape[1], generator=generator)
    kept = coins < by_domain[torch.arange(rounds) % len(DOMAINS)]
    return kept.long().cumprod(1).sum(1).tolist()
