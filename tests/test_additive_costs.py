"""SGLang's additive cost table: its sum, its fit, its file, and how far it is from what the engine's steps took."""

import json

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from dspark_lite import scheduling
from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError, RequestError
from dspark_lite.course.measure import step_time
from dspark_lite.course.measure.step_costs import StepCosts
from dspark_lite.course.measure.step_time import additive_fit, profile_steps
from dspark_lite.course.replication.serving_results import engine_costs
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling.additive_costs import ADDITIVE_FIELDS, AdditiveCosts

TABLE = AdditiveCosts(0.010, [1, 4], [0.0, 0.003], [1, 8, 32], [0.0, 0.002, 0.014])


def test_a_step_is_the_sum_of_its_parts_and_linear_between_probes():
    assert TABLE.seconds(1, 1) == pytest.approx(0.010)
    assert TABLE.seconds(2, 20) == pytest.approx(0.010 + 0.001 + 0.008)
    assert TABLE.seconds(4, range(8, 33, 12)).tolist() == pytest.approx([0.015, 0.021, 0.027])
    assert TABLE.sps(4, 32) == pytest.approx(1 / 0.027) and TABLE.max_batch_tokens == 32


def test_costs_outside_the_probes_and_what_is_not_told():
    found = AdditiveCosts(0.01, [2, 4], [0.001, 0.003], [4, 8], [0.002, 0.006])
    assert found.seconds(1, 1) == found.seconds(2, 4) == pytest.approx(0.013), (
        "constant below the first probes"
    )
    assert [found.most_tokens(requests) for requests in (1, 4, 5)] == [
        8,
        8,
        0,
    ] and found.origin is None
    assert found.relative_errors([2, 4], [4, 8], [0.026, 0.0095]).tolist() == pytest.approx(
        [-0.5, 1.0]
    )


@pytest.mark.parametrize(("requests", "tokens"), [(5, 8), (4, 33), (1, range(1, 40))])
def test_nothing_is_known_beyond_the_last_probes(requests, tokens):
    with pytest.raises(RequestError, match="cover up to 4 requests and 32 tokens"):
        TABLE.seconds(requests, tokens)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ((0.0, [1], [0.0], [1], [0.0]), "bias_seconds is 0.0"),
        ((float("nan"), [1], [0.0], [1], [0.0]), "bias_seconds is nan"),
        ((1.0, [1.5, 2.7], [0.0, 0.0], [1], [0.0]), r"\[1.5, 2.7\]; they must be whole numbers"),
        ((1.0, [], [], [1], [0.0]), "0 probes of requests"),
        ((1.0, [1], [0.0], [1, 2], [0.0]), "2 probes of tokens and 1 times"),
        ((1.0, [2, 1], [0.0, 0.0], [1], [0.0]), "probes of requests do not increase"),
        ((1.0, [1], [0.0], [0], [0.0]), "probes of tokens do not increase"),
        ((1.0, [1], [float("inf")], [1], [0.0]), "not a finite number"),
        ((0.01, [1], [-0.02], [1], [0.0]), "the shortest step of the additive costs -0.01 s"),
        ((0.01, [1], [0.0], [1, 2], [0.0, -0.01]), "the shortest step of the additive costs 0 s"),
    ],
)
def test_tables_that_make_no_sense_are_refused(fields, sentence):
    with pytest.raises(RequestError, match=sentence):
        AdditiveCosts(*fields)


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.lists(st.floats(0, 1), min_size=8, max_size=8),
)
def test_steps_that_are_a_sum_are_found_exactly(rises_of_requests, rises_of_tokens):
    requests, each = (axis.ravel() for axis in np.meshgrid([1, 2, 4], [1, 2, 4, 8], indexing="ij"))
    tokens = requests * each
    alpha, theta = np.cumsum(rises_of_requests), np.cumsum(rises_of_tokens)
    seconds = (
        1
        + np.interp(requests, [1, 2, 4], alpha)
        + np.interp(tokens, [1, 2, 4, 8, 16, 24, 28, 32], theta)
    )
    fitted = AdditiveCosts.fit(requests, tokens, seconds)
    assert np.abs(fitted.relative_errors(requests, tokens, seconds)).max() < 1e-6
    assert (np.diff(fitted.alpha_seconds) >= 0).all() and (np.diff(fitted.theta_seconds) >= 0).all()


def test_a_fit_has_a_bias_however_dear_the_largest_step_is():
    """The best sum of these steps would have a bias of 0."""
    fitted = AdditiveCosts.fit([1, 2, 2, 2], [2, 1, 2, 2], [1.0, 1.0, 3.0, 3.0])
    assert fitted.bias_seconds == 1e-3


