"""`make slides`: every figure of a lesson is a slide, a deck needs no other file, and Chromium shows it without an error."""

import re
import shutil
import subprocess

import nbformat
import pytest

from tools.kit import lessons, slides

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module", params=lessons.lesson_paths(), ids=lambda path: path.stem)
def lesson(request):
    """A lesson's notebook and its deck as a page."""
    notebook = lessons.read_notebook(request.param)
    return notebook, slides.html(notebook)


def test_every_figure_is_a_slide_with_a_heading(lesson):
    notebook, page = lesson
    first = next(
        at
        for at, cell in enumerate(notebook.cells)
        if cell.cell_type == "markdown" and slides.HEADING.search(cell.source)
    )
    figures = [
        picture
        for cell in notebook.cells[first:]
        if cell.cell_type == "code"
        for picture in slides.pictures(cell)
    ]
    assert figures and page.count("<img alt=") == len(figures)
    assert all(picture in page for picture in figures)
    assert page.count("<h2") == len(figures) and page.count("<h1") == 1
    assert "<li>" in page


def test_a_deck_asks_for_no_other_file(lesson):
    assert (
        re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*""", lesson[1].split("<script>")[0]) == []
    )
    assert re.findall(r"<link|<script [^>]*src", lesson[1]) == []


def test_what_is_said_after_a_figure_is_its_note():
    figure = nbformat.v4.new_code_cell(
        "draw()", outputs=[nbformat.v4.new_output("display_data", {"image/png": "AAAA"})]
    )
    texts = [
        "# 01 · A title\n\n**After this lesson you can**\n- see [this](x.md)\n  and that\n- write $f$\n\nmore",
        "## A section\n\ntext",
        "It **falls**, says **whoever** sees it. **The second is worth less than the first.** And $x$ [so](y.md) on."
        "\n\n### Exercise 1 · Next (code)\n\nnot this",
    ]
    header, section, after = map(nbformat.v4.new_markdown_cell, texts)
    cells = slides.deck(nbformat.v4.new_notebook(cells=[header, section, figure, after])).cells
    assert [cell.metadata.slideshow.slide_type for cell in cells] == ["slide", "slide", "notes"]
    assert cells[0].source == "# 01 · A title\n\n- see this\n  and that\n- write *f*\n"
    assert cells[1].source.startswith("## A section\n") and cells[1].source.endswith(
        "The second is worth less than the first."
    )
    assert cells[2].source.startswith("It **falls**") and "not this" not in cells[2].source


WATCH = "<head><script>addEventListener('error', event => document.documentElement.dataset.error = event.message)</script>"


@pytest.mark.slow(reason="starts Chromium")
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
@pytest.mark.parametrize("broken", [False, True])
def test_chromium_shows_a_deck_without_an_error(tmp_path, broken):
    text = slides.html(lessons.read_notebook(lessons.lesson_paths()[0])).replace("<head>", WATCH, 1)
    page = tmp_path / "deck.html"
    page.write_text(
        text.replace("Reveal.initialize(", "Unveil.initialize(") if broken else text,
        encoding="utf-8",
    )
    told = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--virtual-time-budget=5000",
            f"--user-data-dir={tmp_path}",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
    )
    assert bool(re.search(r'class="reveal [^"]*\bready\b', told.stdout)) is not broken
    assert ("data-error" in told.stdout.split("<body")[0].split("<head>")[0]) is broken
