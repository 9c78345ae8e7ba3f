"""Lesson 01: its figures show what they are given, and what it says is what it prints."""

import json
import re
from functools import partial
from itertools import combinations

import notebooks
import pytest
import stated
import torch
from helpers import drawn

from dspark_course.exercises import lesson_01 as exercises
from dspark_course.figures import lesson_01 as figures
from dspark_lite.common import timing


def test_the_cost_of_a_pass_is_said_in_the_titles(closing):
    whole, each = figures.pass_cost_figure([1, 2, 4], [4.0, 5.0, 6.0], "a made device").axes
    assert whole.get_title() == "4 positions cost 1.5 times as much as one" and each.get_title() == "each of 4 positions costs 38% of a pass over one"
    assert list(each.lines[0].get_ydata()) == [4.0, 2.5, 1.5]


def test_the_cost_of_a_context_is_said_in_the_title(closing):
    (axes,) = figures.context_cost_figure([64, 128], [10.0, 30.0], [5.0, 6.0], "a made device").axes
    assert axes.get_title() == "context × 2: time × 3 without the cache, × 1.2 with it"
    assert drawn(axes) == {"without cache: the whole text": [10.0, 30.0], "with cache: the new token": [5.0, 6.0]}


def test_the_roof_bends_where_reading_takes_as_long_as_multiplying(closing):
    (axes,) = figures.roofline_figure(4.0, 32.0, 0.25, [1, 64], [1.0, 30.0], [1], [0.5], "a made device").axes
    assert axes.get_title() == "the roof bends at about 32 positions"


@pytest.mark.parametrize(("times", "credible"), [
    ({1: 5.0, 2: 5.0, 8: 6.0}, True), ({1: 5.0, 2: 4.6, 8: 4.6}, True), ({1: 7.29, 2: 8.17, 8: 5.72, 32: 11.61}, False),
    ({1: 5.0, 4: 9.4, 8: 6.0}, False)])
def test_a_busy_machine_is_noticed(times, credible):
    """The second may be a GPU, where positions cost nothing; the last two are outputs that this lesson once had."""
    (cell,) = [cell for cell in notebooks.read_cells(*notebooks.lesson_sources("01")) if "def is_credible" in cell.source]
    scope = {"combinations": combinations}
    exec(re.search(r"^def is_credible.*?\n\n", cell.source, re.M | re.S)[0], scope)
    assert scope["is_credible"](times) is credible


def test_repeats_are_shuffled_and_the_shortest_counts(monkeypatch):
    called, ticks = [], iter(range(10**6))
    monkeypatch.setattr(timing, "clock", lambda device: next(ticks))
    least = timing.least_milliseconds({name: partial(called.append, name) for name in "abcde"}, None, repeats=6)
    rounds = ["".join(called[start:start + 5]) for start in range(0, 35, 5)]
    assert rounds[0] == "abcde" and len(set(rounds)) > 4 and {"".join(sorted(one)) for one in rounds} == {"abcde"}
    assert least == dict.fromkeys("abcde", 1e3)
    monkeypatch.setattr(timing, "time_interleaved", lambda *asked, shuffled=False: {"one": [3.0, 2.0, 9.0]})
    assert timing.least_milliseconds({"one": None}, None) == {"one": 2.0} and timing.milliseconds({"one": None}, None) == {"one": 3.0}


def test_bytes_that_are_no_int_are_refused_with_the_reason(capsys):
    assert not exercises.check_cache_bytes(lambda *case: float(exercises.cache_bytes(*case)))
    assert capsys.readouterr().out == "Not yet: the number is right; return it as an int, without a float among its factors\n"


@pytest.mark.parametrize("kind", [torch.tensor, lambda tokens: [torch.tensor([[token]]) for token in tokens]])
def test_tokens_that_are_no_ints_are_refused_with_the_reason(kind, capsys):
    assert not exercises.check_decode_with_cache(lambda *case: kind(exercises.decode_with_cache(*case)))
    assert capsys.readouterr().out.startswith("Not yet: the tokens are right; return a list of ints")


@pytest.mark.parametrize(("answer", "said"), [
    (lambda target, ids, count: [1] * count, "your function asks nothing of its argument `target`"),
    (lambda target, ids, count: [target.verify(target.prefill(ids)[0].logits.argmax(-1))], "`verify` needs the cache that `prefill` has returned"),
    (lambda target, ids, count: target.verify(ids[0, -1:], target.prefill(ids)[1]), "`verify` takes a tensor of tokens [1, k]"),
    (lambda target, ids, count: [exercises.decode_with_cache(target, ids, count)], "return one list of the tokens"),
    (lambda target, ids, count: torch.tensor([exercises.decode_with_cache(target, ids, count)]), "return one list of the tokens"),
    (lambda target, ids, count: target.prefill(ids)[0].logits.argmax().item(), "a value of type int cannot be read as the answer here"),
])
def test_a_loop_that_goes_wrong_is_told_what_is_amiss(answer, said, capsys):
    assert not exercises.check_decode_with_cache(answer)
    assert capsys.readouterr().out.startswith(f"Not yet: {said}")


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
    ("eight positions cost less than twice as much as one", r"measured   ([\d.]+) and [\d.]+ times on", [(1.0, 2.0)]),
    ("The measured line stays far below it", r"measured   [\d.]+ and ([\d.]+) times on", [(1.0, 5.0)]),
    ("On one CPU thread most of a pass over one position is not matrix products", r"measured   (\d+)% on", [(5, 49)]),
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
    assert stands("With the cache 16 times the context costs less than twice as much")
    assert without[1] > 4 * without[0] and with_cache[1] < 2 * with_cache[0]


