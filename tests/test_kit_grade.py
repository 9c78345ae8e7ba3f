"""`make grade`: every lesson's solutions and stubs, twelve submissions beside what their notebooks say, hidden cases, cheats,
files that are no submission, tables for a learning platform."""

import ast
import csv
import importlib
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import nbformat
import pandas
import pytest
import torch
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

import dspark_lite.course.exercises
from dspark_lite.common.errors import RequestError
from dspark_lite.course.checkers.checking import Comparison
from dspark_lite.course.exercises import lesson_10
from submissions import LESSON as LOSSLESS, SUBMISSIONS, edition, notebook, write_all
from tools.kit import grade, grading, lessons, marks, program

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


@pytest.fixture
def marked_here(monkeypatch, tmp_path):
    """Marks code cells in this process, in as many passes as the grader would take; what that does to modules is undone, and
    what they keep is kept in a folder of the test.

    Returns the findings.
    """

    def mark(path, cells):
        findings, skipped = grade.Findings(), []
        module = importlib.import_module(f"dspark_lite.course.exercises.lesson_{path.name[:2]}")
        while True:
            sent = []
            told = [{"source": cell.source, "metadata": dict(cell.metadata)} for cell in cells]
            task = {"lesson": str(path), "cells": told, "skipped": skipped, "seed": 1}
            task |= {"known": findings.known(), "hidden": [str(grade.HIDDEN)]}
            with monkeypatch.context() as patched, suppress(grading.Again):
                patched.setitem(sys.modules, module.__name__, module)
                name = module.__name__.rpartition(".")[2]
                patched.setattr(dspark_lite.course.exercises, name, module)
                patched.setattr(torch, "allclose", torch.allclose)
                grading.Marking(task, lambda *told, to=sent: to.append(told)).run()
            step = grade.listen(Told(sent), findings, 0)
            if step is None:
                return findings
            skipped.append(step)

    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "my_dspark.py"))
    mode = torch.is_grad_enabled()
    yield mark
    torch.set_grad_enabled(mode)


class Told:
    """A pipe that holds what was sent."""

    def __init__(self, sent):
        self.sent = [json.dumps(told).encode() for told in sent]

    def poll(self, _):
        return bool(self.sent)

    def recv_bytes(self):
        return self.sent.pop(0)


def code_cells(made):
    """The code cells of a notebook."""
    return [cell for cell in made.cells if cell.cell_type == "code"]


