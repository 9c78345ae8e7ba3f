"""A model of the serving engine: step times from measured costs, drafts from recorded blocks, all
else as it is.

Requests arrive, wait for a slot, and go from round to round as in engine.py, and the policies are
the very same. What a round costs is looked up (measure/step_costs.py), and what a drafter would
have said and the target accepted is replayed from blocks that were verified whole: whatever part of
such a block is verified, it tells how much of it is accepted. A request goes through the blocks of
a recorded answer in their order, and over again where it verifies less and so needs more rounds.
Thousands of requests take seconds.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from ...common.errors import RequestError
from ...decoding.proposal import Proposal, chosen_lengths, start_policy
from ...scheduling.calibration import STS, Observations
from ...scheduling.policies import Costs


@dataclass(frozen=True)
class Record:
    """Recorded answers: `tokens` [A] that each writes in rounds, its blocks from `first` [A] on and
    their number `blocks` [A]; of each block the drafts `accepted` [N] out of `gamma`, and the
    calibrated confidence `logits` [N, gamma] (None without a head)."""

    gamma: int
    logits: torch.Tensor | None
    accepted: np.ndarray
    tokens: np.ndarray
    first: np.ndarray
    blocks: np.ndarray

    @classmethod
    def of(cls, observations: list[Observations], sts: STS) -> "Record":
        """Return the blocks of the observations (scheduling/calibration.py), one entry a domain,
        with calibrated logits.

        Observations omit the block that the end of an answer cuts short. The end falls into a long
        block more often than into a short one, and anywhere in it. So each answer gets the mean
        number of tokens that such a block commits.
        """
        logits = np.concatenate([observed.logits for observed in observations]) / np.array(
            sts.temperatures
        )
        accepted = np.concatenate([observed.accepted for observed in observations])
        counts = np.concatenate(
            [np.unique(observed.prompts, return_counts=True)[1] for observed in observations]
        )
        first = counts.cumsum() - counts
        committed = accepted + 1
        cut_short = ((committed**2).mean() / committed.mean() + 1) / 2
        tokens = np.add.reduceat(committed, first) + round(cut_short)
        return cls(
            logits.shape[1], torch.from_numpy(logits).float(), accepted, tokens, first, counts
        )

    def drafting_one(self, rate: float, rng: np.random.Generator) -> "Record":
        """Return the same answers with a drafter of one token a round (MTP-1), accepted at this
        rate."""
        first = self.tokens.cumsum() - self.tokens
        accepted = (rng.random(int(self.tokens.sum())) < rate).astype(int)
        return Record(1, None, accepted, self.tokens, first, self.tokens)


class ModelAnswer(NamedTuple):
    """A request's tokens, and when it arrived, had its first token and ended, in seconds of the
    model's clock."""

    tokens: int
    arrived: float
    first_token: float
    ended: float


@dataclass
class ModelReport:
    """What one step of the model did, as StepReport counts it, the `seconds` of its "prefill" and
    its "round", and the answers that ended."""

    requests: int = 0
    verified: int = 0
    proposed: int = 0
    accepted: int = 0
    committed: int = 0
    admitted: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: {"prefill": 0.0, "round": 0.0})
    answers: list[ModelAnswer] = field(default_factory=list)


