"""Marks for what readers hand in: `python -m tools.kit.grade FILE_OR_FOLDER... --out marks`.

What is handed in is a lesson's notebook, as its reader saved it. What its notebook calls "Correct."
is a point: the exercises are run again, in the notebook's order, with the statements that they use
and with the course's function instead of a wrong one, as in the lesson. The rest of the lesson
is not run. After a checker, the hidden cases are asked (tools/kit/hidden, or a folder of your own):
random ones, drawn anew with each seed. That is why neither nbgrader nor otter-grader does it: both
run a notebook from top to bottom, a lesson's minutes for each reader, and both keep their tests in
assert cells, where the checkers here are functions with sentences of their own.

Each reader's code runs in a process of its own, which is ended where a step of it takes too long;
what comes after is still marked. A process is no sandbox: run the grader where you would run the
readers' code yourself, in a container.

`--out` gets students.csv for the learning platform, exercises.csv, answers.md with what was written
in words, and a page of feedback for each student. Write the points of the answers in words into
exercises.csv, and `--out` without a notebook sums up again.
"""

import argparse
import json
import multiprocessing
import os
import re
import secrets
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import nbformat

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT, write_text
from tools.errors import report_errors

from . import marks
from .lessons import NAMED_CHECKER, lesson_paths, read_notebook

HIDDEN = ROOT / "tools" / "kit" / "hidden"
# Seconds that a process may take to import everything, on a busy machine.
STARTING = 600.0
QUIET = {
    "DSPARK_PROFILE": "tiny",
    "HF_HUB_OFFLINE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "MPLBACKEND": "agg",
}
# With a fork server everything is imported once, and each reader's process still begins clean.
METHODS = multiprocessing.get_all_start_methods()
PROCESSES = multiprocessing.get_context("forkserver" if "forkserver" in METHODS else "spawn")


@dataclass(frozen=True)
class Rules:
    """How submissions are marked: seconds for each step of a reader's code, the seed of the hidden
    cases, and where those stand."""

    seconds: float
    seed: int
    hidden: tuple[Path, ...]


@dataclass
class Submission:
    """A notebook that was handed in. `notebook` is None if `wrong` says why it cannot be marked;
    `lesson` is None if nothing says which it is."""

    student: str
    file: Path
    notebook: nbformat.NotebookNode | None = None
    lesson: Path | None = None
    wrong: str = ""


@dataclass
class Findings:
    """What a submission's processes have said: (right, line) by checker and call, and what was
    noticed, as (step, sentence)."""

    verdicts: dict[str, dict[str, tuple[bool, str]]] = field(default_factory=dict)
    noticed: list[tuple[str, str]] = field(default_factory=list)

    def best(self, checker: str) -> tuple[bool, str]:
        """Return the first call that was right, else the last."""
        calls = list(self.verdicts.get(checker, {}).values())
        right = [call for call in calls if call[0]]
        return (right or calls[-1:] or [(False, "it was never reached")])[0]

    def known(self) -> dict[str, bool]:
        """Return the calls that are answered."""
        calls = [call for calls in self.verdicts.values() for call in calls.items()]
        return {call: right for call, (right, _) in calls}


# What was handed in.


def submissions(paths: list[Path]) -> list[Submission]:
    """Return what was handed in. In a folder the student is the name of the inner folder, or what
    the file's name has before the lesson's. Raise RequestError if there is nothing."""
    found = []
    for path in paths:
        for file in sorted(path.rglob("*.ipynb")) if path.is_dir() else [path]:
            if not file.is_file():
                raise RequestError(f"there is no {file}")
            if ".ipynb_checkpoints" in file.parts:
                continue
            inner = file.parent.relative_to(path).parts if path.is_dir() else ()
            own = re.split(r"[\W_]*\d\d_[a-z]", file.stem)[0]
            found.append(Submission(inner[0] if inner else own or file.stem, file))
    if not found:
        raise RequestError(f"there is no notebook in {', '.join(map(str, paths))}")
    return found


def read(submission: Submission, asked: Path | None) -> None:
    """Read a submission's notebook, and find its lesson by the checkers that it imports or by the
    file's name. `asked` is the lesson that was to be handed in, None for any."""
    named = [path for path in lesson_paths() if path.stem in submission.file.stem]
    submission.lesson = asked or next(iter(named), None)
    try:
        submission.notebook = parsed(submission.file)
    except RequestError as error:
        submission.wrong = str(error)
        return
    code = [cell.source for cell in submission.notebook.cells if cell.cell_type == "code"]
    numbers = re.findall(r"exercises import lesson_(\d\d)", "\n".join(code))
    imported = [path for path in lesson_paths() if path.name[:2] in numbers[:1]]
    submission.lesson = asked or next(iter(imported + named), None)
    if submission.lesson is None:
        submission.wrong = "it is none of the lessons: neither its name nor its imports say which"
    elif imported and imported[0] != submission.lesson:
        submission.wrong = f"it is the notebook of another lesson, {imported[0].stem}"


