"""The race that ends a lesson: its lanes, whose functions run in the reader's, and files that fail."""

import time

import numpy as np
import pytest
import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.course.figures.lanes import Lane, lanes_figure
from dspark_lite.course.own_decoder import judge, keep
from dspark_lite.course.race import decoders, race, running
from dspark_lite.course.replication import machine_results
from dspark_lite.drafters.dspark import SEQUENTIAL_HEADS

TOKENS = 8  # of an answer in these tests
COURSE = ["plain decoding", "small LM", "DFlash", "DSpark", "Eagle3"]
OWN = ["mine", "mine, likely drafts only", "mine, Algorithm 1", "mine, three answers at once"]
NO_PART = "mine: the course's parts so far"


@pytest.fixture
def own(monkeypatch, tmp_path):
    """The path of a reader's file, which is not there yet; and short answers."""
    monkeypatch.setenv("DSPARK_MINE", str(tmp_path / "my_dspark.py"))
    monkeypatch.setattr(running, "TOKENS", TOKENS)
    return tmp_path / "my_dspark.py"


@pytest.fixture
def drawn(monkeypatch):
    """What the race of a lesson draws, {label: lane}."""
    found = {}

    def draw(lesson, lanes, *_):
        found.clear()
        found.update({lane.label: lane for lane in lanes})

    monkeypatch.setattr(running, "lanes_figure", draw)
    return found


def edited(name: str, right: str, wrong: str) -> str:
    """The course's function of this name with a piece of its text exchanged, as a reader's file."""
    head, pieces = keep.split(keep.EDITION.read_text(encoding="utf-8"))
    source = pieces[name].source
    assert right in source
    return f"{head}\n\n\n{source.replace(right, wrong)}\n"


@pytest.mark.parametrize(
    ("lesson", "course", "mine"),
    [("03", 2, 1), ("04", 3, 1), ("05", 4, 1), ("06", 5, 1), ("07", 5, 1), ("09", 5, 2)]
    + [("10", 5, 3), ("11", 5, 4)],
)
def test_a_lesson_has_its_lanes_and_the_pieces_of_the_course_write_plain_decodings_text(
    tiny_lab, own, lesson, course, mine
):
    lanes = running.run_lanes(lesson, tiny_lab, judge.run_file(keep.EDITION))
    assert [lane.label for lane in lanes] == COURSE[:course] + OWN[:mine]
    assert all(lane.lossless and lane.ms_a_token > 0 for lane in lanes)
    of = {lane.label: lane for lane in lanes}
    model = of[{"03": "small LM", "04": "DFlash"}.get(lesson, "DSpark")]
    assert of["mine"].tokens_a_round == model.tokens_a_round
    assert of["mine"].verified_a_token == model.verified_a_token
    assert of["plain decoding"].tokens_a_round == of["plain decoding"].verified_a_token == 1
    if lesson >= "09":
        assert of["mine, likely drafts only"].verified_a_token <= of["mine"].verified_a_token


def test_without_a_file_the_parts_are_the_courses(tiny_lab, own, drawn, capsys):
    race("03", tiny_lab)
    assert list(drawn)[-1] == NO_PART and capsys.readouterr().out == ""


def test_a_kept_part_runs_in_the_readers_lane_alone(tiny_lab, own, drawn, capsys):
    own.write_text(edited("forget", "gamma - 1 - accepted", "gamma - accepted"), encoding="utf-8")
    race("03", tiny_lab)
    assert (
        drawn["mine"].lossless and drawn["mine"].tokens_a_round < drawn["small LM"].tokens_a_round
    )
    assert capsys.readouterr().out == "Yours: forget. The course's: residual, verify.\n"


def test_a_wrong_rule_is_seen_by_its_text(tiny_lab, own, drawn):
    own.write_text(
        edited("verify", "[*drafts, draw(p[len(drafts)], generator)]", "[*drafts, 5]"),
        encoding="utf-8",
    )
    race("05", tiny_lab)
    assert not drawn["mine"].lossless
    assert all(lane.lossless for label, lane in drawn.items() if label != "mine")


