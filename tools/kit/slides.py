"""Slides of each lesson's figures, by nbconvert and reveal.js: `python -m tools.kit.slides` writes
build/slides/NN_name.html.

A deck is made from the committed notebook: what the lesson teaches, then the figures of its
sections. A figure stands under its section's heading, with the first sentence in bold type that
follows, if there is one; the text after the figure is its note, which is printed. A deck is one
file.
"""

import re
import sys
from pathlib import Path

import nbformat
from nbconvert.exporters import SlidesExporter

from dspark_lite.common.files import ROOT, write_text

from .lessons import lesson_paths, read_notebook, tagged

OUT = ROOT / "build" / "slides"
DECK = Path(__file__).with_name("deck")
HEADING = re.compile(r"^#{2,3} (.+)$", re.M)
FOLD = re.compile(r"<details>.*?</details>", re.S)


def slide(text: str, kind: str = "slide"):
    """Return a markdown cell that is a slide, or the `notes` of the one before."""
    return nbformat.v4.new_markdown_cell(text, metadata={"slideshow": {"slide_type": kind}})


def plain(text: str) -> str:
    """Return markdown without links, folds and mathematics' dollars, which slides do not set."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", FOLD.sub("", text))
    return re.sub(r"\$([^$\n]+)\$", r"*\1*", text)


def pictures(cell) -> list[str]:
    """Return the pictures in a code cell's outputs, as addresses that hold them."""
    return [
        f"data:{kind};base64,{''.join(data.split())}"
        for output in cell.outputs
        for kind, data in output.get("data", {}).items()
        if kind in ("image/png", "image/gif")
    ]


def deck(notebook):
    """Return the slides of a lesson, as a notebook."""
    header = notebook.cells[0].source
    title = header.splitlines()[0].removeprefix("# ")
    goals = re.search(r"((?:^- .+\n(?:^ +.+\n)*)+)", header + "\n", re.M)
    cells, heading = [slide(f"# {title}\n\n{plain(goals[1]) if goals else ''}")], title
    for cell, after in zip(notebook.cells, [*notebook.cells[1:], slide("")]):
        if cell.cell_type == "markdown":
            heading = plain((HEADING.findall(cell.source) or [heading])[-1])
            continue
        is_text = after.cell_type == "markdown" and not tagged(after, "claim")
        note = plain(HEADING.split(after.source)[0]) if is_text else ""
        bold = next((words for words in note.split("**")[1::2] if len(words) > 20), "")
        # What stands before the first section is the strip "you are here".
        for picture in pictures(cell) if heading != title else []:
            figure = f'<img alt="A figure of the section: {heading}" src="{picture}">'
            cells += [slide(f"## {heading}\n\n{figure}\n\n{bold}"), slide(note, "notes")]
    return nbformat.v4.new_notebook(cells=cells, metadata={"title": title})


def html(notebook) -> str:
    """Return the deck of a lesson as one page that needs no other file."""
    exporter = SlidesExporter(extra_template_basedirs=[str(DECK.parent)], template_name=DECK.name)
    inlined = {kind: (DECK / f"reveal.{kind}").read_text("utf-8") for kind in ("css", "js")}
    return exporter.from_notebook_node(deck(notebook), resources={"deck": inlined})[0]


def main() -> int:
    """Write every lesson's deck; return the exit code."""
    for path in lesson_paths():
        write_text(OUT / f"{path.stem}.html", html(read_notebook(path)))
    folder = OUT.relative_to(ROOT)
    print(f"{len(lesson_paths())} decks in {folder}; open one in a browser.")
    print("With ?print-pdf behind its address it prints, notes too.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
