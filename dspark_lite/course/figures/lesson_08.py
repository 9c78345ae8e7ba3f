"""Figures of lesson 08: parts of a file, a block in two layouts, a block beside the target's own tokens."""

from .style import (
    BLACK,
    BLUE,
    GREY,
    MEDIUM,
    ORANGE,
    PALE,
    RED,
    SMALL,
    WINE,
    YELLOW,
    figure,
    write,
)
from .token_boxes import (
    arrow,
    box_width,
    column_widths,
    draw_box,
    draw_row,
    inch_canvas,
    tower_box,
    write_row,
)

PART_COLOURS = {
    "embedding": GREY,
    "LM head": PALE,
    "context projection": YELLOW,
    "backbone": BLUE,
    "sequential head": ORANGE,
    "confidence head": RED,
}


def file_parts(files: dict[str, dict[str, int]], copies: set[str]):
    """Draw bytes by part of checkpoints, {label: {part: bytes}}, as shares of the file; parts in `copies` are hatched."""
    fig, axes = figure(width=8.4, height=0.75 * len(files) + 1.1)
    shares = [
        {part: size / sum(parts.values()) for part, size in parts.items()}
        for parts in files.values()
    ]
    thin = {part for part in shares[0] if all(by_part.get(part, 0) < 0.002 for by_part in shares)}
    for row, parts in enumerate(files.values()):
        left, total = 0.0, sum(parts.values())
        for part, size in parts.items():
            share = size / total
            axes.barh(
                row,
                share,
                left=left,
                height=0.6,
                color=PART_COLOURS[part],
                edgecolor="white",
                hatch="///" if part in copies else None,
                label=None if row else f"{part} (too thin to see)" if part in thin else part,
            )
            if share > 0.06:
                write(
                    axes,
                    left + share / 2,
                    row,
                    f"{share:.0%}",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5},
                )
            left += share
        axes.text(1.01, row, f"{total / 1e6:,.1f} MB", va="center", fontsize=MEDIUM)
    axes.set(
        yticks=range(len(files)),
        yticklabels=list(files),
        xlim=(0, 1),
        xlabel="share of the file (hatched: a copy of the target's)",
    )
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_title(
        f"{sum(shares[-1][part] for part in copies):.0%} of the file of {list(files)[-1]} are copies of the target's tensors",
    )
    fig.legend(loc="outside lower center", ncols=len(PART_COLOURS), columnspacing=1.3)
    return fig


def numbered(axes, x: float, y: float, number: int, text: str) -> None:
    """Draw a mistake's number in a disc at x, y, and its description after it."""
    write(
        axes,
        x,
        y,
        str(number),
        weight="bold",
        colour="white",
        bbox={"boxstyle": "circle,pad=0.25", "facecolor": WINE, "edgecolor": WINE},
    )
    axes.text(x + 0.17, y, text, va="center", fontsize=SMALL, color=WINE)


COLUMN = 0.62  # inches
CONTEXT, SLOTS = 2, 4  # tokens of the context that are drawn, slots of the block
ARROWS_TOP, ARROWS_FOOT = -0.62, -1.55
FOOT = ARROWS_FOOT - 0.62  # below the numbers of the places


def layout_picture():
    """Draw a block of four slots in both layouts, an arrow from each slot to the place that it predicts; numbers where four
    mistakes are made: in the taps, in the layout, in the draft's cache, in the anchor's slot."""
    panel = COLUMN * (CONTEXT + SLOTS + 1) + 0.5
    fig, axes = inch_canvas(2 * panel, 3.2)
    _released_layout(axes, 0.42)
    _other_layout(axes, panel + 0.52)
    return fig


