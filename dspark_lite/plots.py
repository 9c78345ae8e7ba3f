"""Figures of the lessons. A drafter, a domain and a policy have one colour and one marker each, everywhere.

Colours are Okabe and Ito's, wine is Tol's, all told apart by colour-blind readers; markers and line styles say the same
a second time.
The paper's values are hollow, ours are filled. Importing this module puts matplotlib in the house style.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.colors import ListedColormap
from matplotlib.patches import FancyBboxPatch

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, WINE = "#8A8A8A", "#882255"
DRAFTERS = {  # name: (label, colour, marker)
    "plain": ("plain decoding", GREY, "s"), "dspark": ("DSpark", BLUE, "o"),
    "dspark_gated": ("DSpark, gated head", SKY, "P"), "dspark_rnn": ("DSpark, RNN head", BLACK, "X"),
    "dflash": ("DFlash", ORANGE, "^"), "small_lm": ("small LM", GREEN, "D"),
    "prompt_lookup": ("prompt lookup", PURPLE, "v"),
    "eagle3": ("Eagle3", RED, "*"), "mtp": ("MTP-1", WINE, "<"),
}
DOMAINS = {  # name: (colour, marker, line style)
    "math": (BLUE, "o", "-"), "code": (GREEN, "s", "--"), "chat": (RED, "^", ":"),
}
POLICIES = {  # name: (label, colour, marker)
    "all": ("whole block", BLUE, "o"), "fixed": ("fixed length", ORANGE, "s"),
    "threshold": ("confidence threshold", GREEN, "D"), "retrospective": ("retrospective", RED, "X"),
    "algorithm1": ("Algorithm 1", BLACK, "^"), "lagged": ("lagged top-K", PURPLE, "P"),
    "convex": ("Algorithm 1, convex view", SKY, "v"),
}
ACCEPTED, REJECTED, NEXT = GREEN, RED, BLUE  # a draft kept, a draft refused, the token the target adds
plt.rcParams.update({
    "figure.dpi": 110, "figure.constrained_layout.use": True, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.alpha": 0.25, "font.size": 10, "legend.frameon": False,
    "lines.linewidth": 1.8, "lines.markersize": 6})


def figure(columns: int = 1, rows: int = 1, *, width: float = 5.2, height: float = 3.4, **options):
    """A figure of equal panels, each `width` by `height` inches: (figure, axes)."""
    return plt.subplots(rows, columns, figsize=(width * columns, height * rows), **options)


def drafter_style(name: str) -> dict:
    """Keyword arguments of `plot` for a drafter: label, colour, marker."""
    label, colour, marker = DRAFTERS[name]
    return {"label": label, "color": colour, "marker": marker}


def domain_style(name: str) -> dict:
    """Keyword arguments of `plot` for a domain: label, colour, marker, line style."""
    colour, marker, line = DOMAINS[name]
    return {"label": name, "color": colour, "marker": marker, "linestyle": line}


def policy_style(name: str) -> dict:
    """Keyword arguments of `plot` for a policy: label, colour, marker."""
    label, colour, marker = POLICIES[name]
    return {"label": label, "color": colour, "marker": marker}


def measured_on(axes, device: str) -> None:
    """Writes the device of a measurement small under the axes' right end."""
    axes.annotate(f"measured on {device}", (1, 0), (0, -36), xycoords="axes fraction", textcoords="offset points",
                  ha="right", va="top", fontsize=7, color=GREY)


LETTERS = 9  # points
KINDS = {  # what became of a drafted token: (colour, filled, mark)
    "drafted": (GREY, False, ""), "kept": (ACCEPTED, True, ""), "refused": (REJECTED, False, "×"),
    "unread": (GREY, False, ""), "added": (NEXT, True, "+"), "anchor": (BLACK, True, ""),
}


def visible(text: str) -> str:
    """A token's text with blanks and line ends made visible."""
    return text.replace("\n", "↵").replace(" ", "·").replace("\t", "→") or "∅"


def box_width(text: str, kind: str) -> float:
    """Inches that a token's box takes, gap included: a letter of the monospace face is 0.602 of its size wide."""
    return (0.602 * len(KINDS[kind][2] + visible(text)) + 1.15) * LETTERS / 72


def draw_box(axes, x: float, y: float, text: str, kind: str) -> float:
    """One token in a box at x, y (inches); returns where the next box begins."""
    colour, filled, mark = KINDS[kind]
    axes.text(x + 0.5 * LETTERS / 72, y, mark + visible(text), family="DejaVu Sans Mono", fontsize=LETTERS,
              va="center_baseline", color="white" if filled else colour,
              bbox={"boxstyle": "round,pad=0.3", "facecolor": colour if filled else "white", "edgecolor": colour,
                    "linestyle": ":" if kind == "unread" else "-"})
    return x + box_width(text, kind)


def inch_canvas(width: float, height: float):
    """A figure without frame whose data units are inches, y downwards from 0: (figure, axes)."""
    fig = plt.figure(figsize=(width, height), layout="none")
    axes = fig.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(-height, 0))
    axes.set_axis_off()
    return fig, axes


def judged_tokens(lab, r) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """A round's committed tokens and its drafts that came to nothing, each as (text, kind).

    Behind the first refused draft nothing was judged; behind a stop token nothing was used.
    """
    texts = [lab.tokenizer.decode([token]) for token in r.draft_tokens]
    committed = [(text, "kept") for text in texts[:min(r.accepted, r.committed)]]
    committed += [(lab.tokenizer.decode([token]), "added") for token in r.tokens[r.accepted:]]
    unread = [(text, "unread") for text in texts[min(r.accepted, r.committed):]]
    if unread and r.committed > r.accepted:
        unread[0] = (unread[0][0], "refused")
    return committed, unread


