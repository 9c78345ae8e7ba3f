"""Hidden cases of lesson 04."""

import torch

from dspark_lite.course.exercises.lesson_04 import SmallDraft


def distribution(generator, *shape: int) -> torch.Tensor:
    """Return probabilities without a zero that sum to 1 over all places."""
    values = 0.02 + torch.rand(shape, generator=generator)
    return values / values.sum()


def check_kept(generator):
    """Return pairs of two to five first and second words."""
    sizes = torch.randint(2, 6, (20, 2), generator=generator).tolist()
    return [
        [
            (distribution(generator, m, n), distribution(generator, m), distribution(generator, n))
            for m, n in sizes
        ]
    ]


def check_block_pass(generator):
    """Return drafts of other weights, blocks and contexts."""
    numbers = [
        (
            int(torch.randint(2, 6, (), generator=generator)),
            *torch.randint(1, 9, (2,), generator=generator).tolist(),
            int(torch.randint(10**6, (), generator=generator)),
        )
        for _ in range(4)
    ]
    return [[(SmallDraft(gamma, length, seed), anchor) for gamma, length, anchor, seed in numbers]]
