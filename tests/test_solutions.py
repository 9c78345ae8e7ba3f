"""The lessons that the tests of the released profile leave out, executed with their solutions on the tiny profile."""

import nbformat
import notebooks

# Its training is cut short after the setup cell: `make run` has the whole of it.
SHORT = """
from dspark_lite.training import drafts

def train_shortly(recipe, *given, train=drafts.train_draft):
    return train({**recipe, "steps": 120}, *given)

drafts.train_draft = train_shortly
del drafts
"""


def test_lesson_07_runs_with_its_solutions():
    (source,) = notebooks.lesson_sources("07")
    notebook = notebooks.generate(source, solutions=True)
    exercises = sum("exercise" in notebooks.tags(cell) for cell in notebooks.read_cells(source))
    notebook.cells.insert(2, nbformat.v4.new_code_cell(SHORT))
    notebooks.execute(notebook, source.stem, notebooks.ROOT / "notebooks")
    printed = "".join(output.text for cell in notebooks.code_cells(notebook) for output in cell.outputs if output.output_type == "stream")
    assert "Not yet" not in printed and "Not done" not in printed
    assert printed.count("Correct.") >= exercises - 1  # one is an open end
    assert "120 steps of" in printed
