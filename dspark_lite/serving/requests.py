"""A request of the engine, its answer, and the report of a step."""

from collections.abc import Collection
from dataclasses import dataclass, field

import torch

from ..decoding.answer import Generation

STEP_PARTS = ("prefill", "draft", "schedule", "verify", "commit")


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt [1, n], the most tokens to write, the seed of its draws, and the domain it came
    from.

    `temperature` and `stop_token_ids` default to the engine's. `top_p` keeps the most probable
    tokens that have this probability together. `num_speculative_tokens` are the drafts that a round
    may have at most: 0 switches drafting off for this request, None takes whole blocks.
    """

    input_ids: torch.Tensor
    max_new_tokens: int
    seed: int = 0
    domain: str = ""
    temperature: float | None = None
    top_p: float = 1.0
    stop_token_ids: Collection[int] | None = None
    num_speculative_tokens: int | None = None


@dataclass(repr=False)
class Answer(Generation):
    """The answer to a request, with the request's `id`.

    `reason` says why it ended: "stop", "length", "aborted", or "failed" if the target's logits were
    not finite. `text` is filled by `Engine.generate`. The times of arrival, admission, first token
    and end are seconds of `timing.clock`.
    """

    id: int = 0
    request: Request | None = None
    reason: str = ""
    text: str = ""
    arrived: float = 0.0
    admitted: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0


@dataclass
class StepReport:
    """The report of one step.

    `requests` took part in its round, in which tokens were `verified` (anchors included) beside
    tokens of `padding`, drafts were `proposed` for verification and `accepted`, and tokens
    `committed` to answers (all as in `Round`). Before it, requests were `admitted`, each with a
    first token, and their prompt tokens `prefilled`. `seconds` are those of each of STEP_PARTS,
    `written` the tokens added to each request by id, `answers` those that ended.
    """

    requests: int = 0
    verified: int = 0
    padding: int = 0
    proposed: int = 0
    accepted: int = 0
    committed: int = 0
    admitted: int = 0
    prefilled: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEP_PARTS, 0.0))
    written: dict[int, list[int]] = field(default_factory=dict)
    answers: list[Answer] = field(default_factory=list)


class RunningRequest:
    """A request in its slot, and the random numbers of its next step."""

    def __init__(self, answer: Answer, slot: int):
        self.answer, self.slot = answer, slot
        self._generator = torch.Generator().manual_seed(answer.request.seed)
        self._uniforms: torch.Tensor | None = None

    @property
    def anchor(self) -> int:
        """Return the newest committed token, which neither model has read."""
        return self.answer.token_ids[-1]

    @property
    def length(self) -> int:
        """Return the number of committed tokens before the anchor: those that both models have in
        the slot."""
        return self.answer.request.input_ids.shape[1] + max(0, len(self.answer.token_ids) - 1)

    @property
    def draft_limit(self) -> int:
        """Return the drafts of the next round that can count: the round draws the last token
        itself."""
        most = self.answer.request.num_speculative_tokens
        return self.lacking - 1 if most is None else min(self.lacking - 1, most)

    @property
    def lacking(self) -> int:
        """Return the tokens that the answer may still get."""
        return self.answer.request.max_new_tokens - len(self.answer.token_ids)

    def uniforms(self, count: int) -> torch.Tensor:
        """Return the step's random numbers [count], float64 in [0, 1).

        A step that is repeated, because its policy failed, gets the same numbers: a policy must not
        be able to choose between draws.
        """
        if self._uniforms is None:
            self._uniforms = torch.rand(count, generator=self._generator, dtype=torch.float64)
        return self._uniforms

    def write(self, tokens: list[int]) -> None:
        """Add committed tokens to the answer. This uses up the step's random numbers."""
        self.answer.token_ids += tokens
        self._uniforms = None
