"""Figures of lesson 06: the passes of an autoregressive draft, what they accept, what a token costs."""

import numpy as np

from dspark_lite.course.names import DRAFTER_LABELS
from .lesson_04 import BLOCK, CONTEXT
from .style import (
    BLACK,
    GREY,
    PALE,
    SMALL,
    drafter_style,
    draw_positions,
    figure,
    hollow,
    label_ends,
    last_point,
    measured_on,
    write,
)
from .token_boxes import arrow, column_widths, draw_row, inch_canvas, tower_box, write_row


def wirings():
    """Draw the inputs of one pass of Eagle3 (left) and of MTP-1 (right), and the way of its output."""
    fig, axes = inch_canvas(9.9, 3.7)
    for left, title, feature, middle, upper in (
        (
            0.3,
            "Eagle3: any number of passes",
            "feature $f_i$:\nseveral layers, mixed",
            "attention reads both side by side",
            "its result is added to the feature, then the MLP",
        ),
        (
            5.85,
            "MTP-1: one pass",
            "$h_i$: hidden state of\nthe target's last layer",
            "a matrix $M$ mixes both into one vector",
            "an ordinary layer",
        ),
    ):
        centre = left + 1.9
        write(axes, centre, -0.15, title, size=10)
        tower_box(axes, left + 0.9, -3.3, 1.7, 0.5, CONTEXT, feature, letters="white")
        tower_box(
            axes,
            left + 2.9,
            -3.3,
            1.7,
            0.5,
            "white",
            "embedding of $x_{i+1}$,\nthe token after it",
            letters=BLACK,
        )
        for y, text, face in (
            (-2.4, middle, BLOCK),
            (-1.6, upper, BLOCK),
            (-0.8, "LM head: the draft $x_{i+2}$", PALE),
        ):
            tower_box(axes, centre, y, 3.7, 0.4, face, text, letters=BLACK)
        for x in (left + 0.9, left + 2.9):
            arrow(axes, (x, -3.03), (x, -2.62), GREY)
        for y in (-2.19, -1.39):
            arrow(axes, (centre, y), (centre, y + 0.38), GREY)
    axes.plot([4.02, 4.35, 4.35, 0.06, 0.06], [-1.6, -1.6, -3.62, -3.62, -3.3], color=BLOCK, lw=1.6)
    arrow(axes, (0.06, -3.3), (0.36, -3.3), BLOCK)
    axes.text(
        4.42,
        -2.6,
        "in the next pass\nthe output\ntakes the\nfeature's place",
        ha="left",
        va="center",
        fontsize=SMALL,
        color=BLACK,
    )
    return fig


def chain_figure(lab, before: list[int], drafts: list[int]):
    """Draw the passes of an autoregressive draft as columns: the feature and the token that each reads, and its draft.

    `before` are the last context token and the anchor, `drafts` what was drafted after them; `lab` decodes the ids.
    A feature or token of the target's is black, one that the drafter has made itself is grey.
    """
    texts = [lab.tokenizer.decode([token]) for token in [*before, *drafts]]
    passes = range(len(drafts))
    rows = {
        "feature at": [(texts[k], "drafted" if k else "anchor") for k in passes],
        "next token": [(texts[k + 1], "drafted" if k else "anchor") for k in passes],
        "drafts": [(texts[k + 2], "drafted") for k in passes],
    }
    columns = [max(0.62, width) + 0.1 for width in column_widths(rows.values())]
    label, line = 0.95, 0.36
    fig, axes = inch_canvas(max(label + sum(columns) + 0.1, 6), line * 5)
    for k in passes:
        write_row(axes, label + sum(columns[:k]), -line / 2, f"pass {k + 1}", BLACK)
    for index, (name, row) in enumerate(rows.items(), 1):
        write_row(axes, 0.02, -line * (index + 0.5), name, BLACK)
        draw_row(axes, label, -line * (index + 0.5), row, columns)
    write_row(
        axes, 0.02, -line * 4.5, "black: made by the target; grey: made by the drafter", BLACK
    )
    return fig


def draft_cost(draft_ms: dict[str, dict[int, float]], device: str):
    """Draw the milliseconds of a draft by its length, {drafter: {length: ms}}; the title has the cost of one more token for two
    of them."""
    fig, axes = figure()
    for name, cost in draft_ms.items():
        axes.plot(list(cost), list(cost.values()), **drafter_style(name))
    axes.set(
        xlabel="draft length (tokens)",
        ylabel="time of a draft (ms)",
        ylim=(0, None),
        xticks=range(1, max(map(max, draft_ms.values())) + 1),
    )
    eagle3, dspark = (per_token(draft_ms[name]) for name in ("eagle3", "dspark"))
    axes.set_title(f"one token more costs Eagle3 {eagle3:.2f} ms, DSpark {dspark:.2f} ms")
    label_lines(
        axes,
        [
            (max(cost), cost[max(cost)], DRAFTER_LABELS[name], drafter_style(name)["color"])
            for name, cost in draft_ms.items()
        ],
    )
    measured_on(axes, device)
    return fig


