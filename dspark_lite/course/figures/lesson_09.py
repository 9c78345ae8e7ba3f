"""Figures of lesson 09: what the confidence head says, how right it is, and what a threshold on it saves.

Figures 5 and 6 lay ours (filled, with intervals over prompts) beside the paper's (hollow); ours come from
assets/measurements/confidence, the paper's from `paper`. Where a lab has other models than the tiny ones, theirs stand
there as a third, in LAB_LOOK's look.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import expit

from ...scheduling.calibration import (
    Observations,
    auc,
    ece,
    reliability,
    survivals,
    survived,
)
from ...scheduling.cost_table import CostTable
from .. import paper
from ..estimates import share_estimates
from ..measure.confidence import cut_lengths, pooled, replay
from ..replication import confidence_results
from ..replication.lab_results import LabConfidence
from .style import (
    ACCEPTED,
    BLACK,
    BLUE,
    GREY,
    MEDIUM,
    ORANGE,
    REJECTED,
    SMALL,
    DescribedFigure,
    domain_style,
    draw_estimates,
    figure,
    measured_on,
    zero_line,
)
from .token_boxes import along_block

FIGURE_6_BINS = 20  # of the paper's Figure 6
PAPER_MARKERS = {
    "color": BLACK,
    "marker": "o",
    "markersize": 3.5,
    "markerfacecolor": "none",
    "linestyle": "",
}
LAB_LOOK = {"color": ORANGE, "marker": "D", "markersize": 4.5, "linestyle": ""}
SWEPT = np.linspace(0, 0.95, 20)  # thresholds that the explorer draws
NEAR = 1.03  # a cost up to this many times the least counts as good as the least
DEAREST = 2.0  # times the least: where the explorer's axis of costs ends, unless the chosen threshold costs more


def block(texts: list[str], said, label, accepted: int):
    """Draw each slot of a block with the true chance that a token drawn there is kept (bars) and the confidence it was given
    (diamonds), [g] each; the first `accepted` were kept."""
    fig, axes = figure(width=7.2, height=2.5)
    position = range(len(texts))
    axes.bar(
        position,
        label,
        0.6,
        color="white",
        edgecolor=BLACK,
        hatch="///",
        label="chance of being kept, 1 − TV(p, q)",
    )
    along_block(fig, axes, texts, said, accepted)
    axes.set_title(
        "What the head said before the target read the block, and each slot's true chance",
    )
    return fig


def decay(observations: dict[str, Observations], device: str):
    """Draw mean confidence, predicted survival and observed survival by position, a panel a domain."""
    fig, panels = figure(len(observations), width=2.8, height=2.9, sharey=True)
    off = 0.0
    for axes, (domain, observed) in zip(panels, observations.items()):
        predicted = survivals(observed.logits)
        outcome = survived(observed.accepted, observed.logits.shape[1])
        off = max(off, np.abs(predicted.mean(0) - outcome.mean(0)).max())
        position, colour = np.arange(1, predicted.shape[1] + 1), domain_style(domain)["color"]
        axes.plot(
            position,
            expit(observed.logits).mean(0),
            color=GREY,
            marker="D",
            linestyle=":",
            label="mean confidence",
        )
        axes.plot(
            position,
            predicted.mean(0),
            color=BLACK,
            marker="s",
            linestyle="--",
            markerfacecolor="none",
            label="survival, predicted",
        )
        share = share_estimates(outcome, np.ones_like(outcome), observed.prompts)
        draw_estimates(
            axes,
            position,
            share,
            {
                "color": colour,
                "marker": "o",
                "label": "survival, observed\n(95 % interval within the mark)",
            },
        )
        axes.set(xlabel="draft position", xticks=position, ylim=(0, 1.02))
        axes.set_title(f"{domain}: {len(outcome)} blocks")
    panels[0].set_ylabel("probability or share of blocks")
    panels[0].legend(loc="lower left")
    fig.suptitle(
        f"Confidence is about one token; survival multiplies, and is predicted within {100 * off:.1f} points",
    )
    measured_on(panels[-1], device)
    return fig


def gaps(curve: list, drafts: int):
    """Draw a reliability curve of bins (predicted, observed, count) of the survival of the first `drafts`; beside it the gaps
    that ECE averages, in percentage points, and the counts that it weights them by."""
    fig, axes = plt.subplot_mosaic(
        [["curve", "gap"], ["curve", "count"]],
        figsize=(8.4, 3.3),
        height_ratios=[2, 1],
        FigureClass=DescribedFigure,
    )
    predicted, true, count = np.array(curve).T
    axes["curve"].plot([0, 1], [0, 1], color=GREY, linewidth=1)
    axes["curve"].plot(predicted, true, color=BLUE, marker="o")
    gap = 100 * (true - predicted)
    axes["curve"].set(
        title=f"The first {drafts} drafts survive as predicted, within {np.abs(gap).max():.1f} points",
        xlabel="predicted survival (mean of the bin)",
        ylabel="share that survived",
        ylim=(-0.03, 1.03),
    )
    axes["gap"].bar(predicted, gap, 0.045, color=BLUE)
    zero_line(axes["gap"])
    axes["gap"].set(
        title=f"The gaps; weighted by blocks they are {np.average(np.abs(gap), weights=count):.1f} points",
        ylabel="survived − predicted\n(points)",
    )
    axes["count"].bar(predicted, count, 0.045, color=GREY)
    axes["count"].set(xlabel="predicted survival (mean of the bin)", ylabel="blocks")
    for panel in axes.values():
        panel.set_xlim(-0.03, 1.03)
    return fig


def one_temperature(curves: dict[str, list], errors: dict[str, float], floor: float, search: tuple):
    """Draw a head that is too sure, and one temperature for it: reliability before and after, {label: [(predicted, observed,
    count)]}, with the ECE of each; beside it `search`, (temperatures, ECE at each)."""
    fig, (left, right) = figure(2, width=4.1, height=3.2)
    left.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    for (label, curve), colour, marker in zip(curves.items(), (REJECTED, BLUE), "Xo"):
        predicted, true, _ = np.array(curve).T
        left.plot(
            predicted,
            true,
            color=colour,
            marker=marker,
            markersize=4,
            label=f"{label}: ECE {errors[label]:.1%}",
        )
    left.fill_between([0, 1], [0, 1], 0, color=GREY, alpha=0.1, lw=0)
    left.text(0.97, 0.05, "too sure", ha="right", fontsize=MEDIUM, color=GREY)
    left.set(xlabel="predicted survival", ylabel="share that survived", xlim=(0, 1), ylim=(0, 1))
    left.set_title("Below the diagonal a head is too sure")
    left.legend(loc="upper left")
    temperatures, ece_at = search
    right.plot(temperatures, 100 * np.asarray(ece_at), color=BLUE)
    best = int(np.argmin(ece_at))
    right.plot(
        temperatures[best],
        100 * ece_at[best],
        color=BLUE,
        marker="o",
        label=f"least at T = {temperatures[best]:.2f}",
    )
    right.axhline(100 * floor, color=GREY, linestyle="--", label="floor: chance alone")
    right.axvline(1, color=BLACK, linestyle=":", linewidth=1)
    right.set(xscale="log", xlabel="temperature", ylabel="ECE (%)", ylim=(0, None))
    right.set_xticks([0.5, 1, 2, 4], ["0.5", "1", "2", "4"])
    right.minorticks_off()
    right.set_title("One number mends most of it")
    right.legend()
    return fig


def threshold_rates(device: str, rows: list[dict]):
    """Draw Figure 5's rate and its price, a panel a domain: the share of verified tokens that were accepted, ours filled with
    intervals and the paper's hollow; and, thin, the share of tokens that a threshold leaves."""
    domains = list(dict.fromkeys(row["domain"] for row in rows))
    fig, panels = figure(len(domains), width=3.0, height=2.9, sharey=True)
    for axes, domain in zip(panels, domains):
        swept = {row["threshold"]: row["accepted"] for row in rows if row["domain"] == domain}
        x, style = list(swept), {**domain_style(domain), "label": "acceptance rate"}
        _draw_rates(axes, domain, x, style, "the paper's")
        axes.plot(
            x,
            [100 * accepted / swept[x[0]] for accepted in swept.values()],
            color=GREY,
            linewidth=1,
            label="tokens per round,\n% of no threshold",
        )
        axes.set(xlabel="confidence threshold", xticks=x[::3], ylim=(40, 102))
        axes.set_title(domain)
    panels[0].set_ylabel("percent")
    panels[0].legend(loc="lower left")
    fig.suptitle("A threshold makes what is verified purer, and each round shorter")
    measured_on(panels[-1], device)
    return fig


