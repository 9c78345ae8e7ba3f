"""Lesson 03: its figures show what they are given, and its checker of a round names what went wrong."""

import pytest
import torch
from helpers import bars, drawn, written

from dspark_lite.course.exercises import lesson_03 as exercises
from dspark_lite.course.exercises.verifying import verify
from dspark_lite.course.figures import lesson_03 as figures


def test_the_bars_of_passes_say_how_much_is_read_again(closing):
    fig = figures.reading_again(
        {"target": [(10, 0), (12, 8)], "small LM": [(4, 0), (5, 4), (6, 5)]}
    )
    before, new = bars(fig.axes[0])
    assert [axes.get_title() for axes in fig.axes] == [
        "target: 36% of what it reads, it has read before",
        "small LM: 60% of what it reads, it has read before",
    ]
    assert before == [0, 8] and new == [10, 4]


@pytest.mark.parametrize(
    ("accepted", "target", "small"),
    [(3, "kkkkffffn", "kkkkfffnn"), (7, "kkkkkkkkn", "kkkkkkknn"), (0, "kfffffffn", "kffffffnn")],
)
def test_two_caches_keep_the_accepted_and_have_not_read_the_same(accepted, target, small, closing):
    words = {"keeps": "k", "forgets": "f", "not read": "n"}
    states = "".join(
        words[text] for text in written(figures.two_caches(7, accepted)) if text in words
    )
    assert states == target + small
    assert (target.count("f"), small.count("f")) == exercises.forget(7, accepted)


def test_the_figure_of_when_it_pays_marks_the_best_length_and_what_was_measured(closing):
    (axes,) = figures.when_it_pays(
        0.8, 0.1, 1.0, {"small LM": (7, 1.5, {"color": "g", "marker": "D"})}
    ).axes
    tau = (1 - 0.8**7) / 0.2  # with 6 drafts, in a round of 1.6 plain passes
    lines = drawn(axes)
    assert lines["best: γ = 6"] == [pytest.approx(tau / 1.6)] == [
        pytest.approx(lines["formula"][5])
    ] and lines["measured: small LM"] == [1.5]
    assert axes.get_title() == "best at γ = 6: 2.5 times plain decoding" and axes.get_ylim() == (
        0,
        3,
    )
    (axes,) = figures.when_it_pays(0.3, 1.0, 1.0, {}).axes
    assert axes.get_title() == "no draft length pays" and axes.get_ylim() == (0, 3), (
        "settings can be compared"
    )


# The checker of a round ----------------------------------------------------------------------------------------------


def round_with(
    target=lambda drafts, accepted: len(drafts) - accepted,
    small=lambda drafts, accepted: max(0, len(drafts) - 1 - accepted),
    tokens=lambda tokens: tokens,
    unread=lambda drafts, tokens: drafts[-1:] * (len(tokens) > len(drafts)) + tokens[-1:],
    judge=verify,
):
    """A `settle` with one of its parts done in another way."""

    def settle(models, caches, p, q, drafts, generator):
        committed = judge(p, q, drafts, generator)
        for model, cache, dropped in zip(models, caches, (target, small)):
            model.roll_back(cache, dropped(drafts, len(committed) - 1))
        return tokens(committed), unread(drafts, committed)

    return settle


def test_a_right_round_passes(capsys):
    assert exercises.check_settle(exercises.settle) and exercises.check_settle(round_with())
    assert capsys.readouterr().out == "Correct.\n" * 2


@pytest.mark.parametrize(
    ("settle", "said"),
    [
        (
            round_with(target=lambda drafts, accepted: 0),
            "with 1 of 3 drafts accepted the target's cache still holds refused drafts, 2 too many",
        ),
        (
            round_with(target=lambda drafts, accepted: len(drafts)),
            "the target's cache has forgotten 1 too many",
        ),
        (
            round_with(small=lambda drafts, accepted: len(drafts) - accepted),
            "the small LM's cache has forgotten 1 too many",
        ),
        (
            round_with(small=lambda drafts, accepted: len(drafts) - 1 - accepted),
            "the small LM's cache holds 5 positions and cannot forget -1",
        ),
        (
            round_with(unread=lambda drafts, tokens: tokens[-1:]),
            "with 3 of 3 drafts accepted the small LM has still to read its own last draft",
        ),
        (
            round_with(unread=lambda drafts, tokens: tokens),
            "with 1 of 3 drafts accepted the small LM has still to read the target's own token and",
        ),
        (
            round_with(
                unread=lambda drafts, tokens: (
                    tokens[-2:] if len(tokens) >= len(drafts) else tokens[-1:]
                )
            ),
            "with 2 of 3 drafts accepted the small LM has still to read the target's own token and nothing else",
        ),
        (
            round_with(tokens=lambda tokens: tokens[:-1]),
            "the first list is not what verify(p, q, drafts, generator) returns",
        ),
        (
            round_with(judge=lambda p, q, drafts, generator: verify(p, p, drafts, generator)),
            "the first list is not what verify(p, q, drafts, generator) returns",
        ),
        (
            round_with(
                unread=lambda drafts, tokens: drafts[-1:] * (len(tokens) == 4) + tokens[-1:]
            ),
            "the small LM has still to read its own last draft, which it never read",
        ),
        (round_with(tokens=len), "return two lists"),
        (lambda *_: [1, 4], "return two lists"),
        (3, "takes the function itself, not a value of type int"),
        (None, "Not done yet"),
        (lambda *_: None, "Not done yet"),
    ],
)
def test_a_wrong_round_is_told_what_is_wrong(settle, said, capsys):
    assert exercises.check_settle(settle) is False
    (line,) = capsys.readouterr().out.splitlines()
    assert said in line and "raised" not in line


def in_place(p, q, drafts, generator):
    """A right `verify` that writes its tokens into `drafts`."""
    drafts[:] = verify(p, q, drafts, generator)
    return drafts


def test_a_verify_that_changes_the_drafts_is_named_where_it_makes_a_round_wrong(capsys):
    assert exercises.check_settle(round_with(judge=exercises.in_use(in_place, True)))
    assert exercises.check_settle(round_with(judge=in_place)) is False
    *right, line = capsys.readouterr().out.splitlines()
    assert right[1:] == ["Correct."] and line.endswith(exercises.CHANGED)


@pytest.mark.parametrize(
    "verify",
    [lambda *round_: torch.tensor(verify(*round_)), in_place],
    ids=["a tensor", "the drafts, changed in place"],
)
def test_a_right_verify_in_another_form_serves_the_loop(verify, capsys):
    assert exercises.check_verify(verify)
    ours, drafts = exercises.in_use(verify, True), [1, 2, 3]
    p, q = exercises.one_hot([1, 2, 4, 4]), exercises.one_hot(drafts)
    assert ours(p, q, drafts, None) == [1, 2, 4] and drafts == [1, 2, 3]
    assert capsys.readouterr().out.startswith("Correct.\nFrom here on your own verify decides.")
