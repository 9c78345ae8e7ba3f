"""Lesson 04: the pieces that the lesson leans on hold, and its figures show what they are given."""

from types import SimpleNamespace

import pytest
import torch
from helpers import drawn

from dspark_course.exercises import lesson_04 as exercises
from dspark_course.figures import lesson_04 as figures
from dspark_course.figures import style
from dspark_course.measure import multimodality


def test_mutual_information_of_tables_known_by_hand():
    assert multimodality.mutual_information(torch.full((2, 2), 0.25)) == pytest.approx(0, abs=1e-6)
    assert multimodality.mutual_information(torch.eye(2)) == pytest.approx(0.6931, abs=1e-4)


@pytest.mark.parametrize(("check", "answer", "sentence"), [
    (exercises.check_block_ids, lambda *case: exercises.block_ids(*case).float(), "an embedding reads a tensor of integers"),
    (exercises.check_block_ids, lambda *case: exercises.block_ids(*case).tolist(), "an embedding reads a tensor of integers"),
    (exercises.check_block_mask, lambda *case: exercises.block_mask(*case).float(), "must be a Boolean tensor"),
    (exercises.check_block_mask, lambda *case: exercises.block_mask(*case).tolist(), "must be a Boolean tensor"),
    (exercises.check_features, lambda states, taps: exercises.features_of(states, [i + 2 for i in taps]), "take the layers from `taps`"),
    (exercises.check_features, lambda states, taps: [states[i + 1] for i in taps], "in a list or along an axis of their own"),
    (exercises.check_features, lambda *case: exercises.features_of(*case).numpy(), "reads a tensor; this is of type ndarray"),
    (exercises.check_features, lambda states, taps: exercises.features_of(states, sorted(taps)), "in the order of the list"),
])
def test_right_numbers_of_a_kind_that_the_model_refuses_and_indices_beyond_the_list_are_named(check, answer, sentence, capsys):
    assert check(answer) is False
    assert sentence in capsys.readouterr().out


def test_torchs_own_attention_is_a_right_answer():
    def attend(queries, context_keys, context_values, block_keys, block_values, mask):
        keys, values = torch.cat([context_keys, block_keys], 2), torch.cat([context_values, block_values], 2)
        return torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=True)

    assert exercises.check_attend(attend) is True


def test_who_sees_what_has_a_row_for_every_token_that_is_judged(closing):
    target, drafter = figures.attention_picture(context=2, gamma=3).axes
    rows = [[label.get_text() for label in axes.get_yticklabels()] for axes in (target, drafter)]
    assert rows == [["anchor", "draft 1", "draft 2", "draft 3"], ["anchor", "mask 1", "mask 2"]]
    seen = [axes.images[0].get_array() > 0 for axes in (target, drafter)]
    assert seen[0].sum(1).tolist() == [3, 4, 5, 6] and seen[1].all() and seen[1].shape == (3, 5)


class Letters:
    """A lab whose tokens are letters."""

    class tokenizer:
        decode = staticmethod(lambda ids: "".join(chr(97 + i) for i in ids))


def test_the_marginals_of_a_block_say_how_many_slots_are_sure(closing):
    probs = torch.tensor([[0.9, 0.1, 0.0, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1, 0.0]])
    (axes,) = figures.block_marginals(Letters, probs, "x").axes
    assert axes.get_title() == "after the anchor 'x': 1 of 2 slots are sure of their token (above 50 %)"
    assert [text.get_text() for text in axes.texts][:3] == ["a\n90%", "b\n10%", "a\n40%"]
    (axes,) = figures.block_marginals(Letters, probs, "x", [1, 0]).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1\ndrawn: b", "2\ndrawn: a"]


def test_the_maps_of_pairs_say_how_much_lies_where_the_target_hardly_writes(closing):
    tables = {"target": [[0.5, 0.0], [0.0, 0.5]], "product": [[0.25, 0.25], [0.25, 0.25]]}
    fig = figures.pair_maps(tables, ["of", "no"], ["course", "problem"])
    assert [axes.get_title() for axes in fig.axes] == [
        "target\n0.0% on pairs that the target hardly writes", "product\n50.0% on pairs that the target hardly writes"]


def test_the_time_of_a_draft_is_said_in_the_title(closing):
    (axes,) = figures.draft_time_figure({100: 4.0, 400: 5.0}, {100: 4.0, 400: 27.0}, "CPU").axes
    assert axes.get_title() == "context × 4: time × 1.2 with the cache, × 4.0 without"
    assert drawn(axes) == {"DFlash": [4.0, 5.0], "without the cache (projection added)": [8.0, 32.0]}


def rounds(*accepted):
    """Five generations whose rounds accept so many of two drafts."""
    return [SimpleNamespace(rounds=[SimpleNamespace(proposed=2, accepted=kept, committed=kept + 1) for kept in accepted])] * 5


def test_mistakes_that_show_are_counted_and_wear_no_drafters_colour(closing):
    (axes,) = figures.mistakes({"as trained": rounds(2, 2), "one": rounds(1, 0), "other": rounds(2, 1)}, 2, "dflash").axes
    assert axes.get_title() == "1 of 2 mistakes cost 50% or more of the first drafts"
    assert drawn(axes) == {"as trained": [1.0, 1.0], "one": [0.5, 0.0], "other": [1.0, 0.5]}
    (harmless,) = figures.mistakes({"as trained": rounds(2, 2), "one": rounds(2, 1)}, 2, "dflash").axes
    assert harmless.get_title() == "no mistake shows at the first draft"
    own, *mistaken = (line.get_color() for line in axes.lines)
    colours = {colour for colour, _ in style.DRAFTER_STYLES.values()}
    assert own == style.DRAFTER_STYLES["dflash"][0] and not colours & set(mistaken)


def test_the_collision_is_laid_beside_a_drafter_that_reads_its_drafts(closing):
    left, right = figures.collision_by_position({"math": rounds(2, 2), "chat": rounds(0, 1, 2)}, rounds(2, 2, 2), 2).axes
    assert left.get_title() == "DFlash: acceptance falls most on chat"
    lines = {container.get_label(): list(container[0].get_ydata()) for axes in (left, right) for container in axes.containers}
    assert lines["math"] == [1.0, 1.0] and lines["DFlash"] == lines["chat"] == [pytest.approx(2 / 3), 0.5] and lines["small LM"] == [1.0, 1.0]
    worn = {container.get_label(): container[0].get_color() for axes in (left, right) for container in axes.containers}
    assert worn["math"] == worn["chat"] == worn["DFlash"] != worn["small LM"]
