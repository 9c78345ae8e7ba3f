"""Estimates with bootstrap intervals."""

from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000
COVERAGE = 0.95  # of an interval


@dataclass(frozen=True)
class Estimate:
    """A mean over rounds and its bootstrap interval over prompts; nan where there was nothing to count."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float, plus: float = 0.0) -> "Estimate":
        """The estimate of `factor` times what this one estimates, `plus` a constant."""
        return Estimate(factor * self.value + plus, *sorted(factor * end + plus for end in (self.low, self.high)))


def bootstrap(statistic, groups: list[np.ndarray], resamples: int | None = None) -> Estimate:
    """A statistic of several groups of rows with its percentile interval; a resample redraws the rows of every group.

    A resample without a round (the statistic is nan) says nothing and is left out.
    """
    value = float(statistic(groups))
    return Estimate(value, value, value) if np.isnan(value) else Estimate(value, *map(float, interval_of(statistic, groups, resamples)))


def paired(statistic, *measured_on_the_same: list[np.ndarray]) -> Estimate:
    """A statistic of several measurements with its interval; a resample draws the same prompts for all of them.

    A measurement is a list of arrays [N, ...], one a domain; the statistic takes as many such lists.
    """
    def resampled(chosen):
        return statistic(*([rows[index] for rows, index in zip(groups, chosen)] for groups in measured_on_the_same))

    return bootstrap(resampled, [np.arange(len(rows)) for rows in measured_on_the_same[0]])


def share_estimates(kept: np.ndarray, counted: np.ndarray, prompts: np.ndarray) -> list[Estimate]:
    """The m shares kept / counted of blocks [N, m] from `prompts` [N], with intervals over prompts."""
    places = np.unique(prompts, return_inverse=True)[1]
    sums = np.zeros((places.max() + 1, 2, kept.shape[1]))
    np.add.at(sums, places, np.stack([kept, counted], 1))

    def shares(groups):
        above, below = groups[0].sum(0)
        return np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)

    return [Estimate(*map(float, found)) for found in zip(shares([sums]), *interval_of(shares, [sums]))]


def interval_of(statistic, groups: list[np.ndarray], resamples: int | None = None) -> np.ndarray:
    """The two ends [2, ...] between which COVERAGE of the values of a statistic [...] on resamples lie; nan ones are left out."""
    rng = np.random.default_rng(0)
    draws = [statistic([group[rng.integers(0, len(group), len(group))] for group in groups]) for _ in range(resamples or RESAMPLES)]
    return np.nanquantile(draws, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)
