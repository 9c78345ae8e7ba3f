"""Speculative decoding of one request: draft a block, schedule, verify, accept, commit, repeat."""

from collections.abc import Callable

import torch

from .answer import AnsweredPrompt, Generation
from .proposal import Policy, start_policy
from .sampling import Randomness, Verdict


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
    replaces `sampling.accept`. `prepare(target, drafter, gamma)` returns the target, the drafter and
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