def _draw_rates(axes, domain: str, thresholds, style: dict, label: str) -> None:
    """Draw the acceptance rate by threshold, in percent: ours with intervals, the paper's hollow, named `label`."""
    rates = [confidence_results.Rate(domain, least).estimate().scaled(100) for least in thresholds]
    draw_estimates(axes, thresholds, rates, style)
    theirs, look = paper.threshold_sweep(domain), {"markerfacecolor": "none", "linewidth": 1}
    axes.plot(theirs["threshold"], 100 * theirs["rate"], **{**style, "label": label, **look})


def figure_6(lab_confidence: LabConfidence | None = None):
    """Draw reliability of survival at positions 1, 3, 5, 7, before (upper row) and after the stored calibration, of all domains
    together. Blocks come from prompts that the calibration was not fitted on. A lab's blocks are drawn beside them, by its own
    calibration."""
    pool = pooled(confidence_results.observations())
    mine = lab_confidence and pooled(lab_confidence.observations)
    fig, panels = figure(4, 2, width=2.4, height=2.4, sharex=True, sharey=True)
    for row, (when, temperatures) in zip(
        panels, (("before", None), ("after", confidence_results.stored_sts().temperatures))
    ):
        predicted = survivals(pool.logits, temperatures)
        for axes, position in zip(row, (1, 3, 5, 7)):
            reliability_panel(axes, pool, predicted[:, position - 1], position)
            theirs = paper.calibration(position)
            axes.plot(theirs[when]["predicted"], theirs[when]["observed"], **PAPER_MARKERS)
            if lab_confidence:
                lab_curve(
                    axes,
                    mine,
                    survivals(mine.logits, temperatures and lab_confidence.sts.temperatures),
                    position,
                )
            label_panel(axes, pool, predicted[:, position - 1], position, theirs, when)
        row[0].set_ylabel(when)
    for axes in panels[1]:
        axes.set_xlabel("predicted survival")
    fig.supylabel("share that survived")
    fig.suptitle(
        "Below the diagonal a head is over-confident: the paper's is, before scaling; ours has little to mend",
    )
    measured_on(panels[1][-1], confidence_results.calibration_run()["device"])
    looks = {
        "filled: here (all), 95 %": {"color": BLUE, "marker": "o", "linestyle": ""},
        "hollow: paper (Alpaca, Qwen3-4B)": PAPER_MARKERS,
        "blocks here, by bin": {"color": GREY, "linewidth": 6, "alpha": 0.4},
        **({lab_confidence.label: LAB_LOOK} if lab_confidence else {}),
    }
    handles = [panels[0][0].plot([], [], **look)[0] for look in looks.values()]
    fig.legend(handles, looks, loc="outside lower center", ncols=len(looks))
    return fig


