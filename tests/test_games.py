"""The two games: what a page and a notebook are given to play, and the rules of their modules."""

import json
import shutil
import subprocess

import pytest
import torch

from dspark_lite.course.figures import drafter_game, scheduler_game, widgets
from dspark_lite.course.figures.drafter_game import Bigrams, letters, round_ends
from dspark_lite.course.figures.step_scene import made_up_table
from dspark_lite.scheduling import schedule

with_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def answered(name, expression, given):
    """What an expression on the `game` module of this name and on `given` is in JavaScript."""
    script = f"""import * as game from "{(widgets.HERE / f"{name}.js").as_uri()}";
        import {{ readFileSync }} from "node:fs";
        const given = JSON.parse(readFileSync(0));
        console.log(JSON.stringify({expression}));"""
    run = ["node", "--input-type=module", "-e", script]
    told = subprocess.run(run, input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(told.stdout)


@pytest.fixture(scope="module")
def passage():
    """The drafter's game."""
    return drafter_game.game_scene()


@pytest.fixture(scope="module")
def steps():
    """The scheduler's game."""
    return scheduler_game.game_scene()


def test_a_round_keeps_what_is_right_before_the_first_difference_and_adds_a_word():
    text = "a b c d e f g h".split()
    drafts = {1: ["b", "c", "x", "e"], 4: [], 5: ["f", "g", "h", "z"]}
    assert round_ends(text, 1, 8, lambda known: drafts[len(known)]) == [3, 4, 7]


def test_bigrams_draft_the_most_frequent_word_until_they_know_none():
    table = Bigrams(["a b a b a c".split(), "b d".split()])
    assert table.continuation(["x", "a"]) == "b a b a b a b".split()
    assert Bigrams([["a", "b", "c"]]).continuation(["a"]) == ["b", "c"]
    assert Bigrams([["a", "b", "c"]]).continuation(["x"]) == []


def test_the_bigrams_have_not_read_what_is_guessed(passage):
    said = {letters(word) for word in passage["words"]}
    assert {"jaw", "crystal"} <= said
    assert passage["given"][-1] == "foolishness," and passage["words"][-1] == "ever."
    assert all(ends[-1] == len(passage["words"]) for ends in passage["others"].values())
    lookup, table = (len(passage["others"][name]) for name in ("prompt lookup", "bigram table"))
    assert lookup < table < len(passage["words"])


@with_node
def test_the_page_judges_drafts_as_the_course_does(passage):
    pairs = [
        ("it was the epoch", 4),
        ("It WAS, the age", 3),
        ("nothing", 0),
        ("it was the epoch of belief it", 7),
    ]
    given = {"words": passage["words"], "typed": [words.split() for words, _ in pairs]}
    expression = "given.typed.map((drafts) => game.accepted(drafts, given.words))"
    assert answered("drafter_game", expression, given) == [kept for _, kept in pairs]


@with_node
def test_tau_counts_whole_rounds():
    expression = "[1, 3, 4, 9].map((words) => game.tau(given, words))"
    assert answered("drafter_game", expression, [3, 4, 9]) == [3, 3, 2, 3]


def test_the_drafters_game_stands_as_text_where_no_widget_runs(monkeypatch):
    found = []
    monkeypatch.setattr(widgets, "anywidget", None)
    monkeypatch.setattr(widgets, "display", lambda data, **options: found.append(data))
    assert drafter_game.drafter_game() is None and scheduler_game.scheduler_game() is None
    for faces, words in zip(found, ("best of times", "| request |")):
        assert set(faces) == {"text/markdown", "text/plain"} and words in faces["text/markdown"]
    assert "0.85" not in str(found)  # the answer to a bet


@with_node
def test_the_schedulers_steps_are_algorithm_1s_on_its_clock(steps):
    assert [len(step["alive"]) for step in steps["steps"]] == list(scheduler_game.REQUESTS)
    table = made_up_table(100)
    speed = {}
    for way in ("lengths", "accepted"):
        expression = f"given.steps.map((step) => game.outcome(step, step.{way}, given.machine))"
        told = answered("scheduler_game", expression, steps)
        speed[way] = sum(step["tokens"] for step in told) / sum(step["ms"] for step in told)
        for step, found in zip(steps["steps"], told):
            batch = len(step[way]) + sum(step[way])
            kept = sum(map(min, step[way], step["accepted"]))
            assert found["ms"] == pytest.approx(1e3 / table.sps(1, batch))
            assert found["tokens"] == len(step[way]) + kept == len(step[way]) + found["kept"]
    assert speed["accepted"] > 1.1 * speed["lengths"]  # a peek pays
    rounded = torch.tensor(steps["steps"][0]["alive"])
    assert schedule(rounded, table).tolist() == steps["steps"][0]["lengths"]


def test_a_peek_changes_what_the_test_request_says(steps):
    answers = steps["answers"] * len(steps["steps"])
    assert steps["test"]["target"] == pytest.approx(0.7)
    assert sum(steps["test"]["honest"]) / answers == pytest.approx(0.7, abs=0.03)
    assert sum(steps["test"]["peeked"]) / answers == pytest.approx(0.85, abs=0.03)
