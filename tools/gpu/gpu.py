"""Measure on a GPU what the course says about one: `make gpu`. Needs nobody's presence; a stopped run goes on where it was.

Qwen3-4B shapes with random weights, so that nothing is downloaded; acceptance is forced to a pattern drawn from the paper's
measurements, and every file says so. Each part runs in a process of its own and writes a JSON file with device and
versions to assets/measurements/gpu/DEVICE; one that is there already is kept, and one that failed leaves a sentence in
PART.failed.json, is passed over, and is tried again by the next run. `--small` runs everything on small shapes, on a CPU
too, to build/gpu.
"""

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from functools import partial
from types import SimpleNamespace

import torch

from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.common.files import ROOT, read_object, write_json, write_text
from dspark_lite.common.origin import TIMED_LIBRARIES, device_name, folder_name, versions
from tools.errors import report_errors
from dspark_lite.course.measure.forced_rounds import paper_pattern
from dspark_lite.course.measure.journal import check_writable, commit
from dspark_lite.course.measure.random_weights import FORCED, measure_shapes, random_models
from dspark_lite.course.measure.step_time import profile
from dspark_lite.models.checkpoints import default_dtype, load_drafter, load_target
from dspark_lite.course.data.recipes import load_recipe
from tools.gpu.forced_engine import ENGINE_LOADS, measure_engine
from tools.gpu.training_speed import training_speed

MEASUREMENTS, WORK = ROOT / "assets" / "measurements" / "gpu", ROOT / "build" / "gpu"
HOURS = 2.0  # that a part may take
TINY_RECIPES = ("tiny-dspark", "tiny-dflash", "tiny-eagle3", "tiny-mtp")
# How much is measured, as JSON has it: shapes of random_weights.py and drafters of the rounds; of the cost table; of the engine; recipes
# with [rows, tokens] of an update; the tests' arguments.
FULL = SimpleNamespace(
    shapes="released",
    drafters=["dspark", "dflash", "eagle3", "small_lm"],
    sizes=[*range(1, 65), *range(72, 257, 8), *range(288, 1025, 32)],
    contexts=[256, 2048],
    repeats=9,
    loads=list(ENGINE_LOADS),
    prompt=256,
    steps=16,
    recipes={"qwen3-4b-dspark": [1, 950], **dict.fromkeys(TINY_RECIPES, [32, 100])},
    tests=["tests"],
)
SMALL = SimpleNamespace(
    shapes="tiny",
    drafters=["dspark", "eagle3"],
    sizes=[1, 2, 4, 8, 16],
    contexts=[16],
    repeats=2,
    loads=[1, 2, 4],
    prompt=16,
    steps=2,
    recipes={"tiny-dspark": [4, 40], "tiny-eagle3": [4, 40]},
    tests=["tests/test_sampling.py", "tests/test_slots.py"],
)


def device():
    """The GPU, or the CPU where there is none."""
    return (
        torch.device("cuda", torch.cuda.current_device())
        if torch.cuda.is_available()
        else torch.device("cpu")
    )


def header():
    """What each file says of where it was made."""
    place = device()
    found = torch.cuda.get_device_properties(place) if place.type == "cuda" else None
    return {
        "device": device_name(place),
        "capability": found and [found.major, found.minor],
        "memory_bytes": found and found.total_memory,
        "cuda": torch.version.cuda,
        "versions": versions(),
        "commit": commit(),
    }


def weights_folder(size):
    """Where the random weights lie, for all parts."""
    return WORK / "weights" / size.shapes


def models(size, dtype, names):
    """The target and drafters {name: drafter} of these shapes with random weights."""
    folder = weights_folder(size).relative_to(
        ROOT
    )  # a name of which results may tell; every part runs in ROOT
    random_models(folder, size.shapes, ["target", *names], device())
    target = load_target(str(folder / "target"), device=device(), dtype=getattr(torch, dtype))
    return target, {name: load_drafter(str(folder / name), target) for name in names}


def rounds(size, dtype):
    """Memory by phase with a T4's cap, and plain and drafted rounds by part against bandwidth, by the eager path.

    The fast path joins here: another entry of "paths", by the same function under its own switch.
    """
    measured = measure_shapes(
        size.shapes, size.drafters, dtype=getattr(torch, dtype), folder=weights_folder(size)
    )
    return {"paths": {"eager": measured}}


