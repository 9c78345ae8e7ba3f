"""The serving engine: many requests, one step at a time, continuously batched.

A step prefills what has arrived into free slots, drafts all blocks in one pass, lets the policy choose verification
lengths, verifies the ragged batch in one pass of the target, commits, and evicts what is finished. Its parts are those
of `generate` (decoding.py), for many; slots.py holds their contexts.
"""

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import torch

from .decoding import Generation, Round, check_request, chosen_lengths, clock, nothing_drafted, until_stop
from .drafters.base import Proposal
from .errors import RequestError
from .sampling import Chooser, accept, check_temperature, draw, probabilities
from .slots import Layout, SlotStore, drafter_slots, ragged_step, spans
from .target import Step

PARTS = ("prefill", "draft", "schedule", "verify", "commit")


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
    `decoding.clock`."""

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
    first token, and their prompt tokens `prefilled`; the `seconds` of each of PARTS; the `answers` that ended."""

    requests: int = 0
    verified: int = 0
    padding: int = 0
    proposed: int = 0
    accepted: int = 0
    committed: int = 0
    admitted: int = 0
    prefilled: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    answers: list[Answer] = field(default_factory=list)


class OwnNumbers(Chooser):
    """Draws of requests that share a step: each row uses up uniform numbers of its own, [R, k], so what a request draws
    never depends on the others. Without numbers (temperature 0) the most probable outcome."""

    def __init__(self, numbers: torch.Tensor | None):
        self.numbers, self.used = numbers, 0

    def _next(self, shape: torch.Size) -> torch.Tensor:
        """The next uniform numbers, [R] or [R, g]."""
        first, self.used = self.used, self.used + shape[1:].numel()
        return self.numbers[:, first:self.used].reshape(shape)

    def draw(self, probs: torch.Tensor) -> torch.Tensor:
        """Tokens [R] or [R, g] of distributions [..., V], by the inverse of the distribution function."""
        if self.numbers is None:
            return probs.argmax(-1)
        cumulated = probs.double().cumsum(-1)
        at = (1 - self._next(probs.shape[:-1])).unsqueeze(-1) * cumulated[..., -1:]  # above 0: nothing impossible is drawn
        return torch.searchsorted(cumulated, at).squeeze(-1).clamp(max=probs.shape[-1] - 1)  # nan lies behind the last

    def kept_prefix(self, keep: torch.Tensor) -> torch.Tensor:
        """How many of the leading coins [R, g] come up, [R]."""
        kept = keep >= 1 if self.numbers is None else self._next(keep.shape) < keep
        return kept.long().cumprod(-1).sum(-1)


