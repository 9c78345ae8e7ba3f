"""Figures of lesson 04: DFlash drawn, who sees what, marginals of a block, pairs of tokens, acceptance by position."""

import numpy as np
import torch
from matplotlib.patches import Patch, Rectangle

from ..measure.multimodality import waste
from .style import (
    BLACK,
    BLUE,
    DARK,
    DRAFTER_STYLES,
    GREY,
    PALE,
    RED,
    SMALL,
    drafter_style,
    draw_mask,
    draw_positions,
    figure,
    label_ends,
    last_point,
    write,
)
from .token_boxes import arrow, inch_canvas, shown, token_labels, tower_box

CONTEXT = BLUE  # what comes from the target
BLOCK = DRAFTER_STYLES["dflash"][0]  # what DFlash computes


def attention_picture(context: int, gamma: int):
    """Draw which keys (columns) each query (row) sees: the target verifying `gamma` drafts (causal), and the drafter drafting
    them."""
    verifying = np.tril(np.ones((gamma + 1, context + gamma + 1)), context)
    drafting = np.ones((gamma, context + gamma))
    fig, panels = figure(rows=2, height=2.9)
    views = (
        (verifying, f"target, verifying {gamma} drafts: no token sees a later one", "draft"),
        (drafting, "drafter, drafting them: every slot sees all", "mask"),
    )
    for axes, (seen, title, slot) in zip(panels, views):
        draw_mask(axes, seen, context, (PALE, DARK))  # without a hue: hues are the drafters'
        rows, columns = seen.shape
        block = ["anchor", *(f"{slot} {k}" for k in range(1, rows))]
        axes.set(
            xlabel="key (-1 is the last token before the anchor)",
            xticks=range(columns),
            yticks=range(rows),
            yticklabels=block,
        )
        axes.set_title(title)
        axes.set_xticklabels(
            [*(f"{-n}" for n in range(context, 0, -1)), *block], rotation=90, fontsize=SMALL
        )
        axes.set_xticks([x - 0.5 for x in range(columns)], minor=True)
        axes.set_yticks([y - 0.5 for y in range(rows)], minor=True)
        axes.grid(which="minor", color="white", alpha=1)
        axes.tick_params(which="both", length=0)
    panels[0].set_ylabel("query")
    fig.legend(
        handles=[
            Patch(color=PALE, label="sees it, in the context"),
            Patch(color=DARK, label="sees it, in the block"),
            Patch(facecolor="white", edgecolor=GREY, label="does not see it"),
        ],
        loc="outside lower center",
        ncols=3,
    )
    return fig


def block_marginals(lab, probs, anchor: str):
    """Draw the most likely tokens of each slot of probs [g, V], from 0.5 % up, shaded by probability."""
    count = 5  # of a slot
    values, tokens = probs.float().cpu().topk(count, -1)  # [g, count]
    slots = len(values)
    fig, axes = figure(width=1.15 * slots + 0.9, height=0.42 * count + 0.9)
    # One scale of colours, so that figures can be compared.
    axes.imshow(values.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for k in range(slots):
        for rank, label in enumerate(token_labels(lab, tokens[k])):
            if values[k, rank] >= 0.005:
                write(
                    axes,
                    k,
                    rank,
                    f"{label}\n{values[k, rank]:.0%}",
                    colour="white" if values[k, rank] > 0.6 else BLACK,
                )
    sure = int((values[:, 0] > 0.5).sum())
    axes.set_title(
        f"after the anchor '{shown(anchor)}': {sure} of {slots} slots are sure of their token (above 50 %)",
    )
    axes.set(
        xlabel="draft position",
        ylabel="rank (blank: below 0.5 %)",
        xticks=range(slots),
        xticklabels=range(1, slots + 1),
        yticks=range(count),
        yticklabels=range(1, count + 1),
    )
    axes.grid(False)
    return fig


def pair_maps(tables: dict, first: list[str], second: list[str]):
    """Draw heat maps of tables [rows, columns], title to values, of the probability of a first token (row) and a second; the
    first table is the target's, and each title has the share that lies on pairs that it hardly
    writes, the waste; their cells are framed."""
    fig, panels = figure(len(tables), width=4.0, height=3.3, sharey=True)
    tables = {title: torch.as_tensor(table).float().cpu() for title, table in tables.items()}
    highest = max(float(table.max()) for table in tables.values())
    first_table = next(iter(tables.values()))
    for axes, (title, table) in zip(panels, tables.items()):
        axes.imshow(table, cmap="Blues", vmin=0, vmax=highest)
        for row, values in enumerate(table.tolist()):
            for column, value in enumerate(values):
                if value >= 0.005:
                    write(
                        axes,
                        column,
                        row,
                        f"{value:.0%}",
                        colour="white" if value > 0.6 * highest else BLACK,
                    )
                    if first_table[row, column] < 0.005:
                        corner = (column - 0.5, row - 0.5)
                        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor=RED, lw=2))
        axes.set_title(f"{title}\nwaste: {waste(table, first_table):.0%}")
        axes.set(
            xlabel="second token",
            xticks=range(len(second)),
            yticks=range(len(first)),
            yticklabels=first,
        )
        axes.set_xticklabels(second, rotation=60, ha="right")
        axes.tick_params(labelleft=True)
        axes.grid(False)
    panels[0].set_ylabel("first token")
    return fig


