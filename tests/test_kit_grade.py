"""`make grade`: every lesson's solutions and stubs, a submission that hangs, hidden cases, cheats, files that are no submission."""

import csv
import importlib
import json
import os
import sys
from pathlib import Path
from unittest.mock import patch

import nbformat
import pytest
import torch

import dspark_lite.course.exercises
from dspark_lite.course.exercises import lesson_10
from dspark_lite.course.exercises.checking import Exercise, Comparison
from dspark_lite.common.errors import RequestError
from tools.kit import grade, grading, lessons

HIDDEN = {
    path.stem[-2:]: grading.hidden_cases(grade.HIDDEN, path.stem[-2:])
    for path in sorted(grade.HIDDEN.glob("lesson_*.py"))
}
GENERATORS = [
    pytest.param(number, name, draw, id=f"{number} {name}")
    for number, found in HIDDEN.items()
    for name, draw in found.items()
]
TRAINS = {"04", "06", "07", "11"}  # lessons whose solutions train or serve in their checkers
LONG = pytest.mark.slow(reason="trains or serves in the checkers of a whole lesson")
LESSON = next(path for path in lessons.lesson_paths() if path.name.startswith("10"))


@pytest.fixture(autouse=True)
def settings_kept():
    """The environment as it was: the grader sets its own."""
    with patch.dict(os.environ):
        yield


def exercise(number, name):
    """A lesson's checker."""
    return getattr(importlib.import_module(f"dspark_lite.course.exercises.lesson_{number}"), name)


@pytest.mark.parametrize("path", lessons.lesson_paths(), ids=lambda path: path.stem)
def test_every_exercise_with_a_checker_is_found(path):
    found = lessons.code_exercises(lessons.read_notebook(path))
    assert {one.checker for one in found} == {
        name
        for name in vars(
            importlib.import_module(f"dspark_lite.course.exercises.lesson_{path.name[:2]}")
        )
        if name.startswith("check_")
    }
    assert all(lessons.EXERCISE.fullmatch(f"### {one.heading}") for one in found)


@pytest.mark.parametrize(("number", "name", "draw"), GENERATORS)
def test_right_functions_pass_hidden_cases_and_one_answer_to_everything_does_not(
    number, name, draw, capsys
):
    check = exercise(number, name)
    asked = grading.with_cases(check, draw(torch.Generator().manual_seed(5)))
    assert asked(check.reference), capsys.readouterr().out
    plain = type(check.comparisons[0]) is Comparison
    same = check.reference(*check.comparisons[0].cases[0]) if plain else torch.zeros(1, 1)
    assert not asked(lambda *case: same)


