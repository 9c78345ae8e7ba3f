"""`keep(verify)` collects the reader's functions in a file of their own, my_dspark.py.

The file grows from lesson to lesson, in the order of the course's edition (my_dspark.py in this folder).
`keep` writes functions into the file and leaves everything else in it as the reader wrote it.
"""

import ast
import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import RequestError
from ...common.files import write_text
from ..checkers.progress import own_file

EDITION = Path(__file__).with_name("my_dspark.py")
HEADING = re.compile(r"# Lesson (\d\d)\b")  # above the first piece of a lesson
# The course writes these pieces, not the reader.
GIVEN = ("toss", "draw", "probabilities", "read", "Draft")


@dataclass(frozen=True)
class Piece:
    """A function or class of the file. `start` and `end` are its lines, decorators included.

    `comment` is the comment above it, `lesson` the number in the last "# Lesson NN" comment.
    """

    name: str
    lesson: int
    comment: str
    source: str
    start: int
    end: int


def split(text: str) -> tuple[str, dict[str, Piece]]:
    """Return the text before the first piece (docstring and imports), and the pieces by name.

    Raise SyntaxError for a text that is no Python.
    """
    lines, pieces, lesson, head_end = text.split("\n"), {}, 0, None
    for node in ast.parse(text).body:
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            continue
        start = min(part.lineno for part in (node, *node.decorator_list)) - 1
        above = start
        while above and lines[above - 1].startswith("#"):
            above -= 1
        comment = "\n".join(lines[above:start])
        heading = HEADING.match(comment)
        lesson = int(heading[1]) if heading else lesson
        source = "\n".join(lines[start : node.end_lineno])
        pieces[node.name] = Piece(node.name, lesson, comment, source, start, node.end_lineno)
        head_end = above if head_end is None else head_end
    return "\n".join(lines[:head_end]).rstrip(), pieces


def keep(*functions, path: Path | None = None) -> bool:
    """Write functions into the reader's file, in the places of the course's edition. Return True.

    So it can follow a checker: `done = exercises.check_verify(verify) and keep(verify)`. A function
    that the file has is replaced. The given pieces of the lessons so far and the edition's imports
    are added if the file lacks them. Raise RequestError for a function that is no piece of the
    edition or has no readable source, and for a file that is no Python; the file then stays.
    """
    path = path or own_file()
    head, edition = split(EDITION.read_text(encoding="utf-8"))
    sources = {function.__name__: _source(function, edition) for function in functions}
    text = _with_imports(_read(path), head) if path.exists() else head + "\n"
    present = split(text)[1].keys() | sources.keys()
    lesson = max(edition[name].lesson for name in present if name in edition)
    for name in GIVEN:
        if edition[name].lesson <= lesson and name not in present:
            sources[name] = edition[name].source
    for name, source in sources.items():
        text = _with_piece(text, name, source, edition)
    write_text(path, text)
    written = [name for name in edition if name not in GIVEN]
    present |= sources.keys()
    print(
        f"Kept in {path.name}: {sum(name in present for name in written)} of {len(written)} pieces."
    )
    return True


def _read(path: Path) -> str:
    """Return the text of the reader's file. Raise RequestError if it is no Python."""
    try:
        text = path.read_text(encoding="utf-8")
        ast.parse(text)
    except (SyntaxError, ValueError) as error:  # ValueError: bytes that are no text, or null bytes
        line = f"line {error.lineno} of " if isinstance(error, SyntaxError) and error.lineno else ""
        raise RequestError(
            f"{line}{path.name} cannot be read as Python ({getattr(error, 'msg', error)}); mend it "
            "and keep again, nothing was written"
        ) from None
    return text


def _with_imports(text: str, head: str) -> str:
    """Return the reader's text with the imports of the edition's `head` that it lacks."""
    body, imports = ast.parse(text).body, (ast.Import, ast.ImportFrom)
    present = {ast.unparse(node) for node in body if isinstance(node, imports)}
    wanted = [ast.unparse(node) for node in ast.parse(head).body if isinstance(node, imports)]
    missing = [line for line in wanted if line not in present]
    if not missing:
        return text
    opening = body[:1] if ast.get_docstring(ast.parse(text)) is not None else []
    future = [node for node in body if getattr(node, "module", None) == "__future__"]
    lines, at = text.split("\n"), max([node.end_lineno for node in opening + future], default=0)
    return "\n".join([*lines[:at], *missing, *lines[at:]])


def _with_piece(text: str, name: str, source: str, edition: dict[str, Piece]) -> str:
    """Return the text with the piece `name` replaced by `source`, or added to it.

    A new piece stands after those that are before it in the `edition`.
    """
    lines, pieces, order = text.split("\n"), split(text)[1], list(edition)
    rank, lesson = order.index(name), edition[name].lesson
    if name in pieces:
        piece = pieces[name]
        return "\n".join([*lines[: piece.start], source, *lines[piece.end :]])
    before = [piece for other, piece in pieces.items() if other in order[:rank]]
    after = [piece for other, piece in pieces.items() if other in order[rank + 1 :]]
    titles = (piece.comment for piece in edition.values() if piece.lesson == lesson)
    title = edition[name].comment or next(filter(None, titles))
    if any(piece.comment == title for piece in after):  # it takes over the lesson's comment
        start = next(piece.start for piece in after if piece.comment == title)
        return "\n".join([*lines[:start], source, "", "", *lines[start:]])
    titled = source if any(piece.comment == title for piece in before) else f"{title}\n{source}"
    if before:
        end = max(piece.end for piece in before)
        return "\n".join([*lines[:end], "", "", titled, *lines[end:]])
    if after:
        start = min(
            piece.start - piece.comment.count("\n") - bool(piece.comment) for piece in after
        )
        return "\n".join([*lines[:start], titled, "", "", *lines[start:]])
    return f"{text.rstrip()}\n\n\n{titled}\n"


def kept_source(name: str) -> str | None:
    """Return the source of a function of the reader's file.

    None if the file has no function of this name or cannot be read.
    """
    try:
        piece = split(own_file().read_text(encoding="utf-8"))[1].get(name)
    except (OSError, SyntaxError, ValueError):
        return None
    return piece and piece.source


def _source(function, edition: dict[str, Piece]) -> str:
    """Return the source of a function. Raise RequestError if it is no piece or cannot be read."""
    if function.__name__ not in edition:
        raise RequestError(
            f"{function.__name__} is no piece of my_dspark.py; its pieces are {', '.join(edition)}"
        )
    try:
        return textwrap.dedent(inspect.getsource(function)).rstrip()
    except OSError:
        raise RequestError(
            f"the source of {function.__name__} cannot be read; define it in a cell of the "
            "notebook and keep it again"
        ) from None
