"""Lesson 01: its figures show what they are given."""

import re
from functools import partial
from itertools import combinations

import notebooks
import pytest
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
