"""The scoreboard shows what the stored benchmark holds, and a round's cost in plain passes."""

import pytest
from helpers import bars

from dspark_lite.course.figures import scoreboard as board

ROWS = {
    ("plain", "math"): (1.0, 1.0, 0.0, 5.0),
    ("plain", "code"): (1.0, 1.0, 0.0, 4.0),
    ("plain", "chat"): (1.0, 1.0, 0.0, 5.0),
    ("dflash", "math"): (6.0, 3.0, 2.5, 7.5),
    ("dflash", "code"): (5.0, 2.5, 2.0, 6.0),
    ("dflash", "chat"): (3.0, 1.5, 2.5, 7.5),
}


@pytest.fixture
def stored(monkeypatch):
    """A benchmark of one drafter, whose rounds cost two plain passes everywhere."""
    names = ("accepted_length", "speedup", "draft_milliseconds", "verify_milliseconds")
    rows = [
        {"drafter": drafter, "domain": domain, **dict(zip(names, values))}
        for (drafter, domain), values in ROWS.items()
    ]
    found = {"device": "a made device", "prompts": 3, "rows": rows}
    monkeypatch.setattr(board, "benchmark", lambda: found)
    return rows


def test_the_bars_hold_the_numbers_and_the_device_stands_once(stored, closing):
    tau, speed = board.scoreboard_figure("dflash").axes
    assert sum(bars(tau), []) == [6.0, 5.0, 3.0] and sum(bars(speed), [])[:3] == [3.0, 2.5, 1.5]
    said = [text.get_text() for axes in (tau, speed) for text in axes.texts]
    assert said.count("measured on a made device, 3 prompts per domain") == 1
