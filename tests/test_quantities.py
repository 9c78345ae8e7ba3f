"""Every quantity that a claim rests on, on measurements that can be computed by hand.

A domain has two prompts, A and B, so that a resample is AA, AB, BA or BB: the 95 % interval then goes from the value of
A alone to that of B alone. Only math's prompts differ, unless a test says otherwise.
"""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from pytest import approx

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_json
from dspark_lite.course import estimates
from dspark_lite.course.estimates import PAPER, Estimate, bootstrap
from dspark_lite.course.figures import style
from dspark_lite.course.measure import confidence, multimodality, studies
from dspark_lite.course.measure.evaluation import count_estimates
from dspark_lite.course.measure.simulator import ModelReport
from dspark_lite.course.measure.threshold_sweep import summary
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.replication import (
    claims,
    confidence_results,
    experiment_results,
    serving_results,
)
from dspark_lite.course.replication.experiment_results import SEEDS, TABLE_1, Acceptance, Length
from dspark_lite.course.replication.quantities import fall, length_gain
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling.calibration import STS, Observations
from dspark_lite.serving.requests import STEP_PARTS
from helpers import GAMMA, VOCAB
from made_measurements import forget, read_from


def is_about(value, low, high):
    """An estimate with these numbers."""
    return Estimate(approx(value), approx(low), approx(high))


def exactly(value, abs=None):
    """A number of the paper, without an interval."""
    return Estimate(*[approx(value, abs=abs)] * 3)


def at(domain, drafter, position):
    """Conditional acceptance of a drafter of Table 1."""
    return Acceptance(TABLE_1[drafter], domain, position)


def claim_of(name):
    """The claim with this id."""
    return next(claim for claim in claims.CLAIMS if claim.id == name)


# Committed tokens and rounds of A and of B on math, then of either prompt on code and on chat.
TALLIES = {
    # 3 and 5 tokens a round, together 4.5; then 3 and 2
    "tiny-dspark": [
        (6, 2),
        (30, 6),
        (12, 4),
        (8, 4),
    ],
    "tiny-dflash": [(4, 2), (24, 6), (8, 4), (4, 4)],  # 2 and 4, 3.5; 2, 1
    "tiny-dspark-1-layer": [(3, 2), (15, 6), (6, 4), (4, 4)],  # 1.5 and 2.5, 2.25; 1.5, 1
    "tiny-dspark-2-layers": [(5, 2), (27, 6), (8, 4), (6, 4)],  # 2.5 and 4.5, 4; 2, 1.5
    "tiny-dspark-length-8": [(4, 2), (18, 6), (12, 4), (8, 4)],  # 2 and 3, 2.75; 3, 2
    "tiny-dflash-length-8": [(2, 2), (12, 6), (8, 4), (4, 4)],  # 1 and 2, 1.75; 2, 1
    "tiny-dspark-length-16": [(8, 2), (30, 6), (12, 4), (8, 4)],  # 4 and 5, 4.75; 3, 2
    "tiny-dflash-length-16": [(2, 2), (12, 6), (8, 4), (4, 4)],  # as at 8
    "tiny-dspark-rnn-length-16": [(10, 2), (36, 6), (16, 4), (12, 4)],  # 5 and 6, 5.75; 4, 3
    "tiny-dspark-length-4": [(4, 2), (12, 6), (8, 4), (8, 4)],  # 2 everywhere
    "tiny-dspark-rnn-length-4": [(4, 2), (12, 6), (8, 4), (8, 4)],
}
# Accepted and reached at position 1 and 7, of A and of B on math, then of either prompt on code; chat is as code.
POSITIONS = {
    # falls by 0.2, by 0.1, together by 0.15
    "tiny-dspark": [
        ((8, 10), (6, 10)),
        ((30, 30), (18, 20)),
        ((9, 10), (8, 10)),
    ],
    # by 0.7, by 0.2, together by 11 / 30
    "tiny-dflash": [
        ((9, 10), (2, 10)),
        ((18, 20), (14, 20)),
        ((8, 10), (4, 10)),
    ],
    # 9 rounds came to position 7, 10 on code
    "tiny-eagle3": [
        ((9, 10), (3, 5)),
        ((9, 10), (3, 4)),
        ((9, 10), (3, 5)),
    ],
}
BETWEEN = [(5, 10)] * 5


