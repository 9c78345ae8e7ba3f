"""Figures of lesson 13: two lanes one after another and overlapped, drift, wrong heads, machines for a promise, rounds in plain steps."""

import numpy as np

from ..estimates import Estimate
from ..measure.production import mean_length
from .style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    MEDIUM,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    SMALL,
    WINE,
    YELLOW,
    domain_style,
    drafter_style,
    draw_estimates,
    figure,
    measured_on,
    write,
)
from .token_boxes import arrow

LANES = {"device": 1.0, "host": 0.0}
STEP, FOLLOWED = (SKY, BLUE), (YELLOW, ORANGE)  # draft and verification of a step


def model_lanes(draft: float, verify: float, host: float, modes: tuple[bool, ...] = (False, True)):
    """Draw two lanes of a made-up engine, times in milliseconds, a panel for each of `modes`: one after another (False) and
    overlapped (True). A bar of the host has the number of the step whose confidences it works on; arrows lead to the step that
    spends its budget. Host 1 and the step that spends its budget have one colour."""
    fig, panels = figure(1, len(modes), width=5.2, height=1.5, sharex=True, squeeze=False)
    steps, whole, took = 4, draft + verify, []
    for axes, overlapped in zip(panels[:, 0], modes):
        lag = 2 if overlapped else 1
        starts, free = [0.0], 0.0  # of the device's steps; when the host is free
        ready = {}  # step: when the host has found the budget that its confidences give
        for step in range(steps):
            begin = starts[step]
            light, full = FOLLOWED if step == lag else STEP
            axes.barh(1, draft, 0.62, left=begin, color=light)
            axes.barh(1, verify, 0.62, left=begin + draft, color=full)
            letters = BLACK if step == lag else "white"
            write(axes, begin + draft + verify / 2, 1, f"step {step + 1}", colour=letters)
            at = max(free, begin + whole)
            colour = PURPLE if step else ORANGE
            axes.barh(0, host, 0.62, left=at, color=colour, edgecolor="white", linewidth=0.8)
            write(axes, at + host / 2, 0, str(step + 1))
            free = ready[step] = at + host
            waits = ready[step + 1 - lag] if step + 1 >= lag else 0.0
            starts.append(max(begin + whole, waits))
        for step in range(steps - lag):
            spent = starts[step + lag] + draft / 2
            arrow(axes, (ready[step], 0.32), (spent, 0.68), GREY if step else BLACK)
        took.append(starts[-1] - starts[-2])
        label = "overlapped" if overlapped else "one after another"
        axes.set_title(f"{label}: {took[-1]:.1f} ms a step (modelled)", loc="left")
        axes.set(
            yticks=list(LANES.values()), yticklabels=list(LANES), ylim=(-0.5, 1.5), xlim=(0, None)
        )
        axes.grid(axis="y", visible=False)
    panels[-1, 0].set_xlabel("milliseconds")
    if modes == (False, True):
        fig.suptitle(f"overlapped: {took[0] / took[1]:.2f} times as fast")
    return fig


