"""Lesson 00: its map and its figures."""

import re
from types import SimpleNamespace

import notebooks
import pytest
import torch
from helpers import bars, drawn, written

from dspark_lite.decoding import Round, generate
from dspark_lite.decoding.target import Step
from dspark_course.figures import lesson_00 as figures
from dspark_course.figures import token_boxes
from dspark_lite.losslessness.ties import parting, same_or_tied
from dspark_lite.losslessness.toys import toy_models

(SOURCE,) = notebooks.lesson_sources("00")


def test_the_map_links_to_every_lesson_there_is():
    linked = re.findall(r"\]\((\w+)\.ipynb\)", SOURCE.read_text())
    assert list(dict.fromkeys(linked)) == [source.stem for source in notebooks.lesson_sources() if source != SOURCE]


@pytest.mark.parametrize("ours, theirs, at", [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 3], 1), ([], [], None)])
def test_parting_is_the_first_difference(ours, theirs, at):
    assert parting(ours, theirs) == at


def test_answers_that_differ_are_the_same_only_at_a_tie():
    target, _ = toy_models(vocab_size=5)
    ids = torch.tensor([[1, 2]])
    answer = generate(target, None, ids, max_new_tokens=4).token_ids
    other = answer[:2] + [(answer[2] + 1) % 5] + answer[3:]
    assert same_or_tied(target, ids, answer, answer)
    assert not same_or_tied(target, ids, answer, other)
    assert not same_or_tied(target, ids, answer, answer[:3])


@pytest.mark.parametrize("dtype, same", [(torch.float32, False), (torch.bfloat16, True)])
def test_a_tie_is_as_wide_as_the_number_format_rounds(dtype, same):
    logits = torch.tensor([[[20.0, 19.9, 0.0]]])
    target = SimpleNamespace(dtype=dtype, prefill=lambda ids: (Step(logits, None), None))
    assert same_or_tied(target, torch.tensor([[0]]), [1], [0]) is same
    assert not same_or_tied(target, torch.tensor([[0]]), [2], [0])


class Letters:
    """A lab whose tokens are letters."""

    class tokenizer:
        decode = staticmethod(lambda ids: "".join(chr(97 + i) for i in ids))

    decode = tokenizer.decode


@pytest.mark.parametrize("outcome, committed, lost", [
    (Round(3, 1, 2, [0, 1, 2], [0, 9], 0, 0), [("a", "kept"), ("j", "added")], [("b", "refused"), ("c", "unread")]),
    (Round(2, 2, 3, [0, 1], [0, 1, 9], 0, 0), [("a", "kept"), ("b", "kept"), ("j", "added")], []),
    (Round(3, 3, 1, [0, 1, 2], [0], 0, 0), [("a", "kept")], [("b", "unread"), ("c", "unread")]),
    (Round(3, 1, 1, [0, 1, 2], [0], 0, 0), [("a", "kept")], [("b", "unread"), ("c", "unread")]),
    (Round(0, 0, 1, [], [9], 0, 0), [("j", "added")], []),
])
def test_every_token_of_a_round_has_its_fate(outcome, committed, lost):
    assert token_boxes.judged_tokens(Letters, outcome) == (committed, lost)


def test_a_figure_of_rounds_shows_every_kind_of_token(closing):
    rounds = [Round(3, 1, 2, [0, 1, 2], [0, 9], 0, 0), Round(0, 0, 1, [], [9], 0, 0), Round(2, 2, 3, [0, 1], [0, 1, 9], 0, 0)]
    generation = SimpleNamespace(rounds=rounds, token_ids=[5, 0, 9, 9, 0, 1, 9])
    assert written(token_boxes.rounds_figure(Letters, generation))[:11] == [
        "round 1", "a", "+j", "×b", "c", "round 2", "+j", "round 3", "a", "b", "+j"]
    probs = torch.tensor([0.0, 0.25, 0, 0, 0.1, 0, 0, 0, 0, 0.65])  # b, e and j
    assert [written(figures.round_figure(Letters, generation, number, "a question?", probs)) for number in (1, 2, 3)] == [
        ["round 1 of 3: 1 of 3 drafts accepted, 2 tokens committed", "request", "so far", "drafted", "verified", "committed",
         "a question?", "∅", "f", "a", "b", "c", "a", "×b", "c", "a", "+j", "target's p", "+j", "0.65", "×b", "0.25"],
        ["round 2 of 3: 0 of 0 drafts accepted, 1 token committed", "request", "so far", "drafted", "verified", "committed",
         "a question?", "fa", "j", "+j", "target's p", "+j", "0.65", "b", "0.25"],
        ["round 3 of 3: 2 of 2 drafts accepted, 3 tokens committed", "request", "so far", "drafted", "verified", "committed",
         "a question?", "faj", "j", "a", "b", "a", "b", "a", "b", "+j", "target's p", "+j", "0.65", "b", "0.25"]]


def test_a_refused_draft_that_is_not_among_the_likeliest_gets_its_probability_too(closing):
    generation = SimpleNamespace(rounds=[Round(1, 0, 1, [2], [1], 0, 0), Round(3, 3, 1, [0, 1, 2], [0], 0, 0)], token_ids=[5, 1, 0])
    probs = torch.tensor([0.25, 0.7, 0.05])
    assert written(figures.round_figure(Letters, generation, 1, "?", probs))[-6:] == ["+b", "0.70", "a", "0.25", "×c", "0.05"]
    assert "target's p" not in written(figures.round_figure(Letters, generation, 2, "?", probs)), "the end, no refusal"


def test_a_figure_of_a_block_shows_what_each_model_gave_its_tokens(closing):
    fig = figures.block_figure(["a", "b"], [0.5, 0.2], [0.6, 0.9], [0.8, 0.4], 1)
    (axes,) = fig.axes
    assert bars(axes) == [[0.6, 0.9], [0.5, 0.2]] and drawn(axes) == {"confidence": [0.8, 0.4]}
    assert written(fig) == ["kept with\nchance 0.83", "kept with\nchance 0.22", "refused"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1\na", "2\nb"]


def test_the_picture_of_a_round_names_its_steps(closing):
    assert {"prefill", "parallel backbone", "sequential head", "confidence", "policy", "verify", "accept", "commit"} <= set(
        written(figures.round_picture()))


def test_bars_of_speed_say_how_many_times_plain_decoding(closing):
    fig = figures.speed_bars({"plain": {"math": 100.0, "chat": 50.0}, "dspark": {"math": 250.0, "chat": 60.0}}, "a made device")
    assert bars(fig.axes[0]) == [[100.0, 50.0], [250.0, 60.0]]
    assert written(fig) == ["× 2.50", "× 1.20", "measured on a made device"]
    assert fig.axes[0].get_title() == "chat gains least"
