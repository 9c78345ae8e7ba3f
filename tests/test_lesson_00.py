"""Lesson 00: its map, its checker's own cases, its figures and its race."""

import re
from types import SimpleNamespace

import pytest
import torch
from matplotlib.colors import to_hex
from PIL import Image

from dspark_lite.common.files import ROOT
from dspark_lite.course.exercises import lesson_00 as exercises
from dspark_lite.course.figures import lesson_00 as figures, race, token_boxes
from dspark_lite.course.figures.style import ACCEPTED, NEXT
from dspark_lite.course.result_files import read
from dspark_lite.decoding import Round, generate
from dspark_lite.decoding.target import TargetOutput
from dspark_lite.losslessness.ties import first_difference, same_or_tied
from dspark_lite.losslessness.toys import toy_models
from helpers import bars, written
from tools.notebooks import build as notebooks

(SOURCE,) = notebooks.lesson_sources("00")


def test_the_map_links_to_every_lesson_there_is():
    linked = re.findall(r"\]\((\w+)\.ipynb\)", SOURCE.read_text())
    assert list(dict.fromkeys(linked)) == [
        source.stem for source in notebooks.lesson_sources() if source != SOURCE
    ]


@pytest.mark.parametrize(
    "ours, theirs, at",
    [([1, 2], [1, 2], None), ([1, 2], [1, 3], 1), ([1], [1, 3], 1), ([], [], None)],
)
def test_the_first_difference(ours, theirs, at):
    assert first_difference(ours, theirs) == at


def test_answers_that_differ_are_the_same_only_at_a_tie():
    target, _ = toy_models(vocab_size=5)
    ids = torch.tensor([[1, 2]])
    answer = generate(target, None, ids, max_new_tokens=4).token_ids
    other = answer[:2] + [(answer[2] + 1) % 5] + answer[3:]
    assert same_or_tied(target, ids, answer, answer)
    assert not same_or_tied(target, ids, answer, other)
    assert not same_or_tied(target, ids, answer, answer[:3])


@pytest.mark.parametrize("dtype, same", [(torch.float32, False), (torch.bfloat16, True)])
def test_a_tie_is_as_wide_as_the_number_format_rounds(dtype, same):
    logits = torch.tensor([[[20.0, 19.9, 0.0]]])
    target = SimpleNamespace(dtype=dtype, prefill=lambda ids: (TargetOutput(logits, None), None))
    assert same_or_tied(target, torch.tensor([[0]]), [1], [0]) is same
    assert not same_or_tied(target, torch.tensor([[0]]), [2], [0])


class Letters:
    """A lab whose tokens are letters."""

    class tokenizer:
        decode = staticmethod(lambda ids: "".join(chr(97 + i) for i in ids))

    decode = tokenizer.decode


@pytest.mark.parametrize(
    "outcome, committed, lost",
    [
        (
            Round(3, 1, 2, [0, 1, 2], [0, 9], 0, 0),
            [("a", "kept"), ("j", "added")],
            [("b", "refused"), ("c", "unread")],
        ),
        (
            Round(2, 2, 3, [0, 1], [0, 1, 9], 0, 0),
            [("a", "kept"), ("b", "kept"), ("j", "added")],
            [],
        ),
        (Round(3, 3, 1, [0, 1, 2], [0], 0, 0), [("a", "kept")], [("b", "unread"), ("c", "unread")]),
        (Round(3, 1, 1, [0, 1, 2], [0], 0, 0), [("a", "kept")], [("b", "unread"), ("c", "unread")]),
        (Round(0, 0, 1, [], [9], 0, 0), [("j", "added")], []),
    ],
)
def test_every_token_of_a_round_has_its_fate(outcome, committed, lost):
    assert token_boxes.judged_tokens(Letters, outcome) == (committed, lost)


def test_a_figure_of_rounds_shows_every_kind_of_token():
    rounds = [
        Round(3, 1, 2, [0, 1, 2], [0, 9], 0, 0),
        Round(0, 0, 1, [], [9], 0, 0),
        Round(2, 2, 3, [0, 1], [0, 1, 9], 0, 0),
    ]
    generation = SimpleNamespace(rounds=rounds, token_ids=[5, 0, 9, 9, 0, 1, 9])
    assert written(token_boxes.rounds_figure(Letters, generation))[:11] == [
        "round 1",
        "a",
        "+j",
        "×b",
        "c",
        "round 2",
        "+j",
        "round 3",
        "a",
        "b",
        "+j",
    ]


