"""Figures of lesson 05: what a sequential head corrects and costs."""

import numpy as np

from .style import BLACK, BLUE, GREY, ORANGE, drafter_style, draw_estimates, figure, measured_on
from .token_boxes import shown


def accepted_length_figure(ours: dict, paper: dict):
    """Accepted length by domain: ours {drafter: {domain: Estimate}} filled, with intervals, and the paper's
    {drafter: {domain: value}} hollow."""
    fig, axes = figure(width=6.4)
    domains = list(next(iter(ours.values())))
    for index, name in enumerate(ours):
        style = drafter_style(name)
        x = np.arange(len(domains)) + 0.22 * (index - (len(ours) - 1) / 2)
        estimates = [ours[name][domain] for domain in domains]
        here = {**style, "label": f"{style['label']}, here", "linestyle": "none"}
        there = {**style, "label": f"{style['label']}, paper (Qwen3-4B)", "markerfacecolor": "none"}
        draw_estimates(axes, x, estimates, here)
        axes.plot(x + 0.07, [paper[name][domain] for domain in domains], linestyle="none", **there)
    axes.set(xticks=range(len(domains)), xticklabels=domains, ylabel="accepted length (tokens a round)")
    axes.set_ylim(bottom=1)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def corrected_distribution(labels: list[str], base, bias, corrected, previous: str):
    """Three bars a token: base probability, transition bias (logits) after `previous`, corrected probability."""
    fig, panels = figure(3, width=3.1, height=0.3 * len(labels) + 1.0, sharey=True)
    parts = ((base, "base, without the head", ORANGE), (bias, f"bias after '{shown(previous)}'", GREY),
             (corrected, "corrected", BLUE))
    for axes, (values, title, colour) in zip(panels, parts):
        axes.barh(range(len(labels)), values, color=colour)
        axes.set(title=title, yticks=range(len(labels)), yticklabels=labels)
    panels[0].set(xlabel="probability", xlim=(0, 1), ylabel="token")
    panels[1].set_xlabel("added to the logit")
    panels[1].axvline(0, color=BLACK, linewidth=0.8)
    panels[2].set(xlabel="probability", xlim=(0, 1))
    panels[0].invert_yaxis()
    return fig


def costs(parts: dict[str, float], device: str):
    """Milliseconds of the parts of a round as bars, on the device that they were measured on."""
    fig, axes = figure(width=6.0, height=0.42 * len(parts) + 0.8)
    axes.barh(range(len(parts)), list(parts.values()), color=BLUE)
    for row, value in enumerate(parts.values()):
        axes.text(value, row, f" {value:.2f}", va="center")
    axes.set(yticks=range(len(parts)), yticklabels=list(parts), xlabel="time (ms)")
    axes.set_xlim(right=1.15 * max(parts.values()))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    measured_on(axes, device)
    return fig
