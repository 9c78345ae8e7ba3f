"""The living round: the drafted block of an answer in motion, one object that each lesson shows with a layer more.

It is an anywidget, whose module living_round.js also plays in the web edition. Without a kernel, and where anywidget is not
installed, a picture of the same drawing stands in its place.
"""

import io
from pathlib import Path

import matplotlib.pyplot as plt
from PIL import Image

from ..measure.recorded_rounds import RecordedRound
from .round_scene import round_scene
from .round_stage import still
from .step_scene import STEP_LAYERS
from .widgets import Player, module, play, small_png, styles

HERE = Path(__file__).parent


class LivingRound(Player):
    """A player of a scene (round_scene.py)."""

    _esm = module(HERE / "living_round.js")
    _css = styles(HERE / "living_round.css")


def living_round(layer: str, rounds: list[RecordedRound]):
    """Show recorded rounds with a lesson's layer to play, to step and to scrub; return the widget (None without anywidget).

    The rounds follow one another in an answer if the layer is one of LAYERS. They share a step, one round a request, if it is one
    of STEP_LAYERS.

    Where no widget runs, a picture of the telling step stands in its place.
    """
    scene = STEP_LAYERS[layer](rounds) if layer in STEP_LAYERS else round_scene(layer, rounds)
    faces = {"image/png": picture(scene), "text/plain": scene["told"]}
    return play(LivingRound, "living_round", scene, faces)


def picture(scene: dict) -> str:
    """Return a PNG of a scene's telling step, in base64."""
    figure, drawn = still(scene), io.BytesIO()
    figure.savefig(drawn, format="png", facecolor="white")
    plt.close(figure)
    return small_png(Image.open(drawn))