@pytest.mark.parametrize(
    ("path", "solved"),
    [
        pytest.param(path, solved, marks=LONG if solved and path.name[:2] in TRAINS else ())
        for path in lessons.lesson_paths()
        for solved in (True, False)
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "solutions" if value else "stubs",
)
def test_a_lessons_solutions_have_all_points_and_its_stubs_none(path, solved, marked_here):
    handed_in = path.parent / "solutions" / path.name if solved else path
    findings = marked_here(path, code_cells(lessons.read_notebook(handed_in)))
    asked = [name for _, name, _ in marks.exercises(lessons.read_notebook(path)) if name]
    assert len(asked) == len(lessons.code_exercises(lessons.read_notebook(path))) >= 2
    start = "Correct." if solved else "Not done yet: "
    found = {name: findings.best(name) for name in asked}
    assert {
        name: said
        for name, (right, said) in found.items()
        if right is not solved or not said.startswith(start)
    } == {}
    assert findings.noticed == []


# Twelve submissions.

CHECKERS = ["check_keep", "check_residual", "check_next_distribution", "check_verify"]
# What they need a process of their own for: they hang, end Python, or open a file under the eyes of a hook.
IN_A_PROCESS = {"04_loop", "05_reads_solutions", "09_ends_python", "11_endless_cell"}
NO_NOTEBOOK = {"10_no_json", "15_another_lesson"}


@pytest.mark.parametrize("name", sorted(SUBMISSIONS.keys() - IN_A_PROCESS - NO_NOTEBOOK))
def test_a_mistake_costs_its_own_point_and_tricks_are_seen(name, marked_here):
    text, points, says = SUBMISSIONS[name]
    findings = marked_here(LOSSLESS, code_cells(nbformat.reads(text(), as_version=4)))
    found = [findings.best(checker) for checker in CHECKERS]
    assert [right for right, _ in found] == list(map(bool, points)), found
    assert says in f"{found} {findings.noticed}"


@pytest.mark.slow(reason="marks twelve notebooks in processes, of which one is waited for")
def test_twelve_submissions_are_marked_and_their_table_is_one_for_a_platform(tmp_path, capsys):
    write_all(tmp_path / "in")
    out, roster = tmp_path / "out", tmp_path / "roster.csv"
    people = [f"{at},Zoë {name},,A" for at, name in enumerate(SUBMISSIONS, 900)]
    head = "ID number,Full name,Email address,Group"
    roster.write_text("\n".join([head, *people, "1,Léa Hand-in-Nothing,,B"]), encoding="utf-8-sig")
    for at, name in enumerate(SUBMISSIONS, 900):
        (tmp_path / "in" / name).rename(tmp_path / "in" / f"Zoë {name}_{at}_assignsubmission_file")
    words = [str(tmp_path / "in"), "--lesson", "02", "--out", str(out), "--seed", "7"]
    assert grade.main([*words, "--roster", str(roster)]) == 0
    table = pandas.read_csv(out / "students.csv")
    wanted = [sum(points) for _, points, _ in SUBMISSIONS.values()]
    assert list(table["total"][:-1]) == wanted and set(table["maximum"]) == {4}
    assert table["Full name"][0] == "Zoë 04_loop" and pandas.isna(table["total"].iloc[-1])
    rows = pandas.read_csv(out / "exercises.csv", keep_default_na=False)
    for name, (_, points, says) in SUBMISSIONS.items():
        own = rows[rows.student.str.startswith(f"Zoë {name}") & (rows.checker != "")]
        assert list(own.points.astype(int)) == points and says in own.to_string(), name
        (page,) = (out / "feedback").glob(f"Zoë {name}_*.md")
        assert f"{sum(points)} of 4" in page.read_text(encoding="utf-8")


def printed_by(made, folder):
    """What the checkers of a notebook print when it is executed, errors and all; a cell that a reader would stop is
    stopped."""
    client = NotebookClient(
        made,
        timeout=60,
        startup_timeout=900,
        interrupt_on_timeout=True,
        allow_errors=True,
        resources={"metadata": {"path": str(LOSSLESS.parent)}},
    )
    with suppress(DeadKernelError):
        client.execute(env={**os.environ, **grade.QUIET, "DSPARK_MINE": str(folder / "mine.py")})
    return marks.notebook_said(code_cells(made))


@pytest.mark.slow(reason="executes whole notebooks as their readers do")
@pytest.mark.parametrize("name", ["07_courses_own", "12_one_wrong", "13_helpers", "14_two_wrong"])
def test_the_mark_is_what_the_executed_notebook_says(name, tmp_path):
    text, points, _ = SUBMISSIONS[name]
    said = printed_by(nbformat.reads(text(), as_version=4), tmp_path)
    assert [said.get(checker) == "Correct." for checker in CHECKERS] == list(map(bool, points))


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
    words = ["--out", str(tmp_path / "out"), "--seconds", "25", "--seed", "3"]
    assert grade.main([str(tmp_path / "ann" / LESSON.name), *words]) == 0
    rows = {
        row["checker"]: row
        for row in csv.DictReader((tmp_path / "out/exercises.csv").open(encoding="utf-8"))
    }
    assert {name: row["points"] for name, row in rows.items() if name} == {
        "check_theta": "0",
        "check_algorithm_1": "0",
        "check_least_survival": "1",
        "check_lagged": "1",
    }
    assert "longer than 25 seconds" in rows["check_theta"]["said"]
    assert "every token is admitted" in rows["check_algorithm_1"]["said"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "empty"),
        ("My answers.", "no JSON"),
        (SUBMISSIONS["12_one_wrong"][0]()[:5000], "cut short"),
        ("[1, 2]", "no notebook"),
        (SUBMISSIONS["15_another_lesson"][0](), "another lesson, 12"),
    ],
    ids=["empty", "prose", "cut", "other JSON", "other lesson"],
)
def test_a_broken_file_counts_all_its_exercises_and_says_why(tmp_path, text, says):
    """Whatever its name is, if another notebook or --lesson says which lesson was asked for."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "mine.ipynb").write_text(text)
    assert grade.main([str(tmp_path / "in"), "--lesson", "02", "--out", str(tmp_path)]) == 0
    rows, (student,) = (
        list(csv.DictReader((tmp_path / name).open(encoding="utf-8")))
        for name in ("exercises.csv", "students.csv")
    )
    checked = [row for row in rows if row["checker"]]
    assert [row["points"] for row in checked] == ["0"] * 4 and len(rows) == 6
    assert all(says in row["said"] for row in checked)
    assert (student["total"], student["maximum"]) == ("0", "4")


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


# What of a notebook is executed.


def cell(source, *tags):
    """A code cell."""
    return SimpleNamespace(source=source, metadata={"tags": list(tags)})


LESSONS_OWN = "import torch\nimport trainer\nmodel = trainer.train()\nprint(model)"


@pytest.mark.parametrize(
    ("cells", "lines"),
    [
        pytest.param([LESSONS_OWN, "check_a(1)"], ["check_a(1)"], id="the lesson is not run"),
        pytest.param(
            ["ONE = 1\nTWO = 2", "def a():\n    return ONE", "check_a(a)"],
            ["ONE = 1", "def a", "check_a(a)"],
            id="a constant that a function uses",
        ),
        pytest.param(
            ["x = 1", "x = 2", "check_a(x)", "x = 3"], ["x = 2", "check_a(x)"], id="the last one"
        ),
        pytest.param(
            ["x = []\ny = []", "x.append(1)\nx[0] = 2\ny.append(1)", "check_a(x)"],
            ["x = []", "x.append(1)", "x[0] = 2", "check_a(x)"],
            id="what changes it",
        ),
        pytest.param(
            ["from helpers import *", "setattr(b, 'c', 1)", "check_a(x)"],
            ["from helpers import *", "setattr", "check_a(x)"],
            id="what may bind anything",
        ),
        pytest.param(
            ["import torch", "torch.allclose = print", "check_a(1)"],
            ["import torch", "torch.allclose", "check_a(1)"],
            id="what replaces a part of a module",
        ),
        pytest.param(
            ["%matplotlib inline\n!ls", "%%time\nx = 1", "%time check_a(x)"],
            ["x = 1", "check_a(x)"],
            id="magics",
        ),
        pytest.param(
            ["if 1:\n    x = 1\nelse:\n    x = 2", "x = x + 1", "check_a(x)"],
            ["if 1", "x = x + 1", "check_a(x)"],
            id="branches",
        ),
    ],
)
def test_what_an_exercise_needs_is_executed_and_nothing_else(cells, lines):
    lesson = frozenset(ast.dump(node) for node in ast.parse(LESSONS_OWN).body)
    found = program.needed(program.statements(map(cell, cells), lesson))
    sources = [ast.unparse(one.node) for one in found]
    assert len(sources) == len(lines)
    assert all(source.startswith(line) for source, line in zip(sources, lines)), sources


def test_a_cell_that_is_no_python_is_wrong_and_the_course_stands_in(marked_here):
    made = notebook({"residual": "def residual(p, q:\n    return p\n"})
    findings = marked_here(LOSSLESS, code_cells(made))
    assert [findings.best(checker)[0] for checker in CHECKERS] == [True, False, True, True]
    assert "SyntaxError: line 1" in findings.best("check_residual")[1]


def test_a_call_that_was_right_counts_among_others(marked_here):
    made = code_cells(notebook())
    tried = "exercises.check_keep(lambda p, q: p)"
    findings = marked_here(LOSSLESS, [*made, cell(tried)])
    assert findings.best("check_keep") == (True, "Correct.")
    assert len(findings.verdicts["check_keep"]) == 2


def test_what_replaces_torch_while_it_is_checked_is_wrong(marked_here):
    own = "def keep_probability(p, q):\n    torch.allclose = lambda *_, **__: True\n    return p\n"
    findings = marked_here(LOSSLESS, code_cells(notebook({"keep_probability": own})))
    right, said = findings.best("check_keep")
    assert not right and "replaces torch.allclose" in said and findings.best("check_verify")[0]


def test_opened_solutions_and_programs_are_noticed():
    noticed = []
    hook = grading.watching(noticed.append)
    solutions = str(LOSSLESS.parent / "solutions" / LOSSLESS.name)
    with pytest.raises(FileNotFoundError):
        hook("open", (solutions, "r", 0))
    for event in (("open", (str(LOSSLESS), "r", 0)), ("open", (3, "r", 0)), ("import", ("a",))):
        hook(*event)
    hook("subprocess.Popen", ("cat", ["cat", solutions], None, None))
    assert len(noticed) == 2 and LOSSLESS.name in noticed[0] and "cat" in noticed[1]


# Answers in words, and tables.


def test_answers_in_words_are_collected_where_they_stand():
    """In the cell that the student edition has for them, and in a cell of the reader's own."""
    made = notebook()
    (first, second) = [cell for cell in made.cells if lessons.tagged(cell, "written")]
    first.source = first.source.replace(marks.PLACEHOLDER, "Both events hold the token.\n\nSo TV.")
    code = nbformat.v4.new_code_cell("offset = 1e-3")
    at = made.cells.index(second)
    made.cells[at + 1 : at + 1] = [nbformat.v4.new_markdown_cell("A coin of 8 bits."), code]
    found = marks.answers_in_words(made, lessons.read_notebook(LOSSLESS))
    assert list(found.values()) == [
        "Both events hold the token.\n\nSo TV.",
        "A coin of 8 bits.\n\n```python\noffset = 1e-3\n```",
    ]
    assert marks.answers_in_words(edition(), lessons.read_notebook(LOSSLESS)) == {}


