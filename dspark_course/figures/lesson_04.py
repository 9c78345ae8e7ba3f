"""Figures of lesson 04: who sees what, marginals of a block, pairs of tokens, planted mistakes."""

import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from ..measure.evaluation import acceptance_by_position, position_estimates
from .style import ALTERED, BLACK, DRAFTER_STYLES, GREY, domain_style, draw_positions, drafter_style, figure, measured_on
from .token_boxes import shown, token_labels


def attention_picture(context: int, gamma: int):
    """Who sees what, query rows against key columns: the target verifying `gamma` drafts (causal), the drafter drafting them."""
    verifying = np.tril(np.ones((gamma + 1, context + gamma + 1)), context)
    drafting = np.ones((gamma, context + gamma))
    fig, panels = figure(2, width=5.4, height=3.3)
    context_shade, block_shade = "#D0D0D0", "#606060"  # without a hue: hues are the drafters'
    views = ((verifying, f"target, verifying {gamma} drafts: no token sees a later one", "draft"),
             (drafting, "drafter, drafting them: every slot sees all", "mask"))
    for axes, (seen, title, slot) in zip(panels, views):
        seen[:, context:] *= 2  # context and block in two colours
        axes.imshow(seen, cmap=ListedColormap(["white", context_shade, block_shade]), vmin=0, vmax=2, aspect="auto")
        rows, columns = seen.shape
        block = ["anchor", *(f"{slot} {k}" for k in range(1, rows))]
        axes.set(xlabel="key (-1 is the last token before the anchor)", xticks=range(columns), yticks=range(rows), yticklabels=block)
        axes.set_title(title, fontsize=10)
        axes.set_xticklabels([*(f"{-n}" for n in range(context, 0, -1)), *block], rotation=90, fontsize=8)
        axes.set_xticks([x - 0.5 for x in range(columns)], minor=True)
        axes.set_yticks([y - 0.5 for y in range(rows)], minor=True)
        axes.grid(False)
        axes.grid(which="minor", color="white", alpha=1)
        axes.tick_params(which="both", length=0)
        axes.axvline(context - 0.5, color=BLACK, linewidth=1.5)
    panels[0].set_ylabel("query")
    fig.legend(handles=[Patch(color=context_shade, label="sees it, in the context"), Patch(color=block_shade, label="sees it, in the block"),
                        Patch(facecolor="white", edgecolor=GREY, label="does not see it")], loc="outside lower center", ncols=3)
    return fig


