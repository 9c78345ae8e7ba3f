"""Figures of lesson 08: parts of a file, errors of modules, a block beside the target's own tokens."""

from .style import (BLACK, BLUE, GREEN, GREY, ORANGE, RED, YELLOW, figure)
from .token_boxes import LETTERS, box_width, draw_box, inch_canvas

PART_COLOURS = {"embedding": GREY, "LM head": "#C4C4C4", "context projection": YELLOW, "backbone": BLUE,
                "sequential head": ORANGE, "confidence head": RED}
DTYPES = {"float32": (BLUE, "o"), "float16": (GREEN, "s"), "bfloat16": (RED, "^")}  # name: (colour, marker)


def file_parts(files: dict[str, dict[str, int]], copies: set[str]):
    """Bytes by part of checkpoints, {label: {part: bytes}}, as shares of the file; parts in `copies` are hatched."""
    fig, axes = figure(width=8.4, height=0.75 * len(files) + 1.1)
    for row, parts in enumerate(files.values()):
        left, total = 0.0, sum(parts.values())
        for part, size in parts.items():
            share = size / total
            axes.barh(row, share, left=left, height=0.6, color=PART_COLOURS[part], edgecolor="white",
                      hatch="///" if part in copies else None, label=part if row == 0 else None)
            if share > 0.06:
                axes.text(left + share / 2, row, f"{share:.0%}", ha="center", va="center", fontsize=8,
                          bbox={"facecolor": "white", "edgecolor": "none", "pad": 1.5})
            left += share
        axes.text(1.01, row, f"{total / 1e6:,.1f} MB", va="center", fontsize=9)
    axes.set(yticks=range(len(files)), yticklabels=list(files), xlim=(0, 1),
             xlabel="share of the file (hatched: a copy of the target's)")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    copied = [sum(parts[part] for part in copies) / sum(parts.values()) for parts in files.values()]
    axes.set_title("copies of the target's: " + ", ".join(f"{share:.0%} of the file of {label}" for label, share in zip(files, copied)), fontsize=10)
    fig.legend(loc="outside lower center", ncols=len(PART_COLOURS), fontsize=8)
    return fig


def module_error_figure(found: dict[str, list[dict[str, float]]], tolerance: float):
    """Largest error of each module, {type: [{module: error} of a reference case]}, on a log scale, and a tolerance."""
    fig, axes = figure(width=7.0)
    modules = list(dict.fromkeys(module for cases in found.values() for errors in cases for module in errors))
    for index, (dtype, cases) in enumerate(found.items()):
        colour, marker = DTYPES[dtype]
        points = [(modules.index(module) + 0.18 * (index - 1), error)
                  for errors in cases for module, error in errors.items()]
        axes.plot(*zip(*points), linestyle="", marker=marker, color=colour, alpha=0.75, label=f"computed in {dtype}")
    axes.axhline(tolerance, color=BLACK, linestyle="--", linewidth=1, label=f"tolerance in float32, {tolerance:.0e}")
    worst = {dtype: max(error for errors in cases for error in errors.values()) for dtype, cases in found.items()}
    axes.set_title("largest error: " + ", ".join(f"{error:.0e} in {dtype}" for dtype, error in worst.items()), fontsize=10)
    axes.set(yscale="log", xticks=range(len(modules)), xticklabels=[module.replace(" ", "\n") for module in modules],
             ylabel="largest absolute error")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def judged(tokens: list[str], wanted: list[str]) -> list[tuple[str, str]]:
    """Each drafted token as (text, kind): kept while it equals the one `wanted`, then refused, then unread."""
    first = next((k for k, pair in enumerate(zip(tokens, wanted)) if pair[0] != pair[1]), len(tokens))
    kinds = ["kept"] * first + ["refused"] + ["unread"] * len(tokens)
    return list(zip(tokens, kinds))


def blocks(rows: dict[str, list[tuple[str, str]]], anchor: str):
    """Rows of tokens in boxes, {label: [(text, kind)]}, position under position; the anchor stands before the first row's."""
    columns = [max(box_width(*row[k]) for row in rows.values() if k < len(row))
               for k in range(max(map(len, rows.values())))]
    start, line = 0.12 + 0.075 * max(map(len, rows)), 0.36
    label = start + max(box_width(anchor, "anchor"), 0.6) + 0.1
    fig, axes = inch_canvas(max(label + sum(columns) + 0.1, 7), line * (len(rows) + 1) + 0.1)
    axes.text(start, -line / 2, "anchor", fontsize=LETTERS, va="center_baseline", color=GREY)
    draw_box(axes, start, -1.5 * line, anchor, "anchor")
    for k in range(len(columns)):
        x = label + sum(columns[:k]) + 0.08
        axes.text(x, -line / 2, str(k + 1), fontsize=LETTERS, va="center_baseline", color=GREY)
    for number, (name, row) in enumerate(rows.items(), 1):
        y = -line * (number + 0.5)
        axes.text(0.02, y, name, fontsize=LETTERS, va="center_baseline", color=GREY)
        for k, token in enumerate(row):
            draw_box(axes, label + sum(columns[:k]), y, *token)
    return fig
