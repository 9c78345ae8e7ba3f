"""Hidden cases of lesson 06."""

import torch

from dspark_lite.course.exercises.lesson_06 import cells, chain_case, loss_case


def seed(generator) -> int:
    """Return a number that a case is drawn from."""
    return int(torch.randint(10**6, (), generator=generator))


def check_pairs(generator):
    """Return texts of two to nine tokens and features of other widths."""
    sizes = torch.randint(2, 10, (20, 2), generator=generator).tolist()
    return [
        [
            (
                torch.randint(100, (length,), generator=generator),
                torch.randn(length, width, generator=generator),
            )
            for length, width in sizes
        ]
    ]


def check_draft_chain(generator):
    """Return caches, waiting pairs and blocks of other lengths."""
    sizes = torch.stack(
        [
            torch.randint(0, 9, (12,), generator=generator),
            torch.randint(1, 9, (12,), generator=generator),
        ],
        1,
    ).tolist()
    return [[chain_case(seed(generator), *size) for size in sizes]]


def check_chain_loss(generator):
    """Return other chains, decays and numbers of passes."""
    return [
        [
            loss_case(
                seed(generator),
                round(0.3 + 0.7 * float(torch.rand((), generator=generator)), 2),
                int(torch.randint(2, 7, (), generator=generator)),
            )
            for _ in range(8)
        ]
    ]


def check_survives(generator):
    """Return the cells after rounds of any cache and block, whole blocks and refused ones among them."""
    cases = []
    for _ in range(20):
        cached, gamma = (
            int(torch.randint(1, 200, (), generator=generator)),
            int(torch.randint(1, 16, (), generator=generator)),
        )
        cases.append(cells(cached, gamma, int(torch.randint(gamma + 1, (), generator=generator))))
    return [cases]
