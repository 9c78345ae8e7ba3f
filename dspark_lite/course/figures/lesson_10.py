"""Figures of lesson 10: what a draft brings for its time, θ in the order of admission, the board, what machines gain."""

import numpy as np
import torch
from matplotlib.patches import Patch, Rectangle

from ...decoding.proposal import Proposal
from ...scheduling.cost_table import CostTable
from ...scheduling.policies import LAG, schedule, survival, throughput
from ..estimates import Estimate
from ..measure.machines import Machine
from .style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    MEDIUM,
    ORANGE,
    POLICY_STYLES,
    PURPLE,
    RED,
    SMALL,
    draw_estimates,
    figure,
    label_ends,
    log_ticks,
    measured_on,
    policy_style,
    write,
)
from .token_boxes import arrow

THETA = "expected throughput θ\n(tokens/s)"


def steepest_lines(paths: dict[str, np.ndarray], brings: np.ndarray):
    """Draw tokens per request, `brings` [n], over units of time per request, {label: [n]}, for 0, 1, ... drafts: the dot
    with the most tokens a unit is ringed, and a line leads to it from the origin."""
    fig, axes = figure(width=6.0, height=3.3)
    looks = ((BLUE, "right", (4, 10)), (ORANGE, "left", (10, -6)), (RED, "right", (2, 8)))
    for (label, units), (colour, side, offset) in zip(paths.items(), looks):
        best = int(np.argmax(brings / units))
        axes.plot(units, brings, color=colour, marker="o", markersize=4)
        axes.plot([0, units[best]], [0, brings[best]], color=colour, linewidth=1, linestyle="--")
        axes.plot(
            units[best],
            brings[best],
            marker="o",
            markersize=13,
            markerfacecolor="none",
            color=colour,
        )
        axes.annotate(
            f"{label}:\nbest with {best}",
            (units[-1], brings[-1]),
            offset,
            textcoords="offset points",
            ha=side,
            fontsize=SMALL,
            color=colour,
        )
    axes.set(
        xlabel="units of time per request",
        ylabel="tokens per request",
        xlim=(0, None),
        ylim=(0, 1.3 * brings[-1]),
    )
    axes.set_title("No draft, one, two, three, on a made-up machine: the steepest line wins")
    return fig


def steps_per_second(
    table: CostTable,
    spent: dict[int, list[float]],
    device: str,
    recorded: CostTable,
    recorded_on: str,
):
    """Draw a measured cost table, SPS by batch size as dots, the middle half of the repeats (milliseconds by size) as grey
    lines, and a recorded one of the tiny target as far as the measured one goes."""
    fig, axes = figure(width=5.2, height=3.1)
    slow, fast = (1e3 / np.quantile(list(spent.values()), part, axis=1) for part in (0.75, 0.25))
    axes.vlines(
        list(spent),
        slow,
        fast,
        color=GREY,
        linewidth=5,
        alpha=0.5,
        label="this run: middle half of the repeats",
    )
    axes.plot(
        table.batch_tokens.numpy(),
        table.steps_per_second.numpy(),
        color=BLACK,
        marker="o",
        markersize=2.5,
        linewidth=0.7,
        label="this run: median",
    )
    sizes = range(1, min(table.max_batch_tokens, recorded.max_batch_tokens) + 1)
    axes.plot(
        sizes,
        recorded.sps(1, sizes).numpy(),
        color=BLUE,
        linewidth=1,
        label=f"recorded: tiny target, {recorded_on}",
    )
    axes.set(xlabel="tokens in the batch, B", ylabel="steps per second", ylim=(0, None))
    axes.set_title("Steps per second, recorded and in this run")
    axes.legend()
    measured_on(axes, device)
    return fig


