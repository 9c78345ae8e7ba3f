"""Measure the serving engine on the tiny models: `make serving`. A stopped run goes on with the load it was at.

At each concurrency, what a step costs by its verification budget, then every policy, then ragged steps against padded
ones; to assets/measurements/serving/engine.json. It wants a machine that does nothing else.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from dspark_lite.confidence import stored_sts  # noqa: E402
from dspark_lite.errors import DSparkLiteError  # noqa: E402
from dspark_lite.lab import setup  # noqa: E402
from dspark_lite.measurements import Journal, fingerprint, header, journal_path, write_json  # noqa: E402
from dspark_lite.serving_bench import CAPACITY, CONCURRENCY, TEMPERATURE, measure_load  # noqa: E402
from dspark_lite.serving_report import SERVING  # noqa: E402

PROMPTS = 60  # a domain
PADDED = (16, 64)  # concurrencies at which ragged steps are compared with padded ones


def main(arguments=None):
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=10, help="of each configuration at each load (default: %(default)s)")
    parser.add_argument("--steps", type=int, default=6, help="counted in a turn (default: %(default)s)")
    parser.add_argument("--concurrency", type=int, nargs="+", default=CONCURRENCY, metavar="R", help="default: 1 to 64 by doubling")
    parser.add_argument("--out", type=Path, default=SERVING / "engine.json", metavar="FILE")
    options = parser.parse_args(arguments)
    lab = setup("tiny", prompts=PROMPTS)
    drafters = {"plain": None, "mtp": lab.drafter("mtp"), "dspark": lab.drafter("dspark")}
    stored_sts().attach(drafters["dspark"])
    settings = {"turns": options.turns, "steps": options.steps, "temperature": TEMPERATURE, "capacity": CAPACITY, "prompts": PROMPTS,
                "weights": [fingerprint(model) for model in (lab.target, drafters["mtp"], drafters["dspark"])]}
    try:
        journal = Journal(journal_path(options.out), settings)
        for concurrency in options.concurrency:
            if (concurrency,) not in journal:
                journal.add((concurrency,), measure_load(lab, drafters, concurrency, options.turns, options.steps, padded=concurrency in PADDED))
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    parts = {part: [row for concurrency in options.concurrency for row in journal[concurrency,][part]] for part in ("costs", "policies", "padded")}
    write_json(options.out, {**header(lab), **settings, **parts})
    journal_path(options.out).unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
