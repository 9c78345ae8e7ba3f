"""Marks for what readers hand in: `python -m tools.kit.grade FILE_OR_FOLDER... --csv marks.csv`.

What is handed in is a lesson's notebook, as its reader saved it. The lesson is not run again. Of
the reader's cells the imports, functions and classes are executed, and the cells of the exercises;
then each of the lesson's checkers is asked about the answer, and after it the hidden cases
(tools/kit/hidden, or a folder of your own): random ones, drawn anew with each seed. One point an
exercise. That is why neither nbgrader nor otter-grader does it: both run a notebook from top to
bottom, a lesson's minutes for each reader, and both keep their tests in assert cells, where the
checkers here are functions with sentences of their own.

Each reader's code runs in a process of its own, which is ended where a step of it takes too long;
what comes after is still marked. A process is no sandbox: run the grader where you would run the
readers' code yourself, in a container.
"""

import argparse
import csv
import io
import json
import multiprocessing
import os
import re
import secrets
import sys
from dataclasses import dataclass
from pathlib import Path

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT, write_text
from tools.errors import report_errors
from .grading import serve
from .lessons import code_exercises, lesson_paths, read_notebook, tagged

HIDDEN = ROOT / "tools" / "kit" / "hidden"
# Seconds that a process may take to import everything, on a busy machine.
STARTING = 600.0
COLUMNS = ["student", "lesson", "exercise", "checker", "points", "of", "said"]
QUIET = {
    "DSPARK_PROFILE": "tiny",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "agg",
}


@dataclass(frozen=True)
class Rules:
    """How submissions are marked: seconds for each step of a reader's code, the seed of the hidden
    cases, and where those stand."""

    seconds: float
    seed: int
    hidden: tuple[Path, ...]


def submissions(paths: list[Path]) -> list[tuple[str, Path]]:
    """Return (student, notebook) of what was handed in. In a folder the student is the name of the
    inner folder, or what the file's name has before the lesson's. Raises RequestError if there is
    nothing."""
    found = []
    for path in paths:
        for file in sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]:
            if not file.is_file():
                raise RequestError(f"there is no {file}")
            if ".ipynb_checkpoints" in file.parts:
                continue
            inner = file.parent.relative_to(path).parts if path.is_dir() else ()
            own = re.split(r"[\W_]*\d\d_[a-z]", file.stem)[0]
            found.append((inner[0] if inner else own or file.stem, file))
    if not found:
        raise RequestError(f"there is no notebook in {', '.join(map(str, paths))}")
    return found


def lesson_of(file: Path, notebook) -> Path:
    """Return the lesson of a submission, by its file's name or by the checkers that it imports.
    Raises RequestError for none."""
    lessons = {path.stem: path for path in lesson_paths()}
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    imported = re.findall(r"exercises import lesson_(\d\d)", code)
    for stem, path in lessons.items():
        if stem in file.stem or imported and stem.startswith(imported[0]):
            return path
    raise RequestError("this is none of the lessons: neither its name nor its imports say which")


def ask(lesson: Path, cells: list[tuple[str, bool]], rules: Rules) -> dict[str, tuple[bool, str]]:
    """Return what the checkers and the hidden cases say, by checker, of a submission's code cells
    (text, and whether it is tagged as an exercise's). A step that takes too long is skipped by a
    second process, which asks what the first one did not get to."""
    verdicts, skipped, spawn = {}, [], multiprocessing.get_context("spawn")
    while True:
        ours, theirs = spawn.Pipe()
        task = {"lesson": str(lesson), "cells": cells, "skipped": skipped, "marked": list(verdicts)}
        task |= {"seed": rules.seed, "hidden": list(map(str, rules.hidden))}
        arguments = (theirs, json.dumps(task))
        process = spawn.Process(target=serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        step = listen(ours, verdicts, rules.seconds)
        process.kill()
        process.join()
        if step is None:
            return verdicts
        skipped.append(step)
        if step.startswith("check_"):
            reason = f"it took longer than {rules.seconds:g} seconds, or ended Python"
            verdicts[step] = False, reason


def listen(pipe, verdicts: dict, seconds: float) -> str | None:
    """Note the verdicts that a process sends; return the step at which it took too long or died,
    None if it finished."""
    step, patience = "starting", STARTING
    while True:
        try:
            told = json.loads(pipe.recv_bytes()) if pipe.poll(patience) else None
        except EOFError:
            told = None
        if told is None and step == "starting":
            raise RequestError("the grader's own process did not start; see above")
        if told is None or told[0] == "finished":
            return step if told is None else None
        if told[0] == "begun":
            step, patience = told[1], seconds
        else:
            verdicts[told[1]] = bool(told[2]), str(told[3])


def marks(student: str, file: Path, rules: Rules) -> list[dict]:
    """Return the rows of one submission, one for each exercise that has a checker; a single row if
    it cannot be read."""
    try:
        notebook = read_notebook(file)
        lesson = lesson_of(file, notebook)
    except Exception as error:  # whatever was handed in, the others are marked
        said = f"the file cannot be read: {type(error).__name__}"
        said = str(error) if isinstance(error, RequestError) else said
        return [dict(zip(COLUMNS, [student, file.name, "", "", 0, "", said]))]
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    verdicts = ask(lesson, [(cell.source, tagged(cell, "exercise")) for cell in code], rules)
    rows = []
    for exercise in code_exercises(read_notebook(lesson)):
        right, said = verdicts.get(exercise.checker, (False, "it was never reached"))
        place = [student, lesson.stem, exercise.heading, exercise.checker]
        rows.append(dict(zip(COLUMNS, [*place, int(right), 1, said])))
    return rows


def table(rows: list[dict]) -> str:
    """Return rows as CSV."""
    written = io.StringIO()
    writer = csv.DictWriter(written, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return written.getvalue()


@report_errors
def main(arguments: list[str] | None) -> None:
    says = "Mark the exercises of lessons that were handed in."
    parser = argparse.ArgumentParser(prog="grade", description=says)
    add = parser.add_argument
    says = "a notebook, or a folder of them"
    add("paths", nargs="+", type=Path, metavar="PATH", help=says)
    says = "also write the marks here (default: only print them)"
    add("--csv", type=Path, metavar="FILE", help=says)
    says = "for each step of a reader's code (default: %(default)g)"
    add("--seconds", type=float, default=60.0, help=says)
    says, seed = "of the hidden cases (default: a new one each time)", secrets.randbelow(2**31)
    add("--seed", type=int, default=seed, help=says)
    says, folders = "more hidden cases, lesson_NN.py", {"action": "append", "default": [HIDDEN]}
    add("--hidden", type=Path, metavar="FOLDER", help=says, **folders)
    options = parser.parse_args(arguments)
    os.environ.update(QUIET)
    rules, rows = Rules(options.seconds, options.seed, tuple(options.hidden)), []
    for student, file in submissions(options.paths):
        rows += (found := marks(student, file, rules))
        points = sum(row["points"] for row in found)
        print(f"{student}: {points} of {len(found)}, {found[0]['lesson']}")
        for row in found:
            what = row["exercise"] or row["lesson"]
            print(f"  {row['points']}  {what}: {row['said']}", flush=True)
    if options.csv:
        write_text(options.csv, table(rows))
    print(f"Hidden cases of seed {rules.seed}; --seed {rules.seed} marks by the same ones again.")


if __name__ == "__main__":
    sys.exit(main())
