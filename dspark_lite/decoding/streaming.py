"""Tokens as they are committed: `generate` for those who want to watch."""

from collections.abc import Iterator

import torch

from .policy import started
from .protocols import Policy
from .rounds import begin_together, step_together


def stream(target, drafter, input_ids: torch.Tensor, *, policy: Policy | None = None, **options) -> Iterator[list[int]]:
    """Yields the tokens of `generate`, those of a round together, as soon as they are committed; options as there.

    The first list holds the token that comes from the prompt's own pass. What is wrong with a request is raised when the
    first list is asked for.
    """
    (request,), policy = begin_together(target, drafter, [input_ids], **options), started(policy)
    yield list(request.answer.token_ids)
    while not request.finished:
        step_together([request], policy)
        yield request.answer.rounds[-1].tokens
