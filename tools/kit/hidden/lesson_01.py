"""Hidden cases of lesson 01."""

import torch


def scaled(generator, low: float, high: float) -> float:
    """Return a number from `low` to `high`, evenly by its logarithm."""
    return float(low * (high / low) ** torch.rand((), generator=generator, dtype=torch.float64))


def check_pass_seconds(generator):
    """Return data sheets of GPUs that nobody sells, on both sides of the ridge."""
    return [
        [
            (
                int(scaled(generator, 1, 2000)),
                scaled(generator, 1e8, 1e11),
                [0.5, 1, 2][int(torch.randint(3, (), generator=generator))],
                scaled(generator, 1e11, 1e13),
                scaled(generator, 1e13, 1e15),
            )
            for _ in range(30)
        ]
    ]


def check_speedup(generator):
    """Return rounds that gain and rounds that lose."""
    return [
        [
            tuple(scaled(generator, low, high) for low, high in ((1, 8), (0.5, 9), (3, 12), (3, 9)))
            for _ in range(30)
        ]
    ]