class EngineModel:
    """The engine as its costs and a record make it; `prefill` holds the seconds of a prefill pass
    and of each prompt in it. `submit`, then `step` until `idle`, as with the engine.

    `now` is the model's clock: it moves by what a step takes, and whoever waits for an arrival sets
    it. With the policy fixed(0) and the costs of a target alone it decodes plainly. `shares` [A, 2]
    holds the tokens that each recorded answer has written, and its equal shares of the seconds of
    its rounds. Raise RequestError for more slots than the costs cover.
    """

    def __init__(
        self,
        record: Record,
        costs: Costs,
        policy=None,
        *,
        slots: int,
        prefill: tuple[float, float] = (0.0, 0.0),
    ):
        if slots > costs.most_tokens(slots):
            raise RequestError(
                f"the step costs do not cover {slots} requests; measure more, or take fewer slots"
            )
        self.record = record
        self.costs = costs
        self.policy = start_policy(policy)
        self.prefill = prefill
        self.now = 0.0
        self.answer = np.full(slots, -1)
        self.written, self.rounds = np.zeros(slots, dtype=int), np.zeros(slots, dtype=int)
        self.arrived, self.first_token = np.zeros(slots), np.zeros(slots)
        self.shares = np.zeros((len(record.tokens), 2))
        self._waiting: deque[tuple[int, float]] = deque()
        # which tokens they are does not matter here
        self._drafts = torch.zeros(slots, record.gamma, dtype=torch.long)

    @property
    def running(self) -> int:
        """Return how many slots are taken."""
        return int((self.answer >= 0).sum())

    @property
    def idle(self) -> bool:
        """Return whether no request runs or waits."""
        return not self._waiting and (self.answer < 0).all()

    def submit(self, answer: int, arrived: float) -> None:
        """Take in a request that arrived at a time of the model's clock and will get a recorded
        answer."""
        self._waiting.append((answer, arrived))

    def step(self) -> ModelReport:
        """Admit what waits and play one round."""
        report = ModelReport()
        if self._waiting:
            self._admit(report)
        rows = np.flatnonzero(self.answer >= 0)
        if len(rows):
            self._round(rows, report)
        return report

    def _admit(self, report: ModelReport) -> None:
        free = np.flatnonzero(self.answer < 0)[: len(self._waiting)]
        if not len(free):
            return
        admitted = [self._waiting.popleft() for _ in free]
        self.answer[free], self.arrived[free] = zip(*admitted)
        report.admitted = len(free)
        report.seconds["prefill"] = self.prefill[0] + self.prefill[1] * len(free)
        self.now += report.seconds["prefill"]
        self.written[free], self.rounds[free], self.first_token[free] = 0, 0, self.now

    def _round(self, rows: np.ndarray, report: ModelReport) -> None:
        record, answer, written = self.record, self.answer[rows], self.written[rows]
        block = record.first[answer] + self.rounds[rows] % record.blocks[answer]
        logits = None if record.logits is None else record.logits[block]
        proposal = Proposal(
            self._drafts[: len(rows)], torch.empty(len(rows), record.gamma, 0), logits
        )
        lengths = np.array(chosen_lengths(self.policy, proposal))
        accepted = np.minimum(record.accepted[block], lengths)
        committed = np.minimum(accepted + 1, record.tokens[answer] - written)
        accepted = np.minimum(accepted, committed)  # as in Round: no draft behind an answer's end
        report.requests = len(rows)
        report.proposed = int(lengths.sum())
        report.accepted = int(accepted.sum())
        report.verified, report.committed = report.proposed + len(rows), int(committed.sum())
        report.seconds["round"] = self.costs.seconds(len(rows), report.verified)
        self.now += report.seconds["round"]
        charged = report.seconds["round"] / len(rows)
        np.add.at(self.shares, answer, np.stack([committed, np.full(len(rows), charged)], 1))
        self.written[rows] += committed
        self.rounds[rows] += 1
        for row in rows[self.written[rows] >= record.tokens[answer]]:
            tokens = int(record.tokens[self.answer[row]])
            report.answers.append(
                ModelAnswer(tokens, self.arrived[row], self.first_token[row], self.now)
            )
            self.answer[row] = -1


def poisson(rate: float, count: int, rng: np.random.Generator) -> list[float]:
    """Return seconds at which `count` requests arrive, independently of one another, `rate` a
    second on average."""
    if not rate > 0:
        raise RequestError(f"the arrival rate is {rate} requests a second; it must be above 0")
    return rng.exponential(1 / rate, count).cumsum().tolist()


def simulate(model: EngineModel, arrivals, rng: np.random.Generator) -> list[ModelReport]:
    """Return steps of the model until requests that arrive at these seconds, in order, each with an
    answer of the record at random, are all answered. Arrivals all at 0 make a closed loop of as
    many requests as there are slots."""
    answers = rng.integers(len(model.record.tokens), size=len(arrivals))
    waiting, steps = deque(zip(answers.tolist(), map(float, arrivals))), []
    while waiting or not model.idle:
        if model.idle:
            model.now = max(model.now, waiting[0][1])
        while waiting and waiting[0][1] <= model.now:
            model.submit(*waiting.popleft())
        steps.append(model.step())
    return steps