def row(domain, tallies, positions):
    """A row of `evaluate` of two prompts; the intervals that it holds are marked by numbers that nothing here computes."""
    committed, rounds = zip(*tallies)
    return {
        "domain": domain,
        "committed": committed,
        "rounds": rounds,
        "accepted_length": sum(committed) / sum(rounds),
        "low": -7.0,
        "high": 77.0,
        "position_counts": [[first, *BETWEEN, last] for first, last in positions],
    }


@pytest.fixture(autouse=True)
def measured(tmp_path, monkeypatch):
    """A folder with the measurements above, which the package reads."""
    read_from(tmp_path, monkeypatch)
    for recipe in {**TALLIES, **POSITIONS}:
        a, b, code, chat = TALLIES.get(recipe, [(1, 1)] * 4)
        of_a, of_b, other = POSITIONS.get(recipe, [((1, 1), (1, 1))] * 3)
        rows = [
            row("math", [a, b], [of_a, of_b]),
            row("code", [code] * 2, [other] * 2),
            row("chat", [chat] * 2, [other] * 2),
        ]
        write_json(tmp_path / f"{recipe}.json", {"rows": rows})
    yield tmp_path
    forget()


# Intervals


def test_the_interval_leaves_out_two_and_a_half_percent_on_either_side():
    values = iter([50.0, *range(200, -1, -1)])  # of the prompts as they are, then of 201 resamples
    assert bootstrap(
        lambda groups: [next(values) for _ in groups[0]], [np.zeros((2, 1))], resamples=201
    ) == is_about(50, 5, 195)


def test_a_resample_redraws_the_rows_of_every_group():
    drawn = []
    bootstrap(
        lambda groups: [drawn.append(one) or 0.0 for one in zip(*groups)],
        [np.arange(5), np.arange(5, 8)],
        resamples=100,
    )
    assert len(drawn) == 101 and [group.tolist() for group in drawn[0]] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7],
    ]
    for group, rows in ((0, range(5)), (1, range(5, 8))):
        resampled = [groups[group].tolist() for groups in drawn[1:]]
        assert all(len(one) == len(rows) for one in resampled) and set().union(*resampled) == set(
            rows
        )
        assert any(len(set(one)) < len(rows) for one in resampled), "nothing was drawn twice"


def test_shares_need_ten_rounds():
    counts = np.array([[[4, 5], [4, 5], [1, 5]], [[1, 5], [1, 4], [1, 5]]])
    assert count_estimates(counts) == [is_about(0.5, 0.2, 0.8), None, is_about(0.2, 0.2, 0.2)]


def test_intervals_in_figures_are_those_of_prompts():
    kept = np.array([[1, 0], [0, 0], [1, 1]])
    counted = np.ones((3, 2))
    prompts = np.array([4, 4, 9])
    # the first prompt keeps 1 of 2 and 0 of 2, the second all
    first, second = estimates.share_estimates(kept, counted, prompts)
    assert first == is_about(2 / 3, 0.5, 1) and second == is_about(1 / 3, 0, 1)


def test_intervals_are_drawn_from_end_to_end_and_what_is_missing_is_left_out():
    _, axes = style.figure()
    style.draw_estimates(
        axes, [1, 2, 3], [Estimate(0.6, 0.5, 0.9), None, Estimate(0.5, 0.55, 0.5)], {"label": "x"}
    )
    (bars,) = axes.containers[0].lines[2]
    ends = [segment[:, 1].tolist() for segment in bars.get_segments()]
    assert ends == [[approx(0.5), approx(0.9)], [0.5, 0.5]] and axes.containers[0].lines[
        0
    ].get_xdata().tolist() == [1, 3]
    plt.close("all")


# Our results


def test_accepted_length_is_that_of_a_domains_rounds_and_its_mean():
    found = experiment_results.accepted_lengths("tiny-dspark")
    assert found["math"] == Estimate(4.5, -7.0, 77.0) and found["all"] == is_about(
        9.5 / 3, 8 / 3, 10 / 3
    )


def test_a_gain_is_a_ratio_less_one():
    found = experiment_results.gains("tiny-dspark", "tiny-dflash")
    assert found["math"] == is_about(4.5 / 3.5 - 1, 5 / 4 - 1, 3 / 2 - 1)
    assert (found["code"], found["chat"]) == (is_about(0.5, 0.5, 0.5), is_about(1, 1, 1))
    assert found["all"] == is_about(9.5 / 6.5 - 1, 10 / 7 - 1, 8 / 5 - 1)


