"""Write every figure and table of lessons 06, 09, 11 and 12 from the measurements, and the README's picture: `make figures`.

Figures go to assets/figures as PNG, tables and the ledger to assets/figures/tables.md. Nothing is measured here: what
was not measured is named in one sentence, on the screen and in tables.md.
"""

import sys
from functools import partial

import matplotlib
from tqdm import tqdm

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import ROOT, write_atomically
from dspark_course.figures import ledger_forest, lesson_09, lesson_11, paper_figures
from dspark_course.figures.lesson_00 import round_picture
from dspark_course.measure.studies import DEEP_LENGTH_STUDY, DEEP_PASSES, SHALLOW_PASSES
from dspark_course.replication import ledger, paper_tables, recorded_serving, worlds

FOLDER = ROOT / "assets" / "figures"
PICTURE = FOLDER / "round.png"


def figure_7(world="shallow"):
    """Throughput against the speed of each user."""
    return lesson_11.figure_7(recorded_serving.frontiers(world), recorded_serving.serving_run(world)["device"])


def figure_8(world="shallow"):
    """Budgets and throughput by load."""
    budgets, over_mtp = recorded_serving.budgets_by_load(world), recorded_serving.throughput_over_mtp(world)
    return lesson_11.figure_8(budgets, over_mtp, recorded_serving.serving_run(world)["device"])


FIGURES = {"figure_2": paper_figures.figure_2, "table_1": paper_figures.table_1, "figure_3": paper_figures.figure_3,
           "figure_4": paper_figures.figure_4, "figure_4_latency": paper_figures.figure_4_latency, "figure_5": lesson_09.figure_5,
           "figure_6": lesson_09.figure_6, "figure_7": figure_7, "figure_8": figure_8,
           **{f"ledger_{part}": partial(ledger_forest.forest, part) for part in ledger_forest.PARTS},
           "figure_2_deep": paper_figures.figure_2_deep, "figure_3_deep": paper_figures.figure_3_deep,
           "figure_4_deep": paper_figures.figure_4_deep, "figure_7_deep": partial(figure_7, recorded_serving.BESIDE_MTP),
           "figure_8_deep": partial(figure_8, recorded_serving.BESIDE_MTP),
           "figure_5_deep": partial(lesson_09.figure_5, world="deep"), "figure_6_deep": partial(lesson_09.figure_6, world="deep"),
           "two_worlds": paper_figures.two_worlds, "longer_training": paper_figures.longer_training,
           "gain_by_training_and_world": paper_figures.gain_by_training_and_world,
           "gain_by_passes_and_world": paper_figures.gain_by_passes_and_world, "head_and_losses": paper_figures.lengths_by_head_and_losses}
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
    "The deep world: gates": worlds.gates_table,
    "The deep world: gains of DSpark by passes and seed": lambda: worlds.gains_table(*DEEP_PASSES),
    "The deep world: what training and world add": lambda: worlds.training_and_world_table("eagle3", "dflash"),
    "Both worlds: gains of DSpark over Eagle3 by passes": lambda: worlds.passes_and_worlds_table("eagle3", *SHALLOW_PASSES),
    "The deep world: claims": ledger.deep_table,
    "The deep world: head and losses, exchanged one at a time": worlds.head_and_losses_table,
    "The deep world: accepted length by draft length (anchor and drafts)": partial(paper_tables.draft_length_table, DEEP_LENGTH_STUDY),
    "The deep world: depth, heads, taps": worlds.contrasts_table,
    "The deep world: serving": worlds.serving_table,
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
    parts = ["# Tables of lessons 06 and 12", "Written by `make figures` from assets/measurements/. Brackets hold 95 % "
             "bootstrap intervals over prompts, or over turns where rounds were timed."]
    for title, table in TABLES.items():
        parts.append(f"## {title}")
        try:
            parts.append(table())
        except DSparkLiteError as error:
            parts.append(f"Not there: {error}.")
    return "\n\n".join(parts) + "\n"


def main(folder=FOLDER):
    """Write everything; returns the exit code, 1 where a measurement is missing."""
    matplotlib.use("Agg")
    folder.mkdir(parents=True, exist_ok=True)
    save(round_picture(), folder / PICTURE.name)
    missing = draw(folder)
    write_atomically(folder / "tables.md", lambda temporary: temporary.write_text(table_page(), encoding="utf-8"))
    for sentence in missing:
        print(sentence, file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
