"""Run the course: execute every lesson on the tiny profile, measure the drafters, say what came out
and where it is.

Writes build/notebooks/ (executed copies), build/figures/, build/lessons.json (seconds a lesson) and
build/bench.json. Exits 1 when a lesson or the measurement fails. Two lessons run at once, a core
each. `--record` also keeps the seconds in assets/measurements/lessons.json.
"""

import argparse
import base64
import math
import os
import platform
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version

import nbformat
from tqdm import tqdm

from dspark_lite.common.files import read_json, write_json, write_text
from tools.notebooks.build import (
    KERNEL_SETTINGS,
    MEASURED,
    MORE,
    ROOT,
    LessonError,
    code_cells,
    execute,
    recorded_seconds,
)

BUILD = ROOT / "build"
AT_ONCE = min(2, os.cpu_count() or 1)  # lessons, of one thread each
BENCH_PROMPTS = 2  # prompts a domain: enough for the closing table, some minutes; one where only some lessons are run


def save_figures(notebook, lesson):
    """Write the PNG outputs of an executed notebook to build/figures/NN_name_1.png and on."""
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    images = [
        output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})
    ]
    (BUILD / "figures").mkdir(parents=True, exist_ok=True)
    for stale in (BUILD / "figures").glob(f"{lesson}_*.png"):
        stale.unlink()
    for number, image in enumerate(images, start=1):
        (BUILD / "figures" / f"{lesson}_{number}.png").write_bytes(base64.b64decode(image))


def run_lesson(path, bar):
    """Execute one notebook, keep its copy and figures; return its seconds, start of the kernel
    included."""
    notebook = nbformat.read(path, as_version=4)
    bar.set_description(path.stem)
    start = time.perf_counter()
    try:
        execute(notebook, path.stem, path.parent, on_cell=bar.update)
    finally:
        write_text(BUILD / "notebooks" / path.name, nbformat.writes(notebook))
        save_figures(notebook, path.stem)
    return time.perf_counter() - start


def run_lessons(paths):
    """Execute the notebooks, the longest first, so that no core waits for a long one at the end;
    return (seconds by lesson, one sentence for each lesson that failed)."""
    seconds, failures = {}, []
    recorded = recorded_seconds()
    total = sum(len(code_cells(nbformat.read(path, as_version=4))) for path in paths)
    with tqdm(total=total, unit="cell") as bar, ThreadPoolExecutor(AT_ONCE) as pool:
        longest_first = sorted(paths, key=lambda path: -recorded.get(path.stem, 0))
        runs = {path.stem: pool.submit(run_lesson, path, bar) for path in longest_first}
        for lesson, run in runs.items():
            try:
                seconds[lesson] = round(run.result(), 1)
            except LessonError as error:
                failures.append(str(error))
    return dict(sorted(seconds.items())), failures


def measurement(seconds):
    """Return the record of a run: seconds by lesson and what they were measured on."""
    return {
        "device": f"CPU, {os.cpu_count()} cores, {platform.machine()}, one thread, {AT_ONCE} at once",
        "versions": {
            "python": platform.python_version(),
            **{n: version(n) for n in ("torch", "transformers")},
        },
        "seconds": seconds,
    }


def bench(prompts):
    """Measure every drafter with `python -m dspark_lite bench`; return its rows."""
    path = BUILD / "bench.json"
    asked = f"-m dspark_lite bench --prompts {prompts} --json".split()
    environment = {**os.environ, **KERNEL_SETTINGS}
    quiet = {"cwd": ROOT, "env": environment, "stdout": subprocess.DEVNULL}
    code = subprocess.run([sys.executable, *asked, str(path)], **quiet).returncode
    if code:
        raise LessonError(f"`python -m dspark_lite bench` ended with exit code {code}.")
    return read_json(path)["rows"]


def closing_table(rows):
    """Return the bench rows as text: a line a drafter, accepted length and speed in a column a
    domain and one for their mean."""
    domains, drafters = (
        list(dict.fromkeys(row[of] for row in rows)) for of in ("domain", "drafter")
    )
    width, half = max(len("drafter"), *map(len, drafters)) + 2, 8 * (len(domains) + 1)
    heads = "".join(f"{head:>8}" for head in (*domains, "mean"))
    lines = [
        f"{'':{width}}{'tokens per round':>{half}}   {'speed, plain = 1':>{half}}",
        f"{'drafter':{width}}{heads}   {heads}",
    ]

    def columns(drafter, field):
        found = {row["domain"]: row[field] for row in rows if row["drafter"] == drafter}
        values = [found.get(domain, math.nan) for domain in domains]
        values.append(sum(values) / len(values))
        return "".join(f"{'-':>8}" if math.isnan(value) else f"{value:8.2f}" for value in values)

    for drafter in drafters:
        halves = (columns(drafter, field) for field in ("accepted_length", "speedup"))
        lines.append(f"{drafter:{width}}{'   '.join(halves)}")
    return "\n".join(lines)


CLOSING = """
Accepted length and speed against plain decoding, batch 1, decode only, prompts a domain: {prompts}

{table}

{lessons} lessons ran in {minutes:.1f} minutes.
  build/notebooks      the lessons as they ran here
  build/figures        their figures
  build/bench.json     the table above; build/lessons.json: seconds of each lesson
Open what ran here:    .venv/bin/jupyter lab build/notebooks
Open the lessons:      make lab
"""


def main(arguments=None):
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    says = "keep the seconds in assets/measurements/lessons.json"
    parser.add_argument("--record", action="store_true", help=says)
    says = "some lessons, by their two digits, or names beside them"
    parser.add_argument("--only", nargs="+", metavar="NN", help=says)
    options = parser.parse_args(arguments)
    if options.only and options.record:
        parser.error("--record measures all lessons; leave out --only.")
    lessons = ROOT / "notebooks"
    found = sorted(lessons.glob("[0-9][0-9]_*.ipynb")) + sorted((lessons / MORE).glob("*.ipynb"))
    only = set(options.only or [])
    paths = [path for path in found if not only or {path.name[:2], path.stem} & only]
    if not paths:
        print("No such lesson in notebooks/; `make notebooks` writes them.", file=sys.stderr)
        return 1
    started = time.perf_counter()
    seconds, failures = run_lessons(paths)
    spent = time.perf_counter() - started
    write_json(BUILD / "lessons.json", measurement(seconds))
    if not failures:
        try:
            prompts = 1 if options.only else BENCH_PROMPTS
            counts = {"prompts": prompts, "lessons": len(seconds), "minutes": spent / 60}
            print(CLOSING.format(table=closing_table(bench(prompts)), **counts))
        except LessonError as error:
            failures.append(str(error))
    for sentence in failures:
        print(sentence, file=sys.stderr)
    if options.record and not failures:
        kept = read_json(MEASURED) if MEASURED.exists() else {}
        write_json(MEASURED, {**kept, "cpu": measurement(seconds)})
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
