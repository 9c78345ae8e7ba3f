"""Lesson 03: its figures show what they are given, and a right `verify` in any form serves its loop."""

import inspect

import pytest
import torch

from dspark_lite.course.exercises import lesson_03 as exercises
from dspark_lite.course.figures import lesson_03 as figures
from dspark_lite.course.own_decoder.verifying import verify
from helpers import bars, drawn, written


def test_the_bars_of_passes_say_how_much_is_read_again():
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
def test_two_caches_keep_the_accepted_and_have_not_read_the_same(accepted, target, small):
    words = {"keeps": "k", "forgets": "f", "not read": "n"}
    states = "".join(
        words[text] for text in written(figures.two_caches(7, accepted)) if text in words
    )
    assert states == target + small
    assert (target.count("f"), small.count("f")) == exercises.forget(7, accepted)


def test_the_figure_of_when_it_pays_marks_the_best_length_and_what_was_measured():
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


@pytest.mark.parametrize(
    ("check", "wrong", "case"),
    [
        (
            exercises.check_forget,
            lambda gamma, accepted: (gamma - accepted, abs(gamma - 1 - accepted)),
            "gamma = 7, accepted = 7",
        ),
        (
            exercises.check_still_unread,
            lambda drafts, tokens: tokens[-2:] if len(tokens) >= len(drafts) else tokens[-1:],
            "drafts = [1, 2, 3], tokens = [1, 2, 4]",
        ),
        (
            exercises.check_still_unread,
            lambda drafts, tokens: tokens[-2:] if drafts[-1] in tokens else tokens[-1:],
            "drafts = [1, 2, 1], tokens = [1, 9]",
        ),
    ],
    ids=["abs", ">=", "membership"],
)
def test_a_checker_prints_a_case_that_is_wrong(check, wrong, case, capsys):
    assert check(wrong) is False and f"wrong for {case}: " in capsys.readouterr().out


def backwards(p, q, drafts, generator):
    """A wrong `verify`, which commits no draft."""
    return [int(p[0].argmax())]


@pytest.mark.parametrize(
    ("kept", "decides"),
    [
        (verify, "The verify in mine.py"),
        (backwards, "The course's verify"),
        (None, "The course's verify"),
    ],
    ids=["right", "wrong", "none"],
)
def test_the_kept_verify_decides_if_it_is_right(kept, decides, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "mine.py"))
    if kept:
        (tmp_path / "mine.py").write_text(
            inspect.getsource(kept).replace("backwards", "verify"), encoding="utf-8"
        )
    loop = exercises.verify_in_use()
    assert capsys.readouterr().out == f"{decides} decides.\n"
    p, q = torch.eye(5)[[1, 2, 4, 4]], torch.eye(5)[[1, 2, 3]]
    assert loop(p, q, [1, 2, 3], None) == [1, 2, 4]


IN_PLACE = """def verify(p, q, drafts, generator):
    drafts[:] = [*drafts[:2], int(p[2].argmax())]
    return torch.tensor(drafts)"""


def test_a_verify_that_returns_a_tensor_and_changes_its_drafts_serves_the_loop(monkeypatch):
    names = {"torch": torch}
    exec(IN_PLACE, names)
    monkeypatch.setattr(exercises, "kept_verify", lambda: names["verify"])
    drafts, p = [1, 2, 3], torch.eye(5)[[1, 2, 4, 4]]
    assert exercises.verify_in_use()(p, None, drafts, None) == [1, 2, 4] and drafts == [1, 2, 3]
