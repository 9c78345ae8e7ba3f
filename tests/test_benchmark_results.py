"""The stored benchmark's small LM at its best lengths, and the recorded clocks behind it."""

import pytest

from dspark_lite.course.estimates import Estimate
from dspark_lite.course.measure import clocks
from dspark_lite.course.replication import benchmark_results as results


def test_the_small_lms_best_length_is_the_fastest_by_the_formula(monkeypatch):
    times = {"draft": {"small_lm": {1: 2.0, 2: 5.0}}, "verify": {0: 10.0, 1: 10.0, 2: 11.0}}
    rates = {"math": (0.5, 0.5), "code": (0.9, 0.9), "chat": (0.1, 0.1)}
    monkeypatch.setattr(results.clocks, "recorded", lambda: times)
    monkeypatch.setattr(
        results,
        "conditional_acceptance",
        lambda _, domain: [Estimate(rate, rate, rate) for rate in rates[domain]],
    )
    best = results.best_lengths()
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