def costs(size, dtype):
    """The cost table of the target, eager and for one sequence, at each context."""
    target, _ = models(size, dtype, [])
    tables = []
    for context in size.contexts:
        table, spent = profile(target, size.sizes, context=context, repeats=size.repeats)
        tables.append(
            {
                "context": context,
                "sample_batch_tokens": table.batch_tokens.tolist(),
                "sample_steps_per_sec": table.steps_per_second.tolist(),
                "milliseconds": spent,
            }
        )
    return {"weights": f"random, {dtype}", "shapes": size.shapes, "tables": tables}


def serving(size, dtype):
    """Steps of the slot engine by load, plain and with DSpark."""
    target, drafters = models(size, dtype, ["dspark"])
    rows = measure_engine(
        target,
        {"plain": None, **drafters},
        paper_pattern("dspark", 999),
        loads=size.loads,
        prompt=size.prompt,
        steps=size.steps,
    )
    return {
        "weights": f"random, {dtype}",
        "shapes": size.shapes,
        "acceptance": FORCED,
        "prompt_tokens": size.prompt,
        "rows": rows,
    }


def training(size):
    """Updates a second of each recipe on random hidden states; a recipe that the memory does not hold has a reason."""
    rows = []
    for name, (count, tokens) in size.recipes.items():
        recipe = load_recipe(name)
        try:
            rows.append(
                training_speed(recipe, _training_target(size, recipe), rows=count, tokens=tokens)
            )
        except DSparkLiteError as error:
            rows.append({"recipe": name, "rows": count, "tokens": tokens, "reason": str(error)})
    return {"hidden_states": "random", "rows": rows}


def _training_target(size, recipe):
    """The target of a recipe: the embedded one, or that of random weights."""
    if "/" not in recipe["target"]:
        return load_target(recipe["target"], device=device())
    dtype = torch.bfloat16 if device().type == "cpu" else default_dtype(device())
    return models(size, str(dtype).removeprefix("torch."), [])[0]


