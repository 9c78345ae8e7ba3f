"""The paper's table and figures, our results beside its numbers: ours filled, with intervals; the paper's hollow and dashed.

Both are quantities of `experiment_results`. A figure raises DSparkLiteError where a measurement is missing.
"""

import numpy as np

from .. import paper
from ..estimates import PAPER, RESULTS, Quantity
from ..measure import studies
from ..measure.studies import LENGTHS
from ..names import DOMAINS, DRAFTER_LABELS
from ..replication import experiments
from ..replication.experiment_results import (
    DEPTHS,
    DRAFT_LENGTHS,
    FULL_DEPTH,
    FULL_DFLASH,
    PLACES,
    SEEDS,
    TARGET,
    TRAININGS,
    Draft,
    Length,
    acceptance_by_position,
    gain,
    longer_round,
    measured,
    of_table_1,
)
from ..replication.quantities import fall, length_gain
from .style import (
    BLACK,
    DRAFTER_STYLES,
    GREY,
    SMALL,
    drafter_style,
    draw_estimates,
    draw_positions,
    figure,
    hollow,
    label_ends,
    measured_on,
    zero_line,
)

COLUMNS = list(PLACES.values())
PAPER_FULL_DEPTH = studies.PAPER_DEPTHS[FULL_DEPTH]
DRAFT_LENGTH = "draft length: anchor and drafts (tokens)"
ACCEPTED_LENGTH = "accepted length (tokens per round)"


def draw(
    axes,
    x,
    quantities: list[Quantity],
    style: dict,
    *,
    times: float = 1,
    line: str = "--",
    paper_shift: float = 0.0,
) -> None:
    """Draw quantities at `x`, `times` as large: our results filled with intervals, the paper's hollow."""
    draw_estimates(axes, x, [quantity.estimate().scaled(times) for quantity in quantities], style)
    theirs = [times * quantity.value(PAPER) for quantity in quantities]
    axes.plot(np.add(x, paper_shift), theirs, **hollow(style, line))


def device() -> str:
    """Return the device that the drafters of Table 1 were measured on."""
    return measured(studies.TABLE_1["dspark"])["device"]


def legend_below(fig, axes) -> None:
    """Write the drafters, and what filled and hollow mean, in a row under all panels."""
    handles, labels = axes.get_legend_handles_labels()
    ours = axes.plot([], [], color=GREY, marker="o")[0]
    theirs = axes.plot([], [], **hollow({"color": GREY, "marker": "o"}))[0]
    fig.legend(
        [*handles, ours, theirs],
        [*labels, "filled: here, 95 %", f"hollow: paper ({TARGET})"],
        loc="outside lower center",
        ncols=int(fig.get_figwidth() / 1.5),
        fontsize=SMALL,
    )


def figure_2():
    """Draw conditional acceptance by draft position, a panel a domain: DSpark, DFlash and Eagle3, three trainings of each."""
    fig, panels = figure(len(DOMAINS), width=3.9, height=3.9, sharey=True)
    for axes, domain in zip(panels, DOMAINS):
        for index, name in enumerate(paper.LABELS):
            style, shift = drafter_style(name), 0.1 * (index - 1)
            draw_positions(axes, acceptance_by_position(SEEDS[name], domain), style, shift)
            theirs = acceptance_by_position(SEEDS[name], domain, PAPER)
            axes.plot(
                np.arange(1, len(theirs) + 1) + shift,
                [length.value for length in theirs],
                **hollow(style),
            )
        axes.set(xticks=range(1, len(theirs) + 1), ylim=(0.3, 1.02))
        dflash, dspark = (-fall(SEEDS[name], (domain,)).value() for name in ("dflash", "dspark"))
        axes.set_title(f"{domain}: from first to last {dflash:+.2f} DFlash, {dspark:+.2f} DSpark")
        axes.label_outer()
    measured_on(panels[-1], device())
    legend_below(fig, panels[0])
    return fig


def table_1():
    """Draw accepted length by domain of the three drafters of the paper's Table 1, a line a drafter: here, the mean of three
    trainings, and in the paper."""
    fig, (here, there) = figure(2, width=3.1, height=3.4, sharey=True)
    x = range(len(DOMAINS))
    for name in paper.LABELS:
        style = {**drafter_style(name), "label": "_"}
        lengths = [Length(SEEDS[name], domain) for domain in DOMAINS]
        draw_estimates(here, x, [length.estimate() for length in lengths], style)
        there.plot(x, [length.value(PAPER) for length in lengths], **hollow(style))
    here.set(ylabel=ACCEPTED_LENGTH, ylim=(1, 8))
    for axes, title, source in ((here, "here", RESULTS), (there, f"the paper, {TARGET}", PAPER)):
        axes.set(xticks=x, xticklabels=DOMAINS, title=title)
        last = [
            (len(DOMAINS) - 1, Length(SEEDS[name], DOMAINS[-1]).value(source), label, colour)
            for name in paper.LABELS
            for label, colour in [(DRAFTER_LABELS[name], DRAFTER_STYLES[name][0])]
        ]
        label_ends(axes, last)
    measured_on(here, device())
    return fig