def machines_needed(
    curves: dict[str, tuple[np.ndarray, list[Estimate]]], wall: float, users: int, device: str
):
    """Draw how many machines give `users` users a promised speed, {drafter: (promises [n], machines)}, with bands; inf, in a value or at
    a band's upper end, leaves the panel. `wall` is the fastest speed that MTP-1 gives."""
    fig, axes = figure()
    most = 1.5 * users
    for name, (promises, found) in curves.items():
        style = drafter_style(name)
        drawn = [one for one in found if np.isfinite(one.value)]
        across, colour = promises[: len(drawn)], style["color"]
        low, high = ([min(getattr(one, end), most) for one in drawn] for end in ("low", "high"))
        axes.fill_between(across, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(across, [one.value for one in drawn], **style, markevery=2)
        label, shift, side = style["label"], (0, -20), "right"
        place = (across[-1], drawn[-1].value)
        if across[-1] <= wall:
            place, shift = (across[len(drawn) // 2], drawn[len(drawn) // 2].value), (-8, 6)
        axes.annotate(
            label,
            place,
            shift,
            textcoords="offset points",
            ha=side,
            fontsize=MEDIUM,
            color=colour,
        )
    axes.axvline(wall, color=WINE, linewidth=1, linestyle=":")
    axes.annotate(
        "MTP-1's fastest",
        (wall, 12),
        (4, 0),
        textcoords="offset points",
        fontsize=SMALL,
        color=WINE,
    )
    axes.set(yscale="log", ylim=(10, most), xlabel="promised speed of a user (tokens/s)")
    axes.set_yticks([10, 30, 100, 300, 1000], [10, 30, 100, 300, "1,000"])
    axes.minorticks_off()
    axes.set_ylabel(f"machines for {users:,} users")
    measured_on(axes, device)
    return fig


def rounds_in_plain_steps(rounds: dict[str, tuple[float, float, float]]):
    """Draw rounds as bars in plain steps, {name: (draft, verify, tokens per round)}: a diamond marks the tokens, green where they
    are more than the plain steps of the round, else red."""
    fig, axes = figure(width=5.2, height=0.6 + 0.62 * len(rounds))
    for place, (draft, verify, tokens) in enumerate(rounds.values()):
        axes.barh(place, draft, 0.5, color=SKY)
        axes.barh(place, verify, 0.5, left=draft, color=BLUE)
        if not place:
            for x, side, part, hue in (
                (0, "left", "draft", SKY),
                (draft + verify, "right", "verify", BLUE),
            ):
                axes.text(x, place - 0.42, part, ha=side, va="center", fontsize=SMALL, color=hue)
        colour = GREEN if tokens > draft + verify else RED
        axes.plot(tokens, place, marker="D", markersize=8, color=colour, markeredgecolor="white")
        said = f"τ = {tokens:.2f}, round {draft + verify:.1f}"
        right = max(tokens, draft + verify)
        axes.annotate(
            said, (right, place), (9, 0), textcoords="offset points", va="center", fontsize=SMALL
        )
    axes.set_yticks(range(len(rounds)), list(rounds))
    axes.set(ylim=(len(rounds) - 0.5, -0.65), xlim=(0, 1.55 * max(map(max, rounds.values()))))
    axes.set_xlabel("plain steps (diamond: tokens of a round, τ)")
    axes.grid(axis="y", visible=False)
    return fig


def drift_series(found, phases):
    """Draw tokens per round (above) and ECE (below) of a Drift while traffic shifts, with a line at each change and a diamond where
    the calibration that is kept online has changed."""
    fig, (above, below) = figure(1, 2, width=8.6, height=2.2, sharex=True)
    at, phase_of, lengths = (
        np.array([getattr(point, name) for point in found.points])
        for name in ("at", "phase", "accepted_length")
    )
    begins = np.concatenate([[0], np.cumsum([phase.blocks for phase in phases])])
    for number, (domain, times, _) in enumerate(phases):
        rows = phase_of == number
        above.plot(
            at[rows],
            lengths[rows],
            **{**domain_style(domain), "label": "_", "linestyle": "-"},
        )
        middle = (begins[number] + begins[number + 1]) / 2
        label = domain + (f",\nhead {times:g} times as sure" if times != 1 else "")
        above.annotate(
            label,
            (middle, 1),
            (0, 3),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            ha="center",
            fontsize=MEDIUM,
            color=domain_style(domain)["color"],
        )
    for axes in (above, below):
        for edge in begins[1:-1]:
            axes.axvline(edge, color=GREY, linewidth=1, linestyle=":")
    lines = (  # name, style, label, and the point of the series and the shift at which it is written
        ("fresh", {"color": GREY, "linestyle": "--"}, "fitted to this traffic", 0, (0, 5)),
        (
            "online",
            {"color": GREEN},
            "kept online",
            _steepest_fall([point.online for point in found.points]),
            (8, 0),
        ),
        ("stored", {"color": BLACK}, "as stored", -1, (0, -12)),
    )
    for name, style, label, point, shift in lines:
        errors = 100 * np.array([getattr(point, name) for point in found.points])
        below.plot(at, errors, **style)
        below.annotate(
            label,
            (at[point], errors[point]),
            shift,
            textcoords="offset points",
            ha="right" if point == -1 else "left",
            fontsize=SMALL,
            color=style["color"],
        )
    below.plot(
        found.refits,
        np.full(len(found.refits), 0.0),
        linestyle="",
        marker="D",
        color=GREEN,
        clip_on=False,
    )
    above.set(ylabel="tokens per round")
    below.set(
        xlabel="blocks verified whole (recorded with the tiny models, replayed)",
        ylabel="ECE (percentage points)",
        ylim=(0, None),
        xlim=(0, at[-1]),
    )
    return fig


def _steepest_fall(values: list[float]) -> int:
    """Return the place after which a series falls most."""
    return int(np.argmin(np.diff(values)))


def wrong_heads(found: dict[str, dict[str, Estimate]]):
    """Draw by how much throughput under Algorithm 1 is above that of whole blocks, by what is done to the head: {title of a
    panel: {head: fraction}}."""
    fig, panels = figure(1, len(found), width=5.6, height=1.75, sharex=True, squeeze=False)
    for axes, (title, by_head) in zip(panels[:, 0], found.items()):
        for place, (name, gain) in enumerate(by_head.items()):
            colour = BLACK if place == 0 else WINE if "doubtful" in name else ORANGE
            axes.hlines(place, 100 * gain.low, 100 * gain.high, color=colour, linewidth=2)
            axes.plot(100 * gain.value, place, marker="o", color=colour)
            axes.annotate(
                f"{100 * gain.value:+.1f}".replace("-", "−"),
                (100 * gain.value, place),
                (0, 7),
                textcoords="offset points",
                ha="center",
                fontsize=SMALL,
            )
        axes.axvline(0, color=BLACK, linewidth=0.8)
        axes.set_yticks(range(len(by_head)), list(by_head))
        axes.set_ylim(len(by_head) - 0.5, -0.8)
        axes.margins(x=0.08)
        axes.set_title(title, loc="left")
        axes.grid(axis="y", visible=False)
    panels[-1, 0].set_xlabel("throughput, per cent more than whole blocks")
    return fig


def v4_variants(rows: dict[str, dict]):
    """Draw a drafter's weights and those that work for a token (left), and its L1 distance in training (right), {label: row}."""
    fig, (left, right) = figure(2, width=4.6, height=3.0)
    colours = dict(zip(rows, (BLUE, GREEN, ORANGE, PURPLE, BLACK)))
    places = np.arange(len(rows))[::-1]
    left.barh(
        places,
        [row["parameters"] / 1e6 for row in rows.values()],
        color="white",
        edgecolor=[colours[name] for name in rows],
        height=0.62,
        linewidth=1.5,
    )
    left.barh(
        places,
        [row["active"] / 1e6 for row in rows.values()],
        color=[colours[name] for name in rows],
        height=0.62,
    )
    left.set(
        yticks=places, yticklabels=list(rows), xlabel="million weights (filled: work for a token)"
    )
    left.grid(axis="y", visible=False)
    for name, row in rows.items():
        right.plot(
            np.linspace(0, row["steps"], len(row["l1"])),
            row["l1"],
            color=colours[name],
            label=name,
            linewidth=1.4,
        )
    right.set(xlabel="update", ylabel="L1 distance to the target")
    right.legend()
    return fig


def drafted_tree(words: list[str], parents: list[int]):
    """Draw a tree of words, the anchor first, each joined to its parent; depth goes to the right."""
    depth, children = [0], {}
    for node, parent in enumerate(parents, start=1):
        depth.append(depth[parent] + 1)
        children.setdefault(parent, []).append(node)
    height, lines = {}, iter(range(len(words)))

    def place(node: int) -> float:
        """Return the height of a node: a line of its own for a leaf, else the middle of its children."""
        below = [place(child) for child in children.get(node, [])]
        height[node] = float(np.mean(below)) if below else float(next(lines))
        return height[node]

    place(0)
    fig, axes = figure(
        width=1.3 * (max(depth) + 1.2), height=0.34 * (len(set(height.values())) + 1)
    )
    for node, parent in enumerate(parents, start=1):
        axes.plot(
            [depth[parent], depth[node]],
            [height[parent], height[node]],
            color=GREY,
            linewidth=1,
            zorder=1,
        )
    for node, word in enumerate(words):
        write(
            axes,
            depth[node],
            height[node],
            repr(word)[1:-1],
            zorder=2,
            parse_math=False,
            bbox={
                "boxstyle": "round,pad=0.25",
                "facecolor": "white",
                "edgecolor": BLACK if not node else BLUE,
            },
        )
    axes.set(xlim=(-0.6, max(depth) + 0.6), ylim=(max(height.values()) + 0.8, -0.8))
    axes.axis("off")
    return fig


def tree_mask(seen):
    """Draw which nodes each node sees, bool [N + 1, N + 1], the anchor first."""
    fig, axes = figure(width=3.6, height=3.4)
    axes.imshow(np.asarray(seen), cmap="Blues", vmin=0, vmax=1.4)
    axes.set(
        xlabel="keys: anchor and nodes (after the context, which all see)",
        ylabel="anchor and nodes",
    )
    axes.set_title("A node sees the way that leads to it")
    axes.grid(False)
    return fig


def tree_lengths(rows: list[dict]):
    """Draw tokens per round of the chain (a line) and of trees by their nodes, greedy and at temperature 1."""
    fig, panels = figure(2, width=4.2, height=3.0, sharey=True)
    for axes, temperature in zip(panels, (0.0, 1.0)):
        chosen = [row for row in rows if row["temperature"] == temperature]
        trees = [row for row in chosen if row["name"] == "tree"]
        (chain,) = (row for row in chosen if row["name"] == "chain")
        draw_estimates(
            axes,
            [row["nodes"] for row in trees],
            [mean_length(row) for row in trees],
            {"color": GREEN, "marker": "D", "label": "tree"},
        )
        draw_estimates(
            axes,
            [chain["nodes"]],
            [mean_length(chain)],
            {"color": BLUE, "marker": "o", "linestyle": "", "label": "chain"},
        )
        axes.set(xlabel="drafts verified in a pass", xticks=[row["nodes"] for row in trees])
        axes.set_title("greedy" if temperature == 0 else "temperature 1")
    panels[0].set_ylabel("tokens per round")
    panels[0].legend()
    return fig
