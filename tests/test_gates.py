"""The gates of the tiny world, computed by hand."""

import math

import pytest

from dspark_lite.measure.gates import Gate, depth_gate, ending_gate, gate_line, small_lm_gates, target_gates

QUALITY = [{"domain": "math", "right": 0.95, "entropy_nats": 0.4, "certain": 0.55, "uncertain": 0.2},
           {"domain": "code", "right": 0.85, "entropy_nats": 0.5, "certain": 0.62, "uncertain": 0.1},
           {"domain": "chat", "right": 0.9, "entropy_nats": 1.0, "certain": 0.31, "uncertain": 0.5}]


def verdicts(gates):
    """Whether each gate is met, by name and domain."""
    return {(gate.name, gate.domain): gate.met for gate in gates}


def test_the_targets_gates():
    met = verdicts(target_gates(QUALITY))
    assert [met["answers that are right", domain] for domain in ("math", "code", "chat")] == [True, False, True]
    assert [met["tokens below 0.01 nat", domain] for domain in ("math", "code", "chat")] == [True, False, False]
    assert met["entropy of chat over that of math", "chat"]  # 1.0 / 0.4 = 2.5
    halved = [{**row, "entropy_nats": row["entropy_nats"] / (2 if row["domain"] == "chat" else 1)} for row in QUALITY]
    assert not verdicts(target_gates(halved))["entropy of chat over that of math", "chat"]  # 1.25


@pytest.mark.parametrize(("length", "met"), [(1.99, False), (2.0, True), (3.5, True), (3.51, False)])
def test_the_small_lm_has_to_be_neither_too_bad_nor_too_good(length, met):
    gate, = small_lm_gates([{"domain": "code", "accepted_length": length}])
    assert gate.met == met and gate.real.startswith("3.06")


def test_depth_is_compared_at_the_first_position_in_the_mean_over_domains():
    full = [{"conditional_acceptance": [0.9, 0.1]}, {"conditional_acceptance": [0.7, 0.1]}]
    shallow = [{"conditional_acceptance": [0.8, 0.9]}, {"conditional_acceptance": [0.6, 0.9]}]
    gate = depth_gate(full, shallow)
    assert gate.value == pytest.approx(0.1) and gate.met and not depth_gate(shallow, full).met


def test_one_round_an_answer_is_cut_short():
    gate = ending_gate([{"rounds": [30, 10]}, {"rounds": [40]}])  # 3 of 80
    assert gate.value == pytest.approx(3 / 80) and gate.met
    assert not ending_gate([{"rounds": [10, 9]}]).met


def test_a_gate_says_what_it_asks_for():
    row = Gate("length", "math", 1.5, at_least=2.0, real="2.30").row()
    assert row["at_most"] is None and not math.isinf(row["at_least"])
    assert "NOT MET (at least 2)" in gate_line(row) and "real: 2.30" in gate_line(row)
    assert "reported" in gate_line(Gate("share", "chat", 0.5).row())
