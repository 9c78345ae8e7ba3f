"""An answer and the rounds that it was made in."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from ..common.errors import RequestError
from ..common.timing import Moment, clock
from .checks import check_models, check_request, stop_set, until_stop
from .proposal import Proposal, draft_length
from .sampling import Verdict, draw_at, probabilities, undefined
from .sequence import NOT_FINITE, Outcome, Sequence
from .target import within_memory


@dataclass
class Round:
    """One round: how many drafts were `proposed` for verification, how many were `accepted`, how
    many tokens were `committed` (the accepted drafts and the token drawn after them), the
    `draft_tokens` verified, the `tokens` committed, and the seconds for drafting and verifying.

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
class Generation:
    """The new tokens, the rounds that made them, and the seconds for the prompt and for all later
    work.

    The first token comes from the prompt's own pass and belongs to no round.
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

    @property
    def accepted_length(self) -> float:
        """Mean committed tokens per round, bonus included (tau); nan without a round."""
        if not self.rounds:
            return float("nan")
        return sum(r.committed for r in self.rounds) / len(self.rounds)


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


class AnsweredPrompt(Sequence):
    """One prompt [1, n] whose `answer` grows by the tokens of each round.

    The constructor checks the request, reads the prompt and draws the first token. Options are
    those of `generate`, and a `stopwatch` for those that share their rounds.
    """

    def __init__(
        self,
        target,
        drafter,
        input_ids,
        *,
        max_new_tokens,
        temperature=0.0,
        stop_token_ids=None,
        generator=None,
        gamma=None,
        rule=None,
        prepare=None,
        stopwatch=None,
    ):
        check_models(target, drafter)
        check_request(target, input_ids, max_new_tokens, temperature)
        self.max_new_tokens, self.stop = max_new_tokens, stop_set(target, stop_token_ids)
        if drafter:
            draft_length(gamma, drafter.gamma)  # raises for a block that it does not draft
        if prepare:
            target, drafter, prepared_rule = prepare(target, drafter, gamma)
            rule = prepared_rule if rule is None else rule
        arrived = clock(target.device)
        output, cache = target.prefill(input_ids, drafter.taps if drafter else ())
        logits = output.logits[:, -1]
        anchor = draw_at(probabilities(logits, temperature), temperature, generator)  # [1]
        token, failed = torch.cat([anchor, undefined(logits)]).tolist()
        if failed:
            raise RequestError(NOT_FINITE.format("target's logits"))
        self.answer = Generation(token_ids=[token])
        self.began = clock(target.device)
        self.answer.prefill_seconds = self.began - arrived
        state = None
        if drafter:  # counts as decoding: plain decoding does without
            with within_memory(f"the context of {drafter.name}"):
                state = drafter.begin(input_ids, output.features)
            drafter.see_committed(state, [[token]])
        super().__init__(
            target,
            drafter,
            cache,
            state,
            anchor,
            temperature,
            generator,
            gamma,
            rule,
            observe=stopwatch or Stopwatch(target.device),
        )

    @property
    def finished(self) -> bool:
        """Return whether the answer has its last token."""
        tokens = self.answer.token_ids
        return len(tokens) >= self.max_new_tokens or tokens[-1] in self.stop

    @property
    def room(self) -> list[int]:
        """One token less than the answer lacks: the round draws the last one itself."""
        return [self.max_new_tokens - len(self.answer.token_ids) - 1]

    def commit(self, block: Proposal, logits: torch.Tensor, verdict: Verdict) -> list[Outcome]:
        """Commit the round and add its tokens to the answer, up to a stop token. Raise RequestError
        if the target's logits are not finite."""
        (outcome,) = super().commit(block, logits, verdict)
        if outcome.failed:
            raise RequestError(NOT_FINITE.format("target's logits"))
        if self.drafter:
            self.drafter.see_committed(self.state, [[self.answer.token_ids[-1], *outcome.tokens]])
        self.answer.add(outcome, self.stop, self.observe.seconds())
        self.answer.decode_seconds = time.perf_counter() - self.began
        return [outcome]
