"""The course's commands, for make and for machines without it: python course.py lab, run, test, ... (py course.py lab on Windows).

Needs nothing but Python. What a command needs is installed into .venv first, from the folder wheelhouse/ where there is one; `python
course.py wheelhouse` fills it, for a room without network. What follows a command is handed on to it.
"""

import hashlib
import os
import platform
import re
import subprocess
import sys
import urllib.request
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent
# PyTorch for a machine without a GPU: some 200 MB in place of several GB.
CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
NVIDIA = ("/proc/driver/nvidia", "/dev/dxg")  # a driver of Linux, a driver under Windows
INSTALL = ["-m", "pip", "install", "-qq", "--no-compile", "--disable-pip-version-check"]
# The wheelhouse: what the course needs, and setuptools to install it from its source.
DOWNLOAD = ["-m", "pip", "download", "-d", "wheelhouse", "-r", "requirements.txt"]
DOWNLOAD += ["-c", "constraints/pins.txt", "setuptools"]
PYTEST = ["-m", "pytest", "-n", "auto", "--dist", "worksteal", "--durations", "20"]
# nbmake executes each committed notebook of the readers' edition once. A cell may take as long as a busy machine needs.
TESTS = [
    *PYTEST,
    "-m",
    "not slow",
    "--nbmake",
    "--nbmake-timeout",
    "900",
    "notebooks",
    "tests",
    "--ignore=notebooks/solutions",
]
# The slow tests, and every property test again with many more examples.
SLOW_TESTS = [*PYTEST, "-m", "slow or hypothesis", "--hypothesis-profile", "thorough", "tests"]


class Command(NamedTuple):
    """A command: what it does, the part of the repository that it needs, the stamp of the
    environment that runs it, and the arguments of its Python."""

    says: str
    needs: str
    stamp: str
    arguments: list[str]


COMMANDS = {
    "lab": Command(
        "open the lessons in JupyterLab",
        "notebooks",
        "course",
        ["-m", "dspark_lite", "lab", "--"],
    ),
    "progress": Command(
        "which exercises are done",
        "notebooks",
        "course",
        ["-m", "dspark_lite", "progress"],
    ),
    "judge": Command(
        "is the decoder in notebooks/my_dspark.py lossless, and is it DSpark?",
        "notebooks",
        "course",
        ["-m", "dspark_lite", "judge"],
    ),
    "run": Command(
        "execute every lesson and measure the drafters",
        "tools/notebooks/run_course.py",
        "course",
        ["-m", "tools.notebooks.run_course"],
    ),
    "record": Command(
        "the same, and keep the minutes that the lessons took",
        "tools/notebooks/run_course.py",
        "course",
        ["-m", "tools.notebooks.run_course", "--record"],
    ),
    "test": Command(
        "execute every notebook, run every test that a change is likely to break",
        "tests",
        "tests",
        TESTS,
    ),
    "test-all": Command("the rest of the tests: what takes long", "tests", "tests", SLOW_TESTS),
    "notebooks": Command(
        "build the lessons from their sources",
        "tools/notebooks/build.py",
        "course",
        ["-m", "tools.notebooks.build"],
    ),
    "figures": Command(
        "the paper's figures and tables, from assets/measurements",
        "tools/notebooks/figures.py",
        "course",
        ["-m", "tools.notebooks.figures"],
    ),
    "experiments": Command(
        "train every drafter and measure it: days",
        "tools/measure",
        "course",
        ["-m", "tools.measure.experiments"],
    ),
    "confidence": Command(
        "calibration, thresholds, cost table for lessons 09 and 10",
        "tools/measure",
        "course",
        ["-m", "tools.measure.confidence"],
    ),
    "clinic": Command(
        "the charts of lesson 14's patients",
        "tools/measure",
        "course",
        ["-m", "tools.measure.clinic"],
    ),
    "serving": Command(
        "the engine under load, for lesson 11",
        "tools/measure",
        "course",
        ["-m", "tools.measure.serving"],
    ),
    "machines": Command(
        "recorded rounds replayed on this CPU, on GPUs by their roofline, on the paper's machine",
        "tools/measure",
        "course",
        ["-m", "tools.measure.machines"],
    ),
    "extensions": Command(
        "what block verification gains over the token rule",
        "tools/measure",
        "course",
        ["-m", "tools.measure.extensions"],
    ),
    "production": Command(
        "heads, trees and V4's draft, for lesson 13",
        "tools/measure",
        "course",
        ["-m", "tools.measure.production"],
    ),
    "gpu": Command(
        "what the course says of a GPU, measured on one",
        "tools/gpu.py",
        "course",
        ["-m", "tools.gpu"],
    ),
    "judges": Command(
        "ask outside programs whether they agree",
        "tools/judges",
        "course",
        ["-m", "tools.judges.run"],
    ),
    "drafts": Command(
        "load every form of draft and compare",
        "tools/measure/drafts.py",
        "tests",
        ["-m", "tools.measure.drafts"],
    ),
    "site": Command(
        "the web edition, in build/site/html",
        "tools/site",
        "site",
        ["-m", "tools.site.build"],
    ),
    "project": Command(
        "grade a project", "tools/kit/project.py", "course", ["-m", "tools.kit.project"]
    ),
    "release": Command(
        "the student edition, without answers",
        "tools/kit/release.py",
        "course",
        ["-m", "tools.kit.release"],
    ),
    "grade": Command(
        "mark what was handed in", "tools/kit/grade.py", "course", ["-m", "tools.kit.grade"]
    ),
    "exam": Command("an exam and its key", "tools/kit/exam.py", "course", ["-m", "tools.kit.exam"]),
    "slides": Command(
        "each lesson's figures as slides",
        "tools/kit/slides.py",
        "course",
        ["-m", "tools.kit.slides"],
    ),
    "fork": Command(
        "give the course another repository, OWNER/NAME",
        "tools/kit/fork.py",
        "course",
        ["-m", "tools.kit.fork"],
    ),
}
# commands after which the tables in README.md and docs/ are written anew
TABLES = (
    "notebooks",
    "judges",
    "drafts",
)
NEEDS = ["pyproject.toml", "requirements.txt"]
STAMPS = {  # what is installed into an environment: the files that say what, and pip's arguments
    "course": (NEEDS, ["-e", ".", "-r", "requirements.txt"]),
    "tests": (NEEDS, ["-e", ".[dev]"]),
    "site": (NEEDS, ["-e", ".[site]"]),
}


