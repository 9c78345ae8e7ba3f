"""How far a reader is: exercises passed in a notebook are noted in my_progress.json beside
my_dspark.py; a page says what its judge has measured."""

import hashlib
import html
import importlib
import json
import os
import platform
import sys
from datetime import date
from importlib.metadata import version
from pathlib import Path

from ...common.about import VERSION
from ...common.files import write_json

EXERCISES = Path(__file__).parents[1] / "exercises"
LESSON = "dspark_lite.course.exercises.lesson_"  # and a number
PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>my_dspark.py</title>
<style>body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 46em; margin: 3em auto; padding: 0 1em }}
table {{ border-collapse: collapse }} td {{ border-top: 1px solid #bbb; padding: .3em 1em .3em 0; vertical-align: top }}</style></head>
<body><h1>A speculative decoder of my own</h1>
<p>Name: ______________________________</p>
<p>The judge of dspark-lite {version} has asked this of {file} and found all of it right, on {day}:</p>
<table>{findings}</table>
<h2>Exercises passed</h2>
<table>{exercises}</table>
<p>{machine}. SHA-256 of {file}: <code>{digest}</code></p></body></html>
"""


def own_file() -> Path:
    """Return the path of the reader's file: DSPARK_MINE, or my_dspark.py in the current folder, the
    notebook's."""
    return Path(os.environ.get("DSPARK_MINE") or "my_dspark.py")


def progress_file() -> Path:
    """Return the file of passed exercises, beside the reader's my_dspark.py."""
    return own_file().with_name("my_progress.json")


def passed() -> dict:
    """Return the checkers that were passed, by lesson, and what else the file holds ("bets").

    A file that cannot be read counts as empty.
    """
    try:
        known = json.loads(progress_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def in_notebook() -> bool:
    """Return whether this is a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    return getattr(ipython and ipython.get_ipython(), "kernel", None) is not None


def note(check) -> None:
    """Record that a notebook passed a checker, under every lesson that has imported it.

    Do nothing outside a notebook. Ignore a folder that cannot be written.
    """
    if not in_notebook():
        return
    known = passed()
    for module in [name for name in list(sys.modules) if name.startswith(LESSON)]:
        names = [name for name, value in vars(sys.modules[module]).items() if value is check]
        known[module[-2:]] = sorted({*known.get(module[-2:], []), *names})
    save(known)


def save(known: dict) -> None:
    """Write the file of progress. Do nothing if its folder cannot be written."""
    try:
        write_json(progress_file(), known)
    except OSError:
        pass


def exercises() -> dict[str, list[str]]:
    """Return the checkers of all lessons, by lesson."""
    modules = {
        path.stem[-2:]: importlib.import_module(LESSON + path.stem[-2:])
        for path in sorted(EXERCISES.glob("lesson_[0-9][0-9].py"))
    }
    return {
        lesson: [name for name in vars(module) if name.startswith("check_")]
        for lesson, module in modules.items()
    }


def progress() -> list[tuple[str, int, int]]:
    """Return (lesson, exercises passed, exercises with a checker) for each lesson."""
    done = passed()
    return [
        (lesson, len({*done.get(lesson, [])} & {*names}), len(names))
        for lesson, names in exercises().items()
    ]


def completion_page(path: Path, findings, device: str) -> str:
    """Return the page of a judged my_dspark.py at `path`: what was asked and what was seen, as
    HTML."""

    def rows(pairs):
        return "".join(
            "<tr>" + "".join(f"<td>{html.escape(str(part))}</td>" for part in pair) + "</tr>"
            for pair in pairs
        )

    machine = f"{device}, {platform.system()}, Python {platform.python_version()}, torch {version('torch')}"
    return PAGE.format(
        version=VERSION,
        file=html.escape(path.name),
        day=date.today().isoformat(),
        findings=rows((finding.asked, finding.said) for finding in findings),
        machine=html.escape(machine),
        exercises=rows(
            (f"lesson {lesson}", f"{right} of {count}") for lesson, right, count in progress()
        ),
        digest=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