class _Active:
    """A request in its slot: `length` tokens in the target's store, the anchor behind them, its generator, its answer."""

    def __init__(self, answer: Answer, slot: int):
        self.answer, self.slot, self.length = answer, slot, answer.request.input_ids.shape[1]
        self.generator = torch.Generator().manual_seed(answer.request.seed)
        self.numbers: torch.Tensor | None = None
        self.anchor = -1

    def own_numbers(self, count: int) -> torch.Tensor:
        """The numbers of a step. One that is repeated, because its policy failed, finds the same ones: a policy must not
        be able to choose between draws."""
        if self.numbers is None:
            self.numbers = torch.rand(count, generator=self.generator, dtype=torch.float64)
        return self.numbers


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

    def __init__(self, target, drafter=None, *, policy=None, slots: int = 8, capacity: int = 512, temperature: float = 0.0,
                 stop_token_ids=None, most_waiting: int | None = None, padded: bool = False):
        check_temperature(temperature)
        if slots < 1:
            raise RequestError(f"the engine has {slots} slots; it needs at least one")
        self.target, self.drafter, self.temperature = target, drafter, temperature
        self.taps, self.gamma = (drafter.taps, drafter.gamma) if drafter else ((), 0)
        self.capacity, self.most_waiting, self.padded = capacity, most_waiting, padded
        self.stop = set(target.stop_token_ids if stop_token_ids is None else stop_token_ids)
        self.store = SlotStore(target.num_layers, slots, capacity, target.device)
        self.contexts = drafter_slots(drafter, slots, capacity, target.device) if drafter else None
        self.set_policy(policy)
        self._slots: list[_Active | None] = [None] * slots
        self._waiting: deque[Answer] = deque()
        self._ended: list[Answer] = []
        self._next_id = 0

    # Requests

    @property
    def running(self) -> list[int]:
        """The ids of the requests in slots."""
        return [active.answer.id for active in self._active()]

    @property
    def waiting(self) -> list[int]:
        """The ids of the requests that have no slot yet."""
        return [answer.id for answer in self._waiting]

    @property
    def full(self) -> bool:
        """Whether no more requests may wait."""
        return self.most_waiting is not None and len(self._waiting) >= self.most_waiting

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to do or to deliver."""
        return not (self._active() or self._waiting or self._ended)

    def set_policy(self, policy) -> None:
        """Schedules by this policy from the next step on."""
        if hasattr(policy, "begin"):
            policy.begin()  # a policy that remembers earlier steps starts anew
        self.policy = policy

    def submit(self, request: Request) -> int:
        """Takes a request in and returns its id; raises RequestError for one that cannot be served, or a full queue."""
        self._check(request)
        if self.full:
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
        block = self.gamma + 1  # verified, or dropped, behind the last token that counts
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
        for active in self._active():
            if active.answer.id == request_id:
                self._release(active, "aborted")
        for answer in list(self._waiting):
            if answer.id == request_id:
                self._waiting.remove(answer)
                self._end(answer, "aborted")
        found = [answer for answer in self._ended if answer.id == request_id]
        self._ended = [answer for answer in self._ended if answer.id != request_id]
        return found[0] if found else None

    def _active(self) -> list[_Active]:
        """The running requests, by slot."""
        return [active for active in self._slots if active]

    def _end(self, answer: Answer, reason: str) -> None:
        """Puts an answer among those to deliver."""
        answer.reason, answer.ended = reason, clock(self.target.device)
        answer.decode_seconds = answer.ended - answer.first_token if answer.token_ids else 0.0
        self._ended.append(answer)

    def _release(self, active: _Active, reason: str) -> None:
        """Frees a slot."""
        self._slots[active.slot] = None
        self._end(active.answer, reason)
        if reason == "failed":
            self.store.clear(active.slot)
            if self.contexts:
                self.contexts.clear(active.slot)

    # A step

    @torch.inference_mode()
    def step(self) -> StepReport:
        """Admits what waits, makes one round of all running requests, and returns what happened."""
        report, watch = StepReport(), _Watch(self.target.device)
        if self._waiting and None in self._slots:
            self._prefill(report)
            watch.lap(report, "prefill")
        if active := self._active():
            self._round(active, report, watch)
        report.answers, self._ended = self._ended, []
        return report

    def _prefill(self, report: StepReport) -> None:
        """Reads the prompts of all requests that get a slot, in one pass, and draws their first tokens."""
        started = clock(self.target.device)
        free = [slot for slot, active in enumerate(self._slots) if active is None]
        fresh = [_Active(answer, slot) for answer, slot in zip(self._waiting, free)]
        token_ids = torch.cat([active.answer.request.input_ids[0] for active in fresh]).to(self.target.device)
        slots, counts = [active.slot for active in fresh], np.array([active.length for active in fresh])
        starts, last = np.zeros_like(counts), torch.from_numpy(counts.cumsum() - 1).to(self.target.device)
        read = ragged_step(self.target, token_ids, Layout(self.store, slots, starts, counts), self.taps, last)
        if self.drafter:
            self.drafter.extend(self.contexts.appending(slots, starts, counts), token_ids[None], read.features)
        logits = read.logits[0]  # [R, V]
        first = draw(probabilities(logits, self.temperature), self._numbers(fresh, 1))
        told, now = torch.stack([first, _broken(logits)], 1).tolist(), clock(self.target.device)
        for active, (token, broken) in zip(fresh, told):
            self._slots[active.slot], answer = active, self._waiting.popleft()
            answer.admitted, answer.first_token, answer.prefill_seconds = started, now, now - started
            self._take(active, [token], broken)
        report.admitted, report.prefilled = len(fresh), len(token_ids)

    def _round(self, active: list[_Active], report: StepReport, watch: "_Watch") -> None:
        """Drafts, schedules, verifies and commits one block of every running request."""
        anchor = torch.tensor([one.anchor for one in active], device=self.target.device)
        numbers = self._numbers(active, 2 * self.gamma + 1)
        proposal = self._draft(active, anchor, numbers)
        watch.lap(report, "draft")
        lengths = chosen_lengths(self.policy if self.drafter else None, proposal)
        watch.lap(report, "schedule")
        entering = torch.cat([anchor[:, None], proposal.tokens], 1)  # [R, g+1]
        layout, read, told = self._verify(active, entering, proposal, lengths, numbers)
        watch.lap(report, "verify")
        self._commit(active, lengths, told, report)
        self._extend(active, layout, read, entering, told)
        watch.lap(report, "commit")
        report.requests, report.padding = len(active), len(layout.place) - report.verified

    def _numbers(self, active: list[_Active], count: int) -> OwnNumbers:
        """The random numbers of a step, `count` a request."""
        if self.temperature == 0:
            return OwnNumbers(None)
        return OwnNumbers(torch.stack([one.own_numbers(count) for one in active]).to(self.target.device))

    def _draft(self, active: list[_Active], anchor: torch.Tensor, numbers: OwnNumbers) -> Proposal:
        """All blocks, in one pass; empty ones for plain decoding."""
        if self.drafter is None:
            return nothing_drafted(anchor, self.target.vocab_size)
        state = self.contexts.drafting([one.slot for one in active], [one.length for one in active])
        return self.drafter.propose(state, anchor, temperature=self.temperature, generator=numbers)

    def _verify(self, active: list[_Active], entering: torch.Tensor, proposal: Proposal, lengths: list[int],
                numbers: OwnNumbers) -> tuple[Layout, Step, list[list[int]]]:
        """The layout of the ragged batch, what the target made of it, and for the host, a row a request: drafts accepted,
        the token behind them, whether a logit was not finite, all drafts."""
        counts = np.array(lengths) + 1
        if self.padded:
            counts[:] = counts.max()
        layout = Layout(self.store, [one.slot for one in active], [one.length for one in active], counts)
        read = ragged_step(self.target, entering[layout.row, layout.offset], layout, self.taps)
        probs = torch.zeros(*entering.shape, self.target.vocab_size, device=entering.device)
        probs[layout.row, layout.offset] = probabilities(read.logits[0], self.temperature)
        verdict = accept(probs, proposal.probs, proposal.tokens, torch.tensor(lengths, device=entering.device), numbers)
        broken = layout.by_request(_broken(read.logits[0])).any(1)
        told = [verdict.accepted[:, None], verdict.next_token[:, None], broken[:, None], proposal.tokens]
        return layout, read, torch.cat(told, 1).tolist()

    def _commit(self, active: list[_Active], lengths: list[int], told: list[list[int]], report: StepReport) -> None:
        """Writes what was accepted, and the token behind it, to the answers."""
        for one, length, (accepted, following, broken, *drafts) in zip(active, lengths, told):
            tokens = self._take(one, drafts[:accepted] + [following], broken)
            one.length += accepted + 1
            one.answer.rounds.append(Round(length, accepted, len(tokens), drafts[:length], tokens,
                                           report.seconds["draft"], report.seconds["verify"]))
            report.verified += length + 1
            report.proposed += length
            report.accepted += accepted
            report.committed += len(tokens)

    def _take(self, one: _Active, tokens: list[int], broken: bool) -> list[int]:
        """Adds tokens to an answer, up to its end, and releases the request there; returns those that were added."""
        answer, one.numbers, one.anchor = one.answer, None, tokens[-1]
        room = answer.request.max_new_tokens - len(answer.token_ids)
        tokens = [] if broken else until_stop(tokens, self.stop)[:room]
        answer.token_ids += tokens
        if broken or tokens[-1] in self.stop or len(tokens) == room:
            self._release(one, "failed" if broken else "stop" if tokens[-1] in self.stop else "length")
        return tokens

    def _extend(self, active: list[_Active], layout: Layout, read: Step, entering: torch.Tensor,
                told: list[list[int]]) -> None:
        """Hands the drafter what was committed, of the requests that go on."""
        going = [row for row, one in enumerate(active) if self._slots[one.slot] is one]
        if self.drafter is None or not going:
            return
        counts = np.array([told[row][0] + 1 for row in going])
        slots, starts = [active[row].slot for row in going], [active[row].length for row in going] - counts
        of, offset = spans(counts)
        first = (layout.counts.cumsum() - layout.counts)[going]
        kept, row = (torch.from_numpy(index).to(entering.device) for index in (first[of] + offset, np.array(going)[of]))
        tokens = entering[row, torch.from_numpy(offset).to(entering.device)]
        self.drafter.extend(self.contexts.appending(slots, starts, counts), tokens[None], read.features[:, kept])


class _Watch:
    """Splits a step's seconds into its parts."""

    def __init__(self, device: torch.device):
        self.device, self.last = device, clock(device)

    def lap(self, report: StepReport, part: str) -> None:
        """Notes what has passed since the last lap as this part's."""
        now = clock(self.device)
        report.seconds[part], self.last = now - self.last, now


def _broken(logits: torch.Tensor) -> torch.Tensor:
    """Whether a row of logits [N, V] holds a number that is not finite, [N]."""
    return ~logits.sum(-1).isfinite()
