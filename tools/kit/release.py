"""The student edition: the course without answers, in build/student and as build/student.zip.

`python -m tools.kit.release` takes what git tracks. Answers stand in seven places:
notebooks/solutions and the links to it, the sources in notebooks/src, the folds inside the lessons,
the outputs, the checkers with a right function for every exercise (CHECKERS), the course's own
my_dspark.py, and git's history. None of them comes along; the checkers come
packed, so that nobody reads them by accident. Who wants to can unpack them: what decides about
marks is `make grade`, on cases of its own.
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

from course import COMMANDS
from dspark_lite.common.about import REPOSITORY, VERSION
from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT, write_text
from dspark_lite.course.own_decoder.keep import EDITION, GIVEN
from tools.errors import report_errors

from .fork import check_repository, renamed
from .lessons import EXERCISE, answer_names, by_hand, lesson_paths, read_notebook, tagged
from .marks import PLACE, PLACEHOLDER, RULE

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
    "tools/errors.py",
    "tools/gpu.py",
    "tools/hub_server.py",
    "tools/judges/",
    "tools/measure/",
    "tools/notebooks/__init__.py",
    "tools/notebooks/figures.py",
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
CHECKERS = tuple(
    f"dspark_lite/course/{folder}/" for folder in ("exercises", "own_decoder", "checkers", "clinic")
)
FOLD = r"<details><summary>(.*?)</summary>.*?</details>\n?"
HEADING_OR_FOLD = re.compile(rf"^#{{1,6}} [^\n]*$|{FOLD}", re.M | re.S)
BADGE = r"^\[!\[Open in Colab\].*\n\n"
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
    """Run the packed source in the module with these globals; `inspect` sees the classes in it, and no function."""
    source, visible = (zlib.decompress(b85decode("".join(text.split()))).decode() for text in (true, shown))
    linecache.cache[scope["__file__"]] = len(visible), None, visible.splitlines(keepends=True), scope["__file__"]
    exec(compile(source, scope["__file__"], "exec"), scope)
'''
MAKEFILE = """# What course.py does, for those who say make.
PYTHON ?= python3
# Byte code is written when a module is first imported.
unexport PYTHONDONTWRITEBYTECODE
COMMANDS := {commands}

.PHONY: $(COMMANDS)

$(COMMANDS):
\t$(PYTHON) course.py $@ $(ARGS)
"""
README = """# {title}

The student edition, version {version}: lessons without answers. You need Python 3.10 to 3.13; then, in this folder,

    python course.py lab

installs what the lessons need into `.venv` and opens them in JupyterLab. A lesson's checkers say what is wrong with an answer; `keep`
collects the right ones in `my_dspark.py`, and `python course.py progress` says how far you are.

{lessons}

## To hand a lesson in

Save its notebook and hand in that file.

