"""The scoreboard shows what the stored benchmark holds, and a round's cost in plain passes."""

import pytest
from helpers import bars

from dspark_lite.course.estimates import Estimate
from dspark_lite.course.figures import scoreboard as board
from dspark_lite.course.measure import clocks

ROWS = {
    ("plain", "math"): (1.0, 1.0, 0.0, 5.0),
    ("plain", "code"): (1.0, 1.0, 0.0, 4.0),
    ("plain", "chat"): (1.0, 1.0, 0.0, 5.0),
    ("dflash", "math"): (6.0, 3.0, 2.5, 7.5),
    ("dflash", "code"): (5.0, 2.5, 2.0, 6.0),
    ("dflash", "chat"): (3.0, 1.5, 2.5, 7.5),
}


@pytest.fixture
def stored(monkeypatch):
    """A benchmark of one drafter, whose rounds cost two plain passes everywhere."""
    names = ("accepted_length", "speedup", "draft_milliseconds", "verify_milliseconds")
    rows = [
        {"drafter": drafter, "domain": domain, **dict(zip(names, values))}
        for (drafter, domain), values in ROWS.items()
    ]
    found = {"device": "a made device", "prompts": 3, "rows": rows}
    monkeypatch.setattr(board, "benchmark", lambda: found)
    return rows


def test_the_bars_hold_the_numbers_and_the_device_stands_once(stored):
    tau, speed = board.scoreboard_figure("dflash").axes
    assert sum(bars(tau), []) == [6.0, 5.0, 3.0] and sum(bars(speed), [])[:3] == [3.0, 2.5, 1.5]
    said = [text.get_text() for axes in (tau, speed) for text in axes.texts]
    assert said.count("measured on a made device, 3 prompts per domain") == 1


def test_the_small_lms_best_length_is_the_fastest_by_the_formula(monkeypatch):
    times = {"draft": {"small_lm": {1: 2.0, 2: 5.0}}, "verify": {0: 10.0, 1: 10.0, 2: 11.0}}
    rates = {"math": (0.5, 0.5), "code": (0.9, 0.9), "chat": (0.1, 0.1)}
    monkeypatch.setattr(board.clocks, "recorded", lambda: times)
    monkeypatch.setattr(
        board,
        "conditional_acceptance",
        lambda _, domain: [Estimate(rate, rate, rate) for rate in rates[domain]],
    )
    best = board.best_lengths()
    assert {domain: row["length"] for domain, row in best.items()} == {
        "math": 1,
        "code": 2,
        "chat": 1,
    }
    assert best["math"]["speedup"] == pytest.approx(1.5 * 10 / 12)
    assert best["code"]["accepted_length"] == pytest.approx(1 + 0.9 + 0.81)


def test_the_recorded_clocks_have_every_length():
    times = clocks.recorded()
    assert set(times["draft"]) == set(clocks.TIMED) and set(times["verify"]) == set(range(8))
    assert all(
        set(cost) == set(range(1, 8)) for name, cost in times["draft"].items() if name != "mtp"
    )
    assert len(times["parts"]) == 4