def block_marginals(lab, probs, anchor: str, drawn=None, count: int = 5):
    """The most likely tokens of each slot of probs [g, V], from 0.5 % up, shaded by probability, above those that were `drawn`
    [g], if any; returns the figure."""
    values, tokens = probs.float().cpu().topk(count, -1)  # [g, count]
    slots = len(values)
    fig, axes = figure(width=1.15 * slots + 0.9, height=0.42 * count + 0.9)
    axes.imshow(values.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")  # so that figures can be compared
    for k in range(slots):
        for rank, label in enumerate(token_labels(lab, tokens[k])):
            if values[k, rank] >= 0.005:
                axes.text(k, rank, f"{label}\n{values[k, rank]:.0%}", ha="center", va="center", fontsize=8,
                          color="white" if values[k, rank] > 0.6 else BLACK)
    sure = int((values[:, 0] > 0.5).sum())
    axes.set_title(f"after the anchor '{shown(anchor)}': {sure} of {slots} slots are sure of their token (above 50 %)", fontsize=10)
    below = [""] * slots if drawn is None else [f"\ndrawn: {label}" for label in token_labels(lab, drawn)]
    axes.set(xlabel="draft position", ylabel="rank (blank: below 0.5 %)", xticks=range(slots),
             xticklabels=[f"{k + 1}{label}" for k, label in enumerate(below)], yticks=range(count), yticklabels=range(1, count + 1))
    axes.grid(False)
    return fig


def pair_maps(tables: dict, first: list[str], second: list[str]):
    """Heat maps of tables [rows, columns], title to values, of the probability of a first token (row) and a second; the
    first table is the target's, and each title says how much lies on pairs below 0.5 % in it."""
    fig, panels = figure(len(tables), width=4.0, height=3.3, sharey=True)
    tables = {title: torch.as_tensor(table).float().cpu() for title, table in tables.items()}
    highest, first_table = max(float(table.max()) for table in tables.values()), next(iter(tables.values()))
    for axes, (title, table) in zip(panels, tables.items()):
        axes.imshow(table, cmap="Blues", vmin=0, vmax=highest)
        for row, values in enumerate(table.tolist()):
            for column, value in enumerate(values):
                if value >= 0.005:
                    axes.text(column, row, f"{value:.0%}", ha="center", va="center", fontsize=7.5,
                              color="white" if value > 0.6 * highest else BLACK)
        wasted = (table[first_table < 0.005].sum() / table.sum()).item()
        axes.set_title(f"{title}\n{wasted:.1%} on pairs that the target hardly writes", fontsize=9.5)
        axes.set(xlabel="second token", xticks=range(len(second)), yticks=range(len(first)),
                 yticklabels=first)
        axes.set_xticklabels(second, rotation=60, ha="right")
        axes.tick_params(labelleft=True)
        axes.grid(False)
    panels[0].set_ylabel("first token")
    return fig


def mistakes(runs: dict, gamma: int, drafter: str):
    """Share of rounds that accept at least k drafts, one line a variant {label: generations}; the first is `drafter`
    as it should be and looks as in every figure. The title counts the mistakes that show at the first draft (a fifth of them
    lost) and says what the mildest of these costs."""
    fig, axes = figure(width=6.2)
    own_colour, own_marker = DRAFTER_STYLES[drafter]
    looks = ((own_colour, own_marker, "-"), (ALTERED, "s", "--"), (ALTERED, "X", ":"), (ALTERED, "D", "-."))
    firsts = []
    for (label, generations), (colour, marker, line) in zip(runs.items(), looks):
        accepted = np.array([r.accepted for g in generations for r in g.rounds])
        shares = [(accepted >= k).mean() for k in range(1, gamma + 1)]
        firsts.append(shares[0])
        axes.plot(range(1, gamma + 1), shares, label=label, color=colour, marker=marker, linestyle=line)
    own, *mistaken = firsts
    axes.set(xlabel="draft position", ylabel="share of rounds that keep it and all before", xticks=range(1, gamma + 1), ylim=(0, 1.02))
    costly = [1 - first / own for first in mistaken if first < 0.8 * own]
    axes.set_title(f"{len(costly)} of {len(mistaken)} mistakes cost {min(costly):.0%} or more of the first drafts" if costly
                   else "no mistake shows at the first draft", fontsize=10)
    axes.legend(fontsize=8, handlelength=3.5)
    return fig


def draft_time_figure(cached: dict[int, float], projecting: dict[int, float], device: str):
    """Milliseconds of a round's draft work by tokens of context: with the context's keys and values cached, and with the
    time of projecting them anew added."""
    contexts = list(cached)
    anew = [cached[count] + projecting[count] for count in contexts]
    fig, axes = figure()
    axes.plot(contexts, list(cached.values()), **drafter_style("dflash"))
    axes.plot(contexts, anew, color=ALTERED, marker="s", linestyle="--", label="without the cache (projection added)")
    axes.set(xlabel="context (tokens)", ylabel="draft time per round (ms)", ylim=(0, None))
    longer, ours, theirs = contexts[-1] / contexts[0], cached[contexts[-1]] / cached[contexts[0]], anew[-1] / anew[0]
    axes.set_title(f"context × {longer:.0f}: time × {ours:.1f} with the cache, × {theirs:.1f} without", fontsize=10)
    axes.legend()
    measured_on(axes, device)
    return fig


def collision_by_position(runs: dict, small_runs: list, gamma: int):
    """Conditional acceptance by position: DFlash in each domain {name: generations} (left), and on chat beside the small LM
    (right). The colour is the drafter's in both panels, the line style the domain's."""
    fig, (left, right) = figure(2, width=4.6, sharey=True)
    for index, (domain, generations) in enumerate(runs.items()):
        style = domain_style(domain) | {"color": DRAFTER_STYLES["dflash"][0]}
        draw_positions(left, position_estimates(generations, gamma), style, shift=0.08 * (index - 1))
    for name, generations, shift in (("dflash", runs["chat"], -0.05), ("small_lm", small_runs, 0.05)):
        draw_positions(right, position_estimates(generations, gamma), drafter_style(name) | {"linestyle": ":"}, shift=shift)
    firsts_and_least = {domain: (rates[0], min(rate for rate in rates if rate is not None))
                        for domain, rates in ((name, acceptance_by_position(found, gamma)) for name, found in runs.items())}
    falling = max(firsts_and_least, key=lambda domain: firsts_and_least[domain][0] - firsts_and_least[domain][1])
    left.set_title(f"DFlash: acceptance falls most on {falling}", fontsize=10)
    right.set_title("chat: a drafter that reads its own drafts stays flat", fontsize=10)
    right.set_ylabel("")
    for axes in (left, right):
        axes.legend(loc="lower left", handlelength=3.5)
    return fig
