"""One round (draft a block, choose how much of it to verify, verify, accept, commit), and answers made of rounds."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from numbers import Integral
from typing import NamedTuple

import torch

from ..common.errors import RequestError
from ..common.timing import Moment, clock
from .fast import fast_parts
from .proposal import Drafter, Policy, Proposal, chosen_lengths, draft_length, stack_proposals, started
from .sampling import Randomness, Verdict, accept, check_temperature, draw, probabilities, undefined
from .target import Target, within_memory

ROUND_PARTS = ("draft", "verify", "accept", "commit")  # those that take time; "schedule" stands after the first
NOT_FINITE = ("the {} are not finite; load the model in bfloat16 or float32 (float16 overflows above 65,504), or check "
              "its weights")


@dataclass
class Round:
    """What one round did: how many drafts were `proposed` for verification, how many were `accepted`, how
    many tokens were `committed` (the accepted drafts and the token drawn after them), the `draft_tokens`
    verified, the `tokens` committed, and the seconds spent drafting and verifying.

    Tokens behind the end of the answer are not committed, and drafts behind it do not count as accepted:
    `accepted` is at most `committed`.
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
    """What a round did to one text: of the `drafts` verified so many were `accepted`, and the `next_token` was drawn
    after them. In a round that `failed` the target's logits were not finite, and none of this counts."""

    accepted: int
    next_token: int
    drafts: list[int]
    failed: bool = False

    @property
    def tokens(self) -> list[int]:
        """The tokens that the round commits."""
        return [*self.drafts[:self.accepted], self.next_token]


@dataclass(eq=False)
class Text:
    """What a target and a drafter (None: plain decoding) have read of B texts that go on in step.

    `cache` and `state` are what the two have read: all but the newest token of each text, the `anchor` [B]. A round
    reads `block` and `room`, and calls `verify` and `commit`; serving/engine.py has them for texts of different
    lengths.
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
    def block(self) -> int:
        """Drafts in a block."""
        return draft_length(self.gamma, self.drafter.gamma) if self.drafter else 0

    @property
    def room(self) -> list[int]:
        """How many drafts of the next block can count, for each text."""
        return [self.block] * len(self.anchor)

    def verify(self, drafts: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """The target reads the anchors and the drafts [B, k] after them in one pass; float32 logits [B, k+1, V]. Of
        text b the first `lengths[b]` drafts count; here all are read."""
        self.entering = torch.cat([self.anchor[:, None], drafts], 1)  # [B, k+1]
        step = self.target.verify(self.entering, self.cache, self.drafter.taps if self.drafter else ())
        self.features = step.features  # of all k + 1 tokens; `commit` keeps those of the committed ones
        return step.logits

    def commit(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Leaves the first tokens of those just verified with both models, as many of each text as `counts` says (the
        same of all); next_token [B] are the new anchors."""
        count = counts[0]
        self.target.roll_back(self.cache, self.entering.shape[1] - count)
        if self.drafter:
            features = None if self.features is None else self.features[:, :count]
            if hasattr(self.drafter, "judged"):  # one that learns while it runs
                self.drafter.judged(self.state, self.entering.shape[1] - 1, count - 1)
            with within_memory(f"the context of {self.drafter.name}"):
                self.drafter.extend(self.state, self.entering[:, :count], features)
        self.anchor = next_token


@torch.inference_mode()
def play_round(texts: list[Text], policy: Policy | None = None,
               observe: Callable[[str], AbstractContextManager] = nullcontext) -> list[Outcome]:
    """Plays one round of every text and returns what became of each.

    The policy (None: whole blocks) sees all drafted blocks at once and gives each its verification length. A block
    never reaches past the room that is left. A text of several rows is drafted and verified in one pass. The host waits
    for the device once a text, and once more for a policy.
    `observe(part)` is a context that the part is played in: "draft" and "schedule", then of each text "verify",
    "accept" and "commit". Raises RequestError for a policy's wrong lengths and for draft probabilities that are not
    finite; nothing of that text is committed then.
    """
    outcomes = []
    for text, proposal, lengths in draft_blocks(texts, policy, observe):  # k drafts
        with observe("verify"):
            logits = text.verify(proposal.tokens, lengths)  # [B, k+1, V]
        with observe("accept"):
            cut = torch.tensor(lengths, device=logits.device) if min(lengths) < max(lengths) else None
            target_probs = probabilities(logits, text.temperature)
            # A draft x stays with chance min(1, p(x) / q(x)); the first refused one gives way to a draw from max(p - q, 0).
            rule = accept if text.rule is None else text.rule
            verdict = rule(target_probs, proposal.probs, proposal.tokens, cut, text.generator)
        with observe("commit"):
            rows = _on_the_host(proposal, logits, verdict)
            outcomes += [Outcome(accepted, next_token, drafts[:length], bool(failed))
                         for (accepted, next_token, failed, *drafts), length in zip(rows, lengths)]
            text.commit([accepted + 1 for accepted, *_ in rows], verdict.next_token)
    return outcomes


