"""Figures of lesson 07: pulls, what belongs to which slot, what a position adds, packed blocks, loss curves, what a head brings."""

import numpy as np

from .style import (
    BLACK,
    BLUE,
    DARK,
    DRAFTER_STYLES,
    GREY,
    ORANGE,
    PALE,
    RED,
    SKY,
    SMALL,
    drafter_style,
    draw_mask,
    figure,
    grouped_bars,
    label_ends,
    measured_on,
    write,
)
from .token_boxes import arrow, inch_canvas, tower_box


def slots_picture():
    """Draw the text A B C D E and a block of three slots with the anchor C, column under column: what each slot reads, which token
    its head is given, which token is its label, and where the target's distribution stands. The last slot's label is missing."""
    wide, left, text, slots = 0.86, 1.15, "ABCDE", 3
    fig, axes = inch_canvas(left + wide * (len(text) + 1) + 0.4, 2.75)
    columns = [left + wide * (k + 0.5) for k in range(len(text) + 1)]
    tokens, reads, wanted = -0.62, -1.5, -2.4  # heights of the rows
    for y, label in (
        (-0.2, "place"),
        (tokens, "the target's text"),
        (reads, "a slot reads"),
        (wanted, "the target's p"),
    ):
        axes.text(0.1, y, label, va="center", fontsize=SMALL, color=DARK)
    for place, x in enumerate(columns):
        inside = place < len(text)
        write(axes, x, -0.2, str(place), colour=GREY)
        if inside:
            face = BLACK if place == 2 else "white"
            tower_box(
                axes, x, tokens, 0.44, 0.32, face, text[place], "white" if place == 2 else BLACK
            )
        else:
            write(axes, x, tokens, "(no label)", colour=GREY)
    for slot in range(slots):
        x, counts = columns[2 + slot], slot < slots - 1
        ink = BLACK if counts else GREY
        face, letters = (BLACK, "white") if slot == 0 else ("white", ink)
        name = "anchor" if slot == 0 else "mask"
        tower_box(axes, x, reads, 0.74, 0.36, face, f"{slot + 1}: {name}", letters, edge=ink)
        after = f"after …{text[2 + slot]}"
        tower_box(axes, x, wanted, 0.74, 0.32, "white", after, ink, edge=ink)
        for start, end, colour in (
            ((x - 0.1, tokens - 0.17), (x - 0.1, reads + 0.19), BLUE),
            ((x + 0.12, reads + 0.19), (columns[3 + slot] - 0.2, tokens - 0.18), ORANGE),
            ((x, wanted + 0.17), (x, reads - 0.19), DARK),
        ):
            arrow(axes, start, end, colour if counts else PALE)
    for x, y, words, colour, side in (
        (columns[2] - 0.16, -1.08, "its head is given", BLUE, "right"),
        (columns[2] + 0.26, -0.9, "must say", ORANGE, "center"),
        (columns[2] - 0.06, -1.96, "has to match", DARK, "right"),
    ):
        axes.text(x, y, words, ha=side, va="center", fontsize=SMALL, color=colour)
    axes.text(
        columns[5] - 0.42,
        reads,
        "behind the answer's\nend: does not count",
        va="center",
        fontsize=SMALL,
        color=GREY,
    )
    return fig


