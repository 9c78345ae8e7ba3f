"""Build the web edition from what is committed, offline: `make site`.

The sources that Sphinx reads are written to build/site/source, the pages to build/site/html. Exits
1 where Sphinx warns: of a link that leads nowhere, a page in no table, a directive that is not
known.
"""

import json
import shutil
import sys
from importlib.metadata import distribution
from pathlib import Path

import nbformat
from sphinx.cmd.build import build_main

from dspark_lite.common.files import ROOT, write_text
from dspark_lite.course.figures import drafter_game, scheduler_game
from dspark_lite.course.replication.benchmark_results import benchmark
from tools.site import pages
from tools.site.light import SCRIPTS, bundle, lighten

HERE = Path(__file__).parent
SOURCE, PAGES, DOCTREES = (
    ROOT / "build" / "site" / name for name in ("source", "html", "doctrees")
)


def write_sources(folder: Path) -> None:
    """Write everything that becomes a page, and the pictures that pages show."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(HERE / "pages", folder)
    shutil.copytree(
        ROOT / "assets" / "figures",
        folder / "assets" / "figures",
        ignore=shutil.ignore_patterns("*.md"),
    )
    files, notebooks = {*pages.own_files(), *(page.name for page in folder.glob("*.md"))}, {}
    for path in pages.own_files():
        if path.endswith(".ipynb"):
            notebooks[path] = nbformat.read(ROOT / path, as_version=4)
            solutions = ROOT / pages.SOLUTIONS / path.rpartition("/")[2]
            if solutions.exists():
                pages.with_answers(notebooks[path], nbformat.read(solutions, as_version=4))
            pages.lesson_page(notebooks[path], path, files)
            write_text(folder / path, nbformat.writes(notebooks[path]))
        else:
            write_text(
                folder / path, pages.linked((ROOT / path).read_text(encoding="utf-8"), path, files)
            )
    for page in folder.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        filled = {
            "lessons": lambda: pages.lesson_tables(notebooks),
            "hours": lambda: str(pages.hours(notebooks)),
            "race": pages.race_place,
            "bets": pages.bets_place,
            "drafter_game": lambda: pages.player_place("drafter_game", drafter_game.game_scene()),
            "scheduler_game": lambda: pages.player_place(
                "scheduler_game", scheduler_game.game_scene()
            ),
            "cases": pages.case_places,
            "colab": lambda: pages.COLAB,
            "discussions": lambda: pages.DISCUSSIONS,
            "times": lambda: f"{benchmark()['macro_speedup']['dspark']:.1f}",
        }
        for name, words in filled.items():
            if f"{{{{{name}}}}}" in text:
                text = text.replace(f"{{{{{name}}}}}", words())
        write_text(page, pages.linked(text, page.name, files))
    write_text(SCRIPTS / "page.js", bundle("page"))
    defined = json.dumps(pages.defining_lessons(notebooks), ensure_ascii=False)
    scorer = (HERE / "scripts" / "scorer.js").read_text(encoding="utf-8")
    write_text(SCRIPTS / "scorer.js", scorer.replace("{/* defined */}", defined))
    write_text(folder / "reference" / "index.md", pages.reference_index())
    for room in pages.rooms():
        write_text(folder / "reference" / f"{room}.md", pages.reference_page(room))


def write_beside(target: Path) -> None:
    """Copy beside the pages the notebooks as they are committed, to download, and MathJax, which
    sets formulas."""
    for path in pages.own_files():
        if path.endswith(".ipynb"):
            shutil.copy(ROOT / path, target / path)
    carried = Path(
        distribution("sphinx-mathjax-offline").locate_file("sphinx-mathjax-offline/static/mathjax")
    )
    for part in ("tex-chtml.js", "output/chtml/fonts/woff-v2"):
        where = target / "_static" / "mathjax" / part
        where.parent.mkdir(parents=True, exist_ok=True)
        if (carried / part).is_dir():
            shutil.copytree(carried / part, where, dirs_exist_ok=True)
        else:
            shutil.copy(carried / part, where)


def main() -> int:
    """Build the site; return the exit code."""
    write_sources(SOURCE)
    shutil.rmtree(PAGES, ignore_errors=True)
    code = build_main(
        [
            "-b",
            "html",
            "-c",
            str(HERE),
            "-d",
            str(DOCTREES),
            "-q",
            "-W",
            "--keep-going",
            str(SOURCE),
            str(PAGES),
        ]
    )
    write_beside(PAGES)
    lighten(PAGES)
    return code


if __name__ == "__main__":
    sys.exit(main())
