"""course.py, what make calls and who has no make: it installs what has changed, hands on arguments and exit codes, knows what is there."""

import importlib.util
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Stands where an environment's Python does: it notes what it is asked to run and where, and answers as the files beside it say.
STANDIN = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
  *"import sys"*) cat "$here/version" ;;
  -c*) echo 1 ;;
  *) echo "${PWD##*/}: $* [$PIP_FIND_LINKS]" >> "$here/asked"; exit $(cat "$here/code") ;;
esac
"""
NEEDS = ("pyproject.toml", "requirements.txt", "constraints/pins.txt")
TOUCHED = {"course": NEEDS, "tests": NEEDS, "site": NEEDS}


class Course:
    """A repository with course.py, in which an environment's Python is a stand-in."""

    def __init__(self, root):
        self.root = root
        root.mkdir()
        shutil.copy(ROOT / "course.py", root)
        for name in {name for names in TOUCHED.values() for name in names}:
            (root / name).parent.mkdir(exist_ok=True)
            (root / name).write_text("a\n")
        for name in ("notebooks", "tools/notebooks", "tests", "tools/site"):
            (root / name).mkdir(parents=True)
        for name in ("build", "figures", "readme", "run_course"):
            (root / "tools" / "notebooks" / f"{name}.py").touch()
        self.environment()

    def environment(self, name=".venv"):
        self.bin = self.root / name / "bin"
        self.bin.mkdir(parents=True)
        for file, text in (("python", STANDIN), ("code", "0"), ("version", "3.11.2\n")):
            (self.bin / file).write_text(text)
        (self.bin / "python").chmod(0o755)

    def run(self, *arguments, code=0):
        """Run a command, which must end with this exit code; return what the environment's Python was asked."""
        (self.bin / "asked").write_text("")
        own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        own["PIP_INDEX_URL"] = "https://index.example"  # so that it asks no network
        self.said = subprocess.run(
            [sys.executable, "-S", self.root / "course.py", *arguments],
            env=own,
            capture_output=True,
            text=True,
        )
        assert self.said.returncode == code, self.said
        return (self.bin / "asked").read_text().splitlines()

    def installed(self, *arguments):
        """Run `install`; return what pip was told to install."""
        return [
            re.search(r"install (?:-\S+ )*?(-[er] .*) -c ", line)[1]
            for line in self.run("install", *arguments)
        ]


pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in is a shell script")
COURSE, TESTS, SITE = "-e . -r requirements.txt", "-e .[dev]", "-e .[site]"


@pytest.fixture
def course(tmp_path):
    return Course(tmp_path / "repository")


def test_a_command_installs_first_and_only_once_and_hands_on_its_words(course):
    install, lab = course.run("lab", "--no-browser")
    assert (
        " -m pip install " in install and lab == "notebooks: -m dspark_lite lab -- --no-browser []"
    )
    assert course.run("run", "--only", "00") == [
        "repository: -m tools.notebooks.run_course --only 00 []"
    ]
    more, tests = course.run("test")
    assert TESTS in more and "pytest" in tests


@pytest.mark.parametrize(
    ("wanted", "file"), [(wanted, file) for wanted, files in TOUCHED.items() for file in files]
)
def test_it_installs_again_what_another_text_concerns(course, wanted, file):
    """The text counts, not the time: an older commit's files are of an earlier text and a later time, a fresh clone's of one time."""
    both = [COURSE, *{"tests": [TESTS], "site": [SITE]}.get(wanted, [])]
    assert course.installed(wanted) == both and course.installed(wanted) == []
    path = course.root / file
    path.write_text("b\n")
    os.utime(path, (0, 0))
    assert (
        course.installed(wanted) == (both if file in NEEDS else both[1:])
        and course.installed(wanted) == []
    )
    path.write_text("a\n")
    assert course.installed(wanted) != [], "back at the first text, with the second installed"
    os.utime(path)
    assert course.installed(wanted) == []


