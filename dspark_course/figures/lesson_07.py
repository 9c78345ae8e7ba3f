"""Figures of lesson 07: packed blocks and who sees what in them, labels, weights, losses, and why a name was not copied."""

import numpy as np
import torch
from matplotlib.colors import ListedColormap

from .style import (BLACK, BLUE, DRAFTER_STYLES, GREY, ORANGE, RED, SKY, draw_positions, drafter_style, figure, label_ends,
                    measured_on)

# The drafters of the recorded diagnosis: those that are committed, and what each recipe adds to the one that it extends.
CHANGES = {
    "tiny-dspark": "the lab's DSpark", "tiny-dspark-rnn": "the lab's DSpark, RNN head", "tiny-dflash": "the lab's DFlash",
    "diagnosis-0-shipped": "0  the lab's recipe, 381 updates", "diagnosis-1-width": "1  + first weights drawn for the width",
    "diagnosis-2-cross-entropy-first": "2  + cross-entropy alone for 30 % of the time", "diagnosis-3-muon": "3  + Muon moves the matrices",
    "diagnosis-3-muon-rnn": "3, with the RNN head", "diagnosis-4-all-anchors": "4  + every position is an anchor",
    "diagnosis-4-all-anchors-rnn": "4, with the RNN head",
    "diagnosis-5-full-length": "the cure",
    "diagnosis-5-full-length-rnn": "the cure, with the RNN head",
}


def packing_picture(mask, anchors: list[int], length: int, learned: int | None = None):
    """Who sees what when blocks are packed: mask [K * g, n + K * g], slot rows against keys, for `anchors` [K] in a
    context of `length` tokens. The title says how many of the slots have something to predict, `learned`, if it is given."""
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
    axes.plot(anchors, centres, "x", color=RED, markersize=7)
    axes.set(xticks=[*range(0, length, step), *(length + centre for centre in centres)], yticks=centres,
             xticklabels=[*range(0, length, step), *(f"block {block + 1}" for block in range(len(anchors)))],
             yticklabels=[f"block {block + 1}, anchor {anchor}" for block, anchor in enumerate(anchors)],
             xlabel="key: context position | slots of the blocks", ylabel="query",
             xlim=(-0.5, length + slots - 0.5), ylim=(slots - 0.5, -0.5))
    counted = f"{slots} slots" if learned is None else f"{learned} predictions by {slots} slots"
    axes.set_title(f"{counted} in one pass, {np.mean(seen > 0):.0%} of the table visible", fontsize=9)
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
    place and the block; white is not at all. A line stands before each block's anchor, a gap where places were left out."""
    moved = torch.as_tensor(moved).float().cpu().T  # [K, P]
    fig, axes = figure(width=8.2, height=0.5 * len(anchors) + 1.0)
    image = axes.imshow(moved.numpy(), cmap="Blues", vmin=0, aspect="auto")
    for column in (k for k in range(1, len(places)) if places[k] > places[k - 1] + 1):
        axes.axvline(column - 0.5, color="white", linewidth=6)
    for block, anchor in enumerate(anchors):
        edge = sum(place < anchor for place in places) - 0.5
        axes.plot([edge, edge], [block - 0.5, block + 0.5], color=RED, linewidth=2.5,
                  label="right of it nothing may move the block" if block == 0 else None)
        for column, value in enumerate(moved[block].tolist()):
            axes.text(column, block, f"{value:.1f}" if value >= 0.05 else f"{value:.1g}", ha="center", va="center", fontsize=7,
                      color="white" if value > 0.6 * moved.max() else BLACK)
    axes.set(xticks=range(len(places)), xticklabels=places, yticks=range(len(anchors)),
             yticklabels=[f"block {block + 1}, anchor {anchor}" for block, anchor in enumerate(anchors)],
             xlabel="position of the changed token")
    axes.tick_params(axis="x", rotation=90, labelsize=8)
    axes.grid(False)
    fig.colorbar(image, ax=axes, label="largest change")
    future = torch.tensor(places)[None] >= torch.tensor(anchors)[:, None]  # [K, P]
    axes.set_title(f"{int((moved[future] > 0).sum())} of {int(future.sum())} changes from an anchor on move its block", fontsize=10)
    fig.legend(*axes.get_legend_handles_labels(), loc="outside lower right", fontsize=8)
    return fig


