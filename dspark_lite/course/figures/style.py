"""The style sheet of all figures: a drafter, a domain and a policy have one colour and one marker each, and letters three sizes.

Colours are Okabe and Ito's, wine is Tol's; colour-blind readers can tell them apart. Markers and line styles say the same
a second time. The paper's values are hollow, ours are filled, with intervals. Importing this module sets matplotlib's
defaults: titles, labels and text have 10 points, legends SMALL.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ..estimates import Estimate
from ..names import DRAFTER_LABELS

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, RED, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY, WINE = "#8A8A8A", "#882255"
ALTERED = "#4D4D4D"  # a drafter with a part taken out or a mistake planted
MEDIUM, SMALL, TINY = 9, 8, 7  # points of letters in a figure
PALE, DARK = "#DCDCDC", "#606060"  # fills without a hue
DRAFTER_STYLES = {  # name: (colour, marker)
    "plain": (GREY, "s"),
    "dspark": (BLUE, "o"),
    "dspark_gated": (SKY, "P"),
    "dspark_rnn": (BLACK, "X"),
    "dflash": (ORANGE, "^"),
    "small_lm": (GREEN, "D"),
    "prompt_lookup": (PURPLE, "v"),
    "eagle3": (RED, "*"),
    "mtp": (WINE, "<"),
}
DOMAIN_STYLES = {  # name: (colour, marker, line style)
    "math": (BLUE, "o", "-"),
    "code": (GREEN, "s", "--"),
    "chat": (RED, "^", ":"),
}
POLICY_STYLES = {  # name: (label, colour, marker)
    "all": ("whole block", BLUE, "o"),
    "fixed": ("fixed length", ORANGE, "s"),
    "threshold": ("confidence threshold", GREEN, "D"),
    "retrospective": ("taking the top", RED, "X"),
    "algorithm1": ("Algorithm 1", BLACK, "^"),
    "lagged": ("lagged budget", PURPLE, "P"),
    "convex": ("Algorithm 1, convex view", SKY, "v"),
}
ACCEPTED = GREEN  # a draft that was accepted
REJECTED = RED  # a draft that was rejected
NEXT = BLUE  # the token that the target adds
plt.rcParams.update(
    {
        "figure.dpi": 110,
        "figure.constrained_layout.use": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.alpha": 0.25,
        "font.size": 10,
        "axes.titlesize": 10,
        "figure.titlesize": 10,
        "figure.labelsize": 10,
        "legend.fontsize": SMALL,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "lines.markersize": 6,
    }
)


class DescribedFigure(Figure):
    """A figure whose text says what it shows, for readers who do not see it."""

    def __repr__(self):
        title = self.get_suptitle()
        panels = [words for axes in self.axes if (words := described(axes))]
        if not (title or panels):
            return super().__repr__()
        return " ".join([f"Figure: {title.rstrip('.')}." if title else "Figure.", *panels])


def described(axes) -> str:
    """Return a panel in words: its title, what stands on its axes, what its legend or its labels
    name; "" for a panel without words."""
    title, across, up = axes.get_title(), axes.get_xlabel(), axes.get_ylabel()
    labels = axes.get_legend_handles_labels()[1] or [
        text.get_text() for text in axes.texts if text.get_color() not in (BLACK, "black", GREY)
    ]
    against = " against ".join(label for label in (up, across) if label)
    parts = [title, against, "shown: " + ", ".join(dict.fromkeys(labels)) if labels else ""]
    words = "; ".join(" ".join(part.split()) for part in parts if part)
    return f"{words}." if words else ""


def figure(columns: int = 1, rows: int = 1, *, width: float = 5.2, height: float = 3.4, **options):
    """Return a figure of equal panels, each `width` by `height` inches: (figure, axes)."""
    size = (width * columns, height * rows)
    return plt.subplots(rows, columns, figsize=size, FigureClass=DescribedFigure, **options)


def drafter_style(name: str) -> dict:
    """Return keyword arguments of `plot` for a drafter: label, colour, marker."""
    colour, marker = DRAFTER_STYLES[name]
    return {"label": DRAFTER_LABELS[name], "color": colour, "marker": marker}


def domain_style(name: str) -> dict:
    """Return keyword arguments of `plot` for a domain: label, colour, marker, line style."""
    colour, marker, line = DOMAIN_STYLES[name]
    return {"label": name, "color": colour, "marker": marker, "linestyle": line}


def policy_style(name: str) -> dict:
    """Return keyword arguments of `plot` for a policy: label, colour, marker."""
    label, colour, marker = POLICY_STYLES[name]
    return {"label": label, "color": colour, "marker": marker}


def measured_on(axes, device: str) -> None:
    """Write the device of a measurement small under the axes' right end."""
    axes.annotate(
        f"measured on {device}",
        (1, 0),
        (0, -36),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=TINY,
        color=GREY,
    )


