"""Lesson 05: the paper's numbers are read as they are printed, checkers name mistakes, figures show what they are given."""

import re
from types import SimpleNamespace

import pytest
import torch

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course import paper
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.exercises import lesson_05 as exercises
from dspark_lite.course.figures import lesson_05 as figures
from dspark_lite.course.own_decoder import my_dspark
from dspark_lite.course.own_decoder.verifying import EXACT, draw, target_texts
from dspark_lite.decoding.sampling import probabilities
from dspark_lite.losslessness import total_variation


def test_paper_gains_are_those_of_its_text():
    gains = {
        target: round(100 * paper.macro_gain(target, "dspark", "dflash"), 1)
        for target in paper.TARGETS[:3]
    }
    assert gains == {"Qwen3-4B": 16.3, "Qwen3-8B": 18.4, "Qwen3-14B": 18.3}
    assert paper.domain_means("Qwen3-4B", "dspark") == pytest.approx(
        {"math": 5.57, "code": 5.12, "chat": 3.49}, abs=0.005
    )


def test_paper_refuses_what_it_does_not_have():
    with pytest.raises(DSparkLiteError, match="Table 1 has no 'mtp'"):
        paper.table1("Qwen3-4B", "mtp")


# The exercises

TOY, HIDDEN = exercises.TOY_DRAFT, exercises.ROUND_BASE


def in_another_way(draft, hidden, anchor, temperature, generator):
    """A right block: all base logits corrected in place, one row after the other."""
    logits, drafts = hidden @ draft.w["lm_head.weight"].T, []
    for k in range(len(logits)):
        logits[k] += exercises.transition_bias(draft, ([anchor] + drafts)[-1])
        drafts.append(draw(probabilities(logits[k], temperature), generator))
    return drafts, probabilities(logits, temperature)


@pytest.mark.parametrize("right", [exercises.draw_block, in_another_way])
def test_a_right_block_passes(right, capsys):
    assert exercises.check_draw_block(right) is True, capsys.readouterr().out


def test_the_file_of_the_course_draws_the_blocks_of_the_checker():
    drawn = [
        my_dspark.draw_block(TOY, HIDDEN, 0, 1.0, torch.Generator().manual_seed(seed))
        for seed in range(5)
    ]
    for drafts, q in drawn:
        expected = torch.stack(
            [
                probabilities(HIDDEN[k] + exercises.ROUND_TABLE[before], 1.0)
                for k, before in enumerate([0, *drafts[:-1]])
            ]
        )
        assert torch.allclose(q, expected, atol=1e-6)


@pytest.mark.parametrize("sentence", exercises.WRONG_BLOCKS)
def test_a_block_drawn_wrongly_is_named_and_lossless(sentence, capsys):
    wrong = exercises.WRONG_BLOCKS[sentence]
    assert exercises.check_draw_block(wrong) is False and capsys.readouterr().out.endswith(
        f": {sentence}\n"
    )
    # The rule needs the distribution of the draw; where the most probable token is taken, nothing
    # is drawn.
    if "most probable" not in sentence:
        assert total_variation(exercises.blocks_and_texts(wrong, 0.5)[1], target_texts()) < EXACT


@pytest.mark.parametrize("sentence", exercises.WRONG_ROWS)
def test_a_wrong_row_of_q_is_named(sentence, capsys):
    assert exercises.check_draw_block(exercises.WRONG_ROWS[sentence]) is False
    assert re.fullmatch(
        rf"Not yet: .* total variation of 0\.\d\d: {re.escape(sentence)}\n", capsys.readouterr().out
    )


def drawing(change):
    """A right block whose drafts and q a reader returns in another form."""
    return lambda *case: change(*exercises.draw_block(*case))


