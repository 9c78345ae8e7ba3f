"""A lesson executed with its solutions, for the tests of lessons on either profile."""

import nbformat
import notebooks
import stated


def play(number: str, planted: str, environment: dict[str, str] | None = None) -> str:
    """Executes a lesson with its solutions, the code `planted` after its setup cell, and returns what it printed."""
    (source,) = notebooks.lesson_sources(number)
    notebook = notebooks.generate(source, solutions=True)
    notebook.cells.insert(2, nbformat.v4.new_code_cell(planted))
    notebooks.execute(notebook, source.stem, notebooks.ROOT / "notebooks", environment=environment)
    return stated.printed_by(notebook.cells)
