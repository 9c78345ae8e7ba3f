"""Lesson 02: its figures show what they are given, and what it says is what it prints."""

import re

from unittest.mock import patch

import pytest
import stated
import torch
from helpers import bars, drawn

from dspark_lite.decoding import rounds
from dspark_lite.decoding.sampling import probabilities, residual
from dspark_course.exercises.verifying import as_accept, variant, verify
from dspark_course.figures import lesson_02 as figures
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget

P, Q = torch.tensor([0.6, 0.4]), torch.tensor([0.25, 0.75])


def test_what_is_refused_is_what_is_owed(closing):
    left, right = figures.overlap_figure(P, Q, ["A", "B"]).axes
    assert left.get_title() == "kept 0.65; refused 0.35 = owed 0.35" and bars(right) == [[1.0, 0.0]]
    _, none = figures.overlap_figure(P, P, ["A", "B"]).axes
    assert none.get_title() == "no residual: nothing is refused" and bars(none) == [[0.0, 0.0]] and not none.axison


def test_no_tick_is_above_a_probability_of_one(closing):
    left, _ = figures.overlap_figure(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), ["A", "B"]).axes
    assert left.get_ylim() == pytest.approx((0, 1.4)) and max(left.get_yticks()) <= 1.01


def test_lossy_decoders_are_counted(closing):
    (axes,) = figures.total_variation_figure({"exact": 1e-8, "wrong": 0.1, "worse": 0.3}).axes
    assert axes.get_title() == "2 of 3 decoders do not reproduce the target's distribution"


def test_counts_within_two_deviations_are_counted(closing):
    """Of 100 draws with p = 0.5 the bar reaches from 40 to 60; what is not named is one more bar, 25 ± 8.7 here."""
    (axes,) = figures.counts_figure([" a", " b"], [0.5, 0.25], 100, {"right": [41, 30], "wrong": [39, 17]}).axes
    assert axes.get_title() == "counts within the bars: 3 of 3 (right), 1 of 3 (wrong)"
    assert drawn(axes) == {"right": [41, 30, 29], "wrong": [39, 17, 44]}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["·a", "·b", "all others"]


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"does most harm, ([\d.]+): it keeps", r"1 p and q swapped in the coin \(([\d.]+)\), then"),
    (r"wrong correction \(([\d.]+) and ([\d.]+)\) acts", r"residual not renormalised \(([\d.]+)\), then 2 correction drawn from p \(([\d.]+)\)"),
    (r"A wrong bonus \(([\d.]+)\) acts only in the first block", r"4 bonus from the row before \(([\d.]+)\)$"),
    (r"moves the text by only ([\d.]+)\. That is still", r"^5 drawn in 16 bits, float32 claimed +([\d.e-]+)$"),
    (r"A drafted 0 promises ([\d.]+) tokens per second", r"^first draft 0: .* per second \[.*, ([\d.]+)\] -> verify 2 drafts"),
    (r"more than the ([\d.]+) of verifying nothing", r"^first draft 1: .* per second \[([\d.]+), .* -> verify 0 drafts"),
    (r"the smallest p-value is ([\d.]+)\.", r"^dflash +p-value ([\d.]+)"),
    (r"and (\d+) % of its draws go to tokens outside these ten, where the target puts (\d+) %",
     r"^outside these ten tokens: (\d+)% of the planted draws, (\d+)% of the target's"),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("02", sentence, output)


def test_none_of_the_six_is_rejected_and_the_planted_error_is():
    found = dict(re.findall(r"^(\w+(?: error)?) +p-value (\S+)", stated.printed("02"), re.M))
    assert "None of the six is rejected" in stated.prose("02") and len(found) == 7 and found.pop("planted error") == "below"
    assert min(map(float, found.values())) == float(found["dflash"]) >= 1e-3


def test_prompt_lookups_draft_is_hardly_ever_kept_and_the_others_are_kept_and_refused():
    shares = {name: int(share) for name, share in re.findall(r"^(\w+) +p-value .* draft kept in (\d+)% of", stated.printed("02"), re.M)}
    assert "Prompt lookup's draft is hardly ever kept here" in stated.prose("02") and len(shares) == 6
    assert shares.pop("prompt_lookup") <= 1 and all(20 <= share <= 90 for share in shares.values())


