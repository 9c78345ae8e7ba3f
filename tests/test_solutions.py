"""The lessons that the tests of the released profile leave out, executed with their solutions on the tiny profile."""

import notebooks
from played_lessons import play

# It gets fewer answers and its training is cut short after the setup cell: `make run` has the whole of it.
SHORT = """
from dspark_course.making import answers
from dspark_lite.training import drafts

def answer_fewer(target, data, path, answer=answers.answered_rows):
    return answer(target, {**data, "prompts": dict.fromkeys(data["prompts"], 60)}, path)

def train_shortly(recipe, *given, train=drafts.train_draft):
    return train({**recipe, "steps": 120}, *given)

answers.answered_rows, drafts.train_draft = answer_fewer, train_shortly
del answers, drafts
"""


def test_lesson_07_runs_with_its_solutions():
    (source,) = notebooks.lesson_sources("07")
    exercises = sum("exercise" in notebooks.tags(cell) for cell in notebooks.read_cells(source))
    printed = play("07", SHORT)
    assert "Not yet" not in printed and "Not done" not in printed
    assert printed.count("Correct.") >= exercises - 1  # one is an open end
    assert "120 steps of" in printed
