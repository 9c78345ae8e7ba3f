"""The pages of the web edition as Sphinx reads them, made from committed notebooks, the pages
beside them, the package."""

import ast
import base64
import functools
import html
import importlib
import inspect
import io
import json
import pkgutil
import posixpath
import re
from urllib.parse import quote

import nbformat
from PIL import Image

from dspark_lite.common.about import REPOSITORY
from dspark_lite.common.files import ROOT
from dspark_lite.course.bets.questions import lessons_with_a_case
from dspark_lite.course.bets.score import score_numbers
from dspark_lite.course.cases.records import scene
from dspark_lite.course.checkers.checking import NOT_DONE
from dspark_lite.course.figures.widgets import WEB
from dspark_lite.course.formats import markdown
from dspark_lite.course.names import DRAFTER_LABELS
from dspark_lite.course.result_files import read
from tools.notebooks.build import without_workshop

GITHUB = f"https://github.com/{REPOSITORY}/blob/main"
COLAB = f"https://colab.research.google.com/github/{REPOSITORY}/blob/main"
DISCUSSIONS = f"https://github.com/{REPOSITORY}/discussions"
PACKAGES = ("dspark_lite",)
# Fenced code, a relative link, code in a line, a formula: only the second has groups.
LINK = re.compile(
    r"```.*?```|(?<!!)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?![a-z]+:|#)([^)\s]+)\)|`[^`\n]*`|\$[^$\n]+\$",
    re.S,
)
CITED = "references.html#"
ENTRY = re.compile(r'<a id="([\w-]+)"></a>(.*?)(?:\n\n|\Z)', re.S)
TERMS = re.compile(r"\*\*([^*]+)\*\*")
PICTURE = "image/png"
COLUMN = 800  # pixels of a picture; the column of text has 688 of them on a screen of 1280
SOLUTIONS = "notebooks/solutions"
MORE = "notebooks/more/"
DOMAIN_WORDS = {"math": "a sum", "code": "a program", "chat": "small talk"}
PICTURELESS = {"bet", "case", "score", "drafter_game", "scheduler_game"}  # drawn without a picture
COURSE = ROOT / "dspark_lite" / "course"
PLAYERS = sorted(path for kind in ("js", "css") for path in COURSE.rglob(f"*.{kind}"))
LEFT_OUT = {"setup", "claim"}  # cells that say nothing to somebody who reads


def address(link: str, page: str, pages: set[str]) -> str:
    """Return where a relative link of `page` (its path in the repository) leads: to the page made
    of a file in `pages`, else to GitHub."""
    file, _, anchor = link.partition("#")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
    if path not in pages:
        return f"{GITHUB}/{quote(path)}" + (f"#{anchor}" if anchor else "")
    there = posixpath.relpath(posixpath.splitext(path)[0] + ".html", posixpath.dirname(page))
    return there + (f"#{anchor}" if anchor else "")


def linked(text: str, page: str, pages: set[str]) -> str:
    """Return a markdown text of `page` with its relative links as HTML, which Sphinx does not
    change."""

    def anchor(match):
        if match[2] is None:
            return match[0]
        where = address(match[2], page, pages)
        kind = "external" if where.startswith("http") else "internal"
        citation = citations().get(where.partition(CITED)[2], "")
        description = f' aria-description="{html.escape(citation)}"' if citation else ""
        return f'<a class="reference {kind}" href="{where}"{description}>{match[1]}</a>'

    return LINK.sub(anchor, text)


@functools.cache
def citations() -> dict[str, str]:
    """Return {anchor: authors, title, year and place} of docs/references.md, without markup."""
    text = (ROOT / "docs" / "references.md").read_text(encoding="utf-8")
    return {name: plain(entry.partition(" — ")[0]) for name, entry in ENTRY.findall(text)}


def plain(text: str) -> str:
    """Return a markdown text without its links, emphasis and line ends."""
    return " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)|[*`]", r"\1", text).split())


def defining_lessons(notebooks: dict[str, object]) -> dict[str, str]:
    """Return {term of docs/glossary.md in small letters: page of the lesson that defines it}, of the
    lessons {path: notebook}: the one that it gives its title, else the first that prints the term
    in bold or links it with the glossary."""
    texts = {
        path.removesuffix(".ipynb"): "\n\n".join(
            cell.source for cell in notebook.cells if cell.cell_type == "markdown"
        )
        for path, notebook in notebooks.items()
    }
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    found = {}
    for anchor, entry in ENTRY.findall(glossary):
        names = TERMS.search(entry)[1].split(",")
        title = re.compile(rf"# [^\n]*\b{re.escape(names[0])}\b", re.I)
        said = re.compile(
            rf"\*\*{re.escape(names[0])}\*\*|glossary\.\w+#{re.escape(anchor)}[)\"]", re.I
        )
        lessons = [path for path, text in texts.items() if title.match(text)]
        lessons += [path for path, text in texts.items() if said.search(text)]
        if lessons:
            found |= {name.strip().lower(): lessons[0] for name in names}
    return found


