"""Figures of lesson 11: a ragged batch, slots over steps, what steps cost, Figures 7 and 8, the engine beside its model."""

from typing import NamedTuple

import numpy as np
import torch
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from ...decoding import Round
from .. import paper
from ..estimates import Estimate
from .lesson_10 import MACHINE_LOOKS
from .style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    MEDIUM,
    RED,
    REJECTED,
    SKY,
    SMALL,
    TINY,
    drafter_style,
    draw_estimates,
    draw_mask,
    figure,
    hollow,
    label_ends,
    log_ticks,
    measured_on,
    policy_style,
    write,
)
from .token_boxes import arrow, draw_box

# {the paper's name in Figures 7 and 8: the style that it has here}
SERIES = {"MTP-1": "mtp", "DSpark-5": "lagged"}
PAPER_MODELS = ("DeepSeek-V4-Flash", "DeepSeek-V4-Pro")
PAPER_LINES = ("--", ":")
UNDER_WAY = "requests under way"
PER_USER, IN_ALL = "tokens/s of each user", "tokens/s in all"
ROOM_TO_THE_LEFT = 40  # tokens/s that a label beside the axis takes
SHORT_NAMES = {"lagged": "lagged", "fixed 7": "whole block"}  # what the lesson calls these policies
LOAD_COLOURS = (BLACK, BLUE, RED)


def style(name: str) -> dict:
    """Return the style of a way to serve: of a policy of DSpark ("lagged", "fixed 7") or of another drafter ("mtp", "plain")."""
    if name in ("mtp", "plain"):
        return drafter_style(name)
    kind, _, number = name.partition(" ")
    look = policy_style(kind)
    return {
        **look,
        "label": "DSpark, " + SHORT_NAMES.get(name, f"{look['label']} {number}".strip()),
    }


def legend_under(fig, axes) -> None:
    """Write the entries of a panel, and those of the paper's two models, in rows of three under all panels."""
    fits = [
        Line2D([], [], color=GREY, linestyle=line, label=f"the paper's fit, {model}")
        for model, line in zip(PAPER_MODELS, ("--", ":"))
    ]
    fig.legend(
        handles=[*axes.get_legend_handles_labels()[0], *fits],
        loc="outside lower center",
        ncols=3,
    )


# A step, and a few of them.


STUB = 3  # cells that a cached context takes in the picture of a mask, however long it is


def ragged_batch(request, visible, cached: int):
    """Draw the mask `visible` [N, K] of a step whose tokens belong to `request` [N]; the first `cached` keys are contexts, each
    cut to a stub with its request and number of keys below."""
    contexts, keys = torch.unique_consecutive(visible[:, :cached], dim=1, return_counts=True)
    stubs = contexts.repeat_interleave(STUB, 1)
    drawn = torch.cat([stubs, visible[:, cached:]], 1)
    fig, axes = figure(width=6.6, height=4.0)
    draw_mask(axes, drawn.cpu().numpy(), stubs.shape[1], (SKY, BLUE))
    edges = torch.nonzero(request.diff()).flatten().tolist()
    for edge in edges:
        axes.axhline(edge + 0.5, color=GREY, linewidth=0.6)
    names = [chr(ord("A") + number) for number in request.unique().tolist()]
    middles = [
        float(torch.nonzero(request == number).float().mean()) for number in request.unique()
    ]
    starts = torch.arange(len(keys)) * STUB + (STUB - 1) / 2
    axes.set(
        xlabel="keys: the cached contexts (cut short), then this step's",
        ylabel="tokens of the step",
        yticks=middles,
        yticklabels=[f"request {name}" for name in names],
        xticks=[*starts.tolist(), (stubs.shape[1] + drawn.shape[1] - 1) / 2],
        xticklabels=[
            *(f"{name}: {count}\nkeys" for name, count in zip(names, keys.tolist())),
            f"{visible.shape[1] - cached} keys of this step",
        ],
    )
    axes.legend(
        handles=[
            Patch(color=SKY, label="sees, in the context"),
            Patch(color=BLUE, label="sees, in this step"),
            Patch(facecolor="white", edgecolor=GREY, label="does not see"),
        ],
        ncols=3,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
    )
    fig.suptitle("A token sees its request's context and its block up to itself")
    return fig