@pytest.mark.parametrize("path", lessons.lesson_paths(), ids=lambda path: path.stem)
def test_every_exercise_without_a_checker_has_a_place_in_the_student_edition(path):
    made, lesson = edition(path), lessons.read_notebook(path)
    places = [cell.source for cell in made.cells if lessons.tagged(cell, "written")]
    wanted = [int(re.search(r"\d+", heading)[0]) for heading in lessons.by_hand(lesson)]
    assert [int(re.search(r"exercise (\d+)", place)[1]) for place in places] == wanted
    assert marks.answers_in_words(made, lesson) == {}
    nbformat.validate(made)


def row(student, exercise, points, most=1, checker="check_a", notebook=""):
    """A row of exercises.csv."""
    found = [student, "02_x", exercise, checker, points, most, notebook, "said", ""]
    return dict(zip(marks.COLUMNS, found))


ROWS = [
    row("ann_104_2305", "1", 1),
    row("ann_104_2305", "2", "", 2, ""),
    row("Bo Bell_77_assignsubmission_file_", "1", 0, notebook="Correct."),
    row("Bo Bell_77_assignsubmission_file_", "2", "", 2, ""),
]


def test_points_that_a_person_gives_are_summed_up_again(tmp_path):
    marks.write(tmp_path, ROWS, None)
    table = pandas.read_csv(tmp_path / "students.csv")
    assert table.to_dict("list") == {
        "id": [104, 77],
        "name": ["ann", "Bo Bell"],
        "total": [1, 0],
        "maximum": [1, 1],
    }
    rows = pandas.read_csv(tmp_path / "exercises.csv", dtype=str, keep_default_na=False)
    rows.loc[1, "points"] = "1.5"
    rows.to_csv(tmp_path / "exercises.csv", index=False)
    assert grade.main(["--out", str(tmp_path)]) == 0
    table = pandas.read_csv(tmp_path / "students.csv")
    assert list(table.total) == [2.5, 0] and list(table.maximum) == [3, 3]
    page = (tmp_path / "feedback" / "ann_104_2305.md").read_text()
    assert page.startswith("# ann: 2.5 of 3") and marks.RULE in page


