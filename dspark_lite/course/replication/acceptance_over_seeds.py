"""Conditional acceptance by position in the mean over trainings that differ in their seed.

A resample redraws prompts, the same for all that is compared, and trainings: the interval contains both sources of chance.
"""

from functools import cache

import numpy as np

from dspark_lite.course.estimates import Estimate, bootstrap, share, share_of_rows
from ..measure.evaluation import MIN_ROUNDS
from .experiment_results import counts_by_position


@cache
def acceptances(recipes: tuple[str, ...], domain: str) -> list[Estimate | None]:
    """Return, by position, the share of rounds that accepted it among those that reached it; None where few did."""
    counts = _counts(recipes, domain)
    rows = [np.arange(counts.shape[0]), np.arange(len(recipes))]
    return [
        bootstrap(lambda drawn, k=k: _mean_share(counts[:, :, k], *drawn), rows)
        if counts[:, :, k, 1].sum(0).min() >= MIN_ROUNDS
        else None
        for k in range(counts.shape[2])
    ]


@cache
def lead(ours: tuple[str, ...], theirs: tuple[str, ...], domain: str, position: int) -> Estimate:
    """Return by how much the acceptance of `ours` at a position (from 1) is above that of `theirs`."""
    sides = [_counts(recipes, domain)[:, :, position - 1] for recipes in (ours, theirs)]

    def difference(drawn):
        prompts, *trainings = drawn
        mine, yours = (_mean_share(side, prompts, seeds) for side, seeds in zip(sides, trainings))
        return mine - yours

    rows = [np.arange(len(sides[0])), *(np.arange(side.shape[1]) for side in sides)]
    return bootstrap(difference, rows)


@cache
def rise(recipes: tuple[str, ...], domain: str) -> Estimate:
    """Return how far the acceptance rises from the first position to the last."""
    counts = _counts(recipes, domain)
    rows = [np.arange(counts.shape[0]), np.arange(len(recipes))]
    return bootstrap(
        lambda drawn: _mean_share(counts[:, :, -1], *drawn) - _mean_share(counts[:, :, 0], *drawn),
        rows,
    )


def first_of_those_that_end(recipes: tuple[str, ...], domain: str) -> float:
    """Return the acceptance at the first position where each prompt counts as often as its rounds reach the last one.

    A curve that rose only because the rounds that come far are in easier prompts would begin here.
    """
    counts = _counts(recipes, domain)
    first, reached = share(counts[:, :, 0, 0], counts[:, :, 0, 1]), counts[:, :, -1, 1]  # [N, S]
    return float(((first * reached).sum(0) / reached.sum(0)).mean())


def _counts(recipes: tuple[str, ...], domain: str) -> np.ndarray:
    """Return `counts_by_position` of each recipe, [N, S, gamma, 2]."""
    return np.stack([counts_by_position(recipe, domain) for recipe in recipes], 1)


def _mean_share(counts: np.ndarray, prompts: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """Return the share accepted [R] of counts [N, S, 2] on the drawn prompts [R, N], in the mean over the drawn trainings [R, S]."""
    by_seed = share_of_rows(np.moveaxis(counts[prompts], -2, -3))  # [R, S]
    return np.take_along_axis(by_seed, seeds, -1).mean(-1)
