"""Figures of lesson 06: the passes of an autoregressive draft, what a token costs."""

import numpy as np

from .style import GREY, drafter_style, figure
from .token_boxes import LETTERS, box_width, draw_box, inch_canvas


def chain_figure(lab, before: list[int], drafts: list[int]):
    """The passes of an autoregressive draft as columns: whose feature is read, with which token, what is drafted.

    `before` are the last context token and the anchor, `drafts` what was drafted behind them; `lab` decodes the ids.
    What comes from the target is black, what the drafter has made itself is grey.
    """
    texts = [lab.tokenizer.decode([token]) for token in [*before, *drafts]]
    passes = range(len(drafts))
    rows = {"feature of": [(texts[k], "drafted" if k else "anchor") for k in passes],
            "next token": [(texts[k + 1], "drafted" if k else "anchor") for k in passes],
            "drafts": [(texts[k + 2], "drafted") for k in passes]}
    columns = [max(0.62, *(box_width(*row[k]) for row in rows.values())) + 0.1 for k in passes]
    label, line = 0.95, 0.36
    fig, axes = inch_canvas(max(label + sum(columns) + 0.1, 6), line * 4 + 0.15)
    for k in passes:
        axes.text(label + sum(columns[:k]), -line / 2, f"pass {k + 1}", fontsize=LETTERS, va="center_baseline",
                  color=GREY)
    for index, (name, row) in enumerate(rows.items(), 1):
        axes.text(0.02, -line * (index + 0.5), name, fontsize=LETTERS, va="center_baseline", color=GREY)
        for column, token in enumerate(row):
            draw_box(axes, label + sum(columns[:column]), -line * (index + 0.5), *token)
    return fig


def token_cost(curves: dict[str, list[float]], plain: float, title: str):
    """Milliseconds a token by draft length (from 1) for every drafter, its best length ringed, and plain decoding."""
    fig, axes = figure(width=6.0)
    for name, values in curves.items():
        style, best = drafter_style(name), int(np.argmin(values))
        style["label"] += f", best {values[best]:.2f} ms"
        axes.plot(range(1, len(values) + 1), values, **style)
        axes.plot(best + 1, values[best], linestyle="", marker="o", markersize=13, markerfacecolor="none",
                  color=style["color"])
    axes.axhline(plain, color=GREY, linestyle="--", label=f"plain decoding, {plain:.2f} ms")
    axes.set(xlabel="draft length (tokens)", ylabel="time of a token (ms)", ylim=(0, None), title=title,
             xticks=range(1, max(map(len, curves.values())) + 1))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig
