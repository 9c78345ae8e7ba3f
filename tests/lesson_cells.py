"""The exercise and the solution cells of a lesson, run without the rest of the notebook."""

import importlib

import notebooks


def run(number: str, tag: str, **names) -> int:
    """Runs every cell of lesson `number` tagged `tag` with the lesson's checkers and `names` at hand; how many there are."""
    (source,) = notebooks.lesson_sources(number)
    names |= vars(importlib.import_module(f"dspark_lite.exercises.lesson_{number}"))
    cells = [cell.source for cell in notebooks.read_cells(source) if tag in notebooks.tags(cell)]
    for cell in cells:
        exec(cell, names)
    return len(cells)
