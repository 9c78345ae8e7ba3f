"""Lesson 03: its figures show what they are given."""

import pytest
from helpers import bars, drawn, written

from dspark_lite.figures import lesson_03 as figures


def test_bars_of_latency_divide_a_rounds_seconds_by_its_tokens(closing):
    fig = figures.latency_bars({("plain", "math"): (1.0, 0.0, 0.004), ("small_lm", "math"): (4.0, 0.01, 0.006)}, "a made device")
    verify, draft, of_small, of_its_drafts, _ = bars(fig.axes[0])
    assert [verify, draft, of_small, of_its_drafts] == [[4.0], [0.0], [pytest.approx(1.5)], [pytest.approx(2.5)]]
    assert written(fig) == ["τ 1.00", "τ 4.00", "measured on a made device"]


def test_the_sweep_of_draft_lengths_shows_measurement_and_formula(closing):
    sweep = {("math", 7): (4.0, 0.8), ("math", 1): (1.7, 1.1)}
    left, right = figures.draft_length_sweep(sweep, {"math": [1.8, 4.2]}, "CPU").axes
    assert drawn(left) == {"math": [1.7, 4.0], "math, formula": [1.8, 4.2]} and drawn(right) == {"math": [1.1, 0.8]}


def test_the_figure_of_when_it_pays_marks_the_best_length_and_where_it_breaks_even(closing):
    left, right = figures.when_it_pays(0.8, 7, 0.1, 1.0).axes
    tokens = {gamma: (1 - 0.8 ** (gamma + 1)) / 0.2 for gamma in (6, 7)}  # in rounds of 1.6 and 1.7 plain passes
    assert drawn(left) == {"best: γ = 6": [pytest.approx(tokens[6] / 1.6)], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    assert drawn(right) == {"breaks even at a = 0.42": [1], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    _, never = figures.when_it_pays(0.05, 16, 1.0, 3.0).axes
    assert list(drawn(never)) == ["here: 0.06"]