TOWER_BOTTOM, TOWER_HEIGHT = -4.15, 2.9  # inches, of the target and of the draft
CONTEXT_Y = -2.7  # inches, of the context vectors


def dflash_picture(layers: int, taps, draft_layers: int, gamma: int):
    """Draw DFlash beside its target: tapped layers of the target become context vectors, which are keys and values in every
    layer of the draft; the block goes in below and comes out above, all slots at once."""
    fig, axes = inch_canvas(9.7, 4.9)
    _draw_target(axes, layers, list(taps))
    _draw_context(axes)
    _draw_draft(axes, draft_layers)
    _draw_slots(axes, gamma)
    for x, title in ((1.25, "target"), (7.6, "DFlash: one pass")):
        write(axes, x, -0.15, title, size=10.5, weight="bold")
    return fig


def _draw_target(axes, layers: int, taps: list[int]) -> None:
    """Draw the target's layers, the first below, with an arrow from each tapped one to the context vectors."""
    high = TOWER_HEIGHT / layers
    for layer in range(layers):
        y, tapped = TOWER_BOTTOM + high * (layer + 0.5), layer in taps
        colour, text = (CONTEXT, f"layer {layer}") if tapped else (PALE, "")
        tower_box(axes, 1.25, y, 1.9, 0.8 * high, colour, text, size=7.5, letters="white")
        if tapped:
            entry = 0.25 * (2 * taps.index(layer) / max(1, len(taps) - 1) - 1)
            arrow(axes, (2.22, y), (3.1, CONTEXT_Y + entry), CONTEXT)
    tower_box(axes, 1.25, -0.95, 1.9, 0.3, PALE, "LM head", letters=BLACK)
    tower_box(axes, 1.25, -4.5, 1.9, 0.3, "white", "committed tokens", letters=BLACK)


def _draw_context(axes) -> None:
    """Draw how tapped hidden states become context vectors."""
    mixed = "side by side,\nmixed by $W_c$,\nnormed"
    tower_box(axes, 3.95, CONTEXT_Y, 1.65, 0.85, CONTEXT, mixed, letters="white")
    below = "context vectors, one per token:\nkeys and values, no queries"
    look = {"ha": "center", "fontsize": SMALL, "color": CONTEXT}
    axes.text(3.95, -3.3, below, va="top", **look)
    axes.text(5.2, -1.55, "keys and\nvalues", **look)


def _draw_draft(axes, layers: int) -> None:
    """Draw the draft's layers, each with an arrow from the context vectors and one to the layer above, and the LM head."""
    high = TOWER_HEIGHT / layers
    for layer in range(layers):
        y = TOWER_BOTTOM + high * (layer + 0.5)
        tower_box(axes, 7.6, y, 3.9, 0.62 * high, BLOCK, f"draft layer {layer}", letters=BLACK)
        arrow(axes, (4.8, CONTEXT_Y), (5.62, y), CONTEXT)
        end = 0.67 if layer < layers - 1 else 0.58
        arrow(axes, (7.6, y + 0.31 * high), (7.6, y + end * high), GREY)
    tower_box(axes, 7.6, -0.95, 3.9, 0.3, PALE, "LM head, the target's", letters=BLACK)


def _draw_slots(axes, gamma: int) -> None:
    """Draw what goes into each of `gamma` slots, below, and the draft that comes out, above."""
    wide = 3.9 / gamma
    size = min(8, 13.5 * wide)
    for slot in range(gamma):
        x = 5.65 + wide * (slot + 0.5)
        colour, word, letters = (BLACK, "anchor", "white") if slot == 0 else ("white", "mask", GREY)
        tower_box(axes, x, -4.5, wide - 0.06, 0.3, colour, word, size=size, letters=letters)
        draft = f"draft {slot + 1}"
        tower_box(
            axes, x, -0.5, wide - 0.06, 0.3, "white", draft, edge=BLOCK, size=size, letters=BLACK
        )
        for start in (-4.33, -0.8):
            arrow(axes, (x, start), (x, start + 0.16), GREY)


def falling_acceptance(found: dict[str, dict[str, list]]):
    """Draw conditional acceptance by draft position, a panel per domain, {domain: {drafter: [Estimate or None] by position}}. A
    line ends before the first position that hardly a round reached, with its label there. A title compares the last of DFlash's
    drafts with the first."""
    fig, panels = figure(len(found), width=4.0, sharey=True)
    for axes, (domain, by_name) in zip(panels, found.items()):
        for index, (name, estimates) in enumerate(by_name.items()):
            draw_positions(
                axes, estimates, drafter_style(name), shift=0.08 * (index - (len(by_name) - 1) / 2)
            )
        axes.set_xticks(range(1, max(map(len, by_name.values())) + 1))
        first, *_, last = (estimate.value for estimate in by_name["dflash"] if estimate is not None)
        axes.set_title(f"{domain}: DFlash from {first:.0%} to {last:.0%}")
        axes.label_outer()
    ends = [
        (*last_point(estimates, drafter_style(name)), estimates)
        for name, estimates in by_name.items()
    ]
    right = max(x for x, *_ in ends)
    # A line that ends early has its label under its interval.
    label_ends(
        panels[-1],
        [(x, y if x == right else estimates[x - 1].low, *rest) for x, y, *rest, estimates in ends],
    )
    return fig
