"""The cases that a checker asks about: chosen ones, then random ones, the same every time."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

import torch

# An answer that is wrong in one case of a hundred passes them all with a chance below one per cent
RANDOM_CASES = 500
SEED = 55


class Cases(Sequence):
    """The `chosen` cases, then `count` random ones, each made by `draw(generator)` when the first
    of them is asked for."""

    def __init__(
        self,
        chosen: list[tuple],
        draw: Callable[[torch.Generator], tuple],
        count: int = RANDOM_CASES,
    ):
        self.chosen, self.draw, self.count = chosen, draw, count

    @cached_property
    def drawn(self) -> list[tuple]:
        """Draw the random cases."""
        return drawn(self.draw, self.count, SEED)

    def __len__(self) -> int:
        return len(self.chosen) + self.count

    def __getitem__(self, at):
        return [*self][at]

    def __iter__(self) -> Iterator[tuple]:
        yield from self.chosen
        yield from self.drawn


def drawn(draw: Callable[[torch.Generator], tuple], count: int, seed: int) -> list[tuple]:
    """Return the first `count` cases that `draw` makes from a seed."""
    generator = torch.Generator().manual_seed(seed)
    return [draw(generator) for _ in range(count)]


def number(generator: torch.Generator, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`, both included."""
    return int(torch.randint(low, high + 1, (), generator=generator))


def numbers(generator: torch.Generator, count: int, low: int, high: int) -> list[int]:
    """Return a list of `count` whole numbers from `low` to `high`, both included."""
    return torch.randint(low, high + 1, (count,), generator=generator).tolist()


def between(generator: torch.Generator, low: float, high: float) -> float:
    """Return a number between `low` and `high`, evenly by its logarithm."""
    share = torch.rand((), generator=generator, dtype=torch.float64).item()
    return float(low * (high / low) ** share)


def distributions(generator: torch.Generator, *shape: int) -> torch.Tensor:
    """Draw float32 distributions [..., V] in which no token is impossible."""
    values = 0.05 + torch.rand(shape, generator=generator)
    return values / values.sum(-1, keepdim=True)
