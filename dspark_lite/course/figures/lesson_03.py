"""Figures of lesson 03: what passes read again, what two caches keep, and when speculation pays."""

from .style import (
    ACCEPTED,
    ALTERED,
    BLACK,
    GREY,
    MEDIUM,
    NEXT,
    PALE,
    RED,
    REJECTED,
    SMALL,
    domain_style,
    figure,
    measured_on,
    slower_than_plain,
    write,
)
from .token_boxes import inch_canvas, rounded_box

DRAFT_LENGTHS = range(1, 17)
KEEPS, FORGETS, NOT_READ = (
    (ACCEPTED, "-", "white"),
    (REJECTED, "-", "white"),
    (GREY, ":", GREY),
)  # edge, line, letters


def reading_again(passes: dict[str, list[tuple[int, int]]]):
    """Draw a panel per model with a bar per pass, {model: [(tokens read, of them read before)]}; the title has the share read
    again."""
    fig, panels = figure(len(passes), width=4.6, height=2.6, squeeze=False)
    for axes, (name, found) in zip(panels[0], passes.items()):
        read, before = (list(part) for part in zip(*found))
        numbers = range(1, len(found) + 1)
        axes.bar(numbers, before, 0.9, color=PALE, label="read by the pass before")
        axes.bar(
            numbers,
            [all_of - again for all_of, again in found],
            0.9,
            bottom=before,
            color=NEXT,
            label="new",
        )
        axes.set(xlabel="pass", ylabel="tokens that go in", xlim=(0.4, len(found) + 0.6))
        axes.set_title(
            f"{name}: {sum(before) / sum(read):.0%} of what it reads, it has read before",
        )
        axes.grid(axis="x", visible=False)
    panels[0, 0].legend(loc="lower right", frameon=True)
    return fig


def two_caches(gamma: int, accepted: int):
    """Draw a round of `gamma` drafts, `accepted` of them kept, as two rows of boxes: the tokens that each model's cache keeps
    and forgets, and those that the model has not read."""
    tokens = ["anchor", *(f"draft {k}" for k in range(1, gamma + 1)), "its own"]
    rows = {"target": gamma + 1, "small LM": gamma}  # of these tokens, how many it has read
    wide, high, label = 0.86, 0.36, 0.9
    fig, axes = inch_canvas(label + wide * len(tokens) + 0.1, 1.95)
    for k, text in enumerate(tokens):
        write(
            axes,
            label + wide * (k + 0.5),
            -0.22,
            "the target's\nown token" if text == "its own" else text,
        )
    for number, (name, read) in enumerate(rows.items()):
        y = -0.72 - 0.55 * number
        axes.text(0.05, y, name, va="center")
        for k in range(len(tokens)):
            state, word = (
                ((KEEPS, "keeps") if k <= accepted else (FORGETS, "forgets"))
                if k < read
                else (NOT_READ, "not read")
            )
            edge, line, letters = state
            left = label + wide * k + 0.04
            face = "white" if state is NOT_READ else edge
            rounded_box(axes, left, y, wide - 0.08, high, face, edge, corner=0.06, line=line)
            write(axes, left + wide / 2 - 0.04, y, word, colour=letters)
    axes.text(
        label + 0.04,
        -1.75,
        f"one round with γ = {gamma}: {accepted} drafts are accepted, the target adds its own token, "
        "and that is the next anchor",
        fontsize=MEDIUM,
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
    fig, axes = figure(width=6.4, height=3.3)
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
    for label, (length, speedup, style) in ours.items():
        axes.plot(length, speedup, linestyle="", markersize=9, label=f"measured: {label}", **style)
    top = next(
        top for top in (3, 6, 12, 24) if top > max(curve)
    )  # few scales, so that most settings can be compared
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
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return fig


def draft_length_sweep(
    measured: dict[int, tuple[float, float]],
    model: dict[int, tuple[float, float]],
    domain: str,
    device: str,
):
    """Draw tokens per round (left) and times plain decoding (right) by draft length: measured and by the formula, each {draft
    length: (tokens per round, times plain)}."""
    fig, panels = figure(2, width=4.4, height=3.0)
    style = domain_style(domain)
    for axes, found, expected in zip(panels, zip(*measured.values()), zip(*model.values())):
        axes.plot(list(model), expected, color=ALTERED, label="formula")
        axes.plot(
            list(measured),
            found,
            **{**style, "linestyle": "", "markersize": 9, "label": f"measured, {domain}"},
        )
        axes.set(xlabel="draft length γ", xticks=list(model))
    panels[0].set(ylabel="tokens per round, τ", ylim=(1, None))
    slower_than_plain(panels[1])
    panels[1].set(ylabel="times plain decoding", ylim=(0, None))
    panels[0].legend()
    measured_on(panels[1], device)
    return fig
