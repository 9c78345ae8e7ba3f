"""Bets: their questions, the verdict, the score, and that no reader's notebook shows an answer beforehand."""

import json
from importlib import import_module

import nbformat
import pytest

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.course.bets import score
from dspark_lite.course.bets.questions import BELIEFS, by_lesson, is_right, question, questions
from dspark_lite.course.checkers import progress
from dspark_lite.course.figures import widgets
from dspark_lite.course.figures.widgets import WEB
from tools.site import pages

BET = import_module("dspark_lite.course.bets.bet")  # `bet` of the package is the function
CHOICE = {
    "question": "Which?",
    "why": "So it is.",
    "options": [
        {"text": "a", "belief": "You think a.", "betrays": "clock"},
        {"text": "b"},
    ],
}
NUMBER = {
    "question": "How many?",
    "why": "Count.",
    "range": [1, 20, 1],
    "unit": "tokens",
    "within": 0.25,
    "low": {"belief": "You think few.", "betrays": "check"},
    "high": {"belief": "You think many.", "betrays": "drafter"},
}


@pytest.fixture
def asked(monkeypatch):
    """A function that returns a shown bet on CHOICE or NUMBER, with what it displays as a list."""

    def make(which):
        monkeypatch.setattr(BET, "question", lambda name: which)
        shown = []
        monkeypatch.setattr(
            widgets, "display", lambda faces, raw, metadata: shown.append((faces, metadata))
        )
        noted = []
        monkeypatch.setattr(BET, "note_bet", lambda *given: noted.append(given))
        return BET.bet("00 x"), shown, noted

    return make


@pytest.mark.parametrize("name", sorted(questions()))
def test_a_question_has_a_reason_and_names_what_each_wrong_choice_believes(name):
    found = question(name)
    assert found["question"].endswith("?") and found["why"]
    if "range" in found:
        low, high, step = found["range"]
        assert low < high and step > 0 and 0 < found["within"] < 1 and found["unit"]
        wrong = [found["low"], found["high"]]
    else:
        options = [option["text"] for option in found["options"]]
        assert 2 <= len(options) == len(set(options)) <= 5
        wrong = [option for option in found["options"] if "belief" in option]
        assert len(wrong) >= len(options) - 1
    assert all(option["betrays"] in BELIEFS and option["belief"] for option in wrong)


@pytest.mark.parametrize(
    ("found", "choice", "answer", "wins"),
    [
        (CHOICE, "b", "b", True),
        (CHOICE, "a", "b", False),
        (NUMBER, 10, 8, True),
        (NUMBER, 6, 8, True),
        (NUMBER, 10.5, 8, False),
        (NUMBER, 5, 8, False),
    ],
)
def test_a_choice_wins_by_its_text_or_by_being_near(found, choice, answer, wins):
    assert is_right(found, choice, answer) is wins


@pytest.mark.parametrize(
    ("found", "choice", "answer", "noted"),
    [
        (CHOICE, "a", "b", ("a", False, "clock")),
        (CHOICE, "b", "b", ("b", True, None)),
        (NUMBER, 2, 8, (2, False, "check")),
        (NUMBER, 15, 8, (15, False, "drafter")),
    ],
)
def test_a_settled_bet_is_noted_whichever_came_first(asked, found, choice, answer, noted):
    first, _, kept = asked(found)
    first.choose(choice)
    assert not kept
    first.settle(answer)
    assert kept[-1] == ("00 x", *noted)
    late, _, kept = asked(found)
    late.settle(answer)
    assert not kept
    late.choose(choice)
    assert kept[-1] == ("00 x", *noted)


