"""Figures of the lessons. A drafter, a domain and a policy have one colour and one marker each, everywhere.

Colours are Okabe and Ito's, told apart by colour-blind readers; markers and line styles say the same a second time.
The paper's values are hollow, ours are filled.
"""

import matplotlib.pyplot as plt

BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PURPLE = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00",
                                                        "#CC79A7")
GREY = "#8A8A8A"
DRAFTERS = {  # name: (label, colour, marker)
    "plain": ("plain decoding", GREY, "s"), "dspark": ("DSpark", BLUE, "o"), "dspark_gated": ("DSpark, gated head", SKY, "P"),
    "dspark_rnn": ("DSpark, RNN head", BLACK, "X"), "dflash": ("DFlash", ORANGE, "^"), "small_lm": ("small LM", GREEN, "D"),
    "prompt_lookup": ("prompt lookup", PURPLE, "v"),
}
DOMAINS = {"math": (BLUE, "o", "-"), "code": (GREEN, "s", "--"), "chat": (RED, "^", ":")}  # name: (colour, marker, line style)
POLICIES = {"all": ("whole block", BLUE, "o"), "fixed": ("fixed length", ORANGE, "s"), "threshold": ("confidence threshold", GREEN, "D"),
            "retrospective": ("retrospective", RED, "X")}
ACCEPTED, REJECTED, NEXT = GREEN, RED, BLUE  # a draft kept, a draft refused, the token the target adds
RC = {"figure.dpi": 110, "figure.constrained_layout.use": True, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True,
      "grid.alpha": 0.25, "font.size": 10, "legend.frameon": False, "lines.linewidth": 1.8, "lines.markersize": 6}


def figure(columns: int = 1, rows: int = 1, *, width: float = 5.2, height: float = 3.4, **options):
    """A figure of equal panels in the house style: (figure, axes)."""
    with plt.rc_context(RC):
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
    axes.annotate(f"measured on {device}", (1, 0), (0, -34), xycoords="axes fraction", textcoords="offset points", ha="right", va="top",
                  fontsize=7, color=GREY)


def draw_round(axes, number: int, drafts: list[str], accepted: int, following: str) -> None:
    """One row of boxes: the drafted tokens, green where kept and red where refused, and the token that the target added."""
    x = 0.0
    for index, text in enumerate([*drafts[:accepted], *([following] if accepted < len(drafts) else []), *drafts[accepted:],
                                  *([following] if accepted == len(drafts) else [])]):
        added = index == accepted
        kept = index < accepted
        colour, mark = (NEXT, "+") if added else (ACCEPTED, "") if kept else (REJECTED, "x")
        shown = text.replace("\n", "\\n").replace(" ", "·") or "∅"
        box = axes.text(x, -number, f"{mark}{shown}", family="monospace", fontsize=8.5, va="center",
                        color="white" if kept or added else colour,
                        bbox={"boxstyle": "round,pad=0.25", "facecolor": colour if kept or added else "white", "edgecolor": colour})
        x += 0.105 * len(box.get_text()) + 0.16


def rounds_figure(lab, generation, first: int = 0, count: int = 8):
    """The rounds of a generation as rows of tokens: kept drafts filled green, refused ones hollow red with an x, the
    target's own token blue with a plus. `lab` decodes the ids; returns the figure."""
    rounds = generation.rounds[first:first + count]
    fig, axes = figure(width=9.5, height=0.36 * max(len(rounds), 2) + 0.4)
    with plt.rc_context(RC):
        for number, r in enumerate(rounds):
            following = lab.tokenizer.decode(r.tokens[r.accepted:]) if r.committed > r.accepted else ""
            draw_round(axes, number, [lab.tokenizer.decode([token]) for token in r.draft_tokens], r.accepted, following)
    axes.set(xlim=(-0.1, 8.6), ylim=(-len(rounds) + 0.4, 0.6), yticks=[-n for n in range(len(rounds))],
             yticklabels=[f"round {first + n + 1}" for n in range(len(rounds))], xticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return fig