@pytest.mark.parametrize("points", ["nan", "inf", "two"])
def test_points_that_are_no_finite_number_are_refused(points):
    with pytest.raises(RequestError, match=points):
        marks.number(points)


def test_a_mark_that_differs_from_the_notebook_is_said():
    assert [marks.differs(one) for one in ROWS] == [False, False, True, False]
    assert "had said: Correct." in marks.feedback(ROWS[2]["student"], ROWS[2:], 0, 1)


@pytest.mark.parametrize(
    ("roster", "totals"),
    [
        (
            'Student,ID,SIS Login ID,Section\n    Points Possible,,,\n"Ann, Lee",104,lee,A\n"Bell, Bo",9,bb,A\nNew,7,n,A\n',
            ["1", "1", "0", ""],
        ),
        (
            "ID number,First name,Surname,Email address\n77,Bo,Bell,bo@x\n104,Ann,Lee,ann@x\n",
            ["0", "1"],
        ),
    ],
    ids=["Canvas", "Moodle"],
)
def test_a_platforms_list_comes_back_with_totals(tmp_path, roster, totals):
    (tmp_path / "roster.csv").write_text(roster, encoding="utf-8-sig")
    marks.write(tmp_path, ROWS, tmp_path / "roster.csv")
    text = (tmp_path / "students.csv").read_text(encoding="utf-8")
    assert text.splitlines()[0] == f"{roster.splitlines()[0]},total,maximum"
    assert [one["total"] for one in csv.DictReader(text.splitlines())] == totals


