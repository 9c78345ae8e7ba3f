"""Write the paper's figures and tables from our measurements, and the README's picture: `make
figures`.

Figures go to assets/figures as PNG, tables and the ledger to assets/figures/tables.md. Nothing is
measured here: what was not measured is named in one sentence, on the screen and in tables.md.
"""

import sys
from functools import partial

import matplotlib
from tqdm import tqdm

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, write_atomically
from dspark_lite.course.figures import ledger_forest, lesson_09, lesson_11, paper_figures
from dspark_lite.course.figures.lesson_00 import round_picture
from dspark_lite.course.replication import ledger, paper_tables, serving_results

FOLDER = ROOT / "assets" / "figures"
PICTURE = FOLDER / "round.png"


def served(figure, *measured):
    """Return a figure of lesson 11, of what these functions return and the device."""
    return figure(*(give() for give in measured), serving_results.serving_run()["device"])


FIGURES = {
    "figure_2": paper_figures.figure_2,
    "table_1": paper_figures.table_1,
    "figure_3": paper_figures.figure_3,
    "figure_4": paper_figures.figure_4,
    "figure_4_latency": paper_figures.figure_4_latency,
    "figure_5": lesson_09.figure_5,
    "figure_6": lesson_09.figure_6,
    "figure_7": partial(served, lesson_11.figure_7, serving_results.frontiers),
    "figure_8": partial(
        served,
        lesson_11.figure_8,
        serving_results.budgets_by_load,
        serving_results.throughput_over_mtp,
    ),
    **{f"ledger_{part}": partial(ledger_forest.forest, part) for part in ledger_forest.PARTS},
    "head_and_losses": paper_figures.lengths_by_head_and_losses,
}
TABLES = {
    "Table 1: accepted length (tokens per round, bonus included)": paper_tables.accepted_length_table,
    "Table 1: the paper's nine benchmarks": paper_tables.paper_benchmarks_table,
    "Table 1: gains of DSpark": ledger.table_1_gains,
    "Figure 2: conditional acceptance by draft position": paper_tables.conditional_acceptance_table,
    "Figure 3: accepted length by depth of the drafter": paper_tables.depth_table,
    "Figure 4: accepted length by draft length (anchor and drafts)": paper_tables.draft_length_table,
    "Figure 4: a full round against DFlash's": paper_tables.latency_table,
    "The ledger of claims": ledger.ledger_table,
    "The ledger's notes": ledger.notes,
    "Where the paper contradicts itself or needs care": ledger.contradictions,
    "Settings": ledger.settings_table,
    "Head and losses, exchanged one at a time": paper_tables.head_and_losses_table,
}


def save(figure, path):
    """Write a figure as a PNG whose bytes depend on nothing but the figure."""
    options = {"dpi": 150, "format": "png", "metadata": {"Software": None}}
    write_atomically(path, lambda temporary: figure.savefig(temporary, **options))


def draw(folder):
    """Write the figures; return a sentence for each that lacks a measurement."""
    missing = []
    for name, figure in tqdm(FIGURES.items(), desc="figures", unit="figure"):
        try:
            save(figure(), folder / f"{name}.png")
        except DSparkLiteError as error:
            missing.append(f"{name}.png was not drawn: {error}")
    return missing


def table_page():
    """Return the markdown of all tables; one that lacks a measurement is a sentence."""
    parts = [
        "# Tables of lessons 06 and 12",
        "Written by `make figures` from assets/measurements/. Brackets hold 95 % "
        "bootstrap intervals over prompts, or over turns where rounds were timed.",
    ]
    for title, table in TABLES.items():
        parts.append(f"## {title}")
        try:
            parts.append(table())
        except DSparkLiteError as error:
            parts.append(f"Not there: {error}.")
    return "\n\n".join(parts) + "\n"


def main(folder=FOLDER):
    """Write everything; return the exit code, 1 if a measurement is missing."""
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    save(round_picture(), folder / PICTURE.name)
    missing = draw(folder)
    write_atomically(
        folder / "tables.md", lambda temporary: temporary.write_text(table_page(), encoding="utf-8")
    )
    for sentence in missing:
        print(sentence, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
