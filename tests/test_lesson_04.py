"""Lesson 04: its checker knows a block's pass, and its figures show what they are given."""

import pytest
import torch

from dspark_lite.course.estimates import Estimate
from dspark_lite.course.exercises import lesson_04 as exercises
from dspark_lite.course.figures import lesson_04 as figures
from dspark_lite.course.measure import multimodality
from dspark_lite.course.own_decoder import my_dspark
from helpers import written


def test_the_checkers_pass_is_the_editions_and_needs_no_mask_where_nothing_is_hidden(capsys):
    draft = exercises.SmallDraft(4, 6)
    torch.testing.assert_close(exercises.passing()(draft, 3), my_dspark.block_pass(draft, 3))
    assert exercises.check_block_pass(exercises.passing()) is True


@pytest.mark.parametrize("hole", ["ids", "start", "mask"])
def test_a_hole_that_is_left_is_not_taken_for_a_mistake(hole, capsys):
    def left(draft, anchor):
        values = {
            "ids": exercises.block_ids(draft, anchor),
            "start": draft.length,
            "mask": exercises.open_mask(draft).bool(),
        } | {hole: ...}
        x = draft.w["embed_tokens.weight"][values["ids"]]
        heads = draft.rotate(draft.heads(x, "layers.0.self_attn.q_proj"), values["start"])
        return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, values["mask"])

    assert exercises.check_block_pass(left) is False
    assert "Not done yet" in (said := capsys.readouterr().out) or "ellipsis" in said


def test_what_two_slots_keep_is_what_the_toy_says():
    even = torch.tensor([[0.5, 0.0], [0.0, 0.5]])
    assert exercises.kept(even, even.sum(1), even.sum(0)) == 1.5
    uneven = torch.diag(torch.tensor([0.6, 0.4]))
    answers = [
        exercises.kept(uneven, torch.tensor(q1), torch.tensor(q2)).item()
        for q1, q2 in (([0.6, 0.4], [0.6, 0.4]), ([1.0, 0.0], [1.0, 0.0]), ([0.6, 0.4], [1.0, 0.0]))
    ]
    assert answers == pytest.approx([1.52, 1.2, 1.6])


def test_the_waste_of_two_slots_is_what_the_target_hardly_writes():
    assert (
        multimodality.wasted(torch.eye(2)) == pytest.approx(0.5)
        and multimodality.wasted(torch.ones(2, 2)) == 0
    )


def test_a_place_where_whole_words_collide_goes_before_a_worse_one_of_parts(monkeypatch):
    texts = [" of", " no", " course", "es", "ab"]

    class Lab:
        class target:
            vocab_size = len(texts)

        class tokenizer:
            decode = staticmethod(lambda ids: texts[ids[0]])

        device = "cpu"

    def reading(runner_up):
        probs = torch.zeros(1, 4, 5)
        probs[0, :, 0], probs[0, :, 1] = 0.6, torch.tensor(runner_up)
        return multimodality.Reading(torch.zeros(1, 4, dtype=torch.long), None, probs, 1)

    of_words = torch.tensor([[0.0, 0.2, 0.3, 0, 0], [0.4, 0.1, 0.0, 0, 0]])
    of_parts = torch.tensor([[0.0, 0.0, 0.0, 0.5, 0.0], [0.0, 0.0, 0.0, 0.0, 0.5]])
    tables = {2: of_words, 3: of_parts}
    monkeypatch.setattr(
        multimodality,
        "target_pairs",
        lambda target, ids: (torch.tensor([0, 1]), tables[ids.shape[1]]),
    )
    found = [reading([0.1, 0.3, 0.4, 0.1])]
    assert multimodality.wasted(of_parts) > multimodality.wasted(of_words)
    assert multimodality.colliding(Lab, found)[1] == 1
    tables[2] = of_parts
    assert multimodality.colliding(Lab, found, places=1)[1] == 2, (
        "the likeliest runner-up is looked at first"
    )


def test_dflash_is_drawn_with_its_taps_its_layers_and_its_slots():
    said = written(figures.dflash_picture(20, (1, 6, 11, 17), 4, 5))
    assert [text for text in said if text.startswith("layer ")] == [
        "layer 1",
        "layer 6",
        "layer 11",
        "layer 17",
    ]
    assert (
        said.count("anchor") == 1
        and said.count("mask") == 4
        and sum(text.startswith("draft layer") for text in said) == 4
    )
    assert [text for text in said if text[:-1] == "draft "] == [f"draft {k}" for k in range(1, 6)]


def test_the_fall_along_a_block_is_said_in_the_title():
    line = [Estimate(0.9, 0.8, 0.95), Estimate(0.4, 0.3, 0.5), None]
    fig = figures.falling_acceptance(
        {domain: {"dflash": line, "small_lm": line} for domain in ("math", "chat")}
    )
    assert [axes.get_title() for axes in fig.axes] == [
        "math: DFlash from 90% to 40%",
        "chat: DFlash from 90% to 40%",
    ]


def test_lines_by_position_are_labelled_where_they_end():
    rates = [Estimate(0.9, 0.8, 1.0), Estimate(0.5, 0.4, 0.6), Estimate(0.7, 0.6, 0.8)]
    first, last = figures.falling_acceptance(
        {domain: {"dspark": rates, "dflash": [*rates[:2], None]} for domain in ("math", "chat")}
    ).axes
    assert [text.get_text() for text in last.texts] == ["DFlash", "DSpark"] and not first.texts
    assert last.texts[0].xy == (2, 0.4)  # under its interval


def test_who_sees_what_has_a_row_for_every_token_that_is_judged():
    target, drafter = figures.attention_picture(context=2, gamma=3).axes
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in (target, drafter)]
    assert rows == [["anchor", "draft 1", "draft 2", "draft 3"], ["anchor", "mask 1", "mask 2"]]
    seen = [axes.images[0].get_array() > 0 for axes in (target, drafter)]
    assert seen[0].sum(1).tolist() == [3, 4, 5, 6] and seen[1].all() and seen[1].shape == (3, 5)


class Letters:
    """A lab whose tokens are letters."""

    class tokenizer:
        decode = staticmethod(lambda ids: "".join(chr(97 + i) for i in ids))


def test_the_marginals_of_a_block_say_how_many_slots_are_sure():
    probs = torch.tensor([[0.9, 0.1, 0.0, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1, 0.0]])
    (axes,) = figures.block_marginals(Letters, probs, "x").axes
    assert (
        axes.get_title()
        == "after the anchor 'x': 1 of 2 slots are sure of their token (above 50 %)"
    )
    assert [text.get_text() for text in axes.texts][:3] == ["a\n90%", "b\n10%", "a\n40%"]


def test_the_maps_of_pairs_say_how_much_lies_where_the_target_hardly_writes():
    tables = {"target": [[0.5, 0.0], [0.0, 0.5]], "product": [[0.25, 0.25], [0.25, 0.25]]}
    fig = figures.pair_maps(tables, ["of", "no"], ["course", "problem"])
    assert [axes.get_title() for axes in fig.axes] == [
        "target\nwaste: 0%",
        "product\nwaste: 50%",
    ]
    assert [len(axes.patches) for axes in fig.axes] == [0, 2]