def lab_curve(axes, found: Observations, predicted: np.ndarray, position: int) -> None:
    """Draw the reliability of a lab's blocks at a position, predictions [N, g]; of a few hundred, so without intervals."""
    bins = reliability(predicted[:, position - 1], found.accepted >= position, FIGURE_6_BINS)
    curve = [bin for bin in bins if bin]
    axes.plot(
        [bin.predicted for bin in curve], [bin.observed for bin in curve], alpha=0.8, **LAB_LOOK
    )


def reliability_panel(axes, found: Observations, predicted: np.ndarray, position: int) -> None:
    """Draw the reliability curve of predictions [N] for a position, with intervals and a histogram along the lower edge."""
    outcome = found.accepted >= position
    curve = reliability(predicted, outcome, FIGURE_6_BINS)
    filled = [index for index, bin in enumerate(curve) if bin]
    member = np.minimum((predicted * FIGURE_6_BINS).astype(int), FIGURE_6_BINS - 1)[
        :, None
    ] == np.array(filled)  # [N, m]
    mean_confidence, _, count = np.array([curve[index] for index in filled]).T
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1)
    axes.bar(
        (np.array(filled) + 0.5) / FIGURE_6_BINS,
        0.25 * count / count.max(),
        0.9 / FIGURE_6_BINS,
        color=GREY,
        alpha=0.4,
    )
    true = share_estimates(member * outcome[:, None], member, found.prompts)
    draw_estimates(
        axes,
        mean_confidence,
        true,
        {"color": BLUE, "marker": "o", "markersize": 3.5, "linestyle": "", "capsize": 0},
    )
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])


