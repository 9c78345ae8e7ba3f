"""The quantities of sections 4.3.3, 5 and Appendix A, and the reader of recorded results, on cases computed by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course import estimates, result_files
from dspark_lite.course.estimates import PAPER, Estimate
from dspark_lite.course.replication import (
    claims,
    confidence_results,
    experiment_results,
    experiments,
    ledger,
    quantities,
    serving_results,
)
from made_measurements import served_row


@pytest.fixture
def engine(monkeypatch):
    """MTP-1 gives 40 and 160 tokens a second at 4 and 16 requests (10 per user), DSpark 100 and 200 at 4 and 16 (25 and
    12.5 per user) and 320 at 64 (5 per user)."""
    found = [
        served_row("mtp", "all", 4, 40, 20),
        served_row("mtp", "all", 16, 160, 20),
        served_row("mtp", "all", 64, 256, 20),
        served_row("dspark", "lagged", 1, 30, 70),
        served_row("dspark", "lagged", 4, 100, 70),
        served_row("dspark", "lagged", 16, 200, 60),
        served_row("dspark", "lagged", 64, 320, 40),
        served_row("dspark", "fixed 1", 64, 300, 20),
        served_row("dspark", "fixed 7", 64, 240, 80),
    ]
    monkeypatch.setattr(serving_results, "serving_run", lambda: {"policies": found})
    monkeypatch.setattr(estimates, "RESAMPLES", 20)


def close(found, value):
    """Equal turns leave no interval."""
    assert (found.value, found.low, found.high) == pytest.approx((value, value, value))


def test_gain_at_the_same_throughput(engine):
    found = serving_results.FrontierGain(serving_results.speed_gain, "lagged", 16).estimate()
    # At 160 tokens a second DSpark's line from (25, 100) to (12.5, 200) gives 17.5 per user, MTP-1 10.
    close(found, 0.75)


def test_gain_at_the_same_speed(engine):
    found = row("at the same speed").results
    # 10 per user lies a third of the way from 12.5 (200) to 5 (320)
    close(found["moderate:"].estimate(), 240 / 160 - 1)
    close(found["strict:"].estimate(), 240 / 40 - 1)


def test_a_point_out_of_reach_is_no_number(engine):
    with pytest.raises(DSparkLiteError, match="does not reach MTP-1's point at 4 requests"):
        serving_results.FrontierGain(
            serving_results.speed_gain, "lagged", 4
        ).estimate()  # 40 tokens a second: DSpark begins at 100
    assert np.isnan(
        serving_results.throughput_gain(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([3.0, 1.0]))
    )


def test_budget_falls_and_a_static_block_stands_beside_mtp(engine):
    claim = row("the scheduler verifies fewer")
    close(claim.margins[""].estimate(), 3.0)  # 70 / 10 at 1 request, 40 / 10 at 64
    fits = [5.3985 - 3.5087, 4.9412 - 3.4658]  # Figure 8, Flash and Pro
    assert claim.margins[""].estimate(PAPER).value == pytest.approx(np.mean(fits), abs=1e-3)
    assert {label: found.estimate().value for label, found in claim.results.items()} == {
        "1 under way:": 7.0,
        "64 under way:": 4.0,
    }
    close(quantities.static_loss(7).estimate(), 256 / 240 - 1)


def test_excess_is_promise_over_outcome():
    assert confidence_results.excess(np.array([0.9, 0.7]), np.array([1.0, 0.0])) == pytest.approx(
        0.3
    )
    assert confidence_results.excess(np.array([0.4, 0.2]), np.array([1.0, 0.0])) == pytest.approx(
        -0.2
    )


def test_the_paper_promises_too_much_in_figure_6(monkeypatch):
    before = {
        1: ([0.6, 0.8], [0.5, 0.8], [3, 1]),
        3: ([0.5], [0.2], [7]),
        5: ([0.5], [0.3], [1]),
        7: ([0.5], [0.4], [1]),
    }
    monkeypatch.setattr(
        confidence_results.paper,
        "calibration",
        lambda position: {
            "before": dict(
                zip(("predicted", "observed", "count"), map(np.array, before[position]))
            ),
            "ece_before": 0.3,
            "ece_after": 0.1,
            "auc": 0.7,
        },
    )
    for summary, value in ((min, 0.075), (max, 0.3)):
        close(confidence_results.Forecast("excess", summary).estimate(PAPER), value)
    close(confidence_results.Forecast("ece gain", min).estimate(PAPER), 0.2)
    close(confidence_results.Forecast("auc above chance", max).estimate(PAPER), 0.2)


def test_appendix_a_is_computed_and_a_wrong_number_is_told(monkeypatch):
    claim = row("choosing the length after the draws")
    assert list(quantities.appendix_a_numbers().values()) == pytest.approx(
        [1.0, 0.9, 1.134, 0.85, 0.15, 0.7, 0.3], abs=1e-6
    )
    assert ledger.evaluate(claim).verdict == ledger.REPLICATES
    computed = quantities.appendix_a_numbers()
    for changed in (1e-3, -1e-3):
        wrong = {**computed, "1 draft:": computed["1 draft:"] + changed}
        monkeypatch.setattr(quantities, "appendix_a_numbers", lambda wrong=wrong: wrong)
        assert "(1 draft)" in ledger.evaluate(claim).why


def test_a_scaled_estimate_keeps_low_below_high():
    found = Estimate(1.5, 1.0, 2.5)
    assert found.scaled(1, -1) == Estimate(0.5, 0.0, 1.5) and found.scaled(-2, 1) == Estimate(
        -2.0, -4.0, -1.0
    )


def row(words):
    """The claim that begins with these words."""
    return next(claim for claim in claims.CLAIMS if claim.says.startswith(words))


@pytest.mark.parametrize(
    ("words", "ends"),
    [
        ("DFlash's first", (("dflash", 1), ("eagle3", 1))),
        ("DSpark's first", (("dspark", 1), ("dflash", 1))),
        ("DFlash's conditional", (("dflash", 1), ("dflash", 7))),
        ("Eagle3's conditional", (("eagle3", 7), ("eagle3", 1))),
    ],
)
def test_margins_of_conditional_acceptance_have_their_sign(monkeypatch, words, ends):
    """The share is 1 / 2 to the power of the drafter's and the position's strength, so that every difference is its own."""
    strength = {"tiny-eagle3": 1, "tiny-dflash": 2, "tiny-dspark": 3}

    def share(drafter, position):
        return 0.5 ** (strength[f"tiny-{drafter}"] * position)

    def counts(recipe, domain):
        drafter = recipe.removeprefix("tiny-").partition("-seed-")[0]
        shares = [share(drafter, position) for position in range(1, 8)]
        return np.array([[[100 * accepted, 100.0] for accepted in shares]])

    monkeypatch.setattr(experiment_results, "counts_by_position", counts)
    first, second = (share(*end) for end in ends)
    for margin in row(words).margins.values():
        assert margin.estimate().value == pytest.approx(first - second)


def test_recorded_results_are_read_once_and_a_missing_or_broken_file_is_named(tmp_path):
    path = tmp_path / "x.json"
    with pytest.raises(
        DSparkLiteError, match=rf"there is no {tmp_path.name}/x\.json; `make x` writes it"
    ):
        result_files.read(path, "make x")
    path.write_text('{"a": 1')
    with pytest.raises(DSparkLiteError, match="x.json is not whole .*; `make x` writes it anew"):
        result_files.read(path, "make x")
    path.write_text('{"a": 1}')
    assert result_files.read(path, "make x") is result_files.read(path, "make x") == {"a": 1}


@pytest.fixture
def additive(monkeypatch):
    """A step costs 20 ms, a request in it 3 ms and a verified token 0.5 ms."""
    requests, tokens = np.array([1.0, 4.0, 16.0]), np.arange(1.0, 5.0)
    seconds = 0.02 + 0.003 * requests[:, None] + 0.0005 * requests[:, None] * tokens
    costs = SimpleNamespace(requests=requests, tokens_per_request=tokens, step_seconds=seconds)
    monkeypatch.setattr(serving_results, "engine_costs", lambda drafter: costs)


def test_costs_of_a_step_are_found_again(additive):
    assert experiments.additive_step() == pytest.approx([0.02, 0.003, 0.0005])


def test_seven_drafts_against_one_under_a_load_that_was_not_measured(additive, monkeypatch):
    """A round of one draft commits 2 tokens, of seven 4: without the step's own cost 4 / 7 ms against 2 / 4 ms, and as much where
    a token costs 0.75 ms."""
    found = [
        served_row("dspark", "fixed 1", 64, 20, 20),
        served_row("dspark", "fixed 7", 64, 40, 80),
    ]
    monkeypatch.setattr(serving_results, "serving_run", lambda: {"policies": found})
    monkeypatch.setattr(experiments, "MANY", 10**9)
    assert experiments.seven_over_one() == pytest.approx((4 / 7) / (2 / 4))
    assert experiments.costlier_token() == pytest.approx(1.5)
