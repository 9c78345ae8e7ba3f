"""Measure what lessons 09 and 10 show of the tiny profile: calibration, threshold sweep, cost
table.

Everything goes to assets/measurements/confidence/. Without arguments all three are measured; the
cost table wants a machine that does nothing else. With --own calibration and cost table are
measured of the released profile's models (or those of DSPARK_PROFILE), in place of the few prompts
that a lesson takes, to assets/measurements/own/.
"""

import argparse
import os
import sys

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_lite.course.measure.confidence import calibrate
from dspark_lite.course.measure.journal import check_writable, header, journal_path
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.step_time import PROFILE_CONTEXT, PROFILE_SIZES, profile
from dspark_lite.course.measure.threshold_sweep import sweep
from dspark_lite.course.replication.confidence_results import (
    CALIBRATION,
    COST_TABLE,
    STEPS,
    STS_FILE,
    SWEEP,
)
from dspark_lite.course.replication.lab_results import lab_folder, measure_confidence
from tools.errors import report_errors

PROMPTS = 200  # a domain, to fit on and again to report on
SWEPT = 60  # a domain


def measure_calibration():
    """Fit temperatures on one half of the prompts and keep report and observations of the other."""
    lab = setup("tiny", prompts=2 * PROMPTS)
    sts, measured = calibrate(lab, lab.drafter("dspark"), path=CALIBRATION)
    sts.save(STS_FILE)
    write_json(CALIBRATION, measured)
    journal_path(CALIBRATION).unlink()


def measure_sweep():
    """Sweep a static threshold over the raw confidences."""
    lab = setup("tiny", prompts=SWEPT)
    write_json(SWEEP, sweep(lab, lab.drafter("dspark"), path=SWEEP))
    journal_path(SWEEP).unlink()


def measure_costs():
    """Profile the target."""
    lab = setup("tiny", prompts=1)
    table, spent = profile(lab.target)
    table.save(COST_TABLE)
    write_json(STEPS, {**header(lab), "context": PROFILE_CONTEXT, "milliseconds": spent})


def measure_own(prompts):
    """Measure the lab's own models on `prompts` prompts of each domain."""
    lab = setup(os.environ.get("DSPARK_PROFILE", "released"), prompts=2 * prompts)
    check_writable(lab_folder(lab) / "calibration.json")
    if (
        measure_confidence(
            lab, lab.drafter("dspark"), prompts=prompts, sizes=PROFILE_SIZES, anew=True
        )
        is None
    ):
        raise DSparkLiteError(
            "the models of this profile are the recorded ones; leave out --own, or set DSPARK_PROFILE=released"
        )
    print(f"written to {lab_folder(lab)}")


PARTS = {"calibration": measure_calibration, "sweep": measure_sweep, "costs": measure_costs}


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    for part in PARTS:
        parser.add_argument(f"--{part}", action="append_const", dest="parts", const=part)
    parser.add_argument("--own", action="store_true", help="the released profile's models instead")
    parser.add_argument(
        "--prompts",
        type=int,
        default=40,
        metavar="N",
        help="a domain, with --own (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.own:
        return measure_own(options.prompts)
    check_writable(STEPS)
    for part in options.parts or PARTS:
        PARTS[part]()


if __name__ == "__main__":
    sys.exit(main())
