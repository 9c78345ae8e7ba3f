"""Quantities of the paper's Table 1 and Figures 2 to 4, measured here and as the paper prints them.

Our numbers are in assets/measurements/experiments, one file per drafter, written by tools/measure/experiments.py; `paper.py` has
the paper's. All drafters answered the same prompts, so a comparison draws the same prompts for both.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from ...common.errors import DSparkLiteError
from ...common.files import ROOT
from .. import paper
from ..estimates import PAPER, RESULTS, Estimate, Quantity, Sampled, share_of_rows
from ..measure import studies
from ..measure.evaluation import MIN_ROUNDS, count_estimates, mean_accepted_length, row_tally
from ..names import DOMAINS, DRAFTER_LABELS
from ..result_files import read

MEASUREMENTS = ROOT / "assets" / "measurements" / "experiments"
# keys of accepted lengths and gains, by their titles
PLACES = {
    **{domain: domain for domain in DOMAINS},
    "mean": "all",
}
TARGET = paper.TARGETS[0]  # of the paper's Figures 2 to 4


@dataclass(frozen=True)
class Draft:
    """A drafter of a study: our trainings of it, which differ in their seed, and the paper's accepted length by domain."""

    runs: tuple[str, ...]
    drafter: str = ""
    paper_lengths: Callable[[], dict[str, float]] | None = None


def of_table_1(name: str, runs: tuple[str, ...] = (), target: str = TARGET) -> Draft:
    """Return a drafter of Table 1, with the paper's lengths on one of its targets where the table has them."""
    lengths = partial(paper.domain_means, target, name) if name in paper.LABELS else None
    return Draft(runs, name, lengths)


TABLE_1 = {name: of_table_1(name, (run,)) for name, run in studies.TABLE_1.items()}  # by drafter
SEEDS = {name: of_table_1(name, runs) for name, runs in studies.SEEDS.items()}  # by drafter
TRAININGS = {name: of_table_1(name, runs) for name, runs in studies.TRAININGS.items()}
DEPTHS = {  # DSpark, by layers here
    layers: Draft((run,), "dspark", partial(paper.by_depth, "dspark", studies.PAPER_DEPTHS[layers]))
    for layers, run in studies.DEPTHS.items()
}
FULL_DEPTH = max(DEPTHS)  # layers
FULL_DFLASH = Draft(
    (studies.TABLE_1["dflash"],),
    "dflash",
    partial(paper.by_depth, "dflash", studies.PAPER_DEPTHS[FULL_DEPTH]),
)


def _lengths_of(drafter: str, length: int) -> dict[str, float]:
    return {domain: paper.by_draft_length(drafter, domain)[length] for domain in DOMAINS}


DRAFT_LENGTHS = {  # by drafter and draft length
    (drafter, length): Draft((run,), drafter, partial(_lengths_of, drafter, length))
    for (drafter, length), run in studies.LENGTH_STUDY.items()
}


@dataclass(frozen=True)
class Length(Sampled):
    """Accepted length in a domain or, as "all", in the mean over domains; over several trainings, their mean.

    A resample redraws prompts, and the trainings where there are several.
    """

    draft: Draft
    place: str

    def domains(self) -> tuple[str, ...]:
        """Return the domains of the place."""
        return DOMAINS if self.place == "all" else (self.place,)

    def rows(self, source: str) -> dict:
        """Return committed tokens and rounds: [N, 2] by domain, or [N, S, 2] and the numbers of the S trainings."""
        if source == PAPER:
            if self.draft.paper_lengths is None:
                raise DSparkLiteError(f"the paper has no accepted length of {self.draft.drafter}")
            lengths = self.draft.paper_lengths()
            return {domain: np.array([[lengths[domain], 1.0]]) for domain in self.domains()}
        runs = self.draft.runs
        tallies = {
            domain: [row_tally(recipe_row(run, domain)) for run in runs]
            for domain in self.domains()
        }
        if len(runs) == 1:
            return {domain: rows for domain, (rows,) in tallies.items()}
        by_domain = {domain: np.stack(rows, 1) for domain, rows in tallies.items()}
        return {**by_domain, runs: np.arange(len(runs))}

    def values(self, drawn: dict) -> np.ndarray:
        """Return the accepted lengths [R]."""
        count = len(self.domains())
        groups, trainings = drawn[self][:count], drawn[self][count:]
        if not trainings:
            return mean_accepted_length(groups)
        by_seed = mean_accepted_length([np.moveaxis(group, -2, -3) for group in groups])  # [R, S]
        return np.take_along_axis(by_seed, trainings[0], -1).mean(-1)


