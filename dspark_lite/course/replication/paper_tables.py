"""Tables of the paper's Table 1 and Figures 2 to 4 as markdown, ours beside the paper's, for assets/figures/tables.md."""

import numpy as np

from dspark_lite.course import paper
from dspark_lite.course.formats import interval, markdown, number
from dspark_lite.course.names import DOMAINS, DRAFTER_LABELS
from ..measure import studies
from . import experiments, experiment_results


def _beside(labels: list[str], ours, theirs, unit: str) -> list[list[str]]:
    """Two rows: our estimates, and the paper's numbers."""
    return [
        [*labels, "here", *(interval(found, unit) for found in ours)],
        [*labels, "paper", *(number(value, unit) for value in theirs)],
    ]


def accepted_length_table() -> str:
    """Accepted length by drafter and domain: ours with intervals, then the paper's domain means on each target."""
    rows = []
    for name, recipe in studies.TABLE_1.items():
        ours = experiment_results.accepted_lengths(recipe)
        rows.append(
            [
                DRAFTER_LABELS[name],
                "here",
                *(interval(ours[place], "tokens") for place in experiment_results.PLACES.values()),
            ]
        )
    for target in paper.TARGETS:
        for name, label in paper.LABELS.items():
            means = list(paper.domain_means(target, name).values())
            rows.append(
                [label, target, *(number(value, "tokens") for value in (*means, np.mean(means)))]
            )
    return markdown(["drafter", "target", *DOMAINS, "mean"], rows)


def paper_benchmarks_table() -> str:
    """The paper's Table 1 as printed, by benchmark, with the mean of each domain after its three and that of all nine at the end."""
    domains, rows = paper.numbers()["table1"]["domains"], []
    for target in paper.TARGETS:
        for name, label in paper.LABELS.items():
            lengths, means = paper.table1(target, name), paper.domain_means(target, name)
            cells = [
                value
                for domain, names in domains.items()
                for value in (*(lengths[one] for one in names), means[domain])
            ]
            rows.append(
                [
                    label,
                    target,
                    *(
                        number(value, "tokens")
                        for value in (*cells, np.mean(list(lengths.values())))
                    ),
                ]
            )
    heads = [head for domain, names in domains.items() for head in (*names, f"{domain}, mean")]
    return markdown(["drafter", "target", *heads, "mean"], rows)


def conditional_acceptance_table() -> str:
    """Conditional acceptance by position."""
    rows = [
        row
        for domain in DOMAINS
        for name, label in paper.LABELS.items()
        for row in _beside(
            [domain, label],
            experiment_results.conditional_acceptance(studies.TABLE_1[name], domain),
            paper.conditional_acceptance(name, domain),
            "share",
        )
    ]
    return markdown(
        ["domain", "drafter", "", *(f"position {k}" for k in range(1, len(rows[0]) - 2))], rows
    )


def depth_table() -> str:
    """Accepted length by depth."""
    rows = []
    ours = [("dspark", *depth) for depth in studies.DEPTHS.items()]
    for name, layers, recipe in [*ours, ("dflash", max(studies.DEPTHS), studies.TABLE_1["dflash"])]:
        found = experiment_results.accepted_lengths(recipe)
        rows.append(
            [
                DRAFTER_LABELS[name],
                f"here, {layers}",
                *(interval(found[domain], "tokens") for domain in DOMAINS),
            ]
        )
    for name, layers in (("dspark", 1), ("dspark", 2), ("dspark", 5), ("dflash", 5)):
        theirs = paper.by_depth(name, layers)
        rows.append(
            [
                DRAFTER_LABELS[name],
                f"paper, {layers}",
                *(number(theirs[domain], "tokens") for domain in DOMAINS),
            ]
        )
    return markdown(["drafter", "layers", *DOMAINS], rows)


def draft_length_table() -> str:
    """Accepted length by draft length."""
    rows = []
    for domain in DOMAINS:
        for name in paper.STUDY:
            ours = (
                experiment_results.accepted_lengths(studies.LENGTH_STUDY[name, length])[domain]
                for length in studies.LENGTHS
            )
            rows += _beside(
                [domain, DRAFTER_LABELS[name]],
                ours,
                paper.by_draft_length(name, domain).values(),
                "tokens",
            )
    return markdown(
        ["domain", "drafter", "", *(f"draft length {length}" for length in studies.LENGTHS)], rows
    )


def latency_table() -> str:
    """How much longer a full round takes than DFlash's."""
    measured, rows = experiment_results.measured(studies.LATENCY), []
    for name in ("dspark", "dspark_rnn"):
        ours = (experiment_results.overhead(measured, name, length) for length in studies.LENGTHS)
        rows += _beside([DRAFTER_LABELS[name]], ours, paper.overhead(name).values(), "percent")
    return markdown(
        ["drafter", "", *(f"draft length {length}" for length in studies.LENGTHS)], rows
    )


def head_and_losses_table() -> str:
    """What the head and what the losses bring, over all seeds."""
    return markdown(
        ["what is exchanged", *experiment_results.PLACES],
        [
            [
                title,
                *(
                    interval(found[place], "percent")
                    for place in experiment_results.PLACES.values()
                ),
            ]
            for title, found in experiments.head_and_losses().items()
        ],
    )
