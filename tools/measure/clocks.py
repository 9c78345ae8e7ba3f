"""Record the times that lessons 03, 05 and 06 show, on the tiny models: `python -m tools.measure.clocks`, in three minutes.

Writes assets/measurements/clocks.json. The machine should have nothing else to do.
"""

import argparse
import sys

from tqdm import tqdm

from dspark_lite.common.files import write_json
from dspark_lite.course.measure import clocks
from dspark_lite.course.measure.journal import check_writable, header
from dspark_lite.course.measure.lab import setup
from tools.errors import report_errors

REPEATS = 30  # the least of these times counts
# Several, so that a busy moment does not lengthen one drafter's times alone.
RECORDINGS = 3


def least(found):
    """Return the least of each number of several recordings [dictionaries of dictionaries of numbers]."""
    first = found[0]
    if isinstance(first, dict):
        return {key: least([each[key] for each in found]) for key in first}
    return first if isinstance(first, str) else min(found)


@report_errors
def main(arguments):
    # --help says so and measures nothing
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(arguments)
    check_writable(clocks.RECORDED)
    lab = setup("tiny", prompts=1)
    found = [clocks.measured(lab, REPEATS) for _ in tqdm(range(RECORDINGS), unit="recording")]
    write_json(clocks.RECORDED, {**header(lab), **least(found)})


if __name__ == "__main__":
    sys.exit(main())