def draft_blocks(texts: list[Text], policy: Policy | None = None,
                 observe: Callable[[str], AbstractContextManager] = nullcontext) -> list[tuple[Text, Proposal, list[int]]]:
    """Each text with the block to verify of it, cut to the longest of its rows' verification lengths, and these."""
    with observe("draft"):
        proposals = [_drafted(text) for text in texts]
    with observe("schedule"):
        chosen = iter(chosen_lengths(policy, stack_proposals(proposals), max(text.block for text in texts)))
    blocks = []
    for text, proposal in zip(texts, proposals):
        lengths = [min(room, proposal.tokens.shape[1], next(chosen)) for room in text.room]
        blocks.append((text, proposal.cut(max(lengths)), lengths))
    return blocks


def _drafted(text: Text) -> Proposal:
    """A block of drafts that can count; an empty one where there is no drafter or no room."""
    room = text.room
    length = min(text.block, max(room))
    if length < 1:
        return Proposal(text.anchor.new_empty(len(text.anchor), 0),
                        torch.empty(len(text.anchor), 0, text.target.vocab_size, device=text.anchor.device))
    with within_memory(f"a block of {text.drafter.name}"):
        block = text.drafter.propose(text.state, text.anchor, gamma=length, temperature=text.temperature,
                                     generator=text.generator)
    return block.within(room)


def _on_the_host(proposal: Proposal, logits: torch.Tensor, verdict: Verdict) -> list[list[int]]:
    """A row a text: accepted drafts, the next token, whether the target failed, then the drafts. Raises RequestError
    where the drafter alone failed."""
    failed, broken = undefined(logits).any(1), proposal.probs.isnan().flatten(1).any(1)
    decided = torch.stack([broken & ~failed, verdict.accepted, verdict.next_token, failed], 1)
    rows = torch.cat([decided, proposal.tokens], 1).tolist()
    if any(row[0] for row in rows):
        raise RequestError(NOT_FINITE.format("drafter's probabilities"))
    return [row[1:] for row in rows]


def check_models(target, drafter) -> None:
    """Raises RequestError for what is no target or no drafter (None is one), and for a drafter that was loaded for another target."""
    if not (hasattr(target, "prefill") and hasattr(target, "verify")):
        raise RequestError(f"the target is a {type(target).__name__}; give what load_target returned, or Target(model)")
    if drafter is not None and not isinstance(drafter, Drafter):
        raise RequestError(f"the drafter is a {type(drafter).__name__}; give what load_drafter returned, or None")
    if (weight := getattr(getattr(drafter, "lm_head", None), "weight", None)) is not None:
        made, here = (f"{one.dtype} on {one.device} with {size} tokens"
                      for one, size in ((weight, drafter.config.vocab_size), (target, target.vocab_size)))
        if made != here:
            raise RequestError(f"the drafter is one of {made}, the target one of {here}; load the drafter for this target")