{rule}
"""


def tracked() -> list[str]:
    """Return the files that git tracks, relative to the root. Raise RequestError outside a
    clone."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        raise RequestError(
            "a release is made of what git tracks, and this folder is no clone; clone the repository and try again"
        )
    return [name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def without_answers(notebook, lesson: str, badge: bool):
    """Return the notebook without outputs, links to solutions and folds that answer; hints stay,
    and the `badge` if it is wanted. An exercise that a person marks gets a cell for the answer."""
    in_exercise, cells, by_person = False, [], by_hand(notebook)

    def kept(found):
        nonlocal in_exercise
        if found[1] is None:  # a heading
            in_exercise = bool(EXERCISE.fullmatch(found[0]))
            return found[0]
        answers = found[1].startswith(("Answer", "One answer"))
        return "" if answers or in_exercise and not found[1].startswith("Hint") else found[0]

    for cell in notebook.cells:
        cells.append(cell)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
        if cell.cell_type != "markdown":
            continue
        cell.source = HEADING_OR_FOLD.sub(kept, cell.source).rstrip("\n")
        if tagged(cell, "header"):
            cell.source = cell.source.replace(f" · [Solutions](solutions/{lesson}.ipynb)", "")
            if not badge:
                cell.source = re.sub(BADGE, "", cell.source, flags=re.M)
        for heading in EXERCISE.findall(cell.source):
            if heading in by_person:
                cells += with_place(cells.pop(), heading)
    notebook.cells = cells
    return notebook


def with_place(cell, heading: str) -> list:
    """Return a cell of text as two or three, with one to write in below the exercise's question:
    behind its last hint, or where the next heading stands."""
    start = cell.source.index(heading)
    end = min(
        (
            at
            for at in (cell.source.find(f"\n{marks} ", start) for marks in ("##", "###"))
            if at > 0
        ),
        default=len(cell.source),
    )
    fold = cell.source.rfind("</details>", start, end)
    end = fold + len("</details>") if fold > 0 else end
    number = re.search(r"\d+", heading)[0]
    text = f"{PLACE.format(number=number)}\n\n{PLACEHOLDER}"
    place = nbformat.v4.new_markdown_cell(text, metadata={"tags": ["written"]})
    place.id = f"{cell.id}-answer-{number}"
    after = nbformat.v4.new_markdown_cell(cell.source[end:].strip("\n"))
    after.id = f"{cell.id}-after-{number}"
    cell.source = cell.source[:end].rstrip("\n")
    return [cell, place, after] if after.source else [cell, place]


def blanked(source: str, shown) -> str:
    """Return a module's source with empty lines for all top statements that are not `shown`, so
    that lines keep their numbers."""
    lines = source.splitlines()
    for node in ast.parse(source).body:
        if not shown(node):
            decorators = getattr(node, "decorator_list", [])
            first = min(part.lineno for part in [node, *decorators])
            lines[first - 1 : node.end_lineno] = [""] * (node.end_lineno - first + 1)
    return "\n".join(lines)


def pack(text: str) -> str:
    """Return a text as printable characters, 120 a line."""
    letters = base64.b85encode(zlib.compress(text.encode(), 9)).decode()
    return "\n".join(letters[at : at + 120] for at in range(0, len(letters), 120))


def packed(source: str) -> str:
    """Return a module of checkers that runs as before and does not show how."""
    visible = (ast.Import, ast.ImportFrom, ast.ClassDef)
    shown = blanked(source, lambda node: isinstance(node, visible))
    says = f'"""{ast.get_docstring(ast.parse(source)).splitlines()[0]}\n\nPacked, so that nobody reads an answer by accident.\n"""\n'
    return says + PACKED.format(true=pack(source), shown=pack(shown))


def hollow(source: str) -> str:
    """Return the course's own my_dspark.py with the pieces that a reader writes packed: `keep`
    reads the order and the given pieces."""
    lines = source.splitlines()
    for node in reversed(ast.parse(source).body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name not in GIVEN:
            lines[node.lineno - 1 : node.end_lineno] = [f"def {node.name}(*_): ..."]
    return "\n".join([*lines, "", PACKED.format(true=pack(source), shown=pack(""))])


def edition(name: str, answers: set[str], badge: bool) -> str | None:
    """Return a file's text in the student edition, None if the file stays as it is; notebooks keep
    the `badge` or not."""
    path = ROOT / name
    if path.suffix == ".ipynb":
        return nbformat.writes(without_answers(read_notebook(path), path.stem, badge)) + "\n"
    if path == EDITION:
        return hollow(path.read_text(encoding="utf-8"))
    if name.startswith(CHECKERS) and path.suffix == ".py":
        source = path.read_text(encoding="utf-8")
        names = {getattr(node, "name", None) for node in ast.parse(source).body}
        if names & answers or path.name.startswith("lesson_"):
            return packed(source)
    return None


def release(out: Path = OUT, repository: str | None = None, tag: str = "") -> list[str]:
    """Write the student edition to `out`, anew; links and badges lead to `repository`, where there
    is one, at its `tag`.

    Return the edition's files.
    """
    answers = set().union(*map(answer_names, lesson_paths()))
    names = [name for name in tracked() if name.startswith(PARTS) and not name.startswith(WITHHELD)]
    shutil.rmtree(out, ignore_errors=True)
    for name in names:
        text, file = edition(name, answers, badge=repository is not None), out / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if repository and file.suffix in (".ipynb", ".md", ".py", ".cff"):
            text = (ROOT / name).read_text(encoding="utf-8") if text is None else text
            text = renamed(text, REPOSITORY, repository, tag)
        if text is None:
            shutil.copy2(ROOT / name, file)
        else:
            write_text(file, text)
    for folder in CHECKERS:
        write_text(out / folder / "packed.py", UNPACK)
    lessons = []
    for path in lesson_paths():
        title = read_notebook(path).cells[0].source.splitlines()[0].removeprefix("# ")
        lessons.append(f"- [{title}](notebooks/{path.name})")
    fields = {
        "title": REPOSITORY.split("/")[1],
        "version": VERSION,
        "lessons": "\n".join(lessons),
        "rule": RULE,
    }
    write_text(out / "README.md", README.format(**fields))
    commands = [name for name, command in COMMANDS.items() if (out / command.needs).exists()]
    write_text(out / "Makefile", MAKEFILE.format(commands=" ".join(commands)))
    files = sorted(path for path in out.rglob("*") if path.is_file())
    places = {path.relative_to(out).as_posix(): path.read_bytes() for path in files}
    sums = [f"{hashlib.sha256(held).hexdigest()}  {name}" for name, held in places.items()]
    write_text(out / "MANIFEST.txt", "\n".join(sums) + "\n")
    return list(places)


@report_errors
def main(arguments: list[str] | None) -> None:
    says = "Write the student edition to build/student and build/student.zip."
    parser = argparse.ArgumentParser(prog="release", description=says)
    says = "where the edition will lie; badges and setup cells lead there"
    parser.add_argument("--repository", metavar="OWNER/NAME", help=says)
    says = "the tag or branch there that badges open and setup cells clone"
    parser.add_argument("--tag", default="", help=says)
    options = parser.parse_args(arguments)
    if options.tag and not options.repository:
        raise RequestError("a tag is one of a repository: give --repository OWNER/NAME too")
    if options.repository:
        check_repository(options.repository, options.tag)
    files = release(OUT, options.repository, options.tag)
    archive = Path(shutil.make_archive(str(OUT), "zip", OUT.parent, OUT.name))
    size = f"{archive.stat().st_size / 1e6:.0f} MB"
    where = f"{OUT.relative_to(ROOT)}, packed in {archive.relative_to(ROOT)} ({size})"
    print(f"{len(files)} files in {where}")


if __name__ == "__main__":
    sys.exit(main())