def test_sixteen_bits_are_ten_thousand_times_as_far_as_the_rule():
    assert "more than ten thousand times as far as the exact rule" in stated.prose("02")
    wrong, right = (float(stated.caught(line, stated.printed("02"), "the output")[0])
                    for line in (r"^5 drawn in 16 bits, float32 claimed +([\d.e-]+)$", r"^the rule as derived +([\d.e-]+)$"))
    assert wrong / right > 1e4


# What it says without printing it: the tables of "Seven ways to break the rule" ---------------------------------------

TABLE, DRAFTED = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.45, 0.55], [0.8, 0.2]])


def distance_with(rule=verify, policy=None) -> float:
    """The lesson's function of this name, on its tables."""
    target = ToyTarget(TABLE)
    drafter = ToyDrafter(DRAFTED, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
    with patch.object(rounds, "accept", as_accept(rule)):
        found = output_distribution(target, drafter, policy, length=4)
    return total_variation(found, output_distribution(target, None, None, length=4))


def test_swapped_in_the_coin_p_and_q_fill_a_drafts_place_from_q():
    assert "so with two tokens each draft's place is filled from $q$" in stated.prose("02")
    for p, q in zip(TABLE, DRAFTED, strict=True):
        kept = q * (q / p).clamp(max=1)
        assert torch.allclose(kept + (1 - kept.sum()) * residual(p, q), q)


def test_what_is_not_renormalised_is_wrong_after_a_0_alone():
    assert "mistake 3 only after a 0, because after a 1 the missing mass lands where it is owed" in stated.prose("02")
    owed = (TABLE - DRAFTED).clamp(min=0)
    owed[:, -1] += 1 - owed.sum(-1)  # the lesson's draw along the cumulative sum
    assert [torch.allclose(row, residual(p, q)) for row, p, q in zip(owed, TABLE, DRAFTED, strict=True)] == [False, True]


def test_a_wrong_bonus_acts_half_as_often_as_a_wrong_correction():
    """In the first block, after a first token from the target; two drafts that differ leave rows 0.3 apart."""
    assert "and there about half as often: after a whole block whose two drafts differ" in stated.prose("02")
    kept = torch.minimum(TABLE, DRAFTED)
    whole = torch.einsum("a,ab,bc->bc", TABLE[0], kept, kept)  # [V, V]: kept whole, by its two drafts
    differ = (whole[0, 1] + whole[1, 0]).item()
    assert 0.45 < differ / (1 - whole.sum().item()) < 0.55
    assert stated.says(*stated.caught(r"A wrong bonus \(([\d.]+)\)", stated.prose("02"), "the prose"), f"{0.3 * differ:.6f}")


def rounded_ratio(p, q, k, x):
    """The coin of exercise 7's answer."""
    return (p[k, x] / q[k, x]).round(decimals=2)


def test_the_answer_of_exercise_7_is_what_it_measures():
    moved, draws = stated.caught(r"moves the text by ([\d.]+)\. A count needs about .*? some ([\d,]+) draws", stated.prose("02"), "the prose")
    assert stated.says(moved, f"{distance_with(variant(coin=rounded_ratio)):.6f}")
    assert 1 / float(moved) ** 2 == pytest.approx(int(draws.replace(",", "")), rel=0.05)
    assert "30 million" in stated.prose("02") and 1 / 0.00018**2 == pytest.approx(30e6, rel=0.05)


@pytest.mark.parametrize("wrong", [
    variant(coin=lambda p, q, k, x: p[k, x] / (q[k, x] + 1e-3)),
    variant(correction=lambda p, q, k: residual(p[k], q[k]).clamp(min=0.01))])
def test_so_do_the_other_ideas_of_its_hint(wrong):
    assert 1e-4 < distance_with(wrong) < 0.01


@pytest.mark.parametrize(("policy", "lossy"), [
    (lambda proposal: torch.where(proposal.tokens[:, 0] == 0, 2, 1), False),
    (lambda proposal: torch.where(proposal.tokens[:, 0] == proposal.tokens[:, 1], 0, 2), True)], ids=["B", "C"])
def test_exercise_6_is_right_about_policies_that_read_the_drafts(policy, lossy):
    assert (distance_with(policy=policy) > 1e-5) is lossy


def test_the_sliders_reach_no_less_than_the_green_area_named():
    p, q = (probabilities(torch.tensor(logits), 1.0) for logits in ([1.5, 0.5, 0.0, -1.0], [-3.0, -3.0, -3.0, 0.0]))
    (said,) = stated.caught(r"About ([\d.]+), with all three sliders at \$-3\$", stated.prose("02"), "the prose")
    assert stated.says(said, f"{torch.minimum(p, q).sum():.4f}")