def lesson_page(notebook, path: str, pages: set[str]) -> None:
    """Turn a committed notebook, at `path` in the repository, into a page, in place: links, what
    readers can do, pictures in words."""
    heading = ""
    notebook.cells[0].source = with_doors(notebook.cells[0].source, path)
    notebook.cells = [
        cell for cell in notebook.cells if not LEFT_OUT & set(cell.metadata.get("tags", []))
    ]
    names = dict(zip([cell.id for cell in code_cells(notebook)], known_names(notebook)))
    fold_imports(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            heading = (re.findall(r"^#+ (.+)$", cell.source, re.M) or [heading])[-1]
            # MyST's comments, no one else's
            cell.source = re.sub(
                r"^(?=%|\+\+\+)", r"\\", linked(cell.source, path, pages), flags=re.M
            )
            continue
        cell.metadata["mystnb"] = fold(cell)
        # without data: numbers for the text
        seen = [output for output in cell.outputs if output.get("data", True)]
        if any(is_wide(output) for output in seen):  # the theme lets it have the margin, too
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "full-width"]
        cell.outputs = [
            shown for output in seen if not is_stub(output) for shown in with_widget(output)
        ]
        if "exercise" in cell.metadata.get("tags", []):
            door = nbformat.v4.new_output("display_data", {"text/html": exercise_door(path)})
            cell.outputs.append(door)
        if pictures := [output for output in cell.outputs if PICTURE in output.get("data", {})]:
            cell.metadata["mystnb"]["image"] = {
                "alt": description(cell.source, pictures[0], names[cell.id], heading)
            }


# the first line of a cell that Colab and Jupyter show closed
FOLDED = re.compile(r"#\s*@title (.+)\n")


def fold_imports(notebook) -> None:
    """Give the cell that a lesson begins with a title, as folded cells have, if it imports."""
    first = next(iter(code_cells(notebook)), None)
    if first and first.source.startswith(("import ", "from ")):
        first.source = f"# @title Imports and setup\n{first.source}"


def fold(cell) -> dict:
    """Move a folded cell's title out of its code and return MyST-NB's settings, which close the
    cell on the page, too."""
    match = FOLDED.match(cell.source)
    if not match:
        return {}
    cell.source = cell.source[match.end() :]
    cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
    return {f"code_prompt_{state}": f"Code: {match[1]}" for state in ("show", "hide")}


def is_wide(output) -> bool:
    """Return whether an output shows a picture, or frames of one, whose letters would be small in the
    column of text."""
    picture = output.get("data", {}).get(PICTURE)
    drawn = json.loads(output.get("metadata", {}).get(WEB, '{"drawing": "frames"}'))["drawing"]
    if not picture or drawn != "frames":
        return False
    with Image.open(io.BytesIO(base64.b64decode(picture))) as image:
        return image.width > COLUMN


def is_stub(output) -> bool:
    """Return whether an exercise that nobody has done yet put this out: its dots, or what its checker
    says of them."""
    dots = output.get("data", {}).get("text/plain") == "Ellipsis"
    return dots or NOT_DONE.partition(":")[0] in output.get("text", "")


def exercise_door(path: str) -> str:
    """Return, in HTML, where a reader of a page can do an exercise of the notebook at `path`."""
    install = posixpath.relpath("docs/install.html", posixpath.dirname(path))
    return (
        f'<p class="door">Write it <a href="{COLAB}/{path}">in Colab</a>, or '
        f'<a href="{install}">on your computer</a>: its checker names a mistake.</p>'
    )


def with_widget(output) -> list:
    """Return an output, after the place for a drawing if the lesson has computed one for the web
    edition."""
    if WEB not in output.get("metadata", {}):
        return [output]
    drawn = json.loads(output.metadata.pop(WEB))
    if drawn["drawing"] == "frames":  # a page has one of the controls
        drawn["numbers"]["controls"] = output.data["text/plain"].partition("controls: ")[2]
    shown = drawing_place(json.dumps(drawn, ensure_ascii=False))
    place = nbformat.v4.new_output("display_data", {"text/html": shown})
    return [place] if drawn["drawing"] in PICTURELESS else [place, output]