@dataclass(frozen=True)
class Acceptance(Sampled):
    """Conditional acceptance in a domain at a draft position (from 1): of the rounds that reached it, the share that accepted it.

    Over several trainings it is their mean; a resample redraws prompts, and the trainings. Figure 2 has it for the drafters of
    Table 1.
    """

    draft: Draft
    domain: str
    position: int

    def rows(self, source: str) -> dict:
        """Return accepted and reached drafts: [N, S, 2] in the domain, and the numbers of the S trainings if there are several.

        Raise DSparkLiteError if fewer than MIN_ROUNDS rounds of a training reached the position.
        """
        if source == PAPER:
            rates = paper.conditional_acceptance(self.draft.drafter, self.domain)
            return {self.domain: np.array([[[rates[self.position - 1], 1.0]]])}
        runs = self.draft.runs
        counts = [counts_by_position(run, self.domain)[:, self.position - 1] for run in runs]
        if min(reached.sum() for _, reached in map(np.transpose, counts)) < MIN_ROUNDS:
            label = DRAFTER_LABELS.get(self.draft.drafter, runs[0])
            raise DSparkLiteError(
                f"hardly a round of {label} came to position {self.position} on {self.domain}; "
                "measure more prompts"
            )
        trainings = {runs: np.arange(len(runs))} if len(runs) > 1 else {}
        return {self.domain: np.stack(counts, 1), **trainings}

    def values(self, drawn: dict) -> np.ndarray:
        """Return the shares [R]."""
        counts, *trainings = drawn[self]
        by_seed = share_of_rows(np.moveaxis(counts, -2, -3))  # [R, S]
        if trainings:
            by_seed = np.take_along_axis(by_seed, trainings[0], -1)
        return by_seed.mean(-1)


@dataclass(frozen=True)
class RoundTime(Sampled):
    """Time of a full round at a draft length: milliseconds here, multiples of DFlash's in the paper.

    It is the median turn, the mean over contexts or that at one `context`. All drafters took the same turns.
    """

    drafter: str
    length: int
    context: int | None = None

    def rows(self, source: str) -> dict:
        """Return the times [turns, contexts]."""
        if source == PAPER:
            longer = 0.0 if self.drafter == "dflash" else paper.overhead(self.drafter)[self.length]
            return {"turns": np.array([[1 + longer]])}
        latency = measured(studies.LATENCY)
        times = round_times(latency, self.drafter, self.length)
        if self.context is not None:
            times = times[:, [contexts(latency).index(self.context)]]
        return {"turns": times}

    def values(self, drawn: dict) -> np.ndarray:
        """Return the times [R]."""
        (times,) = drawn[self]
        return full_round(times)


def drafts_of(*quantities: Quantity) -> list[Draft]:
    """Return the drafts that quantities compare, each once, in the order in which they stand."""
    parts = [part for each in quantities if isinstance(each, Sampled) for part in each.parts()]
    return list(
        dict.fromkeys(part.draft for part in parts if isinstance(part, Length | Acceptance))
    )


def gain(draft: Draft, rival: Draft, place: str) -> Quantity:
    """Return how much longer one draft is accepted than another, as a fraction."""
    return Length(draft, place) / Length(rival, place) - 1


def longer_round(drafter: str, length: int, context: int | None = None) -> Quantity:
    """Return how much longer a full round takes than DFlash's, as a fraction."""
    time, dflash = (RoundTime(name, length, context) for name in (drafter, "dflash"))
    return time / dflash - 1


