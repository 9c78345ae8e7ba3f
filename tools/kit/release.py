"""The student edition: the course without answers, in build/student and as build/student.zip.

`python -m tools.kit.release` takes what git tracks. Answers stand in seven places: notebooks/solutions and the links to it, the sources
in notebooks/src, the folds inside the lessons, the outputs, the checkers in dspark_lite/course/exercises with a right function for every
exercise, the course's own my_dspark.py, and git's history. None of them comes along; the checkers come packed, so that nobody
reads them by accident. Who wants to can unpack them: what decides about marks is `make grade`, on cases of its own.
"""

import argparse
import ast
import base64
import hashlib
import re
import shutil
import subprocess
import sys
import zlib
from pathlib import Path

import nbformat

from dspark_lite.common.about import REPOSITORY, VERSION
from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT, write_text
from tools.errors import report_errors
from dspark_lite.course.exercises.keep import EDITION, GIVEN
from .fork import check_repository, renamed
from .lessons import EXERCISE, answer_names, lesson_paths, read_notebook, tagged

OUT = ROOT / "build" / "student"
PARTS = (
    "LICENSE",
    "CITATION.cff",
    "course.py",
    "pyproject.toml",
    "requirements.txt",
    "constraints/pins.txt",
    "assets/",
    "docs/",
    "dspark_lite/",
    "notebooks/",
    "tools/__init__.py",
    "tools/kit/__init__.py",
    "tools/kit/project.py",
)
WITHHELD = (
    "docs/house.md",
    "docs/changelog.md",
    "docs/teaching/",
    "notebooks/solutions/",
    "notebooks/src/",
)
EXERCISES = "dspark_lite/course/exercises/"
FOLD = re.compile(r"<details><summary>(.*?)</summary>.*?</details>\n?", re.S)
SECTION = re.compile(r"^#{1,6} [^\n]*$", re.M)
PACKED = '''
from .packed import unpack  # noqa: E402

unpack(globals(), """
{true}
""", """
{shown}
""")
'''
UNPACK = '''"""Runs a module of checkers that the student edition has packed."""

import linecache
import zlib
from base64 import b85decode


def unpack(scope, true, shown):
    """Runs the packed source in the module with these globals; `inspect` sees the classes in it, and no function."""
    source, visible = (zlib.decompress(b85decode("".join(text.split()))).decode() for text in (true, shown))
    linecache.cache[scope["__file__"]] = len(visible), None, visible.splitlines(keepends=True), scope["__file__"]
    exec(compile(source, scope["__file__"], "exec"), scope)
'''
README = """# {title}

The student edition, version {version}: lessons without answers. You need Python 3.10 to 3.13; then, in this folder,

    python course.py lab

installs what the lessons need into `.venv` and opens them in JupyterLab. A lesson's checkers say what is wrong with an answer; `keep`
collects the right ones in `my_dspark.py`, and `python course.py progress` says how far you are. To hand a lesson in, save its notebook.

{lessons}
"""


def tracked() -> list[str]:
    """The files that git tracks, relative to the root; raises RequestError outside a clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        raise RequestError(
            "a release is made of what git tracks, and this folder is no clone; clone the repository and try again"
        )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def without_answers(notebook, lesson: str, badge: bool):
    """The notebook with neither outputs, links to solutions nor folds that answer; hints stay, and the `badge` where it is to."""
    in_exercise = False
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
            continue
        if cell.cell_type != "markdown":
            continue
        text, at = "", 0
        for found in re.finditer(f"{SECTION.pattern}|{FOLD.pattern}", cell.source, re.M | re.S):
            if found[1] is None:
                in_exercise = bool(EXERCISE.fullmatch(found[0]))
            elif (
                found[1].startswith(("Answer", "One answer"))
                or in_exercise
                and not found[1].startswith("Hint")
            ):
                text += cell.source[at : found.start()]
                at = found.end()
        cell.source = (text + cell.source[at:]).rstrip("\n")
        if tagged(cell, "header"):
            cell.source = cell.source.replace(f" · [Solutions](solutions/{lesson}.ipynb)", "")
            cell.source = (
                cell.source
                if badge
                else re.sub(r"^\[!\[Open in Colab\].*\n\n", "", cell.source, flags=re.M)
            )
    return notebook


def blanked(source: str, shown) -> str:
    """A module's source with empty lines for all statements at its top that are not `shown`, so that lines keep their numbers."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not shown(node):
            first = min(
                [
                    node.lineno,
                    *(decorator.lineno for decorator in getattr(node, "decorator_list", [])),
                ]
            )
            lines[first - 1 : node.end_lineno] = [""] * (node.end_lineno - first + 1)
    return "\n".join(lines)


