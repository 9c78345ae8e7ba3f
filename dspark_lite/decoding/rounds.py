"""One request from prompt to answer: draft a block, choose how much of it to verify, verify, accept, commit."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from ..common.errors import RequestError
from ..common.timing import Moment, clock
from .fast import fast_parts
from .policy import chosen_lengths, started
from .proposal import Proposal, stack_proposals
from .protocols import Drafter, Policy
from .sampling import Randomness, Verdict, accept, check_temperature, draw, probabilities, undefined
from .target import Step, Target, within_memory


@dataclass
class Round:
    """What one round did: how many tokens were `proposed` for verification, `accepted` and `committed`
    (accepted ones and the one drawn after them, less what stands after a stop token), the `draft_tokens` verified,
    the `tokens` committed, and the seconds spent drafting and verifying."""

    proposed: int
    accepted: int
    committed: int
    draft_tokens: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0


@dataclass
class Generation:
    """New tokens, the rounds that made them, and the seconds for the prompt and for everything after it.

    The first token comes from the prompt's own pass and belongs to no round.
    """

    token_ids: list[int] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0

    @property
    def accepted_length(self) -> float:
        """Mean committed tokens per round, bonus included (tau); nan where there was no round."""
        return sum(r.committed for r in self.rounds) / len(self.rounds) if self.rounds else float("nan")


class Outcome(NamedTuple):
    """What the host is told of a request's round: its `drafts`, how many of them were `accepted`, the `next_token` drawn
    after those, and whether the round `failed` (the target's logits were not finite: only the engine lets the others go on)."""

    accepted: int
    next_token: int
    drafts: list[int]
    failed: bool = False

    @property
    def tokens(self) -> list[int]:
        """The tokens that the round commits."""
        return [*self.drafts[:self.accepted], self.next_token]


@dataclass(eq=False)
class Decoder:
    """A target and a drafter (None: plain decoding) after the same committed text, ready for the next round: `draft`,
    `verify`, `accept` and `commit`, in this order.

    `cache` and `state` are what the two have read of the text, all of it but the last token, the `anchor` [B]. Its rows
    go on in step; `commit` takes one row. Others override a part: measure/forced_rounds.py, losslessness/chi_square.py, serving/engine.py.
    """

    target: Target
    drafter: Drafter | None
    cache: object
    state: object
    anchor: torch.Tensor
    temperature: float
    generator: Randomness
    gamma: int | None = None  # drafts in a block, None: whole ones
    rule: Callable[..., Verdict] | None = None  # None: sampling.accept

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers that the drafter reads."""
        return self.drafter.taps if self.drafter else ()

    def draft(self) -> Proposal:
        """The drafted block; an empty one for plain decoding."""
        if self.drafter is None:
            return Proposal(self.anchor.new_empty(len(self.anchor), 0),
                            torch.empty(len(self.anchor), 0, self.target.vocab_size, device=self.anchor.device))
        with within_memory(f"a block of {self.drafter.name}"):
            return self.drafter.propose(self.state, self.anchor, gamma=self.gamma, temperature=self.temperature, generator=self.generator)

    def verify(self, proposal: Proposal) -> Step:
        """The target reads the anchor and the block in one pass: logits [B, g+1, V] and features."""
        self.entering = torch.cat([self.anchor[:, None], proposal.tokens], 1)  # [B, g+1]
        return self.target.verify(self.entering, self.cache, self.taps)

    def accept(self, proposal: Proposal, step: Step) -> Verdict:
        """How many drafts are accepted [B] and the token after them [B]; everything stays on the device."""
        target_probs = probabilities(step.logits, self.temperature)  # [B, g+1, V]
        return (self.rule or accept)(target_probs, proposal.probs, proposal.tokens, None, self.generator)

    def commit(self, proposal: Proposal, step: Step, verdict: Verdict) -> Outcome:
        """Asks the host for the outcome, once; both caches keep the accepted drafts, the token after them is the anchor.

        Raises RequestError where the target's logits or the draft's probabilities are none that a token can be drawn from.
        """
        failed = torch.stack([undefined(step.logits).any(), proposal.probs.isnan().any()])
        accepted, next_token, *rest = torch.cat([verdict.accepted, verdict.next_token, failed, proposal.tokens[0]]).tolist()
        check_numbers(*rest[:2])
        drafts = rest[2:]
        self.keep(step, accepted + 1)
        self.anchor = verdict.next_token
        return Outcome(accepted, next_token, drafts)

    def keep(self, step: Step, count: int) -> None:
        """Leaves the first `count` of the tokens just verified in both caches."""
        self.target.roll_back(self.cache, self.entering.shape[1] - count)
        if self.drafter:
            features = None if step.features is None else step.features[:, :count]
            with within_memory(f"the context of {self.drafter.name}"):
                self.drafter.extend(self.state, self.entering[:, :count], features)

    def parts(self) -> Iterator[str]:
        """Plays a round with a pause after each part, whose name it yields: for those who time or count the parts."""
        proposal = self.draft()
        yield "draft"
        step = self.verify(proposal)
        yield "verify"
        verdict = self.accept(proposal, step)
        yield "accept"
        self.commit(proposal, step, verdict)
        yield "commit"


ROUND_PARTS = ("draft", "verify", "accept", "commit")


def check_request(target, input_ids: torch.Tensor, max_new_tokens: int, temperature: float) -> None:
    """Raises RequestError for an empty or overlong prompt, a negative temperature or nothing to generate."""
    check_temperature(temperature)
    if input_ids.ndim != 2 or input_ids.shape[0] != 1:
        raise RequestError(f"input_ids has shape {tuple(input_ids.shape)}; generate takes one request, [1, n]")
    if input_ids.shape[1] == 0:
        raise RequestError("the prompt is empty; give at least one token")
    if max_new_tokens < 1:
        raise RequestError(f"max_new_tokens is {max_new_tokens}; it must be 1 or more")
    longest = target.max_positions - max_new_tokens
    if input_ids.shape[1] > longest:
        raise RequestError(f"the prompt has {input_ids.shape[1]} tokens; with {max_new_tokens} new ones this target "
                           f"has positions for at most {longest}")


def check_numbers(target_failed: bool, drafter_failed: bool = False) -> None:
    """Raises RequestError for a model whose numbers are none that a token can be drawn from."""
    if target_failed or drafter_failed:
        model = "target's logits" if target_failed else "drafter's probabilities"
        raise RequestError(f"the {model} are not finite; load the model in bfloat16 or float32 (float16 overflows above 65,504), or check "
                           "its weights")


def until_stop(tokens: list[int], stop_token_ids) -> list[int]:
    """The tokens up to and including the first stop token."""
    for index, token in enumerate(tokens):
        if token in stop_token_ids:
            return tokens[:index + 1]
    return tokens


class _Request(Decoder):
    """A decoder that has read a prompt [1, n], and the answer that its rounds write."""

    def __init__(self, target, drafter, input_ids, *, max_new_tokens, temperature=0.0, stop_token_ids=None, generator=None,
                 gamma=None, rule=None, fast=False):
        check_request(target, input_ids, max_new_tokens, temperature)
        if fast:
            target, drafter, compiled_rule = fast_parts(target, drafter, gamma, fast)
            rule = rule or compiled_rule
        reading = clock(target.device)
        step, cache = target.prefill(input_ids, drafter.taps if drafter else ())
        anchor = draw(probabilities(step.logits[:, -1], temperature), generator)  # [1]
        token, failed = torch.cat([anchor, undefined(step.logits[:, -1])]).tolist()
        check_numbers(failed)
        self.answer = Generation(token_ids=[token])
        self.begun = clock(target.device)
        self.answer.prefill_seconds = self.begun - reading
        # That the drafter reads the prompt counts as decoding: plain decoding does without.
        state = None
        if drafter:
            with within_memory(f"the context of {drafter.name}"):
                state = drafter.begin(input_ids, step.features)
        super().__init__(target, drafter, cache, state, anchor, temperature, generator, gamma, rule)
        self.max_new_tokens = max_new_tokens
        self.stop = set(target.stop_token_ids if stop_token_ids is None else stop_token_ids)

    @property
    def finished(self) -> bool:
        """Whether the answer has its last token."""
        return len(self.answer.token_ids) >= self.max_new_tokens or self.answer.token_ids[-1] in self.stop

    def draft(self) -> Proposal:
        """Notes when drafting began."""
        self.drafting = Moment(self.target.device)
        return super().draft()

    def verify(self, proposal: Proposal) -> Step:
        """Notes when verification began."""
        self.verifying = Moment(self.target.device)
        return super().verify(proposal)

    def commit(self, proposal: Proposal, step: Step, verdict: Verdict) -> Outcome:
        """Writes the round's tokens to the answer, up to a stop token and to its longest length."""
        outcome = super().commit(proposal, step, verdict)
        room = self.max_new_tokens - len(self.answer.token_ids)
        tokens, now = until_stop(outcome.tokens, self.stop)[:room], time.perf_counter()
        draft_seconds = self.verifying.device_seconds_since(self.drafting)
        self.answer.token_ids += tokens
        self.answer.rounds.append(Round(len(outcome.drafts), outcome.accepted, len(tokens), outcome.drafts, tokens,
                                        draft_seconds, now - self.drafting.host - draft_seconds))
        self.answer.decode_seconds = now - self.begun
        return outcome


@torch.inference_mode()
def generate(target, drafter, input_ids: torch.Tensor, *, max_new_tokens: int, temperature: float = 0.0,
             policy: Policy | None = None, stop_token_ids=None, generator: Randomness = None,
             gamma: int | None = None, rule: Callable[..., Verdict] | None = None, fast: bool | str = False) -> Generation:
    """Decodes one request, input_ids [1, n]; `drafter=None` is plain decoding, one token per round.

    `policy(proposal) -> lengths` [1] chooses how many drafts to verify (None: all); `gamma` drafts fewer than the
    drafter's block; `stop_token_ids` defaults to the target's; `rule` accepts in the place of `sampling.accept` (None).
    `fast` decodes in fixed, compiled shapes (decoding/fast.py), which writes the same tokens and takes a minute to prepare:
    True, or the name of a backend of torch.compile.
    Raises RequestError for input that cannot be decoded, for a fast path that cannot be had, and for lengths that are none.
    The host is asked once per round for the outcome, and once more where a policy chooses.
    """
    request = _Request(target, drafter, input_ids, max_new_tokens=max_new_tokens, temperature=temperature,
                       stop_token_ids=stop_token_ids, generator=generator, gamma=gamma, rule=rule, fast=fast)
    policy = started(policy) if drafter else None
    while not request.finished:
        proposal = request.draft()
        (length,) = chosen_lengths(policy, proposal)
        proposal = proposal.cut(length)
        step = request.verify(proposal)
        verdict = request.accept(proposal, step)
        request.commit(proposal, step, verdict)
    return request.answer


def generate_together(target, drafter, prompts: list[torch.Tensor], *, policy: Policy | None = None,
                      **options) -> list[Generation]:
    """Decodes requests [1, n] side by side, one round of each per step; `options` as of `generate`.

    The policy sees the blocks of all unfinished requests at once and gives each its length; each is then verified by
    itself. A request's seconds include its waiting for the others.
    """
    requests, policy = begin_together(target, drafter, prompts, **options), started(policy)
    while not all(request.finished for request in requests):
        step_together(requests, policy)
    return [request.answer for request in requests]


@torch.inference_mode()
def begin_together(target, drafter, prompts: list[torch.Tensor], **options) -> list[_Request]:
    """Reads the prompts [1, n] and draws the token after each; `options` as of `generate`."""
    return [_Request(target, drafter, prompt, **options) for prompt in prompts]


@torch.inference_mode()
def step_together(requests: list[_Request], policy: Policy | None) -> None:
    """One round of every request that is not finished: that of `generate`, with lengths chosen for all at once."""
    active = [request for request in requests if not request.finished]
    proposals = [request.draft() for request in active]
    if policy is not None and active[0].drafter:
        lengths = chosen_lengths(policy, stack_proposals(proposals))
        proposals = [proposal.cut(length) for proposal, length in zip(proposals, lengths)]
    for request, proposal in zip(active, proposals):
        step = request.verify(proposal)
        verdict = request.accept(proposal, step)
        request.commit(proposal, step, verdict)