def measured(name: str) -> dict:
    """Return what tools/measure/experiments.py wrote of a run, or of LATENCY. Raise DSparkLiteError where it is missing."""
    return read(MEASUREMENTS / f"{name}.json", "make experiments")


def recipe_row(recipe: str, domain: str) -> dict:
    """Return the row of a domain: accepted length with its interval, conditional acceptance, and each prompt's counts."""
    return next(row for row in measured(recipe)["rows"] if row["domain"] == domain)


def tallies(recipe: str) -> list[np.ndarray]:
    """Return committed tokens and rounds of each prompt, [N, 2], one array a domain."""
    return [row_tally(recipe_row(recipe, domain)) for domain in DOMAINS]


def counts_by_position(recipe: str, domain: str) -> np.ndarray:
    """Return how many rounds of each prompt accepted the draft at a position, and how many reached it: [N, gamma, 2]."""
    return np.array(recipe_row(recipe, domain)["position_counts"], dtype=float)


@cache
def accepted_lengths(recipe: str) -> dict[str, Estimate]:
    """Return the accepted length of each domain and, as "all", its macro-average."""
    keys = ("accepted_length", "low", "high")
    by_domain = {
        domain: Estimate(*(recipe_row(recipe, domain)[key] for key in keys)) for domain in DOMAINS
    }
    return {**by_domain, "all": Length(Draft((recipe,)), "all").estimate()}


@cache
def gains(ours: str, theirs: str) -> dict[str, Estimate]:
    """Return how much longer recipe `ours` accepts than `theirs`, as a fraction, for each domain and, as "all", the
    macro-average."""
    return gains_over_seeds((ours,), (theirs,))


def lengths_over_seeds(recipes: tuple[str, ...]) -> dict[str, Estimate]:
    """Return `accepted_lengths` in the mean over recipes that differ in their seed."""
    return {place: Length(Draft(recipes), place).estimate() for place in PLACES.values()}


@cache
def gains_over_seeds(ours: tuple[str, ...], theirs: tuple[str, ...]) -> dict[str, Estimate]:
    """Return `gains` of the means over recipes that differ in their seed."""
    return {place: gain(Draft(ours), Draft(theirs), place).estimate() for place in PLACES.values()}


@cache
def conditional_acceptance(recipe: str, domain: str) -> list[Estimate | None]:
    """Return, by position, the share of rounds that accepted it among those that reached it; None where few did."""
    return count_estimates(counts_by_position(recipe, domain))


def acceptance_by_position(
    draft: Draft, domain: str, source: str = RESULTS
) -> list[Estimate | None]:
    """Return, by position, the share of rounds that accepted it among those that reached it, measured or as Figure 2 shows it;
    None where few rounds of a training reached it."""
    if source == PAPER:
        rates = paper.conditional_acceptance(draft.drafter, domain)
        return list(map(Estimate.exactly, rates))
    counts = np.stack([counts_by_position(run, domain) for run in draft.runs])
    enough = counts[..., 1].sum(1).min(0) >= MIN_ROUNDS
    return [
        Acceptance(draft, domain, position).estimate() if reached else None
        for position, reached in enumerate(enough, 1)
    ]


def contexts(latency: dict) -> list[int]:
    """Return the contexts of a latency measurement, in tokens."""
    return sorted({row["context"] for row in latency["rows"]})


def round_times(latency: dict, drafter: str, length: int) -> np.ndarray:
    """Return milliseconds of a full round, target and drafter, by turn and context: [turns, contexts]."""

    def part(name):
        return [
            row["milliseconds"]
            for row in latency["rows"]
            if (row["part"], row["length"]) == (name, length)
        ]

    return np.add(part("target"), part(drafter)).T


def full_round(times: np.ndarray) -> np.ndarray:
    """Return milliseconds [...] of a full round from those by turn and context [..., turns, contexts]: the median turn, the
    mean over contexts."""
    return np.median(times, -2).mean(-1)
