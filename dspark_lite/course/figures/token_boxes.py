"""Tokens in boxes: a block, what became of it, the rounds of an answer; and the boxes and arrows of drawn towers."""

import matplotlib.pyplot as plt
import torch
from matplotlib.patches import FancyBboxPatch

from .style import ACCEPTED, BLACK, GREY, NEXT, REJECTED, SMALL, write

LETTERS = 9  # points
KINDS = {  # what became of a drafted token: (colour, filled, mark)
    "drafted": (GREY, False, ""),
    "kept": (ACCEPTED, True, ""),
    "refused": (REJECTED, False, "×"),
    "unread": (GREY, False, ""),
    "added": (NEXT, True, "+"),
    "anchor": (BLACK, True, ""),
}


def visible_text(text: str) -> str:
    """Return a token's text with blanks and line ends made visible."""
    return text.replace("\n", "↵").replace(" ", "·").replace("\t", "→") or "∅"


def shown(text: str) -> str:
    """Return a token's text as a label of an axis: blanks visible, and a dollar sign starts no formula."""
    return visible_text(text).replace("$", r"\$")


def token_labels(lab, token_ids) -> list[str]:
    """Return labels of token ids."""
    return [shown(lab.tokenizer.decode([token])) for token in torch.as_tensor(token_ids).tolist()]


def box_width(text: str, kind: str) -> float:
    """Return inches that a token's box takes, gap included: a letter of the monospace face is 0.602 of its size wide."""
    return (0.602 * len(KINDS[kind][2] + visible_text(text)) + 1.15) * LETTERS / 72


def draw_box(axes, x: float, y: float, text: str, kind: str) -> float:
    """Draw one token in a box at x, y (inches); return the left side of the next box."""
    colour, filled, mark = KINDS[kind]
    axes.text(
        x + 0.5 * LETTERS / 72,
        y,
        mark + visible_text(text),
        family="DejaVu Sans Mono",
        fontsize=LETTERS,
        va="center_baseline",
        color="white" if filled else colour,
        bbox={
            "boxstyle": "round,pad=0.3",
            "facecolor": colour if filled else "white",
            "edgecolor": colour,
            "linestyle": ":" if kind == "unread" else "-",
        },
    )
    return x + box_width(text, kind)


def column_widths(rows) -> list[float]:
    """Return the inches of each column of rows of tokens, each (text, kind)."""
    rows = list(rows)
    return [
        max(box_width(*row[k]) for row in rows if k < len(row)) for k in range(max(map(len, rows)))
    ]


def draw_row(axes, x: float, y: float, row: list[tuple[str, str]], columns: list[float]) -> None:
    """Draw a row of tokens at x, y, each in its column."""
    for k, token in enumerate(row):
        draw_box(axes, x + sum(columns[:k]), y, *token)


def write_row(axes, x: float, y: float, text: str, colour: str = GREY) -> None:
    """Write a text from x on, on the line of the boxes at y."""
    axes.text(x, y, text, fontsize=LETTERS, va="center_baseline", color=colour)


def inch_canvas(width: float, height: float):
    """Return a figure without frame whose data units are inches, y downwards from 0: (figure, axes)."""
    fig = plt.figure(figsize=(width, height), layout="none")
    axes = fig.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(-height, 0))
    axes.set_axis_off()
    return fig, axes


def tower_box(
    axes,
    x: float,
    y: float,
    width: float,
    height: float,
    face: str,
    text: str,
    letters: str,
    size: float = 8,
    edge: str = GREY,
) -> None:
    """Draw a rounded box around x, y with a text in it."""
    rounded_box(axes, x - width / 2, y, width, height, face, edge, corner=0.05, lw=1)
    write(axes, x, y, text, size=size, colour=letters)


def rounded_box(
    axes,
    left: float,
    middle: float,
    width: float,
    height: float,
    face: str,
    edge: str,
    *,
    corner: float = 0.08,
    lw: float = 1.2,
    line: str = "-",
) -> None:
    """Draw a rounded box from `left` on, around the height `middle`."""
    axes.add_patch(
        FancyBboxPatch(
            (left, middle - height / 2),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={corner}",
            facecolor=face,
            edgecolor=edge,
            linestyle=line,
            lw=lw,
        )
    )