class Journey(NamedTuple):
    """A request's way through the engine: its name, the step before which it arrived, the step that admitted it, its rounds,
    one a step from there on, and the reason that it ended."""

    name: str
    arrived: int
    admitted: int
    rounds: list[Round]
    reason: str


def timeline(journeys: list[Journey], slots: int, gamma: int):
    """Draw slots over steps: the drafted (frame), refused and accepted (filled) drafts of each round; above, the waiting
    requests."""
    fig, (above, axes) = figure(
        rows=2, width=9.6, height=2.3, sharex=True, gridspec_kw={"height_ratios": [0.5, slots]}
    )
    draw_slots(above, axes, journeys, slots, gamma)
    boxes = [
        Patch(facecolor="white", edgecolor=GREY, label="drafted"),
        Patch(color=REJECTED, label="verified, not accepted"),
        Patch(color=GREEN, label="accepted"),
    ]
    ends = [
        Line2D([], [], color=colour, linestyle="", marker=marker, label=label)
        for colour, marker, label in ((BLACK, "|", "answer complete"), (RED, "X", "aborted"))
    ]
    fig.legend(handles=[*boxes, *ends], loc="outside lower center", ncols=5)
    fig.suptitle("A seat is filled again as soon as its request has ended")
    return fig


def draw_slots(above, axes, journeys: list[Journey], slots: int, gamma: int) -> None:
    """Draw the requests that wait before each step as bars, and below them each slot's rounds."""
    steps = max(j.admitted + len(j.rounds) for j in journeys)
    waiting = [sum(j.arrived <= step < j.admitted for j in journeys) for step in range(steps)]
    above.bar(np.arange(steps) + 0.5, waiting, color=GREY, width=0.9)
    above.set(ylabel="waiting", ylim=(0, max(2, *waiting)), yticks=[0, max(2, *waiting)])
    free = [0] * slots  # the step from which each slot is free: the engine takes the first that is
    for journey in sorted(journeys, key=lambda j: j.admitted):
        slot = next(place for place in range(slots) if free[place] <= journey.admitted)
        free[slot] = journey.admitted + len(journey.rounds)
        _draw_journey(axes, journey, slot, gamma)
    axes.set(
        xlim=(0, steps + 0.2),
        ylim=(slots - 0.02, -0.06),
        xlabel="step",
        yticks=[slot + 0.5 for slot in range(slots)],
        yticklabels=[f"seat {slot}" for slot in range(slots)],
    )
    axes.set_xticks(np.arange(0, steps, 5) + 0.5, range(0, steps, 5))
    for panel in (above, axes):
        panel.grid(False)


def _draw_journey(axes, journey: Journey, slot: int, gamma: int) -> None:
    """Draw the rounds of a request in its slot, bottom up, and how it ended."""
    unit = 0.66 / gamma
    for index, r in enumerate(journey.rounds):
        x, floor = journey.admitted + index + 0.08, slot + 0.95
        for count, look in (
            (gamma, {"facecolor": "white", "edgecolor": GREY, "linewidth": 0.5}),
            (r.proposed, {"facecolor": REJECTED}),
            (r.accepted, {"facecolor": GREEN}),
        ):
            axes.add_patch(Rectangle((x, floor - count * unit), 0.84, count * unit, **look))
    end = journey.admitted + len(journey.rounds)
    axes.text(
        journey.admitted + 0.1, slot + 0.22, f"request {journey.name}", fontsize=SMALL, va="bottom"
    )
    aborted = journey.reason == "aborted"
    axes.plot(
        end - 0.02,
        slot + 0.62,
        color=RED if aborted else BLACK,
        marker="X" if aborted else "|",
        markersize=8 if aborted else 22,
        clip_on=False,
    )