@pytest.mark.parametrize(
    ("check", "wrong", "named"),
    [
        (
            exercises.check_transition_bias,
            lambda draft, x: (draft.w[exercises.W2] @ draft.w[exercises.W1][x]).tolist(),
            "this is a list",
        ),
        (exercises.check_draw_block, None, "Not done yet"),
        (exercises.check_draw_block, lambda *case: None, "Not done yet"),
        (exercises.check_draw_block, 3, "takes the function itself"),
        (exercises.check_draw_block, drawing(lambda drafts, q: drafts), "return two things"),
        (
            exercises.check_draw_block,
            drawing(lambda drafts, q: ([0, *drafts], q)),
            "the anchor not among them; you returned 4",
        ),
        (
            exercises.check_draw_block,
            drawing(lambda drafts, q: (drafts, list(q))),
            "yours is a list",
        ),
        (
            exercises.check_draw_block,
            drawing(lambda drafts, q: (drafts, q[:1])),
            r"[3, 3], a row for each draft",
        ),
        (
            exercises.check_draw_block,
            drawing(
                lambda drafts, q: (
                    drafts,
                    torch.nn.functional.one_hot(torch.tensor(drafts), 3).float(),
                )
            ),
            "tokens on average where",
        ),
        (
            exercises.check_draw_block,
            lambda *case: (lambda drafts, q: (drafts, q if case[3] else 0 * q))(
                *exercises.draw_block(*case)
            ),
            "right at temperature 1, wrong at 0",
        ),
        (
            exercises.check_draw_block,
            exercises.draw_block_variant(pick=lambda probs, path: int(torch.multinomial(probs, 1))),
            "something is drawn at random without `generator`",
        ),
    ],
)
def test_what_readers_got_wrong_is_named(check, wrong, named, capsys):
    assert check(wrong) is False and named in capsys.readouterr().out


def test_a_block_is_drawn_of_any_draft(capsys):
    """The small draft's LM head changes nothing, and its blocks have three slots at most."""

    def without_lm_head(draft, hidden, anchor, temperature, generator):
        same = SimpleNamespace(w=draft.w | {exercises.LM_HEAD: torch.eye(hidden.shape[1])})
        return exercises.draw_block(same, hidden, anchor, temperature, generator)

    def q_of_the_first_draft_from_slot_4_on(draft, hidden, anchor, temperature, generator):
        drafts, q = exercises.draw_block(draft, hidden, anchor, temperature, generator)
        late = exercises.WRONG_ROWS[next(iter(exercises.WRONG_ROWS))]
        return drafts, torch.cat(
            [q[:3], late(draft, hidden, anchor, temperature, generator)[1][3:]]
        )

    for wrong in (without_lm_head, q_of_the_first_draft_from_slot_4_on):
        assert exercises.check_draw_block(wrong) is False
        said = capsys.readouterr().out
        assert "right for the small draft, wrong for another" in said or "raised" in said


def test_gains_stand_under_the_bars_beside_the_papers():
    ours = {
        "dflash": {"chat": Estimate(4.0, 3.9, 4.1)},
        "dspark": {"chat": Estimate(6.0, 5.9, 6.1)},
    }
    paper_lengths = {
        "dflash": {"chat": 2.0, "math": 2.0},
        "dspark": {"chat": 2.5, "math": 2.0},
    }
    ours["dflash"]["math"] = ours["dspark"]["math"] = ours["dflash"]["chat"]
    (axes,) = figures.accepted_length_figure(ours, paper_lengths).axes
    assert axes.get_title() == "DSpark gains most on chat"
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "chat: +50%\n(paper +25%)",
        "math: +0%\n(paper +0%)",
    ]
    assert [bar.get_height() for bar in axes.patches] == [4.0, 4.0, 6.0, 4.0]


def test_small_biases_are_drawn_on_one_scale():
    for bias, ends in (([2.0, -1.0], 8.0), ([-20.0, 1.0], 21.0)):
        fig = figures.corrected_distribution(["a", "b"], [0.5, 0.5], bias, [0.9, 0.1], " c")
        assert fig.axes[1].get_xlim() == pytest.approx((-ends, ends))
        assert fig.get_suptitle() == "the bias after '·c' takes 'a' from 50% to 90%"
