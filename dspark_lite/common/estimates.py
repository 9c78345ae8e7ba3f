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


def bootstrap(statistic, groups: list[np.ndarray], seed: int = 0, resamples: int | None = None) -> Estimate:
    """A statistic of several groups of rows with its percentile interval; a resample redraws the rows of every group.

    A resample without a round (the statistic is nan) says nothing and is left out.
    """
    value = float(statistic(groups))
    if np.isnan(value):
        return Estimate(value, value, value)
    rng = np.random.default_rng(seed)
    draws = [statistic([group[rng.integers(0, len(group), len(group))] for group in groups]) for _ in range(resamples or RESAMPLES)]
    return Estimate(value, *map(float, percentiles(draws)))


def share_intervals(kept: np.ndarray, counted: np.ndarray, prompts: np.ndarray) -> np.ndarray:
    """Bootstrap interval over prompts, [2, m], of the shares kept / counted of blocks [N, m] from `prompts` [N]."""
    places = np.unique(prompts, return_inverse=True)[1]
    sums = np.zeros((2, places.max() + 1, kept.shape[1]))
    for total, values in zip(sums, (kept, counted)):
        np.add.at(total, places, values)
    redrawn = np.random.default_rng(0).multinomial(len(sums[0]), np.full(len(sums[0]), 1 / len(sums[0])), RESAMPLES)
    above, below = redrawn @ sums[0], redrawn @ sums[1]  # [RESAMPLES, m]
    shares = np.divide(above, below, out=np.full_like(above, np.nan), where=below > 0)
    return percentiles(shares)


def percentiles(draws) -> np.ndarray:
    """The two ends [2, ...] between which COVERAGE of the draws [resamples, ...] lie; nan ones are left out."""
    return np.nanquantile(draws, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2], axis=0)
