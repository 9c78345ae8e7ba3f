"""Tables of the paper's Table 1 and Figures 2 to 4 as markdown, our results beside the paper's, for assets/figures/tables.md."""

from collections.abc import Callable, Iterable

import numpy as np

from .. import paper
from ..estimates import PAPER, RESULTS, Estimate
from ..formats import interval, markdown, number
from ..measure.studies import LENGTHS, PAPER_DEPTHS
from ..names import DOMAINS, DRAFTER_LABELS
from . import experiments
from .experiment_results import (
    DEPTHS,
    DRAFT_LENGTHS,
    FULL_DEPTH,
    FULL_DFLASH,
    PLACES,
    SEEDS,
    TRAININGS,
    Length,
    acceptance_by_position,
    longer_round,
    of_table_1,
)


def _cells(estimates: Iterable[Estimate | None], source: str, unit: str) -> list[str]:
    """Return our estimates with their intervals, or the paper's numbers."""
    if source == PAPER:
        return [number(estimate.value, unit) for estimate in estimates]
    return [interval(estimate, unit) for estimate in estimates]


def _both(labels: list[str], estimates: Callable[[str], Iterable], unit: str) -> list[list[str]]:
    """Return two rows of `estimates(source)`: our results, and the paper's numbers."""
    return [
        [*labels, title, *_cells(estimates(source), source, unit)]
        for source, title in ((RESULTS, "here"), (PAPER, "paper"))
    ]


def accepted_length_table() -> str:
    """Return accepted length by drafter and domain: our results, the mean of all trainings, then the paper's domain means on each
    target."""
    drafts = [
        (RESULTS, f"here, {len(draft.runs)} training{'s' * (len(draft.runs) > 1)}", draft)
        for draft in TRAININGS.values()
    ]
    drafts += [
        (PAPER, target, of_table_1(name, target=target))
        for target in paper.TARGETS
        for name in paper.LABELS
    ]
    rows = [
        [
            DRAFTER_LABELS[draft.drafter],
            title,
            *_cells(
                [Length(draft, place).estimate(source) for place in PLACES.values()],
                source,
                "tokens",
            ),
        ]
        for source, title, draft in drafts
    ]
    return markdown(["drafter", "target", *PLACES], rows)


def paper_benchmarks_table() -> str:
    """Return the paper's Table 1 as printed, by benchmark, with the mean of each domain after its three and that of all nine at the end."""
    domains, rows = paper.numbers()["table1"]["domains"], []
    for target in paper.TARGETS:
        for name, label in paper.LABELS.items():
            lengths, means = paper.table1(target, name), paper.domain_means(target, name)
            by_domain = [
                value
                for domain, benchmarks in domains.items()
                for value in (*(lengths[benchmark] for benchmark in benchmarks), means[domain])
            ]
            values = [*by_domain, np.mean(list(lengths.values()))]
            rows.append([label, target, *(number(value, "tokens") for value in values)])
    heads = [head for domain, names in domains.items() for head in (*names, f"{domain}, mean")]
    return markdown(["drafter", "target", *heads, "mean"], rows)


def conditional_acceptance_table() -> str:
    """Return conditional acceptance by position."""
    rows = [
        row
        for domain in DOMAINS
        for name, label in paper.LABELS.items()
        for row in _both(
            [domain, label],
            lambda source, draft=SEEDS[name], domain=domain: acceptance_by_position(
                draft, domain, source
            ),
            "share",
        )
    ]
    return markdown(
        ["domain", "drafter", "", *(f"position {k}" for k in range(1, len(rows[0]) - 2))], rows
    )


def depth_table() -> str:
    """Return accepted length by depth, our results before the paper's."""
    rows = [
        [
            DRAFTER_LABELS[draft.drafter],
            f"{title}, {layers if source == RESULTS else PAPER_DEPTHS[layers]}",
            *_cells(
                [Length(draft, domain).estimate(source) for domain in DOMAINS], source, "tokens"
            ),
        ]
        for source, title in ((RESULTS, "here"), (PAPER, "paper"))
        for layers, draft in (*DEPTHS.items(), (FULL_DEPTH, FULL_DFLASH))
    ]
    return markdown(["drafter", "layers", *DOMAINS], rows)


def draft_length_table() -> str:
    """Return accepted length by draft length."""
    rows = [
        row
        for domain in DOMAINS
        for name in paper.STUDY
        for row in _both(
            [domain, DRAFTER_LABELS[name]],
            lambda source, name=name, domain=domain: (
                Length(DRAFT_LENGTHS[name, length], domain).estimate(source) for length in LENGTHS
            ),
            "tokens",
        )
    ]
    return markdown(
        ["domain", "drafter", "", *(f"draft length {length}" for length in LENGTHS)], rows
    )


def latency_table() -> str:
    """Return how much longer a full round takes than DFlash's."""
    rows = [
        row
        for name in ("dspark", "dspark_rnn")
        for row in _both(
            [DRAFTER_LABELS[name]],
            lambda source, name=name: (
                longer_round(name, length).estimate(source) for length in LENGTHS
            ),
            "percent",
        )
    ]
    return markdown(["drafter", "", *(f"draft length {length}" for length in LENGTHS)], rows)


def head_and_losses_table() -> str:
    """Return what the head and what the losses bring, over all seeds."""
    rows = [
        [title, *_cells((estimates[place] for place in PLACES.values()), RESULTS, "percent")]
        for title, estimates in experiments.head_and_losses().items()
    ]
    return markdown(["what is exchanged", *PLACES], rows)
