"""Hidden cases of lesson 05."""

from types import SimpleNamespace

import torch

from dspark_lite.course.exercises.lesson_05 import W1, W2


def check_transition_bias(generator):
    """Return matrices of other vocabularies and ranks, and any previous token."""
    cases = []
    for _ in range(20):
        vocab, rank = torch.randint(3, 12, (2,), generator=generator).tolist()
        weights = {name: torch.randn(vocab, rank, generator=generator) for name in (W1, W2)}
        cases.append(
            (SimpleNamespace(w=weights), int(torch.randint(vocab, (), generator=generator)))
        )
    return [cases]