def lengths_by_head_and_losses():
    """Draw accepted length without and with the sequential head, learned from cross-entropy alone and from DSpark's losses, a
    panel for each domain and one for the mean: where the lines are parallel, either cause works alone."""
    lines = {
        "dflash": ("without a head", studies.SEEDS["dflash"], studies.LOSSES["dflash"]),
        "dspark": ("with the Markov head", studies.LOSSES["dspark"], studies.SEEDS["dspark"]),
    }
    fig, panels = figure(len(COLUMNS), width=2.6, height=3.4, sharey=True)
    for axes, (title, place) in zip(panels, PLACES.items()):
        for shift, (name, (label, *trainings)) in zip((-0.02, 0.02), lines.items()):
            lengths = [Length(Draft(runs), place).estimate() for runs in trainings]
            draw_estimates(
                axes,
                np.arange(len(lengths)) + shift,
                lengths,
                {**drafter_style(name), "label": label},
            )
        axes.set(
            xticks=(0, 1),
            xticklabels=["cross-entropy\nalone", "DSpark's\nlosses"],
            xlim=(-0.4, 1.4),
            title=title,
        )
    panels[0].set_ylabel("accepted length\n(tokens per round)")
    _, head, losses, _ = (estimates["all"] for estimates in experiments.head_and_losses().values())
    fig.suptitle(
        f"In the mean the losses bring {losses.value:+.1%} without a head, the head {head.value:+.1%} with DSpark's losses"
    )
    measured_on(panels[-1], device())
    fig.legend(
        *panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=SMALL
    )
    return fig


def figure_3():
    """Draw accepted length of DSpark by depth, and of DFlash at full depth (there 5 layers), a panel a domain."""
    fig, panels = figure(len(DOMAINS), width=3.9, height=3.7, sharey=True)
    for axes, domain in zip(panels, DOMAINS):
        lengths = [Length(draft, domain) for draft in DEPTHS.values()]
        draw(axes, list(DEPTHS), lengths, drafter_style("dspark"))
        style = {**drafter_style("dflash"), "linestyle": "none"}
        rival = Length(FULL_DFLASH, domain)
        draw(axes, [FULL_DEPTH], [rival], style, line="none")
        level = {"color": style["color"], "linewidth": 1}
        axes.axhline(rival.value(), **level)
        axes.axhline(rival.value(PAPER), linestyle="--", **level)
        axes.set(
            xlabel=f"layers (full: {FULL_DEPTH} here, {PAPER_FULL_DEPTH} there)",
            xticks=list(DEPTHS),
        )
        axes.set_xticklabels(["full" if n == FULL_DEPTH else f"{n}" for n in DEPTHS])
        two_layers = gain(DEPTHS[2], FULL_DFLASH, domain)
        here, there = two_layers.value(), two_layers.value(PAPER)
        axes.set_title(f"{domain}: 2 layers {here:+.0%} on DFlash (paper {there:+.0%})")
    panels[0].set(ylabel=ACCEPTED_LENGTH, ylim=(1, None))
    measured_on(panels[-1], device())
    legend_below(fig, panels[0])
    return fig


def figure_4():
    """Draw accepted length by draft length (upper row) and the gain of DSpark over DFlash (lower row), a column a domain."""
    fig, (panels, gains) = figure(len(DOMAINS), 2, width=3.6, height=2.9, sharey="row", sharex=True)
    for axes, below, domain in zip(panels, gains, DOMAINS):
        for index, name in enumerate(paper.STUDY):
            x = np.array(LENGTHS) + 0.18 * (index - 1)
            lengths = [Length(DRAFT_LENGTHS[name, length], domain) for length in LENGTHS]
            draw(axes, x, lengths, drafter_style(name))
        by_length = [length_gain(domain, length) for length in LENGTHS]
        draw(below, LENGTHS, by_length, drafter_style("dspark"), times=100)
        zero_line(below)
        axes.set_title(domain)
        below.set(xlabel=DRAFT_LENGTH, xticks=LENGTHS)
    panels[0].set(ylabel="accepted length\n(tokens per round)", ylim=(1, None))
    gains[0].set_ylabel("DSpark over DFlash (%)")
    growth = {domain: length_gain(domain, 16) - length_gain(domain, 8) for domain in DOMAINS}
    grows = [domain for domain, more in growth.items() if more.value() > 0]
    fig.suptitle(
        f"From draft length 8 to 16 the gain over DFlash grows on {', '.join(grows) or 'no domain'}"
    )
    measured_on(gains[-1], measured(studies.LENGTH_STUDY["dspark", 8])["device"])
    legend_below(fig, panels[0])
    return fig