def arrow(axes, start: tuple, end: tuple, colour: str, lw: float = 1.1, bend: float = 0) -> None:
    """Draw a thin arrow, straight or bent."""
    look = {"arrowstyle": "-|>", "lw": lw, "color": colour, "shrinkA": 0, "shrinkB": 0}
    axes.annotate("", end, start, arrowprops={**look, "connectionstyle": f"arc3,rad={bend}"})


def judged_tokens(lab, r) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return a round's committed tokens and its unused drafts, each as (text, kind).

    After the first refused draft nothing was judged; after a stop token nothing was used.
    """
    texts = [lab.tokenizer.decode([token]) for token in r.draft_tokens]
    committed = [(text, "kept") for text in texts[: r.accepted]]
    committed += [(lab.tokenizer.decode([token]), "added") for token in r.tokens[r.accepted :]]
    unread = [(text, "unread") for text in texts[r.accepted :]]
    if unread and r.committed > r.accepted:
        unread[0] = (unread[0][0], "refused")
    return committed, unread


def rounds_figure(lab, generation, first: int = 0, count: int = 8):
    """Draw the rounds of a generation as rows of tokens.

    `lab` decodes the ids. Kept drafts are filled green and the target's own token blue with a plus; then comes what came to nothing: the
    refused draft red with a cross, those after it dotted.
    """
    rounds = generation.rounds[first : first + count]
    rows = [judged_tokens(lab, r) for r in rounds]
    label, gap, line = 0.85, 0.25, 0.31
    widest = max(sum(box_width(*token) for token in committed + lost) for committed, lost in rows)
    fig, axes = inch_canvas(max(label + widest + gap, 8.2), line * (len(rows) + 1) + 0.1)
    for number, (committed, lost) in enumerate(rows):
        y = -line * (number + 0.5)
        write_row(axes, 0.02, y, f"round {first + number + 1}")
        x = label
        for token in committed:
            x = draw_box(axes, x, y, *token)
        x += gap
        for token in lost:
            x = draw_box(axes, x, y, *token)
    _legend(axes, label, -line * (len(rows) + 0.6))
    return fig


def _legend(axes, x: float, y: float) -> None:
    """Write the meaning of the boxes: an empty box of each kind and its meaning after it."""
    for kind, meaning in (
        ("kept", "draft, kept"),
        ("added", "the target's own"),
        ("refused", "draft, refused"),
        ("unread", "after a refusal or the end: not used"),
    ):
        x = draw_box(axes, x, y, "a", kind)
        write_row(axes, x, y, meaning)
        x += 0.072 * len(meaning) + 0.25


def along_block(fig, axes, texts: list[str], confidence, accepted: int) -> None:
    """Mark each position's confidence on a figure of one block, name the tokens, shade the refused one and those after."""
    position = range(len(texts))
    axes.plot(
        position,
        confidence,
        linestyle="",
        marker="D",
        color=GREY,
        markeredgecolor=BLACK,
        label="confidence",
    )
    if accepted < len(texts):
        axes.axvspan(accepted - 0.5, accepted + 0.5, color=REJECTED, alpha=0.15, lw=0, zorder=0)
        axes.axvspan(accepted + 0.5, len(texts) - 0.5, color=GREY, alpha=0.15, lw=0, zorder=0)
        axes.text(accepted - 0.45, 1.15, "refused", fontsize=SMALL, color=REJECTED, va="top")
    if accepted < len(texts) - 1:
        axes.text(accepted + 0.55, 1.15, "thrown away", fontsize=SMALL, color=GREY, va="top")
    axes.set(
        xticks=position,
        xticklabels=[f"{k + 1}\n{visible_text(text)}" for k, text in enumerate(texts)],
        ylim=(0, 1.17),
        xlim=(-0.5, len(texts) - 0.5),
        xlabel="position in the block, drafted token",
        ylabel="probability",
    )
    axes.grid(axis="x", visible=False)
    fig.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3)
