"""Record the times that lessons 03, 05 and 06 show, on the tiny models: `python -m tools.measure.clocks`, in a minute or two.

Writes assets/measurements/clocks.json. The machine should have nothing else to do.
"""

import argparse
import sys

from dspark_lite.common.files import write_json
from dspark_lite.course.measure import clocks
from dspark_lite.course.measure.journal import check_writable, header
from dspark_lite.course.measure.lab import setup
from tools.errors import report_errors

REPEATS = 30  # the least of so many times counts


@report_errors
def main(arguments):
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args(
        arguments
    )  # --help says so and measures nothing
    check_writable(clocks.RECORDED)
    lab = setup("tiny", prompts=1)
    write_json(clocks.RECORDED, {**header(lab), **clocks.measured(lab, REPEATS)})


if __name__ == "__main__":
    sys.exit(main())
