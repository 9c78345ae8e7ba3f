"""Figures of lesson 08: parts of a file, errors of modules, the first block, ties, what others measured, memory.

Ours are filled, with intervals; what others measured is hollow.
"""

import numpy as np

from .evaluation import Estimate
from .paper_plots import draw_estimates, hollow
from .plots import (BLACK, BLUE, GREEN, GREY, LETTERS, ORANGE, RED, YELLOW, box_width, draw_box, drafter_style, figure,
                    inch_canvas, measured_on, shown)

PART_COLOURS = {"embedding": GREY, "LM head": "#C4C4C4", "context projection": YELLOW, "backbone": BLUE,
                "sequential head": ORANGE, "confidence head": RED}
DTYPES = {"float32": (BLUE, "o"), "float16": (GREEN, "s"), "bfloat16": (RED, "^")}  # name: (colour, marker)
MEMORY = {"target": GREY, "drafter": BLUE, "keys and values": ORANGE}


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
    fig.legend(loc="outside upper center", ncols=len(PART_COLOURS), fontsize=8)
    return fig


def module_errors(found: dict[str, list[dict[str, float]]], tolerance: float):
    """Largest error of each module, {type: [{module: error} of a reference case]}, on a log scale, and a tolerance."""
    fig, axes = figure(width=7.0)
    modules = list(dict.fromkeys(module for cases in found.values() for errors in cases for module in errors))
    for index, (dtype, cases) in enumerate(found.items()):
        colour, marker = DTYPES[dtype]
        points = [(modules.index(module) + 0.18 * (index - 1), error)
                  for errors in cases for module, error in errors.items()]
        axes.plot(*zip(*points), linestyle="", marker=marker, color=colour, alpha=0.75, label=f"computed in {dtype}")
    axes.axhline(tolerance, color=BLACK, linestyle="--", linewidth=1, label=f"tolerance in float32, {tolerance:.0e}")
    axes.set(yscale="log", xticks=range(len(modules)), xticklabels=[module.replace(" ", "\n") for module in modules],
             ylabel="largest absolute error")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def judged(tokens: list[str], wanted: list[str]) -> list[tuple[str, str]]:
    """Each drafted token as (text, kind): kept while it equals the one `wanted`, then refused, then unread."""
    first = next((k for k, pair in enumerate(zip(tokens, wanted)) if pair[0] != pair[1]), len(tokens))
    kinds = ["kept"] * first + ["refused"] + ["unread"] * len(tokens)
    return list(zip(tokens, kinds))


def blocks(rows: dict[str, list[tuple[str, str]]]):
    """Rows of tokens in boxes, {label: [(text, kind)]}, position under position."""
    columns = [max(box_width(*row[k]) for row in rows.values() if k < len(row))
               for k in range(max(map(len, rows.values())))]
    label, line = 0.12 + 0.075 * max(map(len, rows)), 0.36
    fig, axes = inch_canvas(max(label + sum(columns) + 0.1, 7), line * (len(rows) + 1) + 0.1)
    for k in range(len(columns)):
        x = label + sum(columns[:k]) + 0.08
        axes.text(x, -line / 2, str(k + 1), fontsize=LETTERS, va="center_baseline", color=GREY)
    for number, (name, row) in enumerate(rows.items(), 1):
        y = -line * (number + 0.5)
        axes.text(0.02, y, name, fontsize=LETTERS, va="center_baseline", color=GREY)
        for k, token in enumerate(row):
            draw_box(axes, label + sum(columns[:k]), y, *token)
    return fig


def confidences(ours: list[float], tokens: list[str], theirs: dict, device: str):
    """Confidence by draft position, ours with the drafted tokens, and that of a public run (`first_block`), hollow."""
    fig, axes = figure(width=6.6)
    style = {**drafter_style("dspark"), "label": "here"}
    axes.plot(range(1, len(ours) + 1), ours, **style)
    others = {**hollow(style), "label": "public notebook"}
    axes.plot(range(1, len(theirs["confidence"]) + 1), theirs["confidence"], **others)
    axes.set(xticks=range(1, len(tokens) + 1), xlabel="draft position, token drafted here", ylabel="confidence",
             xticklabels=[f"{k}\n{shown(text)}" for k, text in enumerate(tokens, 1)], ylim=(0, 1.05))
    axes.legend(fontsize=8, loc="lower left")
    measured_on(axes, device)
    return fig