def test_a_slow_part_slows_the_readers_lane(tiny_lab, own, drawn):
    slow = "import time; time.sleep(0.2)\n    return draft.w"
    own.write_text(edited("transition_bias", "return draft.w", slow), encoding="utf-8")
    begun = time.perf_counter()
    race("05", tiny_lab)
    whole = 1e3 * (time.perf_counter() - begun)
    lane = drawn["mine"]  # at least one draft a round, at least 200 ms each
    assert 200 / lane.tokens_a_round <= lane.ms_a_token < whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def (", "cannot be run: SyntaxError"),
        (lambda: edited("verify", "for k, x", "drafts.none\n    for k, x"), "AttributeError"),
        (lambda: edited("verify", "return [*drafts, draw(p[len(drafts)], generator)]", "return []")
         .replace("return [*drafts[:k], draw(residual(p[k], q[k]), generator)]", "return []"),
         "passes do not write"),
    ],
    ids=["no Python", "an error in a round", "a round without a token"],
)  # fmt: skip
def test_a_file_that_fails_is_one_sentence_and_the_race_goes_on(
    tiny_lab, own, drawn, capsys, text, said
):
    own.write_text(text if isinstance(text, str) else text(), encoding="utf-8")
    race("05", tiny_lab)
    out = capsys.readouterr().out
    assert said in out and out.count("\n") == 1
    assert list(drawn) == [*COURSE[:4], NO_PART] and drawn[NO_PART].lossless


def test_a_head_has_a_lane_on_dflash(tiny_lab, own):
    head = SEQUENTIAL_HEADS["vanilla"](tiny_lab.target.vocab_size, 4, tiny_lab.target.hidden_size)
    mine = judge.run_file(keep.EDITION)
    torch.nn.init.zeros_(head.markov_w2.weight)
    lanes = {lane.label: lane for lane in running.run_lanes("07", tiny_lab, mine, head)}
    assert lanes["mine, with my head"].tokens_a_round == lanes["DFlash"].tokens_a_round
    torch.nn.init.constant_(head.markov_w1.weight, 1.0)
    head.markov_w2.weight.data[7] = 1e3  # it drafts token 7 everywhere
    lanes = {lane.label: lane for lane in running.run_lanes("07", tiny_lab, mine, head)}
    assert lanes["mine, with my head"].tokens_a_round < lanes["DFlash"].tokens_a_round


def test_a_step_that_never_ends_is_stopped(tiny_lab, own):
    mine = judge.run_file(keep.EDITION)
    mine.step = lambda engine: None
    with pytest.raises(RequestError, match="4 steps do not write 4 tokens"):
        decoders.sharing(tiny_lab.target, tiny_lab.drafter("dspark"), mine, [[1, 2], [3]], 4)


def test_likely_drafts_and_the_full_machines_price():
    survivals = torch.tensor([[0.9, 0.5, 0.49], [0.4, 0.3, 0.2]])
    assert running.likely(survivals, None) == [2, 0]
    step = machine_results.machines()[machine_results.V4_FLASH].step("dspark")
    load = running.LOAD
    assert running.full_machine(3) == 1 / step.seconds(load, 3 * load)


def test_the_courses_functions_call_the_readers(own):
    own.write_text(edited("verify", "for k, x", "1 / 0\n    for k, x"), encoding="utf-8")
    mine, names = judge.assembled()
    assert names == ["verify"] and mine.generate.__globals__["verify"] is mine.verify


def test_the_boxes_are_rounds_and_a_wrong_text_has_none():
    lanes = [
        Lane("plain decoding", "#555555", 1.0, 4.5, 1.0),
        Lane("DSpark", "#0072B2", 4.0, 2.5, 1.4),
        Lane("mine", "#000000", 3.0, 5.0, 1.2, lossless=False),
    ]
    (axes,) = lanes_figure("09", lanes, 10, "a made device", places=True).axes
    assert [box.get_width() for box in axes.patches[10:]] == [10.0, 10.0, 5.0]  # 4, 4, 2 tokens
    said = [text.get_text() for text in axes.texts]
    for text in ("4.0", "2.5", "1.8", "1.40", "measured on a made device"):
        assert text in said
    assert "3.0" not in said and np.count_nonzero([text == "" for text in said]) == 3


def test_another_lesson_has_no_race(tiny_lab):
    with pytest.raises(RequestError, match="'08' has no race; 03, "):
        race("08", tiny_lab)
