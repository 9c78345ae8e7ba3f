"""Estimates with bootstrap intervals, and quantities that are resampled together."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add

import numpy as np

RESAMPLES = 2000
COVERAGE = 0.95  # of an interval
BATCH = 100  # resamples that a statistic is given at once
RESULTS, PAPER = "results", "paper"  # sources of a quantity: what we measured, what they did


@dataclass(frozen=True)
class Estimate:
    """A value with its bootstrap interval, over prompts and, where there are several, trainings; nan where nothing was counted."""

    value: float
    low: float
    high: float

    @classmethod
    def exactly(cls, value: float) -> "Estimate":
        """Return a number without an interval."""
        return cls(float(value), float(value), float(value))

    def scaled(self, factor: float, plus: float = 0.0) -> "Estimate":
        """Return the estimate of `factor` times this quantity, `plus` a constant."""
        return Estimate(
            factor * self.value + plus,
            *sorted(factor * end + plus for end in (self.low, self.high)),
        )


class Quantity:
    """A number that we measured and the paper prints. Sums, differences and ratios of quantities are quantities."""

    def __add__(self, other) -> "Quantity":
        return Combined(np.add, (self, other))

    def __sub__(self, other) -> "Quantity":
        return Combined(np.subtract, (self, other))

    def __truediv__(self, other) -> "Quantity":
        return Combined(np.divide, (self, other))

    def estimate(self, source: str = RESULTS) -> Estimate:
        """Return the value with its interval, from RESULTS or PAPER.

        Raise DSparkLiteError if the source has no such number.
        """
        raise NotImplementedError

    def value(self, source: str = RESULTS) -> float:
        """Return the value without its interval."""
        return self.estimate(source).value


class Sampled(Quantity):
    """A quantity whose interval is a bootstrap of rows. Only such quantities add, subtract and divide."""

    def rows(self, source: str) -> dict:
        """Return arrays [N, ...] by name of their rows; the paper has one row.

        Quantities whose arrays have the same name were measured on the same rows.
        """
        raise NotImplementedError

    def values(self, drawn: dict["Sampled", list[np.ndarray]]) -> np.ndarray:
        """Return the values [R] of R resamples, from the arrays [R, N, ...] of each part."""
        raise NotImplementedError

    def parts(self) -> tuple["Sampled", ...]:
        """Return the quantities whose rows are resampled."""
        return (self,)

    def estimate(self, source: str = RESULTS) -> Estimate:
        """Return the value with its interval; a resample draws the same rows for all parts."""
        return bootstrap(*self._statistic(source))

    def value(self, source: str = RESULTS) -> float:
        """Return the value of the rows as they are."""
        statistic, groups = self._statistic(source)
        return float(statistic([group[None] for group in groups])[0])

    def _statistic(self, source: str) -> tuple:
        """Return the function of drawn row numbers that `bootstrap` takes, and the row numbers."""
        arrays = {part: part.rows(source) for part in self.parts()}
        sizes = {name: len(rows) for named in arrays.values() for name, rows in named.items()}

        def statistic(drawn):
            chosen = dict(zip(sizes, drawn))
            return self.values(
                {
                    part: [rows[chosen[name]] for name, rows in named.items()]
                    for part, named in arrays.items()
                }
            )

        return statistic, [np.arange(size) for size in sizes.values()]


@dataclass(frozen=True)
class Combined(Sampled):
    """A NumPy function of quantities and numbers."""

    function: np.ufunc
    operands: tuple

    def parts(self) -> tuple[Sampled, ...]:
        """Return the parts of all operands."""
        return tuple(
            part
            for operand in self.operands
            if isinstance(operand, Sampled)
            for part in operand.parts()
        )

    def values(self, drawn: dict[Sampled, list[np.ndarray]]) -> np.ndarray:
        """Return the function of the operands' values."""
        return self.function(
            *(
                operand.values(drawn) if isinstance(operand, Sampled) else operand
                for operand in self.operands
            )
        )


def mean_of(quantities: Iterable[Quantity]) -> Quantity:
    """Return the mean of quantities."""
    quantities = tuple(quantities)
    return reduce(add, quantities) / len(quantities)


def bootstrap(statistic, groups: list[np.ndarray], resamples: int | None = None) -> Estimate:
    """Return a statistic of groups of rows with its percentile interval; a resample redraws the rows of every group.

    The statistic takes R resamples at once, groups [R, N, ...], and gives one value for each, [R]. A resample without a
    round (its value is nan) is left out. Groups of one row have no interval.
    """
    value = float(statistic([group[None] for group in groups])[0])
    if np.isnan(value) or all(len(group) == 1 for group in groups):
        return Estimate.exactly(value)
    return Estimate(value, *map(float, interval_of(statistic, groups, resamples)))


def paired(statistic, *measured_on_the_same: list[np.ndarray]) -> Estimate:
    """Return a statistic of several measurements with its interval; a resample draws the same prompts for all of them.

    A measurement is a list of arrays [N, ...], one a domain; the statistic takes as many such lists of arrays [R, N, ...].
    """

    def resampled(chosen):
        return statistic(
            *(
                [rows[index] for rows, index in zip(groups, chosen)]
                for groups in measured_on_the_same
            )
        )

    return bootstrap(resampled, [np.arange(len(rows)) for rows in measured_on_the_same[0]])


def share_estimates(kept: np.ndarray, counted: np.ndarray, prompts: np.ndarray) -> list[Estimate]:
    """Return the m shares kept / counted of blocks [N, m] from `prompts` [N], with intervals over prompts."""
    places = np.unique(prompts, return_inverse=True)[1]
    sums = np.zeros((places.max() + 1, 2, kept.shape[1]))
    np.add.at(sums, places, np.stack([kept, counted], 1))

    def shares(groups):
        above, below = np.moveaxis(groups[0].sum(1), 1, 0)
        return share(above, below)

    return [
        Estimate(*map(float, numbers))
        for numbers in zip(shares([sums[None]])[0], *interval_of(shares, [sums]))
    ]


def share(part, whole) -> np.ndarray:
    """Return part / whole, of arrays [...]; nan where the whole is 0."""
    return np.divide(
        part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0
    )[()]


def share_of_rows(rows: np.ndarray) -> np.ndarray:
    """Return the sum of the first column of rows [..., N, 2] over that of the second, [...]; nan where that is 0."""
    return share(rows[..., 0].sum(-1), rows[..., 1].sum(-1))


def interval_of(statistic, groups: list[np.ndarray], resamples: int | None = None) -> np.ndarray:
    """Return the two ends [2, ...] that enclose COVERAGE of a statistic's values [R, ...] on resamples; nan ones are left out."""
    resamples = resamples or RESAMPLES
    rows = drawn_rows(tuple(map(len, groups)), resamples)
    values = [
        statistic([group[drawn[start : start + BATCH]] for group, drawn in zip(groups, rows)])
        for start in range(0, resamples, BATCH)
    ]
    return np.nanquantile(np.concatenate(values), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)


@lru_cache(maxsize=8)  # most statistics are of as many prompts
def drawn_rows(sizes: tuple[int, ...], resamples: int) -> list[np.ndarray]:
    """Return the rows that each resample takes of groups of these sizes, always the same: [resamples, N] for each group."""
    rng = np.random.default_rng(0)
    drawn = [[rng.integers(0, size, size) for size in sizes] for _ in range(resamples)]
    return [np.array(rows) for rows in zip(*drawn)]
