"""Hidden cases of lesson 14."""

import torch


def check_by_round(generator):
    """Return two to six answers of one to eight rounds."""
    return [
        [
            (
                [
                    torch.randint(
                        8, (int(torch.randint(1, 9, (), generator=generator)),), generator=generator
                    ).tolist()
                    for _ in range(int(torch.randint(2, 7, (), generator=generator)))
                ],
            )
            for _ in range(20)
        ]
    ]


def check_excess(generator):
    """Return distributions of two to six tokens, and how often they are drawn."""
    cases = []
    for _ in range(20):
        size = int(torch.randint(2, 7, (), generator=generator))
        p, wrong = (0.05 + torch.rand(2, size, generator=generator, dtype=torch.float64)).numpy()
        cases.append(
            (
                p / p.sum(),
                wrong / wrong.sum(),
                int(torch.randint(100, 5000, (), generator=generator)),
            )
        )
    return [cases]
