"""A reader's progress: noted in notebooks alone, beside my_dspark.py; the page of a judged my_dspark.py."""

import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from dspark_lite.common.files import ROOT
from dspark_lite.course import command_line
from dspark_lite.course.checkers import progress
from dspark_lite.course.exercises import lesson_02, lesson_10
from dspark_lite.course.own_decoder.judge import Finding


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The reader's file, in a folder of its own."""
    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "my_dspark.py"))
    return tmp_path / "my_dspark.py"


@pytest.fixture
def notebook(mine, monkeypatch):
    """As in a notebook's kernel that has imported lesson 10 alone; where its progress is noted."""
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    others = [
        name
        for name in sys.modules
        if name.startswith("dspark_lite.course.exercises.lesson_") and not name.endswith("10")
    ]
    for name in others:
        monkeypatch.delitem(sys.modules, name)
    return mine.with_name("my_progress.json")


def right(admitted, requests, table):
    return lesson_10.expected_throughput(admitted, requests, table)


def test_what_is_passed_in_a_notebook_is_noted_once(notebook):
    assert not lesson_10.check_theta(lambda *_: 0.0) and not notebook.exists()
    assert (
        lesson_10.check_theta(right)
        and lesson_10.check_theta(right)
        and lesson_10.check_algorithm_1(lesson_10.algorithm_1)
    )
    assert json.loads(notebook.read_text()) == {"10": ["check_algorithm_1", "check_theta"]}


def test_a_checker_that_is_a_function_is_noted_too(notebook, monkeypatch):
    monkeypatch.setitem(sys.modules, lesson_02.__name__, lesson_02)
    assert lesson_02.check_verify(lesson_02.in_use(None, False))
    assert progress.passed() == {"02": ["check_verify"], "10": []}


def test_outside_a_notebook_nothing_is_written(mine):
    assert lesson_10.check_theta(right) and not progress.in_notebook()
    assert list(mine.parent.iterdir()) == []


def test_a_kernel_is_a_notebook(monkeypatch):
    for shell, answer in (
        (None, False),
        (SimpleNamespace(), False),
        (SimpleNamespace(kernel=object()), True),
    ):
        monkeypatch.setitem(
            sys.modules, "IPython", SimpleNamespace(get_ipython=lambda shell=shell: shell)
        )
        assert progress.in_notebook() is answer
    monkeypatch.delitem(sys.modules, "IPython")
    assert progress.in_notebook() is False


def test_a_folder_that_cannot_be_written_to_does_not_matter(notebook, monkeypatch):
    monkeypatch.setattr(
        progress, "write_json", lambda *_: (_ for _ in ()).throw(OSError("read-only"))
    )
    assert lesson_10.check_theta(right)


@pytest.mark.parametrize(
    ("text", "done"),
    [(None, 0), ("{", 0), ("[]", 0), ('{"10": ["check_theta", "check_theta", "check_gone"]}', 1)],
)
def test_progress_is_counted_by_lesson(mine, capsys, text, done):
    if text is not None:
        mine.with_name("my_progress.json").write_text(text)
    found = {lesson: (right, count) for lesson, right, count in progress.progress()}
    assert found["10"] == (done, 4) and len(found) == len(
        list((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    )
    assert command_line.main(["progress"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == len(found) + 1 and str(mine.with_name("my_progress.json")) in said[-1]


@pytest.mark.parametrize(("wrong", "named"), [(False, False), (True, False), (False, True)])
def test_a_judged_file_has_its_page(mine, monkeypatch, capsys, wrong, named):
    """Beside the reader's own file, where all is right; of another file only where one is asked for."""
    mine.write_text("# mine")
    findings = [Finding("it is <lossless>", not wrong, "total variation 0")]
    monkeypatch.setattr("dspark_lite.course.own_decoder.judge.judge", lambda *_: findings)
    monkeypatch.setattr(
        "dspark_lite.course.measure.lab.setup", lambda *_, **__: SimpleNamespace(device_name="CPU")
    )
    assert command_line.main(["judge", *([str(mine)] if named else [])]) == int(wrong)
    page = mine.with_suffix(".html")
    assert page.exists() is not (wrong or named)
    if not (wrong or named):
        text = page.read_text(encoding="utf-8")
        assert (
            "it is &lt;lossless&gt;" in text
            and "total variation 0" in text
            and "lesson 10" in text
            and "CPU" in text
        )
        assert str(page) in capsys.readouterr().out
    if named:
        assert (
            command_line.main(["judge", str(mine), "--page", str(mine.with_name("handed_in.html"))])
            == 0
        )
        assert mine.with_name("handed_in.html").exists()


def test_on_windows_lab_waits_for_jupyterlab(monkeypatch, tmp_path):
    called = []
    monkeypatch.setattr(command_line, "os", SimpleNamespace(name="nt", chdir=lambda _: None))
    monkeypatch.setattr(subprocess, "call", lambda words: called.append(words) or 3)
    with pytest.raises(SystemExit) as ended:
        command_line.main(["lab"])
    assert ended.value.code == 3 and called[0][1:3] == ["-m", "jupyterlab"]