def rounding(found: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]):
    """The gap of the two best logits against how far rounding moves it, {type: (gap, moved, changed)}.

    There is an entry a place; choices that changed are ringed. Above the line rounding moves the gap by more than it is
    wide.
    """
    fig, panels = figure(len(found), width=3.2, height=3.0, sharey=True, sharex=True)
    least, ends = 1e-6, (4e-7, 1e2)
    for axes, (dtype, (gap, moved, changed)) in zip(panels, found.items()):
        colour, marker = DTYPES[dtype]
        x, y = gap.clip(least), moved.clip(least)
        axes.plot(x, y, linestyle="", marker=marker, markersize=3, alpha=0.35, color=colour)
        ring = {"marker": "o", "markersize": 9, "markerfacecolor": "none", "markeredgecolor": BLACK}
        axes.plot(x[changed], y[changed], linestyle="", **ring)
        axes.plot(ends, ends, color=GREY, linestyle="--", linewidth=1)
        axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, xlabel="gap of the two best logits")
        axes.set_title(f"{dtype}: {int(changed.sum())} of {len(gap)} choices change", fontsize=9)
    panels[0].set_ylabel("how far rounding moves it\n(0 is drawn at the edge)")
    return fig


def beside_public(lengths: dict[str, dict[str, Estimate]], speedups: dict[str, dict[str, float]], public: dict,
                  device: str):
    """Accepted length by domain, and speed-up by domain and over "all"; DSpark's of a public run are hollow."""
    fig, (length, speed) = figure(2, width=4.9, height=3.6)
    domains = list(next(iter(lengths.values())))
    places = [*domains, "all"]
    for index, name in enumerate(lengths):
        style, shift = {**drafter_style(name), "linestyle": "none"}, 0.16 * (index - (len(lengths) - 1) / 2)
        x = np.arange(len(places)) + shift
        draw_estimates(length, x[:-1], [lengths[name][domain] for domain in domains], style)
        speed.plot(x, [speedups[name][place] for place in places], **style)
        if name == "dspark":
            theirs = {**hollow({**style, "markersize": 8}, "none"), "label": f"DSpark on a {public['device']}, public"}
            length.plot(x[:-1] + 0.07, [public["accepted_length"][domain] for domain in domains], **theirs)
            speed.plot(x[-1:] + 0.07, [public["speedup"]], **theirs)
    length.set(xticks=range(len(domains)), xticklabels=domains, ylabel="accepted length (tokens a round)")
    length.set_ylim(bottom=1)
    speed.axhline(1, color=GREY, linestyle="--", linewidth=1)
    speed.set(xticks=range(len(places)), xticklabels=places, ylabel="times plain decoding", ylim=(0, None))
    measured_on(speed, device)
    fig.legend(*length.get_legend_handles_labels(), loc="outside lower center", ncols=len(lengths) + 1, fontsize=8)
    return fig


def memory(held: dict[str, dict[str, int]], tokens: int):
    """Megabytes by drafter, {drafter: {part: bytes}}, with caches of `tokens` tokens."""
    fig, axes = figure(width=7.0, height=0.42 * len(held) + 1.2)
    for row, parts in enumerate(held.values()):
        left = 0.0
        for part, size in parts.items():
            axes.barh(row, size / 1e6, left=left, color=MEMORY[part], label=part if row == 0 else None)
            left += size / 1e6
        axes.text(left, row, f" {left:,.1f}", va="center", fontsize=9)
    axes.set(yticks=range(len(held)), yticklabels=[drafter_style(name)["label"] for name in held],
             xlabel=f"memory held (MB), caches of {tokens:,} tokens")
    axes.margins(x=0.12)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig
