"""The paper's table and figures with ours beside them: ours filled, with intervals; the paper's hollow and dashed.

Ours come from assets/measurements (`experiment_results`), the paper's from its printed numbers (`paper`). A figure whose
measurements are not there raises DSparkLiteError.
"""

import numpy as np

from dspark_lite.course import paper
from dspark_lite.course.names import DOMAINS
from ..measure import studies
from ..replication import experiments, experiment_results, quantities
from .style import (
    BLACK,
    GREY,
    drafter_style,
    draw_estimates,
    draw_positions,
    figure,
    hollow,
    measured_on,
)

TARGET = "Qwen3-4B"  # of the paper's Figures 2 to 4
COLUMNS = list(experiment_results.PLACES.values())
PAPER_FULL_DEPTH = max(studies.PAPER_DEPTHS.values())
DRAFT_LENGTH = "draft length: anchor and drafts (tokens)"


def legend_below(fig, axes) -> None:
    """The drafters, and what filled and hollow mean, in a row under all panels."""
    handles, labels = axes.get_legend_handles_labels()
    ours = axes.plot([], [], color=GREY, marker="o")[0]
    theirs = axes.plot([], [], **hollow({"color": GREY, "marker": "o"}))[0]
    fig.legend(
        [*handles, ours, theirs],
        [*labels, "filled: here, 95 %", f"hollow: paper ({TARGET})"],
        loc="outside lower center",
        ncols=int(fig.get_figwidth() / 1.5),
        fontsize=8,
    )


def figure_2():
    """Conditional acceptance by draft position, a panel a domain: DSpark, DFlash and Eagle3."""
    fig, panels = figure(len(DOMAINS), width=3.9, height=3.9, sharey=True)
    for axes, domain in zip(panels, DOMAINS):
        for index, name in enumerate(paper.LABELS):
            style, shift = drafter_style(name), 0.1 * (index - 1)
            draw_positions(
                axes,
                experiment_results.conditional_acceptance(studies.TABLE_1[name], domain),
                style,
                shift,
            )
            theirs = paper.conditional_acceptance(name, domain)
            axes.plot(np.arange(1, len(theirs) + 1) + shift, theirs, **hollow(style))
        axes.set(xticks=range(1, len(theirs) + 1), ylim=(0.3, 1.02))
        dflash, dspark = (_fall(studies.TABLE_1[name], domain) for name in ("dflash", "dspark"))
        axes.set_title(
            f"{domain}: from first to last {dflash:+.2f} DFlash, {dspark:+.2f} DSpark", fontsize=10
        )
        axes.label_outer()
    measured_on(panels[-1], experiment_results.measured(studies.TABLE_1["dspark"])["device"])
    legend_below(fig, panels[0])
    return fig


def _fall(recipe: str, domain: str) -> float:
    """How much higher a drafter's last position is than its first; below zero it falls."""
    first, *_, last = experiment_results.conditional_acceptance(recipe, domain)
    return last.value - first.value


def table_1():
    """Accepted length of the five drafters by domain, beside the paper's domain means."""
    fig, axes = figure(width=8.4, height=4.2)
    for index, (name, recipe) in enumerate(studies.TABLE_1.items()):
        x = np.arange(len(COLUMNS)) + 0.15 * (index - (len(studies.TABLE_1) - 1) / 2)
        style = {**drafter_style(name), "linestyle": "none"}
        draw_estimates(
            axes,
            x,
            [experiment_results.accepted_lengths(recipe)[place] for place in COLUMNS],
            style,
        )
        if name in paper.LABELS:
            means = paper.domain_means(TARGET, name)
            theirs = [*means.values(), np.mean(list(means.values()))]
            axes.plot(x + 0.06, theirs, **hollow(style, "none"))
    axes.set(
        xticks=range(len(COLUMNS)),
        xticklabels=[*DOMAINS, "mean of the three"],
        ylabel="accepted length (tokens per round)",
    )
    axes.set_ylim(bottom=1)
    longest = {}
    for place, words in zip(COLUMNS, [*DOMAINS, "the mean"]):
        first = max(
            studies.TABLE_1,
            key=lambda name: (
                experiment_results.accepted_lengths(studies.TABLE_1[name])[place].value
            ),
        )
        longest.setdefault(drafter_style(first)["label"], []).append(words)
    axes.set_title(
        "Longest here: "
        + "; ".join(f"{label} in {', '.join(words)}" for label, words in longest.items()),
        fontsize=10,
    )
    measured_on(axes, experiment_results.measured("tiny-dspark")["device"])
    legend_below(fig, axes)
    return fig