def per_token(cost: dict[int, float]) -> float:
    """Return the milliseconds that a further token adds to a draft, {length: ms}: the median, which one slow moment does not
    move."""
    return float(np.median(np.diff(list(cost.values())))) if len(cost) > 1 else 0.0


def label_lines(axes, ends: list[tuple]) -> None:
    """Write `label_ends` for lines of full length. A shorter line has its name after its last point, a single point before it."""
    full = max(x for x, *_ in ends) - 0.5
    label_ends(axes, [end for end in ends if end[0] > full])
    for x, y, label, colour in (end for end in ends if end[0] <= full):
        away, side = (-10, "right") if x < 1.5 else (8, "left")
        axes.annotate(
            label,
            (x, y),
            (away, 0),
            textcoords="offset points",
            ha=side,
            va="center",
            fontsize=SMALL,
            color=colour,
        )
        axes.set_xlim(left=min(axes.get_xlim()[0], x - 1.6 if x < 1.5 else 1))


def here_and_paper(here: dict, paper: dict, best: tuple[dict, dict]):
    """Draw conditional acceptance by position as small multiples: here {domain: {drafter: [Estimate]}} in the upper row, the
    paper's {domain: {drafter: [value]}} in the lower. `best` says whose τ is largest, {domain: drafter} here and there."""
    fig, rows = figure(len(here), 2, width=3.6, height=2.7, sharey=True, sharex=True)
    for column, domain in enumerate(here):
        for name, estimates in here[domain].items():
            draw_positions(rows[0][column], estimates, drafter_style(name))
            rows[1][column].plot(
                range(1, len(paper[domain][name]) + 1),
                paper[domain][name],
                **hollow(drafter_style(name)),
            )
        for axes, where, winner in zip((row[column] for row in rows), ("here", "paper"), best):
            axes.set_title(f"{domain}, {where} (largest τ: {DRAFTER_LABELS[winner[domain]]})")
            axes.set(xlabel="draft position", ylim=(0.3, 1.02))
            axes.set_ylabel("accepted, given that\nall before were")
            axes.label_outer()
        label_ends(
            rows[0][column],
            [
                last_point(estimates, drafter_style(name))
                for name, estimates in here[domain].items()
            ],
        )
        label_ends(
            rows[1][column],
            [
                (len(values), values[-1], DRAFTER_LABELS[name], drafter_style(name)["color"])
                for name, values in paper[domain].items()
            ],
        )
    return fig


def passes_figure(curves: dict[str, tuple[list, list]]):
    """Draw chance of acceptance by pass of two trainings, {title: (with the target's features, with its own output)}, on one
    scale; titles say how far the lines end apart."""
    fig, panels = figure(len(curves), width=3.9, sharey=True)
    for axes, (title, (given, own)) in zip(panels, curves.items()):
        axes.plot(range(1, len(given) + 1), given, color=GREY, marker="s", linestyle="--")
        axes.plot(range(1, len(own) + 1), own, **drafter_style("eagle3"))
        axes.set(xlabel="pass", xticks=range(1, len(own) + 1), ylim=(0.5, 0.8))
        axes.set_title(f"{title}: {own[-1] - given[-1]:+.2f} at pass {len(own)}")
        for line, (text, colour) in enumerate(
            (
                ("reads its own output", drafter_style("eagle3")["color"]),
                ("reads the target's features", GREY),
            )
        ):
            axes.text(
                0.05,
                0.15 - 0.08 * line,
                text,
                transform=axes.transAxes,
                fontsize=SMALL,
                color=colour,
            )
    panels[0].set_ylabel("chance of acceptance")
    return fig


def token_cost(curves: dict[str, list[float]], plain: float, title: str):
    """Draw milliseconds per token by draft length (from 1) for every drafter, its best length ringed (rings of several sizes,
    since two may lie together), and plain decoding; the title names the cheapest of all."""
    fig, axes = figure(width=5.6)
    best = {name: int(np.argmin(values)) for name, values in curves.items()}
    for size, (name, values) in enumerate(curves.items()):
        style = drafter_style(name)
        axes.plot(range(1, len(values) + 1), values, **style)
        axes.plot(
            best[name] + 1,
            values[best[name]],
            linestyle="",
            marker="o",
            markersize=11 + 2 * size,
            markerfacecolor="none",
            color=style["color"],
        )
    longest = max(map(len, curves.values()))
    axes.plot([1, longest], [plain, plain], color=GREY, linestyle="--")
    least = {name: min(values) for name, values in curves.items()} | {"plain": plain}
    first = min(least, key=least.get)
    length = f", draft length {best[first] + 1}" if first in best else ""
    axes.set_title(
        f"{title}:\n{DRAFTER_LABELS[first]} is cheapest, {least[first]:.2f} ms per token{length}",
    )
    axes.set(
        xlabel="draft length (tokens); ringed: the best of each",
        ylabel="time per token (ms)",
        ylim=(0, 1.1 * max(plain, *map(max, curves.values()))),
        xticks=range(1, longest + 1),
    )
    label_lines(
        axes,
        [
            (longest, plain, "plain decoding", GREY),
            *(
                (len(values), values[-1], DRAFTER_LABELS[name], drafter_style(name)["color"])
                for name, values in curves.items()
            ),
        ],
    )
    return fig