def drawing_place(given: str) -> str:
    """Return the place, in HTML, in which a page's scripts draw; `given` is the JSON of a drawing's
    name and its numbers."""
    drawn, named = json.loads(given), ""
    kind = f"course-own course-{drawn['drawing'].removeprefix('living_')}"
    if drawn["drawing"] == "bet":
        named = f' data-bet="{html.escape(drawn["numbers"]["name"])}"'
    safe = given.replace("</", "<\\/")
    return (
        f'<div class="{kind}"{named} hidden><script type="application/json">{safe}</script></div>'
    )


def with_answers(notebook, solutions) -> None:
    """Give the cells tagged `answer` what they have measured, from the edition with solutions, which
    loses its workshop: on a page it is hidden until the reader has bet."""
    without_workshop(solutions)
    measured = {cell.source: cell.outputs for cell in solutions.cells if "outputs" in cell}
    for cell in code_cells(notebook):
        if "answer" in cell.metadata.get("tags", []):
            cell.outputs += [
                output
                for output in measured.get(cell.source, [])
                if WEB not in output.get("metadata", {})
            ]


def with_doors(header: str, path: str) -> str:
    """Return a lesson's first cell with what a reader of the page can do instead of the badge's
    line."""
    name = posixpath.basename(path)
    doors = f'[Open in Colab]({COLAB}/{path}) · <a href="{name}" download>Download the notebook</a>'
    if (ROOT / SOLUTIONS / name).exists():
        doors += f" · [Solutions]({GITHUB}/{SOLUTIONS}/{name})"
    return re.sub(r"^\[!\[Open in Colab\].*$", lambda _: doors, header, count=1, flags=re.M)


def imported(code: str) -> dict[str, object]:
    """Return {name: object} of what a cell imports from the packages."""
    found = {}
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] in PACKAGES:
            found |= {
                alias.asname or alias.name: member(node.module, alias.name) for alias in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {
                alias.name: importlib.import_module(alias.name)
                for alias in node.names
                if alias.name in PACKAGES
            }
    return found


def known_names(notebook) -> list[dict[str, object]]:
    """Return for each code cell of a lesson {name: object} of what is imported so far; a name that
    it defines anew is left out."""
    known, by_cell = {}, []
    for cell in code_cells(notebook):
        own = {
            node.name
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, (ast.FunctionDef, ast.ClassDef))
        }
        known = {
            name: thing
            for name, thing in (known | imported(cell.source)).items()
            if name not in own
        }
        by_cell.append(known)
    return by_cell


def code_cells(notebook) -> list:
    """Return the cells of a lesson that hold code."""
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def member(module: str, name: str):
    """Return what `from module import name` imports."""
    owner = importlib.import_module(module)
    return (
        getattr(owner, name)
        if hasattr(owner, name)
        else importlib.import_module(f"{module}.{name}")
    )


def description(code: str, output, names: dict[str, object], heading: str) -> str:
    """Return the alternative text of a cell's picture: what a figure or a widget says of itself,
    else what the function that draws it says that it draws, else the heading."""
    said = output.data.get("text/plain", "")
    if not said.startswith("<"):
        return said
    for call in reversed(
        [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Call)]
    ):
        drawing = resolve(call.func, names)
        if inspect.isfunction(drawing) and ".figures." in drawing.__module__:
            verb, _, drawn = first_paragraph(drawing).replace("`", "").partition(" ")
            if verb == "Draw":
                return drawn[0].upper() + drawn[1:]
    return f"A picture: {heading}"


def resolve(node, names: dict[str, object]):
    """Return the object of a name or a dotted name, None if it is not known."""
    if isinstance(node, ast.Attribute):
        return getattr(resolve(node.value, names), node.attr, None)
    return names.get(node.id) if isinstance(node, ast.Name) else None


def first_paragraph(thing) -> str:
    """Return the first paragraph of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def rooms(package: str = "dspark_lite") -> list[str]:
    """Return a package, followed by the rooms inside it, each followed by its own."""
    return [
        package,
        *(room for found in inside(package) if found.ispkg for room in rooms(found.name)),
    ]


def inside(package: str) -> list:
    """Return the modules directly in a package, without `__main__`."""
    found = pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}.")
    return [module for module in found if not module.name.endswith("__main__")]


def reference_page(room: str) -> str:
    """Return the page of a package or one of its rooms: docstrings of it, its modules and their
    members."""
    files = [found.name for found in inside(room) if not found.ispkg]
    parts = [f"## {name.rpartition('.')[2]}\n\n{automodule(name, ':members:')}" for name in files]
    return "\n\n".join([f"# {room}", automodule(room, ":no-members:"), *parts]) + "\n"


def automodule(name: str, option: str) -> str:
    """Return Sphinx's directive for a module."""
    return f"```{{eval-rst}}\n.. automodule:: {name}\n   {option}\n```"


