"""The ledger: each claim of the paper that has a number, its value, ours with its interval, and a verdict.

A claim is an inequality: this is longer than that, this falls less than that. Written as margins that must be above
zero, it replicates if the 95 % intervals of all its margins lie above zero, does not hold if one lies below, and else we
cannot tell. Sizes are another matter and stand in a column of their own. A claim that needs what is not here cannot be tested here; one
whose measurement is missing is not measured yet.
"""

import re
from dataclasses import dataclass, field
from functools import cache

from ...common.errors import DSparkLiteError
from .. import paper
from ..estimates import PAPER, Estimate, Quantity
from ..formats import interval, markdown, number
from ..measure.studies import TRAININGS
from ..names import DOMAINS, DRAFTER_LABELS
from . import experiment_results
from .claims import AS_PAPER, BELOW_PAPER, CLAIMS, Claim
from .quantities import EXACT
from .settings import SETTINGS

REPLICATES, DOES_NOT, UNDECIDED = "replicates", "does not hold", "we cannot tell"
UNTESTABLE, MISSING = "cannot be tested here", "not measured yet"
UNITS = (("percent",), ("share", "rate"), ("tokens",))  # of margins, as the figures group them
# figure: how those of its claims begin
SECTIONS = {
    "drafts": ("4.2", "4.3.1", "4.3.2"),
    "confidence": ("4.3.3",),
    "serving": ("5", "abstract", "A"),
}
NO_EXPERIMENT = "No experiment has tested a reason yet"


@dataclass(frozen=True)
class Entry:
    """A line of the ledger: a claim, the paper's numbers, our results (none where it was not tested), the verdict and why; its margins,
    and the paper's own."""

    claim: Claim
    paper: dict[str, float]
    results: dict[str, Estimate]
    verdict: str
    why: str
    margins: dict[str, Estimate] = field(default_factory=dict)
    paper_margins: dict[str, float] = field(default_factory=dict)


def verdict(margins: dict[str, Estimate]) -> str:
    """Return REPLICATES if every margin's interval lies above zero, DOES_NOT if one lies below it, else UNDECIDED."""
    if all(margin.low > 0 for margin in margins.values()):
        return REPLICATES
    return DOES_NOT if any(margin.high < 0 for margin in margins.values()) else UNDECIDED


def shortfall(margins: dict[str, Estimate]) -> str:
    """Return which margins do not lie above zero, and whether their intervals lie below it or hold it."""
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


def size_beside_paper(theirs: float, result: Estimate) -> str:
    """Return how our value lies to the paper's: "same" where its interval holds the paper's."""
    if result.low <= theirs <= result.high:
        return "same"
    return "larger" if result.value > theirs else "smaller"


def evaluate(claim: Claim) -> Entry:
    """Return the line of a claim; a measurement that is missing is named."""
    theirs = claim.paper()
    if claim.needs:
        return Entry(claim, theirs, {}, UNTESTABLE, f"it would take {claim.needs}")
    try:
        results = _estimates(claim.results)
        margins = _margins(claim, results, theirs)
    except DSparkLiteError as error:
        return Entry(claim, theirs, {}, MISSING, str(error))
    judged = verdict(margins)
    why = "" if judged == REPLICATES else f"{shortfall(margins)}. {_tested(claim)}"
    return Entry(claim, theirs, results, judged, why, margins, _paper_margins(claim, theirs))


def _estimates(quantities: dict[str, Quantity]) -> dict[str, Estimate]:
    return {label: quantity.estimate() for label, quantity in quantities.items()}


def _margins(
    claim: Claim, results: dict[str, Estimate], theirs: dict[str, float]
) -> dict[str, Estimate]:
    """Return what must be above zero for the claim's relation to hold."""
    if claim.relation == BELOW_PAPER:
        return {label: estimate.scaled(-1, theirs[label]) for label, estimate in results.items()}
    if claim.relation == AS_PAPER:
        return {
            label: Estimate.exactly(EXACT - abs(estimate.value - theirs[label]))
            for label, estimate in results.items()
        }
    return _estimates(claim.margins) if claim.margins else results


def _paper_margins(claim: Claim, theirs: dict[str, float]) -> dict[str, float]:
    """Return the margins of the paper's own numbers; none where a claim compares with these numbers."""
    if claim.relation in (BELOW_PAPER, AS_PAPER):
        return {}
    margins = claim.margins.items()
    return {label: margin.value(PAPER) for label, margin in margins} or theirs


