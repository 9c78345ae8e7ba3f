"""Train every drafter of the paper's table and figures from its recipe and measure it: `make experiments`.

It says first what that takes, on this device and on one T4. Work in progress lies in build/experiments, so a stopped run
goes on; finished measurements are moved to assets/measurements/experiments, where lessons 06, 12 and 13 read them.
"""

import argparse
import json
import sys

import torch
from tqdm import tqdm
from transformers import Qwen3Config, Qwen3ForCausalLM

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, write_json
from dspark_lite.common.formats import duration
from dspark_course.measure.evaluation import evaluate
from dspark_course.measure.journal import check_writable, journal_path
from dspark_course.measure.lab import setup
from dspark_course.measure.roofline import DEVICES
from dspark_course.measure.round_latency import round_latency
from dspark_course.measure.studies import LATENCY, MEASURED_RECIPES
from dspark_course.replication.our_results import MEASUREMENTS
from dspark_course.making.estimate import (
    LAYER_SECONDS, TINY_WORLD_TOKENS, Speed, dry_step, parameters, target_config, training_seconds)
from dspark_lite.training.loop import read_log
from dspark_lite.training.precision import REACHED
from dspark_course.making.recipes import BUILD, load_recipe, train

WORK = ROOT / "build" / "experiments"
SLOTS = 16  # prompts answered side by side
LAST = 50  # steps over which the final loss is averaged
TOKENS_PER_ROUND = 4  # that a round commits, more or less


def checkpoint(recipe):
    """Train a recipe's drafter unless it was; return the folder of its checkpoint."""
    folder = WORK / "checkpoints" / recipe
    if not (folder / "config.json").exists():
        train(recipe, out=folder)
    return folder


def training_summary(recipe):
    """Return the number of steps in all phases and the losses at the end, means over the last steps of the last log."""
    kept_apart = BUILD / recipe / "held_out.json"
    logs = [read_log(path) for path in sorted((BUILD / recipe).rglob("log.jsonl"))]
    last = logs[-1][-LAST:] if logs else []
    names = [name for name in last[-1] if name != "step"] if last else []
    final = {name: sum(entry[name] for entry in last) / len(last) for name in names}
    held_out = {"held_out_losses": json.loads(kept_apart.read_text())} if kept_apart.exists() else {}
    return {"steps": sum(map(len, logs)), "final_losses": final, **held_out}


def measure(recipe, prompts):
    """Measure one recipe's drafter, keep what goes into its file among the work, and return it."""
    folder, path = checkpoint(recipe), WORK / f"{recipe}.json"
    lab = setup(load_recipe(recipe).get("world", "tiny"), prompts=prompts)
    slots = SLOTS if load_recipe(recipe)["kind"] == "draft" else 1  # the engine holds no context of a second language model
    found = evaluate(lab, {recipe: folder}, lab.prompts, slots=slots, path=path)
    measured = {**found, "recipe": load_recipe(recipe), "training": training_summary(recipe)}
    write_json(path, measured)
    journal_path(path).unlink()
    return measured


def finished(recipe):
    """Return a recipe's measurement, None where it is still to be made; refuse one of an earlier recipe."""
    path = WORK / f"{recipe}.json"
    if not path.exists():
        return None
    measured = json.loads(path.read_text())
    if measured["recipe"] != load_recipe(recipe):
        made = [path, WORK / "checkpoints" / recipe, BUILD / recipe]
        raise DSparkLiteError(f"{path.name} was measured before recipes/{recipe}.json was changed; to begin again, delete "
                              + ", ".join(str(one.relative_to(ROOT)) for one in made))
    return measured


def experiment_seconds(recipe, prompts, speed, device):
    """Return the seconds to train what a recipe of the tiny world describes, its answers and cache left out, and to measure it
    on so many prompts a domain, one after another."""
    if recipe["kind"] == "language_model":
        with torch.device("meta"):
            model = Qwen3ForCausalLM(Qwen3Config(**recipe["config"]))
        samples = sum(sum(phase["examples"].values()) for phase in recipe["phases"])
        training, layers = 6 * parameters(model) * samples * TINY_WORLD_TOKENS / speed.training, 2 * recipe["config"]["num_hidden_layers"]
        tokens = TINY_WORLD_TOKENS
    else:
        config, tokens = target_config(recipe), recipe.get("mean_tokens", TINY_WORLD_TOKENS)
        training = training_seconds(recipe, config, dry_step(recipe, config, tokens), speed, device).updates
        layers = config["num_hidden_layers"] + recipe["config"]["num_hidden_layers"]
    rounds = 3 * prompts * tokens / TOKENS_PER_ROUND
    return training, rounds * layers * LAYER_SECONDS


def what_it_takes(recipes, prompts):
    """Return lines that say how long the recipes that are not measured yet take, here and on one T4."""
    device, t4 = torch.device("cuda" if torch.cuda.is_available() else "cpu"), DEVICES["T4"]
    speeds = {"here": Speed.measured(device, "bfloat16"),
              "one T4, predicted": Speed(REACHED * t4.operations, REACHED * t4.operations, t4.bandwidth, "in float16 on a T4")}
    left = [recipe for recipe in recipes if not (WORK / f"{recipe}.json").exists()]
    totals, lines = dict.fromkeys(speeds, 0.0), []
    for recipe in left:
        parts = {name: experiment_seconds(load_recipe(recipe), prompts, speed, device) for name, speed in speeds.items()}
        totals = {name: total + sum(parts[name]) for name, total in totals.items()}
        lines.append(f"{recipe:32} " + "; ".join(f"{name}: {duration(training)} to train, {duration(measuring)} to measure"
                                                 for name, (training, measuring) in parts.items()))
    return [*lines, f"{len(left)} of {len(recipes)} recipes to go: " + ", ".join(f"about {duration(total)} {name}" for name, total in totals.items())
            + "; answers and target cache come once on top"]


def main(arguments=None):
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", help="default: all, then the latency of a round")
    parser.add_argument("--estimate", action="store_true", help="only say what it takes")
    parser.add_argument("--prompts", type=int, default=200, help="held-out prompts a domain (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        print(*what_it_takes(options.recipes or MEASURED_RECIPES, options.prompts), sep="\n", flush=True)
        if options.estimate:
            return 0
        check_writable(MEASUREMENTS / f"{LATENCY}.json")
        for recipe in tqdm(options.recipes or MEASURED_RECIPES, desc="experiments", unit="drafter"):
            write_json(MEASUREMENTS / f"{recipe}.json", finished(recipe) or measure(recipe, options.prompts))
        if not options.recipes:
            write_json(MEASUREMENTS / f"{LATENCY}.json", round_latency(setup("tiny")))
    except DSparkLiteError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
