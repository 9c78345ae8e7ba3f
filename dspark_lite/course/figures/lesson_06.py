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
    fig, axes = inch_canvas(5.2, 3.7)
    centre, wide = 2.1, 3.6
    for x, face, text, letters in (
        (centre - 0.95, CONTEXT, "feature $f_i$:\nseveral layers, mixed", "white"),
        (centre + 0.95, "white", "embedding of $x_{i+1}$,\nthe token after it", BLACK),
    ):
        tower_box(axes, x, -3.3, 1.7, 0.5, face, text, letters=letters, size=MEDIUM)
        arrow(axes, (x, -3.03), (x, -2.53), GREY)
    for y, text, face in (
        (-2.3, "attention reads both side by side", BLOCK),
        (-1.45, "its result is added to the feature,\nthen the MLP adds its own", BLOCK),
        (-0.45, "LM head: the draft $x_{i+2}$", PALE),
    ):
        tower_box(axes, centre, y, wide, 0.45, face, text, letters=BLACK, size=MEDIUM)
    for y in (-2.06, -1.21):
        arrow(axes, (centre, y), (centre, y + (0.38 if y < -2 else 0.53)), GREY)
    axes.plot([3.92, 4.2, 4.2, 0.06, 0.06], [-1.45, -1.45, -3.64, -3.64, -3.3], color=BLOCK, lw=1.8)
    arrow(axes, (0.06, -3.3), (0.3, -3.3), BLOCK)
    axes.text(
        4.27,
        -2.5,
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
    names = ["text"] * cached + ["anchor"]
    names += [f"draft {k}" for k in range(1, len(from_target) - cached)]
    rows = {
        "feature of": [
            ("target's", CONTEXT, "white") if target else ("its own", PALE, BLACK)
            for target in from_target
        ],
        "token": [
            ("in text", "white", BLACK) if kept else ("refused", "white", REJECTED)
            for kept in committed
        ],
    }
    if stays is not None:
        entered = {True: ("enters", CONTEXT, "white"), False: None}
        rows["after"] = [
            (("target's", CONTEXT, "white") if target else ("its own", PALE, BLACK))
            if kept
            else entered[committed[k] and not target]
            for k, (kept, target) in enumerate(zip(stays, from_target))
        ]
    wide, label, line = 0.62, 0.82, 0.42
    fig, axes = inch_canvas(label + wide * len(names) + 0.05, 0.4 + line * len(rows))
    for k, name in enumerate(names):
        write(axes, label + wide * (k + 0.5), -0.2, name)
    for number, (name, row) in enumerate(rows.items()):
        y = -0.55 - line * number
        axes.text(0.05, y, name, va="center")
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
    label_ends(ours, [last_point(found, drafter_style(name)) for name, found in here.items()])
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
    for axes, (title, (given, own)) in zip(panels, curves.items()):
        axes.plot(range(1, len(given) + 1), given, color=GREY, marker="s", linestyle="--")
        axes.plot(range(1, len(own) + 1), own, **drafter_style("eagle3"))
        axes.set(xlabel="pass", xticks=range(1, len(own) + 1), ylim=(0.45, 0.75))
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
