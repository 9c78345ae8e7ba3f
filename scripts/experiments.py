"""Train every drafter of the paper's table and figures in the next world and measure it: `make experiments`.

The trainings are those of `NEXT_STUDIES`; `--estimate` says what those that are not measured yet take here. Work in progress
lies in build/experiments, so a stopped run goes on; finished measurements are moved to assets/measurements/next.
"""

import argparse
import json
import sys

from tqdm import tqdm

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, write_json
from dspark_lite.common.formats import duration
from dspark_lite.training.loop import read_log, training_device
from dspark_course.making.estimate import Speed, dry_step, target_config, training_seconds
from dspark_course.making.recipes import BUILD, load_recipe, read_changes, train
from dspark_course.measure.evaluation import evaluate
from dspark_course.measure.journal import check_writable, journal_path
from dspark_course.measure.lab import setup
from dspark_course.measure.round_latency import round_latency
from dspark_course.measure.studies import LATENCY, Run, next_runs

WORK = ROOT / "build" / "experiments"
MEASUREMENTS = ROOT / "assets" / "measurements" / "next"
SLOTS = 16  # prompts answered side by side
LAST = 50  # updates over which the final loss is averaged


def checkpoint(recipe, changes=None):
    """Train a recipe's drafter unless it was; return the folder of its checkpoint."""
    folder = WORK / "checkpoints" / load_recipe(recipe, changes)["name"]
    if not (folder / "config.json").exists():
        train(recipe, changes=changes, out=folder)
    return folder


def training_summary(name):
    """Return the number of updates in all phases and the losses at the end, means over the last updates of the last log."""
    held_out = BUILD / name / "held_out.json"
    logs = [log for path in sorted((BUILD / name).rglob("log.jsonl")) if (log := read_log(path))]
    last = logs[-1][-LAST:] if logs else []
    names = [name for name in last[-1] if name != "step"] if last else []
    final = {name: sum(entry[name] for entry in last) / len(last) for name in names}
    return {"steps": sum(map(len, logs)), "final_losses": final,
            **({"held_out_losses": json.loads(held_out.read_text())} if held_out.exists() else {})}


def measure(run, prompts):
    """Measure the drafter of a run, keep what goes into its file among the work, and return it."""
    folder, recipe = checkpoint(*run), load_recipe(*run)
    path = WORK / f"{recipe['name']}.json"
    lab = setup("next", prompts=prompts)
    slots = SLOTS if recipe["kind"] == "draft" else 1  # the engine holds no context of a second language model
    found = evaluate(lab, {recipe["name"]: folder}, lab.prompts, slots=slots, path=path)
    measured = {**found, "recipe": recipe, "training": training_summary(recipe["name"])}
    write_json(path, measured)
    journal_path(path).unlink()
    return measured


def finished(run):
    """Return a run's measurement, None where it is still to be made; refuse one of an earlier recipe."""
    recipe = load_recipe(*run)
    path = WORK / f"{recipe['name']}.json"
    if not path.exists():
        return None
    measured = json.loads(path.read_text())
    if measured["recipe"] != recipe:
        made = [path, WORK / "checkpoints" / recipe["name"], BUILD / recipe["name"]]
        raise DSparkLiteError(f"{path.name} was measured before recipes/{run.recipe}.json was changed; to begin again, delete "
                              + ", ".join(str(one.relative_to(ROOT)) for one in made))
    return measured


def what_it_takes(runs):
    """Return lines that say how many runs are left, and how long a pass of each drafter takes here."""
    device = training_device(None)
    speed, lines = Speed.measured(device, "bfloat16"), []
    left = [run for run in runs if finished(run) is None]
    for recipe in (load_recipe(*run) for run in left):
        if recipe["kind"] == "draft":
            one, config = {**recipe, "epochs": 1, "initial": None}, target_config(recipe)
            seconds = training_seconds(one, config, dry_step(one, config, recipe["mean_tokens"]), speed, device)
            lines.append(f"{recipe['name']}: about {duration(seconds.updates)} a pass, {recipe['epochs']} at most")
    return [*lines, f"{len(left)} of {len(runs)} trainings to go, answers and target cache on top"]


def main(arguments=None):
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", help="default: all studies, then the latency of a round")
    parser.add_argument("--set", action="append", default=[], metavar="FIELD=VALUE", help="change a field of these recipes, as in --set seed=2")
    parser.add_argument("--estimate", action="store_true", help="only say what it takes")
    parser.add_argument("--prompts", type=int, default=200, help="held-out prompts a domain (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        if options.set and not options.recipes:
            raise DSparkLiteError("--set is given without a recipe; name the recipes that it changes")
        runs = [Run(recipe, read_changes(options.set)) for recipe in options.recipes] or next_runs()
        if options.estimate:
            print(*what_it_takes(runs), sep="\n")
            return 0
        check_writable(MEASUREMENTS / f"{LATENCY}.json")
        for run in tqdm(runs, desc="experiments", unit="drafter"):
            write_json(MEASUREMENTS / f"{load_recipe(*run)['name']}.json", finished(run) or measure(run, options.prompts))
        if not options.recipes:
            write_json(MEASUREMENTS / f"{LATENCY}.json", round_latency(setup("next")))
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
