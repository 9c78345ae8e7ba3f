"""Lesson 05: the paper's numbers are read as they are printed, checkers name mistakes, figures show what they are given."""

import re

import pytest
import torch

from dspark_lite.common import paper
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.estimates import Estimate
from dspark_lite.drafters.heads import SEQUENTIAL_HEADS, transition_biases
from dspark_lite.losslessness import total_variation
from dspark_course.exercises import lesson_05 as exercises
from dspark_course.exercises.verifying import EXACT, draw, target_texts, toss, verify
from dspark_course.figures import lesson_05 as figures
from dspark_course.figures import style
from dspark_course.figures.positions import last_point, position_panels
from dspark_course.measure import multimodality


def test_paper_gains_are_those_of_its_text():
    gains = {target: round(100 * paper.macro_gain(target, "dspark", "dflash"), 1) for target in paper.TARGETS[:3]}
    assert gains == {"Qwen3-4B": 16.3, "Qwen3-8B": 18.4, "Qwen3-14B": 18.3}
    assert paper.domain_means("Qwen3-4B", "dspark") == pytest.approx({"math": 5.57, "code": 5.12, "chat": 3.49}, abs=0.005)


def test_paper_refuses_what_it_does_not_have():
    with pytest.raises(DSparkLiteError, match="Table 1 has no 'mtp'"):
        paper.table1("Qwen3-4B", "mtp")


# The exercises ----------------------------------------------------------------------------------------------------------


def test_the_rnn_head_by_hand_is_the_packages():
    torch.manual_seed(0)
    previous, hidden, state, biases = torch.randint(9, (5,)), torch.randn(5, 6), torch.zeros(4), []
    rnn = SEQUENTIAL_HEADS["rnn"](9, 4, 6).requires_grad_(False)
    for token, h in zip(rnn.markov_w1(previous), hidden):
        bias, state = exercises.rnn_step(state, token, h, rnn.joint_proj, rnn.markov_w2.weight)
        biases.append(bias)
    assert torch.allclose(torch.stack(biases), transition_biases(rnn, previous, hidden), atol=1e-5)


def greedily(scores):
    """A reader's drafter that takes the largest of `scores(base logits, k, bias after the token before)` at each slot k."""
    def draft(base, anchor, bias):
        tokens = [int(anchor)]
        for k in range(len(base)):
            tokens.append(int(scores(base, k, bias(tokens[-1])).argmax()))
        return tokens[1:]

    return draft


def test_a_greedy_block_of_whole_numbers_is_right(capsys):
    assert exercises.check_left_to_right(greedily(lambda base, k, bias: base[k] + bias)), capsys.readouterr().out


def best_table(w1, w2, rank):
    """The table of the largest terms, written out."""
    u, s, vh = torch.linalg.svd(w1 @ w2.T)
    return u[:, :rank] * s[:rank] @ vh[:rank]


def rooted(w1, w2, rank):
    """The largest terms with the root of each singular value on both sides."""
    u, s, vh = torch.linalg.svd(w1 @ w2.T)
    return u[:, :rank] * s[:rank].sqrt(), (s[:rank].sqrt()[:, None] * vh[:rank]).T


@pytest.mark.parametrize("right", [rooted, lambda *case: list(rooted(*case)),
                                   lambda w1, w2, rank: (best_table(w1, w2, rank) @ rooted(w2, w1, rank)[0].pinverse().T,
                                                         rooted(w2, w1, rank)[0])])
def test_singular_values_may_go_to_either_side(right, capsys):
    assert exercises.check_cut(right), capsys.readouterr().out


def test_the_cut_table_is_the_best():
    w1, w2, rank = exercises.CUT_CASES[1]
    a, b = exercises.cut_to_rank(w1, w2, rank)
    assert torch.allclose(a @ b.T, best_table(w1, w2, rank), atol=1e-5)