def figure_4_latency():
    """Draw how much longer a full round is than DFlash's by draft length: the Markov and the RNN head."""
    latency = measured(studies.LATENCY)
    fig, axes = figure(width=6.0, height=4.0)
    for shift, name in ((-0.1, "dspark"), (0.1, "dspark_rnn")):
        rounds = [longer_round(name, length) for length in LENGTHS]
        draw(axes, np.array(LENGTHS) + shift, rounds, drafter_style(name), times=100)
    zero_line(axes)
    axes.set(xlabel=DRAFT_LENGTH, ylabel="round longer than DFlash's (%)", xticks=LENGTHS)
    longest = longer_round("dspark", max(LENGTHS))
    here, there = longest.estimate(), longest.value(PAPER)
    axes.set_title(
        f"A round with the Markov head at length {max(LENGTHS)}: {here.value:+.1%} [{here.low:+.1%}, {here.high:+.1%}] here,\n"
        f"{there:+.1%} in the paper"
    )
    measured_on(
        axes,
        f"{latency['device']}, batch {latency['batch']} (paper: {paper.claim('latency batch size')})",
    )
    legend_below(fig, axes)
    return fig


def gain_by_domain(ours: str, theirs: str, target: str = TARGET):
    """Draw how much longer one drafter of Table 1 accepts than another, by domain, beside the paper's on one of its targets.

    The paper's values are there for the drafters that its table has.
    """
    fig, axes = figure(width=6.4, height=3.8)
    look = {"linestyle": "none", "markersize": 9}
    drafts = [TRAININGS[name] for name in (ours, theirs)]
    trainings = " and ".join(
        f"{len(draft.runs)} training{'s' * (len(draft.runs) > 1)}" for draft in drafts
    )
    draw_estimates(
        axes,
        range(len(COLUMNS)),
        [gain(*drafts, place).estimate().scaled(100) for place in COLUMNS],
        {
            **look,
            "color": drafter_style(ours)["color"],
            "marker": "o",
            "label": f"here, 95 %: {trainings}",
        },
    )
    if {ours, theirs} <= set(paper.LABELS):
        drafts = [of_table_1(name, target=target) for name in (ours, theirs)]
        axes.plot(
            np.arange(len(COLUMNS)) + 0.12,
            [100 * gain(*drafts, place).value(PAPER) for place in COLUMNS],
            **look,
            color=BLACK,
            marker="D",
            markerfacecolor="none",
            label=f"the paper's, {target}",
        )
    zero_line(axes)
    axes.set(
        xticks=range(len(COLUMNS)),
        xticklabels=[*DOMAINS, "mean of the three"],
        xlim=(-0.5, len(COLUMNS) - 0.5),
        ylabel="accepted length, longer by (%)",
        title=f"{drafter_style(ours)['label']} over {drafter_style(theirs)['label']}",
    )
    measured_on(axes, device())
    fig.legend(loc="outside lower center", ncols=2, fontsize=SMALL)
    return fig


def draw_lab_lengths(lengths: dict, label: str):
    """Draw accepted length of DSpark by domain: of a lab's models (`lengths`, {domain: estimate}), of the tiny ones, and the
    paper's, whose prompts are the benchmarks of each domain."""
    fig, axes = figure(width=6.0, height=3.2)
    style, x = {**drafter_style("dspark"), "linestyle": "none"}, np.arange(len(lengths))
    tiny = [Length(SEEDS["dspark"], domain) for domain in lengths]
    draw_estimates(axes, x - 0.1, list(lengths.values()), {**style, "marker": "D", "label": label})
    look = {**style, "color": GREY, "label": "here, tiny models, three trainings"}
    draw_estimates(axes, x, [length.estimate() for length in tiny], look)
    axes.plot(
        x + 0.1,
        [length.value(PAPER) for length in tiny],
        **{**hollow(style, "none"), "label": f"paper ({TARGET})"},
    )
    axes.set(xticks=x, xticklabels=list(lengths), ylabel=ACCEPTED_LENGTH, ylim=(1, None))
    axes.legend(fontsize=SMALL)
    return fig