def hollow(style: dict, line: str = "--") -> dict:
    """Return the style of the paper's values: the drafter's colour and marker, not filled, without a legend entry."""
    return {
        **style,
        "label": "_",
        "markerfacecolor": "none",
        "linestyle": line,
        "linewidth": 1,
        "alpha": 0.8,
    }


def domain_axes(axes, domains: list[str], ylabel: str, device: str) -> None:
    """Set up axes of bars in a group per domain: named groups, a legend beside them, the device."""
    axes.set(xticks=range(len(domains)), xticklabels=domains, ylabel=ylabel)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.1)
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    measured_on(axes, device)


def grouped_bars(axes, values: dict[str, list[float]], colours: list[str]) -> dict:
    """Draw {label: values} as bars in a group per place 0, 1, ...; return {label: bars}."""
    width = 0.8 / len(values)
    return {
        label: axes.bar(
            np.arange(len(heights)) + (index - (len(values) - 1) / 2) * width,
            heights,
            0.92 * width,
            color=colour,
            label=label,
        )
        for index, ((label, heights), colour) in enumerate(zip(values.items(), colours))
    }


def zero_line(axes, value: float = 0, axis: str = "y") -> None:
    """Draw a thin black line at zero, or at another value of the axis."""
    draw = axes.axhline if axis == "y" else axes.axvline
    draw(value, color=BLACK, linewidth=0.8)


def slower_than_plain(axes) -> None:
    """Shade the speeds below that of plain decoding, 1."""
    axes.axhspan(0, 1, color=RED, alpha=0.08, lw=0, zorder=0)


def log_ticks(axes, values, label: str) -> None:
    """Make x logarithmic, with ticks at the values alone."""
    axes.set(xscale="log", xticks=list(values), xticklabels=list(values), xlabel=label)
    axes.minorticks_off()


def draw_estimates(axes, x, estimates: list[Estimate | None], style: dict) -> None:
    """Draw estimates at `x` as filled markers with their intervals, which need not hold them; None leaves its place empty."""
    drawn = [
        (place, e.value, max(0, e.value - e.low), max(0, e.high - e.value))
        for place, e in zip(x, estimates)
        if e is not None
    ]
    places, values, *bars = zip(*drawn)
    axes.errorbar(places, values, bars, **{"elinewidth": 1, "capsize": 2, **style})


def draw_positions(axes, estimates: list, style: dict, shift: float = 0.0) -> None:
    """Draw conditional acceptance by draft position (experiment_results.acceptance_by_position) as a line with intervals; `shift` moves it off
    other lines' intervals."""
    draw_estimates(axes, [k + shift for k in range(1, len(estimates) + 1)], estimates, style)
    axes.set(
        xlabel="draft position",
        ylabel="accepted, given that all before were",
        ylim=(0, 1.02),
        xticks=range(1, len(estimates) + 1),
    )


def last_point(estimates: list, style: dict) -> tuple:
    """Return the end of a line of estimates and its label: (x, y, label, colour)."""
    last = max(k for k, estimate in enumerate(estimates) if estimate is not None)
    return last + 1, estimates[last].value, style["label"], style["color"]


def label_ends(axes, ends: list[tuple], gap: float = 0.06) -> None:
    """Write labels after the last points of lines, each (x, y, label, colour), in place of a legend.

    Labels at the right end stand at least `gap` of the panel's height apart; a line that ends earlier has its label under
    its last point, or over it at the foot of the panel. Call it when the limits of the axes are final.
    """
    low, high = axes.get_ylim()
    right, top = max(x for x, *_ in ends), max(y for _, y, *_ in ends)
    last, places = -float("inf"), []
    for x, y, label, colour in sorted(ends, key=lambda end: end[1]):
        if x < right - 0.5:
            over = 12 if y < low + 0.12 * (high - low) else -14
            axes.annotate(
                label,
                (x, y),
                (0, over),
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=SMALL,
                color=colour,
            )
            continue
        last = max(y, last + gap * (high - low))
        places.append((last, label, colour))
    down = max(0.0, places[-1][0] - max(top, high - gap * (high - low)))
    for place, label, colour in places:
        axes.annotate(
            label,
            (right, place - down),
            (8, 0),
            textcoords="offset points",
            va="center",
            fontsize=SMALL,
            color=colour,
            annotation_clip=False,
        )


def write(axes, x: float, y: float, text: str, *, size=SMALL, colour=BLACK, **options) -> None:
    """Write a text whose middle is at x, y."""
    axes.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, **options)


def draw_mask(axes, seen, context: int, colours: tuple[str, str]) -> None:
    """Draw an attention mask [queries, keys]: the visible keys of the `context` in the first colour, the others in the second."""
    shades = np.array(seen, dtype=int)
    shades[:, context:] *= 2
    axes.imshow(
        shades,
        cmap=ListedColormap(["white", *colours]),
        vmin=0,
        vmax=2,
        aspect="auto",
        interpolation="nearest",
    )
    axes.axvline(context - 0.5, color=BLACK, linewidth=1.5)
    axes.grid(False)