def test_it_installs_again_for_another_python_and_in_another_place(course, tmp_path):
    assert course.installed() == [COURSE] and course.installed() == []
    (course.bin / "version").write_text("3.12.1\n")
    assert course.installed() == [COURSE] and course.installed() == []
    course.root = course.root.rename(tmp_path / "moved")
    course.bin = course.root / ".venv" / "bin"
    assert course.installed() == [COURSE] and course.installed() == []


def test_an_install_that_stopped_begins_again_also_at_the_commit_that_was_installed(course):
    assert course.installed() == [COURSE]
    (course.root / "requirements.txt").write_text("b\n")
    (course.bin / "code").write_text("3")
    assert len(course.run("run", code=3)) == 1
    (course.bin / "code").write_text("0")
    (course.root / "requirements.txt").write_text("a\n")
    assert course.installed() == [COURSE]


def test_a_wheelhouse_is_all_that_pip_sees(course):
    (course.root / "wheelhouse").mkdir()
    install, run = course.run("run")
    assert install.endswith("/wheelhouse]") and run.endswith("[]")
    (course.bin / "code").write_text("1")
    (course.root / "requirements.txt").write_text("b\n")
    course.run("run", code=1)
    assert "wheelhouse" in course.said.stderr


@pytest.mark.parametrize("wanted", ["tests", "site"])
def test_what_a_wheelhouse_does_not_have_comes_from_the_network(course, wanted):
    (course.root / "wheelhouse").mkdir()
    first, second = course.run("install", wanted)
    assert first.endswith("/wheelhouse]") and second.endswith("[]")


@pytest.fixture
def module(monkeypatch):
    """course.py as a module, on a Linux machine without a GPU that can reach PyTorch's index."""
    spec = importlib.util.spec_from_file_location("course_py", ROOT / "course.py")
    course = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(course)
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(course.platform, "system", lambda: "Linux")
    monkeypatch.setattr(course.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(course, "NVIDIA", ())
    monkeypatch.setattr(course.urllib.request, "urlopen", lambda *_, **__: io.BytesIO())
    return course


def unreachable(*_, **__):
    raise OSError


def test_without_a_gpu_pip_looks_for_pytorchs_cpu_build(module):
    assert module.cpu_builds() == {"PIP_EXTRA_INDEX_URL": module.CPU_BUILDS}


@pytest.mark.parametrize(
    "change",
    [
        lambda course, patch: patch.setenv("PIP_INDEX_URL", "https://one.example"),
        lambda course, patch: patch.setattr(course.platform, "machine", lambda: "aarch64"),
        lambda course, patch: patch.setattr(course.platform, "system", lambda: "Darwin"),
        lambda course, patch: patch.setattr(course, "NVIDIA", (str(ROOT),)),
        lambda course, patch: patch.setattr(course.urllib.request, "urlopen", unreachable),
    ],
    ids=["pip was told where to look", "another machine", "a Mac", "a GPU", "no network"],
)
def test_otherwise_pip_looks_where_it_always_does(module, monkeypatch, change):
    change(module, monkeypatch)
    assert module.cpu_builds() == {}


def test_a_set_of_versions_goes_before_the_pins(course):
    (course.root / "constraints" / "pins.txt").write_text(
        "# all\nx==3; python_version > '3'\nx==2\ny==1\n"
    )
    (course.root / "constraints" / "oldest.txt").write_text("# old\nx==1\n")
    for name, pins in (
        (".venv", ["# all", "x==3; python_version > '3'", "x==2", "y==1"]),
        (".venv-oldest", ["# old", "x==1", "# all", "y==1"]),
        (".venv-mine", ["# all", "x==3; python_version > '3'", "x==2", "y==1"]),
    ):
        code = (
            "import sys; sys.path.insert(0, '.'); import course; "
            f"print(course.constraints(course.ROOT / '{name}'), end='')"
        )
        said = subprocess.run(
            [sys.executable, "-S", "-c", code], cwd=course.root, capture_output=True, text=True
        )
        assert said.stdout.splitlines() == pins, said.stderr


@pytest.mark.parametrize(
    ("command", "arguments", "code"),
    [
        ("notebooks", [], 0),
        ("notebooks", ["--only", "03"], 1),
        ("notebooks", ["--check"], 0),
        ("figures", [], 0),
    ],
)
def test_who_builds_the_lessons_writes_the_tables_too(course, command, arguments, code):
    course.run("install")
    (course.bin / "code").write_text(str(code))
    started = course.run(command, *arguments, code=code)
    assert ["tools.notebooks.readme" in line for line in started] == (
        [False, True] if command == "notebooks" and "--check" not in arguments else [False]
    )


def test_a_wheelhouse_is_filled_from_the_network_also_where_it_is_half_full(course, tmp_path):
    (course.root / "wheelhouse").mkdir()
    (tmp_path / "pip").mkdir()
    (tmp_path / "pip" / "__init__.py").touch()
    (tmp_path / "pip" / "__main__.py").write_text(
        "import os, sys; print(sys.argv[1:4], 'PIP_NO_INDEX' in os.environ)"
    )
    own = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")} | {
        "PYTHONPATH": str(tmp_path)
    }
    command = [sys.executable, "-S", course.root / "course.py", "wheelhouse"]
    assert (
        subprocess.run(command, env=own, capture_output=True, text=True).stdout
        == "['download', '-d', 'wheelhouse'] False\n"
    )


