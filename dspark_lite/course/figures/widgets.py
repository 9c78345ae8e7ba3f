"""Sliders and menus that redraw a figure; they work on ipywidgets 7 (Colab) and 8, and each has a picture for readers
without a kernel."""

import base64
import io
import json
import re
from pathlib import Path
from textwrap import fill

import ipywidgets
import matplotlib.pyplot as plt
import numpy as np
from IPython.display import display
from PIL import Image
from traitlets import Dict, HasTraits

from ...common.errors import RequestError
from ..lesson_text import building
from .style import BLACK, GREY, SMALL

try:
    import anywidget
except ImportError:  # a picture or a text stands in a player's place, and the lesson goes on
    anywidget = None

HERE = Path(__file__).parent
IMPORTS = re.compile(r'^import .* from "\./(\w+\.js)";$', re.M)
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"
WEB = "application/vnd.dspark.web+json"
LINE = 0.22  # inches of a line of small print
LETTERS_PER_INCH = 15  # of small print


def explore(
    draw,
    *stills: dict,
    frames: dict[str, list] | None = None,
    columns: int = 1,
    **controls,
):
    """Show `controls` above a figure that `draw(**values)` draws anew at every change; return the panel.

    Controls are ipywidgets (IntSlider, FloatSlider, Dropdown, ToggleButtons); `draw` returns a matplotlib figure. It is
    one output with several faces. Where a kernel runs: the panel. Elsewhere: a picture of the figure at the starting values
    and at each of `stills`, the values that differ from them, in `columns` columns, with a caption that says what moves. In the web
    edition: one slider through `frames`, {control: values}, a picture for each value, drawn only where the course is built.
    Raise RequestError for a still or frames of a control that is not there.
    """
    named = {name for still in (*stills, frames or {}) for name in still}
    if unknown := named - controls.keys():
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
    drawn = {}
    if frames and building():
        ((name, values),) = frames.items()
        drawn = web_metadata("frames", film(draw, start, name, values, controls))
    display(
        {**view_of(panel), "image/png": picture(shown, caption, columns), "text/plain": caption},
        raw=True,
        metadata=drawn,
    )
    return panel


def film(draw, start: dict, name: str, values: list, controls: dict) -> dict:
    """Return a figure at each of the `values` of the control `name`, for a slider of the web edition: the control's
    label, the number of the frame to begin with, and (what is set, PNG in base64) of each frame."""
    images = [pixels(draw(**{**start, name: value})) for value in values]
    height, width = np.max([image.shape[:2] for image in images], 0)
    sheets = np.ones((len(images), height, width, 3))  # one size, so that the page stands still
    for sheet, image in zip(sheets, images):
        sheet[: image.shape[0], : image.shape[1]] = image[..., :3]
    said = [settings({name: value}, controls, [name]) for value in values]
    drawn = [small_png(Image.fromarray((255 * sheet).astype("uint8"))) for sheet in sheets]
    begin = min(range(len(values)), key=lambda place: abs(values[place] - start[name]))
    return {
        "label": controls[name].description,
        "begin": begin,
        "frames": list(zip(said, drawn)),
    }


def small_png(image: Image.Image, colours: int = 64) -> str:
    """Return a PNG in few colours, in base64: a third of the bytes."""
    file = io.BytesIO()
    few = image.convert("RGB").quantize(colours, method=Image.Quantize.FASTOCTREE)
    few.save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def module(script: Path) -> str:
    """Return a module of JavaScript as one text, because anywidget's modules import nothing: what it imports from this
    folder stands in it."""

    def imported(found):
        text = (HERE / found[1]).read_text(encoding="utf-8")
        return re.sub("^export ", "", text, flags=re.M)

    return IMPORTS.sub(imported, script.read_text(encoding="utf-8"))


def styles(*sheets: Path) -> str:
    """Return style sheets as one text, the colours of all players first."""
    return "\n".join(path.read_text(encoding="utf-8") for path in (HERE / "elements.css", *sheets))


class Player(anywidget.AnyWidget if anywidget else HasTraits):
    """Plays a scene with a module of JavaScript, in a notebook; the web edition has the same module."""

    scene = Dict().tag(sync=True)


def play(kind: type[Player], name: str, scene: dict, faces: dict):
    """Show a player of a scene; return it (None without anywidget).

    It is one output with several faces: where a kernel and anywidget run, the player; elsewhere `faces`; in the web edition
    the player again, as the drawing `name` of tools/site/scripts/page.js, by what is stored where the course is built.
    """
    widget = kind(scene=scene) if anywidget else None
    if widget:
        faces = faces | view_of(widget)
    display(faces, raw=True, metadata=web_metadata(name, scene))
    return widget


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
    """Return a PNG, in base64, of (settings, pixels) in `columns` columns, row by row, with a caption
    at the foot."""
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
