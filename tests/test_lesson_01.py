"""Lesson 01: its figures show what they are given, and what it says is what it prints."""

import json

import notebooks
import pytest
import stated
from helpers import drawn

from dspark_course.exercises import lesson_01 as exercises
from dspark_course.figures import lesson_01 as figures


def test_the_cost_of_a_pass_is_said_in_the_titles(closing):
    whole, each = figures.pass_cost_figure([1, 2, 4], [4.0, 5.0, 6.0], "a made device").axes
    assert whole.get_title() == "4 positions cost 1.5 times as much as one" and each.get_title() == "on average one of 4 costs 38% of a lone one"
    assert list(each.lines[0].get_ydata()) == [4.0, 2.5, 1.5]


def test_the_cost_of_a_context_is_said_in_the_title(closing):
    (axes,) = figures.context_cost_figure([64, 128], [10.0, 30.0], [5.0, 6.0], "a made device").axes
    assert axes.get_title() == "context × 2: time × 3 without the cache, × 1.2 with it"
    assert drawn(axes) == {"without cache: the whole text": [10.0, 30.0], "with cache: the new token": [5.0, 6.0]}


def test_the_roof_bends_where_reading_takes_as_long_as_multiplying(closing):
    (axes,) = figures.roofline_figure(4.0, 32.0, 0.25, [1, 64], [1.0, 30.0], [1], [0.5], "a made device").axes
    assert axes.get_title() == "the roof bends at about 32 positions"


def test_bytes_that_are_no_int_are_refused_with_the_reason(capsys):
    assert not exercises.check_cache_bytes(lambda *case: float(exercises.cache_bytes(*case)))
    assert capsys.readouterr().out == "Not yet: the number is right; return it as an int, without a float among its factors\n"


def test_a_round_is_laid_beside_the_plain_passes_that_it_saves(closing):
    fig = figures.round_cost_figure(2.5, 0.5, 1.5)
    (axes,) = fig.axes
    widths = [bar.get_width() for container in axes.containers for bar in container]
    assert widths == [1, 1, 0.5, 0.5, 1.5]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["plain pass", "draft 0.50", "verify 1.50"]
    assert axes.get_title() == "1.25 times plain decoding's speed; break-even at τ = 2.00"


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"order of magnitude: (\d+) to \d+ positions", r"^A100 .*: +(\d+) positions$"),
    (r"order of magnitude: \d+ to (\d+) positions", r"^L4 .*: +(\d+) positions$"),
    (r"the room is about the same, \d+ against (\d+)", r"^T4 .*: +(\d+) positions$"),
    (r"the room is about the same, (\d+) against \d+", r"^H200 .*: +(\d+) positions$"),
    (r"more than a plain pass and brings ([\d.]+) tokens", r"^dspark .* ms +\d+ +([\d.]+) +[\d.]+ ms +[\d.]+ ms$"),
    (r"this easy answer took (\d+) rounds", r"^dspark .* ms +(\d+) +[\d.]+ +[\d.]+ ms +[\d.]+ ms$"),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("01", sentence, output)


@pytest.mark.parametrize(("sentence", "output", "bands"), [
    ("eight positions cost less than twice as much as one", r"measured   ([\d.]+) times on", [(1.0, 2.0)]),
])
def test_its_timings_bear_its_sentences(sentence, output, bands):
    stated.between("01", sentence, output, *bands)


def numbers(pattern):
    """The numbers of the only line of the lesson's output that a pattern fits."""
    return list(map(float, stated.caught(pattern, stated.printed("01"), "the output")))


def stands(*sentences):
    """Whether all of these sentences are in the lesson."""
    return all(sentence in stated.prose("01") for sentence in sentences)


def test_with_the_cache_a_long_context_does_not_double_the_price():
    without, with_cache = (numbers(rf"^{way} the cache +([\d.]+) ms after 64 tokens of context, +([\d.]+) ms after 1,024$")
                           for way in ("without", "with"))
    assert stands("With the cache 16 times the context does not double the price")
    assert without[1] > 4 * without[0] and with_cache[1] < 2 * with_cache[0]


def test_the_room_stayed_while_both_speeds_grew():
    """The H200 reads 15 times as fast as the T4; the L4 only multiplies faster."""
    t4, h200, l4 = (numbers(rf"^{name} +(\d+) trillion operations and +(\d+) billion bytes per second: +(\d+) positions$")
                    for name in ("T4", "H200", "L4"))
    assert stands("The H200 of 2024 reads 15 times as fast as the small T4 of 2018") and h200[1] == 15 * t4[1]
    assert h200[2] == pytest.approx(t4[2], rel=0.05)
    assert stands("The L4 reads no faster than the T4 and multiplies nearly twice as fast, so it has about twice the room")
    assert l4[1] <= t4[1] and 1.75 < l4[0] / t4[0] < 2 and l4[2] == pytest.approx(2 * t4[2], rel=0.05)


def test_a_round_of_dspark_costs_more_than_a_plain_pass_and_brings_more():
    plain, dspark = (numbers(rf"^{name} +([\d.]+) ms +([\d.]+) ms +\d+ +([\d.]+) +([\d.]+) ms +([\d.]+) ms$") for name in ("plain", "dspark"))
    assert stands("A round of DSpark costs more than a plain pass", "Formula and clock agree within a few percent")
    assert sum(dspark[:2]) > sum(plain[:2]) and sum(dspark[:2]) / dspark[2] < sum(plain[:2])
    assert all(clocked == pytest.approx(formula, rel=0.06) for *_, formula, clocked in (plain, dspark))


def test_at_one_position_reading_takes_longer_than_the_calls():
    products, calls = numbers(r"^At one position ([\d.]+) ms; the same \d+ calls with one row per matrix ([\d.]+) ms\.$")
    assert stands("With one row per matrix the calls take less than half as long") and calls < products / 2


def test_what_is_no_matrix_product_is_a_third_of_a_pass_and_not_paid_per_position():
    one, two, eight, many = (numbers(rf"^positions +{k}: pass +([\d.]+) ms = matrix products +([\d.]+) ms \+ everything else +([\d.]+) ms")
                             for k in (1, 2, 8, 32))
    assert stands("so twice the positions take less than twice the time") and two[1] < 2 * one[1] and eight[1] < 4 * two[1]
    assert stands("At one position at least a third of a pass is no matrix product") and one[2] / one[0] > 1 / 3
    assert stands("at eight positions neither the products nor the rest take anything near eight times as long")
    assert eight[1] < 3 * one[1] and eight[2] < 3 * one[2]
    assert stands("The measured line stays far below it") and many[0] < 5 * one[0]


def test_the_ratio_of_the_recap_is_measured_twice():
    twice = numbers(r"^8 positions to one: ([\d.]+) times in this table, ([\d.]+) times in the first measurement$")
    assert stands("The last line has one ratio, measured twice") and max(twice) < 2
    assert numbers(r"^Eight positions cost ([\d.]+) to ([\d.]+) passes over one, not 8,") == sorted(twice)


def test_its_models_are_those_that_it_describes():
    """Attention heads per key head, and the drafts of a block."""
    target, drafter = (json.loads((notebooks.ROOT / f"assets/checkpoints/tiny-{name}/config.json").read_text()) for name in ("target", "dspark"))
    assert stands("attention heads that share a key head (here 3: 6 share 2)", r"$\gamma = 7$ drafts: 8 positions")
    assert (target["num_attention_heads"], target["num_key_value_heads"]) == (6, 2) and drafter["block_size"] == 7