def reference_index() -> str:
    """Return the page that leads to those of the rooms."""
    table = markdown(
        ["room", "what lives there"],
        [
            [f"[`{name}`]({name}.md)", first_paragraph(importlib.import_module(name))]
            for name in rooms()
        ],
    )
    return "\n".join(
        [
            "# Reference\n\nWhat the lessons import, and the source of each function.\n",
            table,
            "\n```{toctree}\n:hidden:\n",
            *rooms(),
            "```\n",
        ]
    )


def reference(thing) -> str | None:
    """Return the full name under which a thing of the packages is documented; None if it is not."""
    if inspect.ismodule(thing):
        return thing.__name__
    name = f"{getattr(thing, '__module__', '')}.{getattr(thing, '__qualname__', '')}"
    return name if name.partition(".")[0] in PACKAGES else None


NAME = re.compile(
    r'<span class="n">(\w+)</span>(?:<span class="o">\.</span><span class="n">(\w+)</span>)?'
)


def with_references(block: str, names: dict[str, object], places: dict[str, str]) -> str:
    """Return a cell's highlighted code with links on its names: `names` has their objects, `places`
    where those are documented."""

    def link(match):
        thing = names.get(match[1])
        inner = getattr(thing, match[2], None) if match[2] and inspect.ismodule(thing) else None
        where = places.get(reference(inner if inner is not None else thing))
        return f'<a class="in-reference" href="{where}">{match[0]}</a>' if where else match[0]

    return NAME.sub(link, block)


PARTS = {  # first lesson of each part
    0: "The idea: guess, check, keep the text",
    4: "Drafters: a block at once, each token after the last",
    9: "Confidence, the scheduler, a server",
    12: "The paper, production, and what goes wrong",
    15: "Further, in any order",
}


def lesson_tables(notebooks: dict[str, object]) -> str:
    """Return the lessons {path: notebook} by part, each a markdown table with the minutes that they
    state."""
    parts, rows = [], []
    for number, (path, notebook) in enumerate(notebooks.items()):
        if number in PARTS:
            rows = []
            parts.append((PARTS[number], rows))
        header, stated = notebook.cells[0].source, notebook.cells[0].metadata
        minutes = f"{stated['minutes']} min ({stated['difficulty']})" if "minutes" in stated else ""
        rows.append([f"[{header.splitlines()[0].lstrip('# ')}]({path})", minutes])
    head = ["lesson", "to work through"]
    return "\n\n".join(f"### {name}\n\n{markdown(head, rows)}" for name, rows in parts)


def hours(notebooks: dict[str, object]) -> int:
    """Return the hours that the numbered lessons of {path: notebook} state together."""
    numbered = [book for path, book in notebooks.items() if not path.startswith(MORE)]
    return round(sum(book.cells[0].metadata.get("minutes", 0) for book in numbered) / 60)


def bets_place() -> str:
    """Return the place in which a page draws the score of all bets and cases."""
    return player_place("score", score_numbers())


def case_places() -> str:
    """Return the places in which a page plays all cases."""
    return "\n\n".join(player_place("case", scene(number)) for number in lessons_with_a_case())


def player_place(name: str, scene: dict) -> str:
    """Return the place in which the drawing `name` of page.js plays a scene."""
    return drawing_place(json.dumps({"drawing": name, "numbers": scene}, ensure_ascii=False))


def race_place() -> str:
    """Return the place in which a page plays the recorded races."""
    recorded = read(
        ROOT / "assets" / "measurements" / "race.json", "python -m tools.notebooks.race"
    )
    used = next(iter(recorded["races"].values()))["drafters"]
    numbers = {
        "races": recorded["races"],
        "device": recorded["device"],
        "domains": {name: DOMAIN_WORDS.get(name, name) for name in recorded["races"]},
        "drafters": {name: DRAFTER_LABELS.get(name, name) for name in used},
    }
    return player_place("race", numbers)


def own_files() -> list[str]:
    """Return the paths in the repository of what becomes a page: the lessons, the pages beside them
    and on the package."""
    patterns = ("notebooks/[0-9][0-9]_*.ipynb", f"{MORE}*.ipynb", "docs/*.md", "docs/teaching/*.md")
    return [
        path.relative_to(ROOT).as_posix()
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
    ]