def lag_timeline():
    """Draw the lagged budget in time: step t takes it from the confidences of step t - 2 (section 5.2)."""
    fig, axes = figure(width=6.6, height=2.7)
    parts = (("draft", 1.0, BLUE), ("verify", 2.0, GREEN))
    for title, start in (("step t-2", 0.0), ("step t-1", 3.2), ("step t", 6.4)):
        axes.text(start + 1.5, 0.62, title, ha="center", weight="bold")
        left = start
        for name, length, colour in parts:
            axes.add_patch(
                Rectangle(
                    (left, -0.1),
                    length - 0.05,
                    0.55,
                    facecolor=colour,
                    edgecolor="none",
                    alpha=0.85,
                )
            )
            write(axes, left + length / 2, 0.17, name, colour="white", size=MEDIUM)
            left += length
    axes.add_patch(
        Rectangle((3.2, -1.0), 2.95, 0.5, facecolor=PURPLE, edgecolor="none", alpha=0.85)
    )
    write(axes, 4.67, -0.75, "host: best budget\nof the old survivals", colour="white")
    arrow(axes, (1.0, -0.12), (3.25, -0.5), BLACK)
    axes.text(0.55, -0.55, "confidences of t-2", fontsize=SMALL, ha="center")
    arrow(axes, (6.17, -0.75), (6.42, -0.12), BLACK)
    axes.text(
        6.6,
        -0.55,
        "how many drafts are verified\nin step t: fixed when it begins",
        fontsize=SMALL,
        ha="left",
        va="center",
    )
    arrow(axes, (6.9, 0.47), (7.43, 0.47), BLACK, bend=-0.6)
    axes.text(7.15, 0.95, "which ones: confidences of t", fontsize=SMALL, ha="center")
    axes.set(xlim=(-0.3, 9.8), ylim=(-1.1, 1.1))
    axes.axis("off")
    return fig


def draw_theta(axes, theta) -> None:
    """Draw θ [n + 1] after 0, 1, ... admitted tokens: a line as far as Algorithm 1 looks, dotted after."""
    theta = np.asarray(theta)
    seen = min(stopping_place(theta) + 1, len(theta) - 1)
    dots = {"marker": "o", "markersize": 4} if len(theta) < 40 else {}
    # Algorithm 1 has looked at the last dot of this line, too.
    axes.plot(
        range(seen + 1), theta[: seen + 1], color=BLACK, zorder=2.5, label="looked at", **dots
    )
    axes.plot(
        range(seen, len(theta)),
        theta[seen:],
        color=GREY,
        linestyle=":",
        label="never looked at",
        **dots,
    )
    axes.set(xlabel="admitted tokens", ylabel=THETA)


def stopping_place(theta) -> int:
    """Return how many tokens Algorithm 1 admits, from θ [n + 1]."""
    falls = np.flatnonzero(np.diff(np.asarray(theta)) <= 0)
    return int(falls[0]) if len(falls) else len(theta) - 1


def mark(axes, x: int, y: float, policy: str, label: str) -> None:
    """Draw a large marker in a policy's colour; the top lies over the stop, which is the wider one."""
    over = 4 if policy == "retrospective" else 3
    axes.plot(
        x,
        float(y),
        linestyle="",
        markersize=10,
        zorder=over,
        **{**policy_style(policy), "label": label},
    )


def by_hand(theta, names: list[str]):
    """Draw θ along the order of admission for a few tokens, `names` one each, the stop and the top marked."""
    fig, axes = figure(width=4.8, height=3.0)
    draw_theta(axes, theta)
    stop, top = stopping_place(theta), int(np.argmax(theta))
    mark(axes, stop, theta[stop], "algorithm1", "Algorithm 1 stops")
    mark(axes, top, theta[top], "retrospective", "the top")
    axes.set(
        xticks=range(len(theta)),
        xticklabels=["none", *(f"+ {name}" for name in names)],
        xlabel="admitted, highest survival first",
    )
    axes.set_title(
        f"The stop gives up {theta[top] - theta[stop]:.1f} tokens/s"
        if theta[top] > theta[stop]
        else "The stop is the top",
    )
    axes.legend()
    return fig


