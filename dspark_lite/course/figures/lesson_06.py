"""Figures of lesson 06: the passes of an autoregressive draft, what they accept, what a token costs."""

import numpy as np

from ..estimates import Estimate
from ..names import DRAFTER_LABELS
from .lesson_04 import BLOCK, CONTEXT
from .style import (
    BLACK,
    BLUE,
    DARK,
    GREEN,
    GREY,
    MEDIUM,
    ORANGE,
    PALE,
    REJECTED,
    SMALL,
    drafter_style,
    draw_estimates,
    draw_positions,
    figure,
    hollow,
    label_ends,
    last_point,
    log_ticks,
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
    """Draw three passes of a chain, column by column: the token and the feature that each reads, its output, and its draft. Each
    output is the next pass's feature; a pass attends to the cached pairs and to those of the passes before it."""
    fig, axes = inch_canvas(5.72, 3.45)
    wide, half = 1.4, 0.66  # inches of a pass, and of a box in its pair
    draft, output, run, reads, names = -0.25, -1.05, -1.85, -2.85, -3.3
    columns = (1.55, 3.25, 4.95)
    read, written = ("sat", "on", "the"), ("on", "the", "mat")
    rounded_box(axes, 0.05, run, 0.62, 0.9, PALE, GREY, corner=0.05, lw=1)
    write(axes, 0.36, run, "cached\npairs", size=MEDIUM)
    under = run - 0.36  # the way from the cached pairs to each pass
    axes.plot([0.67, columns[-1]], [under, under], color=GREY, lw=1.1, zorder=0)
    for k, x in enumerate(columns):
        feature, letters = ("output\nof pass %d" % k, BLACK) if k else ("feature\nof cat", "white")
        left, right = x - wide / 2 + half / 2, x + wide / 2 - half / 2
        face = BLOCK if k else CONTEXT
        tower_box(axes, left, reads, half, 0.5, face, feature, letters, size=MEDIUM)
        tower_box(axes, right, reads, half, 0.5, "white", read[k], BLACK, size=MEDIUM)
        tower_box(axes, x, run, wide, 0.42, PALE, f"pass {k + 1}", BLACK, size=MEDIUM)
        tower_box(axes, x, output, wide, 0.42, BLOCK, f"output of pass {k + 1}", BLACK, size=MEDIUM)
        tower_box(axes, x, draft, wide, 0.42, "white", f"draft: {written[k]}", BLACK, size=MEDIUM)
        arrow(axes, (left, reads + 0.25), (left, run - 0.21), face)
        arrow(axes, (right, reads + 0.25), (right, run - 0.21), GREY)
        arrow(axes, (x, under), (x, run - 0.21), GREY)
        if k:
            earlier = "+ pair 1" if k == 1 else f"+ pairs 1, {k}"
            write(axes, x, under - 0.14, earlier, colour=DARK)
        arrow(axes, (x, run + 0.21), (x, output - 0.21), GREY)
        arrow(axes, (x, output + 0.21), (x, draft - 0.21), GREY)
        axes.text(x + 0.08, (draft + output) / 2, "LM head", va="center", fontsize=SMALL)
        if k < len(columns) - 1:
            turn = x + wide / 2 + 0.15
            axes.plot([x + wide / 2, turn, turn], [output, output, reads], color=BLOCK, lw=1.8)
            arrow(axes, (turn, reads), (columns[k + 1] - wide / 2, reads), BLOCK, lw=1.8)
    for x, text in ((-wide / 2 + half / 2, "feature"), (wide / 2 - half / 2, "token")):
        write(axes, columns[0] + x, names, text, colour=GREY)
    return fig


def cache_cells(in_text: list[bool], gamma: int, stays: list[bool] | None = None):
    """Draw the cells of a chain's cache after a round with `gamma` passes, one per pair: whether its token is in the text.

    With `stays`, a dot under each cell shows whose feature the pair had, blue for the target's, orange for the drafter's own; the next
    row shows what of the cells the next round finds, with the accepted drafts that are entered anew.
    """
    cached = len(in_text) - gamma
    names = ["text's"] * cached + ["anchor's"] + [f"draft {k}'s" for k in range(1, gamma)]
    targets, own = ("target's", CONTEXT, "white"), ("its own", BLOCK, BLACK)
    rows = {
        "token in\nthe pair": [
            ("in text", "white", BLACK) if kept else ("refused", "white", REJECTED)
            for kept in in_text
        ],
    }
    if stays is not None:
        features = [targets if place <= cached else own for place in range(len(in_text))]
        entered = {True: ("enters", CONTEXT, "white"), False: None}
        rows["feature in\nthe pair"] = [("", feature[1], "") for feature in features]
        rows["next round"] = [
            feature if kept else entered[in_text[k] and feature == own]
            for k, (kept, feature) in enumerate(zip(stays, features))
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
            if not text:
                axes.plot(left + wide / 2 - 0.03, y, "o", color=face, markersize=9)
                continue
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


def passes_figure(forced: tuple[list, list], unrolled: tuple[list, list]):
    """Draw two trainings, each (chances of acceptance by pass with the target's features, with its own output). Above the chances, of
    teacher forcing both, of the training-time test with its own output. Below by how many per cent the training-time test commits
    more tokens per round, by the length of the chain."""
    fig, (above, below) = figure(rows=2, height=2.5)
    passes = range(1, len(forced[0]) + 1)
    lines = (
        (forced[0], CONTEXT, "--", "teacher forcing,\nthe target's features", (0, 6), "bottom"),
        (unrolled[1], GREEN, "-", "training-time test,\nits own output", (0, -6), "top"),
        (forced[1], BLOCK, "-", "teacher forcing,\nits own output", (-4, -4), "top"),
    )
    for chances, colour, line, label, shift, side in lines:
        above.plot(passes, chances, color=colour, linestyle=line, marker="o", markersize=4)
        above.annotate(
            label,
            (passes[-1], chances[-1]),
            shift,
            textcoords="offset points",
            ha="right",
            va=side,
            fontsize=SMALL,
            color=colour,
        )
    low, high = min(forced[1]), max(*forced[0], *unrolled[0])
    above.set(xlabel="pass", ylabel="chance of acceptance", ylim=(low - 0.06, high + 0.06))
    above.set_title("Chance of acceptance")
    below.plot(passes, lead_by_length(forced[1], unrolled[1]), color=GREEN, marker="o")
    below.axhline(0, color=BLACK, linewidth=0.8)
    below.set(xlabel="passes of a chain", ylabel="more tokens per round (%)")
    below.set_title("Training-time test over teacher forcing")
    for axes in (above, below):
        axes.set_xticks(passes)
    return fig


def lead_by_length(forced: list[float], unrolled: list[float]) -> np.ndarray:
    """Return by how many per cent tau is larger after the training-time test, for chains of 1 to n passes, from chances by pass."""
    ours, theirs = (1 + np.cumsum(np.cumprod(chances)) for chances in (unrolled, forced))
    return 100 * (ours / theirs - 1)


def over_mtp(gains: dict[str, dict[int, Estimate]]):
    """Draw how many times as many tokens per second blocks write as MTP-1, {machine: {requests: Estimate}}, and where the two are
    level."""
    fig, axes = figure()
    colours = dict(zip(gains, (BLUE, ORANGE, GREY)))
    ends = []
    for name, by_load in gains.items():
        style = {"color": colours[name], "marker": "o"}
        draw_estimates(axes, list(by_load), list(by_load.values()), style)
        last = max(by_load)
        ends.append((last, by_load[last].value, name, colours[name]))
    axes.axhline(1, color=BLACK, linewidth=1, linestyle="--")
    axes.annotate("level with MTP-1", (1, 1), (0, -11), textcoords="offset points", fontsize=SMALL)
    axes.set(ylim=(0.6, None), ylabel="tokens per second over MTP-1's")
    log_ticks(
        axes, sorted({load for by_load in gains.values() for load in by_load}), "requests under way"
    )
    label_ends(axes, ends)
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
