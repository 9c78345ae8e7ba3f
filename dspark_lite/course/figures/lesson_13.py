"""Figures of lesson 13: two lanes one after another and overlapped, a search and its deadline, padding by bucket, drift, wrong heads."""

from math import ceil

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from dspark_lite.course.estimates import Estimate
from ..measure.production import mean_length
from .style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    MEDIUM,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    TINY,
    WINE,
    YELLOW,
    domain_style,
    draw_estimates,
    figure,
    log_ticks,
    measured_on,
    policy_style,
    write,
)
from .token_boxes import arrow

PALE_PURPLE = "#EBCBDD"  # the host's other work
LANE_COLOURS = {
    "prefill": GREY,
    "draft": SKY,
    "schedule": YELLOW,
    "verify": BLUE,
    "commit": GREEN,
    "plan": PURPLE,
    "deliver": PALE_PURPLE,
}
LANES = {"device": 1.0, "host": 0.0}


def typical(events: list, steps: int) -> tuple[int, float]:
    """Return the first step of the run of `steps` steps that takes the median time, and the seconds of a step in it, from the
    events of serving/pipeline.py. A moment when the machine was busy does not count."""
    begins = {}
    for event in events:
        if event.lane == "device":
            begins.setdefault(event.step, event.began)
    begins = np.array([begins[step] for step in sorted(begins)])
    took = begins[steps:] - begins[:-steps]
    first = int(np.abs(took - np.median(took)).argmin())
    return first, float(took[first]) / steps


