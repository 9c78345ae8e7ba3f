"""Figures of lesson 08: parts of a file, errors of modules, the first block, ties, what others measured, memory.

Ours are filled, with intervals; what others measured is hollow.
"""

import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

from dspark_lite.common.estimates import Estimate
from dspark_lite.common.names import DRAFTER_LABELS
from ..measure import roofline
from .style import (BLACK, BLUE, DRAFTER_STYLES, GREEN, GREY, ORANGE, PURPLE, RED, SKY, YELLOW, drafter_style, draw_estimates,
                    figure, hollow, label_ends, measured_on)
from .token_boxes import LETTERS, box_width, draw_box, inch_canvas

PART_COLOURS = {"embedding": GREY, "LM head": "#C4C4C4", "context projection": YELLOW, "backbone": BLUE,
                "sequential head": ORANGE, "confidence head": RED}
DTYPES = {"float32": (BLUE, "o"), "float16": (GREEN, "s"), "bfloat16": (RED, "^")}  # name: (colour, marker)
MEMORY_COLOURS = {"target": GREY, "drafter": PURPLE, "keys and values": SKY}


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


def rounding(found: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]):
    """The gap of the two best logits against how far rounding moves it, {type: (gap, moved, changed)}.

    There is an entry a place; choices that changed are ringed. Above the line rounding moves the gap by more than it is
    wide. Zeros of either number are drawn at 1e-6.
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
    panels[0].set_ylabel("how far rounding moves it\n(zeros are drawn at $10^{-6}$)")
    return fig


def beside_public(lengths: dict[str, dict[str, Estimate]], speedups: dict[str, dict[str, float]], public: dict | None,
                  device: str):
    """Accepted length by domain, and speed-up by domain and in "total"; DSpark's of a `public` run of the same target are
    hollow (None: there is none)."""
    fig, (length, speed) = figure(2, width=4.9, height=3.6)
    domains = list(next(iter(lengths.values())))
    places = [*domains, "total"]
    for index, name in enumerate(lengths):
        style, shift = {**drafter_style(name), "linestyle": "none"}, 0.16 * (index - (len(lengths) - 1) / 2)
        x = np.arange(len(places)) + shift
        draw_estimates(length, x[:-1], [lengths[name][domain] for domain in domains], style)
        speed.plot(x, [speedups[name][place] for place in places], **style)
        if name == "dspark" and public:
            theirs = {**hollow({**style, "markersize": 8}, "none"), "label": f"DSpark on a {public['device']}, public"}
            length.plot(x[:-1] + 0.07, [public["accepted_length"][domain] for domain in domains], **theirs)
            speed.plot(x[-1:] + 0.07, [public["speedup"]], **theirs)
    length.set(xticks=range(len(domains)), xticklabels=domains, ylabel="accepted length (tokens per round)")
    length.set_ylim(bottom=1)
    length.set_title("bars: 95% intervals, from few prompts", fontsize=10)
    speed.set_title("single measurements, without intervals", fontsize=10)
    speed.axhline(1, color=GREY, linestyle="--", linewidth=1)
    speed.set(xticks=range(len(places)), xticklabels=places, ylabel="times plain decoding", ylim=(0, None))
    measured_on(speed, device)
    fig.legend(*length.get_legend_handles_labels(), loc="outside lower center", ncols=len(lengths) + 1, fontsize=8)
    return fig


def engine_acceptance(rows: list[dict], engine: str):
    """The share of rounds that accept each position, a panel a row of engine.json: `generate` filled, the engine hollow."""
    fig, panels = figure(len(rows), width=4.4, height=3.2, squeeze=False, sharey=True)
    for axes, row in zip(panels[0], rows):
        style = drafter_style(row["drafter"])
        for name, look in (("generate", style), ("vllm", hollow(style))):
            kept = row[name]["accepted_by_position"]
            axes.plot(range(1, len(kept) + 1), [count / row[name]["rounds"] for count in kept],
                      **{**look, "label": f"{style['label']}, {engine if name == 'vllm' else name}"})
        axes.set(xlabel="draft position", xticks=range(1, len(kept) + 1), ylim=(0, 1.02))
        axes.legend(fontsize=8)
    panels[0][0].set(ylabel="share of rounds that accept it")
    return fig


def memory_bars(held: dict[str, dict[str, int]], tokens: int):
    """Megabytes by drafter, {drafter: {part: bytes}}, with caches of `tokens` tokens."""
    fig, axes = figure(width=7.0, height=0.42 * len(held) + 1.2)
    for row, parts in enumerate(held.values()):
        left = 0.0
        for part, size in parts.items():
            axes.barh(row, size / 1e6, left=left, color=MEMORY_COLOURS[part])
            if row == len(held) - 1 and size:
                axes.annotate(part, (left + size / 2e6, row + 0.4), (0, -9), textcoords="offset points", ha="center", va="center",
                              fontsize=8, color=MEMORY_COLOURS[part])
            left += size / 1e6
        axes.text(left, row, f" {left:,.1f}", va="center", fontsize=9)
    axes.set(yticks=range(len(held)), yticklabels=[drafter_style(name)["label"] for name in held],
             xlabel=f"memory held (MB), caches of {tokens:,} tokens")
    plain, (last, most) = sum(held["plain"].values()), max(held.items(), key=lambda entry: sum(entry[1].values()))
    axes.set_title(f"{drafter_style(last)['label']} holds {sum(most.values()) / plain - 1:.0%} more than plain decoding", fontsize=10)
    axes.margins(x=0.12)
    axes.set_ylim(len(held) - 0.2, -0.6)
    axes.grid(axis="y", visible=False)
    return fig


def predicted(style: dict) -> dict:
    """The style of predicted values: the drafter's colour and marker, not filled."""
    return {**style, "markerfacecolor": "none", "linestyle": "none", "markersize": 8}