@pytest.mark.parametrize(
    ("path", "solved"),
    [
        pytest.param(path, solved, marks=LONG if solved and path.name[:2] in TRAINS else ())
        for path in lessons.lesson_paths()
        for solved in (True, False)
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "solutions" if value else "stubs",
)
def test_a_lessons_solutions_have_all_points_and_its_stubs_none(path, solved, monkeypatch):
    """In this process; what the grader's own process does to the modules is undone."""
    module = importlib.import_module(f"dspark_lite.course.exercises.lesson_{path.name[:2]}")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(dspark_lite.course.exercises, module.__name__.rpartition(".")[2], module)
    notebook = lessons.read_notebook(path.parent / "solutions" / path.name if solved else path)
    cells = [
        (cell.source, lessons.tagged(cell, "exercise"))
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]
    sent = []
    grading.mark(
        {
            "lesson": path,
            "cells": cells,
            "skipped": [],
            "marked": [],
            "seed": 1,
            "hidden": [grade.HIDDEN],
        },
        lambda *told: sent.append(told),
    )
    verdicts = {told[1]: told[2:] for told in sent if told[0] == "verdict"}
    assert len(verdicts) == len(lessons.code_exercises(lessons.read_notebook(path))) >= 2 and sent[
        -1
    ] == ("finished",)
    start = "Correct." if solved else "Not done yet: "
    assert {
        name: said
        for name, (right, said) in verdicts.items()
        if right is not solved or not said.startswith(start)
    } == {}


def test_hidden_cases_change_with_the_seed():
    drawn = [
        HIDDEN["10"]["check_theta"](torch.Generator().manual_seed(seed))[0] for seed in (1, 2, 1)
    ]
    assert (
        [case[:2] for case in drawn[0]]
        == [case[:2] for case in drawn[2]]
        != [case[:2] for case in drawn[1]]
    )


ANSWERS = {
    "expected_throughput": """def expected_throughput(admitted, requests, cost_table):
    import time
    while True:
        try:
            time.sleep(60)
        except BaseException:
            pass
""",
    "algorithm_1": """def algorithm_1(survivals, sps):
    return [survivals.shape[1]] * len(survivals)
""",
}


@pytest.mark.slow(reason="two processes import everything, and one is waited for")
def test_a_submission_that_hangs_is_marked_to_its_end(tmp_path):
    notebook = lessons.read_notebook(LESSON.parent / "solutions" / LESSON.name)
    for cell in notebook.cells:
        for name, wrong in ANSWERS.items():
            if cell.cell_type == "code" and cell.source.startswith(f"def {name}("):
                cell.source = wrong + cell.source[cell.source.index("\n\n\ndone") :]
    (tmp_path / "ann").mkdir()
    nbformat.write(notebook, tmp_path / "ann" / LESSON.name)
    assert (
        grade.main(
            [str(tmp_path), "--csv", str(tmp_path / "marks.csv"), "--seconds", "25", "--seed", "3"]
        )
        == 0
    )
    rows = {
        row["checker"]: row
        for row in csv.DictReader((tmp_path / "marks.csv").open(encoding="utf-8"))
    }
    assert {name: row["points"] for name, row in rows.items()} == {
        "check_theta": "0",
        "check_algorithm_1": "0",
        "check_least_survival": "1",
        "check_lagged": "1",
    }
    assert "longer than 25 seconds" in rows["check_theta"]["said"]
    assert "every token is admitted" in rows["check_algorithm_1"]["said"]


def test_a_file_that_cannot_be_read_is_a_row(tmp_path):
    (tmp_path / LESSON.name).write_text("")
    assert grade.main([str(tmp_path), "--csv", str(tmp_path / "marks.csv")]) == 0
    (row,) = csv.DictReader((tmp_path / "marks.csv").open(encoding="utf-8"))
    assert row["points"] == "0" and "cannot be read" in row["said"]


def test_the_courses_own_function_is_refused_and_hidden_cases_are_asked():
    assert grading.verdict(lesson_10.check_theta, (lesson_10.expected_throughput,), [], 0) == (
        False,
        "this is the course's own function",
    )

    def asked(admitted, requests, table):
        return tuple(admitted), requests, table.sps(requests, 1)

    found = {
        asked(*case): lesson_10.expected_throughput(*case)
        for case in lesson_10.check_theta.comparisons[0].cases
    }
    remembering = lambda *case: found.get(asked(*case), 0.0)  # noqa: E731
    assert grading.verdict(lesson_10.check_theta, (remembering,), [], 0) == (True, "Correct.")
    right, said = grading.verdict(
        lesson_10.check_theta, (remembering,), [HIDDEN["10"]["check_theta"]], 0
    )
    assert not right and said.startswith("on hidden cases: Not yet")


def test_a_readers_code_sees_no_reference():
    shown = grading.without_references(lesson_10, {"expected_throughput"})
    assert (
        not hasattr(shown, "expected_throughput")
        and shown.check_theta(lesson_10.expected_throughput) is False
    )
    assert isinstance(lesson_10.check_theta, Exercise) and shown.speeds is lesson_10.speeds


def test_of_a_readers_cells_only_definitions_and_exercises_are_executed():
    scope, checkers = {}, {"check_theta"}
    cells = [
        ("import math\nmath.wrong\nx = 1\ndef f():\n    return math.pi", False),
        ("%time\ny = 2", True),
        ("def g(:", False),
        ("z = 3\ndone = exercises.check_theta(f)", False),
        ("def f(:\ndone = exercises.check_theta(f)", False),
    ]
    read = [grading.read_cell(at, *cell, checkers) for at, cell in enumerate(cells, 1)]
    *said, broken = [grading.execute(cell, scope) for cell in read]
    assert (
        said == ["", "cell 2 raised NameError: name 'get_ipython' is not defined", "", ""]
        and "raised SyntaxError: line 1" in broken
    )
    assert (
        scope["f"]() > 3
        and scope["y"] == 2
        and scope["z"] == 3
        and not {"x", "done"} & scope.keys()
    )
    assert read[3].checkers == read[4].checkers == ["check_theta"]


@pytest.mark.parametrize(
    ("names", "students"),
    [
        (["ann/10_the_scheduler.ipynb", "bob/more/10_the_scheduler.ipynb"], ["ann", "bob"]),
        (
            ["ann_10_the_scheduler.ipynb", "bob-10_the_scheduler (1).ipynb", "mine.ipynb"],
            ["ann", "bob", "mine"],
        ),
    ],
)
def test_who_handed_in_what(tmp_path, names, students):
    for name in [*names, ".ipynb_checkpoints/10_the_scheduler.ipynb"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [student for student, _ in grade.submissions([tmp_path])] == students


@pytest.mark.parametrize("name", ["", "none.ipynb"])
def test_nothing_to_mark_is_a_sentence(tmp_path, capsys, name):
    assert grade.main([str(tmp_path / name)]) == 2 and "there is no" in capsys.readouterr().err


def test_the_lesson_is_told_by_the_name_or_by_the_imports(tmp_path):
    notebook = nbformat.v4.new_notebook(
        cells=[
            nbformat.v4.new_code_cell(
                "from dspark_lite.course.exercises import lesson_10 as exercises"
            )
        ]
    )
    assert grade.lesson_of(tmp_path / "mine.ipynb", notebook) == LESSON
    empty = nbformat.v4.new_notebook()
    assert grade.lesson_of(tmp_path / f"mine {LESSON.name}", empty) == LESSON
    with pytest.raises(RequestError, match="none of the lessons"):
        grade.lesson_of(tmp_path / "mine.ipynb", empty)


def test_what_a_process_sends_is_json(monkeypatch):
    class Pipe:
        sent = [["begun", "cell 1"], ["verdict", "check_a", True, "Correct."], ["begun", "check_b"]]

        def poll(self, _):
            return bool(self.sent)

        def recv_bytes(self):
            return json.dumps(self.sent.pop(0)).encode()

    verdicts = {}
    assert grade.listen(Pipe(), verdicts, 0.1) == "check_b" and verdicts == {
        "check_a": (True, "Correct.")
    }
