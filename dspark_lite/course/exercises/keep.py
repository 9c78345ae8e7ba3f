"""`keep(verify)`: what the reader wrote, and a checker passed, is collected in a file of the reader's own, my_dspark.py.

The file grows from lesson to lesson. Its order, its comments and the pieces that a lesson gives away are those of the
course's own edition (my_dspark.py in this folder); a function stands in it once the reader has kept theirs.
"""

import ast
import inspect
import os
import textwrap
from dataclasses import dataclass
from pathlib import Path

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import write_text

EDITION = Path(__file__).with_name("my_dspark.py")
GIVEN = (
    "toss",
    "draw",
    "probabilities",
    "read",
    "Draft",
)  # written by the course, not by the reader


@dataclass(frozen=True)
class Piece:
    """A function or class of the file: its name, its lesson's number, the comment above it, and its source."""

    name: str
    lesson: int
    comment: str
    source: str


def own_file() -> Path:
    """Where the reader's file stands: DSPARK_MINE, or my_dspark.py beside the notebook."""
    return Path(os.environ.get("DSPARK_MINE") or "my_dspark.py")


def split(text: str) -> tuple[str, dict[str, Piece]]:
    """What stands before the first piece of a file (docstring and imports), and its pieces by name, in order.

    A comment "# Lesson 05: ..." above a piece holds for those after it, too.
    """
    lines, pieces, lesson = text.splitlines(), {}, 0
    nodes = [
        node for node in ast.parse(text).body if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    ]
    for node in nodes:
        first = node.lineno - 1
        while first and lines[first - 1].startswith("#"):
            first -= 1
        comment = "\n".join(lines[first : node.lineno - 1])
        lesson = int(comment[9:11]) if comment.startswith("# Lesson ") else lesson
        pieces[node.name] = Piece(
            node.name, lesson, comment, "\n".join(lines[node.lineno - 1 : node.end_lineno])
        )
    end = (
        nodes[0].lineno
        - 1
        - pieces[nodes[0].name].comment.count("\n")
        - bool(pieces[nodes[0].name].comment)
        if nodes
        else len(lines)
    )
    return "\n".join(lines[:end]).rstrip(), pieces


def keep(*functions, path: Path | None = None) -> bool:
    """Writes functions into the reader's file, in the places that the course's edition has for them; True, to be said after
    a checker's verdict: `done = exercises.check_verify(verify) and keep(verify)`.

    A function that stands there already is replaced. The pieces that the lessons so far give away come with it.
    Raises RequestError for a function that the file has no place for, or whose source cannot be read.
    """
    path = path or own_file()
    head, edition = split(EDITION.read_text(encoding="utf-8"))
    kept = split(path.read_text(encoding="utf-8"))[1] if path.exists() else {}
    sources = {name: piece.source for name, piece in kept.items()} | {
        f.__name__: _source(f, edition) for f in functions
    }
    lesson = max(edition[name].lesson for name in sources if name in edition)
    sources |= {name: edition[name].source for name in GIVEN if edition[name].lesson <= lesson}
    text, shown = head, None
    for name in [*edition, *(name for name in sources if name not in edition)]:
        if name in sources:
            place = edition.get(name)
            opens = place is not None and place.lesson != shown
            comments = [
                piece.comment
                for piece in edition.values()
                if place and piece.lesson == place.lesson and piece.comment
            ]
            text += "\n\n\n" + (f"{comments[0]}\n" if opens and comments else "") + sources[name]
            shown = place.lesson if place else shown
    write_text(path, text + "\n")
    written = [name for name in edition if name not in GIVEN]
    print(
        f"Kept in {path.name}: {sum(name in sources for name in written)} of {len(written)} pieces."
    )
    return True


def kept_source(name: str) -> str | None:
    """Return the source of a function of the reader's file, None if it has none of this name or cannot be read."""
    try:
        piece = split(own_file().read_text(encoding="utf-8"))[1].get(name)
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    return piece and piece.source


def _source(function, edition: dict[str, Piece]) -> str:
    if function.__name__ not in edition:
        raise RequestError(
            f"{function.__name__} is no piece of my_dspark.py; its pieces are {', '.join(edition)}"
        )
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except OSError:
        raise RequestError(
            f"the source of {function.__name__} cannot be read; define it in a cell of the notebook and keep it again"
        ) from None
