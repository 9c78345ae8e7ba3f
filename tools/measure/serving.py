"""Measure the serving engine on the tiny models: `make serving`. A stopped run goes on with the
load it was at.

At each concurrency: what a step costs by its verification budget, and every policy; to
assets/measurements/serving/engine.json. It wants a machine that does nothing else.
"""

import argparse
import sys
from pathlib import Path

from dspark_lite.common.files import write_json
from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.course.measure.journal import Journal, check_writable, header, journal_path
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.serving_load import (
    CONCURRENCY,
    PROMPT_ROOM,
    TEMPERATURE,
    measure_load,
)
from dspark_lite.course.replication.confidence_results import stored_sts
from dspark_lite.course.replication.serving_results import MEASURED
from tools.errors import report_errors

PROMPTS = 60  # a domain
LEAST_STEPS = 4  # of a turn


def measure(concurrencies, turns, blocks, path):
    """Measure the loads that the journal beside `path` lacks, with DSpark calibrated as stored, and
    write all of them."""
    lab = setup("tiny", prompts=PROMPTS)  # held-out prompts, answers of at most 160 tokens
    drafters = {"plain": None, "mtp": lab.drafter("mtp"), "dspark": lab.drafter("dspark")}
    stored_sts().attach(drafters["dspark"])  # as `make confidence` has calibrated it
    weights = [
        fingerprint(model) for model in (lab.target, *drafters.values()) if model is not None
    ]
    settings = {
        "turns": turns,
        "blocks": blocks,
        "temperature": TEMPERATURE,
        "capacity": lab.max_new_tokens + PROMPT_ROOM,
        "prompts": PROMPTS,
        "weights": weights,
    }
    journal, loads = Journal(journal_path(path), settings), []
    for concurrency in concurrencies:
        if (concurrency,) not in journal:
            steps = max(LEAST_STEPS, blocks // concurrency)
            journal.add((concurrency,), measure_load(lab, drafters, concurrency, turns, steps))
        loads.append(journal[concurrency,])  # what was added, as it was
    parts = {part: [row for load in loads for row in load[part]] for part in loads[0]}
    write_json(path, {**header(lab), **settings, **parts})
    journal_path(path).unlink()


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "--turns",
        type=int,
        default=5,
        help="of each configuration at a load (default: %(default)s)",
    )
    parser.add_argument(
        "--blocks",
        type=int,
        default=20,
        help="counted in a turn, in four steps or more (default: %(default)s)",
    )
    parser.add_argument(
        "--concurrency",
        type=int,
        nargs="+",
        default=CONCURRENCY,
        metavar="R",
        help="default: 1 to 64 by doubling",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        default=MEASURED,
        help="default: where the lessons read it",
    )
    options = parser.parse_args(arguments)
    check_writable(options.out)
    measure(options.concurrency, options.turns, options.blocks, options.out)


if __name__ == "__main__":
    sys.exit(main())
