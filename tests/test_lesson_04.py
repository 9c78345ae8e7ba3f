"""Lesson 04: the pieces that the lesson leans on hold, its figures show what they are given, it says what it prints."""

import inspect
import math
from types import SimpleNamespace

import pytest
import stated
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


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"was drawn, \"(.*?)\", shows", r"^drafted after 'That': ' (.*)'$"),
    (r"is a guess, kept in ([\d.]+) of the rounds", r"^mask in the anchor's slot .*, first draft kept ([\d.]+)$"),
    (r"trained drafter, and ([\d.]+) tokens per round are left of", r"^mask in the anchor's slot +accepted length ([\d.]+), "),
    (r"tokens per round are left of ([\d.]+)\.", r"^as trained +accepted length ([\d.]+), "),
    (r"rounds that reach it, and ([\d.]+) are left\.", r"^positions from 0 +accepted length ([\d.]+), "),
    (r"accept more than the right ones, ([\d.]+)\.", r"^taps one layer too early +accepted length ([\d.]+), "),
    (r"Not here: ([\d.]+) against [\d.]+, and ([\d.]+) against", r"^prompts 4 to 6 .*, taps one layer too early +([\d.]+)$[^$]*?"
     r"^prompts 7 to 9 .*, taps one layer too early +([\d.]+)$"),
    (r"Not here: [\d.]+ against ([\d.]+), and [\d.]+ against ([\d.]+)\.", r"^prompts 4 to 6 .*, as trained +([\d.]+)$[^$]*?"
     r"^prompts 7 to 9 .*, as trained +([\d.]+)$"),
    (r"([\d.]+) nats are more than three rows can have", r"^([\d.]+) nats of mutual information"),
    (r"\(A\) keeps ([\d.]+) of the second drafts, DFlash ([\d.]+) \(the figure", r"^position 2 is kept: ([\d.]+) with .*, ([\d.]+) by DFlash$"),
    (r"the figure, at all places of ten answers, has ([\d.]+)\)", r"^DFlash, chat +by position [\d.]+ ([\d.]+) "),
    (r"the median is ([\d.]+) nats, and (\d+)% of the places have more than 0\.5", r"median ([\d.]+) nats, more than 0\.5 at (\d+)% of them$"),
    (r"Of the ([\d.]+) that collide, ([\d.]+) are tokens that go on with a word", r"^lost: ([\d.]+) to collision \(([\d.]+) of it inside"),
    (r"Of (\d+) blocks (\d+) are mixed\.", r"^of (\d+) blocks (\d+) are mixed$"),
    (r"still wastes (\d+)% on pairs", r"^product of the target's marginals .* table, +([\d.]+)% of them wasted$"),
    (r"DFlash wastes as much, (\d+)%\.", r"^DFlash: product of two slots .* table, +([\d.]+)% of them wasted$"),
    (r"keeps ([\d.]+) of the first drafts and about ([\d.]+) of the sixth; too few",
     r"^DFlash, chat +by position ([\d.]+) [\d.]+ [\d.]+ [\d.]+ [\d.]+ ([\d.]+) [\d.]+$"),
    (r"the same prompts: ([\d.]+) of the first, ([\d.]+) of the seventh", r"^small LM, chat +by position ([\d.]+) .* ([\d.]+)$"),
    (r"On chat acceptance falls from ([\d.]+) to about ([\d.]+) within the block",
     r"^DFlash, chat +by position ([\d.]+) [\d.]+ [\d.]+ [\d.]+ [\d.]+ ([\d.]+) [\d.]+$"),
    (r"round of DFlash costs ([\d.]+) plain passes", r"^DFlash +(?:[\d.]+ +){3}([\d.]+) "),
    (r"that of the small LM ([\d.]+)\. DFlash accepts", r"^small LM +(?:[\d.]+ +){3}([\d.]+) "),
    (r"loses to the small LM\*\*, ([\d.]+) against", r"^DFlash +\d.* ([\d.]+)$"),
    (r"small LM\*\*, [\d.]+ against ([\d.]+) times", r"^small LM +\d.* ([\d.]+)$"),
    (r"and verifying alone takes ([\d.]+)\. Cheaper", r"^DFlash +(?:[\d.]+ +){5}([\d.]+) "),
    (r"times plain decoding: to win with ([\d.]+) tokens per round", r"^DFlash +[\d.]+ +[\d.]+ +([\d.]+) "),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("04", sentence, output)


def rates(label):
    """The numbers of a line "<label> by position ..." of the lesson."""
    (line,) = stated.caught(rf"^{label} +by position (.*)$", stated.printed("04"), "the output")
    return [float(rate) for rate in line.split()]


def test_forced_domains_stay_above_what_it_says_and_the_gap_opens_after_the_first_position():
    (least,) = stated.caught(r"acceptance stays at ([\d.]+) or above", stated.prose("04"), "the prose")
    assert min(rates("DFlash, math") + rates("DFlash, code")) == float(least)
    assert "At position 1, where nothing can collide, the two are close. The gap opens after it" in stated.prose("04")
    gap = [small - block for small, block in zip(rates("small LM, chat"), rates("DFlash, chat"), strict=True)]
    assert gap[0] < 0.05 and min(gap[1:]) > 0.2