def appendix(
    theta: dict[str, list[float]],
    exact: dict[str, float],
    drawn: dict[str, tuple[float, float, float]],
):
    """Draw Appendix A: θ for each drafted word (left), and the share of the token 0 by policy: exact as a line, `drawn` as
    (share, low, high) (right)."""
    fig, (left, right) = figure(2, width=4.0, height=3.0)
    for (title, values), colour, line in zip(theta.items(), (BLACK, GREY), ("-", "--")):
        left.plot(range(3), values, color=colour, linestyle=line, marker="o", label=title)
    left.axvspan(-0.15, 1.15, color=GREY, alpha=0.15, lw=0)
    left.text(
        0.5,
        0.98,
        "known before\nthe word is drawn",
        transform=left.get_xaxis_transform(),
        ha="center",
        va="top",
        fontsize=SMALL,
    )
    left.set(
        xticks=range(3), xlim=(-0.15, 2.15), xlabel="admitted tokens", ylabel=THETA, ylim=(0.7, 1.3)
    )
    left.set_title("Only the third value knows what was drawn")
    right.set_title("Taking the top changes the output (bars: 99.9 %)")
    left.legend(loc="lower left")
    for x, (name, (share, low, high)) in enumerate(drawn.items()):
        right.hlines(exact[name], x - 0.3, x + 0.3, color=BLACK, label="exact" if x == 0 else None)
        style = {**policy_style(name), "label": "_", "linestyle": ""}
        draw_estimates(right, [x], [Estimate(share, low, high)], style)
    right.axhline(exact["all"], color=GREY, linestyle=":", label="the target's")
    right.set(
        xticks=range(len(drawn)),
        xticklabels=[policy_style(name)["label"] for name in drawn],
        xlim=(-0.5, len(drawn) - 0.5),
        ylim=(0.6, 0.95),
        ylabel="share of the token 0",
    )
    right.legend(loc="upper left")
    return fig


def step_times(tables: dict[str, CostTable]):
    """Draw the milliseconds of a step by batch size on a made-up machine with tiles, the second of the tables, its convex view
    below, and name an edge."""
    fig, axes = figure(width=5.2, height=3.1)
    _, (name, tiles) = tables.items()
    sizes = range(1, 130)
    seconds = 1e3 * tiles.seconds(1, sizes).numpy()
    axes.step(sizes, seconds, where="mid", color=ORANGE, label=f"stairs: {name}")
    string = 1e3 * tiles.lower_hull().seconds(1, sizes).numpy()
    look = {"color": BLACK, "linestyle": (0, (0.1, 1.6)), "linewidth": 4, "dash_capstyle": "round"}
    axes.plot(sizes, string, label="the string below: its convex view", **look)
    edge = int(np.flatnonzero(np.diff(seconds) > 0)[-2]) + 1
    axes.annotate(
        "this draft pays\nfor the whole tile",
        (sizes[edge], seconds[edge]),
        (-28, 30),
        textcoords="offset points",
        fontsize=SMALL,
        ha="center",
        arrowprops={"arrowstyle": "-|>", "color": BLACK},
    )
    axes.set(xlabel="tokens in the batch, B", ylabel="milliseconds of a step", ylim=(0, 24))
    axes.set_title("A made-up machine with tiles")
    axes.legend(loc="lower right")
    return fig


MACHINE_LOOKS = ((BLUE, "o"), (GREEN, "s"), (ORANGE, "^"))  # as many machines as a figure has


def machine_label(machine: Machine) -> str:
    """Return a machine's name and how its numbers were found, such as "H100 (modelled)"; of a measured one only a line is known."""
    kind = "fitted line" if machine.kind == "measured" else machine.kind
    return f"{machine.name.removeprefix('DeepSeek-')} ({kind})"


