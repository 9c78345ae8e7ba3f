"""Predict each lesson's minutes on a T4: count the passes of its models, price them by the roofline of lesson 08.

Every lesson runs with its solutions on the released profile, against a Hub on loopback that serves small shapes under the
released names (as tests/released_lessons.py does), and scripts/pass_counts.py counts passes. Their seconds follow from the
T4's data sheet and the released shapes; training and everything else are added. Writes
assets/measurements/lessons_t4_predicted.json. `--only NN` runs one lesson and adds it to the file.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import nbformat
import notebooks
import torch
from notebooks import PREDICTED, ROOT, LessonError, lesson_sources, measured_times
from tqdm import tqdm

sys.path.append(str(ROOT / "tests"))

from hub_server import Hub  # noqa: E402
from released_hub import MASK, SMALLER, write_released  # noqa: E402
from released_lessons import released_environment  # noqa: E402

from dspark_course.making.estimate import TINY_WORLD_TOKENS, Speed, dry_step, training_seconds  # noqa: E402
from dspark_course.making.recipes import load_recipe  # noqa: E402
from dspark_course.measure import roofline  # noqa: E402
from dspark_course.measure.journal import commit  # noqa: E402
from dspark_course.measure.lab import NEW_TOKENS  # noqa: E402
from dspark_lite.common.files import write_json  # noqa: E402
from dspark_lite.common.origin import versions  # noqa: E402
from dspark_course.measure import shapes  # noqa: E402
from dspark_lite.models.checkpoints import EMBEDDED  # noqa: E402
from dspark_lite.training.precision import REACHED  # noqa: E402

DEVICE = "T4"
FLOAT32 = 8.1e12  # operations a second of a T4 in float32, in which lesson 07 trains (NVIDIA's data sheet)
CUT = 40  # tokens of an answer here, in place of the lab's limit: those of random weights hardly end by themselves
CELL_SECONDS = 3600  # a cell may take, on a machine that does other things, too
ASSUMES = (
    "left out: the download, and reading the files into the GPU's memory",
    "a pass takes its bytes over the data sheet's bandwidth, or its operations over the data sheet's rate where that is more, and "
    f"{roofline.LAUNCH:g} microseconds for each operation that the host starts; real loops are slower (lesson 08: a public one took over three "
    "times as long)",
    f"answers fill their limit (the lab's is {NEW_TOKENS['released']} tokens, here they are cut short): passes that write them are scaled to full "
    "answers; what else a lesson runs is counted as it ran",
    "accepted lengths are those of the small shapes that were run, not the released models'",
    f"training takes what dspark_course/making/estimate.py says of its updates, at {REACHED:g} of the data sheet's {FLOAT32 / 1e12:g} TFLOP/s",
    "all else takes at most the lesson's measured CPU seconds, which contain the tiny models' own passes",
)
PLANTED = """
import sys
sys.path.append({scripts!r})
import pass_counts
from dspark_course.making import recipes
from dspark_course.measure import lab
lab.NEW_TOKENS["released"] = {cut}
pass_counts.plant(passes_of_the_lesson := pass_counts.PassCounts({cut}, {full}))
del lab

def load_for_small_shapes(name, load=recipes.load_recipe):
    recipe = load(name)
    if name == "lesson-released":
        recipe["config"] = dict(recipe["config"], **{config!r})
    return recipe