def environment() -> Path:
    """Return the environment that commands run in: this Python's own if it is one of the repository's, else .venv."""
    own = Path(sys.prefix)
    return own if own.parent == ROOT and own.name.startswith(".venv") else ROOT / ".venv"


def python(folder: Path) -> str:
    """Return an environment's Python."""
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def settings() -> dict[str, str]:
    """Return the environment variables of what is started. Python may write byte code: without it every kernel of
    a lesson waits for the compiler."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def start(command: list[str], folder: str = ".", **variables: str) -> int:
    """Run a program in a folder of the repository, with these variables too; return its exit code."""
    return subprocess.call(command, cwd=ROOT / folder, env=settings() | variables)


def exit_on_failure(code: int, hint: str = "") -> None:
    """End this program with a program's exit code unless that is 0."""
    if code:
        print(hint, end="", file=sys.stderr)
        sys.exit(code)


def python_output(folder: Path, code: str) -> str:
    """Return what an environment's Python prints, "" if there is none or it does not run."""
    try:
        return subprocess.run([python(folder), "-c", code], capture_output=True, text=True).stdout
    except OSError:
        return ""


def make_environment(folder: Path) -> None:
    """Make an environment unless it has a Python that runs and pip. Clear one whose Python is gone."""
    runs = python_output(folder, "print(1)")
    if not runs or not python_output(folder, "import pip; print(1)"):
        print(f"Installing the course into {folder.name} (about 1.5 GB on disk)", flush=True)
        anew = ["--clear"] if folder.exists() and not runs else []
        exit_on_failure(start([sys.executable, "-m", "venv", *anew, str(folder)]))


def constraints(folder: Path) -> str:
    """Return the exact versions for an environment; in .venv-SET constraints/SET.txt goes first."""
    own = ROOT / "constraints" / f"{folder.name.removeprefix('.venv-')}.txt"
    lines = own.read_text(encoding="utf-8").splitlines() if own.exists() else []
    named = {re.split("[=<>]", line)[0] for line in lines}
    for line in (ROOT / "constraints" / "pins.txt").read_text(encoding="utf-8").splitlines():
        if re.split("[=<>]", line)[0] not in named:
            lines.append(line)
    return "\n".join(lines) + "\n"


