"""A number in a lesson's prose that is not the one beside it is seen."""

import pytest
import stated


@pytest.fixture
def lesson(monkeypatch):
    """A lesson that says something and prints something."""
    monkeypatch.setattr(stated, "prose", lambda lesson: "DFlash keeps 1.6 tokens on math and 0 of 6 answers.")
    monkeypatch.setattr(stated, "printed", lambda lesson: "math  tau 1.61\n0 of 6 answers are right\nspeed 2.93 times\n")
    return "07"


def test_a_true_sentence_passes(lesson):
    stated.tied(lesson, r"keeps ([\d.]+) tokens on math", r"^math  tau ([\d.]+)$")
    stated.tied(lesson, r"(\d) of (\d) answers", r"^(\d) of (\d) answers")
    stated.between(lesson, "DFlash keeps", r"^speed ([\d.]+) times", (2.0, 4.0))


@pytest.mark.parametrize(("sentence", "output", "complaint"), [
    (r"keeps ([\d.]+) tokens on math", r"speed ([\d.]+)", "the prose says .'1.6',., the output .'2.93',"),
    (r"keeps ([\d.]+) tokens on code", r"tau ([\d.]+)", "the prose has nothing like"),
    (r"keeps ([\d.]+) tokens on math", r"code  tau ([\d.]+)", "the output has nothing like"),
    (r"keeps ([\d.]+) tokens", r"([\d.]+)", "the output has .* with"),
    (r"keeps ([\d.]+) tokens", r"answers", "a group of the sentence needs one of the output"),
])
def test_a_false_one_is_named(lesson, sentence, output, complaint):
    with pytest.raises(AssertionError, match=complaint):
        stated.tied(lesson, sentence, output)


def test_a_timing_outside_its_band_is_named(lesson):
    with pytest.raises(AssertionError, match=r"outside its band: \[\(2.93, \(3.0, 4.0\)\)\]"):
        stated.between(lesson, "DFlash keeps", r"^speed ([\d.]+) times", (3.0, 4.0))


@pytest.mark.parametrize(("said", "measured", "right"), [
    ("1.6", "1.61", True), ("1.6", "1.66", False), ("2", "1.5", True), ("0.29", "0.29", True), ("0.3", "0.26", True),
    ("walk", "walk", True), ("walk", "bath", False), ("7", "seven", False)])
def test_a_rounded_number_says_the_measured_one(said, measured, right):
    assert stated.says(said, measured) is right
