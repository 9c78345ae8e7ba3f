"""The serving engine: many requests, one step at a time, continuously batched.

A step prefills what has arrived into free slots, plays one round of all running requests (decoding/together.py: all blocks
are drafted in one pass and verified, each to its own length, in one ragged pass), and evicts what is finished; slots.py holds
their contexts.
"""

from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch

from ..common.errors import RequestError
from ..common.timing import clock
from ..decoding.answer import Generation, Round
from ..decoding.checks import check_models, check_request, stop_set, until_stop
from ..decoding.proposal import Proposal, started
from ..decoding.sampling import (
    RandomSource,
    Verdict,
    check_seed,
    check_temperature,
    draw,
    probabilities,
    undefined,
)
from ..decoding.sequence import Outcome, Sequence
from ..decoding.together import play_round
from .slots import Layout, SlotStore, drafter_slots, ragged_step, spans

STEP_PARTS = ("prefill", "draft", "schedule", "verify", "commit")


@dataclass(frozen=True, eq=False)
class Request:
    """A prompt [1, n], how many tokens to write at most, the seed of its draws, and the domain it came from."""

    input_ids: torch.Tensor
    max_new_tokens: int
    seed: int = 0
    domain: str = ""


@dataclass
class Answer(Generation):
    """What became of a request, by its `id`: the `reason` it ended ("stop", "length", "aborted", or "failed" where the
    target's logits were not finite), and when it arrived, was admitted, had its first token and ended, in seconds of
    `timing.clock`."""

    id: int = 0
    request: Request | None = None
    reason: str = ""
    arrived: float = 0.0
    admitted: float = 0.0
    first_token: float = 0.0
    ended: float = 0.0


@dataclass
class StepReport:
    """One step: the `requests` of its round, the tokens `verified` in it (anchors included) and those of `padding`, drafts
    `proposed` for verification and `accepted`, tokens `committed` to answers (all as in `Round`); the requests `admitted`
    before it, each with a first token, and their prompt tokens `prefilled`; the `seconds` of each of STEP_PARTS; the tokens
    `written` to each request, by id; the `answers` that ended."""

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


class PerRequestRandom(RandomSource):
    """Draws of requests that share a step: each row uses uniform numbers of its own, [R, k], of which the first `gamma` are for
    drafts, the next `gamma` for coins. So what a request draws never depends on the others, nor on how much of their blocks
    is drafted and verified. Without numbers (temperature 0) the most probable outcome."""

    def __init__(self, uniforms: torch.Tensor | None, gamma: int = 0):
        self.uniforms, self.gamma, self.used = uniforms, gamma, 0

    def _next(self, shape: torch.Size) -> torch.Tensor:
        """The next uniform numbers, [R] or [R, g]."""
        first, self.used = self.used, self.used + shape[1:].numel()
        return self.uniforms[:, first : self.used].reshape(shape)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Tokens [R] or [R, g] of distributions [..., V], by the inverse of the distribution function."""
        if self.uniforms is None:
            return probs.argmax(-1)
        cumulated = probs.double().cumsum(-1)
        at = (1 - self._next(probs.shape[:-1])).unsqueeze(-1) * cumulated[
            ..., -1:
        ]  # above 0: nothing impossible is drawn
        return (
            torch.searchsorted(cumulated, at).squeeze(-1).clamp(max=probs.shape[-1] - 1)
        )  # nan lies after the last

    def accepted_prefix_length(self, keep: torch.Tensor) -> torch.Tensor:
        """How many of the leading coins [R, g] come up, [R]."""
        self.used = max(self.used, self.gamma)
        kept = keep >= 1 if self.uniforms is None else self._next(keep.shape) < keep
        self.used = max(self.used, 2 * self.gamma)
        return kept.long().cumprod(-1).sum(-1)


class _Running:
    """A request in its slot, and the random numbers of its next step; all else is told by its answer."""

    def __init__(self, answer: Answer, slot: int):
        self.answer, self.slot = answer, slot
        self._generator = torch.Generator().manual_seed(answer.request.seed)
        self._uniforms: torch.Tensor | None = None

    @property
    def anchor(self) -> int:
        """The newest committed token, which neither model has read."""
        return self.answer.token_ids[-1]

    @property
    def length(self) -> int:
        """Committed tokens before the anchor: those that both models hold in the slot."""
        return self.answer.request.input_ids.shape[1] + max(0, len(self.answer.token_ids) - 1)

    @property
    def lacking(self) -> int:
        """Tokens that the answer may still get."""
        return self.answer.request.max_new_tokens - len(self.answer.token_ids)

    def uniforms(self, count: int) -> torch.Tensor:
        """The random numbers of a step. One that is repeated, because its policy failed, finds the same ones: a policy must
        not be able to choose between draws."""
        if self._uniforms is None:
            self._uniforms = torch.rand(count, generator=self._generator, dtype=torch.float64)
        return self._uniforms

    def write(self, tokens: list[int]) -> None:
        """Adds committed tokens to the answer, with which the step's random numbers are used up."""
        self.answer.token_ids += tokens
        self._uniforms = None


