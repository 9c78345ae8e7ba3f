"""Our measurements in the shape of the paper's table and figures: assets/measurements/experiments, one file per drafter.

`common/paper.py` has the paper's numbers; here are ours, with intervals over prompts. scripts/experiments.py measures them.
All drafters answered the same prompts, so whatever compares them draws the same prompts for both.
"""

from functools import cache

import numpy as np

from dspark_lite.common.estimates import Estimate, bootstrap, paired
from dspark_lite.common.files import ROOT
from dspark_lite.common.names import DOMAINS
from dspark_lite.common.recorded import read
from ..measure.evaluation import count_estimates, mean_accepted_length, relative_gain, row_tally

MEASUREMENTS = ROOT / "assets" / "measurements" / "experiments"
PLACES = {**{domain: domain for domain in DOMAINS}, "mean": "all"}  # keys of accepted lengths and gains, by their titles


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


def round_times(measured: dict, drafter: str, length: int) -> np.ndarray:
    """Milliseconds of a full round, target and drafter, by turn and context: [turns, contexts]."""
    def part(name):
        return [row["milliseconds"] for row in measured["rows"] if (row["part"], row["length"]) == (name, length)]

    return np.add(part("target"), part(drafter)).T


def full_round(times: np.ndarray) -> np.ndarray:
    """Milliseconds [...] of a full round from those by turn and context [..., turns, contexts]: the median turn, the mean
    over contexts."""
    return np.median(times, -2).mean(-1)


def overhead(measured: dict, drafter: str, length: int) -> Estimate:
    """How much longer a full round of `drafter` takes than DFlash's, as a fraction.

    All took the same turns, so a resample draws the same turns for both.
    """
    both = ([round_times(measured, name, length)] for name in (drafter, "dflash"))
    return paired(lambda ours, theirs: full_round(ours[0]) / full_round(theirs[0]) - 1, *both)