def two_lines(label: str) -> str:
    """Return a machine's label with its kind on a second line."""
    return label.replace(" (", "\n(")


def request_prices(found: dict[str, dict[int, tuple[float, float]]]):
    """Draw drafts that Algorithm 1 verifies for a request (above) and its gain over whole blocks (below), {machine: {requests:
    (drafts, gain)}}: a label at each line."""
    fig, panels = figure(rows=2, width=5.6, height=2.0, sharex=True)
    for place, (axes, label, limits) in enumerate(
        zip(
            panels,
            ("drafts verified\nfor a request", "gain over\nwhole blocks (%)"),
            ((0, 7.4), (-1, 21)),
        )
    ):
        ends = []
        for (machine, by_load), (colour, marker) in zip(
            found.items(), ((ORANGE, "^"), (GREEN, "s"))
        ):
            values = [(1, 100)[place] * pair[place] for pair in by_load.values()]
            axes.plot(list(by_load), values, color=colour, marker=marker, markersize=5)
            ends.append((max(by_load), values[-1], machine.replace(": ", ":\n"), colour))
        log_ticks(axes, list(by_load), "requests that share a step" if place else "")
        axes.set(ylabel=label, ylim=limits)
        label_ends(axes, ends, gap=0.2)
    fig.suptitle("Algorithm 1, modelled machines, recorded blocks")
    return fig


def gains_on_machines(found: dict[str, dict[str, dict[int, Estimate]]]):
    """Draw gains in per cent by load, {rival: {machine: {requests under way: Estimate}}}: a panel a rival, a label at each
    line."""
    fig, panels = figure(len(found), width=4.2, height=3.2, sharey=True)
    panels[0].set(ylabel="gain in tokens/s (%)", ylim=(-1, 12))
    for axes, (rival, lines) in zip(panels, found.items()):
        ends = []
        for (machine, gains), (colour, marker) in zip(lines.items(), MACHINE_LOOKS):
            look = {"color": colour, "marker": marker, "markersize": 5}
            percent = {load: gain.scaled(100) for load, gain in gains.items()}
            draw_estimates(axes, list(percent), list(percent.values()), look)
            last = max(percent)
            ends.append((last, percent[last].value, two_lines(machine), colour))
        axes.axhline(0, color=GREY, linewidth=1)
        log_ticks(axes, percent, "requests under way")
        axes.set_title(f"Algorithm 1 {rival}")
        label_ends(axes, ends, gap=0.14)
    return fig


def board(
    steps: list[Proposal], step: int, policy_name: str, policy, cost_table: CostTable, title: str
):
    """Draw the scheduler board: the drafts of a step's stored blocks that `policy` admits, and θ along the order of admission.

    `steps` are consecutive steps of the same requests; a policy that remembers is shown those it needs before `step`.
    """
    policy.begin()
    for proposal in steps[step - LAG : step + 1]:
        lengths = policy(proposal)
    alive = survival(steps[step].confidence)
    order, theta = throughput(alive, cost_table)
    fig, (grid, curve) = figure(
        rows=2, width=7.8, height=2.4, gridspec_kw={"height_ratios": [1, 1.3]}
    )
    _draw_grid(grid, alive, lengths)
    draw_theta(curve, theta)
    stop = int(schedule(alive, cost_table).sum())
    top = int(theta.argmax())
    value = value_of(alive, lengths, cost_table)
    if top != stop:
        mark(curve, top, theta[top], "retrospective", "the top")
    where = "Algorithm 1 stops" if top != stop else "Algorithm 1 stops, at the top"
    mark(curve, stop, theta[stop], "algorithm1", where)
    if value is not None and policy_name != "algorithm1":
        curve.plot(
            int(lengths.sum()),
            value,
            linestyle="",
            marker="o",
            markersize=16,
            markerfacecolor="none",
            markeredgewidth=2,
            color=POLICY_STYLES[policy_name][1],
            label="this policy",
        )
    handles, _ = curve.get_legend_handles_labels()
    outlined = Patch(fill=False, edgecolor=ORANGE, lw=2, label="admitted")
    fig.legend(handles=[outlined, *handles], loc="outside lower center", ncols=len(handles) + 1)
    curve.set_title(why(policy_name, alive, lengths, cost_table))
    curve.set_ylabel("θ (tokens/s)")
    curve.margins(y=0.12)
    grid.set_title(f"{title}: {int(lengths.sum())} of {alive.numel()} drafts admitted")
    return fig