def test_the_room_stayed_while_both_speeds_grew():
    t4, h200 = (numbers(rf"^{name} +(\d+) trillion operations and +(\d+) billion bytes per second: +(\d+) positions$")
                for name in ("T4", "H200"))
    assert stands("The H200 of 2024 reads 15 times as fast as the small T4 of 2018") and h200[1] == 15 * t4[1]
    assert h200[2] == pytest.approx(t4[2], rel=0.05)


def test_the_cache_of_two_long_requests_outgrows_the_weights():
    assert stands("Two such requests hold more bytes than the weights")
    (weights,), (cache,) = numbers(r"^Qwen3-4B has about (\d+) GB of weights"), numbers(r"^  measured   ([\d.]+) GB$")
    assert cache == 4.8 and 2 * cache > weights


def test_a_round_of_dspark_costs_more_than_a_plain_pass_and_brings_more():
    plain, dspark = (numbers(rf"^{name} +([\d.]+) ms +([\d.]+) ms +\d+ +([\d.]+) +([\d.]+) ms +([\d.]+) ms$") for name in ("plain", "dspark"))
    assert stands("A round of DSpark costs more than a plain pass", "Formula and clock agree within a few percent")
    assert sum(dspark[:2]) > sum(plain[:2]) and sum(dspark[:2]) / dspark[2] < sum(plain[:2])
    assert all(clocked == pytest.approx(formula, rel=0.06) for *_, formula, clocked in (plain, dspark))
    tau, gain = map(float, stated.caught(r"^math .* / ([\d.]+) tokens = .* gain ([\d.]+) by the formula", stated.printed("00"), "lesson 00"))
    assert stands("Lesson 00's math answers bring fewer tokens per round on average, and gain less")
    assert dspark[2] > tau and plain[3] / dspark[3] > gain


def test_at_one_position_reading_takes_longer_than_the_calls():
    products, calls = numbers(r"^At one position ([\d.]+) ms; the same \d+ calls with one row per matrix ([\d.]+) ms\.$")
    assert stands("the same calls with one row per matrix take less than half as long") and calls < products / 2


def test_no_dot_lies_above_the_roof():
    """The time of the reading is no longer than the shortest of the products that are printed."""
    (read,), (products, _) = numbers(r"^ +1 +([\d.]+) MB"), numbers(r"^At one position ([\d.]+) ms; the same (\d+) calls")
    bandwidth, peak, bend = numbers(r"^([\d.]+) billion bytes and ([\d.]+) billion multiply-adds per second: the roof bends at ([\d.]+)")
    assert stands("It is drawn through the best of what we measured, so no dot lies above it")
    assert read / bandwidth <= 1.02 * min(products, *(row[1] for row in table().values()))
    assert bend == pytest.approx(peak / bandwidth, abs=0.1)
    assert numbers(r"bytes per weight: about (\d+) positions$") == [pytest.approx(4 * bend, rel=0.05)]


def table():
    """Milliseconds of a pass, of its matrix products and of everything else, by positions."""
    return {k: numbers(rf"^positions +{k}: pass +([\d.]+) ms = matrix products +([\d.]+) ms \+ everything else +(-?[\d.]+) ms")
            for k in (1, 2, 8, 32)}


def test_most_of_a_pass_is_no_matrix_product_and_it_is_not_paid_per_position():
    one, two, eight, many = table().values()
    assert stands("the second position costs more than each of the six after it, and from there each doubling costs more")
    assert two[1] - one[1] > (eight[1] - two[1]) / 6 and two[1] < 1.5 * one[1] and many[1] - eight[1] > eight[1] - two[1] > 0
    assert stands("Whole passes (squares) are slower") and all(rest > 0 for *_, rest in (one, two, eight, many))
    assert stands("On one CPU thread most of a pass over one position is not matrix products") and one[2] > one[0] / 2
    assert stands("at eight positions neither the products nor the rest take anything near eight times as long")
    assert eight[1] < 3 * one[1] and 0.9 * one[2] < eight[2] < 3 * one[2]


def test_the_committed_run_does_not_contradict_itself():
    """On a CPU more positions never cost less; the lesson says so where they seem to, and such a run is not committed."""
    assert not re.search("the machine was (too )?busy", stated.printed("01"), re.I)
    one, two, eight, many = (row[0] for row in table().values())
    assert one < 1.1 * two and two < 1.1 * eight and eight < 1.1 * many and one < eight


def test_the_ratio_of_the_recap_is_measured_twice():
    twice = numbers(r"^8 positions to one: ([\d.]+) times in this table, ([\d.]+) times in the first measurement$")
    assert stands("The line `8 positions to one` has one ratio, measured twice") and 1 < min(twice) and max(twice) < 2
    assert numbers(r"^Eight positions cost ([\d.]+) to ([\d.]+) passes over one, not 8,") == sorted(twice)


def test_its_models_are_those_that_it_describes():
    """Attention heads per key head, and the drafts of a block."""
    target, drafter = (json.loads((notebooks.ROOT / f"assets/checkpoints/tiny-{name}/config.json").read_text()) for name in ("target", "dspark"))
    assert stands("attention heads that share a key head (here 3: 6 share 2)", r"$\gamma = 7$ drafts: 8 positions")
    assert (target["num_attention_heads"], target["num_key_value_heads"]) == (6, 2) and drafter["block_size"] == 7
