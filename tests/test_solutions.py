"""The committed solutions pass the checkers of their exercises."""

import nbformat
import notebooks
import pytest


@pytest.mark.parametrize("source", notebooks.lesson_sources(), ids=lambda source: source.stem)
def test_every_solution_is_judged_correct(source):
    notebook = nbformat.read(notebooks.notebook_path(source, solutions=True), as_version=4)
    outputs = [output for cell in notebooks.code_cells(notebook) for output in cell.outputs]
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    exercises = sum("exercise" in notebooks.tags(cell) for cell in notebooks.read_cells(source))
    assert "Not yet: " not in printed and "Not done yet: " not in printed
    assert printed.count("Correct.") >= exercises - 1  # one may have an open end
