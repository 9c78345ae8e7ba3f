"""Measurements as markdown tables, ours beside the paper's."""

import numpy as np

from . import latency, miniature, paper
from .evaluation import Estimate
from .plots import DRAFTERS
from .training.corpus import DOMAINS

PLACES = (*DOMAINS, "all")
FORMS = {"tokens": "{:.2f}", "percent": "{:+.1%}", "rate": "{:.1%}", "share": "{:.3f}"}  # all but tokens are fractions


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", r"\|") for cell in line) + " |" for line in lines)


def number(value: float, unit: str) -> str:
    """A number in its unit, one of FORMS."""
    return FORMS[unit].format(value)


def interval(found: Estimate | None, unit: str) -> str:
    """An estimate with its interval, or a dash."""
    if found is None:
        return "-"
    return f"{number(found.value, unit)} [{number(found.low, unit)}, {number(found.high, unit)}]"


def table_1() -> str:
    """Accepted length by drafter and domain: ours with intervals, then the paper's domain means on each target."""
    rows = []
    for name, recipe in miniature.TABLE_1.items():
        ours = miniature.accepted_lengths(recipe)
        rows.append([DRAFTERS[name][0], "here", *(interval(ours[place], "tokens") for place in PLACES)])
    for target in paper.TARGETS:
        for name, label in paper.LABELS.items():
            means = list(paper.domain_means(target, name).values())
            rows.append([label, target, *(number(value, "tokens") for value in (*means, np.mean(means)))])
    return markdown(["drafter", "target", *DOMAINS, "mean"], rows)


def table_1_gains() -> str:
    """How much longer DSpark accepts than the drafters of Table 1: ours with intervals, the paper's range."""
    rows = []
    for name, recipe in miniature.TABLE_1.items():
        if name == "dspark":
            continue
        found = miniature.gains(miniature.TABLE_1["dspark"], recipe)
        theirs = "-"
        if name in paper.LABELS:
            gains = [paper.macro_gain(target, "dspark", name) for target in paper.TARGETS]
            theirs = f"{number(min(gains), 'percent')} to {number(max(gains), 'percent')}"
        rows.append([DRAFTERS[name][0], *(interval(found[place], "percent") for place in PLACES), theirs])
    return markdown(["DSpark over", *DOMAINS, "mean", "paper, mean over the benchmarks"], rows)


def figure_2() -> str:
    """Conditional acceptance by position."""
    rows = []
    for domain in DOMAINS:
        for name, label in paper.LABELS.items():
            ours = miniature.conditional_acceptance(miniature.TABLE_1[name], domain)
            rows.append([domain, label, "here", *(interval(found, "share") for found in ours)])
            theirs = paper.conditional_acceptance(name, domain)
            rows.append([domain, label, "paper", *(number(value, "share") for value in theirs)])
    return markdown(["domain", "drafter", "", *(f"position {k}" for k in range(1, len(theirs) + 1))], rows)


def figure_3() -> str:
    """Accepted length by depth."""
    rows = []
    ours = [("dspark", *depth) for depth in miniature.DEPTHS.items()]
    for name, layers, recipe in [*ours, ("dflash", max(miniature.DEPTHS), miniature.TABLE_1["dflash"])]:
        found = miniature.accepted_lengths(recipe)
        rows.append([DRAFTERS[name][0], f"here, {layers}", *(interval(found[domain], "tokens") for domain in DOMAINS)])
    for name, layers in (("dspark", 1), ("dspark", 2), ("dspark", 5), ("dflash", 5)):
        theirs = paper.by_depth(name, layers)
        rows.append([DRAFTERS[name][0], f"paper, {layers}", *(number(theirs[domain], "tokens") for domain in DOMAINS)])
    return markdown(["drafter", "layers", *DOMAINS], rows)


def figure_4() -> str:
    """Accepted length by draft length."""
    rows = []
    for domain in DOMAINS:
        for name in paper.STUDY:
            recipes = [miniature.LENGTH_STUDY[name, length] for length in miniature.LENGTHS]
            ours = [miniature.accepted_lengths(recipe)[domain] for recipe in recipes]
            rows.append([domain, DRAFTERS[name][0], "here", *(interval(found, "tokens") for found in ours)])
            theirs = paper.by_length(name, domain).values()
            rows.append([domain, DRAFTERS[name][0], "paper", *(number(value, "tokens") for value in theirs)])
    return markdown(["domain", "drafter", "", *(f"draft length {length}" for length in miniature.LENGTHS)], rows)


def figure_4_latency() -> str:
    """How much longer a full round takes than DFlash's."""
    measured = miniature.measured(miniature.LATENCY)
    rows = []
    for name in ("dspark", "dspark_rnn"):
        ours = [latency.overhead(measured, name, length) for length in miniature.LENGTHS]
        rows.append([DRAFTERS[name][0], "here", *(interval(found, "percent") for found in ours)])
        theirs = paper.overhead(name).values()
        rows.append([DRAFTERS[name][0], "paper", *(number(value, "percent") for value in theirs)])
    return markdown(["drafter", "", *(f"draft length {length}" for length in miniature.LENGTHS)], rows)