recipes.load_recipe = load_for_small_shapes
"""


# What a lesson does --------------------------------------------------------------------------------------------------


def run_lesson(source: Path, hub: Hub, folder: Path) -> dict:
    """Execute a lesson on the released profile in small shapes; returns what scripts/pass_counts.py counted."""
    path, small = folder / "counts.json", {"target_layer_ids": SMALLER["target_layer_ids"], "mask_token_id": MASK}
    planted = PLANTED.format(scripts=str(ROOT / "scripts"), cut=CUT, full=NEW_TOKENS["released"], config=small)
    notebook = notebooks.generate(source, solutions=True)
    notebook.cells.insert(2, nbformat.v4.new_code_cell(planted))
    notebook.cells.append(nbformat.v4.new_code_cell(f"passes_of_the_lesson.write({str(path)!r})"))
    notebooks.execute(notebook, source.stem, ROOT / "notebooks", environment=released_environment(hub, folder))
    return json.loads(path.read_text())


def full_passes(counts: dict) -> dict[str, Counter]:
    """Passes {role: {tokens: passes}} of a lesson whose answers are full; passes that write answers grow as these do."""
    passes: dict[str, Counter] = {}
    parts = [(counts["once"], 1.0), *((one["passes"], one["full"] / one["have"] if one["have"] else 1.0) for one in counts["writings"])]
    for by_role, factor in parts:
        for role, by_tokens in by_role.items():
            for tokens, count in by_tokens.items():
                passes.setdefault(role, Counter())[int(tokens)] += count * factor
    return passes


# What it costs -------------------------------------------------------------------------------------------------------


@cache
def pass_work(role: str, tokens: int) -> roofline.Work:
    """What a pass of a model of the released profile reads, computes and launches; a draft's with entering what is committed.

    The small language model and Eagle3 make a pass for each token of a draft, a block drafter one for all of them.
    """
    if role == "target":
        step = roofline.verify_work("plain")
        return roofline.Work(step.bytes, step.operations * tokens, step.launches)
    model, draft = shapes.module(role), roofline.draft_work(role)
    passes, drafted = (model.gamma, model.gamma) if role in ("small_lm", "eagle3") else (1, model.config.block_size)
    entering = roofline.verify_work(role).launches - roofline.verify_work("plain").launches
    return roofline.Work(draft.bytes / passes, draft.operations / drafted * tokens, round((draft.launches + entering) / passes))


def model_seconds(passes: dict[str, Counter]) -> float:
    """Seconds of passes {role: {tokens: passes}} on the T4."""
    device = roofline.DEVICES[DEVICE]
    return sum(count * pass_work(role, tokens).milliseconds(device) for role, by_tokens in passes.items()
               for tokens, count in by_tokens.items()) / 1e3


@cache
def update_seconds(name: str) -> float:
    """Seconds of the updates of the released target's training by this recipe, on the T4."""
    recipe, config, device = load_recipe(name), shapes.config("target"), roofline.DEVICES[DEVICE]
    speed = Speed(REACHED * device.operations, REACHED * FLOAT32, device.bandwidth, DEVICE)
    step = dry_step(recipe, config, recipe.get("mean_tokens", TINY_WORLD_TOKENS))
    return training_seconds(recipe, config, step, speed, torch.device("cpu")).updates


def predict(counts: dict, cpu_seconds: float) -> dict:
    """Return a lesson's prediction: passes and tokens of each model, and the seconds of models, training and all else."""
    passes = full_passes(counts)
    seconds = {"models": model_seconds(passes), "training": sum(map(update_seconds, counts["trained"])), "all else": cpu_seconds}
    made = {role: {"passes": round(sum(by_tokens.values())), "tokens": round(sum(t * count for t, count in by_tokens.items()))}
            for role, by_tokens in sorted(passes.items())}
    return {"commit": commit(), "passes": made, "seconds": {name: round(spent, 1) for name, spent in seconds.items()}}


# The file ------------------------------------------------------------------------------------------------------------


def keep(lesson: str, predicted: dict) -> None:
    """Put a lesson's prediction into the file, beside those of the other lessons."""
    held = json.loads(PREDICTED.read_text()) if PREDICTED.exists() else {"lessons": {}}
    lessons = dict(sorted({**held["lessons"], lesson: predicted}.items()))
    seconds = {name: round(sum(one["seconds"].values()), 1) for name, one in lessons.items()}
    write_json(PREDICTED, {"device": f"{DEVICE}, predicted", "assumes": list(ASSUMES), "versions": versions(), "commit": commit(),
                           "seconds": seconds, "lessons": lessons})


def predict_lessons(sources: list[Path]) -> list[str]:
    """Run and predict the lessons, each kept as soon as it is done; returns a sentence for each that cannot be predicted."""
    from transformers import AutoTokenizer

    measured, failures = measured_times().get("cpu", {}).get("seconds", {}), []
    with tempfile.TemporaryDirectory() as made:
        folders = write_released(Path(made) / "released", AutoTokenizer.from_pretrained(EMBEDDED / "tiny-target"))
        with Hub({name: {"main": folder} for name, folder in folders.items()}) as hub:
            for source in tqdm(sources, unit="lesson"):
                if source.stem not in measured:
                    failures.append(f"{source.stem}: its CPU time is not measured (`make record`), so it is not predicted.")
                    continue
                try:
                    with tempfile.TemporaryDirectory(dir=made) as folder:
                        counts = run_lesson(source, hub, Path(folder))
                except LessonError as error:
                    failures.append(f"{error} (not predicted)")
                else:
                    keep(source.stem, predict(counts, measured[source.stem]))
    return failures


def main(arguments=None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="NN", nargs="+", help="these lessons, by their two digits")
    options = parser.parse_args(arguments)
    notebooks.CELL_SECONDS = CELL_SECONDS
    try:
        failures = predict_lessons([source for one in options.only or [None] for source in lesson_sources(one)])
    except LessonError as error:
        failures = [str(error)]
    for sentence in failures:
        print(sentence, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
