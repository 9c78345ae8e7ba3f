"""course.py, what make calls and who has no make: it installs once, hands on arguments and exit codes, and knows what is there."""

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dspark_lite.common.files import ROOT


@pytest.fixture
def course(tmp_path, monkeypatch):
    """The program in a repository of its own, which starts nothing: `started` is what it would start, and in which folder."""
    for name in ("pyproject.toml", "requirements.txt", "requirements-dev.txt", "constraints.txt"):
        (tmp_path / name).touch()
    for name in ("notebooks", "scripts", "tests", "tools/kit/release.py"):
        (tmp_path / name).mkdir(parents=True)
    spec = importlib.util.spec_from_file_location("course", ROOT / "course.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ROOT, module.started, module.told = tmp_path, [], 0

    def call(command, cwd, env):
        module.started.append((command, cwd.relative_to(tmp_path).as_posix()))
        module.environment_variables = env
        if command[1:3] == ["-m", "venv"]:
            path = Path(module.python(tmp_path / ".venv"))
            path.parent.mkdir(parents=True)
            path.touch()
        return module.told

    monkeypatch.setattr(module.subprocess, "call", call)
    module.run = lambda *arguments: (monkeypatch.setattr(sys, "argv", ["course.py", *arguments]), module.main())
    return module


def test_a_command_installs_first_and_only_once(course):
    course.run("lab", "--no-browser")
    venv, install, lab = course.started
    assert venv[0][1:] == ["-m", "venv", str(course.ROOT / ".venv")] and install[0][-4:] == ["-e", ".", "-c", "constraints.txt"]
    assert lab == ([course.python(course.ROOT / ".venv"), "-m", "dspark_lite", "lab", "--", "--no-browser"], "notebooks")
    course.run("run", "--only", "00")
    assert [command[1:] for command, _ in course.started[3:]] == [["scripts/run_course.py", "--only", "00"]]
    course.run("test")
    assert [command[-3] for command, _ in course.started[4:-1]] == ["requirements-dev.txt"] and "pytest" in course.started[-1][0]


def test_it_installs_again_when_what_is_needed_has_changed(course):
    course.run("install")
    later = time.time() + 10
    os.utime(course.ROOT / "requirements.txt", (later, later))
    course.run("install")
    assert [command[1:3] for command, _ in course.started] == [["-m", "venv"], ["-m", "pip"], ["-m", "pip"]]


def test_what_fails_ends_it_with_its_code_and_leaves_no_stamp(course):
    course.told = 3
    with pytest.raises(SystemExit) as ended:
        course.run("run")
    assert ended.value.code == 3 and not list(course.ROOT.glob(".venv/*.stamp"))


def test_a_wheelhouse_is_filled_by_one_command_and_used_by_the_next(course):
    course.run("wheelhouse")
    assert course.started[0][0][2:6] == ["pip", "download", "-d", "wheelhouse"] and "PIP_NO_INDEX" not in course.environment_variables
    (course.ROOT / "wheelhouse").mkdir()
    course.run("install")
    assert course.environment_variables["PIP_NO_INDEX"] == "1"
    assert course.environment_variables["PIP_FIND_LINKS"] == str(course.ROOT / "wheelhouse")


@pytest.mark.parametrize("arguments", [(), ("teach",), ("wheelhouse", "here"), ("install", "all")])
def test_what_it_does_not_know_is_answered_by_what_it_does(course, arguments):
    with pytest.raises(SystemExit, match="COMMAND, one of"):
        course.run(*arguments)
    assert course.started == []


def test_the_student_edition_has_fewer_commands(course):
    (course.ROOT / "tools/kit/release.py").rmdir()
    with pytest.raises(SystemExit) as ended:
        course.run("release")
    assert "lab" in str(ended.value) and "release" not in str(ended.value)


def test_an_environment_of_the_repository_is_used_as_it_is(course, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(course.ROOT / ".venv-oldest"))
    assert course.environment() == course.ROOT / ".venv-oldest"
    monkeypatch.setattr(sys, "prefix", str(course.ROOT.parent / "other"))
    assert course.environment() == course.ROOT / ".venv"


def test_what_it_starts_is_there(course):
    for _, needs, _, command in course.COMMANDS.values():
        assert (ROOT / needs).exists()
        file = ROOT / (command[1].replace(".", "/") if command[0] == "-m" else command[0])
        assert "pytest" in command or file.is_file() or file.is_dir() or file.with_suffix(".py").is_file(), command


def test_make_calls_it():
    asked = re.findall(r"course\.py (\w+)", (ROOT / "Makefile").read_text())
    assert {"run", "lab", "test", "fork", "install"} <= set(asked)
    make = ["make", "-n", "-C", str(ROOT)]
    for goals, command in ((["release"], "course.py release"), (["fork", "ann/course"], "course.py fork ann/course")):
        assert command in subprocess.run([*make, *goals], capture_output=True, text=True, check=True).stdout
