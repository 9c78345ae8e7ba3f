"""The gates of the tiny world, computed by hand."""

import pytest

from dspark_lite.course.measure.target_quality import gate, gate_line, small_lm_gates, target_gates

QUALITY = [
    {"domain": "math", "right": 0.95, "entropy_nats": 0.4, "certain": 0.55, "uncertain": 0.2},
    {"domain": "code", "right": 0.85, "entropy_nats": 0.5, "certain": 0.62, "uncertain": 0.1},
    {
        "domain": "chat",
        "right": 0.3,
        "recalled": 0.9,
        "entropy_nats": 1.0,
        "certain": 0.31,
        "uncertain": 0.5,
    },
]


def verdicts(found):
    """Whether each gate is met, by name and domain."""
    return {(row["name"], row["domain"]): row["met"] for row in found}


def test_the_targets_gates():
    met = verdicts(target_gates(QUALITY))
    assert [met["answers that are right", domain] for domain in ("math", "code")] == [True, False]
    assert met["facts recalled", "chat"]
    assert [met["tokens below 0.01 nat", domain] for domain in ("math", "code", "chat")] == [
        True,
        False,
        False,
    ]
    assert met["entropy of chat over that of math", "chat"]  # 1.0 / 0.4 = 2.5
    halved = [
        {**row, "entropy_nats": row["entropy_nats"] / (2 if row["domain"] == "chat" else 1)}
        for row in QUALITY
    ]
    assert not verdicts(target_gates(halved))["entropy of chat over that of math", "chat"]  # 1.25


@pytest.mark.parametrize(
    ("length", "met"), [(1.99, False), (2.0, True), (3.5, True), (3.51, False)]
)
def test_the_small_lm_has_to_be_neither_too_bad_nor_too_good(length, met):
    (row,) = small_lm_gates([{"domain": "code", "accepted_length": length}])
    assert row["met"] == met and row["real"].startswith("3.06")


def test_a_gate_says_what_it_asks_for():
    row = gate("length", "math", 1.5, at_least=2.0, real="2.30")
    assert row["at_most"] is None and row["at_least"] == 2.0
    assert "NOT MET (at least 2)" in gate_line(row) and "real: 2.30" in gate_line(row)
    assert "reported" in gate_line(gate("share", "chat", 0.5))