@pytest.mark.parametrize(
    "arguments", [(), ("teach",), ("wheelhouse", "here"), ("install", "all"), ("release",)]
)
def test_what_it_does_not_know_is_answered_by_what_it_does(course, arguments):
    """Also in the student edition, which has fewer commands."""
    assert course.run(*arguments, code=1) == []
    assert (
        "COMMAND, one of" in course.said.stderr
        and "  lab " in course.said.stderr
        and "  release " not in course.said.stderr
    )


def test_make_has_its_commands_and_calls_it():
    sys.path.insert(0, str(ROOT))
    try:
        import course
    finally:
        sys.path.remove(str(ROOT))
    for name, command in course.COMMANDS.items():
        arguments = command.arguments
        file = ROOT / (arguments[1].replace(".", "/") if arguments[0] == "-m" else arguments[0])
        assert (ROOT / command.needs).exists() and (
            "pytest" in arguments
            or file.is_file()
            or file.is_dir()
            or file.with_suffix(".py").is_file()
        ), name
    goals = sorted(set(course.COMMANDS) - {"progress", "judge", "fork"})
    make = subprocess.run(
        ["make", "-n", "-C", str(ROOT), *goals], capture_output=True, text=True, check=True
    ).stdout
    assert [name for name in goals if f"course.py {name}" not in make] == []
    forked = subprocess.run(
        ["make", "-n", "-C", str(ROOT), "fork", "ann/course", "ARGS=--tag x"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "course.py fork ann/course --tag x" in forked


@pytest.mark.slow(reason="makes two virtual environments")
def test_an_environment_is_used_as_it_is_and_made_anew_where_its_python_is_gone(course):
    """pip finds nothing to install from; what is asked here comes before that."""
    (course.root / "wheelhouse").mkdir()
    shutil.rmtree(course.root / ".venv")
    command = [sys.executable, course.root / "course.py", "install"]
    assert (
        subprocess.run(command, capture_output=True).returncode != 0
        and (course.root / ".venv/bin/python").exists()
    )
    python = course.root / ".venv/bin/python"
    prefix = [
        python,
        "-c",
        "import sys; sys.path.insert(0, '.'); import course; print(course.environment())",
    ]
    assert subprocess.run(
        prefix, cwd=course.root, capture_output=True, text=True
    ).stdout.strip() == str(course.root / ".venv")
    for link in python.parent.glob("python*"):
        link.unlink()
        link.symlink_to("/nowhere/python")
    subprocess.run(command, capture_output=True)
    assert subprocess.run([python, "-c", "import pip"]).returncode == 0
