"""Record the answers that lesson 07's head learns from and is measured on: `python -m
tools.measure.lesson_answers` writes assets/reference/lesson_answers.json."""

import tempfile
from pathlib import Path

from dspark_lite.common.files import write_json
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.measure.lab import Lab, setup
from dspark_lite.course.measure.whole_drafter import ANSWERS, write_lesson_answers
from dspark_lite.course.result_files import REFERENCE

TRAINING, HELD_OUT, NEW_TOKENS = 24, 10, 64  # prompts a domain; tokens of an answer, at most


def recorded(lab: Lab) -> dict[str, list]:
    """Return the target's answers, each as (token ids, prompt length), to prompts for "training"
    and to "held_out" prompts."""
    lab.max_new_tokens = NEW_TOKENS
    changes = {
        "data.prompts": dict.fromkeys(lab.prompts, TRAINING),
        "data.max_new_tokens": NEW_TOKENS,
    }
    data = load_recipe("lesson-tiny", changes).data
    asked = {domain: texts[:HELD_OUT] for domain, texts in lab.prompts.items()}
    with tempfile.TemporaryDirectory() as folder:
        found = write_lesson_answers(lab, data, asked, Path(folder))
    return dict(zip(("training", "held_out"), found))


if __name__ == "__main__":
    write_json(REFERENCE / ANSWERS, recorded(setup("tiny", device="cpu")))
