"""Conditional acceptance over trainings, on counts that can be computed by hand."""

import numpy as np
import pytest
from pytest import approx

from dspark_lite.course.replication import acceptance_over_seeds as over

# Accepted and reached at positions 1 to 3, of prompts A and B.
COUNTS = {
    "one": [[(8, 10), (6, 8), (6, 6)], [(6, 10), (6, 6), (1, 6)]],
    "other": [[(30, 30), (15, 30), (5, 5)], [(12, 20), (8, 10), (2, 4)]],
}


@pytest.fixture(autouse=True)
def made(monkeypatch):
    """Trainings by name, and nothing kept of others."""
    functions = (over.acceptances, over.lead, over.rise)
    for function in functions:
        function.cache_clear()
    monkeypatch.setattr(
        over.experiment_results, "counts_by_position", lambda name, _: np.array(COUNTS[name], float)
    )
    yield
    for function in functions:
        function.cache_clear()


def test_trainings_count_alike_and_both_sources_of_chance_are_in_the_interval():
    first, second, third = over.acceptances(("one", "other"), "math")
    assert first.value == approx((14 / 20 + 42 / 50) / 2)  # not 56 / 70
    assert (first.low, first.high) == (approx(0.6), approx(1.0))  # B, and one; A, and other
    assert second.value == approx((12 / 14 + 23 / 40) / 2)
    assert third is None, "the other training has nine rounds there"


def test_a_lead_draws_the_same_prompts_for_both():
    lead = over.lead(("one",), ("other",), "math", 1)
    assert lead.value == approx(14 / 20 - 42 / 50)
    assert (lead.low, lead.high) == (approx(0.8 - 1.0), approx(0.6 - 0.6))


def test_a_rise_goes_from_the_first_position_to_the_last():
    assert over.rise(("one",), "math").value == approx(7 / 12 - 14 / 20)
