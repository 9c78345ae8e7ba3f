"""Figures of lesson 00: one causal pass and its predictions, one round in columns and as a corridor, speed."""

from ..names import DRAFTER_LABELS
from .style import (
    ACCEPTED,
    BLACK,
    DRAFTER_STYLES,
    GREY,
    MEDIUM,
    NEXT,
    PALE,
    REJECTED,
    SMALL,
    domain_axes,
    figure,
    grouped_bars,
    write,
)
from .token_boxes import (
    KINDS,
    LETTERS,
    arrow,
    box_width,
    draw_box,
    inch_canvas,
    rounded_box,
)

# The picture in inches: x, y and width of every step, what it does, who does it.
ROUND_STEPS = [
    (0.15, -0.55, 1.3, "prompt", "token ids", "rule"),
    (2.1, -0.55, 1.75, "prefill", "reads the prompt once", "target"),
    (0.15, -1.85, 2.3, "parallel backbone", "one pass over [anchor, mask, …, mask]", "drafter"),
    (3.2, -1.85, 2.0, "sequential head", "draws the block left to right", "drafter"),
    (5.95, -1.85, 1.95, "confidence", "would a draft here be kept?", "drafter"),
    (8.65, -1.85, 2.2, "policy", "how many are worth verifying?", "rule"),
    (8.65, -4.45, 2.2, "verify", "one pass over [anchor, drafts]", "target"),
    (5.45, -4.45, 2.3, "accept", "the longest prefix that p and q allow", "rule"),
    (
        0.15,
        -4.45,
        3.9,
        "commit",
        "keep the prefix and one token more, roll the caches back",
        "rule",
    ),
]
ROUND_LEGEND = [
    (6.55, -0.35, 1.1, "the drafter", "", "drafter"),
    (7.85, -0.35, 1.1, "the target", "", "target"),
    (9.15, -0.35, 1.7, "a rule, no network", "", "rule"),
]
# From, to, what is handed on, and where that is written.
ROUND_ARROWS = [
    ((1.45, -0.55), (2.1, -0.55), "", (1.7, -0.45)),
    ((2.3, -0.91), (1.3, -1.49), "anchor, context features", (2.85, -1.2)),
    ((2.45, -1.85), (3.2, -1.85), "base\nlogits", (2.82, -2.12)),
    ((5.2, -1.85), (5.95, -1.85), "state,\ntoken\nbefore", (5.58, -2.19)),
    ((7.9, -1.85), (8.65, -1.85), "one per\nplace", (8.27, -2.12)),
    ((9.75, -2.21), (9.75, -4.09), "drafts up to the\nverification length", (9.75, -3.15)),
    ((8.65, -4.45), (7.75, -4.45), "probs p,\nfeatures", (8.2, -4.15)),
    ((5.45, -4.45), (4.05, -4.45), "number accepted,\nnext token", (4.75, -4.15)),
    ((0.95, -4.09), (0.95, -2.21), "new anchor,\nits context's features", (0.97, -3.15)),
]
# Colours of a box and of its letters, without a hue: hues say what becomes of a token.
ROUND_COLOURS = {
    "target": (BLACK, "white"),
    "drafter": (PALE, BLACK),
    "rule": ("white", BLACK),
}
ROUND_DRAFTS = ["·has", "·1", "2", "·pears", "·now", ".", "·So"]
ROUND_CONFIDENCES = [0.98, 0.95, 0.97, 0.92, 0.71, 0.64, 0.22]


def one_pass_figure(read: list[str], predicted: list[str], guesses: bool = True):
    """Draw one causal pass: the words that go in and, under each, the word that the model predicts after it.

    With `guesses` all words after the first are a drafter's: a third row lays each beside the prediction that judges it. Without,
    they are text that stands already, and every prediction but the last is thrown away.
    """
    right = next(
        (k for k, (word, next_word) in enumerate(zip(predicted, read[1:])) if word != next_word),
        len(read) - 1,
    )
    column, label = 1.0, 1.25
    fig, axes = inch_canvas(label + column * len(read) + 0.1, 2.55 if guesses else 1.85)
    rows = [
        ("goes in", 0.3),
        ("the model\npredicts", 1.5),
        *([("the drafter\nguessed", 2.15)] if guesses else []),
    ]
    for name, y in rows:
        axes.text(0.02, -y, name, fontsize=LETTERS, va="center", color=GREY)
    rounded_box(axes, label + 0.05, -0.9, column * len(read) - 0.1, 0.3, BLACK, BLACK)
    write(
        axes,
        label + column * len(read) / 2,
        -0.9,
        "one pass of the target",
        colour="white",
        size=LETTERS,
    )
    for k, (word, prediction) in enumerate(zip(read, predicted, strict=True)):
        middle = label + column * (k + 0.5)
        used = "kept" if k < right else "added" if k == right else "unread"
        _centred(axes, middle, -0.3, word, "anchor" if k == 0 or not guesses else "drafted")
        _centred(
            axes,
            middle,
            -1.5,
            prediction,
            used if guesses else "added" if k == len(read) - 1 else "unread",
        )
        for top, bottom in ((-0.45, -0.72), (-1.08, -1.33)):
            arrow(axes, (middle, top), (middle, bottom), GREY)
        if guesses and k < len(read) - 1:
            mark, colour = (
                ("✓", ACCEPTED) if k < right else ("✗", REJECTED) if k == right else ("–", GREY)
            )
            _centred(axes, middle, -2.15, read[k + 1], "drafted")
            write(axes, middle, -1.83, mark, size=12, colour=colour, family="DejaVu Sans")
    if guesses and right == len(read) - 1:
        write(
            axes,
            label + column * (right + 0.5),
            -2.15,
            "no guess:\na bonus",
            size=LETTERS - 1,
            colour=NEXT,
        )
    return fig