def digest(wanted: str, folder: Path) -> str:
    """Return a hash of all that decides what is installed: files, versions, Python, the repository's place."""
    files, arguments = STAMPS[wanted]
    texts = [(ROOT / file).read_text(encoding="utf-8") for file in files]
    runs = python_output(folder, "import sys; print(sys.version)")
    whole = "\0".join([*texts, *arguments, constraints(folder), runs, str(ROOT)])
    return hashlib.sha256(whole.encode()).hexdigest()


@cache
def cpu_builds() -> dict[str, str]:
    """Return the variable that has pip take PyTorch's CPU build too, {} where that is not wanted.

    It is wanted on Linux without an NVIDIA GPU, unless the reader has set where pip looks, and
    where the index can be reached."""
    chosen = {"PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_FIND_LINKS"} & set(
        os.environ
    )
    if chosen or (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        return {}
    if any(Path(driver).exists() for driver in NVIDIA):
        return {}
    try:
        urllib.request.urlopen(f"{CPU_BUILDS}/torch/", timeout=5).close()
    except OSError:
        return {}
    print("No NVIDIA GPU is here, so pip takes PyTorch's CPU build.", flush=True)
    return {"PIP_EXTRA_INDEX_URL": CPU_BUILDS}


def install(wanted: str) -> None:
    """Install what a stamp stands for, unless the stamp says that it was made of the same.

    The stamp is removed before pip begins, so that an install that was stopped begins again.
    """
    if wanted != "course":
        install("course")
    folder = environment()
    stamp, pins, house = folder / f"{wanted}.stamp", folder / "constraints.txt", ROOT / "wheelhouse"
    if stamp.exists() and stamp.read_text() == digest(wanted, folder):
        return
    stamp.unlink(missing_ok=True)
    make_environment(folder)
    pins.write_text(constraints(folder), encoding="utf-8")
    # wheelhouse/ has what the course needs, not what its tests and its site need.
    alone = wanted == "course" and house.is_dir()
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(house)} if alone else {}
    places = offline or cpu_builds()
    hint = (
        "pip looked in wheelhouse/ alone: run python course.py wheelhouse, or delete that folder\n"
    )
    exit_on_failure(
        start([python(folder), *INSTALL, *STAMPS[wanted][1], "-c", str(pins)], **places),
        hint if offline else "",
    )
    stamp.write_text(digest(wanted, folder))


def usage() -> str:
    """Return the list of commands."""
    lines = [
        f"  {name:11} {command.says}"
        for name, command in COMMANDS.items()
        if (ROOT / command.needs).exists()
    ]
    return "\n".join(
        [
            "python course.py COMMAND, one of",
            *lines,
            f"  {'install':11} only install, as every command does first",
            f"  {'wheelhouse':11} fetch all that is to be installed, for a machine like this one without network",
        ]
    )


def main() -> None:
    """Run the command line."""
    if sys.version_info < (3, 10):
        sys.exit("Python 3.10 or newer is needed: python3.11 course.py ...")
    name, *arguments = sys.argv[1:] or [""]
    if name == "install" and set(arguments) <= set(STAMPS):
        for wanted in arguments or ["course"]:
            install(wanted)
    elif name == "wheelhouse" and not arguments:
        exit_on_failure(start([sys.executable, *DOWNLOAD], **cpu_builds()))
    elif name in COMMANDS and (ROOT / COMMANDS[name].needs).exists():
        command = COMMANDS[name]
        install(command.stamp)
        folder = "notebooks" if command.needs == "notebooks" else "."
        code = start([python(environment()), *command.arguments, *arguments], folder)
        tables = (ROOT / "tools" / "notebooks" / "readme.py").exists()
        if name in TABLES and tables and "--check" not in arguments:
            code = start([python(environment()), "-m", "tools.notebooks.readme"]) or code
        exit_on_failure(code)
    else:
        sys.exit(usage())


if __name__ == "__main__":
    main()
