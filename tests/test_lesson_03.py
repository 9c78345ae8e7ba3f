"""Lesson 03: its checkers accept the solution, remind of a stub and name mistakes; its figures show what they are given."""

import notebooks
import pytest
from helpers import bars, drawn, written

from dspark_lite import plots
from dspark_lite.exercises import lesson_03 as exercises

(SOURCE,) = notebooks.lesson_sources("03")
CHECKERS = {"forget": exercises.check_forget, "tau_of": exercises.check_expected_tau, "best_gamma": exercises.check_best_gamma}


def expected_tau(a, gamma):
    """As in the lesson."""
    return sum(a**k for k in range(gamma + 1))


def functions(tag):
    """What the cells of the lesson with this tag define."""
    scope = {"expected_tau": expected_tau}
    for cell in notebooks.read_cells(SOURCE):
        if tag in notebooks.tags(cell):
            exec(cell.source, scope)
    return scope


def best(value, lowest=0):
    """The gamma up to 16 with the largest value."""
    return max(range(lowest, 17), key=value)


@pytest.mark.parametrize("name", CHECKERS)
def test_solution_is_accepted(name, capsys):
    assert CHECKERS[name](functions("solution")[name])
    assert capsys.readouterr().out == "Correct.\n"


@pytest.mark.parametrize("name", CHECKERS)
def test_stub_is_a_reminder(name, capsys):
    assert not CHECKERS[name](functions("exercise")[name])
    assert capsys.readouterr().out.startswith("Not done yet")


@pytest.mark.parametrize("mistake, sentence", [
    (lambda g, n, a: (g - a, max(0, g - 1 - a)), "has read only the drafts that were verified"),
    (lambda g, n, a: (n - a, g - a), "never read its own last draft"),
    (lambda g, n, a: (n - a, g - 1 - a), "must not fall below 0"),
    (lambda g, n, a: (n - a, max(0, n - 1 - a)), "start from gamma"),
    (lambda g, n, a: (max(0, n - a - 1), max(0, g - 1 - a)), "first refused draft"),
    (lambda g, n, a: (n - a + 1, max(0, g - a)), "last accepted draft"),
    (lambda g, n, a: (a, a), "the other way round"),
    (lambda g, n, a: (0, 0), "neither below 0"),
])
def test_mistakes_about_roll_back_are_named(mistake, sentence, capsys):
    assert not exercises.check_forget(mistake)
    assert sentence in capsys.readouterr().out


@pytest.mark.parametrize("mistake, sentence", [
    (lambda a, g: (1 - a**g) / (1 - a), "exponent gamma + 1"),
    (lambda a, g: expected_tau(a, g) - 1, "counted the drafts only"),
    (lambda a, g: 1 + g * a, "a ** k, not a"),
    (lambda a, g: 1 / (1 - a), "endless block"),
    (lambda a, g: a**g, "whole block is kept"),
    (lambda a, g: (1 - a ** (g + 1)) / (1 - a), "at a = 1"),
    (lambda a, g: 1 if a == 1 else (1 - a ** (g + 1)) / (1 - a), "at a = 1"),
    (lambda a, g: 0.1, "add up"),
])
def test_mistakes_about_expected_tau_are_named(mistake, sentence, capsys):
    assert not exercises.check_expected_tau(mistake)
    assert sentence in capsys.readouterr().out


@pytest.mark.parametrize("mistake, sentence", [
    (lambda a, c: best(lambda g: expected_tau(a, g) / (g * c + 1), 1), "do not speculate"),
    (lambda a, c: best(lambda g: expected_tau(a, g)), "maximised tau"),
    (lambda a, c: best(lambda g: expected_tau(a, g) / (g * c), 1), "also verifies"),
    (lambda a, c: best(lambda g: -expected_tau(a, g) / (g * c + 1)), "smallest speed-up"),
    (lambda a, c: max(expected_tau(a, g) / (g * c + 1) for g in range(17)), "the gamma that reaches it"),
    (lambda a, c: best(lambda g: expected_tau(a, g + 1) / ((g + 1) * c + 1)), "one too few"),
    (lambda a, c: best(lambda g: expected_tau(a, g) / (g * c + 1)) + 1, "one too many"),
    (lambda a, c: 5, "try every gamma"),
])
def test_mistakes_about_the_best_gamma_are_named(mistake, sentence, capsys):
    assert not exercises.check_best_gamma(mistake)
    assert sentence in capsys.readouterr().out


def test_bars_of_latency_divide_a_rounds_seconds_by_its_tokens(closing):
    fig = plots.latency_bars({("plain", "math"): (1.0, 0.0, 0.004), ("small_lm", "math"): (4.0, 0.01, 0.006)}, "a made device")
    verify, draft, of_small, of_its_drafts, _ = bars(fig.axes[0])
    assert [verify, draft, of_small, of_its_drafts] == [[4.0], [0.0], [pytest.approx(1.5)], [pytest.approx(2.5)]]
    assert written(fig) == ["τ 1.00", "τ 4.00", "measured on a made device"]


def test_the_sweep_of_draft_lengths_shows_measurement_and_formula(closing):
    sweep = {("math", 7): (4.0, 0.8), ("math", 1): (1.7, 1.1)}
    left, right = plots.draft_length_sweep(sweep, {"math": [1.8, 4.2]}, "CPU").axes
    assert drawn(left) == {"math": [1.7, 4.0], "math, formula": [1.8, 4.2]} and drawn(right) == {"math": [1.1, 0.8]}


def test_the_figure_of_when_it_pays_marks_the_best_length_and_where_it_breaks_even(closing):
    left, right = plots.when_it_pays(0.8, 7, 0.1, 1.0).axes
    tokens = {gamma: (1 - 0.8 ** (gamma + 1)) / 0.2 for gamma in (6, 7)}  # in rounds of 1.6 and 1.7 plain passes
    assert drawn(left) == {"best: γ = 6": [pytest.approx(tokens[6] / 1.6)], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    assert drawn(right) == {"breaks even at a = 0.42": [1], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    _, never = plots.when_it_pays(0.05, 16, 1.0, 3.0).axes
    assert list(drawn(never)) == ["here: 0.06"]
