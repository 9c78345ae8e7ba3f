"""A case as it is measured, and the tiny models that several cases run."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from dspark_lite.course.measure.lab import setup
from dspark_lite.decoding.rounds import generate

WRITTEN, ANSWERS = 40, 1  # tokens of an answer, answers of each domain

Rows = dict[str, str]  # a measurement's result: {what: how much}


class Recorded(NamedTuple):
    """How a case is measured: a healthy program, one with the fault of each suspect, and {measurement: Rows} of a program."""

    healthy: object
    programs: dict[str, object]
    measure: Callable[[object], dict[str, Rows]]


@cache
def tiny():
    """Return the tiny lab, two prompts of each domain, and the target's own greedy answers to them."""
    lab = setup("tiny", prompts=ANSWERS)
    ids = [lab.encode(text) for texts in lab.prompts.values() for text in texts[:ANSWERS]]
    plain = [
        generate(lab.target, None, prompt, max_new_tokens=WRITTEN, stop_token_ids=()).token_ids
        for prompt in ids
    ]
    return lab, ids, plain
