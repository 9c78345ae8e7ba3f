"""The serving engine: many requests, one step at a time, continuously batched.

A step prefills the prompts that got a slot (queue.py), plays one round of all running requests
(runner.py), and writes the tokens to the answers.
"""

from collections.abc import Callable
from functools import partial

import torch

from ..common.errors import RequestError
from ..common.timing import clock
from ..decoding.answer import Outcome, Round
from ..decoding.checks import check_models, check_request, stop_set, until_stop
from ..decoding.proposal import start_policy
from ..decoding.sampling import Verdict, check_seed, check_temperature
from .requests import Answer, Request, RunningRequest, StepReport
from .runner import Runner, StepWatch
from .queue import RequestQueue


class Engine:
    """Serve requests with a target and a drafter (None: plain decoding) under a policy such as
    `policies.algorithm1(costs)` (None: whole blocks are verified).

    `slots` requests run at once, each in at most `capacity` positions, at one `temperature`; others
    wait, first come, first served. With `buckets`, a verification pass is padded to the next of
    these sizes, as in an engine that replays recorded passes; the answers are the same. `rule`
    replaces `sampling.accept`. Call `submit`, then `step` until `idle`.

    - `submit` refuses a request that does not fit into a slot, or that `generate` would refuse.
    - `abort` ends a request, waiting or running, and returns its answer so far; its slot is free at
      once.
    - `step` raises RequestError for a policy whose lengths are not whole numbers from 0 to a block,
      and for a drafter whose probabilities are not finite. Nothing is committed then. The step can
      be repeated, after `set_policy` or `abort`.
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
        self.target = target
        self.capacity, self.stop = capacity, stop_set(target, stop_token_ids)
        self.runner = Runner(target, drafter, slots, capacity, temperature, buckets, rule)
        self.queue = RequestQueue(slots, partial(clock, target.device))
        self.set_policy(policy)
        self._report = StepReport()

    @property
    def running(self) -> list[int]:
        """The ids of the requests in slots."""
        return [request.answer.id for request in self.queue.running]

    @property
    def waiting(self) -> list[int]:
        """The ids of the requests that have no slot yet."""
        return [answer.id for answer in self.queue.waiting]

    @property
    def idle(self) -> bool:
        """Return whether nothing is left to do or to deliver."""
        return self.queue.idle

    def set_policy(self, policy) -> None:
        """Schedule verification by this policy from the next step on."""
        self.policy = start_policy(policy)

    def submit(self, request: Request) -> int:
        """Queue a request and return its id. Raise RequestError for a request that cannot be
        served: in a step it would stop all others, too."""
        runner = self.runner
        check_request(self.target, request.input_ids, request.max_new_tokens, runner.temperature)
        check_seed(request.seed, " of the request")
        block = runner.gamma + 1  # drafted, and dropped, after the last token that counts
        needed = request.input_ids.shape[1] + request.max_new_tokens + block
        if needed > self.capacity:
            raise RequestError(
                f"the request needs {needed} positions (its prompt, {request.max_new_tokens} new tokens and a "
                f"block of {block}), and a slot has {self.capacity}; shorten it or give the engine a larger "
                "capacity"
            )
        return self.queue.submit(request)

    def abort(self, request_id: int) -> Answer | None:
        """End a request and return its answer so far; None if it was answered before. Raise
        RequestError for an id that was never given."""
        return self.queue.abort(request_id)

    @torch.inference_mode()
    def step(self) -> StepReport:
        """Admit what waits, play one round of all running requests, and report the step. If an
        error interrupted the last step, the report includes it."""
        report = self._report
        watch = StepWatch(self.target.device, report.seconds)
        if fresh := self.queue.candidates():
            with watch("prefill"):
                self._prefill(fresh, report)
        if running := self.queue.running:
            self._round(running, report, watch)
        report.answers, self._report = self.queue.deliver(), StepReport()
        return report

    def _prefill(self, fresh: list[RunningRequest], report: StepReport) -> None:
        """Read the prompts of admitted requests and write their first tokens."""
        began = self.queue.now()
        outcomes = self.runner.prefill(fresh)
        now = self.queue.now()
        self.queue.admit(fresh)
        report.admitted += len(fresh)
        report.prefilled += sum(request.length for request in fresh)
        for request, outcome in zip(fresh, outcomes):
            answer = request.answer
            answer.admitted, answer.first_token, answer.prefill_seconds = began, now, now - began
            report.written[answer.id] = self._write(request, outcome)

    def _round(self, running: list[RunningRequest], report: StepReport, watch: StepWatch) -> None:
        """Play a round and write it to the answers and to the report."""
        before = dict(report.seconds)  # of an interrupted step
        outcomes, tokens_read = self.runner.round(running, self.policy, watch)
        draft, verify = (report.seconds[part] - before[part] for part in ("draft", "verify"))
        with watch("commit"):
            for request, outcome in zip(running, outcomes):
                tokens = self._write(request, outcome)
                played = Round(
                    len(outcome.drafts),
                    outcome.accepted,
                    len(tokens),
                    outcome.drafts,
                    tokens,
                    draft,
                    verify,
                )
                request.answer.rounds.append(played)
                report.written.setdefault(request.answer.id, []).extend(tokens)
                report.verified += played.proposed + 1
                report.proposed += played.proposed
                report.accepted += played.accepted
                report.committed += played.committed
        report.requests, report.padding = len(running), tokens_read - report.verified

    def _write(self, request: RunningRequest, outcome: Outcome) -> list[int]:
        """Add a round's tokens to an answer, up to its end, and release the request there. Return
        the tokens that were added."""
        if outcome.failed:
            self.queue.release(request, "failed")
            self.runner.clear(request.slot)
            return []
        tokens = until_stop(outcome.tokens, self.stop)
        request.write(tokens)
        if tokens[-1] in self.stop or not request.lacking:
            self.queue.release(request, "stop" if tokens[-1] in self.stop else "length")
        return tokens
