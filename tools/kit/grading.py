"""The process in which one reader's code is marked; tools/kit/grade.py starts it and listens."""

import ast
import importlib
import json
import linecache
import os
import runpy
import sys
import types
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from pathlib import Path

import torch
from IPython.core.inputtransformer2 import TransformerManager

from dspark_lite.course.exercises.checking import Exercise
from .lessons import answer_names, checker_calls, code_exercises, read_notebook

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
OURS = ("dspark_lite",)


@dataclass(frozen=True)
class Cell:
    """A code cell of a submission: the step's name, the statements to execute, the checkers that it
    calls."""

    step: str
    statements: list
    checkers: list[str]


def read_cell(number: int, source: str, exercise: bool, checkers: set[str]) -> Cell:
    """Return what a cell defines, or all that an exercise's cell does; one that is no Python is a
    `raise` of what is wrong with it."""
    step, named = f"cell {number}", [name for name in checkers if f"{name}(" in source]
    try:
        text = TransformerManager().transform_cell(source)
        body = ast.parse(text).body
    except SyntaxError as error:
        text = f"raise SyntaxError({f'line {error.lineno}: {error.msg}'!r})"
        return Cell(step, ast.parse(text).body if named or exercise else [], named)
    # a checker may look at the source
    linecache.cache[step] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        step,
    )
    if named or exercise:
        return Cell(step, [node for node in body if not checker_calls(node)], named)
    return Cell(step, [node for node in body if isinstance(node, DEFINITIONS)], [])


@contextmanager
def hushed() -> Iterator[StringIO]:
    """Catch what is printed."""
    with (
        redirect_stdout(StringIO()) as said,
        redirect_stderr(StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield said


def execute(cell: Cell, scope: dict) -> str:
    """Run a cell's statements one by one in `scope`; return what the last one that failed raised,
    "" if none did."""
    failed = ""
    for node in cell.statements:
        try:
            with hushed():
                exec(compile(ast.Module([node], []), cell.step, "exec"), scope)
        except Exception as error:
            failed = f"{cell.step} raised {type(error).__name__}: {error}"
    return failed


def without_references(module, answers: set[str]) -> types.ModuleType:
    """Return a lesson's module of checkers as a reader's code may see it: without the right
    answers, its checkers check nothing."""
    shown = types.ModuleType(module.__name__)
    for name, value in vars(module).items():
        if name not in answers and not name.startswith("__"):
            setattr(shown, name, (lambda *_: False) if name.startswith("check_") else value)
    return shown


def hidden_cases(folder: Path, lesson: str) -> dict:
    """Return the functions of a folder's lesson_NN.py by the names of checkers; none if there is no
    such file."""
    path = folder / f"lesson_{lesson}.py"
    held = runpy.run_path(str(path), run_name=path.stem) if path.is_file() else {}
    return {name: value for name, value in held.items() if name.startswith("check_")}


def with_cases(check: Exercise, cases: list[list[tuple]]) -> Exercise:
    """Return the same exercise with other cases: a list for each of its steps."""
    steps = [
        replace(step, cases=given) for step, given in zip(check.comparisons, cases, strict=True)
    ]
    return Exercise(check.reference, *steps, also_right=check.also_right, manner=check.manner)


def verdict(check, answers: tuple, hidden: list, seed: int) -> tuple[bool, str]:
    """Return whether a checker and the hidden cases for it accept the answers, and the last line
    that it printed."""
    if any(str(getattr(answer, "__module__", "")).partition(".")[0] in OURS for answer in answers):
        return False, "this is the course's own function"
    right, said = asked(check, answers)
    for draw in hidden if isinstance(check, Exercise) else []:
        if right:
            cases = draw(torch.Generator().manual_seed(seed))
            right, said = asked(with_cases(check, cases), answers)
            said = said if right else f"on hidden cases: {said}"
    return right, said


def asked(check, answers: tuple) -> tuple[bool, str]:
    """Return whether a checker accepts the answers, and its line."""
    with hushed() as said:
        right = check(*answers)
    return right, (said.getvalue().strip() or "it said nothing").splitlines()[-1][:400]


def serve(pipe, task: str) -> None:
    """Mark one submission and send the verdicts through the pipe, as JSON."""
    sys.stdin = open(os.devnull)
    torch.set_num_threads(1)
    mark(json.loads(task), lambda *told: pipe.send_bytes(json.dumps(told).encode()))


def mark(task: dict, send) -> None:
    """Mark one submission; `send` gets "begun", step; "verdict", checker, right, line;
    "finished"."""
    lesson = Path(task["lesson"])
    number = lesson.name[:2]
    exercises = {found.checker: found for found in code_exercises(read_notebook(lesson))}
    module = importlib.import_module(f"dspark_lite.course.exercises.lesson_{number}")
    shown = without_references(module, answer_names(lesson))
    sys.modules[module.__name__] = shown
    setattr(sys.modules["dspark_lite.course.exercises"], f"lesson_{number}", shown)
    hidden = [hidden_cases(Path(folder), number) for folder in task["hidden"]]
    scope, failed = {"__name__": "submission"}, ""
    left = [name for name in exercises if name not in task["marked"]]

    def mark_answer(name: str) -> None:
        send("begun", name)
        left.remove(name)
        try:
            answers = eval(compile(exercises[name].arguments, name, "eval"), scope)
        except NameError as error:
            reason = f"{error.name} is missing" + (f"; {failed}" if failed else "")
            return send("verdict", name, False, reason)
        drawn = [cases[name] for cases in hidden if name in cases]
        send("verdict", name, *verdict(getattr(module, name), answers, drawn, task["seed"]))

    for at, (source, is_exercise) in enumerate(task["cells"], 1):
        cell = read_cell(at, source, is_exercise, set(exercises))
        send("begun", cell.step)
        if cell.step not in task["skipped"]:
            failed = execute(cell, scope) or failed
        for name in [name for name in cell.checkers if name in left]:
            mark_answer(name)
    for name in list(left):
        mark_answer(name)
    send("finished")