def lengths_by_head_and_losses():
    """Accepted length without and with the sequential head, learned from cross-entropy alone and from DSpark's losses, a panel for each
    domain and one for the mean: where the lines are parallel, either cause works alone."""
    lines = {
        "dflash": ("without a head", studies.SEEDS["dflash"], studies.LOSSES["dflash"]),
        "dspark": ("with the Markov head", studies.LOSSES["dspark"], studies.SEEDS["dspark"]),
    }
    fig, panels = figure(len(COLUMNS), width=2.6, height=3.4, sharey=True)
    for axes, (title, place) in zip(panels, experiment_results.PLACES.items()):
        for shift, (name, (label, *trainings)) in zip((-0.02, 0.02), lines.items()):
            found = [experiment_results.lengths_over_seeds(recipes)[place] for recipes in trainings]
            draw_estimates(
                axes, np.arange(len(found)) + shift, found, {**drafter_style(name), "label": label}
            )
        axes.set(
            xticks=(0, 1),
            xticklabels=["cross-entropy\nalone", "DSpark's\nlosses"],
            xlim=(-0.4, 1.4),
            title=title,
        )
    panels[0].set_ylabel("accepted length\n(tokens per round)")
    _, head, losses, _ = (found["all"] for found in experiments.head_and_losses().values())
    fig.suptitle(
        f"In the mean the losses bring {losses.value:+.1%} without a head, the head {head.value:+.1%} with DSpark's losses",
        fontsize=11,
    )
    measured_on(panels[-1], experiment_results.measured(studies.TABLE_1["dspark"])["device"])
    fig.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=8
    )
    return fig


def figure_3():
    """Accepted length of DSpark by depth, and of DFlash at full depth (there 5 layers), a panel a domain."""
    fig, panels = figure(len(DOMAINS), width=3.9, height=3.7, sharey=True)
    depths, dflash = studies.DEPTHS, studies.TABLE_1["dflash"]
    full = max(depths)
    paper_depths = {layers: PAPER_FULL_DEPTH if layers == full else layers for layers in depths}
    for axes, domain in zip(panels, DOMAINS):
        ours = [experiment_results.accepted_lengths(recipe)[domain] for recipe in depths.values()]
        draw_estimates(axes, list(depths), ours, drafter_style("dspark"))
        axes.plot(
            list(depths),
            [paper.by_depth("dspark", there)[domain] for there in paper_depths.values()],
            **hollow(drafter_style("dspark")),
        )
        style = {**drafter_style("dflash"), "linestyle": "none"}
        rival = experiment_results.accepted_lengths(dflash)[domain]
        theirs = paper.by_depth("dflash", PAPER_FULL_DEPTH)[domain]
        draw_estimates(axes, [full], [rival], style)
        axes.plot(full, theirs, **hollow(style, "none"))
        axes.axhline(rival.value, color=style["color"], linewidth=1)
        axes.axhline(theirs, color=style["color"], linewidth=1, linestyle="--")
        axes.set(
            xlabel=f"layers (full: {full} here, {PAPER_FULL_DEPTH} there)", xticks=list(depths)
        )
        axes.set_xticklabels(["full" if n == full else f"{n}" for n in depths])
        two_layers = experiment_results.gains(depths[2], dflash)[domain].value
        there = paper.by_depth("dspark", 2)[domain] / theirs - 1
        axes.set_title(
            f"{domain}: 2 layers {two_layers:+.0%} on DFlash (paper {there:+.0%})", fontsize=10
        )
    panels[0].set(ylabel="accepted length (tokens per round)", ylim=(1, None))
    measured_on(panels[-1], experiment_results.measured(dflash)["device"])
    legend_below(fig, panels[0])
    return fig


def figure_4():
    """Accepted length by draft length (upper row) and the gain of DSpark over DFlash (lower row), a column a domain."""
    fig, (panels, gains) = figure(len(DOMAINS), 2, width=3.6, height=2.9, sharey="row", sharex=True)
    for axes, below, domain in zip(panels, gains, DOMAINS):
        for index, name in enumerate(paper.STUDY):
            shift, style = 0.18 * (index - 1), drafter_style(name)
            ours = [
                experiment_results.accepted_lengths(studies.LENGTH_STUDY[name, length])[domain]
                for length in studies.LENGTHS
            ]
            theirs = paper.by_draft_length(name, domain)
            draw_estimates(axes, np.array(studies.LENGTHS) + shift, ours, style)
            axes.plot(np.array(list(theirs)) + shift, theirs.values(), **hollow(style))
        _draw_gains(below, domain)
        axes.set_title(domain)
        below.set(xlabel=DRAFT_LENGTH, xticks=studies.LENGTHS)
    panels[0].set(ylabel="accepted length\n(tokens per round)", ylim=(1, None))
    gains[0].set_ylabel("DSpark over DFlash (%)")
    grows = [domain for domain in DOMAINS if quantities.gain_growth((domain,), 8, 16).value > 0]
    fig.suptitle(
        f"From draft length 8 to 16 the gain over DFlash grows on {', '.join(grows) or 'no domain'}",
        fontsize=11,
    )
    measured_on(gains[-1], experiment_results.measured(studies.LENGTH_STUDY["dspark", 8])["device"])
    legend_below(fig, panels[0])
    return fig


