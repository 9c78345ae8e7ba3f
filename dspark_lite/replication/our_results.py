"""Our measurements in the shape of the paper's table and figures: assets/measurements/experiments, one file per drafter.

`common/paper.py` has the paper's numbers; here are ours, with intervals over prompts. scripts/experiments.py measures them.
All drafters answered the same prompts, so whatever compares them draws the same prompts for both: `paired`.
"""

from functools import cache

import numpy as np

from ..common.estimates import Estimate, bootstrap
from ..common.files import ROOT
from ..common.names import DOMAINS
from ..common.recorded import read
from ..measure.evaluation import count_estimates, mean_accepted_length, relative_gain, row_tally

MEASUREMENTS = ROOT / "assets" / "measurements" / "experiments"


def measured(name: str) -> dict:
    """What scripts/experiments.py wrote of a recipe, or of LATENCY; raises DSparkLiteError where it is missing."""
    return read(MEASUREMENTS / f"{name}.json", "make experiments")


def recipe_row(recipe: str, domain: str) -> dict:
    """The row of a domain: accepted length with its interval, conditional acceptance, and each prompt's counts."""
    return next(found for found in measured(recipe)["rows"] if found["domain"] == domain)


def tallies(recipe: str) -> list[np.ndarray]:
    """Committed tokens and rounds of each prompt, [N, 2], one array a domain."""
    return [row_tally(recipe_row(recipe, domain)) for domain in DOMAINS]


def counts_by_position(recipe: str, domain: str) -> np.ndarray:
    """How many rounds of each prompt accepted the draft at a position, and how many reached it: [N, gamma, 2]."""
    return np.array(recipe_row(recipe, domain)["position_counts"], dtype=float)


@cache
def accepted_lengths(recipe: str) -> dict[str, Estimate]:
    """Accepted length of each domain and, as "all", its macro-average."""
    keys = ("accepted_length", "low", "high")
    by_domain = {domain: Estimate(*(recipe_row(recipe, domain)[key] for key in keys)) for domain in DOMAINS}
    return {**by_domain, "all": bootstrap(mean_accepted_length, tallies(recipe))}


@cache
def gains(ours: str, theirs: str) -> dict[str, Estimate]:
    """How much longer recipe `ours` accepts than `theirs`, as a fraction, for each domain and, as "all", the
    macro-average."""
    pairs = list(zip(tallies(ours), tallies(theirs)))
    by_domain = {domain: relative_gain([a], [b]) for domain, (a, b) in zip(DOMAINS, pairs)}
    return {**by_domain, "all": relative_gain(*map(list, zip(*pairs)))}


@cache
def conditional_acceptance(recipe: str, domain: str) -> list[Estimate | None]:
    """Of the rounds that reached a position, the share that accepted it, with its interval; None where few did."""
    return count_estimates(counts_by_position(recipe, domain))


def paired(statistic, *measured_on_the_same: list[np.ndarray]) -> Estimate:
    """A statistic of several measurements with its interval; a resample draws the same prompts for all of them.

    A measurement is a list of arrays [N, ...], one a domain; the statistic takes as many such lists.
    """
    def resampled(chosen):
        return statistic(*([rows[index] for rows, index in zip(groups, chosen)] for groups in measured_on_the_same))

    return bootstrap(resampled, [np.arange(len(rows)) for rows in measured_on_the_same[0]])