MADE_UP = (  # requests of the picture of an engine: arrived, admitted, drafts accepted in each round
    (0, 0, (3, 1, 2)),
    (0, 0, (0, 2, 3, 1, 3)),
    (0, 0, (3, 3)),
    (0, 2, (1, 3, 2)),
    (1, 3, (2, 1)),
)
BLOCK = (  # x, letter and kind of a request's tokens in the pass of the picture: read, and returned by verify
    (("x", "anchor"), ("a", "kept"), ("b", "kept"), ("c", "refused"), ("d", "refused")),
    (None, ("a", "kept"), ("b", "kept"), ("y", "added")),
)


def engine_at_work():
    """Draw seats over steps, made up, with the engine's names."""
    fig, (above, axes) = figure(1, 2, width=6.6, height=1.55, height_ratios=[0.5, 2.3])
    rounds = [
        [Round(3, accepted, accepted + 1, [], [], 0.0, 0.0) for accepted in row]
        for *_, row in MADE_UP
    ]
    journeys = [
        Journey(str(number), arrived, admitted, played, "length")
        for number, ((arrived, admitted, _), played) in enumerate(zip(MADE_UP, rounds))
    ]
    draw_slots(above, axes, journeys, slots=3, gamma=3)
    above.set(xlim=axes.get_xlim(), xticks=[], ylabel="")
    axes.set_xticks(np.arange(5) + 0.5, range(5))
    for step in range(3):
        names = ", ".join(j.name for j in journeys if j.arrived <= step < j.admitted)
        write(above, step + 0.5, 0.5, names, colour="white")
    write(axes, 1.5, 1.62, "2 of 3\naccepted", colour="white", size=TINY)
    for panel, text in ((above, "engine.waiting"), (axes, "engine.running")):
        panel.annotate(
            text,
            (1.0, 0.5),
            (4, 0),
            xycoords="axes fraction",
            textcoords="offset points",
            fontsize=MEDIUM,
            va="center",
            annotation_clip=False,
        )
    above.set_title("Made up: three seats; a seat is filled as soon as it is free")
    looks = [
        Patch(color=GREEN, label="accepted drafts"),
        Patch(color=REJECTED, label="refused drafts"),
        Line2D(
            [],
            [],
            color=BLACK,
            linestyle="",
            marker="|",
            markersize=12,
            label="moves to engine.answers",
        ),
    ]
    fig.legend(handles=looks, loc="outside lower center", ncols=3)
    return fig


def block_in_a_step():
    """Draw what becomes of a request's block in one step, with the engine's names."""
    fig, below = figure(width=6.6, height=2.3)
    below.set(xlim=(-0.15, 5.4), ylim=(-0.95, 2.55))
    below.axis("off")
    for row, tokens in zip((1.75, 0.0), BLOCK):
        for place, token in enumerate(tokens):
            if token:
                draw_box(below, 0.62 * place, row, *token)
    for row, text in (
        (1.75, "engine.read: the anchor x, then\nthe drafts a b c d"),
        (0.0, "verify: two drafts accepted,\nand the target's own y"),
    ):
        below.text(3.2, row, text, fontsize=MEDIUM, va="center")
    below.annotate(
        "", (-0.05, 1.2), (1.62, 1.2), arrowprops={"arrowstyle": "|-|", "mutation_scale": 3}
    )
    below.text(0.78, 0.98, "engine.keep: they stay cached", fontsize=SMALL, va="top", ha="center")
    below.text(2.2, 1.12, "forgotten", fontsize=SMALL, va="center", color=REJECTED, ha="center")
    below.text(
        2.0,
        -0.55,
        "y: the next step's anchor, not read yet",
        fontsize=SMALL,
        va="center",
        ha="center",
        color=BLUE,
    )
    return fig


# What was measured.