def test_conditional_acceptance_is_of_the_rounds_that_came_so_far():
    found = experiment_results.conditional_acceptance("tiny-dspark", "math")
    assert (
        found[0] == is_about(38 / 40, 0.8, 1.0)
        and found[6] == is_about(24 / 30, 0.6, 0.9)
        and len(found) == 7
    )
    assert at("math", "dflash", 7).estimate() == is_about(16 / 30, 0.2, 0.7)
    assert at("code", "eagle3", 7).estimate() == is_about(0.6, 0.6, 0.6)
    with pytest.raises(
        DSparkLiteError,
        match="hardly a round of Eagle3 came to position 7 on math; measure more prompts",
    ):
        at("math", "eagle3", 7).estimate()


# What claims compare


def test_one_place_is_ahead_of_another():
    ahead = at("math", "dspark", 1) - at("math", "dflash", 7)
    assert ahead.estimate() == is_about(0.95 - 16 / 30, 1 - 0.7, 0.8 - 0.2)
    rise = at("math", "dspark", 1) - at("math", "dspark", 7)
    assert rise.estimate() == is_about(0.15, 0.1, 0.2)


def test_a_fall_is_from_position_1_to_7_and_its_half():
    dspark, dflash = TABLE_1["dspark"], TABLE_1["dflash"]
    assert fall(dspark, ("math",)).estimate() == is_about(0.15, 0.1, 0.2)
    assert fall(dspark, ("math", "code")).estimate() == is_about(0.125, 0.1, 0.15)
    of_dflash = 0.9 - 16 / 30
    assert fall(dflash, ("math",)).estimate() == is_about(of_dflash, 0.2, 0.7)
    margin = claim_of("half the fall").margins["math"]
    assert margin == fall(SEEDS["dflash"], ("math",)) / 2 - fall(SEEDS["dspark"], ("math",))
    half = fall(dflash, ("math",)) / 2 - fall(dspark, ("math",))
    assert half.estimate() == is_about(of_dflash / 2 - 0.15, 0.2 / 2 - 0.1, 0.7 / 2 - 0.2)
    half = fall(dflash, ("math", "code")) / 2 - fall(dspark, ("math", "code"))
    assert half.estimate() == is_about((of_dflash + 0.4) / 4 - 0.125, 0.6 / 4 - 0.1, 1.1 / 4 - 0.15)
    assert fall(dflash, ("math",)).estimate(PAPER) == exactly(0.88497 - 0.82773)
    assert fall(dspark, ("math", "chat")).estimate(PAPER) == exactly(
        (0.9053 - 0.88243 + 0.7353 - 0.7609) / 2
    )


def test_domains_are_apart_by_their_lengths():
    """No prompt belongs to two domains, so a resample draws them apart."""
    math, code, chat = (Length(TABLE_1["dspark"], domain) for domain in DOMAINS)
    assert (math - code).estimate() == is_about(1.5, 0, 2)
    assert (chat - code).estimate() == is_about(-1, -1, -1)
    assert (math - code).estimate(PAPER) == exactly(5.5667 - 5.12, abs=1e-2)


def test_steps_in_depth():
    one_to_two, two_to_full = claims.DEPTH_STEPS.items()
    assert one_to_two[0] == "1 to 2 layers:" and one_to_two[1].estimate() == is_about(
        (7.5 - 4.75) / 3, (6 - 4) / 3, (8 - 5) / 3
    )
    assert two_to_full[0] == "2 to full:" and two_to_full[1].estimate() == is_about(
        (9.5 - 7.5) / 3, 2 / 3, 2 / 3
    )
    lead = claim_of("depth").margins["first over second"]
    assert lead.estimate() == is_about(0.75 / 3, 0, 1 / 3)
    paper = [
        {"math": 4.20443, "code": 3.76941, "chat": 2.61202},
        {"math": 5.15184, "code": 4.69624, "chat": 3.16801},
        {"math": 5.56980, "code": 5.12168, "chat": 3.49090},
    ]
    one, two, full = (sum(lengths.values()) / 3 for lengths in paper)
    assert one_to_two[1].estimate(PAPER) == exactly(two - one, abs=1e-5)
    assert two_to_full[1].estimate(PAPER) == exactly(full - two, abs=1e-5)


RNN = ("dspark_rnn", "dspark")