def rounds_figure(lab, generation, first: int = 0, count: int = 8):
    """The rounds of a generation as rows of tokens; `lab` decodes the ids.

    Kept drafts are filled green and the target's own token blue with a plus; then comes what came to nothing: the
    refused draft red with a cross, those behind it dotted.
    """
    rounds = generation.rounds[first:first + count]
    rows = [judged_tokens(lab, r) for r in rounds]
    label, gap, line = 0.85, 0.25, 0.31
    widest = max(sum(box_width(*token) for token in committed + lost) for committed, lost in rows)
    fig, axes = inch_canvas(max(label + widest + gap, 8.2), line * (len(rows) + 1) + 0.1)
    for number, (committed, lost) in enumerate(rows):
        y = -line * (number + 0.5)
        axes.text(0.02, y, f"round {first + number + 1}", fontsize=LETTERS, va="center_baseline", color=GREY)
        x = label
        for token in committed:
            x = draw_box(axes, x, y, *token)
        x += gap
        for token in lost:
            x = draw_box(axes, x, y, *token)
    _legend(axes, label, -line * (len(rows) + 0.6))
    return fig


def _legend(axes, x: float, y: float) -> None:
    """What the boxes mean: an empty box of each kind and its meaning behind it."""
    for kind, meaning in (("kept", "draft, kept"), ("added", "the target's own"), ("refused", "draft, refused"),
                          ("unread", "behind a refusal or the end: not used")):
        x = draw_box(axes, x, y, "a", kind)
        axes.text(x, y, meaning, fontsize=LETTERS, va="center_baseline", color=GREY)
        x += 0.072 * len(meaning) + 0.25


def round_figure(lab, generation, number: int):
    """One round of a generation (from 1) in columns: what was drafted, what the target said, what was committed.

    Above stands the end of the text so far; its last token is the anchor.
    """
    r = generation.rounds[number - 1]
    before = generation.token_ids[:1 + sum(earlier.committed for earlier in generation.rounds[:number - 1])]
    committed, lost = judged_tokens(lab, r)
    judged = [token for token in committed if token[1] == "kept"] + lost
    rows = {"drafted": [(text, "drafted") for text, _ in judged], "verified": judged, "committed": committed}
    columns = [max(box_width(*row[k]) for row in rows.values() if k < len(row))
               for k in range(max(map(len, rows.values())))]
    label, line, letters = 0.95, 0.36, 78
    fig, axes = inch_canvas(max(label + sum(columns) + 0.1, 8.2), 2.1)
    so_far = visible(lab.tokenizer.decode(before[:-1]))
    outcome = f"{r.accepted} of {r.proposed} drafts accepted, {r.committed} token{'s' * (r.committed != 1)} committed"
    axes.text(0.02, -0.15, f"round {number} of {len(generation.rounds)}: {outcome}", fontsize=10.5, weight="bold",
              va="center_baseline")
    axes.text(0.02, -0.5, "so far", fontsize=LETTERS, va="center_baseline", color=GREY)
    so_far = ("…" if len(so_far) > letters else "") + so_far[-letters:]
    axes.text(label, -0.5, so_far, family="DejaVu Sans Mono", fontsize=LETTERS - 1, va="center_baseline", color=GREY)
    anchor_at = label + 0.1 + 0.602 * len(so_far) * (LETTERS - 1) / 72
    draw_box(axes, anchor_at, -0.5, lab.tokenizer.decode(before[-1:]), "anchor")
    for index, (name, row) in enumerate(rows.items()):
        y = -0.95 - line * index
        axes.text(0.02, y, name, fontsize=LETTERS, va="center_baseline", color=GREY)
        for column, token in enumerate(row):
            draw_box(axes, label + sum(columns[:column]), y, *token)
    return fig


def block_figure(texts: list[str], target_probs: list[float], draft_probs: list[float], confidence: list[float],
                 accepted: int):
    """Each drafted token with the drafter's and the target's probability of it, and the confidence it was given.

    All lists have one entry a position; the first `accepted` tokens were kept.
    """
    fig, axes = figure(width=8.2, height=2.9)
    position = range(len(texts))
    axes.bar([k - 0.2 for k in position], draft_probs, 0.38, color=BLUE, alpha=0.55, label="drafter's probability q")
    axes.bar([k + 0.2 for k in position], target_probs, 0.38, color="white", edgecolor=BLACK, hatch="///",
             label="target's probability p")
    along_block(fig, axes, texts, confidence, accepted)
    return fig


def along_block(fig, axes, texts: list[str], confidence, accepted: int) -> None:
    """Marks each position's confidence on a figure of one block, names the tokens and shades those that were refused."""
    position = range(len(texts))
    axes.plot(position, confidence, linestyle="", marker="D", color=ORANGE, label="confidence")
    axes.axvspan(accepted - 0.5, len(texts) - 0.5, color=GREY, alpha=0.15, lw=0, zorder=0)
    if accepted < len(texts):
        axes.text(accepted - 0.45, 1.05, "refused", fontsize=8, color=REJECTED)
    axes.set(xticks=position, xticklabels=[f"{k + 1}\n{visible(text)}" for k, text in enumerate(texts)], ylim=(0, 1.14),
             xlim=(-0.5, len(texts) - 0.5), xlabel="position in the block, drafted token", ylabel="probability")
    axes.grid(axis="x", visible=False)
    fig.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=3, fontsize=9)


def shown(text: str) -> str:
    """A token's text as a label of an axis: blanks visible, and a dollar sign starts no formula."""
    return visible(text).replace("$", r"\$")


def token_labels(lab, token_ids) -> list[str]:
    """Labels of token ids."""
    return [shown(lab.tokenizer.decode([token])) for token in torch.as_tensor(token_ids).tolist()]


