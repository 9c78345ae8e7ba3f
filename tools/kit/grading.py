"""The process in which one reader's code is marked; tools/kit/grade.py starts it and listens.

It executes the statements that the exercises need (tools/kit/program.py), in the notebook's order,
and answers each call of a checker: with the checker, and after it with the hidden cases. What a
statement does to the ground it stands on, torch or the course's own code, is noticed; the statement
is then left out, in a new process.
"""

import ast
import importlib
import json
import linecache
import os
import runpy
import sys
import tempfile
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import replace
from io import StringIO
from pathlib import Path

import torch
import torch.nn.functional

from dspark_lite.common.files import ROOT
from dspark_lite.course.checkers.checking import Exercise

from .lessons import answer_names, code_exercises, lesson_statements, read_notebook
from .program import Statement, needed, python, statements

EXERCISES = "dspark_lite.course.exercises"
OURS = ("dspark_lite",)
# What a reader finds in no student edition.
WITHHELD = tuple(
    f"{ROOT / place}{os.sep}"
    for place in ("notebooks/solutions", "notebooks/src", "tools/kit/hidden", "tools/kit/solutions")
)
# What an exercise's cell keeps of its checker's word; the lines that put the course's function in
# the place of a wrong one ask for it.
DONE = "done"


class Replaced(Exception):
    """A part of torch or of the course is another one now; the message names it."""


class Again(BaseException):
    """This process is spoilt; another one is to go on. No `except Exception` holds it up."""


