"""Figures of lesson 03: what passes read again, what two caches keep, and when speculation pays."""

from .style import (
    ACCEPTED,
    ALTERED,
    BLACK,
    GREY,
    NEXT,
    PALE,
    RED,
    REJECTED,
    SMALL,
    figure,
    slower_than_plain,
    write,
)
from .token_boxes import inch_canvas, rounded_box

DRAFT_LENGTHS = range(1, 17)
# Edge, line and letters of a box.
KEEPS = (ACCEPTED, "-", "white")
FORGETS = (REJECTED, "-", "white")
NOT_READ = (GREY, ":", GREY)


def reading_again(passes: dict[str, list[tuple[int, int]]]):
    """Draw a panel per model with a bar per pass, {model: [(tokens read, of them read before)]}; the title has the share read
    again."""
    fig, panels = figure(rows=len(passes), width=5.2, height=2.1, squeeze=False)
    for axes, (name, reads) in zip(panels[:, 0], passes.items()):
        read, before = (list(part) for part in zip(*reads))
        numbers = range(1, len(reads) + 1)
        axes.bar(numbers, before, 0.9, color=PALE, label="read by the pass before")
        axes.bar(
            numbers,
            [all_of - again for all_of, again in reads],
            0.9,
            bottom=before,
            color=NEXT,
            label="new",
        )
        axes.set(xlabel="pass", ylabel="tokens that go in", xlim=(0.4, len(reads) + 0.6))
        axes.set_title(
            f"{name}: {sum(before) / sum(read):.0%} of what it reads, it has read before",
        )
        axes.grid(axis="x", visible=False)
    panels[0, 0].legend(loc="lower right", frameon=True)
    return fig


def two_caches(gamma: int, accepted: int):
    """Draw a round of `gamma` drafts, `accepted` of them kept, as two rows of boxes: the tokens that each model's cache keeps
    and forgets, and those that the model has not read."""
    tokens = ["anchor", *(f"draft {k}" for k in range(1, gamma + 1)), "its own\ntoken"]
    rows = {"target": gamma + 1, "small LM": gamma}  # of these tokens, how many it has read
    wide, high, label = 0.62, 0.34, 0.78
    fig, axes = inch_canvas(label + wide * len(tokens) + 0.05, 1.9)
    for k, text in enumerate(tokens):
        write(axes, label + wide * (k + 0.5), -0.22, text)
    for number, (name, read) in enumerate(rows.items()):
        y = -0.66 - 0.5 * number
        axes.text(0.05, y, name, va="center")
        for k in range(len(tokens)):
            state, word = (
                ((KEEPS, "keeps") if k <= accepted else (FORGETS, "forgets"))
                if k < read
                else (NOT_READ, "not read")
            )
            edge, line, letters = state
            left = label + wide * k + 0.03
            face = "white" if state is NOT_READ else edge
            rounded_box(axes, left, y, wide - 0.06, high, face, edge, corner=0.06, line=line)
            write(axes, left + wide / 2 - 0.03, y, word, colour=letters)
    axes.text(
        0.05,
        -1.62,
        f"one round with γ = {gamma}: {accepted} drafts are accepted; the target adds its own\n"
        "token, which is the next anchor",
        va="center",
        fontsize=SMALL,
        color=BLACK,
    )
    return fig


def expected_tau(a: float, gamma: int) -> float:
    """Return the expected tokens per round, if each draft after kept ones is kept with chance `a`."""
    return sum(a**k for k in range(gamma + 1))


def best_length(a: float, cost: float, verify: float) -> int:
    """Return the draft length with the largest expected speed-up, up to 16."""
    return max(DRAFT_LENGTHS, key=lambda gamma: expected_tau(a, gamma) / (gamma * cost + verify))


def when_it_pays(
    acceptance: float, cost: float, verify: float, ours: dict[str, tuple[int, float, dict]]
):
    """Draw the expected speed-up by draft length. `cost` of drafting a token and `verify` of verifying a block are in plain
    passes.

    `ours` are measured drafters, {label: (draft length, speed-up, style)}, drawn beside the curve.
    """
    fig, axes = figure(height=3.2)
    curve = [
        expected_tau(acceptance, length) / (length * cost + verify) for length in DRAFT_LENGTHS
    ]
    best = best_length(acceptance, cost, verify)
    slower_than_plain(axes)
    axes.text(
        0.98,
        0.03,
        "slower than plain decoding",
        transform=axes.transAxes,
        ha="right",
        fontsize=SMALL,
        color=RED,
    )
    _draw_formula(axes, curve, best)
    for label, drafter in ours.items():
        _draw_measured(axes, label, *drafter)
    # A few scales, so that most settings can be compared.
    top = next(top for top in (3, 6, 12, 24) if top > max(curve))
    axes.set(
        xlabel="draft length γ",
        ylabel="times plain decoding",
        ylim=(0, top),
        xticks=DRAFT_LENGTHS[::3],
    )
    pays = (
        f"best at γ = {best}: {max(curve):.1f} times plain decoding"
        if max(curve) > 1
        else "no draft length pays"
    )
    axes.set_title(pays)
    return fig


def _draw_formula(axes, curve: list[float], best: int) -> None:
    """Draw the expected speed-up at DRAFT_LENGTHS, with a star at the best length."""
    axes.plot(DRAFT_LENGTHS, curve, color=ALTERED, marker=".", label="formula")
    axes.plot(
        best,
        max(curve),
        linestyle="",
        marker="*",
        markersize=15,
        color=BLACK,
        markerfacecolor="white",
        label=f"best: γ = {best}",
    )
    axes.annotate(
        "formula",
        (DRAFT_LENGTHS[-1], curve[-1]),
        (0, 9),
        textcoords="offset points",
        ha="right",
        fontsize=SMALL,
        color=ALTERED,
    )


def _draw_measured(axes, label: str, length: int, speedup: float, style: dict) -> None:
    """Draw the measured speed-up of a drafter at its draft length, with its name."""
    axes.plot(length, speedup, linestyle="", markersize=9, label=f"measured: {label}", **style)
    axes.annotate(
        f"{label}, measured",
        (length, speedup),
        (8, 9),
        textcoords="offset points",
        va="center",
        fontsize=SMALL,
        color=style["color"],
    )