def attention_picture(context: int, gamma: int):
    """Who sees what, query rows against key columns: the target verifying a block (causal), the drafter drafting it."""
    keys = [*(f"{-n}" for n in range(context, 0, -1)), "anchor", *(f"{k}" for k in range(1, gamma))]
    verifying = np.tril(np.ones((gamma, context + gamma)), context)
    drafting = np.ones((gamma, context + gamma))
    fig, panels = figure(2, width=5.4, height=2.9)
    views = ((verifying, "target, verifying the block", "draft"), (drafting, "drafter, drafting it", "mask"))
    for axes, (seen, title, slot) in zip(panels, views):
        seen[:, context:] *= 2  # context and block in two colours
        axes.imshow(seen, cmap=ListedColormap(["white", SKY, ORANGE]), vmin=0, vmax=2, aspect="auto")
        axes.set(title=title, xlabel="key: context | block", xticks=range(context + gamma), yticks=range(gamma),
                 yticklabels=["anchor", *(f"{slot} {k}" for k in range(1, gamma))])
        axes.set_xticklabels(keys, rotation=90, fontsize=8)
        axes.set_xticks([x - 0.5 for x in range(context + gamma)], minor=True)
        axes.set_yticks([y - 0.5 for y in range(gamma)], minor=True)
        axes.grid(False)
        axes.grid(which="minor", color="white", alpha=1)
        axes.tick_params(which="both", length=0)
        axes.axvline(context - 0.5, color=BLACK, linewidth=1.5)
    panels[0].set_ylabel("query")
    return fig


