"""Rounds of decoding whose outcome is forced, part by part: what a round costs where the weights are random.

Random weights agree on nothing, so nothing would be accepted. Here each round does all its work, and then commits as
many drafts as a pattern says: the time is real, the acceptance is not, and whoever shows such a number says so.
"""

import torch

from . import paper
from .decoding import clock, nothing_drafted
from .sampling import accept, probabilities
from .training.corpus import DOMAINS

PARTS = ("draft", "verify", "accept", "commit")


class ForcedRounds:
    """One request after its prompt, ready for its next round; `drafter=None` is plain decoding.

    A round is `draft`, `verify`, `accept` and `commit`, in this order.
    """

    def __init__(self, target, drafter, input_ids: torch.Tensor, *, temperature: float = 1.0, generator=None):
        self.target, self.drafter, self.temperature, self.generator = target, drafter, temperature, generator
        self.taps = drafter.taps if drafter else ()
        step, self.cache = target.prefill(input_ids, self.taps)
        self.anchor = step.logits[:, -1].argmax(-1)
        self.state = drafter.begin(input_ids, step.features) if drafter else None

    def draft(self) -> None:
        """Drafts a block."""
        if self.drafter is None:
            self.proposal = nothing_drafted(self.anchor, self.target.vocab_size)
        else:
            self.proposal = self.drafter.propose(self.state, self.anchor, temperature=self.temperature,
                                                 generator=self.generator)

    def verify(self) -> None:
        """Has the target read the anchor and the block."""
        self.entering = torch.cat([self.anchor[:, None], self.proposal.tokens], 1)
        self.step = self.target.verify(self.entering, self.cache, self.taps)

    def accept(self) -> None:
        """Judges the block, and asks the host for the verdict as `generate` does."""
        target_probs, drafted = probabilities(self.step.logits, self.temperature), self.proposal.tokens
        self.verdict = accept(target_probs, self.proposal.probs, drafted, None, self.generator)
        torch.cat([self.verdict.accepted, self.verdict.next_token, drafted[0]]).tolist()

    def commit(self, accepted: int) -> int:
        """Commits the first `accepted` drafts, at most all, whatever the verdict; the number of committed tokens."""
        drafted = self.proposal.tokens.shape[1]
        accepted = min(accepted, drafted)
        self.target.roll_back(self.cache, drafted - accepted)
        if self.drafter:
            features = None if self.step.features is None else self.step.features[:, :accepted + 1]
            self.drafter.extend(self.state, self.entering[:, :accepted + 1], features)
        self.anchor = self.verdict.next_token
        return accepted + 1


@torch.inference_mode()
def timed_rounds(rounds: ForcedRounds, pattern: list[int]) -> tuple[list[dict[str, float]], int]:
    """Plays a round for each number of accepted drafts in `pattern`: milliseconds of each part by round, and the tokens
    that were committed in all."""
    spent, committed = [], 0
    for accepted in pattern:
        times = [clock(rounds.target.device)]
        for part in PARTS:
            committed += getattr(rounds, part)(*([accepted] if part == "commit" else [])) or 0
            times.append(clock(rounds.target.device))
        spent.append({part: (after - before) * 1e3 for part, before, after in zip(PARTS, times, times[1:])})
    return spent, committed


def paper_pattern(drafter: str, rounds: int, seed: int = 0) -> list[int]:
    """Accepted drafts of `rounds` rounds, drawn from the paper's conditional acceptance by position (Figure 2,
    Qwen3-4B), whose domains take turns; the same ones for a seed."""
    generator = torch.Generator().manual_seed(seed)
    by_domain = torch.tensor([paper.conditional_acceptance(drafter, domain) for domain in DOMAINS])  # [domains, g]
    coins = torch.rand(rounds, by_domain.shape[1], generator=generator)
    kept = coins < by_domain[torch.arange(rounds) % len(DOMAINS)]
    return kept.long().cumprod(1).sum(1).tolist()