@pytest.mark.parametrize(
    ("quantity", "value", "low", "high"),
    [
        (length_gain("math", 16), 4.75 / 1.75 - 1, 5 / 2 - 1, 4 / 1 - 1),
        (length_gain("all", 16), 9.75 / 4.75 - 1, 10 / 5 - 1, 9 / 4 - 1),
        (length_gain("math", 16, *RNN), 5.75 / 4.75 - 1, 6 / 5 - 1, 5 / 4 - 1),
        (
            length_gain("math", 16) - length_gain("math", 8),
            (4.75 - 2.75) / 1.75,
            (5 - 3) / 2,
            (4 - 2) / 1,
        ),
        (length_gain("all", 16) - length_gain("all", 8), 2 / 4.75, 2 / 5, 2 / 4),
        (length_gain("math", 8) - length_gain("math", 16), -2 / 1.75, -2, -1),
        (
            length_gain("math", 16, *RNN) - length_gain("math", 4, *RNN),
            5.75 / 4.75 - 1,
            0.2,
            0.25,
        ),
        (
            length_gain("all", 16) - length_gain("all", 16, *RNN),
            9.75 / 4.75 - 12.75 / 9.75,
            10 / 5 - 13 / 10,
            9 / 4 - 12 / 9,
        ),
    ],
)
def test_gains_by_draft_length_and_their_growth(quantity, value, low, high):
    assert quantity.estimate() == is_about(value, low, high)


def test_gains_of_figure_4():
    assert length_gain("math", 16).estimate(PAPER) == exactly(7.19053 / 5.53586 - 1)
    assert length_gain("all", 16, *RNN).estimate(PAPER) == exactly(
        (7.67984 + 6.43835 + 3.80813) / (7.19053 + 6.25451 + 3.69947) - 1
    )


def timed(folder, by_part):
    """Writes milliseconds by turn (two) at two contexts, {(part, length): ([256], [512])}."""
    rows = [
        {"part": part, "length": length, "context": context, "milliseconds": spent}
        for (part, length), contexts in by_part.items()
        for context, spent in zip((256, 512), contexts)
    ]
    write_json(folder / f"{studies.LATENCY}.json", {"rows": rows})
    return {"rows": rows}


def test_a_rounds_overhead(measured):
    """Turn A, the mean of two contexts: 30 ms with DFlash, 34 with DSpark; turn B: 40 and 48; the medians: 35 and 41."""
    short = {
        ("target", 4): ([10, 20], [30, 40]),
        ("dflash", 4): ([10, 10], [10, 10]),
        ("dspark", 4): ([12, 16], [16, 20]),
    }
    long = {(part, 16): spent for (part, _), spent in short.items()} | {
        ("dspark", 16): ([10, 10], [10, 10])
    }
    rows = timed(measured, short | long)
    assert experiment_results.round_times(rows, "dspark", 4).tolist() == [[22, 46], [36, 60]]
    assert experiment_results.full_round(np.array([[1.0, 2.0], [10.0, 4.0], [4.0, 30.0]])) == 4.0
    longer = experiment_results.longer_round("dspark", 4)
    assert longer.estimate() == is_about(41 / 35 - 1, 34 / 30 - 1, 48 / 40 - 1)
    assert longer.estimate(PAPER) == exactly(0.002, abs=1e-3)
    assert experiment_results.longer_round("dspark", 16).estimate() == is_about(0, 0, 0)
    at_512 = experiment_results.longer_round("dspark", 4, context=512)
    assert at_512.estimate().value == approx(53 / 45 - 1)


def test_a_rise_leaves_the_least_that_both_intervals_allow(measured):
    rows = [
        {"domain": "math", "threshold": 0.0, "rate": 0.7, "low": 0.6, "high": 0.75},
        {"domain": "math", "threshold": 0.9, "rate": 0.9, "low": 0.85, "high": 0.97},
        {"domain": "code", "threshold": 0.0, "rate": 0.1, "low": 0.1, "high": 0.1},
    ]
    write_json(measured / "threshold_sweep.json", {"rows": rows})
    assert confidence_results.Rate("math", 0.9).estimate() == Estimate(0.9, 0.85, 0.97)
    assert confidence_results.Rise("math").estimate() == is_about(0.2, 0.85 - 0.75, 0.97 - 0.6)
    assert confidence_results.Rise("math").estimate(PAPER) == exactly(0.925138 - 0.769092)


# Confidence


@pytest.fixture
def recorded(monkeypatch):
    """Blocks of two drafts: six of prompt A, two of prompt B. Everything was predicted to survive with 0.9, or, with the
    temperatures, with 0.5; of A a half survived to either position, of B all to the first and a half to the second."""
    blocks = Observations(
        np.array([[np.log(9.0), 50.0]] * 8),
        np.array([2, 0] * 3 + [2, 1]),
        np.array([0] * 6 + [1] * 2),
    )
    monkeypatch.setattr(confidence_results, "observations", lambda: {"math": blocks})
    monkeypatch.setattr(confidence_results, "stored_sts", lambda: STS([1e15, 1.0]))
    forget()
    yield
    forget()


