"""Hidden cases of lesson 07."""

import torch

from dspark_lite.course.exercises.lesson_07 import COUNTED, KEYS, SLOTS


def distributions(generator, *shape: int) -> torch.Tensor:
    """Return probabilities [..., V]; some tokens have none."""
    values = (
        torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) > 0.2)
        + 1e-3 * torch.eye(shape[-1])[0]
    )
    return values / values.sum(-1, keepdim=True)


def check_acceptance(generator):
    """Return two slots of three tokens each, some of them impossible."""
    return [
        [(distributions(generator, 2, 1, 3), distributions(generator, 2, 1, 3)) for _ in range(20)]
    ]


def check_sees(generator):
    """Return three blocks of two slots behind other anchors of the same five tokens."""
    return [
        [
            (torch.randperm(5, generator=generator)[:3].sort().values, 5, 2, SLOTS, KEYS)
            for _ in range(12)
        ]
    ]


def check_dspark_loss(generator):
    """Return other logits, tokens and factors; the same slots count."""
    cases = []
    for _ in range(6):
        factors = dict(
            zip(("cross_entropy", "l1", "confidence"), torch.rand(3, generator=generator).tolist())
        )
        logits = [torch.randn(3, 7, 5, generator=generator) for _ in range(2)]
        cases.append(
            (
                *logits,
                torch.randint(5, (3, 7), generator=generator),
                COUNTED,
                torch.randn(3, 7, generator=generator),
                factors,
            )
        )
    return [cases]