def pack(text: str) -> str:
    """A text as printable characters, 120 a line."""
    letters = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    return "\n".join(letters[at : at + 120] for at in range(0, len(letters), 120))


def packed(source: str) -> str:
    """A module of checkers that runs as before and does not show how."""
    shown = blanked(
        source, lambda node: isinstance(node, (ast.Import, ast.ImportFrom, ast.ClassDef))
    )
    says = f'"""{ast.get_docstring(ast.parse(source)).splitlines()[0]}\n\nPacked, so that nobody reads an answer by accident.\n"""\n'
    return says + PACKED.format(true=pack(source), shown=pack(shown))


def hollow(source: str) -> str:
    """The course's own my_dspark.py with the pieces that a reader writes packed: `keep` reads the order and the given pieces from it."""
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name not in GIVEN:
            lines[node.lineno - 1 : node.end_lineno] = [f"def {node.name}(*_): ..."]
    return "\n".join([*lines, "", PACKED.format(true=pack(source), shown=pack(""))])


def edition(name: str, answers: set[str], badge: bool) -> str | None:
    """A file's text in the student edition, None where it is the file itself; notebooks keep the `badge` or not."""
    path = ROOT / name
    if path.suffix == ".ipynb":
        return nbformat.writes(without_answers(read_notebook(path), path.stem, badge)) + "\n"
    if path == EDITION:
        return hollow(path.read_text(encoding="utf-8"))
    if name.startswith(EXERCISES) and path.suffix == ".py":
        source = path.read_text(encoding="utf-8")
        names = {
            node.name
            for node in ast.parse(source).body
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        if names & answers or path.name.startswith("lesson_"):
            return packed(source)
    return None


def release(out: Path = OUT, repository: str | None = None, tag: str = "") -> list[str]:
    """Write the student edition to `out`, anew; links and badges lead to `repository`, where there is one, at its `tag`.

    Return the edition's files.
    """
    answers = set().union(*map(answer_names, lesson_paths()))
    names = [name for name in tracked() if name.startswith(PARTS) and not name.startswith(WITHHELD)]
    shutil.rmtree(out, ignore_errors=True)
    for name in names:
        text = edition(name, answers, badge=repository is not None)
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        if text is None:
            shutil.copy2(ROOT / name, out / name)
        else:
            write_text(out / name, text)
        if repository and (out / name).suffix in (".ipynb", ".md", ".py", ".cff"):
            write_text(
                out / name,
                renamed((out / name).read_text(encoding="utf-8"), REPOSITORY, repository, tag),
            )
    write_text(out / EXERCISES / "packed.py", UNPACK)
    titles = {
        path: read_notebook(path).cells[0].source.splitlines()[0].removeprefix("# ")
        for path in lesson_paths()
    }
    lessons = [f"- [{title}](notebooks/{path.name})" for path, title in titles.items()]
    write_text(
        out / "README.md",
        README.format(title=REPOSITORY.split("/")[1], version=VERSION, lessons="\n".join(lessons)),
    )
    files = sorted(path for path in out.rglob("*") if path.is_file())
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(out).as_posix()}"
        for path in files
    ]
    write_text(out / "MANIFEST.txt", "\n".join(sums) + "\n")
    return [path.relative_to(out).as_posix() for path in files]


@report_errors
def main(arguments: list[str] | None) -> None:
    parser = argparse.ArgumentParser(
        prog="release",
        description="Write the student edition to build/student and build/student.zip.",
    )
    parser.add_argument(
        "--repository",
        metavar="OWNER/NAME",
        help="where the edition will lie; badges and setup cells lead there",
    )
    parser.add_argument(
        "--tag", default="", help="the tag or branch there that badges open and setup cells clone"
    )
    options = parser.parse_args(arguments)
    if options.tag and not options.repository:
        raise RequestError("a tag is one of a repository: give --repository OWNER/NAME too")
    if options.repository:
        check_repository(options.repository, options.tag)
    files = release(OUT, options.repository, options.tag)
    archive = Path(shutil.make_archive(str(OUT), "zip", OUT.parent, OUT.name))
    print(
        f"{len(files)} files in {OUT.relative_to(ROOT)}, packed in {archive.relative_to(ROOT)} ({archive.stat().st_size / 1e6:.0f} MB)"
    )


if __name__ == "__main__":
    sys.exit(main())
