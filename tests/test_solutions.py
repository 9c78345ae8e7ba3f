"""The lessons that the tests of the released profile leave out, executed with their solutions on the tiny profile."""

import notebooks
from played_lessons import play

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
    exercises = sum("exercise" in notebooks.tags(cell) for cell in notebooks.read_cells(source))
    printed = play("07", SHORT)
    assert "Not yet" not in printed and "Not done" not in printed
    assert printed.count("Correct.") >= exercises - 1  # one is an open end
    assert "120 steps of" in printed