def _draw_gains(axes, domain: str) -> None:
    """The gain of DSpark over DFlash by draft length: ours with its interval, the paper's hollow."""
    style = drafter_style("dspark")
    pairs = (
        [studies.LENGTH_STUDY[name, length] for name in ("dspark", "dflash")]
        for length in studies.LENGTHS
    )
    ours = [experiment_results.gains(*pair)[domain].scaled(100) for pair in pairs]
    draw_estimates(axes, studies.LENGTHS, ours, style)
    there = [paper.by_draft_length(name, domain) for name in ("dspark", "dflash")]
    axes.plot(
        studies.LENGTHS,
        [100 * (there[0][length] / there[1][length] - 1) for length in studies.LENGTHS],
        **hollow(style),
    )
    axes.axhline(0, color=BLACK, linewidth=0.8)


def figure_4_latency():
    """How much longer a full round takes than DFlash's by draft length: the Markov and the RNN head."""
    measured = experiment_results.measured(studies.LATENCY)
    fig, axes = figure(width=6.0, height=4.0)
    for shift, name in ((-0.1, "dspark"), (0.1, "dspark_rnn")):
        style, theirs = drafter_style(name), paper.overhead(name)
        ours = [experiment_results.overhead(measured, name, length) for length in studies.LENGTHS]
        draw_estimates(
            axes, np.array(studies.LENGTHS) + shift, [e.scaled(100) for e in ours], style
        )
        axes.plot(
            np.array(list(theirs)) + shift,
            [100 * value for value in theirs.values()],
            **hollow(style),
        )
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set(xlabel=DRAFT_LENGTH, ylabel="round longer than DFlash's (%)", xticks=studies.LENGTHS)
    longest = max(studies.LENGTHS)
    found = experiment_results.overhead(measured, "dspark", longest)
    axes.set_title(
        f"A round with the Markov head at length {longest}: {found.value:+.1%} [{found.low:+.1%}, {found.high:+.1%}] here,\n"
        f"{paper.overhead('dspark')[longest]:+.1%} in the paper",
        fontsize=10,
    )
    measured_on(
        axes,
        f"{measured['device']}, batch {measured['batch']} (paper: {paper.claim('latency batch size')})",
    )
    legend_below(fig, axes)
    return fig


def gain_by_domain(ours: str, theirs: str, target: str = TARGET):
    """How much longer one drafter of Table 1 accepts than another, by domain, beside the paper's on one of its targets.

    The paper's values are there for the drafters that its table has.
    """
    fig, axes = figure(width=6.4, height=3.8)
    found = experiment_results.gains(studies.TABLE_1[ours], studies.TABLE_1[theirs])
    look = {"linestyle": "none", "markersize": 9}
    draw_estimates(
        axes,
        range(len(COLUMNS)),
        [found[place].scaled(100) for place in COLUMNS],
        {**look, "color": drafter_style(ours)["color"], "marker": "o", "label": "here, 95 %"},
    )
    if {ours, theirs} <= set(paper.LABELS):
        means = [list(paper.domain_means(target, name).values()) for name in (ours, theirs)]
        ratios = np.divide(*([*values, np.mean(values)] for values in means))
        axes.plot(
            np.arange(len(COLUMNS)) + 0.12,
            100 * (ratios - 1),
            **look,
            color=BLACK,
            marker="D",
            markerfacecolor="none",
            label=f"the paper's, {target}",
        )
    axes.axhline(0, color=BLACK, linewidth=0.8)
    axes.set(
        xticks=range(len(COLUMNS)),
        xticklabels=[*DOMAINS, "mean of the three"],
        xlim=(-0.5, len(COLUMNS) - 0.5),
        ylabel="accepted length, longer by (%)",
        title=f"{drafter_style(ours)['label']} over {drafter_style(theirs)['label']}",
    )
    measured_on(axes, experiment_results.measured("tiny-dspark")["device"])
    fig.legend(loc="outside lower center", ncols=2, fontsize=8)
    return fig


def draw_own_lengths(own: dict, label: str):
    """Accepted length of DSpark by domain: of a lab's own models (`own`, {domain: estimate}), of the recorded tiny ones, and the
    paper's, whose prompts are the benchmarks of each domain."""
    fig, axes = figure(width=6.0, height=3.2)
    style, x = {**drafter_style("dspark"), "linestyle": "none"}, np.arange(len(own))
    recorded = experiment_results.accepted_lengths(studies.TABLE_1["dspark"])
    draw_estimates(axes, x - 0.1, list(own.values()), {**style, "marker": "D", "label": label})
    draw_estimates(
        axes,
        x,
        [recorded[domain] for domain in own],
        {**style, "color": GREY, "label": "here, tiny models"},
    )
    theirs = paper.domain_means(TARGET, "dspark")
    axes.plot(
        x + 0.1,
        [theirs[domain] for domain in own],
        **{**hollow(style, "none"), "label": f"paper ({TARGET})"},
    )
    axes.set(
        xticks=x, xticklabels=list(own), ylabel="accepted length (tokens per round)", ylim=(1, None)
    )
    axes.legend(fontsize=8)
    return fig