def _layout(axes, left: float, shift: int, title: str) -> list[float]:
    """Draw a context and a block from `left` on, whose slots predict the place `shift` after their
    own. Return the middle of each column."""
    columns = [left + COLUMN * (k + 0.5) for k in range(CONTEXT + SLOTS + shift)]

    def box(x: float, y: float, face, text: str, **options) -> None:
        tower_box(axes, x, y, COLUMN - 0.06, 0.3, face, text, **options)

    axes.text(left, -0.12, title, va="center", fontsize=MEDIUM, weight="bold")
    for x in columns[:CONTEXT]:
        box(x, ARROWS_FOOT - 0.17, BLUE, "context", size=7, letters="white")
    for k, x in enumerate(columns[CONTEXT:]):
        if k < SLOTS:
            face, text, letters = ("white", "mask", GREY) if k else (BLACK, "anchor", "white")
            box(x, ARROWS_FOOT - 0.17, face, text, size=8, letters=letters)
        if 0 < k < SLOTS + shift:
            box(x, ARROWS_TOP + 0.17, "white", f"draft {k}", edge=ORANGE, size=8, letters=BLACK)
            arrow(axes, (x - shift * COLUMN, ARROWS_FOOT), (x, ARROWS_TOP), BLACK)
    for k, x in enumerate(columns):
        write(axes, x, ARROWS_FOOT - 0.46, f"{k - CONTEXT}", colour=GREY)
    axes.text(
        left - 0.04,
        ARROWS_FOOT - 0.46,
        "place",
        ha="right",
        va="center",
        fontsize=SMALL,
        color=GREY,
    )
    return columns


def _below(axes, x: float, y: float, text: str, colour) -> None:
    """Write a text below y, its middle at x."""
    axes.text(x, y, text, ha="center", va="top", fontsize=SMALL, color=colour)


def _released_layout(axes, left: float) -> None:
    """Draw the released layout, with the mistakes 1, 3 and 4."""
    columns = _layout(axes, left, 1, "released layout: each slot predicts the place after its own")
    middle = left + COLUMN * CONTEXT / 2
    arrow(axes, (middle, FOOT - 0.26), (middle, FOOT), BLUE)
    _below(axes, middle, FOOT - 0.35, "hidden states of\nthe target's taps", BLUE)
    numbered(axes, left - 0.22, FOOT - 0.86, 1, "taken one layer early")
    numbered(axes, left - 0.06, ARROWS_FOOT + 0.5, 4, "a mask stands here")
    aside = columns[CONTEXT] - 0.15
    arrow(axes, (aside, ARROWS_FOOT + 0.38), (aside, ARROWS_FOOT), WINE)
    first = columns[CONTEXT] - 0.5 * COLUMN
    last = columns[CONTEXT + SLOTS - 1] + 0.5 * COLUMN
    axes.plot(
        [first + 0.03] * 2 + [last - 0.03] * 2,
        [FOOT, FOOT - 0.1, FOOT - 0.1, FOOT],
        color=GREY,
        lw=1,
    )
    after = "after the round, the block leaves\nthe drafter's cache"
    _below(axes, (first + last) / 2, FOOT - 0.2, after, GREY)
    numbered(axes, first + 0.12, FOOT - 0.86, 3, "stays there, and the next round reads it")


def _other_layout(axes, left: float) -> None:
    """Draw the other layout, with mistake 2."""
    columns = _layout(axes, left, 0, "other layout: each mask predicts its own place")
    write(axes, columns[CONTEXT], ARROWS_FOOT + 0.2, "predicts\nnothing", colour=GREY)
    numbered(
        axes,
        left - 0.05,
        FOOT - 0.35,
        2,
        "a drafter of the released layout, read like this: the\nguess of mask 1 for place 2 is used at place 1, and so on",
    )


def judged(tokens: list[str], wanted: list[str]) -> list[tuple[str, str]]:
    """Return each drafted token as (text, kind): kept while it equals the one `wanted`, then refused, then unread."""
    first = next(
        (k for k, pair in enumerate(zip(tokens, wanted)) if pair[0] != pair[1]), len(tokens)
    )
    kinds = ["kept"] * first + ["refused"] + ["unread"] * len(tokens)
    return list(zip(tokens, kinds))


def blocks(rows: dict[str, list[tuple[str, str]]], anchor: str):
    """Draw rows of tokens in boxes, {label: [(text, kind)]}, position under position, after the anchor in the first row."""
    columns = column_widths(rows.values())
    start, line = 0.12 + 0.075 * max(map(len, rows)), 0.36
    label = start + max(box_width(anchor, "anchor"), 0.6) + 0.1
    fig, axes = inch_canvas(max(label + sum(columns) + 0.1, 7), line * (len(rows) + 1) + 0.1)
    write_row(axes, start, -line / 2, "anchor")
    draw_box(axes, start, -1.5 * line, anchor, "anchor")
    for k in range(len(columns)):
        x = label + sum(columns[:k]) + 0.08
        write_row(axes, x, -line / 2, str(k + 1))
    for number, (name, row) in enumerate(rows.items(), 1):
        y = -line * (number + 0.5)
        write_row(axes, 0.02, y, name)
        draw_row(axes, label, y, row, columns)
    return fig
