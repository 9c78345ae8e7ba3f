"""Record lesson 07's training of a whole drafter on the tiny models: `python -m
tools.measure.whole_drafter`, in minutes.

It trains by the course's own solutions of the lesson's exercises. Writes
assets/measurements/whole_drafter.json.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from dspark_lite.common.files import write_json
from dspark_lite.course.exercises import lesson_07 as exercises
from dspark_lite.course.measure.journal import check_writable
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.whole_drafter import RECORDED, train_whole
from tools.errors import report_errors

PROMPTS, NEW_TOKENS = 5, 80  # a domain; of an answer, at most


@report_errors
def main(arguments):
    # --help says so and measures nothing
    argparse.ArgumentParser(description=__doc__.partition("\n\n")[0]).parse_args(arguments)
    check_writable(RECORDED)
    lab = setup("tiny", prompts=PROMPTS)
    lab.max_new_tokens = NEW_TOKENS
    with tempfile.TemporaryDirectory() as folder:
        found = train_whole(lab, Path(folder), exercises.sees, exercises.dspark_loss, PROMPTS)
    losses = {
        name: [round(loss, 4) for loss in by_step] for name, by_step in found["losses"].items()
    }
    write_json(RECORDED, {**found, "losses": losses})


if __name__ == "__main__":
    sys.exit(main())
