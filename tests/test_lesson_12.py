"""Lesson 12: five claims in one unit have the ledger's verdicts, a forecast is scored, and the figures show what they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from dspark_lite.course import estimates
from dspark_lite.course.estimates import PAPER, Estimate
from dspark_lite.course.exercises import lesson_12
from dspark_lite.course.exercises.lesson_12 import BELIEFS, VERDICTS
from dspark_lite.course.figures import lesson_12 as figures
from dspark_lite.course.measure import studies
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.replication import ledger
from dspark_lite.course.replication.claims import CLAIMS
from dspark_lite.course.replication.experiment_results import accepted_lengths
from dspark_lite.course.replication.five_claims import FIVE

FOUND = dict(enumerate((*VERDICTS, *VERDICTS[:2]), 1))
BY_ID = {claim.id: claim for claim in CLAIMS}


@pytest.fixture(autouse=True)
def closed():
    """Leaves no figure open."""
    yield
    plt.close("all")


@pytest.mark.parametrize("row", FIVE, ids=lambda row: row.id)
def test_a_claim_has_the_same_verdict_in_per_cent_and_in_its_own_unit(row, monkeypatch):
    """The same resamples, so a ratio is above one where the difference is above zero."""
    monkeypatch.setattr(estimates, "RESAMPLES", 100)
    claim = BY_ID[row.id]
    more = {label: quantity.estimate() for label, quantity in row.more.items()}
    entry = ledger.evaluate(claim)
    assert ledger.verdict(more) == entry.verdict
    assert (claim.stated_by == "the paper") == (row.id != "order of domains")
    assert not claim.one_training
    assert all(quantity.value(PAPER) > 0 for quantity in row.more.values())


def test_the_units_of_the_five_rows_are_fractions_of_the_second_thing():
    found = {row.id: row.more for row in FIVE}
    lengths = {
        domain: np.mean([accepted_lengths(run)[domain].value for run in studies.SEEDS["dspark"]])
        for domain in DOMAINS
    }
    ratio = found["order of domains"]["math over code"].value()
    assert ratio == pytest.approx(lengths["math"] / lengths["code"] - 1)


# The forecast


def said(forecast, capsys, found=FOUND) -> tuple[int, str]:
    """Return how many verdicts are right, and what is printed."""
    right = lesson_12.score(forecast, found)
    return right, capsys.readouterr().out


def test_a_right_forecast_scores_five(capsys):
    right, out = said(FOUND, capsys)
    assert right == 5 and out.count("As you said.") == 5 and out.endswith("5 of 5 right.\n")


@pytest.mark.parametrize(("claim", "wrong"), BELIEFS)
def test_a_wrong_verdict_is_told_what_it_believes(claim, wrong, capsys):
    found = {**FOUND, claim: next(verdict for verdict in VERDICTS if verdict != wrong)}
    right, out = said({**found, claim: wrong}, capsys, found)
    assert right == 4 and BELIEFS[claim, wrong] in out and "4 of 5 right." in out


def test_every_wrong_verdict_has_its_belief():
    """Two of three verdicts on each claim are wrong, by the recorded measurements."""
    wrong = {claim: {verdict for number, verdict in BELIEFS if number == claim} for claim in FOUND}
    assert all(len(verdicts) == 2 and verdicts < set(VERDICTS) for verdicts in wrong.values())


@pytest.mark.parametrize(
    ("forecast", "sentence"),
    [
        ({1: ..., 2: ..., 3: ..., 4: ..., 5: ...}, "Not done yet"),
        ({**FOUND, 3: ...}, "Not done yet"),
        ({1: "replicates"}, "Not done yet"),
        ({**FOUND, 2: "holds"}, "'holds' is none of the three verdicts; they are 'replicates'"),
        ({**FOUND, 2: True}, "a bool is none of the three verdicts"),
        (3, "a forecast is a dictionary"),
    ],
)
def test_a_forecast_in_another_form_ends_in_a_sentence(forecast, sentence, capsys):
    right, out = said(forecast, capsys)
    assert right == 0 and sentence in out and len(out.splitlines()) == 1


@pytest.mark.parametrize("word", ["holds", "Replicates", "cannot tell", "does_not_hold"])
def test_an_unknown_verdict_is_named_with_those_there_are(word, capsys):
    assert not lesson_12.check_verdict(lambda bounds: word)
    out = capsys.readouterr().out
    assert f"'{word}' is none of the three verdicts" in out
    assert all(f"'{verdict}'" in out for verdict in VERDICTS)


# Figures


def test_the_five_rows_draw_every_number_and_its_verdict():
    more = {"math": Estimate(0.1, 0.05, 0.15), "code": Estimate(-0.1, -0.2, -0.05)}
    rows = [(FIVE[0], {**more, "chat": Estimate(0.0, -0.1, 0.1)}, ledger.DOES_NOT)]
    (axes,) = figures.five_rows(rows, "made").axes
    dots = [line for line in axes.lines if line.get_marker() == "o"]
    assert [line.get_xdata()[0] for line in dots] == pytest.approx([10, -10, 0])
    assert len({line.get_color() for line in dots}) == 3
    papers = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "D"]
    expected = [100 * quantity.value(PAPER) for quantity in FIVE[0].more.values()]
    assert papers == pytest.approx(expected)
    texts = [text.get_text() for text in axes.texts]
    assert FIVE[0].says in texts and ledger.DOES_NOT in texts


def test_a_gain_is_drawn_by_training_above_their_mean():
    apart = [Estimate(0.2, 0.18, 0.22), Estimate(0.1, 0.08, 0.12), Estimate(0.05, 0.03, 0.07)]
    (axes,) = figures.gain_by_training(apart, Estimate(0.12, 0.04, 0.2), "gain", "made").axes
    dots = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert dots == pytest.approx([20, 10, 5, 12])
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert len(labels) == 4 and labels[-1] == "mean of the three"


def test_first_drafts_are_a_dot_for_each_training():
    (axes,) = figures.first_drafts({"A": [0.8, 0.9, 0.85], "B": [0.7]}, "made").axes
    assert [list(line.get_xdata()) for line in axes.lines] == [
        pytest.approx([80, 90, 85]),
        pytest.approx([70]),
    ]
