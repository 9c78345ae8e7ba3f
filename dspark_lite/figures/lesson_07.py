"""Figures of lesson 07: packed blocks and who sees what in them, labels, weights, losses."""

import numpy as np
import torch
from matplotlib.colors import ListedColormap

from .style import BLACK, BLUE, GREY, ORANGE, RED, SKY, drafter_style, figure


def packing_picture(mask, anchors: list[int], length: int):
    """Who sees what when blocks are packed: mask [K * g, n + K * g], slot rows against keys, for `anchors` [K] in a
    context of `length` tokens."""
    seen = np.array(mask, dtype=float)
    slots = len(seen)
    gamma = slots // len(anchors)
    seen[:, length:] *= 2  # context and blocks in two colours
    fig, axes = figure(width=min(0.16 * (length + slots) + 1.6, 10), height=min(0.16 * slots + 1.1, 7))
    axes.imshow(seen, cmap=ListedColormap(["white", SKY, ORANGE]), vmin=0, vmax=2, aspect="auto")
    axes.axvline(length - 0.5, color=BLACK, linewidth=1.5)
    for block in range(1, len(anchors)):
        axes.axhline(block * gamma - 0.5, color=GREY, linewidth=0.6)
    step = max(1, length // 12)
    centres = [block * gamma + (gamma - 1) / 2 for block in range(len(anchors))]
    axes.set(xticks=[*range(0, length, step), *(length + centre for centre in centres)], yticks=centres,
             xticklabels=[*range(0, length, step), *(f"block {block + 1}" for block in range(len(anchors)))],
             yticklabels=[f"block {block + 1}, anchor {anchor}" for block, anchor in enumerate(anchors)],
             xlabel="key: context position | slots of the blocks", ylabel="query",
             xlim=(-0.5, length + slots - 0.5), ylim=(slots - 0.5, -0.5))
    axes.set_title(f"{slots} slots in one pass, {np.mean(seen > 0):.0%} of the table visible", fontsize=9)
    for axis, count in ((axes.xaxis, length + slots), (axes.yaxis, slots)):
        axis.remove_overlapping_locs = False  # a label may stand on a line of the grid
        axis.set_ticks([k - 0.5 for k in range(count)], minor=True)
    axes.grid(False)
    axes.grid(which="minor", color="white", alpha=1, linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(axis="x", rotation=90, labelsize=8)
    axes.tick_params(axis="y", labelsize=8)
    return fig


def who_notices(moved, places: list[int], anchors: list[int]):
    """How much each block's hidden states move when one token of the text is changed: moved [P, K], by the changed
    place and the block; white is not at all. A line stands behind each block's anchor."""
    moved = torch.as_tensor(moved).float().cpu().T  # [K, P]
    fig, axes = figure(width=8.2, height=0.5 * len(anchors) + 1.0)
    image = axes.imshow(moved / moved.max(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for block, anchor in enumerate(anchors):
        edge = sum(place <= anchor for place in places) - 0.5
        axes.plot([edge, edge], [block - 0.5, block + 0.5], color=RED, linewidth=2.5,
                  label="everything to the right is the future" if block == 0 else None)
        for column, value in enumerate(moved[block].tolist()):
            axes.text(column, block, f"{value:.1f}" if value > 0 else "0", ha="center", va="center", fontsize=7,
                      color="white" if value > 0.6 * moved.max() else BLACK)
    axes.set(xticks=range(len(places)), xticklabels=places, yticks=range(len(anchors)),
             yticklabels=[f"block {block + 1}, anchor {anchor}" for block, anchor in enumerate(anchors)],
             xlabel="position of the changed token")
    axes.tick_params(axis="x", rotation=90, labelsize=8)
    axes.grid(False)
    fig.colorbar(image, ax=axes, label="largest change (share)")
    fig.legend(*axes.get_legend_handles_labels(), loc="outside upper center", fontsize=8)
    return fig


def label_scatter(labels, accepted):
    """The share of drawn drafts that were accepted against the label 1 - L1/2, a dot a slot, and the line 1 - TV/2."""
    fig, axes = figure(width=4.4, height=4.0)
    labels, accepted = (torch.as_tensor(values).float().cpu() for values in (labels, accepted))
    axes.plot([0, 1], [0.5, 1], color=RED, linestyle="--", label="1 − TV/2")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="equal")
    axes.plot(labels, accepted, color=BLUE, marker="o", markersize=4, alpha=0.5, linestyle="", label="slots")
    axes.set(xlabel="label: 1 − L1/2", ylabel="share of drawn drafts accepted", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.legend(loc="lower right", fontsize=8)
    return fig


def position_weight_figure(weights: list[float], reached: list[float]):
    """Weights of the losses and the share of rounds that reach a position, by draft position."""
    fig, axes = figure()
    position = range(1, len(weights) + 1)
    axes.plot(position, weights, color=BLACK, marker="s", linestyle="--", label="weight in the losses")
    axes.plot(position, reached, **{**drafter_style("dspark"), "label": "share of rounds that reach it"})
    axes.set(xlabel="draft position", xticks=position, ylim=(0, 1.05))
    axes.legend()
    return fig


def loss_curves(log: list[dict]):
    """One panel for every loss in the records of a training log: each step, and the mean over a fortieth of all steps."""
    window = max(1, len(log) // 40)
    names = [name for name in log[0] if name != "step"]
    fig, panels = figure(len(names), width=3.6, height=2.9, squeeze=False)
    for axes, name in zip(panels[0], names):
        steps, values = [entry["step"] + 1 for entry in log], np.array([entry[name] for entry in log])
        axes.plot(steps, values, color=SKY, linewidth=0.8, alpha=0.7)
        means = np.convolve(values, np.ones(window) / window, "valid")
        axes.plot(steps[-len(means):], means, color=BLUE)
        highest = 1.2 * np.quantile(values, 0.98)  # the first steps may be far off
        axes.set(title=name.replace("_", "-").replace("l1", "L1"), xlabel="step", ylim=(0, highest))
    panels[0][0].set_ylabel("loss")
    return fig
