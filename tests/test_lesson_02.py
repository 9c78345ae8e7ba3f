"""Lesson 02: its figures show what they are given, and each way to break the rule changes the text as far as derived."""

from functools import partial

from unittest.mock import patch

import pytest
import torch
from helpers import bars, drawn

from dspark_lite.decoding import rounds
from dspark_lite.decoding.sampling import residual
from dspark_lite.scheduling import retrospective
from dspark_course.exercises import verifying
from dspark_course.exercises.verifying import as_accept, draw_token, toss, variant, verify
from dspark_course.figures import lesson_02 as figures
from dspark_lite.losslessness import outcomes, output_distribution, total_variation
from dspark_lite.losslessness.enumeration import Path
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, appendix_a

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


# The tables of "Seven ways to break the rule" -------------------------------------------------------------------------

TABLE, DRAFTED = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.45, 0.55], [0.8, 0.2]])


def distance_with(rule=verify, policy=None, table=TABLE, drafted=DRAFTED) -> float:
    """The lesson's function of this name, on its tables or on others."""
    target = ToyTarget(table)
    drafter = ToyDrafter(drafted, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
    with patch.object(rounds, "accept", as_accept(rule)):
        found = output_distribution(target, drafter, policy, length=4)
    return total_variation(found, output_distribution(target, None, None, length=4))


def test_swapped_in_the_coin_p_and_q_fill_a_drafts_place_from_q():
    for p, q in zip(TABLE, DRAFTED, strict=True):
        kept = q * (q / p).clamp(max=1)
        assert torch.allclose(kept + (1 - kept.sum()) * residual(p, q), q)


def test_what_is_not_renormalised_is_wrong_after_a_0_alone():
    owed = (TABLE - DRAFTED).clamp(min=0)
    owed[:, -1] += 1 - owed.sum(-1)  # the lesson's draw along the cumulative sum
    assert [torch.allclose(row, residual(p, q)) for row, p, q in zip(owed, TABLE, DRAFTED, strict=True)] == [False, True]
    assert owed[0].tolist() == pytest.approx([0.25, 0.75]) and residual(TABLE[0], DRAFTED[0]).tolist() == [1, 0]


def not_renormalised(p, q):
    """The lesson's draw of this name, along the cumulative sum."""
    owed = (p - q).clamp(min=0)
    owed[-1] += 1 - owed.sum()
    return owed


def test_with_other_tables_mistakes_2_3_and_4_change_places():
    mistakes = {2: variant(correction=lambda p, q, k: p[k]), 3: variant(correction=lambda p, q, k: not_renormalised(p[k], q[k])),
                4: variant(bonus=lambda p, q: p[len(q) - 1])}

    def most_harmful_first(*tables):
        return sorted(mistakes, key=lambda number: distance_with(mistakes[number], None, *tables), reverse=True)

    target, flatter, steeper = (torch.tensor([[stay, 1 - stay], [1 - stay, stay]]) for stay in (0.9, 0.8, 0.95))
    assert most_harmful_first() == [3, 2, 4]
    assert most_harmful_first(target, flatter) == [3, 4, 2] and most_harmful_first(target, steeper) == [2, 4, 3]


def unlikely_draws(proposal):
    """The lesson's policy of this name."""
    return (proposal.probs.gather(-1, proposal.tokens.unsqueeze(-1)).squeeze(-1) >= 0.3).long().cumprod(-1).sum(-1)


@pytest.mark.parametrize("anchor", [0, 1])
def test_policy_6_withholds_blocks_that_begin_with_a_1_and_7_a_1_after_a_1(anchor):
    drafter, policy_6 = ToyDrafter(DRAFTED, 0.8, [0.9, 0.0], gamma=2), retrospective(appendix_a()[2])
    for proposal, _ in outcomes(lambda path: drafter.propose(None, torch.tensor([anchor]), temperature=1.0, generator=path)):
        first, second = proposal.tokens[0].tolist()
        assert policy_6(proposal).item() == (0 if first == 1 else 2)
        assert unlikely_draws(proposal).item() == (0 if (anchor, first) == (1, 1) else 1 if (first, second) == (1, 1) else 2)


def test_policy_b_of_exercise_6_is_lossless():
    assert distance_with(policy=lambda proposal: torch.where(proposal.tokens[:, 0] == 0, 2, 1)) < 1e-5


def test_the_paths_of_the_example_are_those_of_its_table():
    def work(path):
        if not toss(0.25, path):
            draw_token(torch.tensor([0.5, 0.5]), path)
        return str(path.taken)

    first = Path([])
    assert work(first) == "[0, 0]" and first.open == [[1], [0, 1]]
    found = dict(outcomes(work))
    assert found == {"[0, 0]": 0.375, "[0, 1]": 0.375, "[1]": 0.25}


def test_swapped_everywhere_no_token_is_nearer_to_p_than_the_drafters_is():
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        p, q = (torch.rand(6, generator=generator).double() ** 3 for _ in range(2))
        p, q = p / p.sum(), q / q.sum()
        kept = q * (q / p).clamp(max=1)
        found = kept + (1 - kept.sum()) * residual(q, p)
        assert ((found - p).abs() >= (q - p).abs() - 1e-12).all()


def test_a_block_is_lossless_position_by_position_and_kept_drafts_alone_are_not():
    """Given the tokens before, the token at each position is the target's; a kept one alone has another distribution."""
    for gamma in (1, 2, 3):
        found, first = verifying.texts(verify, gamma)[0], {}
        assert total_variation(found, verifying.target_texts(gamma)) < verifying.EXACT
        for tokens, share in outcomes(partial(verifying.committed, verify, block=gamma)):
            first[tokens[0], len(tokens) > 1] = first.get((tokens[0], len(tokens) > 1), 0.0) + share
        for kept in (True, False):
            shares = torch.tensor([first.get((token, kept), 0.0) for token in range(3)])
            assert (shares / shares.sum() - verifying.TARGET[verifying.ANCHOR]).abs().max() > 0.05
