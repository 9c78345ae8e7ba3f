"""Measure the serving engine on the tiny models: `make serving`. A stopped run goes on with the load it was at.

At each concurrency: what a step costs by its verification budget, every policy, ragged steps against padded ones; to
assets/measurements/serving/engine.json. It wants a machine that does nothing else. With `--world deep`, the models of the
deep world: its DSpark of one pass (deep-two-passes: of two; deep-beside-mtp, deep-two-passes-beside-mtp: with MTP-1) is trained, unless
`make experiments` has done so, and calibrated first.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from experiments import checkpoint

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_course.measure.confidence import calibrate
from dspark_course.measure.journal import Journal, check_writable, header, journal_path
from dspark_course.measure.lab import setup
from dspark_course.measure.serving_load import CONCURRENCY, PROMPT_ROOM, TEMPERATURE, measure_load
from dspark_course.measure.studies import DEEP_MTP, DEEP_PASSES
from dspark_lite.common.fingerprint import fingerprint
from dspark_course.replication.recorded_confidence import stored_sts
from dspark_course.replication.recorded_serving import BESIDE_MTP, BESIDE_MTP_TWO_PASSES, MEASURED

PROMPTS = 60  # a domain
LEAST_STEPS = 4  # of a turn
PADDED = (16, 64)  # concurrencies at which ragged steps are compared with padded ones


def shallow_world():
    """Return the lab of the shallow world and its drafters, DSpark calibrated as stored."""
    lab = setup("tiny", prompts=PROMPTS)
    drafters = {"plain": None, "mtp": lab.drafter("mtp"), "dspark": lab.drafter("dspark")}
    stored_sts().attach(drafters["dspark"])
    return lab, drafters


def deep_world(passes, **rivals):
    """Return the lab of the deep world and its drafters, trained unless they were: DSpark, calibrated on half of the prompts, and
    `rivals`, recipes by name."""
    lab = setup("deep", prompts=PROMPTS)
    drafter = lab.drafter(str(checkpoint(DEEP_PASSES[passes]["dspark"][0])))
    calibrate(lab, drafter)[0].attach(drafter)
    return lab, {"plain": None, **{name: lab.drafter(str(checkpoint(recipe))) for name, recipe in rivals.items()}, "dspark": drafter}


WORLDS = {"shallow": shallow_world, "deep": partial(deep_world, 1), "deep-two-passes": partial(deep_world, 2),
          BESIDE_MTP: partial(deep_world, 1, mtp=DEEP_MTP[1]), BESIDE_MTP_TWO_PASSES: partial(deep_world, 2, mtp=DEEP_MTP[2])}


def measure(lab, drafters, concurrencies, turns, blocks, path):
    """Measure the loads that the journal beside `path` does not hold yet, and write all of them."""
    weights = [fingerprint(model) for model in (lab.target, *drafters.values()) if model is not None]
    settings = {"turns": turns, "blocks": blocks, "temperature": TEMPERATURE, "capacity": lab.max_new_tokens + PROMPT_ROOM,
                "prompts": PROMPTS, "weights": weights}
    journal, loads = Journal(journal_path(path), settings), []
    for concurrency in concurrencies:
        if (concurrency,) not in journal:
            steps = max(LEAST_STEPS, blocks // concurrency)
            padded = concurrency in PADDED
            journal.add((concurrency,), measure_load(lab, drafters, concurrency, turns, steps, padded=padded))
        loads.append(journal[concurrency,])
    parts = {part: [row for load in loads for row in load[part]] for part in loads[0]}
    write_json(path, {**header(lab), **settings, **parts})
    journal_path(path).unlink()


def main(arguments=None):
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=10, help="of each configuration at a load (default: %(default)s)")
    parser.add_argument("--blocks", type=int, default=64,
                        help="counted in a turn, in four steps or more (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=CONCURRENCY, metavar="R",
                        help="default: 1 to 64 by doubling")
    parser.add_argument("--world", choices=WORLDS, default="shallow", help="default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="FILE", help="default: where the lessons read it")
    options = parser.parse_args(arguments)
    path = options.out or MEASURED[options.world]
    try:
        check_writable(path)
        measure(*WORLDS[options.world](), options.concurrency, options.turns, options.blocks, path)
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
