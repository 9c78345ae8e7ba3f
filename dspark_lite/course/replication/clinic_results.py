"""Charts of lesson 14's patients on the tiny models: assets/measurements/clinic.json, written by tools/measure/clinic.py."""

import numpy as np

from ...common.files import ROOT
from ..measure.symptoms import NOTED, Chart
from ..result_files import read
from . import confidence_results

CLINIC = ROOT / "assets" / "measurements" / "clinic.json"
WRITTEN_BY = "make clinic"
DIGITS = 4  # decimal places of a stored number


def step_milliseconds(most: int) -> dict[int, list[float]]:
    """Return the recorded times of passes over 1 to `most` tokens, {tokens: milliseconds of each repeat}."""
    recorded = confidence_results.steps()["milliseconds"]
    return {size: recorded[str(size)] for size in range(1, most + 1)}


def as_row(chart: Chart) -> dict:
    """Return a chart as it is recorded: the numbers of a block, and each column of its rounds."""
    columns = {
        name: [
            int(value) if value.is_integer() else round(value, DIGITS)
            for value in chart.rounds[name].tolist()
        ]
        for name in NOTED
    }
    return {
        "drafts": chart.drafts,
        "price": chart.price,
        "distance": chart.distance,
        "rounds": columns,
    }


def chart(cause: str) -> Chart:
    """Return the recorded chart of the patient with this cause."""
    row = read(CLINIC, WRITTEN_BY)["charts"][cause]
    rounds = np.array(
        list(zip(*(row["rounds"][name] for name in NOTED))), dtype=[(name, float) for name in NOTED]
    )
    return Chart(rounds, row["drafts"], row["price"], row["distance"])