def parsed(file: Path):
    """Return a file's notebook. Raise RequestError with what is wrong with the file."""
    try:
        text = file.read_text(encoding="utf-8")
        content = json.loads(text)
    except (OSError, UnicodeDecodeError):
        raise RequestError("the file cannot be read as text") from None
    except json.JSONDecodeError as error:
        if not text.strip():
            raise RequestError("the file is empty") from None
        cut = text.lstrip().startswith("{") and not text.rstrip().endswith("}")
        said = "the file is cut short" if cut else "the file is no notebook, since it is no JSON"
        raise RequestError(f"{said}: line {error.lineno}, {error.msg}") from None
    try:
        notebook = nbformat.convert(nbformat.from_dict(content), 4)
        return nbformat.from_dict({**notebook, "cells": [normal(cell) for cell in notebook.cells]})
    except Exception as error:  # whatever was handed in, the others are marked
        raise RequestError(f"the file is JSON but no notebook: {type(error).__name__}") from None


def normal(cell):
    """Return a cell whose source is one text."""
    return {**cell, "source": "".join(cell["source"]), "metadata": cell.get("metadata", {})}


# One submission.


def ask(lesson: Path, cells: list, rules: Rules) -> Findings:
    """Return what the checkers and the hidden cases say of a submission's code cells. A step that
    takes too long, or that replaces what it stands on, is left out by a second process, which goes
    on from what the first one has said."""
    findings, skipped = Findings(), []
    from .grading import serve  # imports torch, which totals do not need

    while True:
        ours, theirs = PROCESSES.Pipe()
        sent = [{"source": cell.source, "metadata": dict(cell.metadata)} for cell in cells]
        task = {"lesson": str(lesson), "cells": sent, "skipped": skipped, "seed": rules.seed}
        task |= {"known": findings.known(), "hidden": list(map(str, rules.hidden))}
        arguments = (theirs, json.dumps(task))
        process = PROCESSES.Process(target=serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        step = listen(ours, findings, rules.seconds)
        process.kill()
        process.join()
        if step is None:
            return findings
        skipped.append(step)


def listen(pipe, findings: Findings, seconds: float) -> str | None:
    """Note what a process sends; return the step to leave out in the next one, at which it took too
    long, died, or replaced something; None if it finished."""
    step, patience = "starting", STARTING
    while True:
        try:
            message = json.loads(pipe.recv_bytes()) if pipe.poll(patience) else None
        except (EOFError, ConnectionError):
            message = None
        if message is None and step == "starting":
            raise RequestError("the grader's own process did not start; see above")
        if message is None:
            said = f"took longer than {seconds:g} seconds, or ended Python"
            if step.startswith("check_"):
                findings.verdicts.setdefault(step.split()[0], {})[step] = False, f"it {said}"
            else:
                findings.noticed.append((step, f"{said}; the statement was left out"))
            return step
        kind, *rest = message
        if kind in ("finished", "again"):
            return rest[0] if rest else None
        if kind == "begun":
            step, patience = rest[0], seconds
        elif kind == "noticed":
            findings.noticed += [tuple(rest)] if tuple(rest) not in findings.noticed else []
        else:
            checker, call, right, said = rest
            findings.verdicts.setdefault(checker, {})[call] = bool(right), str(said)


def rows_of(submission: Submission, rules: Rules) -> list[dict]:
    """Return the rows of one submission, one for each exercise; of a file that cannot be marked
    they say why."""
    student, lesson = submission.student, submission.lesson
    if lesson is None:
        row = [student, submission.file.name, "", "", 0, 0, "", submission.wrong, ""]
        return [dict(zip(marks.COLUMNS, row))]
    asked = marks.exercises(read_notebook(lesson))
    if submission.wrong:
        rows = [
            [heading, name, 0 if name else "", most, "", submission.wrong, ""]
            for heading, name, most in asked
        ]
    else:
        code = [cell for cell in submission.notebook.cells if cell.cell_type == "code"]
        findings, printed = ask(lesson, code, rules), marks.notebook_said(code)
        rows = [
            row_of(findings, printed, *exercise, noticed(findings, code, exercise[1]))
            for exercise in asked
        ]
    return [dict(zip(marks.COLUMNS, [student, lesson.stem, *row])) for row in rows]


def row_of(findings: Findings, printed: dict, heading: str, checker: str, most: int, saw: str):
    """Return the row of an exercise, without its first two columns."""
    if not checker:
        return [heading, "", "", most, "", "", ""]
    right, said = findings.best(checker)
    return [heading, checker, int(right), most, printed.get(checker, ""), said, saw]


def noticed(findings: Findings, code: list, checker: str) -> str:
    """Return what was noticed in an exercise: while its checker was asked, in its cell, or above
    it since the exercise before."""
    owner, waiting = {}, []
    for number, cell in enumerate(code, 1):
        waiting.append(f"cell {number}")
        checkers = NAMED_CHECKER.findall(cell.source)
        if checkers:
            owner |= dict.fromkeys(waiting, checkers[0])
            waiting = []
    found = [
        sentence if step.startswith("check_") else f"{step} {sentence}"
        for step, sentence in findings.noticed
        if checker in (step.split()[0], owner.get(step.partition(",")[0]))
    ]
    return "; ".join(dict.fromkeys(found))


# All of them.


def lesson_named(number: str | None) -> Path | None:
    """Return the lesson of two digits, None for None. Raise RequestError if there is none."""
    found = [path for path in lesson_paths() if number and path.name[:2] == number]
    if number and not found:
        raise RequestError(f"there is no lesson {number}; a lesson's number has two digits")
    return found[0] if found else None


def best_of(several: list[list[dict]]) -> list[dict]:
    """Return the rows of the better submission, where a student handed a lesson in twice."""
    return max(several, key=lambda rows: sum(marks.number(row["points"]) for row in rows))


def mark_all(found: list[Submission], asked: Path | None, rules: Rules) -> list[dict]:
    """Return the rows of all submissions, and print them as they come."""
    for submission in found:
        read(submission, asked)
    usual = Counter(submission.lesson for submission in found if submission.lesson).most_common(1)
    numbers = {submission.lesson.name[:2] for submission in found if submission.lesson}
    checkers = [f"dspark_lite.course.exercises.lesson_{number}" for number in sorted(numbers)]
    if PROCESSES.get_start_method() == "forkserver":
        PROCESSES.set_forkserver_preload(["tools.kit.grading", *checkers])
    rows = {}
    for submission in found:
        submission.lesson = submission.lesson or (usual[0][0] if usual else None)
        own = rows_of(submission, rules)
        rows.setdefault((submission.student, submission.lesson), []).append(own)
        checked = [row for row in own if row["checker"]]
        points = sum(row["points"] for row in checked)
        print(f"{submission.student}: {points} of {len(checked)}, {own[0]['lesson']}")
        for row in checked or own:
            words = " ".join(filter(None, [row["said"], marks.noted(row)]))
            print(f"  {row['points']}  {row['exercise'] or row['lesson']}: {words}", flush=True)
    return [row for several in rows.values() for row in best_of(several)]


def answers(found: list[Submission]) -> str:
    """Return a page with what was written in words, by exercise."""
    pages = {}
    for submission in found:
        if submission.wrong or submission.lesson is None:
            continue
        texts = marks.answers_in_words(submission.notebook, read_notebook(submission.lesson))
        for heading, text in texts.items():
            place = f"# {submission.lesson.stem}: {heading}"
            pages.setdefault(place, []).append(f"## {submission.student}\n\n{text}")
    return (
        "\n\n".join("\n\n".join([place, *texts]) for place, texts in sorted(pages.items())) + "\n"
    )


@report_errors
def main(arguments: list[str] | None) -> None:
    says = "Mark the exercises of lessons that were handed in."
    parser = argparse.ArgumentParser(prog="grade", description=says)
    add = parser.add_argument
    says = "a notebook, or a folder of them; none: sum up the exercises.csv in --out again"
    add("paths", nargs="*", type=Path, metavar="PATH", help=says)
    says = "write tables, answers and feedback into this folder (default: only print the marks)"
    add("--out", type=Path, metavar="FOLDER", help=says)
    says = "your platform's list of students, a CSV; students.csv then is that list with totals"
    add("--roster", type=Path, metavar="FILE", help=says)
    says = "the lesson that was to be handed in, its two digits (default: each notebook's own)"
    add("--lesson", metavar="NN", help=says)
    says = "for each step of a reader's code (default: %(default)g)"
    add("--seconds", type=float, default=60.0, help=says)
    says, seed = "of the hidden cases (default: a new one each time)", secrets.randbelow(2**31)
    add("--seed", type=int, default=seed, help=says)
    says, folders = "more hidden cases, lesson_NN.py", {"action": "append", "default": [HIDDEN]}
    add("--hidden", type=Path, metavar="FOLDER", help=says, **folders)
    options = parser.parse_args(arguments)
    if not options.paths and not options.out:
        raise RequestError("name a notebook or a folder of them, or --out FOLDER to sum up again")
    if not options.paths:
        marks.write(options.out, marks.read_table(options.out / "exercises.csv")[1], options.roster)
        return
    os.environ.update(QUIET)
    rules = Rules(options.seconds, options.seed, tuple(options.hidden))
    found = submissions(options.paths)
    rows = mark_all(found, lesson_named(options.lesson), rules)
    if differ := sum(map(marks.differs, rows)):
        print(f"{differ} of the marks differ from what the notebook had said; see above.")
    if options.out:
        marks.write(options.out, rows, options.roster)
        write_text(options.out / "answers.md", answers(found))
    print(f"Hidden cases of seed {rules.seed}; --seed {rules.seed} marks by the same ones again.")


if __name__ == "__main__":
    sys.exit(main())
