"""Speculative decoding of one request: draft a block, schedule, verify, accept, commit, repeat."""

import time
from collections.abc import Callable

import torch

from ..common.errors import RequestError
from ..common.timing import clock
from .answer import Generation, Stopwatch
from .checks import check_models, check_request, stop_set
from .proposal import Policy, Proposal, draft_length, start_policy
from .sampling import Randomness, Verdict, draw_at, probabilities, undefined
from .sequence import NOT_FINITE, Outcome, Sequence
from .target import within_memory


@torch.inference_mode()
def generate(
    target,
    drafter,
    input_ids: torch.Tensor,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    policy: Policy | None = None,
    stop_token_ids=None,
    generator: Randomness = None,
    gamma: int | None = None,
    rule: Callable[..., Verdict] | None = None,
    prepare: Callable[..., tuple] | None = None,
) -> Generation:
    """Decode one request, input_ids [1, n]. Without a drafter, decoding is plain: a token a round.

    `policy(proposal) -> lengths` [1] chooses how many drafts to verify (None: all). `gamma` drafts
    fewer tokens than the drafter's block. `stop_token_ids` defaults to the target's. `rule`
    replaces `sampling.accept` (at temperature 0 `accept_greedy`). `prepare(target, drafter, gamma)` returns the target, the drafter and
    the accept rule that decode in the place of these; `fast_path` (fast/) compiles them. It writes
    the same tokens and takes a minute to prepare; it refuses forward hooks, autocast and quantised
    weights.

    The host waits for the device once a round, and once more if there is a policy. Raise
    RequestError for a request that cannot be decoded and for wrong lengths of a policy.
    """
    sequence = AnsweredPrompt(
        target,
        drafter,
        input_ids,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        stop_token_ids=stop_token_ids,
        generator=generator,
        gamma=gamma,
        rule=rule,
        prepare=prepare,
    )
    policy = start_policy(policy)
    while not sequence.finished:
        block = sequence.draft()  # tokens [1, k], each drawn from its row of probs [1, k, V]
        block = sequence.schedule(policy, block)  # only what is worth its place in the batch
        logits = sequence.verify(block)  # [1, k+1, V], in one pass of the target
        verdict = sequence.accept(block, logits)  # a prefix of the drafts, and one token more
        sequence.commit(block, logits, verdict)  # to the caches and to the answer
    return sequence.answer


class AnsweredPrompt(Sequence):
    """One prompt [1, n] whose `answer` grows by the tokens of each round.

    The constructor checks the request, reads the prompt and draws the first token. It takes the
    options of `generate`, and a `stopwatch` for prompts that share their rounds.
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
        super().__init__(
            target,
            drafter,
            cache=None,
            state=None,
            anchor=None,
            temperature=temperature,
            generator=generator,
            gamma=gamma,
            rule=rule,
            observe=stopwatch or Stopwatch(target.device),
        )
        self.answer = Generation()
        self.read_prompt(input_ids)

    def read_prompt(self, input_ids: torch.Tensor) -> None:
        """Read the prompt [1, n] with both models and draw the first token, which is the anchor.
        Raise RequestError if the target's logits are not finite."""
        arrived = clock(self.target.device)
        taps = self.drafter.taps if self.drafter else ()
        output, self.cache = self.target.prefill(input_ids, taps)
        logits = output.logits[:, -1]
        probs = probabilities(logits, self.temperature)
        self.anchor = draw_at(probs, self.temperature, self.generator)  # [1]
        token, failed = torch.cat([self.anchor, undefined(logits)]).tolist()
        if failed:
            raise RequestError(NOT_FINITE.format("target's logits"))
        self.answer.token_ids.append(token)
        self.began = clock(self.target.device)
        self.answer.prefill_seconds = self.began - arrived
        if self.drafter:  # counts as decoding: plain decoding does without
            with within_memory(f"the context of {self.drafter.name}"):
                self.state = self.drafter.begin(input_ids, output.features)
            self.drafter.see_committed(self.state, [[token]])

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
