"""Measure what lessons 09 and 10 show of the tiny profile: calibration, threshold sweep, cost table.

Everything goes to assets/measurements/confidence/. Without arguments all three are measured; the cost table
wants a machine that does nothing else. With --world deep, calibration and sweep are those of the deep world's DSpark after two
passes, on fewer prompts, as its answers are longer; it is trained, unless `make experiments` has done so. With --own the same is
measured of the released profile's models (or those of DSPARK_PROFILE), in place of the few prompts that a lesson takes, to
assets/measurements/own/.
"""

import argparse
import os
import sys
from pathlib import Path

from experiments import checkpoint

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_course.measure.confidence import calibrate
from dspark_course.measure.journal import check_writable, header, journal_path
from dspark_course.measure.lab import setup
from dspark_course.measure import benchmarks
from dspark_course.measure.studies import DEEP_PASSES
from dspark_course.measure.step_time import PROFILE_CONTEXT, PROFILE_SIZES, profile
from dspark_course.measure.threshold_sweep import SWEPT_THRESHOLDS, sweep
from dspark_course.replication.own_results import own_confidence, own_folder
from dspark_course.replication.recorded_confidence import COST_TABLE, STEPS, STS_FILES, report_file

PROMPTS = {"shallow": 400, "deep": 60}  # a domain, to fit on and again to report on
SWEPT = {"shallow": 60, "deep": 20}  # a domain
DEEP_DSPARK = DEEP_PASSES[2]["dspark"][0]


def models(world, prompts):
    """Return the lab of a world and its DSpark."""
    if world == "shallow":
        lab = setup("tiny", prompts=prompts)
        return lab, lab.drafter("dspark")
    lab = setup("deep", prompts=prompts)
    return lab, lab.drafter(str(checkpoint(DEEP_DSPARK)))


def measure_calibration(world):
    """Fit temperatures on one half of the prompts and keep report and observations of the other."""
    path = report_file("calibration", world)
    sts, measured = calibrate(*models(world, 2 * PROMPTS[world]), path=path)
    sts.save(STS_FILES[world])
    write_json(path, measured)
    journal_path(path).unlink()


def measure_sweep(world):
    """Sweep a static threshold over the raw confidences."""
    path = report_file("threshold_sweep", world)
    write_json(path, sweep(*models(world, SWEPT[world]), path=path))
    journal_path(path).unlink()


def measure_costs(world):
    """Profile the target; only that of the shallow world is."""
    if world != "shallow":
        raise DSparkLiteError("the cost table is of the shallow world's target; take --calibration and --sweep for the deep world")
    lab = setup("tiny", prompts=1)
    table, spent = profile(lab.target)
    table.save(COST_TABLE)
    write_json(STEPS, {**header(lab), "context": PROFILE_CONTEXT, "milliseconds": spent})


def measure_own(prompts, names, folder):
    """Measure the lab's own models on `prompts` prompts of each domain, or of the benchmarks of these names."""
    texts = {name: benchmarks.load_benchmark(name, folder, 2 * prompts) for name in names}
    lab = setup(os.environ.get("DSPARK_PROFILE", "released"), prompts=2 * prompts)
    if names:
        lab.prompts, lab.max_new_tokens = texts, benchmarks.MAX_NEW_TOKENS
    check_writable(own_folder(lab) / "calibration.json")
    if own_confidence(lab, lab.drafter("dspark"), prompts=prompts, thresholds=SWEPT_THRESHOLDS, sizes=PROFILE_SIZES, anew=True) is None:
        raise DSparkLiteError("the models of this profile are the recorded ones; leave out --own, or set DSPARK_PROFILE=released")
    print(f"written to {own_folder(lab)}")


PARTS = {"calibration": measure_calibration, "sweep": measure_sweep, "costs": measure_costs}


def main(arguments=None):
    """Measure the parts asked for; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for part in PARTS:
        parser.add_argument(f"--{part}", action="append_const", dest="parts", const=part)
    parser.add_argument("--own", action="store_true", help="the released profile's models instead")
    parser.add_argument("--prompts", type=int, default=40, metavar="N", help="a domain or benchmark, with --own (default: %(default)s)")
    parser.add_argument("--benchmark", nargs="+", default=[], metavar="NAME", help="prompts of these benchmarks of Table 1, with --own")
    parser.add_argument("--benchmark-dir", type=Path, metavar="DIR", help="a folder of NAME.jsonl (default: fetch from the Hub)")
    parser.add_argument("--world", choices=STS_FILES, default="shallow", help="default: %(default)s; the deep one has no cost table")
    options = parser.parse_args(arguments)
    try:
        if options.own:
            measure_own(options.prompts, options.benchmark, options.benchmark_dir)
            return 0
        check_writable(STEPS)
        for part in options.parts or [part for part in PARTS if options.world == "shallow" or part != "costs"]:
            PARTS[part](options.world)
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
