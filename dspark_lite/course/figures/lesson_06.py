"""Figures of lesson 06: the passes of an autoregressive draft, what they accept, what a token costs."""

import numpy as np

from dspark_lite.course.names import DRAFTER_LABELS
from .lesson_04 import BLOCK, CONTEXT
from .style import (
    BLACK,
    GREY,
    MEDIUM,
    PALE,
    REJECTED,
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
from .token_boxes import (
    arrow,
    inch_canvas,
    rounded_box,
    tower_box,
)


def wiring():
    """Draw what one pass of Eagle3 reads, and the way of its output into the next pass."""
    fig, axes = inch_canvas(5.4, 4.2)
    left, right = 0.35, 3.95
    rows = {"reads": -3.85, "attention": -2.95, "sum": -2.1, "output": -1.25, "head": -0.4}
    boxes = (
        (1.2, "reads", 1.7, CONTEXT, "white", "feature $f_i$:\nseveral layers, mixed"),
        (3.1, "reads", 1.7, "white", BLACK, "embedding of $x_{i+1}$,\nthe token after it"),
        (2.55, "attention", right - 1.15, PALE, BLACK, "attention reads the pair"),
        (
            2.15,
            "sum",
            right - left,
            PALE,
            BLACK,
            "feature + attention's result;\nthe MLP adds its own",
        ),
        (2.15, "output", right - left, BLOCK, BLACK, "output of the pass"),
        (2.15, "head", right - left, PALE, BLACK, "LM head: the draft $x_{i+2}$"),
    )
    for x, row, wide, face, letters, text in boxes:
        tower_box(axes, x, rows[row], wide, 0.46, face, text, letters=letters, size=MEDIUM)
    for x, start, end, colour in (
        (0.75, "reads", "sum", CONTEXT),  # the feature is added as it is
        (1.6, "reads", "attention", CONTEXT),
        (3.1, "reads", "attention", GREY),
        (2.55, "attention", "sum", GREY),
        (2.15, "sum", "output", GREY),
        (2.15, "output", "head", GREY),
    ):
        arrow(axes, (x, rows[start] + 0.25), (x, rows[end] - 0.26), colour)
    turn, foot = 4.2, rows["reads"]
    axes.plot(
        [right, turn, turn, 0.08, 0.08],
        [rows["output"], rows["output"], foot - 0.34, foot - 0.34, foot],
        color=BLOCK,
        lw=1.8,
    )
    arrow(axes, (0.08, foot), (left - 0.02, foot), BLOCK)
    axes.text(
        turn + 0.08,
        -2.6,
        "in the next\npass the\noutput takes\nthe feature's\nplace",
        ha="left",
        va="center",
        fontsize=MEDIUM,
        color=BLACK,
    )
    return fig


def cache_cells(from_target: list[bool], committed: list[bool], stays: list[bool] | None = None):
    """Draw the cells of a chain's cache after a round, one per pair: whose feature the pair had, and whether its token was committed.

    With `stays`, a row shows what of them the next round finds, and which accepted drafts are entered anew.
    """
    cached = sum(from_target) - 1
    names = ["text's"] * cached + ["anchor's"]
    names += [f"draft {k}'s" for k in range(1, len(from_target) - cached)]
    targets, drafter_look = ("target's", CONTEXT, "white"), ("its own", BLOCK, BLACK)
    rows = {
        "feature in\nthe pair": [targets if target else drafter_look for target in from_target],
        "token in\nthe pair": [
            ("in text", "white", BLACK) if survives else ("refused", "white", REJECTED)
            for survives in committed
        ],
    }
    if stays is not None:
        entered = {True: ("enters", CONTEXT, "white"), False: None}
        rows["next round"] = [
            (targets if target else drafter_look)
            if survives
            else entered[committed[k] and not target]
            for k, (survives, target) in enumerate(zip(stays, from_target))
        ]
    wide, label, line = 0.66, 0.85, 0.42
    fig, axes = inch_canvas(label + wide * len(names) + 0.05, 0.55 + line * len(rows))
    for k, name in enumerate(names):
        write(axes, label + wide * (k + 0.5), -0.22, f"{name}\npair")
    for number, (name, row) in enumerate(rows.items()):
        y = -0.7 - line * number
        axes.text(0.05, y, name, va="center", fontsize=SMALL)
        for k, cell in enumerate(row):
            if cell is None:
                continue
            text, face, letters = cell
            left = label + wide * k + 0.03
            rounded_box(axes, left, y, wide - 0.06, 0.32, face, GREY, corner=0.06, lw=1)
            write(axes, left + wide / 2 - 0.03, y, text, colour=letters)
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
    label_ends(
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


def here_and_paper(here: dict, paper: dict, domain: str):
    """Draw conditional acceptance by position in a domain: here {drafter: [Estimate]} above, the paper's {drafter: [value]}
    below."""
    fig, (ours, theirs) = figure(rows=2, height=2.5, sharey=True, sharex=True)
    for name, estimates in here.items():
        draw_positions(ours, estimates, drafter_style(name))
        theirs.plot(range(1, len(paper[name]) + 1), paper[name], **hollow(drafter_style(name)))
    for axes, title in (
        (ours, f"{domain}, measured here"),
        (theirs, f"{domain}, the paper's Figure 2"),
    ):
        axes.set_title(title)
        axes.set(xlabel="draft position", ylim=(0.3, 1.02))
        axes.set_ylabel("accepted, given that\nall before were")
        axes.label_outer()
    label_ends(ours, [last_point(lengths, drafter_style(name)) for name, lengths in here.items()])
    label_ends(
        theirs,
        [
            (len(values), values[-1], DRAFTER_LABELS[name], drafter_style(name)["color"])
            for name, values in paper.items()
        ],
    )
    return fig


def passes_figure(curves: dict[str, tuple[list, list]]):
    """Draw chance of acceptance by pass of two trainings, {title: (with the target's features, with its own output)}, on one
    scale; titles say how far the lines end apart."""
    fig, panels = figure(len(curves), width=3.0, height=3.0, sharey=True)
    for axes, (title, (with_features, with_outputs)) in zip(panels, curves.items()):
        axes.plot(
            range(1, len(with_features) + 1),
            with_features,
            color=CONTEXT,
            marker="s",
            linestyle="--",
        )
        axes.plot(range(1, len(with_outputs) + 1), with_outputs, color=BLOCK, marker="o")
        axes.set(xlabel="pass", xticks=range(1, len(with_outputs) + 1), ylim=(0.45, 0.75))
        axes.set_title(
            f"{title}: {with_outputs[-1] - with_features[-1]:+.2f} at pass {len(with_outputs)}"
        )
        for line, (text, colour) in enumerate(
            (
                ("reads the target's features", CONTEXT),
                ("reads its own output", BLOCK),
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
    panels[0].set_ylabel("chance of acceptance, measured")
    return fig


def token_cost(curves: dict[str, list[float]], plain: float, title: str):
    """Draw milliseconds per token by draft length (from 1) for every drafter, its best length ringed (rings of several sizes,
    since two may lie together), and plain decoding; the title names the cheapest of all."""
    fig, axes = figure()
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
    label_ends(
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