def block_marginals(lab, probs, anchor: str, count: int = 5):
    """The most likely tokens of each slot of probs [g, V], from 0.5 % up, shaded by probability; returns the figure."""
    values, tokens = probs.float().cpu().topk(count, -1)  # [g, count]
    slots = len(values)
    fig, axes = figure(width=1.15 * slots + 0.9, height=0.42 * count + 0.9)
    axes.imshow(values.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for k in range(slots):
        for rank, label in enumerate(token_labels(lab, tokens[k])):
            if values[k, rank] >= 0.005:
                axes.text(k, rank, f"{label}\n{values[k, rank]:.0%}", ha="center", va="center", fontsize=8,
                          color="white" if values[k, rank] > 0.6 else BLACK)
    axes.set(title=f"after the anchor '{shown(anchor)}'", xlabel="draft position", ylabel="rank", xticks=range(slots),
             xticklabels=range(1, slots + 1), yticks=range(count), yticklabels=range(1, count + 1))
    axes.grid(False)
    return fig


def pair_maps(tables: dict, first: list[str], second: list[str]):
    """Heat maps of tables [rows, columns], title to values, of the probability of a first token (row) and a second."""
    fig, panels = figure(len(tables), width=4.0, height=3.3, sharey=True)
    tables = {title: torch.as_tensor(table).float().cpu() for title, table in tables.items()}
    highest = max(float(table.max()) for table in tables.values())
    for axes, (title, table) in zip(panels, tables.items()):
        image = axes.imshow(table, cmap="Blues", vmin=0, vmax=highest)
        for row, values in enumerate(table.tolist()):
            for column, value in enumerate(values):
                if value >= 0.005:
                    axes.text(column, row, f"{value:.0%}", ha="center", va="center", fontsize=7.5,
                              color="white" if value > 0.6 * highest else BLACK)
        axes.set(title=title, xlabel="second token", xticks=range(len(second)), yticks=range(len(first)),
                 yticklabels=first)
        axes.set_xticklabels(second, rotation=60, ha="right")
        axes.grid(False)
    panels[0].set_ylabel("first token")
    fig.colorbar(image, ax=panels, label="probability of the pair", shrink=0.85)
    return fig


def draw_positions(axes, estimates: list, style: dict, shift: float = 0.0) -> None:
    """Conditional acceptance by draft position (evaluation.position_estimates) as a line with intervals; `shift` moves
    it off other lines' bars."""
    x, found = [k + shift for k, e in enumerate(estimates, 1) if e], [e for e in estimates if e]
    low, high = [max(0, e.value - e.low) for e in found], [max(0, e.high - e.value) for e in found]
    axes.errorbar(x, [e.value for e in found], [low, high], elinewidth=1, capsize=2, **style)
    axes.set(xlabel="draft position", ylabel="accepted, given that all before were", ylim=(0, 1.02),
             xticks=range(1, len(estimates) + 1))


def accepted_by_domain(ours: dict, paper: dict):
    """Accepted length by domain: ours {drafter: {domain: Estimate}} filled, with intervals, and the paper's
    {drafter: {domain: value}} hollow."""
    fig, axes = figure(width=6.4)
    domains = list(next(iter(ours.values())))
    for index, name in enumerate(ours):
        style = drafter_style(name)
        x = np.arange(len(domains)) + 0.22 * (index - (len(ours) - 1) / 2)
        estimates = [ours[name][domain] for domain in domains]
        bars = [[e.value - e.low for e in estimates], [e.high - e.value for e in estimates]]
        here = {**style, "label": f"{style['label']}, here"}
        there = {**style, "label": f"{style['label']}, paper (Qwen3-4B)", "markerfacecolor": "none"}
        axes.errorbar(x, [e.value for e in estimates], bars, linestyle="none", capsize=3, **here)
        axes.plot(x + 0.07, [paper[name][domain] for domain in domains], linestyle="none", **there)
    axes.set(xticks=range(len(domains)), xticklabels=domains, ylabel="accepted length (tokens a round)")
    axes.set_ylim(bottom=1)
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig


def corrected_distribution(labels: list[str], base, bias, corrected, previous: str):
    """Three bars a token: base probability, transition bias (logits) after `previous`, corrected probability."""
    fig, panels = figure(3, width=3.1, height=0.3 * len(labels) + 1.0, sharey=True)
    parts = ((base, "base, without the head", ORANGE), (bias, f"bias after '{shown(previous)}'", GREY),
             (corrected, "corrected", BLUE))
    for axes, (values, title, colour) in zip(panels, parts):
        axes.barh(range(len(labels)), values, color=colour)
        axes.set(title=title, yticks=range(len(labels)), yticklabels=labels)
    panels[0].set(xlabel="probability", xlim=(0, 1), ylabel="token")
    panels[1].set_xlabel("added to the logit")
    panels[1].axvline(0, color=BLACK, linewidth=0.8)
    panels[2].set(xlabel="probability", xlim=(0, 1))
    panels[0].invert_yaxis()
    return fig


def round_picture():
    """One round of speculative decoding as a corridor: who does what, what is handed on, a block on its way through."""
    fig, axes = inch_canvas(11, 4.9)
    for x, y, width, name, work, who in [*ROUND_STEPS, *ROUND_LEGEND]:
        colour, letters = {"target": (BLACK, "white"), "drafter": (BLUE, "white"), "rule": ("white", BLACK)}[who]
        height = 0.72 if work else 0.32
        axes.add_patch(FancyBboxPatch((x, y - height / 2), width, height, boxstyle="round,pad=0,rounding_size=0.08",
                                      facecolor=colour, edgecolor=BLACK if who == "rule" else colour, lw=1.4))
        axes.text(x + width / 2, y + (0.12 if work else 0), name, color=letters, fontsize=12 if work else 9,
                  weight="bold", ha="center", va="center")
        axes.text(x + width / 2, y - 0.16, work, color=letters, fontsize=8, ha="center", va="center")
    for start, end, handed, (x, y) in ROUND_ARROWS:
        axes.annotate("", end, start,
                      arrowprops={"arrowstyle": "-|>", "lw": 1.6, "color": BLACK, "shrinkA": 0, "shrinkB": 0})
        axes.text(x, y, handed, fontsize=8.5, color=BLACK, ha="center", va="center", backgroundcolor="white")
    for y, name, first, row in ROUND_TOKENS:
        axes.text(3.3, y, name, fontsize=9.5, color=GREY, ha="right", va="center_baseline")
        x = 3.45 + first
        for text, kind in row:
            x = draw_box(axes, x, y, text, kind)
    return fig


# The picture in inches: x, y and width of every step, what it does, who does it.
ROUND_STEPS = [
    (0.15, -0.55, 1.3, "prompt", "token ids", "rule"), (2.1, -0.55, 1.75, "prefill", "reads the prompt once", "target"),
    (0.15, -1.85, 2.3, "parallel backbone", "one pass over [anchor, mask, …, mask]", "drafter"),
    (3.2, -1.85, 2.0, "sequential head", "draws the block left to right", "drafter"),
    (5.95, -1.85, 1.95, "confidence", "will each token survive?", "drafter"),
    (8.65, -1.85, 2.2, "policy", "how many are worth verifying?", "rule"),
    (8.65, -4.45, 2.2, "verify", "one pass over [anchor, drafts]", "target"),
    (5.45, -4.45, 2.3, "accept", "the longest prefix that p allows", "rule"),
    (0.15, -4.45, 3.9, "commit", "keep the prefix and one token more, roll the caches back", "rule"),
]
ROUND_LEGEND = [(6.55, -0.35, 1.1, "the drafter", "", "drafter"), (7.85, -0.35, 1.1, "the target", "", "target"),
                (9.15, -0.35, 1.7, "a rule, no network", "", "rule")]
# From, to, what is handed on, and where that is written.
ROUND_ARROWS = [
    ((1.45, -0.55), (2.1, -0.55), "", (1.7, -0.45)),
    ((2.3, -0.91), (1.3, -1.49), "anchor, context features", (2.85, -1.2)),
    ((2.45, -1.85), (3.2, -1.85), "base\nlogits", (2.82, -2.12)),
    ((5.2, -1.85), (5.95, -1.85), "tokens,\nprobs q", (5.58, -2.12)),
    ((7.9, -1.85), (8.65, -1.85), "one for\neach", (8.27, -2.12)),
    ((9.75, -2.21), (9.75, -4.09), "verification length", (9.75, -3.15)),
    ((8.65, -4.45), (7.75, -4.45), "probs p,\nfeatures", (8.2, -4.15)),
    ((5.45, -4.45), (4.05, -4.45), "accepted length,\nnext token", (4.75, -4.15)),
    ((0.95, -4.09), (0.95, -2.21), "new anchor,\nits context's features", (0.97, -3.15)),
]
ROUND_DRAFTS = ["·has", "·1", "2", "·pears", "·now", ".", "·So"]
# The block on its way: where its rows stand, and what becomes of its tokens.
ROUND_TOKENS = [
    (-2.8, "drafted", 0, [("Ada", "anchor"), *[(text, "drafted") for text in ROUND_DRAFTS]]),
    (-3.15, "verified", 0, [("Ada", "anchor"), *[(text, "kept") for text in ROUND_DRAFTS[:4]],
                            (ROUND_DRAFTS[4], "refused"), *[(text, "unread") for text in ROUND_DRAFTS[5:]]]),
    (-3.5, "committed", box_width("Ada", "anchor"),
     [*[(text, "kept") for text in ROUND_DRAFTS[:4]], ("·left", "added")]),
]


def mistakes(runs: dict, gamma: int, drafter: str):
    """Share of rounds that accept at least k drafts, one line a variant {label: generations}; the first is `drafter`
    as it should be and looks as in every figure."""
    fig, axes = figure(width=6.2)
    _, own_colour, own_marker = DRAFTERS[drafter]
    looks = ((own_colour, own_marker, "-"), (PURPLE, "s", "--"), (RED, "X", ":"), (BLACK, "D", "-."))
    for (label, generations), (colour, marker, line) in zip(runs.items(), looks):
        accepted = np.array([r.accepted for g in generations for r in g.rounds])
        shares = [(accepted >= k).mean() for k in range(1, gamma + 1)]
        axes.plot(range(1, gamma + 1), shares, label=label, color=colour, marker=marker, linestyle=line)
    axes.set(xlabel="draft position", ylabel="share of rounds that keep it", xticks=range(1, gamma + 1), ylim=(0, 1.02))
    axes.legend(fontsize=8)
    return fig


def speed_bars(speeds: dict[str, dict[str, float]], device: str):
    """Tokens a second, {drafter: {domain: value}}, "plain" among them; the other bars say how many times plain."""
    fig, axes = figure(width=6.6)
    domains = list(speeds["plain"])
    width = 0.8 / len(speeds)
    for index, (name, values) in enumerate(speeds.items()):
        label, colour, _ = DRAFTERS[name]
        x = [k + (index - (len(speeds) - 1) / 2) * width for k in range(len(domains))]
        axes.bar(x, [values[domain] for domain in domains], width * 0.92, color=colour, label=label)
        for at, domain in zip(x, domains):
            if name != "plain":
                ratio = values[domain] / speeds["plain"][domain]
                axes.text(at, values[domain], f"× {ratio:.2f}", ha="center", va="bottom", fontsize=9)
    axes.set(xticks=range(len(domains)), xticklabels=domains, ylabel="tokens per second")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.1)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    measured_on(axes, device)
    return fig


