"""The living round: the drafted block of an answer in motion, one object that each lesson shows with a layer more.

It is an anywidget, whose module living_round.js also plays in the web edition. Without a kernel, and where anywidget is not
installed, a picture of the same drawing stands in its place.
"""

import base64
import io
from pathlib import Path

import matplotlib.pyplot as plt
from IPython.display import display
from PIL import Image
from traitlets import Dict

from ..measure.recorded_rounds import RecordedRound
from .round_scene import round_scene
from .round_stage import still
from .step_scene import STEP_LAYERS
from .widgets import anywidget, view_of, web_metadata

HERE = Path(__file__).parent
if anywidget:

    class LivingRound(anywidget.AnyWidget):
        """A player of a scene (round_scene.py)."""

        _esm = HERE / "living_round.js"
        _css = HERE / "living_round.css"
        scene = Dict().tag(sync=True)


def living_round(layer: str, rounds: list[RecordedRound]):
    """Show recorded rounds with a lesson's layer to play, to step and to scrub; return the widget (None without anywidget).

    The rounds follow one another in an answer if the layer is one of LAYERS. They share a step, one round a request, if it is one
    of STEP_LAYERS.

    It is one output with several faces: where a kernel and anywidget run, the player; elsewhere a picture; in the web edition
    the player again, by what is stored with the picture where the course is built.
    """
    scene = STEP_LAYERS[layer](rounds) if layer in STEP_LAYERS else round_scene(layer, rounds)
    widget = LivingRound(scene=scene) if anywidget else None
    faces = {"image/png": picture(scene), "text/plain": scene["told"]}
    if widget:
        faces |= view_of(widget)
    display(faces, raw=True, metadata=web_metadata("living_round", scene))
    return widget


def picture(scene: dict) -> str:
    """Return a PNG of a scene's telling step, in base64."""
    figure, drawn, file = still(scene), io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", facecolor="white")
    plt.close(figure)
    few = Image.open(drawn).convert("RGB").quantize(64, method=Image.Quantize.FASTOCTREE)
    few.save(file, "PNG", optimize=True)  # a third of the bytes
    return base64.b64encode(file.getvalue()).decode()
