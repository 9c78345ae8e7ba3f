"""A recipe of minutes, trained and measured as it is and with a change: the reader's own experiment of lesson 13."""

import tempfile
from pathlib import Path

import numpy as np

from dspark_lite.common.files import write_json
from ..making.recipes import train
from . import evaluation
from .lab import setup

RECIPE = "lesson-tiny"
AS_IT_IS, CHANGED = "as it is", "changed"


def write_trial(label: str, change: dict, folder: Path) -> Path:
    """Writes the recipe that extends RECIPE by a change to `folder`; a change within `config`, `loss` or `data` leaves its neighbours."""
    path = folder / f"{label}.json"
    write_json(path, {"name": label, "extends": RECIPE, **change})
    return path


def experiment(change: dict, prompts: int = 6) -> tuple[dict[str, dict[str, np.ndarray]], str]:
    """Trains RECIPE on the tiny target as it is and with a change, and lets both draft for the same prompts of each domain at
    temperature 1: by AS_IT_IS and CHANGED and by domain, tokens and rounds [prompts, 2]; and the device's name."""
    lab, found = setup("tiny"), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for label, fields in ((AS_IT_IS, {}), (CHANGED, change)):
            trained = train(str(write_trial(label, fields, folder)), out=folder / f"{label} draft", build=folder / "build")
            drafter = lab.drafter(str(trained))
            found[label] = {domain: evaluation.tally(evaluation.rollouts(lab, drafter, texts[:prompts], temperature=1.0))
                            for domain, texts in lab.prompts.items()}
    return found, lab.device_name
