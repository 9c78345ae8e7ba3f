"""Figures of lesson 05: what a sequential head corrects, what it costs, and what it gains."""

from .style import (
    ALTERED,
    BLACK,
    BLUE,
    GREY,
    drafter_style,
    draw_estimates,
    figure,
    hollow,
    measured_on,
    zero_line,
)
from .token_boxes import shown


def accepted_length_figure(ours: dict, paper: dict, measured_over: str):
    """Draw accepted length, a panel for each domain of the paper: `ours` {drafter: {domain: Estimate}} filled, with intervals
    over what `measured_over` names, and `paper` {drafter: {domain: value}} hollow. The title has the second drafter's gain over the
    first, here and there."""
    (first, second), domains = ours, list(next(iter(paper.values())))
    fig, panels = figure(len(domains), width=2.6, height=3.2, sharey=True)
    for axes, domain in zip(panels, domains):
        for index, name in enumerate(ours):
            style = {**drafter_style(name), "linestyle": "none"}
            draw_estimates(axes, [index - 0.1], [ours[name][domain]], style)
            axes.plot(index + 0.1, paper[name][domain], **hollow(style, "none"))
        here = ours[second][domain].value / ours[first][domain].value
        there = paper[second][domain] / paper[first][domain]
        axes.set_title(
            f"{domain}: {drafter_style(second)['label']} {here - 1:+.1%}\n(paper {there - 1:+.0%})",
        )
        axes.set(
            xticks=range(len(ours)),
            xticklabels=[drafter_style(name)["label"] for name in ours],
            xlim=(-0.5, len(ours) - 0.5),
        )
    panels[0].set(
        ylabel="accepted length (tokens per round;\nplain decoding has 1)", ylim=(1, None)
    )
    fig.suptitle(
        f"filled: here, 95 % intervals over {measured_over}; hollow: the paper (Qwen3-4B)\n"
        "other targets and texts: compare gains, not heights",
        color=BLACK,
    )
    return fig


def corrected_distribution(labels: list[str], base, bias, corrected, previous: str):
    """Draw three bars a token: base probability, transition bias (logits) after `previous`, corrected probability.

    Biases up to 8 either way are drawn on one scale, so that two such figures can be compared. The title says which token
    gains most.
    """
    fig, panels = figure(3, width=3.1, height=0.3 * len(labels) + 1.1, sharey=True)
    parts = (
        (base, "base, without the head", ALTERED),
        (bias, f"bias after '{shown(previous)}'", BLUE),
        (corrected, "corrected", BLUE),
    )
    widest = max(8.0, 1.05 * max(abs(float(value)) for value in bias))
    for axes, (values, title, colour) in zip(panels, parts):
        axes.barh(range(len(labels)), values, color=colour)
        axes.set(yticks=range(len(labels)), yticklabels=labels)
        axes.set_title(title)
    panels[0].set(xlabel="probability", xlim=(0, 1), ylabel="token")
    panels[1].set(xlabel="added to the logit", xlim=(-widest, widest))
    zero_line(panels[1], axis="x")
    panels[2].set(xlabel="probability", xlim=(0, 1))
    panels[0].invert_yaxis()
    most = max(range(len(labels)), key=lambda k: float(corrected[k]) - float(base[k]))
    fig.suptitle(
        f"the bias after '{shown(previous)}' takes '{labels[most]}' from {base[most]:.0%} to {corrected[most]:.0%}",
    )
    return fig


def costs(parts: dict[str, float], added: float, whole: float, device: str):
    """Draw the milliseconds of the parts of a round as bars, measured on `device`. The title says how much the head has
    `added`, hatched, to a round of `whole` milliseconds without it."""
    fig, axes = figure(width=6.0, height=0.42 * len(parts) + 1.0)
    axes.barh(
        range(len(parts)),
        list(parts.values()),
        color=[BLUE if "head" in name else GREY for name in parts],
    )
    for row, (name, value) in enumerate(parts.items()):
        if "head" in name:
            axes.barh(row, added, left=value - added, color=BLUE, edgecolor="white", hatch="///")
        axes.text(value, row, f" {value:.2f}", va="center")
    axes.set(yticks=range(len(parts)), yticklabels=list(parts), xlabel="time (ms)")
    axes.set_title(
        f"the head adds {added:.2f} ms to a round of {whole:.1f} ms: {added / whole:.1%}",
    )
    axes.set_xlim(right=1.15 * max(parts.values()))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    measured_on(axes, device)
    return fig