def label_scatter(labels, accepted):
    """The share of drawn drafts that were accepted against the label 1 - L1/2, a dot per slot, and the line 1 - TV/2."""
    fig, axes = figure(width=4.4, height=4.0)
    labels, accepted = (torch.as_tensor(values).float().cpu() for values in (labels, accepted))
    axes.plot([0, 1], [0.5, 1], color=RED, linestyle="--")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    axes.plot(labels, accepted, color=BLUE, marker="o", markersize=4, alpha=0.5, linestyle="", label="slots")
    axes.text(0.3, 0.68, "1 − TV/2", color=RED, rotation=24)
    axes.text(0.6, 0.48, "kept as often as the label says", color=GREY, rotation=45, ha="center", va="center", fontsize=8.5)
    axes.set_title("the label is the share that is kept", fontsize=10)
    axes.set(xlabel="label: 1 − L1/2", ylabel="share of drawn drafts accepted", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    return fig


def position_weight_figure(weights: dict[str, list[float]], reached: list[float], added: list[float]):
    """Weights of the losses by draft position, {whose: weights}, the share of rounds that reach a position, and what it adds
    to the accepted length, of what the first adds; the title says whose weights are nearer to that in the mean."""
    fig, axes = figure()
    position, styles, own = range(1, len(reached) + 1), (("s", "--"), ("D", ":")), drafter_style("dspark")
    for values, (marker, line) in zip(weights.values(), styles):
        axes.plot(position, values, color=BLACK, marker=marker, linestyle=line)
    axes.plot(position, reached, color=own["color"], linewidth=1)
    axes.plot(position, added, **own)
    axes.set(xlabel="draft position", ylabel="of the first position's", xticks=position, ylim=(0, 1.05))
    nearer = min(weights, key=lambda whose: sum(abs(weight - worth) for weight, worth in zip(weights[whose], added)))
    axes.set_title(f"{nearer} weights are nearer to what a position adds", fontsize=10)
    ends = [(len(reached), values[-1], f"{whose} weights", BLACK) for whose, values in weights.items()]
    measured = [(len(reached), values[-1], label, own["color"])
                for values, label in ((reached, "rounds that reach it"), (added, "what it adds"))]
    label_ends(axes, [*ends, *measured], gap=0.08)
    return fig


def loss_curves(log: list[dict], others: dict[str, list[dict]] | None = None):
    """One panel for every loss in the records of a training log: each step, and the mean over a fortieth of all steps; the
    titles say where the means begin and end. The means of `others`, logs by their names, are laid over them."""
    window = max(1, len(log) // 40)
    names = [name for name in log[0] if name != "step"]
    fig, panels = figure(len(names), width=3.6, height=2.9, squeeze=False)
    for axes, name in zip(panels[0], names):
        values = np.array([entry[name] for entry in log])
        axes.plot([entry["step"] + 1 for entry in log], values, color=SKY, linewidth=0.8, alpha=0.7, label="each step")
        means = draw_means(axes, log, name, window, BLUE, f"mean of {window}")
        for (label, other), colour in zip((others or {}).items(), (ORANGE, BLACK, RED)):
            draw_means(axes, other, name, window, colour, label)
        highest = max(1.2 * np.quantile(values, 0.98), 1.05 * means[0])  # single steps may be far off
        axes.set_title(f"{name.replace('_', '-').replace('l1', 'L1')}: from {means[0]:.2f} to {means[-1]:.2f}", fontsize=10)
        axes.set(xlabel="step", ylim=(0, highest))
    panels[0][0].set_ylabel("loss")
    panels[0][0].legend(fontsize=8.5)
    return fig


def draw_means(axes, log: list[dict], name: str, window: int, colour: str, label: str) -> np.ndarray:
    """Draws the means of a loss over `window` steps each and returns them; of a log without this loss there are none."""
    values = np.array([entry[name] for entry in log if name in entry])
    means = np.convolve(values, np.ones(window) / window, "valid") if len(values) >= window else values
    axes.plot([entry["step"] + 1 for entry in log][len(log) - len(means):], means, color=colour, label=label)
    return means


def missing_name(positions: dict[str, list], names: list[str], chances: dict[str, list[float]]):
    """Where a drafter fails: conditional acceptance by position on code, {drafter: [Estimate]}, and, after one `def`, the
    chances [n] that "target" and the drafters give to some first tokens of the function's name."""
    fig, (curve, bars) = figure(2, width=4.9)
    for name, estimates in positions.items():
        draw_positions(curve, estimates, drafter_style(name))
    curve.set_title("code, by position (the axis begins at 0.7)", fontsize=10)
    curve.set_ylim(0.7, 1.0)
    label_ends(curve, [(len(estimates), estimates[-1].value, drafter_style(name)["label"], drafter_style(name)["color"])
                       for name, estimates in positions.items()])
    width = 0.8 / len(chances)
    for index, (name, values) in enumerate(chances.items()):
        colour, label = (BLACK, "target") if name == "target" else (DRAFTER_STYLES[name][0], drafter_style(name)["label"])
        places = [k + width * (index - (len(chances) - 1) / 2) for k in range(len(names))]
        bars.bar(places, values, width, color=colour, label=label)
    bars.set(xticks=range(len(names)), ylabel="chance as the first token of the name", ylim=(0, 1.05))
    bars.set_xticklabels(names, rotation=30, ha="right")
    first = names[int(np.argmax(chances["target"]))]
    bars.set_title(f"after `def` the target writes '{first}'", fontsize=10)
    bars.grid(axis="x", visible=False)
    bars.legend(fontsize=8.5)
    return fig


def pull_figure(chance, pulls: dict[str, tuple], guess: float):
    """How strongly losses pull at the right token by its chance, {label: (pull, colour)}; a line stands at `guess`."""
    fig, axes = figure()
    for label, (values, colour) in pulls.items():
        axes.plot(chance, values, color=colour)
        pull = np.interp(guess, chance, values)
        axes.plot(guess, pull, "o", color=colour)
        axes.annotate(f"{label}: {pull:.2f}", (guess, pull), (12, -10), textcoords="offset points", fontsize=8.5,
                      color=colour, bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    axes.axvline(guess, color=GREY, linestyle="--", linewidth=1)
    axes.set(xlabel="chance that the drafter gives the right token", ylabel="pull on its logit", xlim=(0, 1), ylim=(0, 1.05))
    axes.set_title(f"at a guess among {round(1 / guess)} (dashed) the two losses pull unequally", fontsize=10)
    return fig


def copied_names(drafters: list[dict], device: str):
    """What changes to a training brought, a row for each of `drafters` as recorded in diagnosis.json: the chance
    that the first and the second token of a function's name are accepted, and the L1 loss on the same answers."""
    first, second = zip(*(drafter["name_acceptance"][:2] for drafter in drafters))
    fig, axes = figure(width=8.4, height=0.36 * len(drafters) + 1.5)
    axes.hlines(range(len(drafters)), first, second, color=GREY, linewidth=1)
    axes.plot(first, range(len(drafters)), "o", color=BLUE, label="first token of the name")
    axes.plot(second, range(len(drafters)), "o", color=BLUE, markersize=11, markerfacecolor="none", label="second token")
    for row, drafter in enumerate(drafters):
        axes.text(1.06, row, f"{drafter['held_out_losses']['l1']:.3f}", va="center", fontsize=9)
    axes.text(1.06, -0.85, "L1 loss", va="center", fontsize=8.5, color=GREY)
    axes.set(yticks=range(len(drafters)), xlim=(0, 1.03), ylim=(len(drafters) - 0.5, -0.6), xlabel="chance that the draft is accepted")
    axes.set_yticklabels([CHANGES[drafter["drafter"]] for drafter in drafters])
    axes.set_title(f"the first token of the name: from {first[0]:.2f} to {max(first):.2f}", fontsize=10, loc="left")
    fig.legend(fontsize=8.5, loc="outside lower left", ncols=2)
    measured_on(axes, device)
    return fig


def after_def(drafters: list[dict], turn: float | None = None):
    """Some drafters of diagnosis.json: left the chance of acceptance by position in blocks that begin after `def`,
    right the L1 loss while they were trained, for those that have a log; a dashed line is where the others ended, on the
    held-out answers. A dotted line stands at `turn`, a share of the training."""
    fig, (position, loss) = figure(2, width=4.6)
    ends = {position: [], loss: []}
    for index, (drafter, colour, marker) in enumerate(zip(drafters, (ORANGE, BLUE, BLACK, GREY), "^oDs")):
        label, by_position = CHANGES[drafter["drafter"]].strip("+ "), drafter["position_acceptance"]
        position.plot(range(1, len(by_position) + 1), by_position, color=colour, marker=marker, markersize=9 - 2 * index)
        ends[position].append((len(by_position), by_position[-1], label, colour))
        ends[loss].append((1.0, draw_l1(loss, drafter, colour, marker), label, colour))
    if turn is not None:
        loss.axvline(turn, color=GREY, linestyle=":", linewidth=1)
    position.set(xlabel="position after `def`", ylabel="chance of acceptance", ylim=(0, 1.02), xticks=range(1, len(by_position) + 1))
    loss.set(xlabel="share of the training", ylabel="L1 loss", ylim=(0, None), xlim=(0, 1))
    for axes, some in ends.items():
        label_ends(axes, some)
    return fig


def draw_l1(axes, drafter: dict, colour: str, marker: str) -> float:
    """Draws a drafter's L1 loss over its training and returns the last; without a log it is the line of the held-out loss."""
    curve = drafter["loss_curve"]
    if not curve:
        axes.axhline(drafter["held_out_losses"]["l1"], color=colour, linestyle="--", linewidth=1)
        return drafter["held_out_losses"]["l1"]
    steps = np.array(curve["step"]) / max(curve["step"])
    axes.plot(steps, curve["l1"], color=colour, marker=marker, markevery=len(steps) - 1)
    return curve["l1"][-1]
