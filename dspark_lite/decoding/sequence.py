"""A sequence that a target and a drafter advance together, and the parts of a round on it."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import torch

from ..common.errors import RequestError
from .proposal import Drafter, Policy, Proposal, chosen_lengths, draft_length
from .sampling import (
    LEAST_TEMPERATURE,
    Randomness,
    Verdict,
    accept,
    accept_greedy,
    probabilities,
    undefined,
)
from .target import Target, within_memory

NOT_FINITE = (
    "the {} are not finite; load the model in bfloat16 or float32 (float16 overflows "
    "above 65,504), or check its weights"
)


class Outcome(NamedTuple):
    """The result of a round for one sequence: the `drafts` that were verified, how many of them
    were `accepted`, and the `next_token` drawn after those. In a round that `failed`, the target's
    logits were not finite and nothing counts."""

    accepted: int
    next_token: int
    drafts: list[int]
    failed: bool = False

    @property
    def tokens(self) -> list[int]:
        """The tokens that the round commits."""
        return [*self.drafts[: self.accepted], self.next_token]


@dataclass(eq=False)
class Sequence:
    """The caches of a target and its drafter for B sequences that advance together. Without a
    drafter, decoding is plain.

    `cache` and `state` cover every committed token except the newest, the `anchor` [B]. A round
    calls `draft`, `schedule`, `verify`, `accept` and `commit` in this order. Each runs inside
    `observe(part)`, a context for whoever measures.
    """

    target: Target
    drafter: Drafter | None
    cache: object
    state: object
    anchor: torch.Tensor
    temperature: float
    generator: Randomness
    gamma: int | None = None  # drafts in a block, None: as many as the drafter has
    rule: Callable[..., Verdict] | None = None  # None: accept, greedily accept_greedy
    observe: Callable[[str], AbstractContextManager] = nullcontext

    @property
    def block_size(self) -> int:
        """The number of drafts in a block."""
        return draft_length(self.gamma, self.drafter.gamma) if self.drafter else 0

    @property
    def room(self) -> list[int]:
        """For each sequence, the number of drafts in the next block that can still count."""
        return [self.block_size] * len(self.anchor)

    def draft(self) -> Proposal:
        """Draft a block [B, k] after the anchors. It ends where no sequence has room for more, and
        is empty without a drafter."""
        with self.observe("draft"):
            room = self.room
            length = min(self.block_size, max(room))
            if length < 1:
                vocab_size, device = self.target.vocab_size, self.anchor.device
                return Proposal(
                    self.anchor.new_empty(len(self.anchor), 0),
                    torch.empty(len(self.anchor), 0, vocab_size, device=device),
                )
            with within_memory(f"a block of {self.drafter.name}"):
                return self.propose(length).within(room)

    def schedule(self, policy: Policy | None, block: Proposal) -> Proposal:
        """Return a block cut to the verification lengths that the policy chooses (None: whole)."""
        with self.observe("schedule"):
            return block.scheduled(chosen_lengths(policy, block, self.block_size), self.room)

    def verify(self, block: Proposal) -> torch.Tensor:
        """Read the anchors and the drafts [B, k] in one pass of the target. Return float32 logits
        [B, k+1, V]; row b counts up to `block.lengths[b]`."""
        with self.observe("verify"):
            return self.read(block)

    def accept(self, block: Proposal, logits: torch.Tensor) -> Verdict:
        """Accept a prefix of each row's drafts and draw the token after it.

        A draft x is kept with probability min(1, p(x) / q(x)). The first rejected draft is replaced
        by a draw from max(p - q, 0), normalised (Leviathan et al., 2023, Algorithm 1).
        """
        with self.observe("accept"):
            lengths = None
            if min(block.lengths) < max(block.lengths):
                lengths = torch.tensor(block.lengths, device=logits.device)
            if self.rule is None and self.temperature < LEAST_TEMPERATURE:
                return accept_greedy(logits, block.tokens, lengths)
            rule = accept if self.rule is None else self.rule
            return rule(
                probabilities(logits, self.temperature),
                block.probs,
                block.tokens,
                lengths,
                self.generator,
            )

    def commit(self, block: Proposal, logits: torch.Tensor, verdict: Verdict) -> list[Outcome]:
        """Keep what was accepted, forget the rest, and return what became of each row.

        The host waits for the device once, here. Raise RequestError, before anything is
        committed, if the drafter's probabilities are not finite.
        """
        with self.observe("commit"):
            failed = undefined(logits).any(1)
            broken = block.probs.isnan().flatten(1).any(1) & ~failed
            columns = torch.stack([broken, failed, verdict.accepted, verdict.next_token], 1)
            rows = torch.cat([columns, block.tokens], 1).tolist()
            if any(broken for broken, *_ in rows):
                raise RequestError(NOT_FINITE.format("drafter's probabilities"))
            outcomes = [
                Outcome(accepted, next_token, drafts[:length], bool(failed))
                for (_, failed, accepted, next_token, *drafts), length in zip(rows, block.lengths)
            ]
            self.keep([outcome.accepted + 1 for outcome in outcomes], verdict.next_token)
        return outcomes

    def propose(self, length: int) -> Proposal:
        """The drafter's part of `draft`: a block [B, length]."""
        return self.drafter.propose(
            self.state,
            self.anchor,
            gamma=length,
            temperature=self.temperature,
            generator=self.generator,
        )

    def read(self, block: Proposal) -> torch.Tensor:
        """Run the target's pass for `verify`. Store the tokens read and their features for `keep`."""
        self.entering = torch.cat([self.anchor[:, None], block.tokens], 1)  # [B, k+1]
        output = self.target.verify(
            self.entering, self.cache, self.drafter.taps if self.drafter else ()
        )
        self.features = output.features
        return output.logits

    def keep(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Keep the first tokens of the last pass in both models, the same number of every row, and
        make next_token [B] the anchors."""
        count = counts[0]
        self.target.roll_back(self.cache, self.entering.shape[1] - count)
        if self.drafter:
            features = None if self.features is None else self.features[:, :count]
            with within_memory(f"the context of {self.drafter.name}"):
                self.drafter.extend(self.state, self.entering[:, :count], features)
        self.anchor = next_token