def test_the_answer_is_shown_to_whoever_has_chosen_and_in_the_solutions(asked, monkeypatch):
    monkeypatch.delenv("DSPARK_BUILD", raising=False)
    made, shown, _ = asked(CHOICE)
    made.settle("b", "seen twice")
    assert "seen twice" not in shown[-1][0]["text/markdown"]
    made.choose("a")
    made.show("seen twice")
    text = shown[-1][0]["text/markdown"]
    assert "seen twice" in text and "You think a." in text and "So it is." in text
    monkeypatch.setenv("DSPARK_BUILD", "solutions")
    made, shown, _ = asked(CHOICE)
    made.settle("b", "seen twice")
    assert "seen twice" in shown[-1][0]["text/markdown"]
    assert json.loads(shown[-1][1][WEB])["numbers"]["answer"] == "b"


def test_a_click_in_either_place_is_the_readers_choice(asked):
    made, _, kept = asked(CHOICE)
    made.settle("b")
    made.widgets[1].chosen = "a"
    assert (
        made.chosen == "a"
        and made.widgets[0].chosen == "a"
        and kept[-1][1:] == ("a", False, "clock")
    )


def test_what_is_no_option_is_refused_with_the_options(asked):
    made, _, _ = asked(CHOICE)
    with pytest.raises(RequestError, match="a, b"):
        made.choose("c")
    with pytest.raises(RequestError, match="00 x"):
        made.settle("c")
    with pytest.raises(RequestError, match="lesson 99"):
        question("99 nothing")
    made, _, _ = asked(NUMBER)
    with pytest.raises(RequestError, match="about 5"):
        made.choose("about 5")


def test_the_score_counts_and_names_the_belief_that_lost_most(tmp_path, monkeypatch):
    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "my_dspark.py"))
    monkeypatch.setattr(score, "in_notebook", lambda: True)
    score.note_bet("00 a", "x", True, None)
    score.note_bet("00 b", "y", False, "clock")
    score.note_bet("01 c", 3, False, "clock")
    assert score.noted()["00 b"] == ["y", False, "clock"]
    said = score.sentence(score.noted())
    assert "1 of 3" in said and BELIEFS["clock"] in said
    assert all(lesson.isdigit() for lesson, *_ in progress.progress())
    monkeypatch.setattr(score, "in_notebook", lambda: False)
    score.note_bet("01 c", 3, True, None)
    assert score.noted()["01 c"][1] is False


def editions(lesson):
    """A lesson's notebooks: the student's and the one with solutions."""
    (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
    return [
        nbformat.read(file, as_version=4) for file in (path, path.parent / "solutions" / path.name)
    ]


@pytest.mark.parametrize("lesson", sorted(by_lesson()))
def test_a_lesson_settles_every_bet_and_its_student_edition_shows_no_answer(lesson):
    student, solved = editions(lesson)

    def bets(notebook):
        outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        stored = [
            (json.loads(output.metadata[WEB]), output)
            for output in outputs
            if WEB in output.get("metadata", {})
        ]
        return [(drawn["numbers"], output) for drawn, output in stored if drawn["drawing"] == "bet"]

    names = set(by_lesson()[lesson])
    settled = {scene["name"]: scene for scene, _ in bets(solved) if "answer" in scene}
    assert settled.keys() == names == {scene["name"] for scene, _ in bets(student)}
    for scene in settled.values():
        if "options" in scene:
            answer = next(o for o in scene["options"] if o["text"] == scene["answer"])
            assert "belief" not in answer, f"{scene['name']}: the right option has a belief"
    for scene, output in bets(student):
        if "answer" in scene:
            assert scene["why"] not in output.data["text/markdown"]
            assert not scene["told"] or scene["told"] not in output.data["text/markdown"]


@pytest.mark.parametrize("lesson", sorted(by_lesson()))
def test_a_page_has_what_each_answer_cell_has_measured(lesson):
    student, solved = editions(lesson)

    def pictures(notebook):
        cells = [cell for cell in notebook.cells if "answer" in cell.metadata.get("tags", [])]
        shown = [output for cell in cells for output in cell.outputs]
        return [o.data["image/png"] for o in shown if "image/png" in o.get("data", {})]

    pages.with_answers(student, solved)
    assert pictures(student) == pictures(solved)
