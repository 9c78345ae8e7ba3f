"""The ledger: each claim of the paper that has a number, its value, ours with its interval, and a verdict.

A claim is an inequality: this is longer than that, this falls less than that. Written as margins that must be above
zero, it replicates if the 95 % intervals of all its margins lie above zero, does not hold if one lies below, and else we
cannot tell. Sizes are another matter and stand in a column of their own. A claim that needs what is not here cannot be tested here; one
whose measurement is missing is not measured yet.
"""

import re
from dataclasses import dataclass, field
from functools import cache

from dspark_lite.course import paper
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.formats import interval, markdown, number
from dspark_lite.course.names import DOMAINS, DRAFTER_LABELS
from ..measure.studies import TABLE_1
from . import experiment_results
from .claims import CLAIMS, Claim
from .settings import SETTINGS

REPLICATES, DOES_NOT, UNDECIDED = "replicates", "does not hold", "we cannot tell"
UNTESTABLE, MISSING = "cannot be tested here", "not measured yet"
UNITS = (("percent",), ("share", "rate"), ("tokens",))  # of margins, as the figures group them
SECTIONS = {
    "drafts": ("4.2", "4.3.1", "4.3.2"),
    "confidence": ("4.3.3",),
    "serving": ("5", "abstract", "A"),
}  # figure: how those of its claims begin
NO_EXPERIMENT = "No experiment has tested a reason yet"


@dataclass(frozen=True)
class Entry:
    """A line of the ledger: a claim, the paper's values, ours (none where it was not tested), the verdict and why; the margins
    that it was judged by, and what the paper's own numbers give for them."""

    claim: Claim
    paper: dict[str, float]
    ours: dict[str, Estimate]
    verdict: str
    why: str
    margins: dict[str, Estimate] = field(default_factory=dict)
    paper_margins: dict[str, float] = field(default_factory=dict)

    @property
    def turned_round(self) -> bool:
        """Whether a margin lies below zero with its whole interval: more than that it cannot be told from zero."""
        return any(margin.high < 0 for margin in self.margins.values())


def verdict(margins: dict[str, Estimate]) -> str:
    """REPLICATES if every margin's interval lies above zero, DOES_NOT if one lies below it, else UNDECIDED."""
    if all(margin.low > 0 for margin in margins.values()):
        return REPLICATES
    return DOES_NOT if any(margin.high < 0 for margin in margins.values()) else UNDECIDED


def shortfall(margins: dict[str, Estimate]) -> str:
    """Which margins do not lie above zero, and whether they are below it or not told apart from it."""
    below = [label.strip(":") for label, margin in margins.items() if margin.high < 0]
    undecided = [
        label.strip(":") for label, margin in margins.items() if margin.low <= 0 <= margin.high
    ]
    parts = (("the other way round", below), ("the interval holds zero", undecided))
    return "; ".join(
        words + (f" ({', '.join(labels)})" if any(labels) else "")
        for words, labels in parts
        if labels
    )


def size_beside_paper(theirs: float, ours: Estimate) -> str:
    """How our value lies to the paper's: "same" where its interval holds the paper's."""
    if ours.low <= theirs <= ours.high:
        return "same"
    return "larger" if ours.value > theirs else "smaller"


def judge(claim: Claim) -> Entry:
    """The line of a claim; a measurement that is missing is named."""
    if claim.ours is None:
        return Entry(claim, claim.paper(), {}, UNTESTABLE, f"it would take {claim.needs}")
    try:
        ours = claim.ours()
        margins = claim.margins() if claim.margins else ours
    except DSparkLiteError as error:
        return Entry(claim, claim.paper(), {}, MISSING, str(error))
    theirs = claim.paper_margins() if claim.margins else claim.paper()
    found = verdict(margins)
    if found == REPLICATES:
        return Entry(claim, claim.paper(), ours, found, "", margins, theirs)
    tested = (
        words_or_reason(claim.experiment, "The experiment that tests a reason was not run yet, ")
        if claim.experiment
        else NO_EXPERIMENT
    )
    return Entry(
        claim, claim.paper(), ours, found, f"{shortfall(margins)}. {tested}", margins, theirs
    )


@cache
def entries() -> tuple[Entry, ...]:
    """All lines, in the order of the paper."""
    return tuple(map(judge, CLAIMS))


