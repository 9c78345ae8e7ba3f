"""Train and measure what stands beside lesson 13, on the tiny models: `make production`. To
assets/measurements/production.json.

Parts are V4's draft in miniature beside a DSpark ("v4"), heads on one backbone ("heads"), drafted
trees ("trees"), what a wrong head costs ("wrong_heads"), and the lab's DSpark on a target that was
fine-tuned, before and after a fine-tuning of its own ("retold"). Trainings resume in
build/production, a part's rows in a journal of its own beside the result.
"""

import argparse
import sys
from dataclasses import asdict
from functools import partial

from dspark_lite.common.files import ROOT, WORK, read_json, write_json
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.measure.journal import Journal, check_writable, header, journal_path
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.production import (
    HEAD_KINDS,
    TREE_NODES,
    V4_VARIANTS,
    cached_rows,
    head_row,
    retold_lab,
    retold_row,
    tree_row,
    v4_row,
)
from dspark_lite.course.replication.drift import throughput_by_head
from dspark_lite.training.devices import keep_freed_memory, training_device
from tools.errors import report_errors

MEASURED = ROOT / "assets" / "measurements" / "production.json"
FOLDER = WORK / "build" / "production"
LOAD = 64  # requests under way, for wrong heads


def kept(journal, key, make):
    """Return the row of a key from the journal; if it has none, add what `make` returns."""
    if key not in journal:
        journal.add(key, make())
    return journal[key]


def trained_rows(lab, part, names, row_of, prompts, journal):
    """Return a row for each drafter, which is trained first."""
    folder = FOLDER / part
    cache = cached_rows(lab, load_recipe(f"production-{part}"), folder)
    return [
        kept(journal, (name,), partial(row_of, lab, name, cache, folder, prompts)) for name in names
    ]


def tree_rows(lab, prompts, journal):
    """Return a row for each tree and one for the chain, greedy and at temperature 1."""
    return [
        kept(journal, (nodes, temperature), partial(tree_row, lab, nodes, temperature, prompts))
        for temperature in (0.0, 1.0)
        for nodes in (0, *TREE_NODES)
    ]


def wrong_heads(lab, prompts, journal):
    """Return a row for each wrong head and time of a step, computed from a model: prompts and
    journal are not used."""
    return [
        {"name": name, "paid": paid, "requests": LOAD, **asdict(found)}
        for paid in ("measured", "fitted")
        for name, found in throughput_by_head(LOAD, paid).items()
    ]


def retold_rows(lab, prompts, journal):
    """Return three rows: target and draft as they are, the target fine-tuned alone, the draft
    fine-tuned on that target's answers."""
    folder = FOLDER / "retold"
    moved = retold_lab(lab, folder, prompts)
    rows = {
        "as they are": (lab, None),
        "target retold": (moved, None),
        "draft refitted": (moved, folder),
    }
    return [
        kept(journal, (name,), partial(retold_row, place, name, prompts, trained_in))
        for name, (place, trained_in) in rows.items()
    ]


PARTS = {
    "wrong_heads": wrong_heads,
    "retold": retold_rows,
    "trees": tree_rows,
    "v4": partial(trained_rows, part="v4", names=V4_VARIANTS, row_of=v4_row),
    "heads": partial(trained_rows, part="heads", names=HEAD_KINDS, row_of=head_row),
}


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--parts", nargs="+", choices=PARTS, default=list(PARTS), help="some of the parts"
    )
    parser.add_argument(
        "--prompts", type=int, default=40, help="held-out prompts a domain (default 40)"
    )
    options = parser.parse_args(arguments)
    check_writable(MEASURED)
    lab = setup("tiny", prompts=options.prompts)
    recipes = {
        name: load_recipe(name).digest
        for name in (
            "production-v4",
            "production-heads",
            "production-retold",
            "production-refitted",
        )
    }
    settings = {"target": lab.target.name, "seed": lab.seed, "prompts": options.prompts, **recipes}
    for part in options.parts:
        journal = Journal(journal_path(MEASURED.with_stem(f"{MEASURED.stem}-{part}")), settings)
        rows = PARTS[part](lab, prompts=options.prompts, journal=journal)
        held = read_json(MEASURED) if MEASURED.exists() else {}
        write_json(
            MEASURED, {**held, part: {**header(lab), "prompts": options.prompts, "rows": rows}}
        )
        journal.path.unlink()
        print(f"{part}: {len(rows)} rows in {MEASURED}")


if __name__ == "__main__":
    keep_freed_memory(training_device(None))
    sys.exit(main())
