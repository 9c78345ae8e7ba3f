"""Run the experiments that test the ledger's reasons on the tiny models: `make causes`. To assets/measurements/causes.json.

DSpark is told the name of the function that it writes, and decodes greedily (dspark_course/measure/causes.py): minutes.
"""

import argparse
import sys

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_course.measure.causes import tell_names, unlike_training
from dspark_course.measure.journal import check_writable, header
from dspark_course.measure.lab import setup
from dspark_course.replication.experiments import CAUSES


def main(arguments=None):
    """Measure; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--prompts", type=int, default=100, metavar="N", help="of code (default: %(default)s)")
    parser.add_argument("--greedy", type=int, default=40, metavar="N", help="of each domain, decoded greedily (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        check_writable(CAUSES)
        lab = setup("tiny", prompts=max(options.prompts, options.greedy))
        measured = {"told_names": tell_names(lab, options.prompts), "greedy": unlike_training(lab, options.greedy)}
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    write_json(CAUSES, {**header(lab), **measured})
    return 0


if __name__ == "__main__":
    sys.exit(main())