def colours(fig) -> dict[str, list[str]]:
    """The words of a figure by the colour of their boxes."""
    found = {}
    for text in fig.axes[0].texts:
        if box := text.get_bbox_patch():
            found.setdefault(to_hex(box.get_facecolor()), []).append(text.get_text())
    return found


def test_one_pass_judges_the_guesses_up_to_the_first_wrong_one():
    fig = figures.one_pass_figure(list("abcde"), list("bcxef"))
    assert colours(fig)[ACCEPTED.lower()] == ["b", "c"] and colours(fig)[NEXT.lower()] == ["x"]
    assert [text for text in written(fig) if text in set("✓✗–")] == ["✓", "✓", "✗", "–"]
    whole = figures.one_pass_figure(list("abc"), list("bcx"))
    assert colours(whole)[NEXT.lower()] == ["x"] and "no guess:\na bonus" in written(whole)
    plain = figures.one_pass_figure(list("abc"), list("bcx"), guesses=False)
    assert (
        colours(plain)[NEXT.lower()] == ["x"]
        and ACCEPTED.lower() not in colours(plain)
        and "✓" not in written(plain)
    )


RUN = {
    "tokens": ["a", " b", "\n", "c", " d", ""],
    "rounds": [[2, 3], [1, 2]],
    "plain_ms": 10.0,
    "round_ms": 20.0,
}


def test_the_race_begins_with_its_end_and_plays_at_the_recorded_pace(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr(
        race,
        "race_frame",
        lambda run, passes, rounds: seen.append((passes, rounds)) or (passes, rounds),
    )
    frames = race.race_frames(RUN)
    assert frames[0] == frames[-1] == (5, 2) and seen == [(0, 0), (3, 1), (5, 2)]


def test_the_race_is_written_and_moves(tmp_path):
    race.save_race(RUN, tmp_path / "race.gif")
    with Image.open(tmp_path / "race.gif") as picture:
        assert (
            picture.is_animated
            and picture.n_frames == 4
            and picture.size == (race.RACE_WIDTH, 2 * race.panel_height(RUN["tokens"]))
        )
    with Image.open(ROOT / "assets" / "figures" / "race.gif") as picture:
        assert (
            picture.is_animated
            and (ROOT / "assets" / "figures" / "race.gif").stat().st_size < 300_000
        )


def test_a_panel_of_the_race_is_as_high_as_its_answer():
    heights = [
        race.panel_height(texts)
        for texts in (["a"], ["a\n", "b"], ["a", "\nb\nc"], ["words "] * 20)
    ]
    assert [height - heights[0] for height in heights] == [
        0,
        race.RACE_LINE,
        2 * race.RACE_LINE,
        race.RACE_LINE,
    ]


def test_the_recorded_races_add_up():
    recorded = read(
        ROOT / "assets" / "measurements" / "race.json", "python -m tools.notebooks.race"
    )
    assert set(recorded["races"]) == {"math", "code", "chat"}
    for race_of in recorded["races"].values():
        for run in race_of["drafters"].values():
            assert 1 + sum(committed for _, committed in run["rounds"]) == len(race_of["tokens"])
            assert all(0 <= kept <= committed for kept, committed in run["rounds"])


def test_holes_are_a_reminder_and_a_loop_without_end_is_stopped(capsys):
    def with_holes(big, little, ids, count, gamma=7):
        while ids.shape[1] < count:
            want, ids = ..., ...
        return want[:, :count]

    assert not exercises.check_speculate(with_holes)
    assert capsys.readouterr().out.startswith("Not done yet")
    assert not exercises.check_speculate(
        exercises.decoding(added=lambda guess, want, right: guess[:right])
    )
    assert capsys.readouterr().out.startswith("Not yet: your loop does not end")
    assert not exercises.check_speculate(lambda big, little, ids, count, gamma=7: big(ids[0]))
    assert capsys.readouterr().out.startswith(
        "Not yet: `big` and `little` read ids of shape [1, n]"
    )


def test_the_picture_of_a_round_names_its_steps():
    assert {
        "prefill",
        "parallel backbone",
        "sequential head",
        "confidence",
        "policy",
        "verify",
        "accept",
        "commit",
    } <= set(written(figures.round_picture()))


def test_bars_of_speed_say_how_many_times_plain_decoding():
    fig = figures.speed_bars(
        {"plain": {"math": 100.0, "chat": 50.0}, "dspark": {"math": 250.0, "chat": 60.0}},
        "a made device",
    )
    assert bars(fig.axes[0]) == [[100.0, 50.0], [250.0, 60.0]]
    assert written(fig) == ["× 2.50", "× 1.20", "measured on a made device"]
    assert fig.axes[0].get_title() == "chat gains least"
