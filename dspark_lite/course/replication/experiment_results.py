"""Our measurements in the shape of the paper's table and figures: assets/measurements/experiments, one file per drafter.

`paper.py` has the paper's numbers; here are ours, with intervals over prompts. tools/measure/experiments.py measures them.
All drafters answered the same prompts, so whatever compares them draws the same prompts for both.
"""

from functools import cache

import numpy as np

from dspark_lite.course.estimates import Estimate, bootstrap, paired
from dspark_lite.common.files import ROOT
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.result_files import read
from ..measure.evaluation import count_estimates, mean_accepted_length, relative_gain, row_tally

MEASUREMENTS = ROOT / "assets" / "measurements" / "experiments"
PLACES = {
    **{domain: domain for domain in DOMAINS},
    "mean": "all",
}  # keys of accepted lengths and gains, by their titles


def measured(name: str) -> dict:
    """What tools/measure/experiments.py wrote of a recipe, or of LATENCY; raises DSparkLiteError where it is missing."""
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
    by_domain = {
        domain: Estimate(*(recipe_row(recipe, domain)[key] for key in keys)) for domain in DOMAINS
    }
    return {**by_domain, "all": bootstrap(mean_accepted_length, tallies(recipe))}


@cache
def gains(ours: str, theirs: str) -> dict[str, Estimate]:
    """How much longer recipe `ours` accepts than `theirs`, as a fraction, for each domain and, as "all", the
    macro-average."""
    return _by_place(relative_gain, tallies(ours), tallies(theirs))


def lengths_over_seeds(recipes: tuple[str, ...]) -> dict[str, Estimate]:
    """`accepted_lengths` in the mean over recipes that differ in their seed; a resample redraws prompts and trainings."""

    def of(groups):
        def mean_length(drawn):
            return _mean_over_seeds(
                [rows[chosen] for rows, chosen in zip(groups, drawn)], drawn[-1]
            )

        return bootstrap(
            mean_length, [*(np.arange(len(rows)) for rows in groups), np.arange(len(recipes))]
        )

    return _by_place(of, _tallies_by_seed(recipes))


@cache
def gains_over_seeds(ours: tuple[str, ...], theirs: tuple[str, ...]) -> dict[str, Estimate]:
    """`gains` of the means over recipes that differ in their seed; a resample redraws prompts, the same for both, and the
    trainings of each."""

    def of(*sides):
        def gain(drawn):
            mine, yours = (
                _mean_over_seeds([rows[chosen] for rows, chosen in zip(side, drawn)], seeds)
                for side, seeds in zip(sides, drawn[-2:])
            )
            return mine / yours - 1

        prompts, trainings = (
            [np.arange(len(rows)) for rows in sides[0]],
            [np.arange(side[0].shape[1]) for side in sides],
        )
        return bootstrap(gain, [*prompts, *trainings])

    return _by_place(of, _tallies_by_seed(ours), _tallies_by_seed(theirs))


def _tallies_by_seed(recipes: tuple[str, ...]) -> list[np.ndarray]:
    """Committed tokens and rounds of each prompt by recipe, [N, S, 2], one array a domain."""
    return [np.stack(rows, 1) for rows in zip(*map(tallies, recipes))]


def _mean_over_seeds(groups: list[np.ndarray], drawn: np.ndarray) -> np.ndarray:
    """Macro-averaged accepted length [R] of prompts [R, N, S, 2], in the mean over the drawn recipes [R, S]."""
    by_seed = mean_accepted_length([np.moveaxis(group, -2, -3) for group in groups])
    return np.take_along_axis(by_seed, drawn, -1).mean(-1)


def _by_place(estimate, *sides: list[np.ndarray]) -> dict[str, Estimate]:
    """An estimate of each domain's arrays, and, as "all", of those of all domains."""
    alone = {domain: estimate(*([rows] for rows in pair)) for domain, *pair in zip(DOMAINS, *sides)}
    return {**alone, "all": estimate(*sides)}


@cache
def conditional_acceptance(recipe: str, domain: str) -> list[Estimate | None]:
    """Of the rounds that reached a position, the share that accepted it, with its interval; None where few did."""
    return count_estimates(counts_by_position(recipe, domain))


def round_times(measured: dict, drafter: str, length: int) -> np.ndarray:
    """Milliseconds of a full round, target and drafter, by turn and context: [turns, contexts]."""

    def part(name):
        return [
            row["milliseconds"]
            for row in measured["rows"]
            if (row["part"], row["length"]) == (name, length)
        ]

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