def label_panel(
    axes, found: Observations, predicted: np.ndarray, position: int, theirs: dict, when: str
) -> None:
    """Write ECE, ours and the paper's, into a panel; a panel of the upper row also has the position and the AUC."""
    outcome = found.accepted >= position
    lines = [
        f"ECE {ece(predicted, outcome, FIGURE_6_BINS):.1%} (paper {theirs['ece_' + when]:.1%})"
    ]
    if when == "before":
        axes.set_title(f"position {position}")
        lines.append(f"AUC {auc(predicted, outcome):.3f} (paper {theirs['auc']:.3f})")
    axes.text(0.03, 0.97, "\n".join(lines), transform=axes.transAxes, va="top", fontsize=SMALL)


def figure_5():
    """Draw a static threshold, swept: tokens accepted and rejected per round, and the acceptance rate, a column a domain."""
    swept = confidence_results.threshold_sweep()
    domains = list(dict.fromkeys(row["domain"] for row in swept["rows"]))
    fig, panels = figure(len(domains), 2, width=3.0, height=2.4, sharex=True, sharey="row")
    for bars, line, domain in zip(*panels, domains):
        rows = [row for row in swept["rows"] if row["domain"] == domain]
        theirs = paper.threshold_sweep(domain)
        x, ours = (np.array([row[name] for row in rows]) for name in ("threshold", "accepted"))
        rejected = [row["rejected"] for row in rows]
        style = domain_style(domain)
        bars.bar(x - 0.021, ours, 0.038, color=style["color"])
        bars.bar(x - 0.021, rejected, 0.038, bottom=ours, color=GREY, alpha=0.6)
        hollow = {"color": "white", "width": 0.038, "linewidth": 1}
        there = theirs["threshold"] + 0.021
        bars.bar(there, theirs["accepted"], edgecolor=style["color"], **hollow)
        bars.bar(there, theirs["rejected"], bottom=theirs["accepted"], edgecolor=GREY, **hollow)
        _draw_rates(line, domain, x, style, style["label"])
        bars.set_title(domain)
        line.set(xlabel="confidence threshold", ylim=(30, 102), xticks=x[::3])
    fig.suptitle(
        "Rejected drafts go first, and accepted ones go with them: the rate shows the one and not the other",
    )
    panels[0][0].set_ylabel("tokens per round")
    panels[1][0].set_ylabel("acceptance rate (%)")
    measured_on(panels[1][-1], swept["device"])
    _figure_5_legend(fig, panels[0][0])
    return fig


