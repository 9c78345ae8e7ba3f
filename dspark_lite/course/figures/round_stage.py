"""Shapes of a scene that moves: what each looks like at first, and the steps that change it.

The positions are pixels. Colours are roles, such as "kept", which living_round.css and STILL turn into colours.
"""

from types import SimpleNamespace

import matplotlib.pyplot as plt
from matplotlib.patches import FancyBboxPatch

from .style import BLUE, DARK, GREEN, GREY, ORANGE, RED, SKY
from .token_boxes import visible_text

STILL = {  # the roles of a light page
    "ink": "#000000",
    "paper": "#FFFFFF",
    "soft": DARK,
    "line": GREY,
    "kept": GREEN,
    "kept-box": "#CCECE3",
    "refused": RED,
    "refused-box": "#F7DFCC",
    "added": BLUE,
    "added-box": "#CCE3F0",
    "sky": SKY,
    "amber": ORANGE,
    "none": "none",
}
WIDE, NARROW = {"columns": 9, "cell": 78}, {"columns": 5, "cell": 67}
EDGE, TOP = 3, 36  # pixels: the margin, the first row
BOX, UNDER, GAP = 28, 40, 14  # pixels: a box, the room under it, between rows
MONO, LETTER = 12, 7.23  # pixels of a token's letters, and how wide one is


