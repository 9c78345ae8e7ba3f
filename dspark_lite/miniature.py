"""Our measurements in the shape of the paper's table and figures: assets/measurements/experiments, one file a drafter.

`paper.py` has the paper's numbers; here are ours, with intervals over prompts. scripts/experiments.py measures them.
"""

import json
from functools import cache

import numpy as np

from .checkpoints import ROOT
from .errors import DSparkLiteError
from .evaluation import Estimate, bootstrap, macro_gain, mean_accepted_length, row_tally
from .training.corpus import DOMAINS

MEASUREMENTS = ROOT / "assets" / "measurements" / "experiments"
TABLE_1 = {"small_lm": "tiny-small-lm", "mtp": "tiny-mtp", "eagle3": "tiny-eagle3", "dflash": "tiny-dflash",
           "dspark": "tiny-dspark"}  # drafter: recipe
HEADS = {"dspark": "tiny-dspark", "dspark_gated": "tiny-dspark-gated", "dspark_rnn": "tiny-dspark-rnn"}
DEPTHS = {1: "tiny-dspark-1-layer", 2: "tiny-dspark-2-layers", 3: "tiny-dspark"}  # layers of DSpark: recipe
LENGTHS = (4, 8, 12, 16)  # the anchor counts: gamma is one less
LENGTH_STUDY = {(drafter, length): f"{recipe}-length-{length}" for length in LENGTHS
                for drafter, recipe in (("dflash", "tiny-dflash"), ("dspark", "tiny-dspark"), ("dspark_rnn", "tiny-dspark-rnn"))}
RECIPES = tuple(dict.fromkeys([*TABLE_1.values(), *HEADS.values(), *DEPTHS.values(), *LENGTH_STUDY.values()]))


@cache
def measured(recipe: str) -> dict:
    """What scripts/experiments.py wrote of a recipe; raises DSparkLiteError where it was not measured."""
    path = MEASUREMENTS / f"{recipe}.json"
    if not path.exists():
        raise DSparkLiteError(f"{recipe} was not measured: there is no {path.name}; `make experiments` writes it")
    return json.loads(path.read_text())


def row(recipe: str, domain: str) -> dict:
    """The row of a domain: accepted length with its interval, conditional acceptance, committed tokens and rounds a prompt."""
    return next(found for found in measured(recipe)["rows"] if found["domain"] == domain)


def tallies(recipe: str) -> list[np.ndarray]:
    """Committed tokens and rounds of each prompt, [N, 2], one array a domain."""
    return [row_tally(row(recipe, domain)) for domain in DOMAINS]


def accepted_lengths(recipe: str) -> dict[str, Estimate]:
    """Accepted length of each domain and, as "all", its macro-average."""
    by_domain = {domain: Estimate(*(row(recipe, domain)[key] for key in ("accepted_length", "low", "high"))) for domain in DOMAINS}
    return {**by_domain, "all": bootstrap(mean_accepted_length, tallies(recipe))}


def gains(ours: str, theirs: str) -> dict[str, Estimate]:
    """How much longer recipe `ours` accepts than `theirs`, as a fraction, for each domain and, as "all", the macro-average.

    Both were measured on the same prompts, so the intervals are paired.
    """
    pairs = list(zip(tallies(ours), tallies(theirs)))
    by_domain = {domain: macro_gain([a], [b]) for domain, (a, b) in zip(DOMAINS, pairs)}
    return {**by_domain, "all": macro_gain(*map(list, zip(*pairs)))}
