"""Lesson 01: its figures show what they are given, and what it says is what it prints."""

import pytest
import stated
from helpers import drawn, written

from dspark_lite.figures import lesson_01 as figures


def test_the_cost_of_a_pass_is_said_in_the_titles(closing):
    whole, each = figures.pass_cost_figure([1, 2, 4], [4.0, 5.0, 6.0], "a made device").axes
    assert whole.get_title() == "4 positions cost 1.5 times as much as one" and each.get_title() == "so each of 4 costs 38% of the first"
    assert list(each.lines[0].get_ydata()) == [4.0, 2.5, 1.5]


def test_the_cost_of_a_context_is_said_in_the_title(closing):
    (axes,) = figures.context_cost_figure([64, 128], [10.0, 30.0], [5.0, 6.0], "a made device").axes
    assert axes.get_title() == "context × 2: time × 3 without the cache, × 1.2 with it"
    assert drawn(axes) == {"without cache: the whole text": [10.0, 30.0], "with cache: the new token": [5.0, 6.0]}


def test_the_roof_bends_where_reading_takes_as_long_as_multiplying(closing):
    (axes,) = figures.roofline_figure(4.0, 32.0, 0.25, [1, 64], [1.0, 30.0], [1], [0.5], "a made device").axes
    assert axes.get_title() == "the roof bends at about 32 positions"


def test_a_round_is_laid_beside_the_plain_passes_that_it_saves(closing):
    fig = figures.round_cost_figure(2.5, 0.5, 1.5)
    (axes,) = fig.axes
    widths = [bar.get_width() for container in axes.containers for bar in container]
    assert widths == [1, 1, 0.5, 0.5, 1.5] and written(fig) == ["draft 0.50 + verify 1.50"]
    assert axes.get_title() == "1.25 times plain decoding's speed; break-even at τ = 2.00"


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"order of magnitude: (\d+) to \d+ positions", r"^A100 .*: +(\d+) positions$"),
    (r"order of magnitude: \d+ to (\d+) positions", r"^L4 .*: +(\d+) positions$"),
    (r"more than a plain pass and brings ([\d.]+) tokens", r"^dspark .* ms +([\d.]+) +[\d.]+ ms +[\d.]+ ms$"),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("01", sentence, output)


@pytest.mark.parametrize(("sentence", "output", "bands"), [
    ("Eight positions cost less than twice as much as one", r"measured   ([\d.]+) times, on", [(1.0, 2.0)]),
])
def test_its_timings_bear_its_sentences(sentence, output, bands):
    stated.between("01", sentence, output, *bands)


def test_a_round_of_dspark_costs_more_than_a_plain_pass_and_brings_more():
    plain, (draft, verify, tau) = (
        list(map(float, stated.caught(rf"^{name} +([\d.]+) ms +([\d.]+) ms +([\d.]+) ", stated.printed("01"), "the output")))
        for name in ("plain", "dspark"))
    assert "A round of DSpark costs more than a plain pass" in stated.prose("01")
    assert draft + verify > sum(plain[:2]) and (draft + verify) / tau < sum(plain[:2])


def test_overhead_is_a_third_of_a_pass_and_is_paid_once():
    assert "a third or more of a pass over one position is no matrix product but overhead" in stated.prose("01")
    (one, rest), (_, rest_of_eight), (many, _) = (
        map(float, stated.caught(rf"^ *{k} positions: pass +([\d.]+) ms = .* everything else +([\d.]+) ms$", stated.printed("01"), "the output"))
        for k in (1, 8, 32))
    assert rest / one > 1 / 3 and rest_of_eight < 3 * rest and "it is far from eight times as much" in stated.prose("01")
    assert "32 positions less than five times" in stated.prose("01") and many < 5 * one