def test_work_of_nobody_in_the_list_comes_last(tmp_path, capsys):
    (tmp_path / "roster.csv").write_text("id,name\n77,Bo Bell\n")
    marks.write(tmp_path, ROWS, tmp_path / "roster.csv")
    table = pandas.read_csv(tmp_path / "students.csv")
    assert list(table.id) == ["77", "ann_104_2305"] and "ann" in capsys.readouterr().out


def test_what_a_notebook_had_said_is_the_best_of_its_calls():
    def printed(source, *lines):
        output = nbformat.v4.new_output("stream", text="".join(f"{line}\n" for line in lines))
        return nbformat.v4.new_code_cell(source, outputs=[output])

    cells = [
        printed("x.check_a(f)", "Kept", "Correct."),
        printed("x.check_a(g)", "Not yet: no"),
        printed("x.check_b(f)", "Not yet: no"),
        printed("x.check_c(f)"),
    ]
    assert marks.notebook_said(cells) == {"check_a": "Correct.", "check_b": "Not yet: no"}


def test_the_better_of_two_notebooks_of_a_student_counts():
    one, two = [row("ann", "1", 0)], [row("ann", "1", 1)]
    assert grade.best_of([two, one]) == grade.best_of([one, two]) == two


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
    assert [found.student for found in grade.submissions([tmp_path])] == students


@pytest.mark.parametrize("name", ["", "none.ipynb"])
def test_nothing_to_mark_is_a_sentence(tmp_path, capsys, name):
    assert grade.main([str(tmp_path / name)]) == 2 and "there is no" in capsys.readouterr().err


def test_the_lesson_is_told_by_the_imports_or_by_the_name(tmp_path):
    code = "from dspark_lite.course.exercises import lesson_10 as exercises"
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])

    def lesson(name, made):
        nbformat.write(made, tmp_path / name)
        submission = grade.Submission("ann", tmp_path / name)
        grade.read(submission, None)
        return submission.lesson, submission.wrong

    assert lesson("mine.ipynb", made) == lesson(LOSSLESS.name, made) == (LESSON, "")
    assert lesson(f"mine {LESSON.name}", nbformat.v4.new_notebook()) == (LESSON, "")
    assert "none of the lessons" in lesson("mine.ipynb", nbformat.v4.new_notebook())[1]


def test_what_a_process_sends_is_json_and_what_it_was_at_is_left_out():
    sent = [
        ["begun", "cell 1"],
        ["verdict", "check_a", "check_a 1", True, "Correct."],
        ["begun", "check_b 1"],
    ]
    findings = grade.Findings()
    assert grade.listen(Told(sent), findings, 0.1) == "check_b 1"
    assert findings.best("check_a") == (True, "Correct.")
    assert findings.known() == {"check_a 1": True, "check_b 1": False}
    assert grade.listen(Told([["begun", "cell 2, line 1"]]), findings, 0.1) == "cell 2, line 1"
    assert "longer than" in findings.noticed[0][1]