def _centred(axes, x: float, y: float, word: str, kind: str) -> None:
    """Draw a word in a box around x, y."""
    colour, filled, _ = KINDS[kind]
    write(
        axes,
        x,
        y,
        word,
        family="DejaVu Sans Mono",
        size=LETTERS,
        colour="white" if filled else colour,
        bbox={
            "boxstyle": "round,pad=0.3",
            "facecolor": colour if filled else "white",
            "edgecolor": colour,
            "linestyle": ":" if kind == "unread" else "-",
        },
    )


def speed_bars(speeds: dict[str, dict[str, float]], device: str):
    """Draw tokens a second, {drafter: {domain: value}}, "plain" among them; other bars show their ratio to plain decoding."""
    fig, axes = figure(width=6.6)
    domains = list(speeds["plain"])
    heights = {
        DRAFTER_LABELS[name]: [values[domain] for domain in domains]
        for name, values in speeds.items()
    }
    bars = grouped_bars(axes, heights, [DRAFTER_STYLES[name][0] for name in speeds])
    for name, drawn in zip(speeds, bars.values()):
        if name != "plain":
            ratios = [speeds[name][domain] / speeds["plain"][domain] for domain in domains]
            labels = [f"× {ratio:.2f}" for ratio in ratios]
            axes.bar_label(drawn, labels, fontsize=MEDIUM)
    domain_axes(axes, domains, "tokens per second", device)
    gains = {domain: speeds["dspark"][domain] / speeds["plain"][domain] for domain in domains}
    axes.set_title(f"{min(gains, key=gains.get)} gains least")
    return fig


def round_picture():
    """Draw one round of speculative decoding as a corridor: each step with its actor, the data between steps, and a block on
    its way."""
    fig, axes = inch_canvas(11, 4.9)
    for x, y, width, name, work, who in [*ROUND_STEPS, *ROUND_LEGEND]:
        colour, letters = ROUND_COLOURS[who]
        height = 0.72 if work else 0.32
        edge = BLACK if who == "rule" else colour
        rounded_box(axes, x, y, width, height, colour, edge, lw=1.4)
        write(
            axes,
            x + width / 2,
            y + (0.12 if work else 0),
            name,
            colour=letters,
            size=12 if work else 9,
            weight="bold",
        )
        write(axes, x + width / 2, y - 0.16, work, colour=letters)
    for start, end, handed, (x, y) in ROUND_ARROWS:
        arrow(axes, start, end, BLACK, lw=1.6)
        write(axes, x, y, handed, backgroundcolor="white")
    for y, name, first, row in ROUND_TOKENS:
        axes.text(3.3, y, name, fontsize=MEDIUM, color=GREY, ha="right", va="center_baseline")
        x = 3.45 + first
        for text, kind in row:
            x = draw_box(axes, x, y, text, kind)
    _picture_confidences(axes)
    return fig


def _picture_confidences(axes) -> None:
    """Write each draft's confidence under it, and the policy's decision on the last one."""
    axes.text(
        3.3, -2.95, "confidence", fontsize=MEDIUM, color=GREY, ha="right", va="center_baseline"
    )
    x = 3.45 + box_width("Ada", "anchor")
    for text, confidence in zip(ROUND_DRAFTS, ROUND_CONFIDENCES):
        width = box_width(text, "drafted")
        axes.text(
            x + width / 2 - 0.04,
            -2.95,
            f"{confidence:.2f}".lstrip("0"),
            fontsize=SMALL,
            color=GREY,
            ha="center",
            va="center_baseline",
        )
        x += width
    axes.text(
        x + 0.1,
        -2.95,
        "the last is too unsure:\nthe policy cuts it",
        fontsize=SMALL,
        color=REJECTED,
        va="center",
    )


# The block on its way, made up for the picture: where its rows stand, and what becomes of its tokens.
ROUND_TOKENS = [
    (-2.65, "drafted", 0, [("Ada", "anchor"), *[(text, "drafted") for text in ROUND_DRAFTS]]),
    (
        -3.25,
        "verified",
        0,
        [
            ("Ada", "anchor"),
            *[(text, "kept") for text in ROUND_DRAFTS[:4]],
            (ROUND_DRAFTS[4], "refused"),
            (ROUND_DRAFTS[5], "unread"),
        ],
    ),
    (
        -3.6,
        "committed",
        box_width("Ada", "anchor"),
        [*[(text, "kept") for text in ROUND_DRAFTS[:4]], ("·left", "added")],
    ),
]