def _draw_grid(axes, alive: torch.Tensor, lengths: torch.Tensor) -> None:
    """Draw requests by positions, shaded by survival [R, g], the admitted ones outlined."""
    requests, gamma = alive.shape
    image = axes.imshow(
        alive.T.numpy(), cmap="Blues", vmin=0, vmax=1, aspect="auto", origin="lower"
    )
    for request, length in enumerate(lengths.tolist()):
        if length:
            axes.add_patch(
                Rectangle(
                    (request - 0.46, -0.44), 0.92, length - 0.12, fill=False, edgecolor=ORANGE, lw=2
                )
            )
    axes.set(
        xlabel="request",
        ylabel="position",
        yticks=range(0, gamma, 2),
        yticklabels=range(1, gamma + 1, 2),
    )
    axes.set_xticks(
        range(0, requests, max(1, requests // 16)), range(1, requests + 1, max(1, requests // 16))
    )
    axes.grid(False)
    axes.figure.colorbar(image, ax=axes, label="survival", pad=0.01)


def value_of(alive: torch.Tensor, lengths: torch.Tensor, cost_table: CostTable) -> float | None:
    """Return θ of any lengths [R] on survivals [R, g]; None where the table does not cover the batch."""
    requests, gamma = alive.shape
    tokens = requests + int(lengths.sum())
    if tokens > cost_table.max_batch_tokens:
        return None
    verified = torch.arange(gamma) < lengths[:, None]
    return (requests + alive[verified].double().sum().item()) * cost_table.sps(requests, tokens)


def why(policy: str, alive: torch.Tensor, lengths: torch.Tensor, cost_table: CostTable) -> str:
    """Return one sentence on why this policy admits these lengths [R] of survivals [R, g] and no more."""
    order, theta = throughput(alive, cost_table)
    requests, admitted = len(alive), int(lengths.sum())
    value = value_of(alive, lengths, cost_table)
    if value is None:
        return f"a batch of {requests + admitted} tokens: more than the table covers ({cost_table.max_batch_tokens})"
    missing = 1 - value / theta.max().item()
    below = f"{missing:.1%} below the highest θ" if missing > 1e-9 else "no θ is higher"
    if policy == "all":
        return f"everything is verified, θ is not asked: {below}"
    if policy == "threshold":
        return f"each block ends before its first confidence below the threshold, θ is not asked: {below}"
    if policy == "lagged":
        return f"the survivals of two steps ago gave a budget of {admitted} drafts: {below}"
    if policy == "retrospective":
        stop = int(schedule(alive, cost_table).sum())
        return (
            "the highest θ, and no fall before it: the same as Algorithm 1"
            if admitted <= stop
            else f"the highest θ, {admitted - stop} tokens after the stop: what was drawn helped to choose (lossy)"
        )
    if admitted == alive.numel():
        return "everything is admitted: each token raised θ"
    if admitted == len(theta) - 1:
        return f"stopped at the end of the table: it knows no batch above {cost_table.max_batch_tokens} tokens"
    position, request = divmod(int(order[admitted]), requests)
    if alive[request, position] == 0:
        return f"stopped: no other draft can survive; {below}"
    return (
        f"stopped: draft {position + 1} of request {request + 1} (survival {alive[request, position]:.2f}) would "
        f"take θ from {theta[admitted]:.1f} to {theta[admitted + 1]:.1f}; {below}"
    )