def two_lanes(runs: dict[str, list], steps: int, device: str):
    """Draw the work of device and host in a typical run of `steps` steps, a panel a run {title: events of serving/pipeline.py},
    on one scale. A number beside the host's work names the step of its text; 0 is the step before the first. Bars end at the
    first and at the last moment of the run."""
    fig, panels = figure(
        1, len(runs), width=9.2, height=1.15 + 0.7 / len(runs), sharex=True, squeeze=False
    )
    for axes, (title, events) in zip(panels[:, 0], runs.items()):
        first, _ = typical(events, steps)
        start, end = (
            min(event.began for event in events if event.lane == "device" and event.step == step)
            for step in (first, first + steps)
        )
        for event in events:
            left, right = (
                1e3 * (min(max(moment, start), end) - start)
                for moment in (event.began, event.ended)
            )
            width = right - left
            if width > 1e-6:  # else it lies outside, or took no time
                axes.barh(LANES[event.lane], width, 0.62, left=left, color=LANE_COLOURS[event.part])
                if event.part == "verify":
                    write(
                        axes,
                        left + width / 2,
                        LANES["device"],
                        str(event.step - first + 1),
                        colour="white",
                    )
                elif event.part == "deliver" and event.began >= start and event.ended <= end:
                    axes.annotate(
                        str(event.step - first + 1),
                        (left + width, LANES["host"]),
                        (3, 0),
                        textcoords="offset points",
                        va="center",
                        fontsize=SMALL,
                    )
        axes.axvline(1e3 * (end - start), color=BLACK, linewidth=1)
        axes.set(yticks=list(LANES.values()), yticklabels=list(LANES), ylim=(-0.5, 1.5))
        axes.set_title(f"{title}: {steps} steps in {1e3 * (end - start):.1f} ms", loc="left")
        axes.grid(axis="y", visible=False)
    panels[-1, 0].set(xlabel="milliseconds", xlim=(0, None))
    labels = {"plan": "plan (search a budget)", "deliver": "deliver (work on the text)"}
    handles = [
        Patch(color=colour, label=labels.get(part, part))
        for part, colour in LANE_COLOURS.items()
        if part not in ("prefill", "schedule", "commit")
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    measured_on(panels[-1, 0], device)
    return fig


def model_lanes(draft: float, verify: float, host: float, modes: tuple[bool, ...] = (False, True)):
    """Draw two lanes of a made-up engine, times in milliseconds, a panel for each of `modes`: one after another (False) and
    overlapped (True). A bar of the host has the number of the step whose confidences it works on; arrows lead to the step that
    uses its budget."""
    fig, panels = figure(
        1, len(modes), width=9.2, height=1.55 if len(modes) > 1 else 1.9, sharex=True, squeeze=False
    )
    steps, whole, took = 5, draft + verify, []
    for axes, overlapped in zip(panels[:, 0], modes):
        lag = 2 if overlapped else 1
        starts, free = [0.0], 0.0  # of the device's steps; when the host is free
        ready = {}  # step: when the host has found the budget that its confidences give
        for step in range(steps):
            begin = starts[step]
            for name, left, width in (("draft", begin, draft), ("verify", begin + draft, verify)):
                axes.barh(1, width, 0.62, left=left, color=LANE_COLOURS[name])
            write(axes, begin + draft + verify / 2, 1, str(step + 1), colour="white")
            at = max(free, begin + whole)
            axes.barh(0, host, 0.62, left=at, color=PURPLE, edgecolor="white", linewidth=0.8)
            write(axes, at + host / 2, 0, str(step + 1), colour="white")
            free = ready[step] = at + host
            waits = ready[step + 1 - lag] if step + 1 >= lag else 0.0
            starts.append(max(begin + whole, waits))
        for step in range(steps - lag):
            arrow(axes, (ready[step], 0.32), (starts[step + lag], 0.68), BLACK)
        took.append(starts[-1] - starts[-2])
        label = (
            "overlapped, budgets two steps old"
            if overlapped
            else "one after another, budgets one step old"
        )
        axes.set_title(f"modelled, {label}: {took[-1]:.1f} ms a step", loc="left")
        axes.set(
            yticks=list(LANES.values()), yticklabels=list(LANES), ylim=(-0.5, 1.5), xlim=(0, None)
        )
        axes.grid(axis="y", visible=False)
    panels[-1, 0].set_xlabel("milliseconds")
    handles = [
        Patch(color=LANE_COLOURS[part], label=label)
        for part, label in (
            ("draft", "draft"),
            ("verify", "verify"),
            ("plan", "host, on what the step of this number has left"),
        )
    ]
    handles.append(
        Line2D([], [], color=BLACK, label="arrow: from a budget to the step that spends it")
    )
    fig.legend(handles=handles, loc="outside lower center", ncols=4)
    if modes == (False, True):
        fig.suptitle(f"overlapped: {took[0] / took[1]:.2f} times as fast")
    return fig


def search_in_time(draft: float, verify: float, host: float, aheads: tuple[float, ...]):
    """Draw an engine whose host reads a step's confidences when its draft is done, times in milliseconds, a panel for each of
    `aheads`: when the search ends, by when the next steps' sizes must be known, and the first of these deadlines that it meets."""
    fig, panels = figure(1, len(aheads), width=5.8, height=1.6, sharex=True, squeeze=False)
    whole, ends = draft + verify, draft + host
    for axes, ahead in zip(panels[:, 0], aheads):
        lag = ceil((ends + ahead) / whole)
        for step in range(lag + 2):
            begin = step * whole
            for name, left, width in (("draft", begin, draft), ("verify", begin + draft, verify)):
                axes.barh(1, width, 0.62, left=left, color=LANE_COLOURS[name])
            label = f"s + {step}" if step else "s"
            write(axes, begin + draft + verify / 2, 1, label, colour="white")
        axes.barh(0, host, 0.62, left=draft, color=PURPLE)
        write(axes, draft + host / 2, 0, "search")
        for step in range(1, lag + 1):
            due = step * whole - ahead
            axes.vlines(due, -0.5, 1.45, color=BLACK, linestyle="--", linewidth=1.4, zorder=0)
            write(axes, due, 1.68, f"s + {step} due", colour=BLACK, size=TINY)
        arrow(axes, (ends, 0.0), (lag * whole - ahead, 0.0), BLACK)
        axes.set(yticks=list(LANES.values()), yticklabels=list(LANES), ylim=(-0.5, 1.9))
        axes.set_title(f"modelled, ahead = {ahead:g}: a lag of {lag}", loc="left")
        axes.grid(visible=False)
    panels[-1, 0].set(xlabel="milliseconds", xlim=(0, None))
    return fig


def padding_by_spacing(
    shares: dict[str, dict[int, float]], speeds: dict[str, dict[int, float]], requests: int
):
    """Draw the share of padding in a pass (left) and the throughput over that of whole blocks on passes of every size (right),
    {policy: {spacing: value}}, by the tokens between two captured sizes."""
    fig, (left, right) = figure(2, width=4.4, height=3.0)
    for name, values in shares.items():
        left.plot(list(values), 100 * np.array(list(values.values())), **policy_style(name))
        right.plot(list(speeds[name]), list(speeds[name].values()), **policy_style(name))
    for axes in (left, right):
        log_ticks(axes, values, "tokens between two captured sizes")
    left.set(ylabel="padding (% of the pass)")
    left.set_title("The lagged budget pads nothing")
    right.set(ylabel="throughput over whole blocks'")
    right.set_title(f"padding costs throughput ({requests} requests)")
    left.legend()
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
