"""Measure what lessons 09 and 10 show of the tiny profile: calibration, threshold sweep, cost table.

Everything goes to assets/measurements/confidence/. Without arguments all three are measured; the cost table
wants a machine that does nothing else.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from threshold_sweep import sweep  # noqa: E402

from dspark_lite.common.errors import DSparkLiteError  # noqa: E402
from dspark_lite.common.files import write_json  # noqa: E402
from dspark_lite.measure.confidence import calibrate  # noqa: E402
from dspark_lite.measure.journal import check_writable, header  # noqa: E402
from dspark_lite.measure.lab import setup  # noqa: E402
from dspark_lite.measure.step_time import PROFILE_CONTEXT, profile  # noqa: E402
from dspark_lite.replication.recorded_confidence import CONFIDENCE_FOLDER, COST_TABLE, STEPS, STS_FILE  # noqa: E402

PROMPTS = 400  # a domain, to fit on and again to report on
SWEPT = 60  # a domain


def measure_calibration():
    """Fit temperatures on one half of the prompts and keep report and observations of the other."""
    lab = setup("tiny", prompts=2 * PROMPTS)
    sts, measured = calibrate(lab, lab.drafter("dspark"))
    sts.save(STS_FILE)
    write_json(CONFIDENCE_FOLDER / "calibration.json", measured)


def measure_sweep():
    """Sweep a static threshold over the raw confidences."""
    lab = setup("tiny", prompts=SWEPT)
    write_json(CONFIDENCE_FOLDER / "threshold_sweep.json", sweep(lab, lab.drafter("dspark")))


def measure_costs():
    """Profile the target."""
    lab = setup("tiny", prompts=1)
    table, spent = profile(lab.target)
    table.save(COST_TABLE)
    write_json(STEPS, {**header(lab), "context": PROFILE_CONTEXT, "milliseconds": spent})


PARTS = {"calibration": measure_calibration, "sweep": measure_sweep, "costs": measure_costs}


def main(arguments=None):
    """Measure the parts asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for part in PARTS:
        parser.add_argument(f"--{part}", action="append_const", dest="parts", const=part)
    parts = parser.parse_args(arguments).parts or PARTS
    try:
        check_writable(STEPS)
        for part in parts:
            PARTS[part]()
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