def packing_picture(mask, anchors: list[int], length: int, answer: int, learned: int):
    """Draw which keys each slot sees when blocks are packed: mask [K * g, n + K * g] for `anchors` [K] in a context of `length`
    tokens, the answer from place `answer` on. `learned` of the slots have something to predict."""
    seen = np.array(mask)
    slots = len(seen)
    gamma = slots // len(anchors)
    fig, axes = figure(
        width=min(0.16 * (length + slots) + 1.6, 10), height=min(0.16 * slots + 1.1, 7)
    )
    draw_mask(axes, seen, length, (SKY, ORANGE))
    for block in range(1, len(anchors)):
        axes.axhline(block * gamma - 0.5, color=GREY, linewidth=0.6)
    step = max(1, length // 12)
    centres = [block * gamma + (gamma - 1) / 2 for block in range(len(anchors))]
    axes.axvline(answer - 0.5, color=BLACK, linewidth=0.8, linestyle=":")
    axes.text(answer - 0.5, -0.7, "prompt | answer", ha="center", va="bottom", fontsize=SMALL)
    axes.plot(anchors, centres, "x", color=RED, markersize=7)
    axes.set(
        xticks=[*range(0, length, step), *(length + centre for centre in centres)],
        yticks=centres,
        xticklabels=[
            *range(0, length, step),
            *(f"block {block + 1}" for block in range(len(anchors))),
        ],
        yticklabels=[f"block {block + 1}, anchor {anchor}" for block, anchor in enumerate(anchors)],
        xlabel="key: context position | slots of the blocks",
        ylabel="query",
        xlim=(-0.5, length + slots - 0.5),
        ylim=(slots - 0.5, -0.5),
    )
    axes.set_title(
        f"{learned} predictions by {slots} slots in one pass\n"
        "blue: text it sees; orange: its own slots; ×: the anchor's features, hidden",
        pad=18,
    )
    for axis, count in ((axes.xaxis, length + slots), (axes.yaxis, slots)):
        axis.remove_overlapping_locs = False  # a label may stand on a line of the grid
        axis.set_ticks([k - 0.5 for k in range(count)], minor=True)
    axes.grid(which="minor", color="white", alpha=1, linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(axis="x", rotation=90, labelsize=SMALL)
    axes.tick_params(axis="y", labelsize=SMALL)
    return fig


def position_weight_figure(
    weights: dict[str, list[float]], reached: list[float], added: list[float]
):
    """Draw, by draft position: the weights of the losses {whose: weights}, the share of rounds that reach it, and its share of
    the first position's gain in accepted length."""
    fig, axes = figure()
    position = range(1, len(reached) + 1)
    styles = (("s", "--"), ("D", ":"))
    own = drafter_style("dspark")
    for values, (marker, line) in zip(weights.values(), styles):
        axes.plot(position, values, color=BLACK, marker=marker, linestyle=line)
    axes.plot(position, reached, color=own["color"], linewidth=1)
    axes.plot(position, added, **own)
    axes.set(
        xlabel="draft position", ylabel="of the first position's", xticks=position, ylim=(0, 1.05)
    )
    axes.set_title("loss weight and what a position adds")
    ends = [
        (len(reached), values[-1], f"{whose} weights", BLACK) for whose, values in weights.items()
    ]
    measured = [
        (len(reached), values[-1], label, own["color"])
        for values, label in ((reached, "rounds that reach it"), (added, "what it adds"))
    ]
    label_ends(axes, [*ends, *measured], gap=0.08)
    return fig


def loss_curves(log: list[dict]):
    """Draw one panel for every loss in the records of a training log: each step, and the mean over a fortieth of all steps; the
    titles say where the means begin and end."""
    window = max(1, len(log) // 40)
    names = [name for name in log[0] if name != "step"]
    fig, panels = figure(len(names), width=3.6, height=2.9, squeeze=False)
    for axes, name in zip(panels[0], names):
        values = np.array([entry[name] for entry in log])
        steps = [entry["step"] + 1 for entry in log]
        means = np.convolve(values, np.ones(window) / window, "valid")
        axes.plot(steps, values, color=SKY, linewidth=0.8, alpha=0.7, label="each step")
        axes.plot(steps[len(log) - len(means) :], means, color=BLUE, label=f"mean of {window}")
        # Single steps may be far off.
        highest = max(1.2 * np.quantile(values, 0.98), 1.05 * means[0])
        axes.set_title(
            f"{name.replace('_', '-').replace('l1', 'L1')}: from {means[0]:.2f} to {means[-1]:.2f}",
        )
        axes.set(xlabel="step", ylim=(0, highest))
    panels[0][0].set_ylabel("loss")
    panels[0][0].legend()
    return fig


def loss_comparison(losses: dict[str, list[float]], lengths: dict[str, float], device: str):
    """Draw the loss of each step with "right labels" and with labels "off by one", and the mean over five steps; at the ends,
    and where the right labels were "stopped early", stand the tokens per round, {name: tokens}. The title has the share of the
    loss that is left to both after the steps of the shorter training."""
    fig, axes = figure(width=7.0, height=3.0)
    few = len(losses["off by one"])
    for name, colour in (("right labels", BLUE), ("off by one", RED)):
        values = losses[name]
        means = np.convolve(values, np.ones(5) / 5, "valid")
        axes.plot(range(1, len(values) + 1), values, color=colour, linewidth=0.8, alpha=0.4)
        axes.plot(range(5, len(values) + 1), means, color=colour)
        marks = [(len(values), means[-1], f"{name}, {len(values)} steps", name, (8, 0))]
        if name == "right labels":
            marks.append((few, means[few - 5], f"{name}, {few} steps", "stopped early", (8, 26)))
        for step, height, label, whose, away in marks:
            axes.plot(step, height, "o", color=colour)
            axes.annotate(
                f"{label}:\n{lengths[whose]:.2f} tokens per round",
                (step, height),
                away,
                textcoords="offset points",
                va="center",
                fontsize=SMALL,
                color=colour,
                annotation_clip=False,
            )
    every = np.concatenate(list(losses.values()))
    # The first steps are far off.
    axes.set(xlabel="step", ylabel="loss", ylim=(0, 1.2 * np.quantile(every, 0.95)))
    left = {
        name: sum(losses[name][-10:]) / sum(losses[name][:10])
        for name in ("stopped early", "off by one")
    }
    axes.set_title(
        f"after {few} steps the loss has fallen to {left['stopped early']:.0%},\n"
        f"with labels off by one to {left['off by one']:.0%}"
    )
    measured_on(axes, device)
    return fig


def pull_figure(chance, pulls: dict[str, tuple], guess: float):
    """Draw the pull of losses on the right token by its chance (on a log scale), {label: (pull, colour)}; a line stands at `guess`."""
    fig, axes = figure()
    for label, (values, colour) in pulls.items():
        axes.plot(chance, values, color=colour)
        pull = np.interp(guess, chance, values)
        axes.plot(guess, pull, "o", color=colour)
        axes.annotate(
            f"{label}: {pull:.3f}",
            (guess, pull),
            (10, -14 if pull > 0.5 else 8),
            textcoords="offset points",
            fontsize=SMALL,
            color=colour,
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
        )
    axes.axvline(guess, color=GREY, linestyle="--", linewidth=1)
    axes.set(
        xlabel="chance that the drafter gives the right token",
        ylabel="pull on its logit",
        xscale="log",
        xlim=(min(chance), 1),
        ylim=(0, 1.05),
    )
    axes.set_title(f"at a guess among {round(1 / guess)} (dashed) the two losses pull unequally")
    return fig


def lengths_figure(lengths: dict[str, dict[str, float]], device: str):
    """Draw expected lengths of rounds, {whose: {domain: value}}, as groups of bars by domain; the middle one's colour stands between its
    neighbours'."""
    fig, axes = figure(width=5.6, height=3.2)
    domains = list(next(iter(lengths.values())))
    colours = (DRAFTER_STYLES["dflash"][0], GREY, DRAFTER_STYLES["dspark"][0])
    values = {
        name: [by_domain[domain] for domain in domains] for name, by_domain in lengths.items()
    }
    for bars in grouped_bars(axes, values, colours).values():
        axes.bar_label(bars, fmt="%.1f", fontsize=SMALL, padding=1)
    axes.set(xticks=range(len(domains)), xticklabels=domains)
    axes.set_ylabel("expected length of a round\nfrom a random place (tokens)")
    measured_on(axes, device)
    fig.legend(loc="outside upper center", ncols=len(lengths))
    return fig
