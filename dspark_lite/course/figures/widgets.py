"""Sliders and menus that redraw a figure; they work on ipywidgets 7 (Colab) and 8, and each has a picture for readers
without a kernel."""

import base64
import io
import json
from collections.abc import Callable
from textwrap import fill

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display

from dspark_lite.common.errors import RequestError
from ..lesson_text import building
from .style import BLACK, GREY, SMALL

try:
    import anywidget
except ImportError:  # a picture or a text stands in a player's place, and the lesson goes on
    anywidget = None

WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WEB = "application/vnd.dspark.web+json"
LINE = 0.22  # inches of a line of small print
LETTERS_PER_INCH = 15  # of small print


def explore(
    draw,
    *stills: dict,
    web: tuple[str, Callable[[], dict]] | None = None,
    columns: int = 1,
    **controls,
):
    """Show `controls` above a figure that `draw(**values)` draws anew at every change; return the panel.

    Controls are ipywidgets (IntSlider, FloatSlider, Dropdown, ToggleButtons); `draw` returns a matplotlib figure. It is
    one output with two faces: where a kernel runs, the panel; elsewhere a picture of the figure at the starting values
    and at each of `stills`, the values that differ from them, in so many `columns`, with a caption that says what moves. `web` is for the web
    edition, where the figure moves without a kernel: the name of a drawing in tools/site/static/widgets.js, and a
    function that returns what it draws, asked only where the course is built: numbers and texts, and under "controls"
    those that differ there. Raise RequestError for a still of a control that is not there.
    """
    if unknown := {name for still in stills for name in still} - controls.keys():
        raise RequestError(
            f"A still sets {', '.join(sorted(unknown))}; the controls are {', '.join(controls)}."
        )

    def redraw(**values):
        figure = draw(**values)
        display(figure)
        plt.close(figure)

    panel = ipywidgets.VBox([*controls.values(), ipywidgets.interactive_output(redraw, controls)])
    start = {name: control.value for name, control in controls.items()}
    shown = [
        (
            settings({**start, **still}, controls, still or controls),
            pixels(draw(**{**start, **still})),
        )
        for still in ({}, *stills)
    ]
    caption = (
        "In a running notebook this figure moves. Its controls: "
        + ", ".join(control.description for control in controls.values())
        + "."
    )
    drawn = {WEB: for_web(*web, controls)} if web and building() else {}
    display(
        {**view_of(panel), "image/png": picture(shown, caption, columns), "text/plain": caption},
        raw=True,
        metadata=drawn,
    )
    return panel


def view_of(widget) -> dict:
    """Return the face of an output that shows a widget where a kernel runs."""
    return {WIDGET_VIEW: {"version_major": 2, "version_minor": 0, "model_id": widget.model_id}}


def web_metadata(drawing: str, numbers: dict) -> dict:
    """Return the metadata of an output that the web edition draws itself; {} where the course is not
    built. It is one text, because a notebook's file would give each number a line of its own."""
    if not building():
        return {}
    stored = {"drawing": drawing, "numbers": numbers}
    return {WEB: json.dumps(stored, ensure_ascii=False, separators=(",", ":"))}


def for_web(drawing: str, numbers: Callable[[], dict], controls: dict) -> str:
    """Return a widget for the web edition, to be stored with its picture: a drawing, its numbers and its controls, in JSON. It
    is one text, because a notebook's file would give each number a line of its own."""
    data = numbers()
    controls = {**controls, **data.pop("controls", {})}
    shown = {name: web_control(control) for name, control in controls.items()}
    page = {"drawing": drawing, "numbers": data, "controls": shown}
    return json.dumps(page, ensure_ascii=False, separators=(",", ":"))


def web_control(control) -> dict:
    """Return the label, the value and the range of a slider, or the options of a menu as [label, value]."""
    fields = {"label": control.description, "value": control.value}
    if hasattr(control, "options"):
        pairs = (
            option if isinstance(option, tuple) else (str(option), option)
            for option in control.options
        )
        return {**fields, "options": [list(pair) for pair in pairs]}
    return {**fields, "min": control.min, "max": control.max, "step": control.step}


def settings(values: dict, controls: dict, named) -> str:
    """Return the values of the controls in `named` as a reader sees them, such as "temperature 0.5, prompt 3"."""

    def text(control, value):
        options = getattr(control, "options", ())
        labels = [
            option[0] for option in options if isinstance(option, tuple) and option[1] == value
        ]
        return labels[0] if labels else f"{value:.4g}" if isinstance(value, float) else str(value)

    return ", ".join(
        f"{controls[name].description} {text(controls[name], values[name])}" for name in named
    )


def pixels(figure):
    """Return the colours [height, width, 4] of a figure without its empty margins; the figure is closed."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=plt.rcParams["figure.dpi"], bbox_inches="tight")
    plt.close(figure)
    file.seek(0)
    return plt.imread(file)


def picture(shown: list, caption: str, columns: int = 1) -> str:
    """Return a PNG, in base64, of (settings, pixels) in so many columns, row by row, with a caption at the foot."""
    dpi = plt.rcParams["figure.dpi"]
    column = max(image.shape[1] for _, image in shown)
    width = column * columns
    rows = [shown[first : first + columns] for first in range(0, len(shown), columns)]
    wrapped = [
        [(fill(text, int(column / dpi * LETTERS_PER_INCH)), image) for text, image in row]
        for row in rows
    ]
    wrapped.append([(fill(caption, int(width / dpi * LETTERS_PER_INCH)), np.ones((0, 1, 4)))])
    lines = [max(text.count("\n") for text, _ in row) for row in wrapped]
    heights = [round(dpi * LINE * (count + 1.3)) for count in lines]
    tallest = [max(image.shape[0] for _, image in row) for row in wrapped]
    top = sum(heights) + sum(tallest)
    sheet = plt.figure(figsize=(width / dpi, top / dpi), dpi=dpi, layout="none", facecolor="white")
    for row, height, tall in zip(wrapped, heights, tallest, strict=True):
        for place, (text, image) in enumerate(row):
            sheet.text(
                0.005 + place / columns,
                (top - height / 2) / sheet.bbox.height,
                text,
                fontsize=SMALL,
                va="center",
                parse_math=False,
                color=GREY if row is wrapped[-1] else BLACK,
            )
            if image.size:
                sheet.figimage(image, place * column, top - height - image.shape[0])
        top -= height + tall
    file = io.BytesIO()
    sheet.savefig(file, format="png", dpi=dpi)
    plt.close(sheet)
    return base64.b64encode(file.getvalue()).decode()


def slider(description: str, value, low, high, step=1):
    """Return an IntSlider or FloatSlider that redraws when let go."""
    kind = ipywidgets.IntSlider if isinstance(value, int) else ipywidgets.FloatSlider
    return kind(
        description=description,
        value=value,
        min=low,
        max=high,
        step=step,
        continuous_update=False,
        style={"description_width": "initial"},
        layout=ipywidgets.Layout(width="420px"),
    )


def menu(description: str, options):
    """Return a Dropdown."""
    return ipywidgets.Dropdown(
        description=description,
        options=options,
        style={"description_width": "initial"},
        layout=ipywidgets.Layout(width="420px"),
    )
