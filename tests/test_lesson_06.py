"""Lesson 06: its checkers accept every right form, its figures show what they are given."""

import pytest
import torch

from dspark_lite.course.estimates import Estimate
from dspark_lite.course.exercises import lesson_06 as exercises
from dspark_lite.course.extensions.block_verification import block_ends
from dspark_lite.course.figures import lesson_06 as figures
from dspark_lite.decoding.sampling import probability_ratios
from helpers import written


def test_where_the_ninth_goes():
    p, q = torch.tensor([1, 2]) / 3, torch.tensor([2, 1]) / 3
    block = p.expand(4, 3, 2), q.expand(4, 2, 2), torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    # [4, 3]: how much of each block is kept, and w_0, w_1, w_2
    ends, weights, _ = block_ends(*block, None)
    # [4, 2]: that so many drafts are kept by the token rule
    whole = probability_ratios(*block).clamp(max=1).cumprod(1)
    drafted = torch.tensor([4.0, 2.0, 2.0, 1.0])
    # its first draft is never kept alone
    assert ends[0].tolist() == pytest.approx([3 / 4, 0, 1 / 4])
    more = (ends @ torch.arange(3.0) - whole.sum(1)) * drafted / 9
    assert more.tolist() == pytest.approx([-1 / 9, 2 / 9, 0, 0], abs=1e-6)


def chain_loss_that_cuts(cut):
    """The right chain loss, but what a pass reads or what is returned goes through `cut`, by name."""

    def loss(one_pass, loss_of, cache, tokens, features, decay):
        passes = (
            one_pass
            if cut != "between"
            else lambda cache, token, feature: one_pass(cache, token, feature.detach())
        )
        value = exercises.chain_loss(passes, loss_of, cache, tokens, features, decay)
        return value.item() if cut == "number" else value

    return loss


@pytest.mark.parametrize(
    ("cut", "said"),
    [("between", "its gradient stops between two passes"), ("number", "it has lost its gradient")],
)
def test_a_chains_loss_must_teach_every_pass(cut, said, capsys):
    assert not exercises.check_chain_loss(chain_loss_that_cuts(cut))
    assert said in capsys.readouterr().out
    assert exercises.check_chain_loss(exercises.chain_loss)


@pytest.mark.parametrize(
    "form",
    [
        tuple,
        torch.cat,
        lambda drafted: torch.stack(drafted, 1),
        lambda drafted: [int(token) for token in drafted],
    ],
    ids=["tuple", "a row", "a batch of one", "numbers"],
)
def test_a_chain_of_drafts_may_have_several_forms(form):
    assert exercises.check_draft_chain(lambda *case: form(exercises.draft_chain(*case)))


def test_a_slope_is_not_moved_by_one_slow_moment():
    assert (
        figures.per_token({1: 1.0, 2: 1.5, 3: 2.0, 4: 9.0}) == 0.5
        and figures.per_token({1: 3.0}) == 0.0
    )


def test_draft_costs_are_labelled_where_they_end():
    (axes,) = figures.draft_cost(
        {"eagle3": {1: 0.5, 2: 1.0}, "dspark": {1: 2.0, 2: 2.1}}, "CPU"
    ).axes
    assert axes.get_title() == "one token more costs Eagle3 0.50 ms, DSpark 0.10 ms"
    assert written(axes.figure) == ["Eagle3", "DSpark", "measured on CPU"]


def test_here_stands_above_the_paper():
    rates = {"dspark": [Estimate(0.9, 0.8, 1.0)] * 2, "eagle3": [Estimate(0.5, 0.4, 0.6)] * 2}
    fig = figures.here_and_paper(rates, {name: [0.7, 0.6] for name in rates}, "chat")
    assert [axes.get_title() for axes in fig.axes] == [
        "chat, measured here",
        "chat, the paper's Figure 2",
    ]
    assert sorted(written(fig)) == ["DSpark", "DSpark", "Eagle3", "Eagle3"]