def forecast(measure, summary):
    """Our estimate of a forecast."""
    return confidence_results.Forecast(measure, summary).estimate()


def test_calibration_errors_by_hand(recorded):
    """Shares of 5 in 8 and 4 in 8; of A alone 0.5 and 0.5, of B alone 1 and 0.5. The interval has the bootstrap's width
    and our value in its middle."""
    assert forecast("ece", min) == is_about(0.9 - 5 / 8, 0.275 - 0.15, 0.275 + 0.15)  # A 0.4, B 0.1
    assert forecast("ece", max) == is_about(0.4, 0.4, 0.4)
    # A 0.4, B 0.25
    assert forecast("ece", np.mean) == is_about(0.3375, 0.3375 - 0.075, 0.3375 + 0.075)
    assert forecast("ece calibrated", np.mean) == is_about(0.0625, 0.0625 - 0.125, 0.0625 + 0.125)
    # A 0.4, B nothing
    assert forecast("ece gain", np.mean) == is_about(0.275, 0.275 - 0.2, 0.275 + 0.2)
    above, auc = forecast("auc above chance", min), forecast("auc", min)
    assert above == is_about(*(end - 0.5 for end in (auc.value, auc.low, auc.high)))


def test_a_report_by_hand():
    lab = SimpleNamespace(
        device_name="", versions={}, seed=0, profile="", target=SimpleNamespace(name="")
    )
    found = {
        "math": Observations(np.array([[0.0, 50.0]] * 2), np.array([2, 0]), np.array([0, 1])),
        "chat": Observations(
            np.array([[np.log(9.0), 50.0]] * 2), np.array([2, 1]), np.array([0, 1])
        ),
    }
    measured = confidence.calibration_report(
        lab, SimpleNamespace(name="d"), STS([1e15, 1.0]), found
    )
    rows = {(one["domain"], one["position"]): one for one in measured["rows"]}
    assert (
        list(rows) == [(domain, k) for domain in ("all", "math", "chat") for k in (1, 2)]
        and measured["blocks"] == 4
    )
    assert [rows[key]["survived"] for key in rows] == [0.75, 0.5, 0.5, 0.5, 1.0, 0.5]
    assert [rows["chat", k]["ece_before"] for k in (1, 2)] == approx([0.1, 0.4])
    assert [rows["chat", k]["ece_after"] for k in (1, 2)] == approx([0.5, 0.0])
    assert [rows["all", k]["ece_before"] for k in (1, 2)] == approx([(0 + 0.1) / 2, (0 + 0.4) / 2])
    # survivors .5 .9 .9 over .5; .5 .9 over .5 .9
    assert [rows["all", k]["auc_before"] for k in (1, 2)] == approx([(0.5 + 2) / 3, 0.5])
    assert [rows["chat", k]["brier_before"] for k in (1, 2)] == approx([0.01, (0.01 + 0.81) / 2])
    assert measured["mean_ece"]["raw"] == approx((0.05 + 0.2) / 2) and measured["mean_ece"][
        "stored"
    ] == approx((0.25 + 0.0) / 2)


def test_a_calibration_is_fitted_on_one_half_and_reported_on_the_other(monkeypatch):
    asked = []

    def observe(lab, drafter, texts, *, temperature, name, journal):
        asked.append(texts)
        return Observations(
            np.zeros((len(texts), 1)), np.zeros(len(texts), dtype=int), np.arange(len(texts))
        )

    monkeypatch.setattr(confidence, "observe", observe)
    lab = SimpleNamespace(
        prompts={"math": list("abcd"), "chat": list("efgh")},
        device_name="",
        versions={},
        seed=0,
        profile="",
        target=SimpleNamespace(name="t"),
    )
    sts, measured = confidence.calibrate(lab, SimpleNamespace(name="d"))
    assert (
        asked == [["c", "d"], ["g", "h"], ["a", "b"], ["e", "f"]]
        and sts.num_samples == measured["blocks"] == 4
    )
    asked.clear()
    confidence.check_stored(lab, SimpleNamespace(name="d", confidence_head=True, gamma=1), sts)
    assert asked == [["a", "b"], ["e", "f"]]