def check_request(target, input_ids: torch.Tensor, max_new_tokens: int, temperature: float) -> None:
    """Raises RequestError for an empty or overlong prompt, ids that this target does not have, a negative temperature
    or nothing to generate."""
    check_temperature(temperature)
    if not isinstance(input_ids, torch.Tensor):
        raise RequestError(f"input_ids is a {type(input_ids).__name__}; generate takes a tensor of token ids, [1, n]")
    if input_ids.ndim != 2 or input_ids.shape[0] != 1:
        raise RequestError(f"input_ids has shape {tuple(input_ids.shape)}; generate takes one request, [1, n]")
    if input_ids.shape[1] == 0:
        raise RequestError("the prompt is empty; give at least one token")
    if not isinstance(max_new_tokens, Integral) or max_new_tokens < 1:
        raise RequestError(f"max_new_tokens is {max_new_tokens!r}; it must be a whole number, 1 or more")
    longest = target.max_positions - max_new_tokens
    if input_ids.shape[1] > longest:
        raise RequestError(f"the prompt has {input_ids.shape[1]} tokens; with {max_new_tokens} new ones this target "
                           f"has positions for at most {longest}")
    least, most = torch.stack(input_ids.aminmax()).tolist()
    if input_ids.dtype not in (torch.int32, torch.int64) or not 0 <= least <= most < target.vocab_size:
        raise RequestError(f"the prompt holds {input_ids.dtype} from {least} to {most}; the token ids of this target "
                           f"are whole numbers from 0 to {target.vocab_size - 1}")


def stop_set(target, stop_token_ids) -> set[int]:
    """The ids that end an answer, the target's own for None; raises RequestError unless they are whole numbers."""
    if stop_token_ids is None:
        return set(target.stop_token_ids)
    try:
        stop = set(stop_token_ids)
    except TypeError:
        stop = {None}
    if not all(isinstance(token, Integral) for token in stop):
        raise RequestError(f"stop_token_ids is {stop_token_ids!r}; give a list of token ids, as [0], or an empty one")
    return stop


def until_stop(tokens: list[int], stop_token_ids) -> list[int]:
    """The tokens up to and including the first stop token."""
    for index, token in enumerate(tokens):
        if token in stop_token_ids:
            return tokens[:index + 1]
    return tokens


class _Request(Text):
    """The text of a prompt [1, n] and its answer, which `write` adds a round's tokens to."""

    def __init__(self, target, drafter, input_ids, *, max_new_tokens, temperature=0.0, stop_token_ids=None,
                 generator=None, gamma=None, rule=None, fast=False):
        check_models(target, drafter)
        check_request(target, input_ids, max_new_tokens, temperature)
        self.max_new_tokens, self.stop = max_new_tokens, stop_set(target, stop_token_ids)
        if drafter:
            draft_length(gamma, drafter.gamma)  # raises for a block that it does not draft
        if fast:
            target, drafter, compiled_rule = fast_parts(target, drafter, gamma, fast)
            rule = compiled_rule if rule is None else rule
        reading = clock(target.device)
        step, cache = target.prefill(input_ids, drafter.taps if drafter else ())
        anchor = draw(probabilities(step.logits[:, -1], temperature), generator)  # [1]
        token, failed = torch.cat([anchor, undefined(step.logits[:, -1])]).tolist()
        if failed:
            raise RequestError(NOT_FINITE.format("target's logits"))
        self.answer = Generation(token_ids=[token])
        self.begun = clock(target.device)
        self.answer.prefill_seconds = self.begun - reading
        # That the drafter reads the prompt counts as decoding: plain decoding does without.
        state = None
        if drafter:
            with within_memory(f"the context of {drafter.name}"):
                state = drafter.begin(input_ids, step.features)
        super().__init__(target, drafter, cache, state, anchor, temperature, generator, gamma, rule)
        self._note([token])

    @property
    def finished(self) -> bool:
        """Whether the answer has its last token."""
        return len(self.answer.token_ids) >= self.max_new_tokens or self.answer.token_ids[-1] in self.stop

    @property
    def room(self) -> list[int]:
        """One token less than the answer lacks: the round draws the last one itself."""
        return [self.max_new_tokens - len(self.answer.token_ids) - 1]

    def write(self, outcome: Outcome, draft_seconds: float = 0.0, verify_seconds: float = 0.0) -> None:
        """Adds a round's tokens to the answer, up to a stop token; raises RequestError for a round that failed."""
        if outcome.failed:
            raise RequestError(NOT_FINITE.format("target's logits"))
        self._note([self.answer.token_ids[-1], *outcome.tokens])
        tokens = until_stop(outcome.tokens, self.stop)
        self.answer.token_ids += tokens
        self.answer.rounds.append(Round(len(outcome.drafts), outcome.accepted, len(tokens), outcome.drafts, tokens,
                                        draft_seconds, verify_seconds))
        self.answer.decode_seconds = time.perf_counter() - self.begun

    def _note(self, tokens: list[int]) -> None:
        """Spares a drafter that works on the host a second reading of committed tokens."""
        if hasattr(self.drafter, "note"):
            self.drafter.note(self.state, [tokens])