@pytest.mark.parametrize(("check", "wrong", "named"), [
    (exercises.check_transition_bias, lambda w1, w2, x: (w1[x] @ w2.T).T, "in the shape [V, B]"),
    (exercises.check_left_to_right, lambda logits, anchor, bias: [anchor, *exercises.draft_greedily(logits, anchor, bias)], "g + 1 tokens"),
    (exercises.check_transition_bias, lambda w1, w2, x: w2 @ w1[x], "multiply by w2.T from the right"),
    (exercises.check_left_to_right, greedily(lambda base, k, bias: bias), "the base logits are missing"),
    (exercises.check_left_to_right, greedily(lambda base, k, bias: base[0] + bias), "the base logits of the first"),
    (exercises.check_left_to_right, greedily(lambda base, k, bias: base[k].softmax(-1) + bias), "added to probabilities"),
    (exercises.check_transition_bias, lambda w1, w2, x: (w1[x] @ w2.T).tolist(), "this is a list"),
    (exercises.check_cut, lambda w1, w2, rank: best_table(w1, w2, rank), "return two matrices"),
    (exercises.check_cut, lambda *case: (lambda a, b: (a, b.T))(*exercises.cut_to_rank(*case)), "b is made of Vh transposed"),
    (exercises.check_transition_bias, lambda w1, w2, x: (w1 @ w2.T)[:, x], "W1 and W2 are swapped"),
    (exercises.check_cut, lambda w1, w2, rank: (exercises.alone(w1, rank)[0], exercises.alone(w2, rank)[0]), "you cut each factor alone"),
    (exercises.check_round, lambda base, anchor, bias, p_of, path: p_of([anchor, 0, 1]), "without the anchor; it got 3 tokens"),
    (exercises.check_round, lambda base, anchor, bias, p_of, path: [draw(p_of([0, 1])[0], path)], "not drawn left to right"),
    (exercises.check_round, lambda base, anchor, bias, p_of, path: [draw(base[0].softmax(0), path)], "nobody asked the target"),
    (exercises.check_round, exercises.round_of(rule=lambda p, q, drafts, path: verify(p, q, drafts, path)[:2]), "a whole block gets one more"),
    (exercises.check_round, exercises.round_of(rule=lambda p, q, drafts, path: [draw(p[0], path)]), "commits 1.00 tokens on average"),
    (exercises.check_round, exercises.round_of(exercises.drafting_round(pick=lambda probs, path: int(torch.multinomial(probs, 1)))),
     "something is drawn at random without `generator`"),
    (exercises.check_round, 3, "takes the function itself"), (exercises.check_round, None, "Not done yet"),
    (exercises.check_rnn_step, lambda s, e, h, proj, w2: (proj(torch.cat([s, e, h])).chunk(3)[2], exercises.rnn_step(s, e, h, proj, w2)[1]),
     "W2 is missing"),
    (exercises.check_rnn_step, lambda *case: exercises.rnn_step(*case)[1], "return both"),
    (exercises.check_rnn_step, lambda s, e, h, proj, w2: exercises.rnn_step(s, h[:2], torch.cat([h[2:], e]), proj, w2), "in this order"),
])
def test_what_readers_got_wrong_is_named(check, wrong, named, capsys):
    assert check(wrong) is False and named in capsys.readouterr().out


def in_another_way(base, anchor, bias, p_of, path):
    """A right round: rows of q as a tensor, logits corrected first, the coins from a vector."""
    drafts, logits = [], base.clone()
    for k in range(len(base)):
        logits[k] += bias(drafts[-1] if drafts else anchor)
        drafts.append(draw(logits[k].softmax(0), path))
    p, q, kept = p_of(torch.tensor(drafts)), logits.softmax(-1), 0
    while kept < len(drafts) and toss(p[kept, drafts[kept]] / q[kept, drafts[kept]], path):
        kept += 1
    owed = (p[kept] - q[kept]).clamp(min=0) if kept < len(drafts) else p[kept]
    return torch.tensor([*drafts[:kept], draw(owed / owed.sum(), path)])


@pytest.mark.parametrize("right", [exercises.one_round, in_another_way])
def test_a_right_round_passes(right, capsys):
    assert exercises.check_round(right) is True, capsys.readouterr().out


@pytest.mark.parametrize("sentence", exercises.WRONG_BLOCKS)
def test_a_block_drawn_wrongly_is_named_and_lossless(sentence, capsys):
    wrong = exercises.round_of(exercises.WRONG_BLOCKS[sentence])
    assert exercises.check_round(wrong) is False and capsys.readouterr().out.endswith(f": {sentence}\n")
    if "most probable" not in sentence:  # the rule needs the distribution of the draw; here nothing was drawn
        assert total_variation(exercises.blocks_and_texts(wrong)[1], target_texts()) < EXACT


@pytest.mark.parametrize("sentence", exercises.WRONG_ROUNDS)
def test_a_wrong_row_of_q_and_a_wrong_rule_are_named(sentence, capsys):
    assert exercises.check_round(exercises.WRONG_ROUNDS[sentence]) is False
    assert re.fullmatch(rf"Not yet: your total variation is 0\.\d\d: {re.escape(sentence)}\n", capsys.readouterr().out)


