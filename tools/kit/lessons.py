"""The lessons as they are committed, for an instructor's tools: their notebooks, exercises and
answers, found by what they hold."""

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import nbformat

from dspark_lite.common.files import ROOT

NOTEBOOKS = ROOT / "notebooks"
NAMED_CHECKER = re.compile(r"\b(check_\w+)\(")  # in a cell of a reader's, which may be no Python
EXERCISE = re.compile(r"^### (Exercise \d+ · .+ \((?:code|think|open)\))$", re.M)


@dataclass(frozen=True)
class CodeExercise:
    """An exercise with a checker: its heading, the checker's name, and what the lesson gives the
    checker, as an expression."""

    heading: str
    checker: str
    arguments: str


def lesson_paths() -> list[Path]:
    """Return the paths of the lessons' notebooks, in order."""
    return sorted(NOTEBOOKS.glob("[0-9][0-9]_*.ipynb"))


def read_notebook(path: Path):
    """Return a notebook of format 4."""
    return nbformat.read(path, as_version=4)


def tagged(cell, tag: str) -> bool:
    """Return whether a cell has a tag."""
    return tag in cell.metadata.get("tags", [])


def name_called(call: ast.Call) -> str:
    """Return the name of the function or method that is called, "" if it has none."""
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def checker_calls(node) -> list[ast.Call]:
    """Return the calls of checkers in a piece of code: check_NAME(...), of a module or by
    itself."""
    calls = [call for call in ast.walk(node) if isinstance(call, ast.Call)]
    return [call for call in calls if name_called(call).startswith("check_")]


def code_exercises(notebook) -> list[CodeExercise]:
    """Return the exercises of a lesson that have a checker, in their order."""
    heading, found = "", {}
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = (EXERCISE.findall(cell.source) or [heading])[-1]
        elif cell.cell_type == "code":
            for call in checker_calls(ast.parse(cell.source)):
                name = name_called(call)
                arguments = ast.unparse(ast.Tuple([*call.args], ast.Load()))
                found.setdefault(name, CodeExercise(heading, name, arguments))
    return list(found.values())


def by_hand(notebook) -> list[str]:
    """Return the headings of a lesson's exercises that have no checker: a person marks them."""
    checked = {exercise.heading for exercise in code_exercises(notebook)}
    in_words = [heading for heading in headings(notebook) if not heading.endswith("(code)")]
    return [heading for heading in in_words if heading not in checked]


def headings(notebook) -> list[str]:
    """Return the headings of a lesson's exercises, in their order."""
    texts = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return [heading for text in texts for heading in EXERCISE.findall(text)]


def answer_names(path: Path) -> set[str]:
    """Return the names of the functions and classes that a lesson's solutions define."""
    names = set()
    for cell in read_notebook(path.parent / "solutions" / path.name).cells:
        for node in ast.parse(cell.source).body if tagged(cell, "solution") else []:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
    return names


def lesson_statements(path: Path) -> frozenset[str]:
    """Return the statements at the top of a lesson's cells and of its solutions' (ast.dump)."""
    return frozenset(
        ast.dump(node)
        for place in (path, path.parent / "solutions" / path.name)
        for cell in read_notebook(place).cells
        if cell.cell_type == "code"
        for node in ast.parse(cell.source).body
    )
