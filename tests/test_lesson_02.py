"""Lesson 02: its figures show what they are given, and each way to break the rule changes the text as far as derived."""

from functools import partial

import pytest
import torch

from dspark_lite.course.figures import lesson_02 as figures
from dspark_lite.course.own_decoder import verifying
from dspark_lite.course.own_decoder.verifying import as_accept, variant, verify
from dspark_lite.decoding.sampling import residual
from dspark_lite.losslessness import outcomes, output_distribution, total_variation
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, appendix_a
from dspark_lite.scheduling import retrospective
from helpers import bars, drawn

P, Q = torch.tensor([0.6, 0.4]), torch.tensor([0.25, 0.75])


def test_what_is_refused_is_what_is_owed():
    left, right = figures.overlap_figure(P, Q, ["A", "B"]).axes
    assert left.get_title() == "kept 0.65; refused 0.35 = owed 0.35" and bars(right) == [[1.0, 0.0]]
    _, none = figures.overlap_figure(P, P, ["A", "B"]).axes
    assert (
        none.get_title() == "no residual: nothing is refused"
        and bars(none) == [[0.0, 0.0]]
        and not none.axison
    )


def test_outlines_are_as_high_as_the_probabilities():
    (axes,) = figures.outlines_figure(P, Q, ["A", "B"]).axes
    assert bars(axes) == [P.tolist(), Q.tolist()]
    assert not any(bar.get_fill() for bar in axes.patches)


def test_no_tick_is_above_a_probability_of_one():
    left, _ = figures.overlap_figure(
        torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), ["A", "B"]
    ).axes
    assert left.get_ylim() == pytest.approx((0, 1.4)) and max(left.get_yticks()) <= 1.01


def test_lossy_decoders_are_counted():
    (axes,) = figures.total_variation_figure({"exact": 1e-8, "wrong": 0.1, "worse": 0.3}).axes
    assert axes.get_title() == "2 of 3 decoders do not reproduce the target's distribution"


def test_simulated_shares_lie_over_what_is_wanted():
    (axes,) = figures.simulation_figure(
        ["a", "b"], [0.5, 0.5], {"right": [0.51, 0.49], "wrong": [0.6, 0.4]}
    ).axes
    assert axes.get_title() == "largest distance from p: 0.010 (right), 0.100 (wrong)"
    assert drawn(axes) == {"right": [0.51, 0.49], "wrong": [0.6, 0.4]}


@pytest.mark.parametrize(
    ("first", "second"),
    [((0.4, 0.2), (0.6, 0.35)), ((0.4, 0.9), (0.6, 0.35)), ((0.4, 0.2), (0.6, 0.8))],
)
def test_the_ways_to_a_text_fill_its_probability(first, second):
    (axes,) = figures.two_tokens_figure(first, second, ("the", "cat")).axes
    *ways, whole = axes.patches
    assert sum(way.get_width() * way.get_height() for way in ways) == pytest.approx(
        whole.get_width() * whole.get_height()
    )
    assert whole.get_width() * whole.get_height() == pytest.approx(first[0] * second[0])
    assert axes.get_title().endswith(
        f"= {first[0] * second[0]:.3f} = {first[0]:.2f} × {second[0]:.2f}"
    )


# The tables of "Break it", and policies that look ahead

TABLE, DRAFTED = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.45, 0.55], [0.8, 0.2]])


def distance_with(rule=verify, policy=None, table=TABLE, drafted=DRAFTED) -> float:
    """The lesson's function of this name, on its tables or on others."""
    target = ToyTarget(table)
    drafter = ToyDrafter(drafted, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
    found = output_distribution(target, drafter, policy, length=4, rule=as_accept(rule))
    return total_variation(found, output_distribution(target, None, None, length=4))


def test_swapped_in_the_coin_p_and_q_fill_a_drafts_place_from_q():
    for p, q in zip(TABLE, DRAFTED, strict=True):
        kept = q * (q / p).clamp(max=1)
        assert torch.allclose(kept + (1 - kept.sum()) * residual(p, q), q)


def test_four_slips_are_lossy_and_the_rounded_coin_is_the_quietest():
    slips = {
        "coin": variant(coin=lambda p, q, k, x: q[k, x] / p[k, x]),
        "correction": variant(correction=lambda p, q, k: p[k]),
        "bonus": variant(bonus=lambda p, q: p[len(q) - 1]),
        "rounded": variant(coin=lambda p, q, k, x: (p[k, x] / q[k, x]).round(decimals=2)),
    }
    found = {name: distance_with(rule) for name, rule in slips.items()}
    assert (
        min(found, key=found.get) == "rounded"
        and 1e-3 < found["rounded"] < 0.01
        and distance_with() < 1e-5
    )


def unlikely_draws(proposal):
    """The lesson's policy of this name."""
    return (
        (proposal.probs.gather(-1, proposal.tokens.unsqueeze(-1)).squeeze(-1) >= 0.3)
        .long()
        .cumprod(-1)
        .sum(-1)
    )


@pytest.mark.parametrize("anchor", [0, 1])
def test_policy_6_withholds_blocks_that_begin_with_a_1_and_7_a_1_after_a_1(anchor):
    drafter = ToyDrafter(DRAFTED, 0.8, [0.9, 0.0], gamma=2)
    policy_6 = retrospective(appendix_a()[2])
    for proposal, _ in outcomes(
        lambda path: drafter.propose(None, torch.tensor([anchor]), temperature=1.0, generator=path)
    ):
        first, second = proposal.tokens[0].tolist()
        assert policy_6(proposal).item() == (0 if first == 1 else 2)
        assert unlikely_draws(proposal).item() == (
            0 if (anchor, first) == (1, 1) else 1 if (first, second) == (1, 1) else 2
        )


def test_a_policy_may_look_at_earlier_drafts():
    assert (
        distance_with(policy=lambda proposal: torch.where(proposal.tokens[:, 0] == 0, 2, 1)) < 1e-5
    )


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