def context_cost_figure(contexts, without_cache, with_cache, device: str):
    """Milliseconds of the next token by tokens of context, reading everything again and reading one token."""
    fig, axes = figure()
    axes.plot(contexts, without_cache, color=RED, marker="X", linestyle="--", label="without cache: the whole text")
    axes.plot(contexts, with_cache, color=BLUE, marker="o", label="with cache: the new token")
    axes.set(xlabel="context (tokens)", ylabel="time of the next token (ms)", ylim=(0, None))
    axes.legend()
    measured_on(axes, device)
    return fig


def pass_cost_figure(positions, milliseconds, device: str):
    """Two panels: milliseconds of one target pass by the positions it carries, and the same for each position."""
    fig, (whole, each) = figure(2)
    whole.plot(positions, milliseconds, color=BLUE, marker="o", label="measured")
    whole.plot(positions, [milliseconds[0] * k for k in positions], color=GREY, linestyle=":",
               label="if every position cost the same")
    whole.set(xlabel="positions in the pass", ylabel="time of one pass (ms)", ylim=(0, 3 * max(milliseconds)))
    whole.legend()
    each.plot(positions, [time / k for time, k in zip(milliseconds, positions)], color=BLUE, marker="o")
    each.set(xlabel="positions in the pass", ylabel="time of one position (ms)", ylim=(0, None))
    measured_on(each, device)
    return fig


def roofline_figure(bandwidth, peak, intensity, many, speed, positions, pass_speed, device: str):
    """Billions of multiply-adds a second by multiply-adds a byte, under the roof min(bandwidth * intensity, peak).

    `intensity` is that of one position; `speed` was measured at `many` positions with matrix products alone and
    `pass_speed` at `positions` with whole passes.
    """
    fig, axes = figure(width=6.4, height=3.8)
    bend, ends = peak / bandwidth, (intensity * many[0] / 1.5, intensity * many[-1] * 1.5)
    axes.plot([ends[0], bend, ends[1]], [bandwidth * ends[0], peak, peak], color=BLACK, linewidth=1, label="roof")
    axes.plot([intensity * k for k in many], speed, color=BLUE, marker="o", linestyle="", label="matrix products alone")
    axes.plot([intensity * k for k in positions], pass_speed, color=ORANGE, marker="s", linestyle="",
              label="whole pass")
    for k, height in zip(many, speed):
        axes.annotate(k, (intensity * k, height), (5, -9), textcoords="offset points", fontsize=7, color=BLUE)
    axes.axvline(bend, color=GREY, linestyle=":", linewidth=1)
    axes.set(xscale="log", yscale="log",
             xlabel="arithmetic intensity (multiply-adds per byte); numbers: positions in the pass",
             ylabel="billion multiply-adds per second")
    axes.legend(loc="lower right")
    measured_on(axes, device)
    return fig


def round_cost_figure(tau: float, draft: float, verify: float):
    """Two bars in units of one plain pass: tau tokens decoded plainly, and the one round that commits as many."""
    fig, axes = figure(width=8, height=2)
    for token in range(int(tau) + 1):
        axes.barh(1, min(1, tau - token), left=token, color=GREY, edgecolor="white")
    axes.barh(0, draft, color=ORANGE, edgecolor="white")
    axes.barh(0, verify, left=draft, color=BLUE, edgecolor="white")
    for left, width, text, letters in ((0, draft, "draft", BLACK), (draft, verify, "verify", "white")):
        if width > 0.4:
            axes.text(left + width / 2, 0, text, ha="center", va="center", color=letters, fontsize=9)
    ratio = tau / (draft + verify)
    axes.set(yticks=[0, 1], yticklabels=["one round", "plain"], xlim=(0, max(8.2, draft + verify + 0.2)),
             xlabel=f"time to commit {tau:.2f} tokens (plain passes)",
             title=f"{ratio:.2f} times plain decoding's speed; break-even at τ = {draft + verify:.2f}")
    axes.grid(False, axis="y")
    return fig


