"""Hidden cases of lesson 00."""

import torch

from dspark_lite.decoding import Generation, Round


def number(generator, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def check_speculate(generator):
    """Return other models, starts, lengths and blocks; no length is more than what the watched
    models allow."""
    return [
        [
            (
                number(generator, 100, 10**6),
                [number(generator, 0, 6) for _ in range(number(generator, 2, 4))],
                number(generator, 5, 12),
                number(generator, 1, 5),
            )
            for _ in range(20)
        ]
    ]


def answer(generator, rounds: int) -> Generation:
    """Return an answer of some rounds, the last cut short now and then."""
    made = []
    for _ in range(rounds):
        accepted = number(generator, 0, 7)
        made.append(
            Round(
                7,
                accepted,
                accepted + 1 - number(generator, 0, 1) * (accepted > 0),
                [0] * 7,
                [0] * 8,
            )
        )
    return Generation([0] * (1 + sum(r.committed for r in made)), made)


def check_accepted_length(generator):
    """Return two to five answers."""
    return [
        [
            ([answer(generator, number(generator, 1, 6)) for _ in range(number(generator, 2, 5))],)
            for _ in range(20)
        ]
    ]
