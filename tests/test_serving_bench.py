"""Measuring the engine: every configuration takes its turns, totals add up, and what is read of them is what they say."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course.measure.journal import journal_path
from dspark_lite.course.measure.serving_load import (
    SCHEDULED,
    STEP_COUNTS,
    budget,
    measure_load,
    policy_of,
    step_costs,
    totals,
)
from dspark_lite.course.replication import serving_results
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.serving.requests import STEP_PARTS, StepReport
from tools.measure import serving as script

TARGET, DRAFTERS = toy_models(seed=1, vocab_size=13, gamma=2)
LAB = SimpleNamespace(
    target=TARGET,
    prompts={"math": ["a", "b"], "chat": ["c"]},
    seed=0,
    max_new_tokens=6,
    encode=lambda text: torch.tensor([[ord(text) - 97, 3, 4]]),
)
SERVED = {"plain": None, "mtp": DRAFTERS["mtp"], "dspark": DRAFTERS["dspark"]}


@pytest.fixture(scope="module")
def load():
    """Two requests of toy models, two turns of two steps."""
    return measure_load(LAB, SERVED, 2, turns=2, steps=2)


def names(rows):
    """Drafter and policy of rows."""
    return [(row["drafter"], row["policy"]) for row in rows]


def test_a_load_measures_every_budget_and_policy(load):
    budgets = [("dspark", f"budget {b}") for b in (1, 2, 3)]
    assert names(load["deciding"]) == budgets
    assert names(load["costs"]) == [
        ("plain", "fixed 0"),
        ("mtp", "fixed 0"),
        ("mtp", "fixed 1"),
        *budgets,
    ]
    assert names(load["policies"]) == [
        ("plain", "all"),
        ("mtp", "all"),
        *(
            ("dspark", name)
            for name in (
                "fixed 1",
                "fixed 2",
                "threshold 0.5",
                "threshold 0.7",
                "threshold 0.9",
                *SCHEDULED,
            )
        ),
    ]


def test_where_there_is_no_mtp_its_rows_are_left_out_and_the_others_stay(load):
    without = measure_load(LAB, {"plain": None, "dspark": DRAFTERS["dspark"]}, 2, turns=1, steps=1)
    for part in ("deciding", "policies", "costs"):
        assert names(without[part]) == [name for name in names(load[part]) if name[0] != "mtp"]


def test_totals_of_turns_add_up(load):
    for row in (row for part in load.values() for row in part):
        assert row["concurrency"] == 2 and all(
            len(row[name]) == 2
            for name in (*STEP_COUNTS, *(f"{part}_seconds" for part in STEP_PARTS))
        )
        assert row["steps"] == [2, 2] and row["requests"] == [4, 4]
        assert np.array_equal(np.add(row["requests"], row["proposed"]), row["verified"])
        assert (np.array(row["verify_seconds"]) > 0).all()
        if row["policy"].startswith("budget"):  # the last block of an answer is clipped to its room
            most = 4 * int(row["policy"][-1])
            assert all(4 <= verified <= most for verified in row["verified"])
        assert sum(row["padding"]) == 0
    by_budget = [sum(row["verified"]) for row in load["deciding"]]
    assert by_budget[0] == 8 and by_budget == sorted(set(by_budget))


def test_budgets_and_mixes_are_as_named():
    said = torch.tensor([[0.9, 0.9], [0.5, 0.4]])
    proposal = Proposal(torch.zeros(2, 2, dtype=torch.long), torch.empty(2, 2, 0), said.logit())
    assert [budget(b)(proposal).tolist() for b in (1, 1.5, 2, 3)] == [
        [0, 0],
        [1, 0],
        [2, 0],
        [2, 2],
    ]
    assert policy_of("all") is None and policy_of("fixed 1")(proposal).tolist() == [1, 1]
    assert policy_of("threshold 0.5")(proposal).tolist() == [2, 1]
    assert policy_of("budget 2")(proposal).tolist() == [2, 0]


# Reading what was measured


def made_row(concurrency, drafter, policy, committed, seconds, verified=8, **fields):
    """A row of four turns of one step, in which verification took these seconds."""
    requests = [concurrency] * 4
    others = {f"{part}_seconds": [0.0] * 4 for part in STEP_PARTS if part != "verify"}
    return {
        "concurrency": concurrency,
        "drafter": drafter,
        "policy": policy,
        "steps": [1] * 4,
        "prefills": [1] * 4,
        "requests": requests,
        "verified": [verified] * 4,
        "proposed": [verified - concurrency] * 4,
        "accepted": [verified // 4] * 4,
        "admitted": [1, 2, 1, 2],
        "committed": committed,
        "verify_seconds": seconds,
        **others,
        "prefill_seconds": [3.0, 4.0, 3.0, 4.0],
        **fields,
    }


@pytest.fixture
def measured(monkeypatch):
    """Rows with numbers that can be computed by hand."""
    rows = {
        "policies": [
            made_row(4, "dspark", "fixed 1", [4, 8, 4, 8], [1.0, 1.0, 2.0, 2.0]),
            made_row(4, "dspark", "fixed 2", [9] * 4, [1.5] * 4),
            made_row(4, "mtp", "all", [6] * 4, [1.0] * 4),
            made_row(2, "mtp", "all", [3] * 4, [0.6] * 4),
            made_row(2, "dspark", "algorithm1", [4] * 4, [1.0] * 4),
            made_row(4, "dspark", "algorithm1", [8] * 4, [1.0] * 4),
        ],
        "costs": [
            made_row(
                r,
                "dspark",
                f"budget {b}",
                [1] * 4,
                [r + b / 10, r + b / 10, r + b / 10, r + b / 10 + 4],
                verified=r * b,
            )
            for r in (2, 4)
            for b in (1, 2, 3)
        ],
    }
    monkeypatch.setattr(serving_results, "serving_run", lambda: rows)
    return rows


def test_measures_are_ratios_of_totals(measured):
    row = serving_results.row("policies", concurrency=4, policy="fixed 1")
    wanted = {
        "throughput": 24 / 6,
        "per_user": 1.0,
        "budget": 2.0,
        "accepted_length": 1.5,
        "waste": 0.25,
        "step_seconds": 1.5,
        "verify_seconds": 1.5,
        "prefill_seconds": 3.5,
        "draft_seconds": 0.0,
    }
    for name, value in wanted.items():
        found = serving_results.with_interval(name, row)
        assert (
            found.value == serving_results.value(name, row) == pytest.approx(value)
            and found.low <= found.value <= found.high
        )
    assert (
        serving_results.with_interval("throughput", row).low
        < 4
        < serving_results.with_interval("throughput", row).high
    )


def test_a_gain_compares_the_same_turns(measured):
    one, other = (
        serving_results.row("policies", concurrency=4, policy=name)
        for name in ("fixed 1", "fixed 2")
    )
    assert serving_results.gain("throughput", other, one).value == pytest.approx(6 / 4)
    busy = {**one, "verify_seconds": [2 * seconds for seconds in one["verify_seconds"]]}
    same = serving_results.gain("throughput", one, busy)
    assert (same.value, same.low, same.high) == pytest.approx((2, 2, 2)), "turns were not paired"


def test_rows_that_are_missing_or_not_unique_are_named(measured):
    with pytest.raises(
        DSparkLiteError, match="has 0 rows of policies with {'policy': 'lagged'}, not one"
    ):
        serving_results.row("policies", policy="lagged")
    with pytest.raises(DSparkLiteError, match="has 2 rows of policies"):
        serving_results.row("policies", policy="algorithm1")


def test_costs_come_out_of_the_turns(measured):
    rows = measured["costs"]
    np.testing.assert_allclose(step_costs(rows).step_seconds, [[2.1, 2.2, 2.3], [4.1, 4.2, 4.3]])
    np.testing.assert_allclose(
        serving_results.engine_costs("dspark").step_seconds, [[3.1, 3.2, 3.3], [5.1, 5.2, 5.3]]
    )
    assert serving_results.prefill_costs("dspark") == pytest.approx((2.0, 1.0))
    assert serving_results.acceptance_rate("dspark") == pytest.approx(
        sum(r * b // 4 for r in (2, 4) for b in (1, 2, 3))
        / sum(r * (b - 1) for r in (2, 4) for b in (1, 2, 3))
    )


def test_the_frontier_is_speed_per_user_and_throughput_by_load(measured):
    assert serving_results.frontier("dspark", "algorithm1").tolist() == [[2.0, 4.0], [2.0, 8.0]]
    assert serving_results.frontier("mtp", "all").tolist() == [[2.5, 5.0], [1.5, 6.0]]
    gains = [
        serving_results.speed_gain(
            serving_results.frontier("dspark", "algorithm1"), np.array(point)
        )
        for point in ([2.5, 5.0], [1.5, 6.0])
    ]
    assert gains == pytest.approx([-0.2, 1 / 3])


def test_without_a_measurement_the_command_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(serving_results, "MEASURED", tmp_path / "engine.json")
    with pytest.raises(
        DSparkLiteError, match="there is no .*/engine.json; `make serving` writes it"
    ):
        serving_results.serving_run()


# The script


@pytest.fixture
def toy_script(monkeypatch):
    """The script with toy models and a measurement that only notes what it was asked for."""
    asked = []

    def measure(lab, drafters, concurrency, turns, steps):
        asked.append((concurrency, turns, steps))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return {part: [{"concurrency": concurrency}] for part in ("policies", "costs")}

    lab = SimpleNamespace(
        **vars(LAB),
        drafter=lambda name: DRAFTERS[name],
        device_name="a device",
        versions={},
        profile="tiny",
    )
    monkeypatch.setattr(script, "setup", lambda *given, **options: lab)
    monkeypatch.setattr(script, "stored_sts", lambda: SimpleNamespace(attach=lambda drafter: None))
    monkeypatch.setattr(script, "measure_load", measure)
    return asked


def test_a_stopped_measurement_goes_on_with_the_load_it_was_at(toy_script, tmp_path):
    path = tmp_path / "engine.json"
    arguments = ["--turns", "3", "--blocks", "32", "--concurrency", "2", "16", "--out", str(path)]
    with pytest.raises(KeyboardInterrupt):
        script.main(arguments)
    assert journal_path(path).exists() and not path.exists()
    assert script.main([*arguments[:1], "4", *arguments[2:]]) == 2, (
        "a journal of another measurement was taken for this one's"
    )
    assert script.main(arguments) == 0
    assert toy_script == [(2, 3, 16), (16, 3, 4), (16, 3, 4)]
    found = json.loads(path.read_text())
    assert (
        [row["concurrency"] for row in found["policies"]] == [2, 16]
        and found["device"] == "a device"
        and found["turns"] == 3
    )
    assert not journal_path(path).exists()


def test_totals_count_the_steps_that_read_prompts():
    steps = [StepReport(admitted=2), StepReport(), StepReport(admitted=1)]
    assert totals(steps)["prefills"] == 2
