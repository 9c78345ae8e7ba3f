"""What a lesson's cell hands to the text around it: numbers that the build writes into sentences, and sentences that must hold."""

import math
import os

from IPython import get_ipython
from IPython.display import publish_display_data

MIME = "application/vnd.dspark.glue+json"


def glue(**values) -> None:
    """Name values for the text: where the source says `⟦name:.1f⟧`, the build writes the value into the sentence.

    A value is a number (a NumPy or PyTorch scalar will do) or a short string. Nothing is shown: the values travel in the metadata
    of an output without data, as in MyST-NB's `glue`. Raise TypeError for anything else.
    """
    plain = {name: _plain(name, value) for name, value in values.items()}
    if get_ipython() is not None:
        publish_display_data(data={}, metadata={MIME: plain})


def _plain(name: str, value) -> int | float | str:
    """Return the value as JSON has it; "nan" and "inf" as strings."""
    value = value.item() if getattr(value, "ndim", None) == 0 else value
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise TypeError(
            f"{name} is of type {type(value).__name__}; the text takes numbers and strings"
        )
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def building() -> bool:
    """Return whether this kernel makes the outputs that are committed (`python -m
    tools.notebooks.build` sets DSPARK_BUILD)."""
    return bool(os.environ.get("DSPARK_BUILD"))


def claims(sentences: dict[str, bool], by_clock: dict[str, bool] | None = None) -> None:
    """Check {sentence of the text: whether it is true}, all of them.

    The text describes the tiny models. In a run that names them (DSPARK_PROFILE=tiny: the build, `make run`, the tests) false
    sentences raise AssertionError, one a line of its message; a reader with other models sees them printed and goes on. Those
    `by_clock`, which say what takes longer, raise in the build alone: a busy machine refutes nothing.
    """
    false, late = (
        [sentence for sentence, true in asked.items() if not true]
        for asked in (sentences, by_clock or {})
    )
    if os.environ.get("DSPARK_PROFILE") == "tiny":
        raising = false + late * building()
        assert not raising, "\n".join(raising)
    for sentence in false + late:
        print(f"Not so in this run: {sentence}")