def costs(parts: dict[str, float], device: str):
    """Milliseconds of the parts of a round as bars, on the device that they were measured on."""
    fig, axes = figure(width=6.0, height=0.42 * len(parts) + 0.8)
    axes.barh(range(len(parts)), list(parts.values()), color=BLUE)
    for row, value in enumerate(parts.values()):
        axes.text(value, row, f" {value:.2f}", va="center")
    axes.set(yticks=range(len(parts)), yticklabels=list(parts), xlabel="time (ms)")
    axes.set_xlim(right=1.15 * max(parts.values()))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    measured_on(axes, device)
    return fig


def latency_bars(costs: dict[tuple[str, str], tuple[float, float, float]], device: str):
    """Milliseconds of one token by domain, from {(drafter, domain): (accepted length, draft seconds, verify seconds)}.

    Seconds are those of a round. A bar is L, its hatched part the drafting; above it stands the accepted length.
    """
    fig, axes = figure(width=7.4)
    names, domains = list(dict.fromkeys(name for name, _ in costs)), list(dict.fromkeys(domain for _, domain in costs))
    width = 0.8 / len(names)
    for (name, domain), (tau, draft, verify) in costs.items():
        label, colour, _ = DRAFTERS[name]
        x = domains.index(domain) + (names.index(name) - (len(names) - 1) / 2) * width
        draft, verify = draft / tau * 1e3, verify / tau * 1e3
        axes.bar(x, verify, width * 0.92, color=colour, label=label if domain == domains[0] else None)
        axes.bar(x, draft, width * 0.92, bottom=verify, facecolor="white", edgecolor=colour, hatch="////")
        axes.text(x, verify + draft, f"τ {tau:.2f}", ha="center", va="bottom", fontsize=8)
    axes.bar(0, 0, facecolor="white", edgecolor=GREY, hatch="////", label="of it drafting")
    axes.set(xticks=range(len(domains)), xticklabels=domains, ylabel="time of one token, L (ms)")
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.1)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    measured_on(axes, device)
    return fig


def when_it_pays(acceptance: float, gamma: int, cost: float, verify: float):
    """Speed-up of a drafter whose drafts are accepted with a constant chance, by draft length and by acceptance.

    `cost` is that of drafting one token and `verify` that of verifying a block, both in plain passes of the target.
    """
    def speedup(a, length):
        return sum(a**k for k in range(length + 1)) / (length * cost + verify)

    fig, (left, right) = figure(2, width=4.3, height=3.2)
    lengths, chances = range(1, 17), [k / 100 for k in range(100)]
    curve = [speedup(acceptance, length) for length in lengths]
    best = max(lengths, key=lambda length: speedup(acceptance, length))
    left.plot(lengths, curve, color=BLUE, marker=".")
    left.plot(best, speedup(acceptance, best), linestyle="", marker="*", markersize=14, color=ORANGE,
              label=f"best: γ = {best}")
    left.set(xlabel="draft length γ (tokens)", xticks=lengths[::3],
             title=f"a = {acceptance:.2f}, c = {cost:.2f}, v = {verify:.1f}")
    right.plot(chances, [speedup(a, gamma) for a in chances], color=BLUE)
    even = next((a for a in chances if speedup(a, gamma) >= 1), None)
    if even is not None:
        right.plot(even, 1, linestyle="", marker="D", color=RED, label=f"breaks even at a = {even:.2f}")
    right.set(xlabel="acceptance a", title=f"γ = {gamma}, c = {cost:.2f}, v = {verify:.1f}")
    here = speedup(acceptance, gamma)
    for axes, x in ((left, gamma), (right, acceptance)):
        axes.axhspan(0, 1, color=RED, alpha=0.08, lw=0)
        axes.text(0.98, 0.03, "slower than plain decoding", transform=axes.transAxes, ha="right", fontsize=8, color=RED)
        axes.plot(x, here, linestyle="", marker="o", markersize=9, color=BLACK, label=f"here: {here:.2f}")
        axes.set(ylabel="speed-up over plain decoding", ylim=(0, 1.15 * max([1.2, here, *curve])))
        axes.legend(fontsize=8, loc="best")
    return fig


def draft_length_sweep(measured: dict[tuple[str, int], tuple[float, float]], model: dict[str, list[float]],
                       device: str):
    """Measured {(domain, draft length): (accepted length, speed-up)}, beside the accepted lengths of a model (left)."""
    fig, (left, right) = figure(2, width=4.5)
    for domain, expected in model.items():
        lengths = sorted(length for name, length in measured if name == domain)
        taus, speedups = zip(*(measured[domain, length] for length in lengths))
        style = domain_style(domain)
        left.plot(lengths, taus, **style)
        left.plot(lengths, expected, linestyle="", marker=style["marker"], markerfacecolor="white", markersize=10,
                  color=style["color"], zorder=1, label=f"{domain}, formula")
        right.plot(lengths, speedups, **style)
    right.axhspan(0, 1, color=RED, alpha=0.08, lw=0)
    right.text(0.98, 0.03, "slower than plain decoding", transform=right.transAxes, ha="right", fontsize=8, color=RED)
    left.set(xlabel="draft length γ (tokens)", ylabel="accepted length τ (tokens a round)", xticks=lengths,
             ylim=(1, None))
    right.set(xlabel="draft length γ (tokens)", ylabel="speed-up over plain decoding", xticks=lengths, ylim=(0, None))
    left.legend(fontsize=8)
    right.legend(fontsize=8)
    measured_on(right, device)
    return fig