def test_two_trainings_are_compared_by_the_length_of_the_chain():
    """Taus of 1.5, 1.75 against 1.4, 1.8: ahead from two passes on."""
    forced, unrolled = ([0.5, 0.6], [0.5, 0.5]), ([0.4, 0.5], [0.4, 1.0])
    above, below = figures.passes_figure(forced, unrolled).axes
    drawn = [line.get_ydata().tolist() for line in above.lines]
    assert drawn == [forced[0], unrolled[1], forced[1]]
    found = below.lines[0].get_ydata().tolist()
    assert found == pytest.approx([100 * (1.4 / 1.5 - 1), 100 * (1.8 / 1.75 - 1)])


def test_blocks_over_mtp_are_drawn_with_the_level():
    gains = {"a": {1: Estimate(3.0, 2.9, 3.1), 8: Estimate(1.2, 1.1, 1.3)}}
    (axes,) = figures.over_mtp(gains).axes
    assert axes.containers[0].lines[0].get_ydata().tolist() == [3.0, 1.2]
    assert list(axes.lines[-1].get_ydata()) == [1, 1]


def test_each_pass_reads_the_draft_and_the_output_of_the_pass_before():
    said = [text.replace("\n", " ") for text in written(figures.wiring())]
    drafts = [text.removeprefix("draft: ") for text in said if text.startswith("draft: ")]
    assert all(draft in said for draft in drafts[:-1])
    assert [said.count(f"output of pass {k}") for k in (1, 2, 3)] == [2, 2, 1]


# Cells of the cache


@pytest.mark.parametrize(
    ("accepted", "committed"), [(0, "ttttffff"), (2, "ttttttff"), (4, "tttttttt"), (5, "tttttttt")]
)
def test_cells_of_a_round_are_the_texts_and_one_for_each_pass(accepted, committed):
    in_text = exercises.cells(cached=3, gamma=5, accepted=accepted)
    assert in_text == [mark == "t" for mark in committed]
    # the first pass read a feature of the target's
    assert exercises.survives(in_text, 5) == [True] * 4 + [False] * 4


def test_cells_are_drawn_with_the_readers_marks():
    cells = exercises.cells(cached=1, gamma=3, accepted=1), 3
    asked = written(figures.cache_cells(*cells))
    assert asked[:4] == [
        f"{whose}\npair" for whose in ("text's", "anchor's", "draft 1's", "draft 2's")
    ]
    assert [text for text in asked if text in ("in text", "refused")] == ["in text"] * 3 + [
        "refused"
    ]
    assert "next round" not in asked and "target's" not in asked  # the answer
    right = written(figures.cache_cells(*cells, exercises.survives(*cells)))
    assert right[right.index("next round") + 1 :] == ["target's", "target's", "enters"]
    dots = figures.cache_cells(*cells, exercises.survives(*cells)).axes[0].lines
    assert [dot.get_color() for dot in dots] == [figures.CONTEXT] * 2 + [figures.BLOCK] * 2
    wrong = written(figures.cache_cells(*cells, cells[0]))
    assert wrong[wrong.index("next round") + 1 :] == ["target's", "target's", "its own"]


def test_places_are_no_marks(capsys):
    assert not exercises.check_survives(lambda in_text, gamma: [0, 1, 2, 3])
    assert "return True or False for each cell" in capsys.readouterr().out


def test_the_cheapest_token_is_named():
    (axes,) = figures.token_cost(
        {"eagle3": [4.0, 2.0, 3.0], "dspark": [5.0, 4.0, 3.5]}, 8.0, "chat"
    ).axes
    assert axes.get_title() == "chat:\nEagle3 is cheapest, 2.00 ms per token, draft length 2"
    assert sorted(written(axes.figure)) == ["DSpark", "Eagle3", "plain decoding"]


def test_plain_decoding_is_named_where_it_is_cheaper_than_all():
    (axes,) = figures.token_cost({"eagle3": [4.0, 2.0, 3.0]}, 1.5, "chat").axes
    assert axes.get_title() == "chat:\nplain decoding is cheapest, 1.50 ms per token"
