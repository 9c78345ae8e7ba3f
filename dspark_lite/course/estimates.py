"""Estimates with bootstrap intervals."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

RESAMPLES = 2000
COVERAGE = 0.95  # of an interval
BATCH = 100  # resamples that a statistic is given at once


@dataclass(frozen=True)
class Estimate:
    """A mean over rounds and its bootstrap interval over prompts; nan where there was nothing to count."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float, plus: float = 0.0) -> "Estimate":
        """The estimate of `factor` times what this one estimates, `plus` a constant."""
        return Estimate(
            factor * self.value + plus,
            *sorted(factor * end + plus for end in (self.low, self.high)),
        )


def bootstrap(statistic, groups: list[np.ndarray], resamples: int | None = None) -> Estimate:
    """A statistic of several groups of rows with its percentile interval; a resample redraws the rows of every group.

    The statistic takes R resamples at once, groups [R, N, ...], and gives one value for each, [R]. A resample without a
    round (the value is nan) says nothing and is left out.
    """
    value = float(statistic([group[None] for group in groups])[0])
    return (
        Estimate(value, value, value)
        if np.isnan(value)
        else Estimate(value, *map(float, interval_of(statistic, groups, resamples)))
    )


def paired(statistic, *measured_on_the_same: list[np.ndarray]) -> Estimate:
    """A statistic of several measurements with its interval; a resample draws the same prompts for all of them.

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
    """The m shares kept / counted of blocks [N, m] from `prompts` [N], with intervals over prompts."""
    places = np.unique(prompts, return_inverse=True)[1]
    sums = np.zeros((places.max() + 1, 2, kept.shape[1]))
    np.add.at(sums, places, np.stack([kept, counted], 1))

    def shares(groups):
        above, below = np.moveaxis(groups[0].sum(1), 1, 0)
        return share(above, below)

    return [
        Estimate(*map(float, found))
        for found in zip(shares([sums[None]])[0], *interval_of(shares, [sums]))
    ]


def share(part, whole) -> np.ndarray:
    """part / whole, of arrays [...]; nan where the whole is 0."""
    return np.divide(
        part, whole, out=np.full(np.shape(whole), np.nan), where=np.asarray(whole) > 0
    )[()]


def share_of_rows(rows: np.ndarray) -> np.ndarray:
    """The sum of the first column of rows [..., N, 2] over that of the second, [...]; nan where that is 0."""
    return share(rows[..., 0].sum(-1), rows[..., 1].sum(-1))


def interval_of(statistic, groups: list[np.ndarray], resamples: int | None = None) -> np.ndarray:
    """The two ends [2, ...] between which COVERAGE of the values [R, ...] of a statistic on resamples lie; nan ones are left out."""
    resamples = resamples or RESAMPLES
    rows = drawn_rows(tuple(map(len, groups)), resamples)
    values = [
        statistic([group[drawn[start : start + BATCH]] for group, drawn in zip(groups, rows)])
        for start in range(0, resamples, BATCH)
    ]
    return np.nanquantile(np.concatenate(values), [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)


@lru_cache(maxsize=8)  # most statistics are of as many prompts
def drawn_rows(sizes: tuple[int, ...], resamples: int) -> list[np.ndarray]:
    """Which rows each resample takes of groups of these sizes, always the same: an array [resamples, N] for each group."""
    rng = np.random.default_rng(0)
    drawn = [[rng.integers(0, size, size) for size in sizes] for _ in range(resamples)]
    return [np.array(rows) for rows in zip(*drawn)]
