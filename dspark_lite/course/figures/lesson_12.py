"""Figures of lesson 12: five claims in one unit, a gain by training, and first drafts by training."""

from collections.abc import Sequence

from ..estimates import PAPER, Estimate
from ..replication import ledger
from ..replication.five_claims import Ratios
from .style import BLACK, BLUE, GREEN, GREY, MEDIUM, RED, SMALL, figure, measured_on, zero_line

COLOURS = {ledger.REPLICATES: GREEN, ledger.DOES_NOT: RED, ledger.UNDECIDED: GREY}
WIDTH = 5.6  # inches: readable on a telephone
LINE = 0.24  # inches a line


def sign_colour(found: Estimate) -> str:
    """Return the colour of an interval: wholly above zero, wholly below, or zero inside."""
    return GREEN if found.low > 0 else RED if found.high < 0 else GREY


def draw_line(axes, place: float, found: Estimate, colour: str) -> None:
    """Draw an estimate in per cent as a dot with its interval."""
    ends = 100 * found.low, 100 * found.high
    axes.hlines(place, *ends, color=colour, linewidth=1.8)
    axes.plot(100 * found.value, place, marker="o", markersize=6, color=colour)


def five_rows(rows: Sequence[tuple[Ratios, dict[str, Estimate], str]], device: str):
    """Draw claims in per cent: (claim, our fractions by label, verdict); the paper's are hollow, read off its table and figures."""
    places, labels, top, heads = [], [], 0.0, []
    for claim, estimate, verdict in rows:
        heads.append((top, claim.says, verdict))
        places += [top + 1 + number for number in range(len(estimate))]
        labels += list(estimate)
        top += len(estimate) + 1.4
    fig, axes = figure(width=WIDTH, height=LINE * (top + 4.5))
    for number, (head, words, verdict) in enumerate(heads):
        axes.annotate(
            words,
            (0, head),
            xycoords=("axes fraction", "data"),
            xytext=(-72, 0),
            textcoords="offset points",
            va="center",
            fontsize=MEDIUM,
            weight="bold",
            bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
        )
        axes.annotate(
            verdict,
            (1, head),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="center",
            fontsize=MEDIUM,
            weight="bold",
            color=COLOURS[verdict],
        )
        if number:
            axes.axhline(head - 0.6, color=GREY, linewidth=0.5)
    lines = iter(places)
    for claim, estimate, _ in rows:
        for label, ours in estimate.items():
            place = next(lines)
            draw_line(axes, place, ours, sign_colour(ours))
            axes.plot(
                100 * claim.more[label].value(PAPER),
                place,
                marker="D",
                markersize=6,
                markerfacecolor="none",
                color=BLACK,
            )
    zero_line(axes, axis="x")
    axes.set(xlabel="per cent more", ylim=(top - 0.6, -0.8))
    axes.set_yticks(places, labels, fontsize=SMALL)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_visible(False)
    axes.set_title("dots: here, 95 %; hollow: the paper", loc="left", fontsize=MEDIUM)
    measured_on(axes, device)
    return fig


def gain_by_training(apart: list[Estimate], together: Estimate, what: str, device: str):
    """Draw a gain of single trainings, with intervals over prompts, above that of their mean, over prompts and trainings."""
    fig, axes = figure(width=WIDTH, height=LINE * (len(apart) + 6))
    words = ("the training that is shipped", "trained again", "and again")
    for place, gain in enumerate(apart):
        draw_line(axes, place, gain, GREY if place else BLUE)
    draw_line(axes, len(apart) + 0.3, together, BLACK)
    axes.axvspan(100 * apart[0].low, 100 * apart[0].high, color=BLUE, alpha=0.1, lw=0)
    zero_line(axes, axis="x")
    axes.set_yticks(
        [*range(len(apart)), len(apart) + 0.3],
        [*words[: len(apart)], "mean of the three"],
        fontsize=MEDIUM,
    )
    axes.set(xlabel=what, ylim=(len(apart) + 0.9, -0.6), xlim=(-1, None))
    axes.grid(axis="y", visible=False)
    measured_on(axes, device)
    return fig


def first_drafts(found: dict[str, Sequence[float]], device: str):
    """Draw the share of first drafts on math and chat that are accepted, a dot for each training: {drafter: shares}."""
    fig, axes = figure(width=WIDTH, height=LINE * (len(found) + 5.5))
    for place, shares in enumerate(found.values()):
        axes.plot(
            [100 * share for share in shares],
            [place] * len(shares),
            marker="o",
            markersize=7,
            linestyle="none",
            color=BLUE,
            alpha=0.7,
        )
    axes.set_yticks(range(len(found)), list(found), fontsize=MEDIUM)
    axes.set(
        xlabel="first drafts accepted (%), mean of math and chat", ylim=(len(found) - 0.4, -0.6)
    )
    measured_on(axes, device)
    return fig