def _figure_5_legend(fig, axes) -> None:
    """Write the meaning of colours, and of filled and hollow."""
    looks = {
        "coloured: accepted, bonus included": {"color": BLUE},
        "grey: rejected": {"color": GREY, "alpha": 0.6},
        "filled: here, 95 %": {"color": BLACK},
        "hollow: paper (Qwen3-4B)": {"color": "white", "edgecolor": BLACK},
    }
    handles = [axes.bar(0, 0, 0, **look) for look in looks.values()]
    fig.legend(handles, looks, loc="outside lower center", ncols=len(looks))


def step_tokens(length: np.ndarray, requests: int) -> np.ndarray:
    """Return the chance of each number of tokens, from 0, in a step that `requests` share: each brings its anchor and a random
    block of the lengths [N]."""
    chances_of_one, chances = np.bincount(length + 1) / len(length), np.ones(1)
    for _ in range(requests):
        chances = np.convolve(chances, chances_of_one)
    return chances


def token_milliseconds(
    table: CostTable, requests: int, observations: Observations, said: np.ndarray, least: float
) -> float:
    """Return the milliseconds of verification per committed token if `requests` share a step, each with a stored block cut at
    confidence `least` (said [N, g]). The time of a step is the mean over its possible tokens."""
    chances = step_tokens(cut_lengths(said, least), requests)
    seconds = chances @ table.seconds(requests, range(len(chances))).numpy()
    return 1e3 * seconds / (requests * replay(observations, said, least)[0])


def threshold_explorer(
    observations: Observations, said: np.ndarray, least: float, table: CostTable, requests: int
):
    """Draw the tokens that blocks cut at confidence `least` (said [N, g]) accept and waste; beside them the cost of a token as
    a multiple of the least, so that all loads share one axis."""
    accepted, wasted = np.array([replay(observations, said, threshold) for threshold in SWEPT]).T
    cost = np.array(
        [token_milliseconds(table, requests, observations, said, threshold) for threshold in SWEPT]
    )
    here = replay(observations, said, least)
    fig, (left, right) = figure(2, width=4.3, height=3.1)
    left.stackplot(
        SWEPT,
        accepted,
        wasted,
        colors=[ACCEPTED, REJECTED],
        alpha=0.75,
        labels=[
            f"committed, {here[0]:.2f} at {least:.2f}",
            f"wasted, {here[1]:.2f} at {least:.2f}",
        ],
    )
    left.set(
        xlabel="confidence threshold",
        ylabel="tokens per round",
        xlim=(0, SWEPT[-1]),
        ylim=(0, 1.25 * (accepted[0] + wasted[0])),
    )
    left.set_title(f"{here[1] / sum(here):.0%} of the places in the pass are wasted")
    left.legend(loc="upper right")
    times = cost / cost.min()
    near = times <= NEAR
    right.plot(SWEPT, times, color=BLUE)
    right.plot(
        SWEPT[near],
        times[near],
        linestyle="",
        marker="D",
        color=BLACK,
        markerfacecolor="white",
        label=f"within {NEAR - 1:.0%} of the least, {cost.min():.3f} ms",
    )
    now = token_milliseconds(table, requests, observations, said, least)
    right.plot(
        least,
        now / cost.min(),
        linestyle="",
        marker="o",
        markersize=9,
        color=BLACK,
        label=f"here: {now:.3f} ms",
    )
    right.set(
        xlabel="confidence threshold",
        ylabel="verification per token (× the least)",
        ylim=(0.95, max(DEAREST, 1.05 * now / cost.min())),
    )
    right.set_title(
        f"{requests} request{'s' * (requests > 1)} per step: {max(0, now / cost.min() - 1):.0%} above the least",
    )
    # The frame hides the dotted line.
    right.legend(loc="upper left", frameon=True, framealpha=1, edgecolor="none")
    for axes in (left, right):
        axes.axvline(least, color=BLACK, linestyle=":")
    measured_on(
        right, table.origin.device if table.origin else confidence_results.steps()["device"]
    )
    return fig
