"""The serving engine: many requests, one step at a time, continuously batched.

A step prefills the prompts that got a slot (queue.py), plays one round of all running requests
(runner.py), and writes the tokens to the answers.
"""

from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from functools import partial
from numbers import Integral

import torch

from ..common.errors import RequestError
from ..common.timing import clock
from ..decoding.answer import Acceptance, Outcome, Round
from ..decoding.checks import check_models, check_request, stop_set, until_stop
from ..decoding.proposal import Drafter, Policy, start_policy
from ..decoding.sampling import Verdict, check_seed, check_temperature
from ..decoding.target import Target
from ..decoding.text import check_tokenizer, prompt_ids
from .queue import RequestQueue
from .requests import Answer, Request, RunningRequest, StepReport
from .runner import Runner, StepWatch
from .streams import AnswerStreams


class Engine:
    """Serve requests with a target and a drafter (None: plain decoding) under a policy such as
    `policies.algorithm1(costs)` (None: whole blocks are verified).

    `slots` requests run at once, each in at most `capacity` positions; others wait, first come,
    first served. `temperature`, `stop_token_ids` and `num_speculative_tokens` (drafts of a round, at
    most) are those of requests that have none of their own. With `buckets`, a verification pass is padded to the next of
    these sizes, as in an engine that replays recorded passes; the answers are the same. `rule`
    replaces `sampling.accept`. `generate` answers a list of prompts, `stream` yields the text of
    one. For a loop of your own, call `submit`, then `step` until `idle`.

    - `submit` refuses a request that does not fit into a slot, or that `generate` would refuse.
    - `abort` ends a request, waiting or running, and returns its answer so far; its slot is free at
      once.
    - `step` raises RequestError for a policy whose lengths are not whole numbers from 0 to a block,
      and for a drafter whose probabilities are not finite. Nothing is committed then. The step can
      be repeated, after `set_policy` or `abort`.
    - A request for which the target's logits are not finite ends as "failed"; the others go on.

    Every request is answered once: in the `answers` of one step, or by `abort`. `acceptance` has
    the totals of all rounds, by position in the block.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None = None,
        *,
        policy: Policy | Callable | None = None,
        slots: int = 8,
        capacity: int = 512,
        temperature: float = 0.0,
        stop_token_ids: Iterable[int] | None = None,
        num_speculative_tokens: int | None = None,
        buckets: Iterable[int] = (),
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
        self.acceptance = Acceptance()
        self.num_speculative_tokens = num_speculative_tokens
        self._check_drafts(num_speculative_tokens)
        self._streams = AnswerStreams(self)

    def __repr__(self) -> str:
        drafter = self.runner.drafter.name if self.runner.drafter else "no drafter"
        return (
            f"Engine({self.target.name}, {drafter}: {len(self.running)} of {len(self.queue.slots)} slots run, "
            f"{len(self.waiting)} wait)"
        )

    @property
    def running(self) -> list[int]:
        """Return the ids of the requests in slots."""
        return [request.answer.id for request in self.queue.running]

    @property
    def waiting(self) -> list[int]:
        """Return the ids of the requests that have no slot yet."""
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
        asked = request.temperature
        temperature = runner.temperature if asked is None else asked
        check_request(self.target, request.input_ids, request.max_new_tokens, temperature)
        _check_top_p(request.top_p)
        stop_set(self.target, request.stop_token_ids)
        self._check_drafts(request.num_speculative_tokens)
        if request.num_speculative_tokens is None and self.num_speculative_tokens is not None:
            request = replace(request, num_speculative_tokens=self.num_speculative_tokens)
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

    def generate(
        self, prompts: list[str | list | torch.Tensor], max_new_tokens: int = 128, **options
    ) -> list[Answer]:
        """Answer these prompts and return their answers in the same order, with their `text` if the
        target has a tokenizer.

        A prompt is a text, a list of messages {role, content} for the chat template, or token ids.
        `options` are fields of `Request` for all of them; the seeds count up from `seed`. Raise
        RequestError for a prompt that cannot be served, before any is answered, and if other
        requests wait or run.
        """
        if isinstance(prompts, str):
            raise RequestError("generate takes a list of prompts; put the text into one")
        if not self.idle:
            raise RequestError(
                "the engine has requests under way, whose answers generate would swallow; step until it is idle"
            )
        seed, numbers = options.pop("seed", 0), []
        try:
            for index, prompt in enumerate(prompts):
                request = self.request(prompt, max_new_tokens, seed=seed + index, **options)
                numbers.append(self.submit(request))
            answers: dict[int, Answer] = {}
            while not self.idle:
                answers |= {answer.id: answer for answer in self.step().answers}
        except BaseException:  # Ctrl-C, too
            for number in numbers:
                self.abort(number)
            raise
        if self.target.tokenizer is not None:
            for answer in answers.values():
                answer.text = self.target.tokenizer.decode(
                    answer.token_ids, skip_special_tokens=True
                )
        return [answers[number] for number in numbers]

    def stream(
        self, prompt: str | list | torch.Tensor, max_new_tokens: int = 128, **options
    ) -> AsyncIterator[str]:
        """Yield the answer's text as it is written: `async for piece in engine.stream(...)`.

        Several coroutines may stream at once; their requests share the engine's steps, which run in
        a thread. Arguments are those of `generate` for one prompt. A stream that is closed early
        ends its request. Raise RequestError for a target without a tokenizer.
        """
        check_tokenizer(self.target)
        return self._streams.stream(self.request(prompt, max_new_tokens, **options))

    def request(
        self, prompt: str | list | torch.Tensor, max_new_tokens: int = 128, **options
    ) -> Request:
        """Return the request of a prompt, as `generate` takes it; `options` are fields of
        `Request`."""
        return Request(prompt_ids(self.target, prompt), max_new_tokens, **options)

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
                self.acceptance.add(played)
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
        own = request.answer.request.stop_token_ids
        stop = self.stop if own is None else set(own)
        tokens = until_stop(outcome.tokens, stop)
        request.write(tokens)
        if tokens[-1] in stop or not request.lacking:
            self.queue.release(request, "stop" if tokens[-1] in stop else "length")
        return tokens

    def _check_drafts(self, count: int | None) -> None:
        """Raise RequestError unless a round may have `count` drafts (None: whole blocks)."""
        most = self.runner.gamma
        if count is not None and not (isinstance(count, Integral) and 0 <= count <= most):
            raise RequestError(
                f"num_speculative_tokens is {count!r}; this engine drafts between 0 and {most} tokens a round"
            )


def _check_top_p(share: float) -> None:
    """Raise RequestError unless the share of a top-p is above 0 and at most 1."""
    if not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise RequestError(f"top_p is {share!r}; it must be a number above 0, at most 1")