def tests(size):
    """The test suite where torch sees the GPU, the lab of every test on it: how many passed, and which did not."""
    report = WORK / "tests.xml"
    report.parent.mkdir(parents=True, exist_ok=True)
    place = {"DSPARK_DEVICE": device().type, "DSPARK_PROFILE": "tiny"}
    called = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--junitxml={report}",
        *size.tests,
    ]
    subprocess.run(called, cwd=ROOT, env={**os.environ, **place}, stdout=sys.stderr, check=False)
    if not report.exists():
        raise RequestError("pytest did not run; install the package's extra dev (make test does)")
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    counts = {name: int(suite.get(name)) for name in ("tests", "failures", "errors", "skipped")}
    failed = [
        f"{case.get('classname')}.{case.get('name')}"
        for case in suite.iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    return {
        "asked": size.tests,
        "environment": place,
        **counts,
        "seconds": float(suite.get("time")),
        "failed": failed,
    }


PARTS = {
    **{
        f"{part.__name__}-{dtype}": partial(part, dtype=dtype)
        for part in (rounds, costs, serving)
        for dtype in ("float16", "bfloat16")
    },
    "training": training,
    "tests": tests,
}


def folder_of(small):
    """Where the files of this device go."""
    name = folder_name(device_name(device()))
    return WORK / "small" / name if small else MEASUREMENTS / name


def is_done(path, size):
    """Whether a part was measured at this size with these versions already."""
    if not path.exists():
        return False
    held, here = read_object(path), versions()
    return held.get("size") == vars(size) and all(
        held["versions"].get(name) == here[name] for name in TIMED_LIBRARIES
    )


def measure_part(name, size, path):
    """Measures a part in this process and writes its file; returns the exit code."""
    try:
        measured = PARTS[name](size)
    except (DSparkLiteError, torch.OutOfMemoryError) as error:
        write_json(
            path.with_suffix(".failed.json"),
            {**header(), "part": name, "reason": str(error).splitlines()[0]},
        )
        return 2
    write_json(path, {**header(), "part": name, "size": vars(size), **measured})
    path.with_suffix(".failed.json").unlink(missing_ok=True)
    return 0


def run_parts(names, small):
    """Measures what is not measured yet, each part in a process of its own; returns the names of those that failed."""
    folder, size, failed = folder_of(small), SMALL if small else FULL, []
    for number, name in enumerate(names, 1):
        path = folder / f"{name}.json"
        if is_done(path, size):
            print(f"[{number}/{len(names)}] {name}: kept, {path.relative_to(ROOT)}", flush=True)
            continue
        print(f"[{number}/{len(names)}] {name} ...", flush=True)
        started, reason = time.monotonic(), _run_alone(name, small, path)
        print(
            f"[{number}/{len(names)}] {name}: {reason or 'measured'} in {time.monotonic() - started:.0f} s",
            flush=True,
        )
        failed += [name] if reason else []
    return failed


def _run_alone(name, small, path):
    """Runs a part in a process of its own; the reason that it failed for, or None."""
    failed = path.with_suffix(".failed.json")
    failed.unlink(missing_ok=True)
    called = [
        sys.executable,
        "-m",
        "tools.gpu.gpu",
        "--part",
        name,
        *(["--small"] if small else []),
    ]
    try:
        code = subprocess.run(called, cwd=ROOT, timeout=3600 * HOURS).returncode
        reason = f"its process ended with code {code}"
    except subprocess.TimeoutExpired:
        code, reason = None, f"it took longer than {HOURS:g} hours"
    if code == 0:
        return None
    if not failed.exists():  # it was ended, or broke on something that is no sentence
        write_json(failed, {**header(), "part": name, "reason": reason})
    return f"failed ({read_object(failed)['reason']})"


def summary(folder):
    """What was measured, as lines of markdown."""
    lines = [f"# {folder.name}", ""]
    for path in sorted(folder.glob("*.json")):
        held = read_object(path)
        lines += [
            f"- {held['part']}: "
            + (f"failed, {held['reason']}" if "reason" in held else _says(held))
        ]
    return lines


def _says(held):
    """A part in one line."""
    if "paths" in held:
        rows = [row for measured in held["paths"].values() for row in measured["phases"]]
        most = max((row["peak_bytes"] or 0 for row in rows), default=0)
        milliseconds = ", ".join(
            f"{row['drafter']} {sum(row['milliseconds'].values()):.2f}"
            for row in rows
            if "drafter" in row
        )
        return f"ms a round: {milliseconds}" + (f"; at most {most / 1e9:.2f} GB" if most else "")
    if "tables" in held:
        return "; ".join(
            f"context {one['context']}: {1e3 / one['sample_steps_per_sec'][0]:.2f} ms at {one['sample_batch_tokens'][0]} token, "
            f"{1e3 / one['sample_steps_per_sec'][-1]:.2f} ms at {one['sample_batch_tokens'][-1]}"
            for one in held["tables"]
        )
    if "failures" in held:
        return f"{held['tests']} tests, {held['failures'] + held['errors']} failed, {held['skipped']} skipped, {held['seconds']:.0f} s"
    if "acceptance" in held:
        return ", ".join(
            f"{row['drafter']} at {row['concurrency']}"
            + (_load_says(row) if "length" in row else ": no room")
            for row in held["rows"]
        )
    return ", ".join(
        f"{row['recipe']} "
        + (
            f"{row['updates_per_second']:.2f} updates/s of {row['rows']} x {row['tokens']} tokens"
            if "seconds" in row
            else f"not: {row['reason']}"
        )
        for row in held["rows"]
    )


def _load_says(row):
    """A row of the engine; only where drafts are verified is anything forced."""
    return f" verifying {row['length']}: {row['tokens_per_second']:.0f} tokens/s" + (
        " FORCED" if row["length"] else ""
    )


@report_errors
def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--small",
        action="store_true",
        help="small shapes and few repeats, on a CPU too: does everything run?",
    )
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, metavar="PART", help=f"of {', '.join(PARTS)}"
    )
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if not (options.small or torch.cuda.is_available()):
        raise RequestError(
            "there is no GPU: torch.cuda.is_available() is false; try everything out with make gpu ARGS=--small"
        )
    folder = folder_of(options.small)
    if options.part:
        return measure_part(
            options.part, SMALL if options.small else FULL, folder / f"{options.part}.json"
        )
    check_writable(folder / "summary.md")
    failed = run_parts(options.only or list(PARTS), options.small)
    lines = summary(folder)
    write_text(folder / "summary.md", "\n".join(lines) + "\n")
    print(*lines, sep="\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