def test_the_acceptance_rate_of_a_sweep():
    found = summary(np.array([[4, 1, 2], [6, 4, 2]]))  # accepted, rejected, steps of two prompts
    assert found == approx(
        {
            "accepted": 2.5,
            "rejected": 1.25,
            "total": 3.75,
            "rate": 10 / 15,
            "low": 6 / 10,
            "high": 4 / 5,
        }
    )


def test_a_replay_ends_a_block_at_the_first_confidence_below_the_threshold():
    said = np.array([[0.9, 0.4, 0.9], [0.5, 0.9, 0.9]])
    recorded = Observations(np.zeros((2, 3)), np.array([3, 1]), np.zeros(2))
    assert confidence.replay(recorded, said, 0.5) == ((1 + 1) / 2 + 1, (0 + 2) / 2)
    assert confidence.replay(recorded, said, 0.6) == ((1 + 0) / 2 + 1, 0)
    assert confidence.replay(recorded, said, 0.0) == ((3 + 1) / 2 + 1, (0 + 2) / 2)


# Serving


def served(committed, seconds, **fields):
    """A row of two turns of one step of four requests."""
    parts = {f"{part}_seconds": [0.0, 0.0] for part in STEP_PARTS} | {
        "verify_seconds": seconds,
        "prefill_seconds": [2.0, 1.0],
    }
    return {
        "concurrency": 4,
        "steps": [1, 1],
        "requests": [4, 4],
        "verified": [10, 30],
        "proposed": [6, 26],
        "accepted": [4, 8],
        "admitted": [2, 0],
        "committed": committed,
        **parts,
        **fields,
    }


def test_measures_of_serving_with_their_intervals():
    row = served([4, 8], [1.0, 4.0])
    wanted = {
        "throughput": (12 / 5, 2, 4),
        "per_user": (12 / 20, 0.5, 1),
        "budget": (40 / 8, 2.5, 7.5),
        "accepted_length": (12 / 8, 1, 2),
        "waste": (20 / 40, 0.2, 0.6),
        "step_seconds": (2.5, 1, 4),
        "verify_seconds": (2.5, 1, 4),
        "prefill_seconds": (1.5, 1, 2),
        "draft_seconds": (0, 0, 0),
    }
    for name, numbers in wanted.items():
        assert serving_results.with_interval(name, row) == is_about(*numbers), name
    other = served([2, 2], [1.0, 4.0])
    assert serving_results.gain("throughput", row, other) == is_about(
        (12 / 5) / (4 / 5), 4 / 2, 2 / 0.5
    )


def test_the_models_steps_are_those_with_all_slots_taken(monkeypatch):
    steps = [ModelReport(requests=requests) for requests in (1, 4, 4, 3)]
    monkeypatch.setattr(
        serving_results,
        "simulate",
        lambda model, arriving, rng: steps if list(arriving) == [0.0] * 7 else [],
    )
    assert serving_results.full_steps(None, 4, 7, None) == steps[1:3]


# Multimodality


def test_joint_probabilities_of_the_next_two_tokens():
    target, _ = toy_models(vocab_size=VOCAB, gamma=GAMMA)
    ids = torch.tensor([[1, 2, 3]])
    first, joint = multimodality.target_pairs(target, ids, count=3)
    probs = target.model(input_ids=ids).logits[0, -1].softmax(-1)
    assert first.tolist() == probs.topk(3).indices.tolist() and joint.shape == (3, VOCAB)
    for token, row in zip(first, joint):
        after = (
            target.model(input_ids=torch.cat([ids, token.view(1, 1)], 1)).logits[0, -1].softmax(-1)
        )
        torch.testing.assert_close(row, probs[token] * after, atol=1e-5, rtol=1e-4)


def test_a_reading_is_of_prompt_and_answer():
    target, drafters = toy_models(vocab_size=VOCAB, gamma=GAMMA)
    prompt = torch.tensor([[1, 2, 3]])
    lab = SimpleNamespace(
        target=target,
        encode=lambda text: prompt,
        max_new_tokens=5,
        device=target.device,
        generator=lambda seed: torch.Generator().manual_seed(seed),
    )
    found = multimodality.read_answer(lab, drafters["dspark"], "any", seed=0)
    assert found.start == 3 and found.ids[:, :3].equal(prompt) and 4 <= found.ids.shape[1] <= 8
    torch.testing.assert_close(
        found.probs, target.model(input_ids=found.ids).logits.softmax(-1), atol=1e-5, rtol=1e-4
    )
    assert found.features.shape[:2] == found.ids.shape
