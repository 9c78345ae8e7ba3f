"""The paper's numbers, to lay beside ours: assets/reference/paper_numbers.json, as printed there or read off its figures."""

import json
from functools import cache

import numpy as np

from .checkpoints import ROOT
from .errors import DSparkLiteError

LABELS = {"dspark": "DSpark", "dflash": "DFlash", "eagle3": "Eagle3"}  # our name: the paper's
TARGETS = ("Qwen3-4B", "Qwen3-8B", "Qwen3-14B", "Gemma4-12B")


@cache
def numbers() -> dict:
    """Everything in paper_numbers.json, by figure and table."""
    return json.loads((ROOT / "assets" / "reference" / "paper_numbers.json").read_text())


def table1(target: str, drafter: str) -> dict[str, float]:
    """Accepted length of each benchmark (Table 1: temperature 1, block size 7, bonus token included).

    `target` is one of TARGETS, `drafter` one of LABELS; raises DSparkLiteError for another.
    """
    if target not in TARGETS or drafter not in LABELS:
        raise DSparkLiteError(f"Table 1 has no {drafter!r} on {target!r}; its targets are {', '.join(TARGETS)}, its drafters "
                              f"{', '.join(LABELS)}")
    return numbers()["table1"]["values"][target][LABELS[drafter]]


def domain_means(target: str, drafter: str) -> dict[str, float]:
    """Accepted length of each domain, the mean of its three benchmarks of Table 1."""
    values = table1(target, drafter)
    return {domain: float(np.mean([values[name] for name in names])) for domain, names in numbers()["table1"]["domains"].items()}


def macro_gain(target: str, ours: str, theirs: str) -> float:
    """How much longer `ours` accepts than `theirs` in the mean over Table 1's benchmarks, as a fraction."""
    return float(np.mean(list(table1(target, ours).values())) / np.mean(list(table1(target, theirs).values())) - 1)