def step_times(
    turns: dict[int, dict[int, np.ndarray]],
    means: dict[int, dict[int, Estimate]],
    line,
    device: str,
):
    """Draw the milliseconds of a step by the tokens verified for each request: of measured turns, {requests: {tokens: [turns]}}
    (dots), of their means (marks), and by a machine's `line(requests, tokens of all)` in seconds; a line a load. An arrow says
    how far the last mark of the heaviest load lies off its line."""
    fig, axes = figure(width=5.6, height=3.6)
    ends = []
    for (requests, found), colour in zip(turns.items(), LOAD_COLOURS):
        for tokens, seconds in found.items():
            dots = {"linestyle": "", "marker": "o", "markersize": 3, "alpha": 0.25}
            axes.plot(
                np.full(len(seconds), tokens), 1e3 * np.asarray(seconds), color=colour, **dots
            )
        marks = {"color": colour, "linestyle": "", "marker": "D", "markersize": 6}
        draw_estimates(axes, list(found), [means[requests][t].scaled(1e3) for t in found], marks)
        each = list(found)
        line_ms = [1e3 * line(requests, requests * tokens) for tokens in each]
        axes.plot(each, line_ms, color=colour)
        ends.append((each[-1], line_ms[-1], f"{requests} under way", colour))
    mean = 1e3 * means[requests][tokens].value
    arrow(axes, (tokens, line_ms[-1]), (tokens, mean), BLACK)
    axes.annotate(
        f"the line is {line_ms[-1] - mean:.0f} ms\ntoo high here",
        (tokens, (line_ms[-1] + mean) / 2),
        (10, -6),
        textcoords="offset points",
        fontsize=SMALL,
        va="center",
        annotation_clip=False,
    )
    axes.set(
        xlabel="tokens verified for each request, anchor included",
        ylabel="milliseconds of a step",
        ylim=(0, None),
    )
    label_ends(axes, ends)
    axes.set_title("Dots: measured turns; marks: their means; lines: one formula")
    measured_on(axes, device)
    return fig