def test_too_few_or_impossible_steps_are_refused():
    with pytest.raises(RequestError, match="there are 3 measured steps"):
        AdditiveCosts.fit([1, 1, 1], [1, 2, 3], [1.0, 1.0, 1.0])
    with pytest.raises(RequestError, match="each of a positive number"):
        AdditiveCosts.fit([1] * 4, [1, 2, 3, 4], [1.0, 1.0, 0.0, 1.0])


def test_the_file_has_the_fields_that_sglang_reads(tmp_path):
    TABLE.save(tmp_path / "sps.json")
    held = json.loads((tmp_path / "sps.json").read_text())
    assert (
        tuple(held) == ADDITIVE_FIELDS
        and held["m_probes"] == [1, 8, 32]
        and type(held["bias_seconds"]) is float
    )
    assert all(type(probe) is int for probe in held["bs_probes"] + held["m_probes"])
    again = AdditiveCosts.load(tmp_path / "sps.json")
    assert again.seconds(3, range(3, 33)).tolist() == TABLE.seconds(3, range(3, 33)).tolist()
    (tmp_path / "sps.json").write_text(json.dumps(held | {"m_probes": [8, 1, 32]}))
    with pytest.raises(CheckpointError, match="sps.json: the probes of tokens do not increase"):
        AdditiveCosts.load(tmp_path / "sps.json")
    (tmp_path / "sps.json").write_text(json.dumps(held | {"m_probes": [1, 8, 10**30]}))
    with pytest.raises(CheckpointError, match="sps.json: "):
        AdditiveCosts.load(tmp_path / "sps.json")


def test_a_policy_takes_it_for_a_cost_table():
    survival = torch.tensor([[0.9, 0.5], [0.8, 0.1]])
    chosen = scheduling.global_optimum(survival, TABLE)
    best = max(
        (sum(survival[r, :n].sum() for r, n in enumerate(lengths)) + 2)
        * TABLE.sps(2, 2 + sum(lengths))
        for lengths in np.ndindex(3, 3)
    )
    reached = (sum(survival[r, :n].sum() for r, n in enumerate(chosen.tolist())) + 2) * TABLE.sps(
        2, 2 + int(chosen.sum())
    )
    assert reached == pytest.approx(float(best))


LARGEST_ERROR = 0.15  # of the sum on the steps of the recorded engine: 12.9 % of the five turns of the new models (0.12 for ten turns)


def test_the_sum_is_near_the_steps_of_the_recorded_engine():
    table, error = additive_fit(engine_costs("dspark"))
    assert 0 < error < LARGEST_ERROR and table.max_batch_tokens == 64 * 8


def test_profile_writes_the_additive_table(tmp_path, monkeypatch, capfd):
    grid = StepCosts([1, 2], [1, 2, 3], [[0.01, 0.011, 0.012], [0.012, 0.013, 0.014]])
    monkeypatch.setattr(step_time, "profile_steps", lambda *_, **__: (grid, {(1, 1): [10.0, 10.0]}))
    assert (
        main(
            [
                "profile",
                "--format",
                "additive",
                "--out",
                str(tmp_path / "a.json"),
                "--json",
                str(tmp_path / "m.json"),
            ]
        )
        == 0
    )
    assert "largest relative error of the sum: " in capfd.readouterr().out
    assert AdditiveCosts.load(tmp_path / "a.json").bs_probes.tolist() == [1, 2]
    measured = json.loads((tmp_path / "m.json").read_text())
    assert measured["cells"] == [{"requests": 1, "tokens_of_each": 1, "milliseconds": [10.0, 10.0]}]
    for words in (["--format", "additive", "--sizes", "4"], ["--requests", "2"]):
        assert main(["profile", "--out", str(tmp_path / "b.json"), *words]) == 2
    assert capfd.readouterr().err.count("--requests to --format additive") == 2


def test_steps_are_measured_by_requests_and_by_tokens_of_each():
    target, _ = toy_models(vocab_size=5)
    read = []
    verify = target.verify

    def noting(ids, cache):
        read.append((*ids.shape, cache.get_seq_length()))
        return verify(ids, cache)

    target.verify = noting
    costs, spent = profile_steps(target, [2, 1], [1, 3], context=6, repeats=2)
    # every pass after the same context: all were rolled back
    assert set(read) == {(r, k, 6) for r in (1, 2) for k in (1, 3)}
    assert costs.step_seconds.shape == (2, 2) and all(len(times) == 2 for times in spent.values())
    with pytest.raises(RequestError, match="exceed the 64 positions"):
        profile_steps(target, [1], [8], context=60)
    with pytest.raises(RequestError, match="fewer than one request"):
        profile_steps(target, [0], [1])
