"""Measure on a GPU what the course says about one: `make gpu` writes
assets/measurements/gpu/DEVICE.json.

Three parts. Decoding: speed of the tiny models, whose acceptance is real. A lesson: memory and time
of the models of lesson 08 at released size. Training: seconds of an update. Nothing is downloaded:
at released size weights are random and acceptance is forced to a pattern drawn from the paper, and
the file says so. `--small` tries all of it out on narrow models, on a CPU too, and writes
build/gpu/small.json.
"""

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch

from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.common.files import ROOT, write_json
from dspark_lite.common.origin import device_name, folder_name
from dspark_lite.common.timing import clock
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.measure.journal import check_writable, machine_header
from dspark_lite.course.measure.lab import setup
from dspark_lite.course.measure.random_weights import measure_shapes
from dspark_lite.course.measure.speed import bench
from dspark_lite.course.measure.step_time import profile
from dspark_lite.models.checkpoints import load_target
from dspark_lite.training.train import train_draft
from tools.errors import report_errors

MEASUREMENTS, WORK = ROOT / "assets" / "measurements" / "gpu", ROOT / "build" / "gpu"
UPDATES = 5  # updates that are timed, after one that warms up
TINY_RECIPES = ("tiny-dspark", "tiny-dflash", "tiny-eagle3", "tiny-mtp")
FULL = SimpleNamespace(
    drafters=["dspark", "dflash", "eagle3", "mtp", "small_lm", "prompt_lookup"],
    prompts=20,  # a domain
    new_tokens=160,  # of an answer, at most
    paths=[False, True],  # eager, and the fast path
    shapes="released",
    formats=["float16", "bfloat16"],
    released=["dspark", "dflash", "eagle3", "small_lm"],
    tokens=[1, 8, 64, 256, 1024],  # of a pass of the target
    recipes={"qwen3-4b-dspark": [1, 950], **dict.fromkeys(TINY_RECIPES, [32, 100])},
)
SMALL = SimpleNamespace(
    drafters=["dspark"],
    prompts=1,
    new_tokens=8,
    paths=[False],
    shapes="tiny",
    formats=["bfloat16"],
    released=["dspark"],
    tokens=[1, 8],
    recipes={"tiny-dspark": [4, 40], "tiny-eagle3": [4, 40]},
)


def decoding(size, device: torch.device) -> dict:
    """Return tokens per second and speedup of every tiny drafter, by path of the decoder."""
    found = {}
    for fast in size.paths:
        lab = setup("tiny", prompts=size.prompts, device=device.type, fast=fast)
        lab.max_new_tokens = size.new_tokens
        found["fast" if fast else "eager"] = bench(lab, size.drafters, prompts=size.prompts)
    return found


def lesson(size, device: torch.device) -> dict:
    """Return what lesson 08's models take, by number format, with the memory capped at a T4's.

    "phases": bytes and seconds of loading, reading a prompt and playing rounds. "passes":
    milliseconds of the target's pass by its tokens, after 256 tokens of context.
    """
    found = {}
    for name in size.formats:
        dtype, folder = getattr(torch, name), WORK / "weights" / size.shapes
        measured = measure_shapes(size.shapes, size.released, dtype=dtype, folder=folder)
        target = load_target(str(folder / "target"), device=device, dtype=dtype)
        _, spent = profile(target, size.tokens, repeats=9)
        found[name] = {**measured, "passes": spent}
    return found


class RandomStates:
    """The hidden states of a target, by chance, where a training expects a cache of them.

    Notes the time whenever a batch is asked for, and stops the training after UPDATES + 1 updates.
    """

    def __init__(self, recipe, target, rows: int, tokens: int):
        layers, width = len(recipe.config.target_layer_ids), target.config.hidden_size
        ids = torch.randint(target.vocab_size, (rows, tokens))
        self.rows = [(row, 1) for row in ids.tolist()]  # (ids, prompt length)
        states = (torch.randn(rows, tokens, n * width) for n in (layers, 1))
        features, last_hidden = (found.to(target.device) for found in states)
        self.tensors = ids, torch.ones_like(ids, dtype=torch.bool), features, last_hidden
        self.device, self.moments = target.device, []

    def batch(self, indices: list[int], device):
        """Return ids and supervised [B, n], features [B, n, taps * H], last hidden states [B, n,
        H]."""
        self.moments.append(clock(self.device))
        if len(self.moments) > UPDATES + 1:
            raise StopTraining
        return self.tensors


class StopTraining(Exception):
    """All updates have been timed."""


def training(size, device: torch.device) -> list[dict]:
    """Return a row for each recipe: seconds of its updates and bytes at the peak, or the reason why
    there are none."""
    return [update_row(size, device, name, *shape) for name, shape in size.recipes.items()]


def update_row(size, device: torch.device, name: str, rows: int, tokens: int) -> dict:
    """Return the row of a recipe whose updates have `rows` rows of `tokens` tokens."""
    passes = {"batch": rows, "epochs": UPDATES + 2, "patience": None, "data.held_out": 0}
    recipe, row = load_recipe(name, passes), {"recipe": name, "rows": rows, "tokens": tokens}
    where = recipe.target
    if "/" in where:  # on the Hub: `lesson` has written random weights of its shapes
        where = str(WORK / "weights" / size.shapes / "target")
    try:
        target = load_target(where, device=device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        states = RandomStates(recipe, target, rows, tokens)
        with suppress(StopTraining):
            train_draft(recipe, target, states, WORK / "training" / name)
    except (DSparkLiteError, torch.OutOfMemoryError) as error:
        return {**row, "reason": str(error).splitlines()[0]}
    seconds = np.diff(states.moments)[1:]
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    return {
        **row,
        "seconds": seconds.tolist(),
        "updates_per_second": float(1 / np.median(seconds)),
        "peak_bytes": peak,
    }


PARTS = (decoding, lesson, training)


def measure(size, device: torch.device, path: Path) -> list[str]:
    """Measure every part and write the file after each; return a sentence for each part that
    failed."""
    found, failed = machine_header(device), []
    found |= {"size": vars(size), "released_size": "random weights; acceptance is forced"}
    for part in PARTS:
        print(f"{part.__name__} ...", flush=True)
        try:
            found[part.__name__] = part(size, device)
        except (DSparkLiteError, torch.OutOfMemoryError) as error:
            found[part.__name__] = {"reason": str(error).splitlines()[0]}
            failed.append(f"{part.__name__}: {found[part.__name__]['reason']}")
        if device.type == "cuda":
            torch.cuda.empty_cache()
        write_json(path, found)
    return failed


@report_errors
def main(arguments) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    small = "narrow models and few repeats, on a CPU too: does everything run?"
    parser.add_argument("--small", action="store_true", help=small)
    options = parser.parse_args(arguments)
    if not (options.small or torch.cuda.is_available()):
        raise RequestError(
            "there is no GPU: torch.cuda.is_available() is false; try it out with make gpu ARGS=--small"
        )
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    path = MEASUREMENTS / f"{folder_name(device_name(device))}.json"
    path = WORK / "small.json" if options.small else path
    check_writable(path)
    failed = measure(SMALL if options.small else FULL, device, path)
    print(*failed, f"written to {path}", sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