def predicted_speed(rows: list[roofline.Prediction], accepted: dict[str, float] | None = None,
                    measured: list[dict] | None = None, device: str | None = None):
    """Tokens per second by GPU, and what a round takes on the first of them.

    `rows` are those of roofline.predictions(), `accepted` {drafter: accepted length} (default: the paper's mean on
    Qwen3-4B; drafters without one are left out of the left panel). `measured` rows ({"drafter", "tokens_per_second"},
    as `bench` writes them) of a `device` stand, filled, at the right end.
    """
    accepted = roofline.paper_lengths() if accepted is None else {"plain": 1.0, **accepted}
    fig, (speed, parts) = figure(2, width=5.6, height=3.9)
    _draw_speeds(speed, rows, accepted, measured or [], device)
    _draw_parts(parts, [row for row in rows if row.device == rows[0].device])
    title = "Qwen3-4B and the released drafts, batch 1: a prediction"
    fig.suptitle(title + (", and what was measured" if measured else ""), fontsize=10)
    return fig


def _draw_speeds(axes, rows, accepted: dict[str, float], measured: list[dict], device: str | None) -> None:
    places = list(dict.fromkeys(row.device for row in rows))
    drafters = [name for name in dict.fromkeys(row.drafter for row in rows) if name in accepted]
    for index, name in enumerate(drafters):
        x = np.arange(len(places)) + 0.09 * (index - (len(drafters) - 1) / 2)
        speeds = [row.tokens_per_second(accepted[name]) for row in rows if row.drafter == name]
        axes.plot(x, speeds, **predicted(drafter_style(name)))
    for row in measured:
        style = {**drafter_style(row["drafter"]), "label": "_"}
        axes.plot(len(places), row["tokens_per_second"], linestyle="none", **style)
    places += ["here"] if measured else []
    axes.set(xticks=range(len(places)), xticklabels=places, yscale="log", xlim=(-0.5, len(places) - 0.5),
             ylabel="tokens per second", xlabel="predicted for (hollow)")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.legend(fontsize=8, loc="upper left")
    if measured:
        measured_on(axes, device)


def _draw_parts(axes, rows) -> None:
    y, names = np.arange(len(rows)), [row.drafter for row in rows]
    colours = [DRAFTER_STYLES[name][0] for name in names]
    verify, draft, bound = zip(*((row.verify, row.draft, row.bound) for row in rows))
    axes.barh(y, verify, 0.6, color="white", edgecolor=GREY, hatch="///", label="verify, predicted")
    axes.barh(y, draft, 0.6, verify, color="none", edgecolor=colours, linewidth=1.6, label="draft, predicted")
    axes.plot(bound, y, linestyle="none", marker="|", markersize=16, color=BLACK, label="bandwidth bound of both")
    axes.set(yticks=y, yticklabels=[DRAFTER_LABELS[name] for name in names],
             xlabel=f"milliseconds per round on {rows[0].device}")
    axes.invert_yaxis()
    axes.legend(fontsize=8)


def diagnosed(runs: dict, gammas: dict[str, int], most_rounds: int = 8):
    """What a mistake does to the accepted length, {label: generations}, the first without one: left the share of rounds
    that keep a position, of the {label: drafts per round} in `gammas`, right the tokens committed by the number of the round."""
    fig, (position, number) = figure(2, width=4.9)
    looks = zip(runs.items(), ((BLUE, "o", "-"), (PURPLE, "s", "--"), (RED, "X", ":"), (BLACK, "D", "-.")))
    ends, gamma = [], max(gammas.values())
    for (label, generations), (colour, marker, line) in looks:
        accepted = np.array([r.accepted for g in generations for r in g.rounds])
        style = {"color": colour, "marker": marker, "linestyle": line}
        drafted = range(1, gammas[label] + 1)
        position.plot(drafted, [(accepted >= k).mean() for k in drafted], **style)
        means = [np.mean([g.rounds[k].committed for g in generations if len(g.rounds) > k])
                 for k in range(min(most_rounds, max(len(g.rounds) for g in generations)))]
        number.plot(range(1, len(means) + 1), means, **style)
        ends.append((most_rounds, means[-1], label, colour))
    position.set(xlabel="draft position", ylabel="share of rounds that keep it", xticks=range(1, gamma + 1), ylim=(0, 1.02))
    position.set_title("by position", fontsize=10)
    number.set(xlabel="round of the answer", ylabel="tokens committed", xticks=range(1, most_rounds + 1), ylim=(0, gamma + 1.2))
    number.set_title("by round", fontsize=10)
    label_ends(number, ends)
    return fig