class Stage:
    """The shapes of one round, in rows of `columns` slots; slot 0 is the anchor's, slot g + 1 a bonus's. A layer has `zone` pixels
    under each row, and `foot` pixels under all rows."""

    def __init__(self, page: dict, slots: int, zone: int, foot: int):
        self.columns, self.cell, self.zone = page["columns"], page["cell"], zone
        self.width, self.box = 2 * EDGE + self.columns * self.cell, self.cell - 6
        self.floor = TOP + -(-slots // self.columns) * (BOX + UNDER + zone + GAP) - GAP
        self.height, self.shapes = self.floor + foot, []

    def slot(self, k: int) -> tuple[float, float]:
        """Return the left upper corner of a slot's box."""
        row, column = divmod(k, self.columns)
        return EDGE + column * self.cell, TOP + row * (BOX + UNDER + self.zone + GAP)

    def under(self, k: int) -> tuple[float, float]:
        """Return the left upper corner of a layer's room under a slot."""
        x, y = self.slot(k)
        return x, y + BOX + UNDER

    def add(self, kind: str, at: dict[int, dict] | None = None, **look) -> None:
        """Add a shape, with its changes {step: look}."""
        look = {name: round(v, 2) if isinstance(v, float) else v for name, v in look.items()}
        changes = [[step, change] for step, change in sorted((at or {}).items())]
        self.shapes.append({"kind": kind, **look, "at": changes})

    def rect(self, x, y, width, height, fill="none", stroke="none", at=None, **look) -> None:
        """Add a rectangle with round corners."""
        place = {"x": x, "y": y, "width": width, "height": height}
        self.add("rect", at, **place, fill=fill, stroke=stroke, **look)

    def text(self, x, y, words, at=None, *, size=MONO, fill="ink", **look) -> None:
        """Add a text on the line y; `anchor` is "start", "middle" or "end"."""
        self.add("text", at, x=x, y=y, words=words, size=size, fill=fill, **look)

    def path(self, points, stroke, at=None, **look) -> None:
        """Add a line through points [(x, y)]."""
        rounded = [[round(x, 1), round(y, 1)] for x, y in points]
        self.add("path", at, points=rounded, stroke=stroke, **look)

    def token(self, k: int, text: str, fill: str, stroke: str, at=None, dy=0, **look) -> None:
        """Add a token's box in a slot, `dy` pixels further down."""
        x, y = self.slot(k)
        place = {"x": x, "y": y + dy, "width": self.box, "height": BOX}
        words = fitted(text, self.box - 4)
        self.add("token", at, **place, words=words, fill=fill, stroke=stroke, **look)


def fitted(text: str, pixels: float, letter: float = LETTER) -> str:
    """Return a token's text, cut to `pixels` pixels."""
    seen, most = word(text), int(pixels / letter)
    return seen if len(seen) <= most else seen[: most - 1] + "…"


def appear(step: int, until: int | None = None, **look) -> dict[int, dict]:
    """Return the changes of a shape that is seen from a step on, and no longer at `until`."""
    shown = {step: {"opacity": 1, **look}}
    return shown if until is None else {**shown, until: {"opacity": 0}}


def word(text: str) -> str:
    """Return a token's text without the blanks around it, line ends visible."""
    return visible_text(text).strip("·") or visible_text(text)


def said(text: str) -> str:
    """Return a token in a sentence."""
    return f"“{word(text)}”"


def counted(count: int, noun: str) -> str:
    """Return a number and a noun."""
    return f"{count} {noun}" + "s" * (count != 1)


def look_at(shape: dict, step: int) -> dict:
    """Return what a shape looks like at a step: its first look, and every change up to there. living_round.js does the same."""
    look = {"opacity": 1, "dx": 0, "dy": 0, "sx": 1, "sy": 1, **shape}
    for since, change in shape["at"]:
        if since <= step:
            look |= change
    return look


def still(scene: dict):
    """Draw the telling step of a scene's wide page; return the figure."""
    width, height = scene["pages"][0]
    fig = plt.figure(figsize=(width / 100, height / 100), dpi=120, layout="none")
    axes = fig.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()
    for shape in scene["rounds"][0]["drawings"][0]:
        look = look_at(shape, scene["telling"])
        if look["opacity"] > 0:
            _draw_still(axes, SimpleNamespace(**look))
    return fig


def _draw_still(axes, s: SimpleNamespace) -> None:
    """Draw one shape as it looks at a step. A pixel of the page is 0.72 points."""
    thick, alpha = 0.72 * getattr(s, "thick", 1), s.opacity
    dash = {"linestyle": (0, [float(d) for d in s.dash.split()])} if getattr(s, "dash", "") else {}
    if s.kind == "text":
        side = {"start": "left", "middle": "center", "end": "right"}[getattr(s, "anchor", "start")]
        axes.text(
            s.x + s.dx,
            s.y + s.dy,
            s.words,
            fontsize=0.7 * s.size,
            family="DejaVu Sans Mono" if getattr(s, "mono", False) else "DejaVu Sans",
            weight="bold" if getattr(s, "bold", False) else "normal",
            ha=side,
            va="baseline",
            color=STILL[s.fill],
            alpha=alpha,
            parse_math=False,
        )
    elif s.kind == "path":
        left = min(x for x, _ in s.points)
        xs = [left + s.dx + (x - left) * s.sx for x, _ in s.points]
        ys = [y + s.dy for _, y in s.points]
        colour = STILL[s.stroke]
        axes.plot(xs, ys, color=colour, lw=thick, alpha=alpha, solid_capstyle="round", **dash)
        if getattr(s, "tip", False):
            axes.plot(xs[-1], ys[-1], marker="o", ms=4, color=colour, alpha=alpha)
    elif s.kind == "token":
        box = {"kind": "rect", "round": 5, "thick": 2}
        letters = "paper" if s.fill == "ink" else "ink"
        _draw_still(axes, SimpleNamespace(**{**vars(s), **box}))
        middle = {"x": s.x + s.width / 2, "y": s.y + 18.5, "anchor": "middle", "fill": letters}
        text = {"kind": "text", "size": MONO, "mono": True, **middle}
        _draw_still(axes, SimpleNamespace(**{**vars(s), **text}))
    else:
        width, height = s.width * s.sx, s.height * s.sy
        corner = min(getattr(s, "round", 0), width / 2, height / 2)
        box = FancyBboxPatch(
            (s.x + s.dx, s.y + s.dy + s.height - height),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={corner}" if corner else "square,pad=0",
            facecolor=STILL[s.fill],
            edgecolor=STILL[s.stroke],
            lw=thick if s.stroke != "none" else 0,
            alpha=alpha,
            **dash,
        )
        axes.add_patch(box)