def ledger_table() -> str:
    """The ledger as a markdown table; in its margin stands where the paper contradicts itself."""
    head = [
        "§",
        "claim",
        "stated by",
        "holds if",
        "paper",
        "here [95 %]",
        "verdict",
        "ours is",
        "why not, and the experiment",
        "margin",
    ]
    return markdown(head, [_cells(entry) for entry in entries()])


def by_units(part: str) -> list[list[Entry]]:
    """The lines of one of SECTIONS as its figure shows them: a group for each of UNITS, in the order of the paper."""
    return [
        [
            entry
            for entry in entries()
            if entry.claim.section.startswith(SECTIONS[part]) and entry.claim.unit in units
        ]
        for units in UNITS
    ]


def in_order() -> list[Entry]:
    """All lines as the figures show them, one after the other."""
    return [entry for part in SECTIONS for group in by_units(part) for entry in group]


def noted() -> dict[str, int]:
    """The number of the note of each claim that is not told by its verdict alone, by what it says, in the order of the figures."""
    return {
        entry.claim.says: number
        for number, entry in enumerate((found for found in in_order() if found.why), 1)
    }


def notes(*numbers: int) -> str:
    """The notes below the ledger's figures, all or those of these numbers: why a claim does not hold here or cannot be tested, and the
    experiments on that, a line each."""
    lines = []
    for entry in in_order():
        if entry.why and (not numbers or noted()[entry.claim.says] in numbers):
            short, *tested = re.split(r"\. (?=[A-Z])", entry.why)
            lines += [
                f"{noted()[entry.claim.says]}. **{entry.claim.says}** (section {entry.claim.section}, stated by {entry.claim.stated_by}): "
                f"{short}.",
                *(f"    - {sentence}." for sentence in tested),
            ]
    return "\n".join(lines)


def contradictions() -> str:
    """Where the paper contradicts itself about a claim, a line each."""
    return "\n".join(
        f"- {paper.discrepancy(words)}"
        for entry in entries()
        for words in entry.claim.discrepancies
    )


def _intervals(estimates: dict[str, Estimate], unit: str) -> list[str]:
    return [f"{label} {interval(found, unit)}".strip() for label, found in estimates.items()]


def _cells(entry: Entry) -> list[str]:
    claim, unit = entry.claim, entry.claim.unit
    theirs = [f"{label} {number(value, unit)}".strip() for label, value in entry.paper.items()]
    ours = _intervals(entry.ours, unit)
    sizes = [
        f"{label} {size_beside_paper(entry.paper[label], found)}".strip()
        for label, found in entry.ours.items()
        if label in entry.paper
    ]
    margin = [f"*{paper.discrepancy(words)}*" for words in claim.discrepancies]
    return [
        claim.section,
        claim.says,
        claim.stated_by,
        claim.sense,
        "<br>".join(theirs),
        "<br>".join(ours),
        f"**{entry.verdict}**",
        "<br>".join(sizes),
        entry.why,
        "<br>".join(margin),
    ]


def table_1_gains() -> str:
    """How much longer DSpark accepts than the drafters of Table 1: ours with intervals, the paper's range."""
    rows = []
    for name, recipe in TABLE_1.items():
        if name == "dspark":
            continue
        found = experiment_results.gains(TABLE_1["dspark"], recipe)
        theirs = "-"
        if name in paper.LABELS:
            gains = [paper.macro_gain(target, "dspark", name) for target in paper.TARGETS]
            theirs = f"{number(min(gains), 'percent')} to {number(max(gains), 'percent')}"
        rows.append(
            [
                DRAFTER_LABELS[name],
                *(
                    interval(found[place], "percent")
                    for place in experiment_results.PLACES.values()
                ),
                theirs,
            ]
        )
    return markdown(["DSpark over", *DOMAINS, "mean", "paper, mean over the benchmarks"], rows)


def settings_table() -> str:
    """The settings, the paper's and ours."""
    rows = [
        [setting.section, setting.name, setting.paper(), words_or_reason(setting.here)]
        for setting in SETTINGS
    ]
    return markdown(["§", "setting", "paper", "here"], rows)


def words_or_reason(find, otherwise: str = "") -> str:
    """`find()`, or, where a measurement is missing, `otherwise` and the sentence that names it."""
    try:
        return find()
    except DSparkLiteError as error:
        return f"{otherwise}{error}"