def overlap_panel(axes, p, q, names) -> None:
    """Two distributions over a few tokens, p [V] of the target and q [V] of the drafter, as three areas: kept (green,
    the smaller of both), refused (red, what q has more) and owed (blue, what p has more)."""
    x, p, q = np.arange(len(names)), np.asarray(p), np.asarray(q)
    kept, owed, refused = np.minimum(p, q), np.maximum(p - q, 0), np.maximum(q - p, 0)
    axes.bar(x, kept, color=ACCEPTED, label=f"kept: {kept.sum():.2f}")
    axes.bar(x, refused, bottom=kept, color="white", edgecolor=REJECTED, hatch="xxx",
             label=f"refused: {refused.sum():.2f}")
    axes.bar(x, owed, bottom=kept, color="white", edgecolor=NEXT, hatch="///", label=f"owed: {owed.sum():.2f}")
    for values, style, label in ((p, "-", "p, target"), (q, ":", "q, drafter")):
        axes.hlines(values, x - 0.45, x + 0.45, color=BLACK, linestyle=style, linewidth=2, label=label)
    axes.set(xticks=x, xticklabels=names, xlabel="token", ylabel="probability", ylim=(0, 1.4 * max(p.max(), q.max())))
    axes.legend(ncols=2, fontsize=8, loc="upper right")


def overlap_figure(p, q, names):
    """The three areas of `overlap_panel` with the acceptance probability, and the residual of p and q [V] beside it."""
    fig, (left, right) = figure(2, width=4.8, height=3.2, gridspec_kw={"width_ratios": [3, 2]})
    overlap_panel(left, p, q, names)
    owed = np.maximum(np.asarray(p) - np.asarray(q), 0)
    total = owed.sum()
    right.bar(names, owed / total if total > 0 else 0 * owed, color=NEXT)
    right.set(xlabel="token", ylabel="probability", ylim=(0, 1.05),
              title="residual" if total > 0 else "no residual: nothing is refused")
    left.set_title(f"acceptance probability {1 - total:.2f}")
    return fig


def total_variation_figure(distances: dict[str, float]):
    """Total variation from the target by rule, on a logarithmic axis: exact rules green, lossy ones red."""
    fig, axes = figure(width=7.5, height=0.36 * len(distances) + 0.9)
    for row, distance in enumerate(distances.values()):
        exact = distance < 1e-5
        look = {"color": ACCEPTED, "marker": "o"} if exact else {"color": REJECTED, "marker": "X"}
        axes.plot(max(distance, 1e-9), -row, markersize=9, **look)
    axes.axvline(np.finfo(np.float32).eps, color=GREY, linestyle=":")
    axes.set(xscale="log", xlim=(5e-10, 1), xlabel="total variation from the target's distribution",
             yticks=-np.arange(len(distances)), yticklabels=distances.keys(), ylim=(0.6 - len(distances), 0.4))
    return fig


def counts_figure(tokens, probs, draws: int, counts: dict[str, list[int]]):
    """Expected counts of tokens in `draws` draws with two standard deviations, and observed ones by verifier."""
    fig, axes = figure(width=8.5, height=3.2)
    x, probs = np.arange(len(tokens)), np.array(probs)
    deviation = np.sqrt(draws * probs * (1 - probs))
    axes.bar(x, draws * probs, color="white", edgecolor=GREY, yerr=2 * deviation, ecolor=GREY, capsize=6,
             label="target, ± 2 standard deviations")
    looks = ((ACCEPTED, "o"), (REJECTED, "X"))
    for (label, observed), (colour, marker), shift in zip(counts.items(), looks, (-0.15, 0.15)):
        axes.plot(x + shift, observed, color=colour, marker=marker, linestyle="", label=label)
    axes.set(xticks=x, xticklabels=[token.replace(" ", "·") for token in tokens], xlabel="token after the anchor",
             ylabel=f"count in {draws:,} draws")
    axes.legend()
    return fig


