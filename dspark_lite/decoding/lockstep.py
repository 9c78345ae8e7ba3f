"""Rounds of several sequences that share every step, and the tokens of one as they come."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .answer import Generation, Stopwatch
from .proposal import Policy, Proposal, chosen_lengths, stack_proposals, start_policy
from .rounds import AnsweredPrompt
from .sequence import Outcome, Sequence

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

    All blocks are drafted, then scheduled together, then verified one after the other. Raise
    RequestError for wrong lengths of a policy and for draft probabilities that are not finite;
    nothing of that sequence is committed then, and the policy forgets the round.
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
def begin_together(target, drafter, prompts: list[torch.Tensor], **options) -> list[AnsweredPrompt]:
    """Read the prompts [1, n] and draw the token after each; `options` as of `generate`."""
    stopwatch = Stopwatch(getattr(target, "device", None))
    return [
        AnsweredPrompt(target, drafter, prompt, **options, stopwatch=stopwatch)
        for prompt in prompts
    ]


def generate_together(
    target, drafter, prompts: list[torch.Tensor], *, policy: Policy | None = None, **options
) -> list[Generation]:
    """Decode requests [1, n] side by side, one round of each per step; `options` as of `generate`.

    The policy sees the blocks of all unfinished requests at once and gives each its length; each is
    then verified by itself. A round's `draft_seconds` are those of all requests, and its
    `verify_seconds` end when the request's own tokens are committed.
    """
    requests, policy = begin_together(target, drafter, prompts, **options), start_policy(policy)
    while unfinished := [request for request in requests if not request.finished]:
        play_round(unfinished, policy)
    return [request.answer for request in requests]


def stream(
    target, drafter, input_ids: torch.Tensor, *, policy: Policy | None = None, **options
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
