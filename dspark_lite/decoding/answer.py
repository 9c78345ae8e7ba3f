"""The outcome of a round, an answer with its rounds, and the stopwatch that times them."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ..common.timing import Moment
from .checks import until_stop


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
        """Return the accepted drafts and the token after them. A stop token among them ends the
        answer: `Generation.add` drops what is behind it."""
        return [*self.drafts[: self.accepted], self.next_token]


@dataclass
class Round:
    """One round: how many drafts were `proposed` for verification, how many were `accepted`, how
    many tokens were `committed` (the accepted drafts and the token drawn after them), the
    `draft_tokens` verified, the `tokens` committed, and the seconds up to verification (drafting and
    scheduling) and from then on (verification, accept, commit).

    Tokens behind the end of the answer are not committed, and drafts behind it do not count as
    accepted: `accepted` is at most `committed`.
    """

    proposed: int
    accepted: int
    committed: int
    draft_tokens: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0

    def __post_init__(self):
        self.accepted = min(self.accepted, self.committed)


@dataclass
class Acceptance:
    """Totals of rounds: how many there were, the tokens they `committed`, and by position in the
    block how many rounds came so far (`reached`) and kept the draft there (`accepted`)."""

    rounds: int = 0
    committed: int = 0
    reached: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, played: Round) -> None:
        """Count a round. Drafts behind a stop token or the length limit do not count: the answer
        has ended there."""
        longer = played.proposed - len(self.reached)
        self.reached += [0] * longer
        self.accepted += [0] * longer
        cut_short = played.committed == played.accepted  # nothing was refused
        reached = played.accepted if cut_short else min(played.accepted + 1, played.proposed)
        for position in range(reached):
            self.reached[position] += 1
            self.accepted[position] += position < played.accepted
        self.rounds, self.committed = self.rounds + 1, self.committed + played.committed

    @property
    def by_position(self) -> list[float | None]:
        """Return the share of rounds that accepted the draft at each position, of those that
        reached it; None where none did."""
        return [kept / met if met else None for kept, met in zip(self.accepted, self.reached)]

    @property
    def accepted_length(self) -> float:
        """Return the mean committed tokens per round, bonus included (tau); nan without a round."""
        return self.committed / self.rounds if self.rounds else float("nan")


@dataclass(repr=False)
class Generation:
    """The new tokens, the rounds that made them, and the seconds for the prompt and for all later
    work.

    The first token comes from the prompt's own pass and belongs to no round. `prefill_seconds` are
    the target's; the drafter's reading of the prompt counts in `decode_seconds`.
    """

    token_ids: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    def add(self, outcome: Outcome, stop: set[int], seconds: tuple[float, float]) -> None:
        """Add the tokens of a round, up to a stop token. `seconds` are for drafting and
        verifying."""
        tokens = until_stop(outcome.tokens, stop)
        self.token_ids += tokens
        drafts, accepted = outcome.drafts, outcome.accepted
        self.rounds.append(Round(len(drafts), accepted, len(tokens), drafts, tokens, *seconds))

    def __repr__(self) -> str:
        """Return its size; `token_ids` and `rounds` have the rest."""
        return (
            f"{type(self).__name__}({len(self.token_ids)} tokens, {len(self.rounds)} rounds, "
            f"accepted length {self.accepted_length:.2f}, {self.decode_seconds:.2f} s)"
        )

    @property
    def accepted_length(self) -> float:
        """Return the mean committed tokens per round, bonus included (tau); nan without a round."""
        if not self.rounds:
            return float("nan")
        return sum(r.committed for r in self.rounds) / len(self.rounds)

    @property
    def acceptance(self) -> Acceptance:
        """Return the totals of its rounds, by position in the block."""
        totals = Acceptance()
        for played in self.rounds:
            totals.add(played)
        return totals


class Stopwatch:
    """Observes the rounds of one sequence, or of several that share every round: the moments at
    which the round's first draft and its first verification began."""

    def __init__(self, device: torch.device):
        self.device, self.began, self.last = device, {}, ""

    def __call__(self, part: str) -> AbstractContextManager:
        if part == "draft" and self.last != "draft":
            self.began = {}  # a new round
        if part in ("draft", "verify") and part not in self.began:
            self.began[part] = Moment(self.device)
        self.last = part
        return nullcontext()

    def seconds(self) -> tuple[float, float]:
        """Return the seconds from drafting to verification, and from then until now."""
        drafting = self.began["verify"].device_seconds_since(self.began["draft"])
        return drafting, time.perf_counter() - self.began["draft"].host - drafting