def packing_picture(mask, anchors: list[int], length: int):
    """Who sees what when blocks are packed: mask [K * g, n + K * g], slot rows against keys, for `anchors` [K] in a
    context of `length` tokens."""
    seen = np.array(mask, dtype=float)
    slots = len(seen)
    gamma = slots // len(anchors)
    seen[:, length:] *= 2  # context and blocks in two colours
    fig, axes = figure(width=min(0.16 * (length + slots) + 1.6, 10), height=min(0.16 * slots + 1.1, 7))
    axes.imshow(seen, cmap=ListedColormap(["white", SKY, ORANGE]), vmin=0, vmax=2, aspect="auto")
    axes.axvline(length - 0.5, color=BLACK, linewidth=1.5)
    for block in range(1, len(anchors)):
        axes.axhline(block * gamma - 0.5, color=GREY, linewidth=0.6)
    step = max(1, length // 12)
    centres = [block * gamma + (gamma - 1) / 2 for block in range(len(anchors))]
    axes.set(xticks=[*range(0, length, step), *(length + centre for centre in centres)], yticks=centres,
             xticklabels=[*range(0, length, step), *(f"block {block + 1}" for block in range(len(anchors)))],
             yticklabels=[f"block {block + 1}, anchor {anchor}" for block, anchor in enumerate(anchors)],
             xlabel="key: context position | slots of the blocks", ylabel="query",
             xlim=(-0.5, length + slots - 0.5), ylim=(slots - 0.5, -0.5))
    axes.set_title(f"{slots} slots in one pass, {np.mean(seen > 0):.0%} of the table visible", fontsize=9)
    for axis, count in ((axes.xaxis, length + slots), (axes.yaxis, slots)):
        axis.remove_overlapping_locs = False  # a label may stand on a line of the grid
        axis.set_ticks([k - 0.5 for k in range(count)], minor=True)
    axes.grid(False)
    axes.grid(which="minor", color="white", alpha=1, linewidth=0.5)
    axes.tick_params(which="minor", length=0)
    axes.tick_params(axis="x", rotation=90, labelsize=8)
    axes.tick_params(axis="y", labelsize=8)
    return fig


def who_notices(moved, places: list[int], anchors: list[int]):
    """How much each block's hidden states move when one token of the text is changed: moved [P, K], by the changed
    place and the block; white is not at all. A line stands behind each block's anchor."""
    moved = torch.as_tensor(moved).float().cpu().T  # [K, P]
    fig, axes = figure(width=8.2, height=0.5 * len(anchors) + 1.0)
    image = axes.imshow(moved / moved.max(), cmap="Blues", vmin=0, vmax=1, aspect="auto")
    for block, anchor in enumerate(anchors):
        edge = sum(place <= anchor for place in places) - 0.5
        axes.plot([edge, edge], [block - 0.5, block + 0.5], color=RED, linewidth=2.5,
                  label="everything to the right is the future" if block == 0 else None)
        for column, value in enumerate(moved[block].tolist()):
            axes.text(column, block, f"{value:.1f}" if value > 0 else "0", ha="center", va="center", fontsize=7,
                      color="white" if value > 0.6 * moved.max() else BLACK)
    axes.set(xticks=range(len(places)), xticklabels=places, yticks=range(len(anchors)),
             yticklabels=[f"block {block + 1}, anchor {anchor}" for block, anchor in enumerate(anchors)],
             xlabel="position of the changed token")
    axes.tick_params(axis="x", rotation=90, labelsize=8)
    axes.grid(False)
    fig.colorbar(image, ax=axes, label="largest change (share)")
    fig.legend(*axes.get_legend_handles_labels(), loc="outside upper center", fontsize=8)
    return fig


def label_scatter(labels, accepted):
    """The share of drawn drafts that were accepted against the label 1 - L1/2, a dot a slot, and the line 1 - TV/2."""
    fig, axes = figure(width=4.4, height=4.0)
    labels, accepted = (torch.as_tensor(values).float().cpu() for values in (labels, accepted))
    axes.plot([0, 1], [0.5, 1], color=RED, linestyle="--", label="1 − TV/2")
    axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, label="equal")
    axes.plot(labels, accepted, color=BLUE, marker="o", markersize=4, alpha=0.5, linestyle="", label="slots")
    axes.set(xlabel="label: 1 − L1/2", ylabel="share of drawn drafts accepted", xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.legend(loc="lower right", fontsize=8)
    return fig


def position_weights(weights: list[float], reached: list[float]):
    """Weights of the losses and the share of rounds that reach a position, by draft position."""
    fig, axes = figure()
    position = range(1, len(weights) + 1)
    axes.plot(position, weights, color=BLACK, marker="s", linestyle="--", label="weight in the losses")
    axes.plot(position, reached, **{**drafter_style("dspark"), "label": "share of rounds that reach it"})
    axes.set(xlabel="draft position", xticks=position, ylim=(0, 1.05))
    axes.legend()
    return fig


def loss_curves(log: list[dict]):
    """One panel for every loss in the records of a training log: each step, and the mean over a fortieth of all steps."""
    window = max(1, len(log) // 40)
    names = [name for name in log[0] if name != "step"]
    fig, panels = figure(len(names), width=3.6, height=2.9, squeeze=False)
    for axes, name in zip(panels[0], names):
        steps, values = [entry["step"] + 1 for entry in log], np.array([entry[name] for entry in log])
        axes.plot(steps, values, color=SKY, linewidth=0.8, alpha=0.7)
        means = np.convolve(values, np.ones(window) / window, "valid")
        axes.plot(steps[-len(means):], means, color=BLUE)
        highest = 1.2 * np.quantile(values, 0.98)  # the first steps may be far off
        axes.set(title=name.replace("_", "-").replace("l1", "L1"), xlabel="step", ylim=(0, highest))
    panels[0][0].set_ylabel("loss")
    return fig


def chain_figure(lab, before: list[int], drafts: list[int]):
    """The passes of an autoregressive draft as columns: whose feature is read, with which token, what is drafted.

    `before` are the last context token and the anchor, `drafts` what was drafted behind them; `lab` decodes the ids.
    What comes from the target is black, what the drafter has made itself is grey.
    """
    texts = [lab.tokenizer.decode([token]) for token in [*before, *drafts]]
    passes = range(len(drafts))
    rows = {"feature of": [(texts[k], "drafted" if k else "anchor") for k in passes],
            "next token": [(texts[k + 1], "drafted" if k else "anchor") for k in passes],
            "drafts": [(texts[k + 2], "drafted") for k in passes]}
    columns = [max(0.62, *(box_width(*row[k]) for row in rows.values())) + 0.1 for k in passes]
    label, line = 0.95, 0.36
    fig, axes = inch_canvas(max(label + sum(columns) + 0.1, 6), line * 4 + 0.15)
    for k in passes:
        axes.text(label + sum(columns[:k]), -line / 2, f"pass {k + 1}", fontsize=LETTERS, va="center_baseline",
                  color=GREY)
    for index, (name, row) in enumerate(rows.items(), 1):
        axes.text(0.02, -line * (index + 0.5), name, fontsize=LETTERS, va="center_baseline", color=GREY)
        for column, token in enumerate(row):
            draw_box(axes, label + sum(columns[:column]), -line * (index + 0.5), *token)
    return fig


def token_cost(curves: dict[str, list[float]], plain: float, title: str):
    """Milliseconds a token by draft length (from 1) for every drafter, its best length ringed, and plain decoding."""
    fig, axes = figure(width=6.0)
    for name, values in curves.items():
        style, best = drafter_style(name), int(np.argmin(values))
        style["label"] += f", best {values[best]:.2f} ms"
        axes.plot(range(1, len(values) + 1), values, **style)
        axes.plot(best + 1, values[best], linestyle="", marker="o", markersize=13, markerfacecolor="none",
                  color=style["color"])
    axes.axhline(plain, color=GREY, linestyle="--", label=f"plain decoding, {plain:.2f} ms")
    axes.set(xlabel="draft length (tokens)", ylabel="time of a token (ms)", ylim=(0, None), title=title,
             xticks=range(1, max(map(len, curves.values())) + 1))
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    return fig
