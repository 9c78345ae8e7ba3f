"""Lesson 01: its figures show what they are given; a clock that counts the shortest; the public run contradicts itself."""

from functools import partial

import pytest

from dspark_lite.common import timing
from dspark_lite.course.exercises import lesson_01 as exercises
from dspark_lite.course.figures import lesson_01 as figures
from dspark_lite.course.result_files import reference


def test_the_cost_of_a_pass_is_said_in_the_title():
    (axes,) = figures.pass_cost_figure([1, 2, 4], [4.0, 5.0, 6.0], "a made device").axes
    assert axes.get_title() == "4 positions cost 1.5 times as much as one"
    assert list(axes.lines[0].get_ydata()) == [4.0, 5.0, 6.0] and list(
        axes.lines[1].get_ydata()
    ) == [0, 16.0]


def test_a_pass_takes_the_longer_of_reading_and_multiplying():
    (axes,) = figures.envelope_figure([1, 8, 64], 4.0, 0.125, "a made GPU").axes
    assert axes.get_title() == "predicted for a made GPU: up to 32 positions for the price of one"
    assert list(axes.lines[0].get_ydata()) == [4.0, 4.0, 4.0, 8.0] and list(
        axes.lines[2].get_ydata()
    ) == [0.125, 1.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("k", "milliseconds"), [(1, 2.388), (8, 2.388), (296, 2.392), (592, 4.784)]
)
def test_the_envelope_of_an_h100(k, milliseconds):
    assert 1e3 * exercises.pass_seconds(k, 4e9, 2, 3.35e12, 990e12) == pytest.approx(
        milliseconds, abs=0.001
    )


def test_the_public_runs_round_is_shorter_than_its_plain_pass():
    """What case 01 asks to find: its speed-up exceeds its accepted length."""
    public = reference("public_run.json")
    run = public["speed_run"]
    assert run["dspark_tokens"] / run["dspark_rounds"] == pytest.approx(
        run["dspark_accepted_length"], abs=0.005
    )
    assert run["plain_tokens"] / run["plain_seconds"] == pytest.approx(
        public["tokens_per_second"]["plain"], abs=0.05
    )
    assert run["dspark_tokens"] / run["dspark_seconds"] == pytest.approx(
        public["tokens_per_second"]["dspark"], rel=0.01
    )
    best = exercises.speedup(run["dspark_accepted_length"], 0.0, 1.0, 1.0)
    assert best < run["plain_seconds"] / run["dspark_seconds"] < public["speedup"]


def test_repeats_are_shuffled_and_the_shortest_counts(monkeypatch):
    called, ticks = [], iter(range(10**6))
    monkeypatch.setattr(timing, "clock", lambda device: next(ticks))
    least = timing.least_milliseconds(
        {name: partial(called.append, name) for name in "abcde"}, None, repeats=6
    )
    rounds = ["".join(called[start : start + 5]) for start in range(0, 35, 5)]
    assert (
        rounds[0] == "abcde"
        and len(set(rounds)) > 4
        and {"".join(sorted(one)) for one in rounds} == {"abcde"}
    )
    assert least == dict.fromkeys("abcde", 1e3)
    monkeypatch.setattr(
        timing, "time_interleaved", lambda *asked, shuffled=False: {"one": [3.0, 2.0, 9.0]}
    )
    assert timing.least_milliseconds({"one": None}, None) == {"one": 2.0}


def test_a_round_is_laid_beside_the_plain_passes_that_it_saves():
    fig = figures.round_cost_figure(2.5, 0.5, 1.5)
    (axes,) = fig.axes
    widths = [bar.get_width() for container in axes.containers for bar in container]
    assert widths == [1, 1, 0.5, 0.5, 1.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "plain pass",
        "draft 0.50",
        "verify 1.50",
    ]
    assert axes.get_title() == "1.25 times plain decoding's speed; break-even at τ = 2.00"
