"""The serving engine: many requests, one step at a time, continuously batched.

A step prefills what has arrived into free slots, drafts all blocks in one pass, lets the policy choose verification
lengths, verifies the ragged batch in one pass of the target, commits, and evicts what is finished. Its parts are those
of `generate` (decoding/rounds.py), for many; slots.py holds their contexts.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch

from ..common.errors import RequestError
from ..common.timing import clock
from ..decoding.policy import chosen_lengths, started
from ..decoding.proposal import Proposal
from ..decoding.rounds import Decoder, Generation, Outcome, Round, check_request, until_stop
from ..decoding.sampling import RandomSource, Verdict, accept, check_temperature, draw, probabilities, undefined
from ..decoding.target import Step
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
    `proposed` for verification and `accepted`, tokens `committed` to answers; the requests `admitted` before it, each with a
    first token, and their prompt tokens `prefilled`; the `seconds` of each of STEP_PARTS; the `answers` that ended."""

    requests: int = 0
    verified: int = 0
    padding: int = 0
    proposed: int = 0
    accepted: int = 0
    committed: int = 0
    admitted: int = 0
    prefilled: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STEP_PARTS, 0.0))
    answers: list[Answer] = field(default_factory=list)


class PerRequestRandom(RandomSource):
    """Draws of requests that share a step: each row uses up uniform numbers of its own, [R, k], so what a request draws
    never depends on the others. Without numbers (temperature 0) the most probable outcome."""

    def __init__(self, uniforms: torch.Tensor | None):
        self.uniforms, self.used = uniforms, 0

    def _next(self, shape: torch.Size) -> torch.Tensor:
        """The next uniform numbers, [R] or [R, g]."""
        first, self.used = self.used, self.used + shape[1:].numel()
        return self.uniforms[:, first:self.used].reshape(shape)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Tokens [R] or [R, g] of distributions [..., V], by the inverse of the distribution function."""
        if self.uniforms is None:
            return probs.argmax(-1)
        cumulated = probs.double().cumsum(-1)
        at = (1 - self._next(probs.shape[:-1])).unsqueeze(-1) * cumulated[..., -1:]  # above 0: nothing impossible is drawn
        return torch.searchsorted(cumulated, at).squeeze(-1).clamp(max=probs.shape[-1] - 1)  # nan lies after the last

    def accepted_prefix_length(self, keep: torch.Tensor) -> torch.Tensor:
        """How many of the leading coins [R, g] come up, [R]."""
        kept = keep >= 1 if self.uniforms is None else self._next(keep.shape) < keep
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


class _Batch(Decoder):
    """All running requests as one decoder of R rows: their contexts stand in slots, and of each block only the first
    `lengths` drafts are verified, in one ragged pass."""

    def __init__(self, engine: "Engine", running: list[_Running]):
        self.slots, self.starts = [one.slot for one in running], [one.length for one in running]
        state = engine.contexts.drafting(self.slots, self.starts) if engine.drafter else None
        anchor = torch.tensor([one.anchor for one in running], device=engine.target.device)  # [R]
        super().__init__(engine.target, engine.drafter, engine.store, state, anchor, engine.temperature,
                         engine._random(running, 2 * engine.gamma + 1))
        self.contexts, self.padded, self.lengths = engine.contexts, engine.padded, []

    def verify(self, proposal: Proposal) -> Step:
        """The target reads the anchors and of each block what is to be verified, in one sequence: logits [1, N, V]."""
        counts = np.array(self.lengths) + 1
        if self.padded:
            counts[:] = counts.max()
        self.layout = Layout(self.cache, self.slots, self.starts, counts)
        self.entering = torch.cat([self.anchor[:, None], proposal.tokens], 1)  # [R, g+1]
        self.token_ids = self.entering[self.layout.row, self.layout.offset]  # [N]
        return ragged_step(self.target, self.token_ids, self.layout, self.taps)

    def accept(self, proposal: Proposal, step: Step) -> Verdict:
        """Accepted drafts and next tokens, [R] each; rows of probabilities that were not asked for are zeros, and not read."""
        probs = torch.zeros(*self.entering.shape, self.target.vocab_size, device=self.entering.device)  # [R, g+1, V]
        probs[self.layout.row, self.layout.offset] = probabilities(step.logits[0], self.temperature)
        lengths = torch.tensor(self.lengths, device=probs.device)
        return accept(probs, proposal.probs, proposal.tokens, lengths, self.generator)

    def commit(self, proposal: Proposal, step: Step, verdict: Verdict) -> list[Outcome]:
        """Asks the host for the outcome of each request, once; the drafter takes in what was accepted. In the target's slots
        the rest of a block is overwritten by what comes next."""
        failed = self.layout.by_request(undefined(step.logits[0])).any(1)
        columns = [verdict.accepted[:, None], verdict.next_token[:, None], failed[:, None], proposal.tokens]
        outcomes = [Outcome(accepted, next_token, drafts, bool(failed))
                    for accepted, next_token, failed, *drafts in torch.cat(columns, 1).tolist()]
        if self.drafter:
            self._extend(step, np.array([outcome.accepted + 1 for outcome in outcomes]))
        return outcomes

    def _extend(self, step: Step, counts: np.ndarray) -> None:
        """Hands the drafter the first counts [R] of the tokens just verified for each request."""
        row, offset = spans(self.layout.counts)
        kept = torch.from_numpy(np.flatnonzero(offset < counts[row])).to(self.token_ids.device)
        state = self.contexts.appending(self.slots, self.starts, counts)
        self.drafter.extend(state, self.token_ids[None, kept], step.features[:, kept])


class Engine:
    """Serves requests with a target and a drafter (None: plain decoding) under a policy (None: whole blocks are verified).

    `slots` requests run at once, each in at most `capacity` positions, at one `temperature`; others wait, first come,
    first served, at most `most_waiting` of them. With `padded`, every request brings as many tokens to verification as
    the longest does; the answers are the same. Call `submit`, then `step` until `idle`.

    - More requests than slots: they wait. A full queue refuses the next with RequestError.
    - A request that does not fit into a slot, or that `generate` would not take, is refused by `submit`.
    - `abort` ends a request, waiting or running, and hands over what it has; its slot is free at once.
    - A policy whose lengths are not whole numbers from 0 to the drafted length raises RequestError from `step`. Nothing is
      committed then; the step can be repeated, after another policy was set or requests were aborted.
    - A request for which the target's logits are not finite ends as "failed"; the others go on.

    Every request is answered once: in the `answers` of one step, or by `abort`.
    """

    batch_class = _Batch

    def __init__(self, target, drafter=None, *, policy=None, slots: int = 8, capacity: int = 512, temperature: float = 0.0,
                 stop_token_ids=None, most_waiting: int | None = None, padded: bool = False):
        check_temperature(temperature)
        if slots < 1:
            raise RequestError(f"the engine has {slots} slots; it needs at least one")
        if target.has_windows:
            raise RequestError(f"layers of {target.name} see a sliding window, which the engine's slots do not have; decode one request "
                               "with generate")
        self.target, self.drafter, self.temperature = target, drafter, temperature
        self.taps, self.gamma = (drafter.taps, drafter.gamma) if drafter else ((), 0)
        self.capacity, self.most_waiting, self.padded = capacity, most_waiting, padded
        self.stop = set(target.stop_token_ids if stop_token_ids is None else stop_token_ids)
        self.store = SlotStore(target.num_layers, slots, capacity, target.device)
        self.contexts = drafter_slots(drafter, slots, capacity, target.device) if drafter else None
        self.set_policy(policy)
        self._slots: list[_Running | None] = [None] * slots
        self._waiting: deque[Answer] = deque()
        self._ended: list[Answer] = []
        self._next_id = 0

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
        """Takes a request in and returns its id; raises RequestError for one that cannot be served, or a full queue."""
        self._check(request)
        if self.most_waiting is not None and len(self._waiting) >= self.most_waiting:
            raise RequestError(f"{len(self._waiting)} requests wait already, and no more may; try again after a step")
        self._waiting.append(Answer(id=self._next_id, request=request, arrived=clock(self.target.device)))
        self._next_id += 1
        return self._next_id - 1

    def _check(self, request: Request) -> None:
        """Raises RequestError for a request that the engine could not serve: in a step it would stop all others, too."""
        ids, vocabulary = request.input_ids, self.target.vocab_size
        check_request(self.target, ids, request.max_new_tokens, self.temperature)
        if ids.dtype not in (torch.int32, torch.int64) or not 0 <= ids.min() <= ids.max() < vocabulary:
            raise RequestError(f"the prompt holds {ids.dtype} from {ids.min()} to {ids.max()}; the token ids of this target are "
                               f"whole numbers from 0 to {vocabulary - 1}")
        block = self.gamma + 1  # verified, or dropped, after the last token that counts
        needed = ids.shape[1] + request.max_new_tokens + block
        if needed > self.capacity:
            raise RequestError(f"the request needs {needed} positions (its prompt, {request.max_new_tokens} new tokens and a "
                               f"block of {block}), and a slot has {self.capacity}; shorten it or give the engine a larger "
                               "capacity")

    def abort(self, request_id: int) -> Answer | None:
        """Ends a request and returns its answer as far as it got; None where it was answered before.

        Raises RequestError for an id that was never given.
        """
        if not 0 <= request_id < self._next_id:
            raise RequestError(f"there is no request {request_id}; abort takes an id that submit has returned")
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
        """Admits what waits, makes one round of all running requests, and returns what happened."""
        report, watch = StepReport(), _Watch(self.target.device)
        if self._waiting and None in self._slots:
            self._prefill(report)
            watch.lap(report, "prefill")
        if running := self._in_slots():
            self._round(running, report, watch)
        report.answers, self._ended = self._ended, []
        return report

    def _prefill(self, report: StepReport) -> None:
        """Reads the prompts of all requests that get a slot, in one pass, and draws their first tokens."""
        reading = clock(self.target.device)
        free = [slot for slot, running in enumerate(self._slots) if running is None]
        fresh = [_Running(answer, slot) for answer, slot in zip(self._waiting, free)]
        token_ids = torch.cat([one.answer.request.input_ids[0] for one in fresh]).to(self.target.device)
        slots, counts = [one.slot for one in fresh], np.array([one.length for one in fresh])
        starts, last = np.zeros_like(counts), torch.from_numpy(counts.cumsum() - 1).to(self.target.device)
        read = ragged_step(self.target, token_ids, Layout(self.store, slots, starts, counts), self.taps, last)
        if self.drafter:
            self.drafter.extend(self.contexts.appending(slots, starts, counts), token_ids[None], read.features)
        logits = read.logits[0]  # [R, V]
        first = draw(probabilities(logits, self.temperature), self._random(fresh, 1))
        outcomes = [Outcome(0, token, [], bool(failed))
                    for token, failed in torch.stack([first, undefined(logits)], 1).tolist()]
        now = clock(self.target.device)
        for one, outcome in zip(fresh, outcomes):
            self._slots[one.slot], answer = one, self._waiting.popleft()
            answer.admitted, answer.first_token, answer.prefill_seconds = reading, now, now - reading
            self._write(one, outcome)
        report.admitted, report.prefilled = len(fresh), len(token_ids)

    def _round(self, running: list[_Running], report: StepReport, watch: "_Watch") -> None:
        """Drafts, schedules, verifies and commits one block of every running request."""
        batch = self.batch_class(self, running)
        proposal = batch.draft()
        watch.lap(report, "draft")
        batch.lengths = chosen_lengths(self.policy if self.drafter else None, proposal)
        watch.lap(report, "schedule")
        step = batch.verify(proposal)
        verdict = batch.accept(proposal, step)
        watch.lap(report, "verify")
        outcomes = batch.commit(proposal, step, verdict)
        for one, length, outcome in zip(running, batch.lengths, outcomes):
            self._note(one, length, outcome, report)
        watch.lap(report, "commit")
        report.requests, report.padding = len(running), len(batch.layout.row) - report.verified

    def _random(self, running: list[_Running], count: int) -> PerRequestRandom:
        """The random numbers of a step, `count` for each request."""
        if self.temperature == 0:
            return PerRequestRandom(None)
        return PerRequestRandom(torch.stack([one.uniforms(count) for one in running]).to(self.target.device))

    def _note(self, one: _Running, length: int, outcome: Outcome, report: StepReport) -> None:
        """Writes a request's round, in which so many drafts were verified, to its answer and to the report."""
        tokens = self._write(one, outcome)
        one.answer.rounds.append(Round(length, outcome.accepted, len(tokens), outcome.drafts[:length], tokens,
                                       report.seconds["draft"], report.seconds["verify"]))
        report.verified += length + 1
        report.proposed += length
        report.accepted += outcome.accepted
        report.committed += len(tokens)

    def _write(self, one: _Running, outcome: Outcome) -> list[int]:
        """Adds a round's tokens to an answer, up to its end, and releases the request there; returns those added."""
        if outcome.failed:
            self._release(one, "failed")
            return []
        room = one.answer.request.max_new_tokens - len(one.answer.token_ids)
        tokens = until_stop(outcome.tokens, self.stop)[:room]
        one.write(tokens)
        if tokens[-1] in self.stop or len(tokens) == room:
            self._release(one, "stop" if tokens[-1] in self.stop else "length")
        return tokens


class _Watch:
    """Splits a step's seconds into its parts."""

    def __init__(self, device: torch.device):
        self.device, self.last = device, clock(device)

    def lap(self, report: StepReport, part: str) -> None:
        """Notes what has passed since the last lap as this part's."""
        now = clock(self.device)
        report.seconds[part], self.last = now - self.last, now
