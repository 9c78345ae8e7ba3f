"""Rounds of several sequences that share every step, and the tokens of one as they come."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from ..common.errors import RequestError
from ..common.timing import clock
from .answer import Generation, Outcome, Stopwatch
from .checks import check_models, check_request, stop_set
from .proposal import (
    Drafter,
    Policy,
    Proposal,
    chosen_lengths,
    draft_length,
    stack_proposals,
    start_policy,
)
from .rounds import RequestSequence, Sequence
from .rows import Rows, can_share_passes
from .sampling import NOT_FINITE, Verdict, draw_at, probabilities, undefined
from .target import Target
from .text import TextPieces, check_tokenizer, prompt_ids

NO_MEMORY = object()  # for a policy without a `memory`; None may be the memory of one that has it


def schedule_together(
    policy: Policy | None, sequences: list[Sequence], blocks: list[Proposal]
) -> list[Proposal]:
    """Return each sequence's block, cut to the verification lengths that the policy chooses. The
    policy sees all blocks at once."""
    with sequences[0].observe("schedule"):
        longest = max(sequence.block_size for sequence in sequences)
        chosen = iter(chosen_lengths(policy, stack_proposals(blocks), longest))
        return [
            block.scheduled([next(chosen) for _ in block.tokens], sequence.room)
            for sequence, block in zip(sequences, blocks)
        ]


@torch.inference_mode()
def play_round(sequences: list[Sequence], policy: Policy | None = None) -> list[Outcome]:
    """Play one round of every sequence and return what became of each row.

    All blocks are drafted, then scheduled together, then verified. Each element of `sequences`
    takes one pass of the target; a `Rows` element verifies several requests in it. Raise
    RequestError for wrong lengths of a policy and for draft probabilities that are not finite;
    nothing of that element is committed then, and the policy forgets the round.
    """
    with forgetting_failures(policy):
        blocks = [sequence.draft() for sequence in sequences]
        blocks = schedule_together(policy, sequences, blocks)
        outcomes = []
        for sequence, block in zip(sequences, blocks):
            logits = sequence.verify(block)
            verdict = sequence.accept(block, logits)
            outcomes += sequence.commit(block, logits, verdict)
    return outcomes


@contextmanager
def forgetting_failures(policy: Policy | None) -> Iterator[None]:
    """Restore a policy's `memory`, if it has one, after an error inside the context."""
    memory = getattr(policy, "memory", NO_MEMORY)
    try:
        yield
    except BaseException:
        if memory is not NO_MEMORY:
            policy.memory = memory
        raise


@torch.inference_mode()
def begin_together(
    target, drafter, prompts: list[torch.Tensor], **options
) -> list[RequestSequence]:
    """Read the prompts [1, n] and draw the token after each; `options` as of `generate`."""
    stopwatch = Stopwatch(getattr(target, "device", None))
    return [
        RequestSequence.begin(target, drafter, prompt, **options, stopwatch=stopwatch)
        for prompt in prompts
    ]


