"""The scoreboard shows what the stored benchmark holds, and a round's cost in plain passes."""

import pytest
from helpers import bars

from dspark_course.figures import scoreboard as board

ROWS = {("plain", "math"): (1.0, 1.0, 0.0, 5.0), ("plain", "code"): (1.0, 1.0, 0.0, 4.0), ("plain", "chat"): (1.0, 1.0, 0.0, 5.0),
        ("dflash", "math"): (6.0, 3.0, 2.5, 7.5), ("dflash", "code"): (5.0, 2.5, 2.0, 6.0), ("dflash", "chat"): (3.0, 1.5, 2.5, 7.5)}


@pytest.fixture
def stored(monkeypatch):
    """A benchmark of one drafter, whose rounds cost two plain passes everywhere."""
    names = ("accepted_length", "speedup", "draft_milliseconds", "verify_milliseconds")
    rows = [{"drafter": drafter, "domain": domain, **dict(zip(names, values))} for (drafter, domain), values in ROWS.items()]
    found = {"device": "a made device", "prompts": 3, "rows": rows}
    monkeypatch.setattr(board, "benchmark", lambda: found)
    return rows


def test_a_row_holds_what_is_accepted_what_a_round_costs_and_what_is_gained(stored):
    _, heads, plain, dflash, device = board.scoreboard("dflash").splitlines()
    assert heads.split() == ["math", "code", "chat", "total", "drafting", "verifying", "math", "code", "chat"]
    assert plain.split() == ["plain", "decoding", *["1.00"] * 4, "0.00", *["1.00"] * 4]
    assert dflash.split() == ["DFlash", "6.00", "5.00", "3.00", "2.00", "0.50", "1.50", "3.00", "2.50", "1.50"]
    assert device == "measured on a made device, 3 prompts per domain"


def test_a_benchmark_without_the_parts_of_a_round_has_its_cost(stored):
    for row in stored:
        del row["draft_milliseconds"], row["verify_milliseconds"]
    assert board.scoreboard("dflash").splitlines()[-2].split() == ["DFlash", "6.00", "5.00", "3.00", "2.00", "-", "-", "3.00", "2.50", "1.50"]


def test_the_bars_hold_the_same_numbers_and_the_device_stands_once(stored, closing):
    tau, speed = board.scoreboard_figure("dflash").axes
    assert sum(bars(tau), []) == [6.0, 5.0, 3.0] and sum(bars(speed), [])[:3] == [3.0, 2.5, 1.5]
    said = [text.get_text() for axes in (tau, speed) for text in axes.texts]
    assert said.count("measured on a made device, 3 prompts per domain") == 1
