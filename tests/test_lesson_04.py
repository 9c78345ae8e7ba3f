"""Lesson 04: the pieces that the lesson leans on hold, its figures show what they are given, it says what it prints."""

import math
from types import SimpleNamespace

import pytest
import stated
import torch
from helpers import drawn

from dspark_lite.figures import lesson_04 as figures
from dspark_lite.measure import multimodality


def test_mutual_information_of_tables_known_by_hand():
    assert multimodality.mutual_information(torch.full((2, 2), 0.25)) == pytest.approx(0, abs=1e-6)
    assert multimodality.mutual_information(torch.eye(2)) == pytest.approx(0.6931, abs=1e-4)


class Letters:
    """A lab whose tokens are letters."""

    class tokenizer:
        decode = staticmethod(lambda ids: "".join(chr(97 + i) for i in ids))


def test_the_marginals_of_a_block_say_how_many_slots_are_sure(closing):
    probs = torch.tensor([[0.9, 0.1, 0.0, 0.0, 0.0], [0.4, 0.3, 0.2, 0.1, 0.0]])
    (axes,) = figures.block_marginals(Letters, probs, "x").axes
    assert axes.get_title() == "after the anchor 'x': 1 of 2 slots are sure of their token (above 50 %)"
    assert [text.get_text() for text in axes.texts][:3] == ["a\n90%", "b\n10%", "a\n40%"]


def test_the_maps_of_pairs_say_how_much_lies_where_the_target_hardly_writes(closing):
    tables = {"target": [[0.5, 0.0], [0.0, 0.5]], "product": [[0.25, 0.25], [0.25, 0.25]]}
    fig = figures.pair_maps(tables, ["of", "no"], ["course", "problem"])
    assert [axes.get_title() for axes in fig.axes] == [
        "target\n0% on pairs that the target hardly writes", "product\n50% on pairs that the target hardly writes"]


def test_the_time_of_a_draft_is_said_in_the_title(closing):
    (axes,) = figures.draft_time_figure({100: 4.0, 400: 5.0}, {100: 4.0, 400: 27.0}, "CPU").axes
    assert axes.get_title() == "context × 4: time × 1.2 cached, × 4.0 projected anew"
    assert drawn(axes) == {"DFlash": [4.0, 5.0], "the same, context projected anew": [8.0, 32.0]}


def test_the_collision_is_laid_beside_a_drafter_that_reads_its_drafts(closing):
    def answers(accepted):
        return [SimpleNamespace(rounds=[SimpleNamespace(proposed=2, accepted=kept, committed=kept + 1) for kept in accepted])] * 5

    left, right = figures.collision_by_position({"math": answers([2, 2]), "chat": answers([0, 1, 2])}, answers([2, 2, 2]), 2).axes
    lines = {container.get_label(): list(container[0].get_ydata()) for axes in (left, right) for container in axes.containers}
    assert lines["math"] == [1.0, 1.0] and lines["DFlash"] == lines["chat"] == [pytest.approx(2 / 3), 0.5] and lines["small LM"] == [1.0, 1.0]


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"was drawn, \"(.*?)\", shows", r"^drafted after 'That': ' (.*)'$"),
    (r"guess, and ([\d.]+) tokens per round are left of", r"^mask in the anchor's slot +accepted length ([\d.]+)$"),
    (r"tokens per round are left of ([\d.]+)\.", r"^as trained +accepted length ([\d.]+)$"),
    (r"hardly anything after it, ([\d.]+)\.", r"^positions from 0 +accepted length ([\d.]+)$"),
    (r"accept more than the right ones, ([\d.]+)\.", r"^taps one layer too early +accepted length ([\d.]+)$"),
    (r"still wastes ([\d.]+%) on pairs", r"^product of the target's marginals +([\d.]+%) of it"),
    (r"DFlash, ([\d.]+%)\. Independent", r"^DFlash: product of two slots +([\d.]+%) of it"),
    (r"keeps ([\d.]+) of the first drafts and ([\d.]+) of the sixth \(few rounds reach the seventh: its ([\d.]+) has",
     r"^DFlash, chat +by position ([\d.]+) [\d.]+ [\d.]+ [\d.]+ [\d.]+ ([\d.]+) ([\d.]+)$"),
    (r"the same prompts: ([\d.]+) of the first, ([\d.]+) of the seventh", r"^small LM, chat +by position ([\d.]+) .* ([\d.]+)$"),
    (r"on chat falls from ([\d.]+) to ([\d.]+) within the block",
     r"^DFlash, chat +by position ([\d.]+) [\d.]+ [\d.]+ [\d.]+ [\d.]+ ([\d.]+) [\d.]+$"),
    (r"round of DFlash costs ([\d.]+) plain passes", r"^DFlash +(?:[\d.]+ +){3}([\d.]+) "),
    (r"that of the small LM ([\d.]+)\. On math", r"^small LM +(?:[\d.]+ +){3}([\d.]+) "),
    (r"loses to the small LM\*\*, ([\d.]+) against", r"^DFlash +\d.* ([\d.]+)$"),
    (r"small LM\*\*, [\d.]+ against ([\d.]+) times", r"^small LM +\d.* ([\d.]+)$"),
    (r"times plain decoding: ([\d.]+) tokens per round are too few", r"^DFlash +[\d.]+ +[\d.]+ +([\d.]+) "),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("04", sentence, output)


def test_two_mistakes_show_and_one_does_not():
    assert "Two of our three show in the accepted length; the taps that are off by one do not" in stated.prose("04")
    own, taps, zero, mask = (float(stated.caught(rf"^{label} +accepted length ([\d.]+)$", stated.printed("04"), "the output")[0])
                             for label in ("as trained", "taps one layer too early", "positions from 0", "mask in the anchor's slot"))
    assert taps > own > 2 * max(zero, mask) and "positions from 0" in stated.printed("04")


def test_the_draft_hardly_grows_and_three_phrasings_tell_ln_3():
    stated.between("04", "time of a draft hardly grows with the context", r"after 1,600 \(([\d.]+) times\)", (0.8, 1.6))
    (nats,) = stated.caught(r"phrasings that share no word it is \$\\ln 3 = ([\d.]+)\$ nats", stated.prose("04"), "the prose")
    assert float(nats) == round(math.log(3), 2)