def static_lengths(
    found: dict[int, dict[int, Estimate]],
    scheduled: dict[int, tuple[float, Estimate]],
    rivals: dict[int, float],
    device: str,
):
    """Draw throughput over plain decoding's, a panel a load: {load: {length: Estimate}}, of the scheduler {load: (mean length,
    Estimate)}, and of MTP-1 {load: ratio}."""
    fig, panels = figure(len(found) // 2 + 1, 2, width=2.2, height=2.0, sharex=True, sharey=True)
    for axes, (load, values) in zip(panels.flat, found.items()):
        draw_estimates(
            axes,
            list(values),
            list(values.values()),
            {**style("fixed"), "markersize": 4, "label": "DSpark, one length for all"},
        )
        length, value = scheduled[load]
        draw_estimates(
            axes,
            [length],
            [value],
            {
                **style("algorithm1"),
                "linestyle": "",
                "label": "DSpark, Algorithm 1,\nat its mean length",
            },
        )
        axes.axhline(1, color=GREY, linewidth=1)
        axes.axhline(
            rivals[load], color=BLACK, linewidth=1, linestyle="--", label="MTP-1, one draft"
        )
        axes.set_title(
            f"{load} under way: highest at {max(values, key=lambda length: values[length].value)}",
        )
    for axes in panels.flat[len(found) :]:
        axes.axis("off")  # room for the legend
    for axes in panels.flat[len(found) - panels.shape[1] : len(found)]:  # nothing stands below them
        axes.tick_params(labelbottom=True)
        axes.set_xlabel("drafts verified per request", fontsize=MEDIUM)
    panels[0][0].set_xticks(list(next(iter(found.values()))))
    fig.supylabel("throughput over plain decoding's", fontsize=MEDIUM)
    panels.flat[-1].legend(*panels[0][0].get_legend_handles_labels(), loc="center")
    fig.suptitle(
        "The busier, the less any length brings; whole blocks stay at the top or near it",
    )
    measured_on(panels.flat[len(found) - 1], device)
    return fig


def figure_8(
    budgets: dict[str, dict[int, Estimate]], over_mtp: dict[str, dict[int, Estimate]], device: str
):
    """Draw the tokens verified per request and step, anchor included (left; at most 2 with MTP-1, 8 with DSpark, 6 in the
    paper), and throughput over MTP-1's at the same load (right), {name: {load: Estimate}}; thin lines are the paper's fits.
    Marks of one load stand side by side."""
    fig, (left, right) = figure(2, width=4.0, height=3.3)
    for axes, drawn in ((left, budgets), (right, over_mtp)):
        for index, (name, values) in enumerate(drawn.items()):
            apart = 1.13 ** (index - (len(drawn) - 1) / 2)
            draw_estimates(
                axes,
                [load * apart for load in values],
                list(values.values()),
                {**style(name), "markersize": 5},
            )
        log_ticks(axes, (1, 4, 16, 64, 200), UNDER_WAY)
        axes.set_xlabel(f"{UNDER_WAY} (marks of one load side by side)", fontsize=MEDIUM)
    _budget_panel(left)
    _gain_panel(right)
    measured_on(right, device)
    legend_under(fig, left)
    return fig


def _budget_panel(axes) -> None:
    """Add the paper's fitted budgets, the largest possible ones, and the labels."""
    for model, line in zip(PAPER_MODELS, PAPER_LINES):
        for series, ours in SERIES.items():
            axes.plot(*paper_line(model, "verification_budget", series), **_thin(ours, line))
    for most, whose, va in (
        (8, "whole block here", "bottom"),
        (6, "whole block in the paper", "top"),
        (2, "MTP-1", "bottom"),
    ):
        across = axes.get_yaxis_transform()
        axes.hlines(most, 0, 1, color=GREY, linewidth=0.6, linestyle=":", transform=across)
        axes.text(0.99, most, whose, transform=across, ha="right", va=va, fontsize=TINY, color=GREY)
    axes.set(ylabel="tokens verified per request\nand step, anchor included", ylim=(0, 8.5))
    axes.set_title("A busy server verifies less of a block:\nclearly in the paper, slightly here")


def _gain_panel(axes) -> None:
    """Add the paper's fitted throughput over MTP-1's, from where its fitted budget begins, and the
    labels."""
    for model, line in zip(PAPER_MODELS, PAPER_LINES):
        first = paper_line(model, "verification_budget", "DSpark-5")[0, 0]
        fitted = paper_line(model, "throughput", "DSpark-5")
        requests, ours = fitted[:, fitted[0] >= first]
        theirs = np.interp(requests, *paper_line(model, "throughput", "MTP-1"))
        axes.plot(requests, ours / theirs, **_thin("lagged", line))
    axes.set(ylabel="throughput over that of\nMTP-1 at the same load")
    axes.set_title(
        "The gain over MTP-1 shrinks with the load:\nhere to nothing, in the paper not quite",
    )
    axes.axhline(1, **{**style("mtp"), "label": "_", "marker": ""})


def paper_line(model: str, what: str, series: str) -> np.ndarray:
    """Return requests a GPU and the value of a fitted line of Figure 8, [2, n]."""
    return np.array(paper.numbers()["figure8"]["models"][model][what]["fit"][series]).T


def _thin(name: str, line: str) -> dict:
    """Return the paper's fitted line in the colour of ours."""
    return {**hollow(style(name), line), "marker": "", "linewidth": 1.8, "alpha": 1.0}


def figure_7(frontiers: dict[str, np.ndarray], device: str):
    """Draw throughput against per-user speed: ours, {name: [n, 2]} (left), and the paper's fits with the levels it compares."""
    fig, (left, right) = figure(2, width=4.0, height=3.3)
    for name, points in frontiers.items():
        left.plot(*points.T, **style(name))
    for name, side in (("mtp", -1), ("lagged", 1)):
        _number_loads(left, name, frontiers[name], side)
    left.set_title("here: up and right is better\n(numbers: requests under way)")
    left.set(
        xlabel=PER_USER,
        ylabel=IN_ALL,
        xlim=(0, None),
        ylim=(0, 1.12 * max(points[:, 1].max() for points in frontiers.values())),
    )
    measured_on(left, f"{device}, prompts left out")
    gains = [
        anchor["annotated_tps_gain_pct"]
        for model, line, side in zip(PAPER_MODELS, ("--", ":"), (1, -1))
        for anchor in _draw_paper_model(right, model, line, side)["anchors"]
    ]
    right.set_title(
        f"the paper's fits: at equal throughput\nDSpark's users are {min(gains):.0f} to {max(gains):.0f} % faster",
    )
    right.set(xlabel=PER_USER, ylabel=f"{IN_ALL}, of a GPU", xlim=(0, 260), ylim=(0, None))
    legend_under(fig, left)
    return fig


def paper_frontier():
    """Draw the paper's fitted frontiers of its smaller model, and from the points at which it compares the gains in speed and in
    throughput (Figure 7)."""
    fig, axes = figure(width=5.6, height=3.5)
    lines = _draw_paper_model(axes, PAPER_MODELS[0], "-", side=1)
    for series, ours in SERIES.items():
        axes.annotate(
            series,
            max(lines["frontier"][series], key=lambda point: point[1]),
            (8, -2),
            textcoords="offset points",
            fontsize=SMALL,
            color=style(ours)["color"],
        )
    for anchor in lines["anchors"]:
        speed, top = anchor["sla_tps"], anchor["dspark_throughput"]
        arrow(axes, (speed, anchor["mtp_throughput"]), (speed, top), BLACK)
        axes.annotate(
            f"{anchor['annotated_throughput_gain_pct']:+.0f} %",
            (speed, (anchor["mtp_throughput"] + top) / 2),
            (4, 0),
            textcoords="offset points",
            fontsize=SMALL,
            va="center",
        )
    axes.set(xlabel=PER_USER, ylabel=f"{IN_ALL}, of a GPU", xlim=(0, 270), ylim=(0, None))
    axes.set_title(
        "DeepSeek-V4-Flash, the paper's fits: to the right at equal\nthroughput, up at equal speed"
    )
    return fig


def _draw_paper_model(axes, model: str, line: str, side: int) -> dict:
    """Draw the paper's frontiers of a model and the levels that it compares; return its part of Figure 7."""
    published = paper.numbers()["figure7"]["models"][model]
    for series, ours in SERIES.items():
        axes.plot(*np.array(published["frontier"][series]).T, **_thin(ours, line))
    for anchor in published["anchors"]:
        _draw_anchor(axes, anchor, side if anchor["sla_tps"] > ROOM_TO_THE_LEFT else 1)
    return published


def _number_loads(axes, name: str, points: np.ndarray, side: int) -> None:
    """Write the number of requests under way (throughput over speed) beside every second point [n, 2] of a frontier: left (-1)
    or right (1)."""
    for speed, total in points:
        if round(np.log2(total / speed)) % 2:
            continue
        axes.annotate(
            f"{total / speed:.0f}",
            (speed, total),
            (6 * side, 4 * (side > 0)),
            textcoords="offset points",
            fontsize=SMALL,
            zorder=5,
            color=style(name)["color"],
            ha="left" if side > 0 else "right",
            va="bottom" if side > 0 else "center",
        )


def _draw_anchor(axes, anchor: dict, side: int) -> None:
    """Draw a level at which the paper compares: equal throughput, and the gain in speed of each user, written left (-1) or
    right (1)."""
    theirs = anchor["sla_tps"]
    ours = anchor["dspark_tps_at_mtp_throughput"]
    level = anchor["mtp_throughput"]
    arrow(axes, (theirs, level), (ours, level), BLACK)
    axes.annotate(
        f"{anchor['annotated_tps_gain_pct']:+.0f} %",
        (ours if side > 0 else theirs, level),
        (4 * side, 2),
        fontsize=SMALL,
        textcoords="offset points",
        va="bottom" if side > 0 else "center",
        ha="left" if side > 0 else "right",
        bbox={
            "boxstyle": "square,pad=0.1",
            "facecolor": "white",
            "edgecolor": "none",
            "alpha": 0.8,
        },
    )


def operating_point(
    curves: dict[str, np.ndarray],
    measured: dict[str, np.ndarray],
    name: str,
    point: tuple[float, float],
    lengths,
    accepted,
    survival,
    title: str,
    device: str,
):
    """Draw the place of a load on the frontier, and the drafts of each of its requests in one step.

    `curves` and `measured` hold [n, 2] by name, the model's and the engine's on `device`; the axes have room for all that was
    measured, so that they stay when other curves are drawn. `lengths` and `accepted` are [R], `survival` [R, g]; requests are
    sorted by their length.
    """
    fig, (left, right) = figure(2, width=4.1, height=3.1, gridspec_kw={"width_ratios": [1, 1.25]})
    for other, points in curves.items():
        left.plot(*points.T, **{**style(other), "marker": ""})
        left.plot(
            *measured[other].T, **{**style(other), "label": "_", "linestyle": "", "markersize": 5}
        )
    left.plot(
        *point,
        marker="o",
        markersize=15,
        markerfacecolor="none",
        markeredgewidth=2.5,
        color=RED,
        linestyle="",
    )
    fastest, most = 1.1 * np.concatenate(list(measured.values())).max(0)
    left.set(xlabel=PER_USER, ylabel=IN_ALL, xlim=(0, fastest), ylim=(0, most))
    left.set_title("ring: {:.0f} tokens/s for each user, {:.0f} in all".format(*point))
    what = [
        Line2D([], [], color=GREY, label="lines: the model"),
        Line2D([], [], color=GREY, linestyle="", marker="o", markersize=5, label="marks: measured"),
    ]
    left.legend(handles=[*left.get_legend_handles_labels()[0], *what])
    measured_on(left, device)
    order = np.lexsort((-survival.sum(1), -lengths))
    _draw_lengths(right, lengths[order], np.minimum(accepted, lengths)[order], survival.shape[1])
    right.set_title(title)
    return fig


def _draw_lengths(axes, lengths, kept, gamma: int) -> None:
    """Draw drafts drafted, verified and accepted of each request."""
    x = np.arange(1, len(lengths) + 1)
    axes.bar(
        x, np.full(len(x), gamma), color="white", edgecolor=GREY, linewidth=0.5, label="drafted"
    )
    axes.bar(x, lengths, color=SKY, label="verified")
    axes.bar(x, kept, color=GREEN, label="accepted")
    axes.axhline(lengths.mean(), color=BLACK, linestyle="--", linewidth=1, label="mean length")
    axes.set(
        xlabel="requests, longest first",
        ylabel="drafts",
        ylim=(0, gamma * 1.22),
        yticks=range(gamma + 1),
        xlim=(0.4, max(len(x), 8) + 0.6),
    )
    axes.grid(False)
    axes.legend(ncols=4, loc="upper center", columnspacing=0.8, handlelength=1.2)


def two_machines(frontiers: dict[str, dict[str, np.ndarray]]):
    """Draw throughput against the speed of each user, {machine: {drafter: [n, 2]}}, a panel a machine, with a ray from the origin for each
    load: throughput = requests under way * speed."""
    fig, panels = figure(len(frontiers), width=3.8, height=3.6, squeeze=False)
    for axes, (machine, lines) in zip(panels.flat, frontiers.items()):
        fastest, most = (max(points[:, side].max() for points in lines.values()) for side in (0, 1))
        wide, high = 1.25 * fastest, 1.2 * most
        loads = {round(total / speed) for points in lines.values() for speed, total in points}
        labelled = np.inf  # where the ray of the last label ends
        for requests in sorted(loads, reverse=True):
            end = min(wide, high / requests)
            axes.plot([0, end], [0, requests * end], color=GREY, linewidth=0.8, zorder=1)
            inside = end < wide
            if inside and abs(end - labelled) < 0.2 * wide:
                continue  # no room for its label
            labelled = end
            axes.annotate(
                f"R = {requests}",
                (end, requests * end),
                (0, 3) if inside else (3, 0),
                textcoords="offset points",
                ha="center" if inside else "left",
                va="bottom" if inside else "center",
                fontsize=SMALL,
                color=GREY,
                annotation_clip=False,
            )
        for name, points in lines.items():
            look = drafter_style(name)
            axes.plot(*points.T, **{**look, "markersize": 4})
            axes.annotate(
                look["label"],
                points[1],
                (8, 4),
                textcoords="offset points",
                fontsize=SMALL,
                color=look["color"],
                annotation_clip=False,
            )
        axes.set(xlabel=PER_USER, xlim=(0, wide), ylim=(0, high))
        axes.set_title(machine, pad=18)
    panels[0][0].set_ylabel(IN_ALL)
    return fig


def scheduling_pays(budgets: dict[str, dict[int, Estimate]], gains: dict[str, dict[int, Estimate]]):
    """Draw, of each machine, the share of the drafts that Algorithm 1 verifies (left), and throughput over whole blocks' (right),
    {machine: {load: Estimate}} in percent."""
    fig, (left, right) = figure(2, width=3.6, height=3.5)
    for axes, drawn in ((left, budgets), (right, gains)):
        ends, most = [], max(max(values) for values in drawn.values())
        for (name, values), (colour, marker) in zip(drawn.items(), MACHINE_LOOKS):
            machine = name.replace(", ", ",\n")
            look = {"color": colour, "marker": marker, "markersize": 5}
            draw_estimates(axes, list(values), list(values.values()), look)
            if max(values) == most:
                ends.append((most, values[most].value, machine, colour))
                continue
            place = min(values) if axes is left else max(values)
            axes.annotate(
                machine,
                (place, values[place].value),
                (6, -8),
                textcoords="offset points",
                fontsize=SMALL,
                va="top",
                color=colour,
            )
        log_ticks(axes, (1, 8, 64, 256) if axes is left else (32, 64, 128, 256), UNDER_WAY)
        if axes is left:
            axes.set(ylim=(0, 104), ylabel="drafts verified, % of the block")
        else:
            axes.axhline(0, color=GREY, linewidth=1)
            axes.set(ylabel="tokens/s above whole blocks', %")
        label_ends(axes, ends, gap=0.1)
    left.set_title("what is verified")
    right.set_title("what it brings")
    return fig


def draw_lab_load(lab_load: dict, stored: dict[str, dict[int, float]], stored_label: str):
    """Draw throughput over plain decoding by load: of a lab's small serving load (diamonds) and the stored one of the engine,
    {policy: {load: ratio}} (hollow)."""
    measured = {
        (row["policy"], row["concurrency"]): row["tokens_per_second"] for row in lab_load["rows"]
    }
    loads = sorted({load for _, load in measured})
    fig, axes = figure(width=6.4, height=3.2)
    for policy in ("fixed", "algorithm1"):
        look = policy_style(policy)
        axes.plot(
            loads,
            [measured[policy, load] / measured["plain", load] for load in loads],
            **{**look, "marker": "D", "label": f"{look['label']}, {lab_load['target']}"},
        )
        there = {load: ratio for load, ratio in stored[policy].items() if load <= loads[-1]}
        axes.plot(
            list(there),
            list(there.values()),
            **{**hollow(look), "label": f"{look['label']}, {stored_label}"},
        )
    axes.axhline(1, color=GREY, linewidth=1)
    axes.set(ylabel="throughput over plain decoding", ylim=(0, None))
    log_ticks(axes, loads, UNDER_WAY)
    axes.legend()
    measured_on(axes, lab_load["device"])
    return fig
