"""Conditional acceptance by position in the mean over trainings that differ in their seed.

A resample redraws prompts, the same for all that is compared, and trainings: the interval contains both sources of chance.
"""

from functools import cache

import numpy as np

from ..estimates import Estimate
from . import experiment_results
from .experiment_results import Acceptance, Draft
from .quantities import FIRST


@cache
def acceptances(recipes: tuple[str, ...], domain: str) -> list[Estimate | None]:
    """Return, by position, the share of rounds that accepted it among those that reached it; None where few did."""
    return experiment_results.acceptance_by_position(Draft(recipes), domain)


@cache
def lead(ours: tuple[str, ...], theirs: tuple[str, ...], domain: str, position: int) -> Estimate:
    """Return by how much the acceptance of `ours` at a position (from 1) is above that of `theirs`."""
    mine, other = (Acceptance(Draft(runs), domain, position) for runs in (ours, theirs))
    return (mine - other).estimate()


@cache
def rise(recipes: tuple[str, ...], domain: str) -> Estimate:
    """Return how far the acceptance rises from the first position to the last."""
    draft, last = Draft(recipes), _counts(recipes, domain).shape[2]
    return (Acceptance(draft, domain, last) - Acceptance(draft, domain, FIRST)).estimate()


def _counts(recipes: tuple[str, ...], domain: str) -> np.ndarray:
    """Return `counts_by_position` of each recipe, [N, S, gamma, 2]."""
    return np.stack(
        [experiment_results.counts_by_position(recipe, domain) for recipe in recipes], 1
    )