def test_the_price_that_would_win_on_chat_is_tokens_per_round_over_the_small_lms_speed():
    (tau,) = stated.caught(r"^DFlash +[\d.]+ +[\d.]+ +([\d.]+) ", stated.printed("04"), "the output")
    (speed,) = stated.caught(r"^small LM +\d.* ([\d.]+)$", stated.printed("04"), "the output")
    (price,) = stated.caught(r"a round would have to cost less than ([\d.]+), and verifying alone takes", stated.prose("04"), "the prose")
    assert float(price) == pytest.approx(float(tau) / float(speed), abs=0.006)


def test_dflash_accepts_more_on_math_less_on_code_and_is_faster_on_both():
    assert "DFlash accepts more on math, less on code, and is faster on both" in stated.prose("04")
    numbers = r" +([\d.]+) +([\d.]+) .*? ([\d.]+) +([\d.]+) +[\d.]+$"
    small, block = (list(map(float, stated.caught("^" + name + numbers, stated.printed("04"), "the output"))) for name in ("small LM", "DFlash"))
    assert block[0] > small[0] and block[1] < small[1] and block[2] > small[2] and block[3] > small[3]


def test_restarted_positions_halve_the_first_draft():
    assert "the first draft is kept about half as often as it should be" in stated.prose("04")
    own, zero = (float(stated.caught(rf"^{label} +accepted length [\d.]+, first draft kept ([\d.]+)$", stated.printed("04"), "the output")[0])
                 for label in ("as trained", "positions from 0"))
    assert 0.4 < zero / own < 0.6


def test_two_mistakes_show_and_one_does_not():
    assert "Two of our three show in the accepted length; the taps that are off by one do not" in stated.prose("04")
    own, taps, zero, mask = (float(stated.caught(rf"^{label} +accepted length ([\d.]+), ", stated.printed("04"), "the output")[0])
                             for label in ("as trained", "taps one layer too early", "positions from 0", "mask in the anchor's slot"))
    assert taps > own > 2 * max(zero, mask) and "positions from 0" in stated.printed("04")


def test_tensors_beside_a_reference_find_all_three_mistakes_and_say_where():
    assert "One prompt is enough to find all three, and to say where. The restarted positions show only in the hidden states" in stated.prose("04")
    found = dict(line.split(" first stage that differs from the reference: ") for line in stated.printed("04").splitlines()
                 if "first stage that differs" in line)
    assert {label.strip(): stage for label, stage in found.items()} == {
        "as trained": "none", "taps one layer too early": "features", "positions from 0": "hidden states",
        "mask in the anchor's slot": "embedded block"}


def test_twenty_seven_prompts_do_not_tell_what_shifted_taps_change():
    assert "Nine prompts are too few to see a difference of this size, and so are 27: the interval holds 0" in stated.prose("04")
    count, low, high = stated.caught(r"^all (\d+) prompts: .* \(95% interval ([-+][\d.]+)% to ([-+][\d.]+)%\)$", stated.printed("04"), "the output")
    assert int(count) == 27 and float(low) < 0 < float(high)


def test_two_thirds_of_the_loss_at_position_2_are_collision():
    assert all(said in stated.prose("04") for said in (
        "About two thirds of the loss is collision", "at position 2 about two thirds of the loss were collision",
        "The collision, about two thirds of the loss at position 2, is what"))
    collided, marginals = stated.caught(r"^lost: ([\d.]+) to collision .*, ([\d.]+) to DFlash's marginals$", stated.printed("04"), "the output")
    assert float(collided) / (float(collided) + float(marginals)) == pytest.approx(2 / 3, abs=0.04)


def test_neighbouring_layers_are_as_alike_as_it_says():
    low, high = stated.caught(r"the states have cosines of ([\d.]+) to ([\d.]+) with those before", stated.prose("04"), "the prose")
    (cosines,) = stated.caught(r"^cosine of each tapped state with the one before it: (.*)$", stated.printed("04"), "the output")
    assert (low, high) == (min(cosines.split()), max(cosines.split()))


def test_the_places_left_out_are_counted():
    left_out, places = stated.caught(r"without the (\d+) most open of (\d+) places", stated.prose("04"), "the prose")
    kept, of = stated.caught(r"^(\d+) of (\d+) places: median", stated.printed("04"), "the output")
    assert (int(left_out), places) == (int(of) - int(kept), of)


def test_the_worst_place_is_the_worst_of_as_many_as_are_tried():
    assert "the worst of 24 places" in stated.prose("04")
    assert 24 == 6 * inspect.signature(multimodality.strongest).parameters["places"].default


def test_the_draft_grows_far_less_than_the_context_and_three_phrasings_tell_ln_3():
    stated.between("04", "time of a draft grows far less than the context", r"after 1,600 \(([\d.]+) times\)", (0.8, 4))
    (measured,) = stated.caught(r"^([\d.]+) nats of mutual information", stated.printed("04"), "the output")
    assert float(measured) > math.log(3) + 0.005  # more than three rows can have, whatever the rounding hides
    (nats,) = stated.caught(r"phrasings that share no word it is \$\\ln 3 = ([\d.]+)\$ nats", stated.prose("04"), "the prose")
    assert float(nats) == round(math.log(3), 2)
