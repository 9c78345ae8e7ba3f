"""The course's commands, for make and for machines without it: python course.py lab, run, test, ... (py course.py lab on Windows).

Needs nothing but Python. What a command needs is installed into .venv first, from the folder wheelhouse/ where there is one; `python
course.py wheelhouse` fills it, for a room without network. What follows a command is handed on to it.
"""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
INSTALL = ["-m", "pip", "install", "-qq", "--no-compile", "--disable-pip-version-check"]
PYTEST = ["-m", "pytest", "-n", "auto", "--dist", "worksteal", "--durations", "20"]
# nbmake executes each committed notebook of the readers' edition once. A cell may take as long as a busy machine needs.
TESTS = [*PYTEST, "-m", "not slow", "--nbmake", "--nbmake-timeout", "900", "notebooks", "tests", "--ignore=notebooks/solutions"]
# The slow tests, and every property test again with many more examples.
SLOW_TESTS = [*PYTEST, "-m", "slow or hypothesis", "--hypothesis-profile", "thorough", "tests"]
COMMANDS = {  # what it does, the part of the repository that it needs, the environment's stamp, what Python is told
    "lab": ("open the lessons in JupyterLab", "notebooks", "course", ["-m", "dspark_lite", "lab", "--"]),
    "progress": ("which exercises are done", "notebooks", "course", ["-m", "dspark_lite", "progress"]),
    "judge": ("is the decoder in notebooks/my_dspark.py lossless, and is it DSpark?", "notebooks", "course", ["-m", "dspark_lite", "judge"]),
    "run": ("execute every lesson and measure the drafters", "scripts", "course", ["scripts/run_course.py"]),
    "test": ("execute every notebook, run every test that a change is likely to break", "tests", "tests", TESTS),
    "test-all": ("the rest of the tests: what takes long", "tests", "tests", SLOW_TESTS),
    "notebooks": ("build the lessons from their sources", "scripts", "course", ["scripts/notebooks.py", "build"]),
    "project": ("judge a project", "tools/kit/project.py", "course", ["-m", "tools.kit.project"]),
    "release": ("the student edition, without answers", "tools/kit/release.py", "course", ["-m", "tools.kit.release"]),
    "grade": ("mark what was handed in", "tools/kit/grade.py", "course", ["-m", "tools.kit.grade"]),
    "exam": ("an exam and its key", "tools/kit/exam.py", "course", ["-m", "tools.kit.exam"]),
    "slides": ("each lesson's figures as slides", "tools/kit/slides.py", "course", ["-m", "tools.kit.slides"]),
    "fork": ("give the course another repository, OWNER/NAME", "tools/kit/fork.py", "course", ["-m", "tools.kit.fork"]),
}
STAMPS = {"course": (["pyproject.toml", "requirements.txt", "constraints.txt"], ["-e", "."]),
          "tests": (["requirements-dev.txt"], ["-r", "requirements-dev.txt"])}


def environment() -> Path:
    """The environment that commands run in: this Python's own if it is one of the repository's, else .venv."""
    own = Path(sys.prefix)
    return own if own.parent == ROOT and own.name.startswith(".venv") else ROOT / ".venv"


def python(folder: Path) -> str:
    """An environment's Python."""
    return str(folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python"))


def settings() -> dict[str, str]:
    """The environment variables of what is started: pip takes the wheelhouse where there is one; Python may write byte code, as whoever
    has forbidden it would wait for the compiler in every kernel of a lesson."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    house = ROOT / "wheelhouse"
    return kept | ({"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(house)} if house.is_dir() else {})


def start(command: list[str], folder: str = ".") -> None:
    """Runs a program in a folder of the repository; ends this one with its exit code where that is not 0."""
    told = subprocess.call(command, cwd=ROOT / folder, env=settings())
    if told:
        sys.exit(told)


def install(wanted: str) -> None:
    """Installs what a stamp stands for, unless the stamp is newer than the files that say what that is."""
    folder = environment()
    files, arguments = STAMPS[wanted]
    stamp = folder / f"{wanted}.stamp"
    if wanted == "tests" and not stamp.exists():
        install("course")
    if stamp.exists() and stamp.stat().st_mtime >= max((ROOT / file).stat().st_mtime for file in files):
        return
    if not Path(python(folder)).exists():
        print(f"Installing the course and what it needs into {folder.name} (about 1.5 GB on disk)", flush=True)
        start([sys.executable, "-m", "venv", str(folder)])
    start([python(folder), *INSTALL, *arguments, "-c", "constraints.txt"])
    stamp.touch()


def usage() -> str:
    """What can be asked for."""
    lines = [f"  {name:10} {says}" for name, (says, needs, _, _) in COMMANDS.items() if (ROOT / needs).exists()]
    return "\n".join(["python course.py COMMAND, one of", *lines, f"  {'install':10} only install, as every command does first",
                      f"  {'wheelhouse':10} fetch all that is to be installed, for a machine like this one without network"])


def main() -> None:
    """Runs the command line."""
    if sys.version_info < (3, 10):
        sys.exit("Python 3.10 or newer is needed: python3.11 course.py ...")
    name, *arguments = sys.argv[1:] or [""]
    if name == "install" and set(arguments) <= {"course", "tests"}:
        for wanted in arguments or ["course"]:
            install(wanted)
    elif name == "wheelhouse" and not arguments:
        start([sys.executable, "-m", "pip", "download", "-d", "wheelhouse", "-r", "requirements.txt", "-c", "constraints.txt", "setuptools"])
    elif name in COMMANDS and (ROOT / COMMANDS[name][1]).exists():
        _, needs, stamp, command = COMMANDS[name]
        install(stamp)
        start([python(environment()), *command, *arguments], "notebooks" if needs == "notebooks" else ".")
    else:
        sys.exit(usage())


if __name__ == "__main__":
    main()