def _tested(claim: Claim) -> str:
    """Return the experiments on why a claim fails, as sentences."""
    if not claim.experiments:
        return NO_EXPERIMENT
    return words_or_reason(
        lambda: ". ".join(experiment.words() for experiment in claim.experiments),
        "The experiment that tests a reason was not run yet, ",
    )


@cache
def entries() -> tuple[Entry, ...]:
    """Return all lines, in the order of the paper."""
    return tuple(map(evaluate, CLAIMS))


def ledger_table() -> str:
    """Return the ledger as a markdown table; its last column says where the paper contradicts itself."""
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
    """Return the lines of one of SECTIONS as its figure shows them: a group for each of UNITS, in the order of the paper."""
    return [
        [
            entry
            for entry in entries()
            if entry.claim.section.startswith(SECTIONS[part]) and entry.claim.unit in units
        ]
        for units in UNITS
    ]


def in_order() -> list[Entry]:
    """Return all lines in the order of the figures."""
    return [entry for part in SECTIONS for group in by_units(part) for entry in group]


def note_numbers() -> dict[str, int]:
    """Return the number of each claim's note, by what the claim says; a claim that replicates has none."""
    return {
        entry.claim.says: number
        for number, entry in enumerate((judged for judged in in_order() if judged.why), 1)
    }


def notes(*numbers: int) -> str:
    """Return the notes below the ledger's figures, all or those of these numbers: why a claim does not hold here or cannot be tested,
    and the experiments on that, a line each."""
    lines = []
    for entry in in_order():
        if entry.why and (not numbers or note_numbers()[entry.claim.says] in numbers):
            short, *tested = re.split(r"\. (?=[A-Z])", entry.why)
            lines += [
                f"{note_numbers()[entry.claim.says]}. **{entry.claim.sentence}** (section {entry.claim.section}, stated by {entry.claim.stated_by}): "
                f"{short}.",
                *(f"    - {sentence}." for sentence in tested),
            ]
    return "\n".join(lines)


def contradictions() -> str:
    """Return where the paper contradicts itself about a claim, a line each."""
    return "\n".join(
        f"- {paper.discrepancy(words)}"
        for entry in entries()
        for words in entry.claim.discrepancies
    )


def _intervals(estimates: dict[str, Estimate], unit: str) -> list[str]:
    return [f"{label} {interval(estimate, unit)}".strip() for label, estimate in estimates.items()]


def _cells(entry: Entry) -> list[str]:
    claim, unit = entry.claim, entry.claim.unit
    theirs = [f"{label} {number(value, unit)}".strip() for label, value in entry.paper.items()]
    results = _intervals(entry.results, unit)
    sizes = [
        f"{label} {size_beside_paper(entry.paper[label], estimate)}".strip()
        for label, estimate in entry.results.items()
        if label in entry.paper
    ]
    margin = [f"*{paper.discrepancy(words)}*" for words in claim.discrepancies]
    return [
        claim.section,
        claim.sentence,
        claim.stated_by,
        claim.sense,
        "<br>".join(theirs),
        "<br>".join(results),
        f"**{entry.verdict}**",
        "<br>".join(sizes),
        entry.why,
        "<br>".join(margin),
    ]


def table_1_gains() -> str:
    """Return how much longer DSpark accepts than the drafters of Table 1, in the mean over three trainings of each where there are
    three: our results with intervals, the paper's range."""
    rows = []
    for name, runs in TRAININGS.items():
        if name == "dspark":
            continue
        ours = experiment_results.gains_over_seeds(TRAININGS["dspark"], runs)
        theirs = "-"
        if name in paper.LABELS:
            gains = [paper.macro_gain(target, "dspark", name) for target in paper.TARGETS]
            theirs = f"{number(min(gains), 'percent')} to {number(max(gains), 'percent')}"
        rows.append(
            [
                DRAFTER_LABELS[name] + (" (one training)" if len(runs) == 1 else ""),
                *(interval(ours[place], "percent") for place in experiment_results.PLACES.values()),
                theirs,
            ]
        )
    return markdown(["DSpark over", *DOMAINS, "mean", "paper, mean over the benchmarks"], rows)


def settings_table() -> str:
    """Return the settings, the paper's and ours, as a markdown table."""
    rows = [
        [setting.section, setting.name, setting.paper(), words_or_reason(setting.here)]
        for setting in SETTINGS
    ]
    return markdown(["§", "setting", "paper", "here"], rows)


def words_or_reason(find, otherwise: str = "") -> str:
    """Return `find()` or, where a measurement is missing, `otherwise` and the sentence that names it."""
    try:
        return find()
    except DSparkLiteError as error:
        return f"{otherwise}{error}"
