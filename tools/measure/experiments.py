"""Train every drafter of the paper's table and figures and measure it: `make experiments`.

The trainings are those of `RUNS`; `--estimate` says what those that are not measured yet take here.
Work in progress lies in build/experiments, so a stopped run goes on; finished measurements are
moved to assets/measurements/experiments.
"""

import argparse
import sys
from dataclasses import replace

from tqdm import tqdm

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, read_json, write_json
from dspark_lite.course.data.estimate import seconds, target_config
from dspark_lite.course.data.recipes import BUILD, load_recipe, parse_recipe, train
from dspark_lite.course.formats import duration
from dspark_lite.course.measure.evaluation import evaluate
from dspark_lite.course.measure.journal import check_writable, journal_path
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.round_latency import round_latency
from dspark_lite.course.measure.studies import LATENCY, RUNS
from dspark_lite.training.devices import keep_freed_memory, training_device
from dspark_lite.training.recipe import without_nones
from tools.errors import report_errors

WORK = ROOT / "build" / "experiments"
MEASUREMENTS = ROOT / "assets" / "measurements" / "experiments"
SLOTS = 16  # prompts answered side by side


def measure(name, prompts):
    """Train the drafter of a run unless it was, measure it, keep what goes into its file among the
    work, and return it."""
    run, folder, path = RUNS[name], WORK / "checkpoints" / name, WORK / f"{name}.json"
    if not (folder / "config.json").exists():
        train(run.recipe, changes=run.changes, out=folder)
    recipe, lab = load_recipe(*run), setup("tiny", prompts=prompts)
    losses = BUILD / recipe.name / "held_out.json"  # on the rows held out, after each pass
    # the engine holds no context of a second language model
    slots = SLOTS if recipe.kind == "draft" else 1
    lengths = evaluate(lab, {name: folder}, lab.prompts, slots=slots, path=path)
    measured = {
        **lengths,
        "recipe": without_nones(recipe),
        **({"held_out_losses": read_json(losses)} if losses.exists() else {}),
    }
    write_json(path, measured)
    journal_path(path).unlink()
    return measured


def finished(name):
    """Return a run's measurement, None where it is still to be made; refuse one of an earlier
    recipe."""
    run, path = RUNS[name], WORK / f"{name}.json"
    recipe = load_recipe(*run)
    if not path.exists():
        return None
    measured = read_json(path)
    if parse_recipe(measured["recipe"], path.name) != recipe:
        made = [path, WORK / "checkpoints" / name, BUILD / recipe.name]
        raise DSparkLiteError(
            f"{path.name} was measured before assets/recipes/{run.recipe}.json was changed; to begin again, delete "
            + ", ".join(str(path.relative_to(ROOT)) for path in made)
        )
    return measured


def what_it_takes(names):
    """Return lines that say how many runs are left, and how long a pass of each drafter takes
    here."""
    device, lines = training_device(None), []
    left = [name for name in names if finished(name) is None]
    for recipe in (load_recipe(*RUNS[name]) for name in left):
        if recipe.kind == "draft":
            a_pass = seconds(replace(recipe, epochs=1), target_config(recipe), device)
            lines.append(
                f"{recipe.name}: about {duration(a_pass.updates)} a pass, {recipe.epochs} at most"
            )
    return [*lines, f"{len(left)} of {len(names)} trainings to go, answers and target cache on top"]


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="default: all, then the latency of a round"
    )
    parser.add_argument("--estimate", action="store_true", help="only say what it takes")
    parser.add_argument(
        "--prompts", type=int, default=100, help="held-out prompts a domain (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.runs if name not in RUNS]:
        raise DSparkLiteError(f"there is no run {', '.join(unknown)}; runs are {', '.join(RUNS)}")
    # those that others begin from first
    names = options.runs or sorted(RUNS, key=lambda name: "initial" in RUNS[name].changes)
    if options.estimate:
        return print(*what_it_takes(names), sep="\n")
    check_writable(MEASUREMENTS / f"{LATENCY}.json")
    for name in tqdm(names, desc="experiments", unit="drafter"):
        write_json(MEASUREMENTS / f"{name}.json", finished(name) or measure(name, options.prompts))
    if not options.runs:
        write_json(MEASUREMENTS / f"{LATENCY}.json", round_latency(setup("tiny")))


if __name__ == "__main__":
    keep_freed_memory(training_device(None))
    sys.exit(main())
