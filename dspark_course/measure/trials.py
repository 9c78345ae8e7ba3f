"""A recipe of minutes, trained and measured as it is and with a change: the reader's own experiment of lesson 13."""

import tempfile
from pathlib import Path

import numpy as np

from dspark_lite.models.checkpoints import save_draft
from dspark_lite.training.cache import build_cache
from dspark_lite.training.drafts import train_draft
from ..making.answers import answered_rows
from ..making.recipes import load_recipe
from . import evaluation
from .lab import setup

RECIPE = "lesson-tiny"
AS_IT_IS, CHANGED = "as it is", "changed"


def changed(recipe: dict, change: dict) -> dict:
    """A recipe with other fields; a change within `config`, `loss` or `data` leaves its neighbours as they are."""
    return recipe | {key: recipe[key] | value if isinstance(value, dict) else value for key, value in change.items()}


def experiment(change: dict, prompts: int = 6) -> tuple[dict[str, dict[str, np.ndarray]], str]:
    """Trains RECIPE on the tiny target as it is and with a change, and lets both draft for the same prompts of each domain at
    temperature 1: by AS_IT_IS and CHANGED and by domain, tokens and rounds [prompts, 2]; and the device's name."""
    lab, base, found = setup("tiny"), load_recipe(RECIPE), {}
    with tempfile.TemporaryDirectory() as folder:
        for label, recipe in ((AS_IT_IS, base), (CHANGED, changed(base, change))):
            drafter = _trained(lab, recipe, Path(folder, label))
            found[label] = {domain: evaluation.tally(evaluation.rollouts(lab, drafter, texts[:prompts], temperature=1.0))
                            for domain, texts in lab.prompts.items()}
    return found, lab.device_name


def _trained(lab, recipe: dict, folder: Path):
    """The drafter of a recipe, trained in `folder`."""
    rows = answered_rows(lab.target, recipe["data"], folder / "answers.jsonl")
    cache = build_cache(lab.target, rows, recipe["config"]["target_layer_ids"], folder / "cache")
    save_draft(folder / "draft", train_draft(recipe, lab.target, cache, folder / "run"), lab.target)
    return lab.drafter(str(folder / "draft"))