@contextmanager
def hushed() -> Iterator[StringIO]:
    """Catch what is printed."""
    with (
        redirect_stdout(StringIO()) as printed,
        redirect_stderr(StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield printed


class Ground:
    """The functions of torch and of the course, as they are before any code of a reader's runs."""

    def __init__(self):
        self.before = self.now()

    @staticmethod
    def now() -> dict[str, object]:
        """Return the functions and classes by name."""
        by_name = {}
        for name, module in list(sys.modules.items()):
            if name in ("torch", "torch.nn.functional", "builtins", "math", "inspect") or (
                name.partition(".")[0] in OURS and module is not None
            ):
                for key, value in vars(module).items():
                    if callable(value) and not key.startswith("__"):
                        by_name[f"{name}.{key}"] = value
                    if isinstance(value, type) and (value.__module__ == name or key == "Tensor"):
                        by_name |= {
                            f"{name}.{key}.{method}": function
                            for method, function in vars(value).items()
                            if callable(function) and method not in ("__class__", "__doc__")
                        }
        return by_name

    def settle(self) -> None:
        """Take what there is now for what it should be."""
        self.before = self.now()

    def check(self) -> None:
        """Raise Replaced if a function is another one than it was."""
        now = self.now()
        for name, function in self.before.items():
            if now.get(name) is not function:
                raise Replaced(name)
        self.before = now


def watching(notice: Callable[[str], None]) -> Callable[[str, tuple], None]:
    """Return an audit hook that tells `notice` of each program that is started and of each file
    that is opened where a student edition has none; the opening fails as it would there."""

    def hook(event: str, arguments: tuple) -> None:
        if event == "open" and isinstance(arguments[0], str):
            path = os.path.abspath(arguments[0])
            if path.startswith(WITHHELD):
                place = os.path.relpath(path, ROOT)
                notice(f"opens {place}")
                raise FileNotFoundError(2, "no such file in the student edition", place)
        if event in ("subprocess.Popen", "os.system", "os.posix_spawn", "os.exec"):
            notice(f"starts a program: {str(arguments[0])[:80]}")

    return hook


def execute(statement: Statement, scope: dict) -> str:
    """Run a statement in `scope`; return what it raised, "" for nothing."""
    try:
        code = compile(ast.Module([statement.node], []), f"cell {statement.cell}", "exec")
        with hushed():
            exec(code, scope)
    except Exception as error:
        return f"{statement.step} raised {type(error).__name__}: {error}"
    return ""


def hidden_cases(folder: Path, lesson: str) -> dict:
    """Return the functions of a folder's lesson_NN.py by the names of checkers; none if there is no
    such file."""
    path = folder / f"lesson_{lesson}.py"
    held = runpy.run_path(str(path), run_name=path.stem) if path.is_file() else {}
    return {name: value for name, value in held.items() if name.startswith("check_")}


def with_cases(check: Exercise, cases: list[list[tuple]]) -> Exercise:
    """Return the same exercise with other cases: a list for each of its steps."""
    steps = [
        replace(step, cases=chosen) for step, chosen in zip(check.comparisons, cases, strict=True)
    ]
    return Exercise(check.reference, *steps, also_right=check.also_right, manner=check.manner)


def verdict(check, answers: tuple, hidden: list, seed: int) -> tuple[bool, str]:
    """Return whether a checker and the hidden cases for it accept the answers, and the last line
    that it printed."""
    if any(str(getattr(answer, "__module__", "")).partition(".")[0] in OURS for answer in answers):
        return False, "this is the course's own function"
    right, line = ask_checker(check, answers)
    for draw in hidden if isinstance(check, Exercise) else []:
        if right:
            cases = draw(torch.Generator().manual_seed(seed))
            right, line = ask_checker(with_cases(check, cases), answers)
            line = line if right else f"on hidden cases: {line}"
    return right, line


def ask_checker(check, answers: tuple) -> tuple[bool, str]:
    """Return whether a checker accepts the answers, and its line."""
    with hushed() as printed:
        right = check(*answers)
    return right, (printed.getvalue().strip() or "it said nothing").splitlines()[-1][:400]


def courses_own(statement: Statement, answers: set[str]) -> set[str]:
    """Return which of the lesson's answers a reader's statement takes from the course."""
    taken = set()
    for part in ast.walk(statement.node) if statement.readers else []:
        if isinstance(part, ast.Attribute) and not isinstance(part.ctx, ast.Store):
            taken |= {part.attr} & answers
        if isinstance(part, ast.ImportFrom) and str(part.module).partition(".")[0] in OURS:
            taken |= {alias.name for alias in part.names} & answers
    return taken


class Marking:
    """One pass through a submission; `send` gets "begun", step; "verdict", checker, call, right,
    line; "noticed", step, sentence; "again", step; "finished"."""

    def __init__(self, task: dict, send: Callable[..., None]):
        self.task, self.send = task, send
        self.lesson = Path(task["lesson"])
        number = self.lesson.name[:2]
        self.module = importlib.import_module(f"{EXERCISES}.lesson_{number}")
        self.exercises = code_exercises(read_notebook(self.lesson))
        self.answers = answer_names(self.lesson)
        self.hidden = [hidden_cases(Path(folder), number) for folder in task["hidden"]]
        cells = [types.SimpleNamespace(**cell) for cell in task["cells"]]
        for at, cell in enumerate(cells, 1):
            remember(f"cell {at}", cell.source)
        program = statements(cells, lesson_statements(self.lesson))
        called = {name for statement in program for name in statement.checkers}
        uncalled = [
            exercise.arguments for exercise in self.exercises if exercise.checker not in called
        ]
        names = {
            part.id
            for text in uncalled
            for part in ast.walk(ast.parse(text))
            if isinstance(part, ast.Name)
        }
        self.program = needed(program, names)
        self.shown = types.ModuleType(self.module.__name__)
        vars(self.shown).update(vars(self.module))
        for exercise in self.exercises:
            setattr(self.shown, exercise.checker, self.asking(exercise.checker))
        self.scope, self.failed, self.calls, self.step = {"__name__": "submission"}, "", {}, ""
        self.ground = None

    def asking(self, name: str) -> Callable[..., bool]:
        """Return what a reader's cells call for a checker."""

        def check(*answers) -> bool:
            self.calls[name] = self.calls.get(name, 0) + 1
            call = f"{name} {self.calls[name]}"
            if call in self.task["known"]:
                return self.task["known"][call]
            before, self.step = self.step, call
            self.send("begun", call)
            drawn = [cases[name] for cases in self.hidden if name in cases]
            try:
                right, line = verdict(getattr(self.module, name), answers, drawn, self.task["seed"])
                self.ground.check()
            except Replaced as replaced:
                right, line = False, f"it replaces {replaced} while it is checked"
                self.send("noticed", call, f"replaces {replaced} while it is checked")
                self.send("verdict", name, call, right, line)
                self.send("again", "")
                raise Again from None
            except Exception as error:
                right, line = False, f"the checker raised {type(error).__name__}: {error}"
            self.send("verdict", name, call, right, line)
            self.step = before
            self.send("begun", before)
            return right

        return check

    def run(self) -> None:
        """Mark the submission."""
        sys.modules[self.module.__name__] = self.shown
        setattr(sys.modules[EXERCISES], self.module.__name__.rpartition(".")[2], self.shown)
        self.ground = Ground()
        for statement in self.program:
            self.step = statement.step
            if self.step not in self.task["skipped"]:
                self.take(statement)
        for exercise in self.exercises:
            if not self.calls.get(exercise.checker):
                self.ask_anyway(exercise)
        self.send("finished")

    def take(self, statement: Statement) -> None:
        """Run a statement, and look at what it has done to the ground."""
        self.send("begun", self.step)
        calls = dict(self.calls)
        for name in courses_own(statement, self.answers):
            self.send("noticed", self.step, f"uses the course's own {name}")
        failed, before = execute(statement, self.scope), self.failed
        self.failed = failed or before
        line = "; ".join(filter(None, [failed, before]))
        for name in statement.checkers if failed else ():
            if self.calls.get(name, 0) == calls.get(name, 0):
                self.calls[name] = calls.get(name, 0) + 1
                self.send("verdict", name, f"{name} {self.calls[name]}", False, line)
                self.scope[DONE] = False
        try:
            self.ground.check() if statement.readers else self.ground.settle()
        except Replaced as replaced:
            self.send("noticed", self.step, f"replaces {replaced}; the statement was left out")
            self.send("again", self.step)
            raise Again from None

    def ask_anyway(self, exercise) -> None:
        """Ask about an exercise whose checker the notebook does not call."""
        self.step = f"{exercise.checker} 1"
        try:
            answers = eval(compile(exercise.arguments, self.step, "eval"), self.scope)
        except Exception as error:
            line = f"{getattr(error, 'name', None) or error} is missing"
            line += f"; {self.failed}" if self.failed else ""
            return self.send("verdict", exercise.checker, self.step, False, line)
        self.asking(exercise.checker)(*answers)


def remember(file: str, source: str) -> None:
    """Let a checker look at a cell's source."""
    try:
        text = python(source)
    except SyntaxError:
        return
    linecache.cache[file] = len(text), None, text.splitlines(keepends=True), file


def serve(pipe, task: str) -> None:
    """Mark one submission and send what there is to say through the pipe, as JSON."""
    sys.stdin = open(os.devnull)
    torch.set_num_threads(1)
    marking = Marking(
        json.loads(task), lambda *message: pipe.send_bytes(json.dumps(message).encode())
    )
    sys.addaudithook(watching(lambda sentence: marking.send("noticed", marking.step, sentence)))
    with tempfile.TemporaryDirectory() as folder, suppress(Again):
        os.environ["DSPARK_MINE"] = os.path.join(folder, "my_dspark.py")
        marking.run()