class Stopwatch:
    """Observes a round: the moments at which drafting and verification began."""

    def __init__(self, device: torch.device):
        self.device, self.begun = device, {}

    def __call__(self, part: str) -> AbstractContextManager:
        if part in ("draft", "verify") and part not in self.begun:
            self.begun[part] = Moment(self.device)
        return nullcontext()

    def seconds(self) -> tuple[float, float]:
        """Seconds spent drafting and, after that, until now."""
        drafting = self.begun["verify"].device_seconds_since(self.begun["draft"])
        return drafting, time.perf_counter() - self.begun["draft"].host - drafting


def generate(target, drafter, input_ids: torch.Tensor, *, max_new_tokens: int, temperature: float = 0.0,
             policy: Policy | None = None, stop_token_ids=None, generator: Randomness = None,
             gamma: int | None = None, rule: Callable[..., Verdict] | None = None,
             fast: bool | str = False) -> Generation:
    """Decodes one request, input_ids [1, n]; `drafter=None` is plain decoding, one token per round.

    `policy(proposal) -> lengths` [1] chooses how many drafts to verify (None: all); `gamma` drafts fewer than the
    drafter's block; `stop_token_ids` defaults to the target's; `rule` accepts in the place of `sampling.accept` (None).
    `fast` decodes in fixed, compiled shapes (decoding/fast.py), which writes the same tokens and takes a minute to
    prepare: True, or the name of a backend of torch.compile. Adapters, weights and settings that change count from the next
    answer on; forward hooks, autocast and quantised weights are refused.
    Raises RequestError for input that cannot be decoded, a fast path that is not there, and wrong lengths of a policy.
    The host waits once per round for the outcome, and once more where a policy chooses.
    """
    (answer,) = generate_together(target, drafter, [input_ids], policy=policy, max_new_tokens=max_new_tokens,
                                  temperature=temperature, stop_token_ids=stop_token_ids, generator=generator,
                                  gamma=gamma, rule=rule, fast=fast)
    return answer


def generate_together(target, drafter, prompts: list[torch.Tensor], *, policy: Policy | None = None,
                      **options) -> list[Generation]:
    """Decodes requests [1, n] side by side, one round of each per step; `options` as of `generate`.

    The policy sees the blocks of all unfinished requests at once and gives each its length; each is then verified by
    itself. A request's seconds include its waiting for the others.
    """
    requests, policy = begin_together(target, drafter, prompts, **options), started(policy)
    while unfinished := [request for request in requests if not request.finished]:
        step_together(unfinished, policy)
    return [request.answer for request in requests]


def stream(target, drafter, input_ids: torch.Tensor, *, policy: Policy | None = None, **options) -> Iterator[list[int]]:
    """Yields the tokens of `generate`, those of a round together, as soon as they are committed; options as there.

    The first list holds the token that comes from the prompt's own pass. What is wrong with a request is raised when
    the first list is taken.
    """
    (request,), policy = begin_together(target, drafter, [input_ids], **options), started(policy)
    yield list(request.answer.token_ids)
    while not request.finished:
        step_together([request], policy)
        yield request.answer.rounds[-1].tokens


@torch.inference_mode()
def begin_together(target, drafter, prompts: list[torch.Tensor], **options) -> list[_Request]:
    """Reads the prompts [1, n] and draws the token after each; `options` as of `generate`."""
    return [_Request(target, drafter, prompt, **options) for prompt in prompts]


def step_together(requests: list[_Request], policy: Policy | None = None) -> None:
    """One round of requests that are not finished, written to their answers with its seconds."""
    watch = Stopwatch(requests[0].target.device)
    for request, outcome in zip(requests, play_round(requests, policy, watch)):
        request.write(outcome, *watch.seconds())
