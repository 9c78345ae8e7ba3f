"""Figures of lesson 05: what a sequential head corrects, and what it gains."""

from .style import (
    ALTERED,
    BLACK,
    BLUE,
    drafter_style,
    draw_estimates,
    figure,
    grouped_bars,
    zero_line,
)
from .token_boxes import shown


def accepted_length_figure(ours: dict, paper: dict):
    """Draw accepted length as a pair of bars per domain of the paper: `ours` {drafter: {domain: Estimate}}, with intervals. Under each pair
    stands the second drafter's gain over the first, and that of `paper` {drafter: {domain: value}}."""
    (first, second), domains = ours, list(next(iter(paper.values())))
    fig, axes = figure(width=6.2)
    labels = {drafter_style(name)["label"]: name for name in ours}
    heights = {label: [ours[name][d].value for d in domains] for label, name in labels.items()}
    bars = grouped_bars(axes, heights, [drafter_style(name)["color"] for name in ours])
    for label, name in labels.items():
        middles = [bar.get_x() + bar.get_width() / 2 for bar in bars[label]]
        draw_estimates(
            axes,
            middles,
            [ours[name][domain] for domain in domains],
            {"linestyle": "none", "color": BLACK},
        )
    gains = {
        domain: ours[second][domain].value / ours[first][domain].value - 1 for domain in domains
    }
    there = {domain: paper[second][domain] / paper[first][domain] - 1 for domain in domains}
    axes.set(
        xticks=range(len(domains)),
        xticklabels=[f"{d}: {gains[d]:+.0%}\n(paper {there[d]:+.0%})" for d in domains],
        ylabel="accepted length (tokens per round)",
    )
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    axes.set_title(f"{drafter_style(second)['label']} gains most on {max(gains, key=gains.get)}")
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