class SharedAnswers(Rows):
    """Requests [1, n] that share every pass of the target, and their `answers`. Options are those
    of `generate`."""

    def __init__(
        self,
        target,
        drafter,
        prompts: list[torch.Tensor],
        *,
        max_new_tokens,
        temperature=0.0,
        stop_token_ids=None,
        generator=None,
        gamma=None,
        rule=None,
    ):
        self.most, self.stop = max_new_tokens, stop_set(target, stop_token_ids)
        if drafter:
            draft_length(gamma, drafter.gamma)  # raises for a block that it does not draft
        self.lengths_read, arrived = [prompt.shape[1] for prompt in prompts], clock(target.device)
        longest = max(self.lengths_read) + max_new_tokens
        watch = Stopwatch(target.device)
        super().__init__(
            target,
            drafter,
            prompts,
            longest,
            temperature,
            generator,
            gamma=gamma,
            rule=rule,
            observe=watch,
        )
        logits = self.logits[:, -1]
        if undefined(logits).any():
            raise RequestError(NOT_FINITE.format("target's logits"))
        self.began = clock(target.device)
        first = draw_at(probabilities(logits, temperature), temperature, generator).tolist()
        seconds = self.began - arrived
        self.answers = [Generation([token], prefill_seconds=seconds) for token in first]

    def join_unfinished(self) -> bool:
        """Begin a round of all requests whose answers lack tokens. Return whether there are any."""
        texts = [answer.token_ids for answer in self.answers]
        rows = [
            row
            for row, text in enumerate(texts)
            if len(text) < self.most and text[-1] not in self.stop
        ]
        if rows:
            self.select(rows)
            self.join(
                rows,
                [self.lengths_read[row] + len(texts[row]) - 1 for row in rows],
                [texts[row][-1] for row in rows],
                [self.most - len(texts[row]) - 1 for row in rows],
            )
        return bool(rows)

    def commit(self, block: Proposal, logits: torch.Tensor, verdict: Verdict) -> list[Outcome]:
        """Commit the round and add its tokens to the answers. Raise RequestError if the target's
        logits are not finite."""
        outcomes = super().commit(block, logits, verdict)
        if any(outcome.failed for outcome in outcomes):
            raise RequestError(NOT_FINITE.format("target's logits"))
        seconds, decoding = self.observe.seconds(), clock(self.target.device) - self.began
        for row, outcome in zip(self.joined, outcomes):
            self.answers[row].add(outcome, self.stop, seconds)
            self.answers[row].decode_seconds = decoding
        return outcomes


def generate_together(
    target,
    drafter,
    prompts: list[torch.Tensor],
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
    policy: Policy | None = None,
    prepare: Callable[..., tuple] | None = None,
    **options,
) -> list[Generation]:
    """Decode requests [1, n] side by side, one round of each per step; `options` as of `generate`.

    The policy sees the blocks of all unfinished requests at once and gives each its length. All are
    verified in one pass of the target if it can do so (`rows.can_share_passes`) and nothing prepares
    the models, otherwise one after the other. Drafting seconds are those of all requests. Where requests are
    verified one after the other, a request's verifying seconds end with its own commit.
    """
    policy = start_policy(policy)
    check_models(target, drafter)
    for prompt in prompts:
        check_request(target, prompt, max_new_tokens, temperature)
    longest = max((prompt.shape[1] for prompt in prompts), default=0) + max_new_tokens
    if not prepare and len(prompts) > 1 and can_share_passes(target, longest):
        shared = SharedAnswers(
            target,
            drafter,
            prompts,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            **options,
        )
        while shared.join_unfinished():
            play_round([shared], policy)
        return shared.answers
    requests = begin_together(
        target,
        drafter,
        prompts,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        prepare=prepare,
        **options,
    )
    while unfinished := [request for request in requests if not request.finished]:
        play_round(unfinished, policy)
    return [request.answer for request in requests]


def stream(
    target: Target,
    drafter: Drafter | None,
    input_ids: torch.Tensor,
    *,
    policy: Policy | Callable[[Proposal], torch.Tensor] | None = None,
    **options,
) -> Iterator[list[int]]:
    """Yield the tokens of `generate` as soon as they are committed, a list a round; `options` as
    there.

    The first list holds the token that comes from the prompt's own pass. An error in the request is
    raised when the first list is taken.
    """
    (request,) = begin_together(target, drafter, [input_ids], **options)
    policy = start_policy(policy)
    yield list(request.answer.token_ids)
    while not request.finished:
        play_round([request], policy)
        yield request.answer.rounds[-1].tokens


def stream_text(
    target: Target, drafter: Drafter | None, prompt: str | list | torch.Tensor, **options
) -> Iterator[str]:
    """Yield the answer's text as it is committed, a piece a round; the pieces add up to the whole.

    A prompt is a text, a list of messages {role, content} for the chat template, or token ids;
    `options` are those of `generate`. Raise RequestError for a target without a tokenizer.
    """
    check_tokenizer(target)
    pieces = TextPieces(target.tokenizer)
    for tokens in stream(target, drafter, prompt_ids(target, prompt), **options):
        if piece := pieces.add(tokens):
            yield piece
    if piece := pieces.end():
        yield piece