class _Batch(Sequence):
    """The running requests as one sequence of R rows of different lengths. Their contexts are in slots, and one ragged pass
    verifies of each block what its length says."""

    def __init__(self, engine: "Engine", running: list[_Running], observe):
        self.store, self.contexts = engine.store, engine.contexts
        self.buckets = engine.buckets
        self.slots, self.starts = (
            [request.slot for request in running],
            [request.length for request in running],
        )
        self.lacking = [request.lacking for request in running]
        state = self.contexts.drafting(self.slots, self.starts) if engine.drafter else None
        anchor = torch.tensor(
            [request.anchor for request in running], device=engine.target.device
        )  # [R]
        random = engine._random(running, 2 * engine.gamma + 1)
        super().__init__(
            engine.target,
            engine.drafter,
            engine.store,
            state,
            anchor,
            engine.temperature,
            random,
            rule=engine.rule,
            observe=observe,
        )

    @property
    def room(self) -> list[int]:
        """One token less than each answer lacks: the round draws the last one itself."""
        return [lacking - 1 for lacking in self.lacking]

    def read(self, block: Proposal) -> torch.Tensor:
        """Read the anchors and the first `block.lengths` of the drafts [R, k] in one sequence. Return float32 logits
        [R, k+1, V], zeros where nothing was read."""
        counts = np.array(block.lengths) + 1
        counts = padded_to(counts, next_size(self.buckets, counts.sum()), self.block + 1)
        self.layout = Layout(self.store, self.slots, self.starts, counts)
        offset = self.layout.offset.clamp(
            max=block.tokens.shape[1]
        )  # a token of padding may be any: nobody looks at it
        self.entering = torch.cat([self.anchor[:, None], block.tokens], 1)[
            self.layout.row, offset
        ]  # [N]
        output = ragged_step(
            self.target, self.entering, self.layout, self.drafter.taps if self.drafter else ()
        )
        self.features = output.features  # [1, N, taps * H]
        return self.layout.by_request(output.logits[0])

    def keep(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Extend the drafter by the first `counts` tokens of each request. In the target's slots the next step overwrites
        the rest of a block."""
        if self.drafter:
            counts, (row, offset) = np.array(counts), spans(self.layout.counts)
            kept = torch.from_numpy(np.flatnonzero(offset < counts[row])).to(self.entering.device)
            state = self.contexts.appending(self.slots, self.starts, counts)
            self.drafter.extend(state, self.entering[None, kept], self.features[:, kept])


def next_size(sizes, tokens: int) -> int:
    """The smallest of the increasing `sizes` that holds so many tokens; where none does, `tokens` itself."""
    return next((size for size in sizes if size >= tokens), int(tokens))


def padded_to(counts: np.ndarray, size: int, most: int) -> np.ndarray:
    """Tokens of each request [R] that together fill a pass of `size`, at most `most` of one; the first requests bring what is
    lacking."""
    spare = np.maximum(most - counts, 0)
    return counts + np.clip(size - counts.sum() - (spare.cumsum() - spare), 0, spare)


class Engine:
    """Serves requests with a target and a drafter (None: plain decoding) under a policy such as `policies.algorithm1(costs)` (None: whole
    blocks are verified).

    `slots` requests run at once, each in at most `capacity` positions, at one `temperature`; others wait, first come,
    first served. With `buckets` a verification pass is filled up to the next of these sizes, as an engine that replays
    recorded passes must; the answers are the same. `rule` accepts in the place of `sampling.accept` (None). Call `submit`, then
    `step` until `idle`.

    - More requests than slots: they wait.
    - A request that does not fit into a slot, or that `generate` would not take, is refused by `submit`.
    - `abort` ends a request, waiting or running, and hands over what it has; its slot is free at once.
    - A policy whose lengths are not whole numbers from 0 to the drafted length raises RequestError from `step`. Nothing is
      committed then; the step can be repeated, after another policy was set or requests were aborted.
    - A drafter whose probabilities are not finite raises RequestError from `step` in the same way.
    - A request for which the target's logits are not finite ends as "failed"; the others go on.

    Every request is answered once: in the `answers` of one step, or by `abort`.
    """

    def __init__(
        self,
        target,
        drafter=None,
        *,
        policy=None,
        slots: int = 8,
        capacity: int = 512,
        temperature: float = 0.0,
        stop_token_ids=None,
        buckets=(),
        rule: Callable[..., Verdict] | None = None,
    ):
        check_models(target, drafter)
        check_temperature(temperature)
        if slots < 1:
            raise RequestError(f"the engine has {slots} slots; it needs at least one")
        if target.has_windows or target.has_states:
            raise RequestError(
                f"{target.name} has layers with a sliding window or a recurrent state, which the engine's slots do not have; decode "
                "one request with generate"
            )
        self.target, self.drafter, self.temperature, self.rule = target, drafter, temperature, rule
        self.taps, self.gamma = (drafter.taps, drafter.gamma) if drafter else ((), 0)
        self.capacity, self.buckets = capacity, sorted(buckets)
        self.stop = stop_set(target, stop_token_ids)
        self.store = SlotStore(target.num_layers, slots, capacity, target.device)
        self.contexts = drafter_slots(drafter, slots, capacity, target.device) if drafter else None
        self.set_policy(policy)
        self._slots: list[_Running | None] = [None] * slots
        self._waiting: deque[Answer] = deque()
        self._ended: list[Answer] = []
        self._next_id, self._report = 0, StepReport()

    # Requests

    @property
    def running(self) -> list[int]:
        """The ids of the requests in slots."""
        return [running.answer.id for running in self._in_slots()]

    @property
    def waiting(self) -> list[int]:
        """The ids of the requests that have no slot yet."""
        return [answer.id for answer in self._waiting]

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to do or to deliver."""
        return not (self._in_slots() or self._waiting or self._ended)

    def set_policy(self, policy) -> None:
        """Schedules by this policy from the next step on."""
        self.policy = started(policy)

    def submit(self, request: Request) -> int:
        """Queue a request and return its id. Raise RequestError for a request that cannot be served."""
        self._check(request)
        self._waiting.append(
            Answer(id=self._next_id, request=request, arrived=clock(self.target.device))
        )
        self._next_id += 1
        return self._next_id - 1

    def _check(self, request: Request) -> None:
        """Raises RequestError for a request that the engine could not serve: in a step it would stop all others, too."""
        check_request(self.target, request.input_ids, request.max_new_tokens, self.temperature)
        check_seed(request.seed, " of the request")
        block = self.gamma + 1  # drafted, and dropped, after the last token that counts
        needed = request.input_ids.shape[1] + request.max_new_tokens + block
        if needed > self.capacity:
            raise RequestError(
                f"the request needs {needed} positions (its prompt, {request.max_new_tokens} new tokens and a "
                f"block of {block}), and a slot has {self.capacity}; shorten it or give the engine a larger "
                "capacity"
            )

    def abort(self, request_id: int) -> Answer | None:
        """Ends a request and returns its answer as far as it got; None where it was answered before.

        Raises RequestError for an id that was never given.
        """
        if not 0 <= request_id < self._next_id:
            raise RequestError(
                f"there is no request {request_id}; abort takes an id that submit has returned"
            )
        for running in self._in_slots():
            if running.answer.id == request_id:
                self._release(running, "aborted")
        for answer in list(self._waiting):
            if answer.id == request_id:
                self._waiting.remove(answer)
                self._end(answer, "aborted")
        found = [answer for answer in self._ended if answer.id == request_id]
        self._ended = [answer for answer in self._ended if answer.id != request_id]
        return found[0] if found else None

    def _in_slots(self) -> list[_Running]:
        """The running requests, by slot."""
        return [running for running in self._slots if running]

    def _end(self, answer: Answer, reason: str) -> None:
        """Puts an answer among those to deliver."""
        answer.reason, answer.ended = reason, clock(self.target.device)
        answer.decode_seconds = answer.ended - answer.first_token if answer.token_ids else 0.0
        self._ended.append(answer)

    def _release(self, running: _Running, reason: str) -> None:
        """Frees a slot."""
        self._slots[running.slot] = None
        self._end(running.answer, reason)
        if reason == "failed":
            self.store.clear(running.slot)
            if self.contexts:
                self.contexts.clear(running.slot)

    # A step

    @torch.inference_mode()
    def step(self) -> StepReport:
        """Admits what waits, makes one round of all running requests, and returns what happened; what a step had done that an error
        ended is told by the next one."""
        report = self._report
        watch = _Watch(self.target.device, report.seconds)
        if self._waiting and None in self._slots:
            with watch("prefill"):
                self._prefill(report)
        if running := self._in_slots():
            self._round(running, report, watch)
        report.answers, self._ended, self._report = self._ended, [], StepReport()
        return report

    def _prefill(self, report: StepReport) -> None:
        """Reads the prompts of all requests that get a slot, in one pass, and draws their first tokens."""
        reading = clock(self.target.device)
        free = [slot for slot, running in enumerate(self._slots) if running is None]
        fresh = [_Running(answer, slot) for answer, slot in zip(self._waiting, free)]
        token_ids = torch.cat([one.answer.request.input_ids[0] for one in fresh]).to(
            self.target.device
        )
        slots, counts = [one.slot for one in fresh], np.array([one.length for one in fresh])
        starts, last = (
            np.zeros_like(counts),
            torch.from_numpy(counts.cumsum() - 1).to(self.target.device),
        )
        read = ragged_step(
            self.target, token_ids, Layout(self.store, slots, starts, counts), self.taps, last
        )
        if self.drafter:
            self.drafter.extend(
                self.contexts.appending(slots, starts, counts), token_ids[None], read.features
            )
        logits = read.logits[0]  # [R, V]
        first = draw(probabilities(logits, self.temperature), self._random(fresh, 1))
        outcomes = [
            Outcome(0, token, [], bool(failed))
            for token, failed in torch.stack([first, undefined(logits)], 1).tolist()
        ]
        now = clock(self.target.device)
        for one, outcome in zip(fresh, outcomes):
            self._slots[one.slot], answer = one, self._waiting.popleft()
            answer.admitted, answer.first_token, answer.prefill_seconds = (
                reading,
                now,
                now - reading,
            )
            report.written[answer.id] = self._write(one, outcome)
        report.admitted, report.prefilled = (
            report.admitted + len(fresh),
            report.prefilled + len(token_ids),
        )

    def _round(self, running: list[_Running], report: StepReport, watch: "_Watch") -> None:
        """One round of every running request, written to answers and report."""
        batch = _Batch(self, running, watch)
        outcomes = play_round([batch], self.policy)
        with watch("commit"):
            for one, outcome in zip(running, outcomes):
                self._note(one, outcome, report)
        report.requests, report.padding = len(running), len(batch.layout.row) - report.verified

    def _random(self, running: list[_Running], count: int) -> PerRequestRandom:
        """The random numbers of a step, `count` for each request."""
        if self.temperature == 0:
            return PerRequestRandom(None)
        return PerRequestRandom(
            torch.stack([one.uniforms(count) for one in running]).to(self.target.device), count // 2
        )

    def _note(self, one: _Running, outcome: Outcome, report: StepReport) -> None:
        """Writes a request's round to its answer and to the report."""
        tokens = self._write(one, outcome)
        played = Round(
            len(outcome.drafts),
            outcome.accepted,
            len(tokens),
            outcome.drafts,
            tokens,
            report.seconds["draft"],
            report.seconds["verify"],
        )
        one.answer.rounds.append(played)
        report.written.setdefault(one.answer.id, []).extend(tokens)
        report.verified += played.proposed + 1
        report.proposed += played.proposed
        report.accepted += played.accepted
        report.committed += played.committed

    def _write(self, one: _Running, outcome: Outcome) -> list[int]:
        """Adds a round's tokens to an answer, up to its end, and releases the request there; returns those added."""
        if outcome.failed:
            self._release(one, "failed")
            return []
        tokens = until_stop(outcome.tokens, self.stop)
        one.write(tokens)
        if tokens[-1] in self.stop or not one.lacking:
            self._release(one, "stop" if tokens[-1] in self.stop else "length")
        return tokens


class _Watch:
    """Observes a step: what has passed since the last part ended counts as this one's. Accepting belongs to verifying."""

    def __init__(self, device: torch.device, seconds: dict[str, float]):
        self.device, self.seconds, self.last = device, seconds, clock(device)

    @contextmanager
    def __call__(self, part: str):
        yield
        if part != "verify":  # the device is not waited for between the two
            now = clock(self.device)
            self.seconds["verify" if part == "accept" else part] += now - self.last
            self.last = now