FIRST, JOINT = torch.tensor([4, 7]), torch.tensor([[0.0, 0.5, 0.004, 0.001], [0.0, 0.002, 0.45, 0.01]])


@pytest.mark.parametrize(("drafted", "said"), [([4, 1], "fits"), ([4, 2], "mixed"), ([7, 1], "mixed"), ([7, 2], "fits"), ([4, 0], "neither"),
                                               ([5, 1], "neither"), ([4, 3], "neither"), ([7, 3], "fits")])
def test_a_block_fits_is_mixed_or_neither(drafted, said):
    assert multimodality.block_verdict(torch.tensor(drafted), FIRST, JOINT) == said


def test_in_the_paper_the_first_position_is_ahead_in_every_domain():
    assert all(paper.conditional_acceptance("dspark", domain)[0] > paper.conditional_acceptance("dflash", domain)[0]
               for domain in ("math", "code", "chat"))


def test_tokens_that_are_drawn_are_not_taken_for_the_greedy_block(capsys):
    torch.manual_seed(0)

    def drawn(base_logits, anchor, bias):
        tokens = [anchor]
        for logits in base_logits:
            tokens.append(torch.multinomial(torch.softmax(logits + bias(tokens[-1]), -1), 1)[0])
        return torch.stack(tokens[1:])

    assert not any(exercises.check_left_to_right(drawn) for _ in range(50))
    assert "this is not the greedy block" in capsys.readouterr().out


def test_gains_stand_above_ours_and_the_papers_lengths(closing):
    ours = {"dflash": {"chat": Estimate(4.0, 3.9, 4.1)}, "dspark": {"chat": Estimate(6.0, 5.9, 6.1)}}
    fig = figures.accepted_length_figure({**ours, **{name: {**found, "math": found["chat"]} for name, found in ours.items()}},
                                         {"dflash": {"chat": 2.0, "math": 2.0}, "dspark": {"chat": 2.5, "math": 2.0}}, 200)
    assert [axes.get_title() for axes in fig.axes] == ["chat: DSpark +50.0%\n(paper +25%)", "math: DSpark +50.0%\n(paper +0%)"]


def test_what_a_rank_wastes_stands_beside_what_it_keeps(closing):
    (axes,) = figures.by_rank({0: 0.7, 1: 0.6, 2: 0.1}, {0: 0.0, 1: 0.8, 2: 1.0}).axes
    assert axes.get_title() == "rank 1 keeps 80% of the squares and wastes 60% of the map"
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.0, 0.8, 1.0], [0.7, 0.6, 0.1]]


def test_small_biases_are_drawn_on_one_scale(closing):
    for bias, ends in (([2.0, -1.0], 8.0), ([-20.0, 1.0], 21.0)):
        fig = figures.corrected_distribution(["a", "b"], [0.5, 0.5], bias, [0.9, 0.1], " c")
        assert fig.axes[1].get_xlim() == pytest.approx((-ends, ends))
        assert fig.get_suptitle() == "the bias after '·c' takes 'a' from 50% to 90%"


def test_the_cost_of_the_head_is_in_the_title(closing):
    (axes,) = figures.costs({"target": 9.0, "draw with the head": 1.0}, 0.5, 10.0, "CPU").axes
    assert axes.get_title() == "the head adds 0.50 ms to a round of 10.0 ms: 5.0%"
    assert [bar.get_width() for bar in axes.patches] == [9.0, 1.0, 0.5] and axes.patches[2].get_x() == 0.5


def test_lines_by_position_are_labelled_where_they_end(closing):
    styles = {name: {**style.drafter_style(name)} for name in ("dspark", "dflash")}
    rates = [Estimate(0.9, 0.8, 1.0), Estimate(0.5, 0.4, 0.6)]
    fig = position_panels({"math": {"dspark": rates, "dflash": [rates[0], None]}, "chat": {"dspark": rates, "dflash": [rates[0], None]}},
                          styles, {"math": "m", "chat": "c"})
    assert [text.get_text() for text in fig.axes[1].texts] == ["DFlash", "DSpark"] and not fig.axes[0].texts
    assert fig.axes[1].texts[0].xy == (1, 0.8)  # under its interval
    assert last_point(rates, styles["dspark"])[:3] == (2, 0.5, "DSpark") and last_point([rates[0], None], styles["dflash"])[:2] == (1, 0.9)
