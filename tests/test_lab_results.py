"""A lab's own results: measured once, kept with where they were made, measured anew for other weights, drawn beside the recorded."""

import json
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from dspark_lite.common.files import read_object
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.figures import lesson_09, lesson_11, paper_figures
from dspark_lite.course.measure.lab import Lab
from dspark_lite.course.replication import lab_results
from dspark_lite.course.replication.lab_results import (
    LabConfidence,
    cached,
    has_stored_results,
    lab_folder,
    measure_confidence,
    measure_lab_load,
    measure_lengths,
    with_prompts,
)
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling.calibration import STS, Observations
from dspark_lite.scheduling.cost_table import CostTable

TARGET, DRAFTERS = toy_models(vocab_size=11, gamma=4)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A lab of toy models whose results go to a folder of their own."""
    monkeypatch.setenv("DSPARK_MEASUREMENTS", str(tmp_path))
    monkeypatch.setattr(TARGET, "tokenizer", object())
    return Lab("tiny", TARGET, {"math": ["one", "two"]})


def test_the_tiny_lab_has_the_recorded_results_and_measures_nothing(tiny_lab):
    assert has_stored_results(tiny_lab)
    assert (
        measure_confidence(tiny_lab, None)
        is measure_lab_load(tiny_lab, None, None)
        is measure_lengths(tiny_lab)
        is None
    )


def test_results_are_measured_once_for_the_same_weights(lab):
    calls = []

    def measure():
        calls.append(1)
        return {"number": len(calls)}

    path = lab_folder(lab) / "it.json"
    # of the same name, with other weights
    drafter = DRAFTERS["dspark"]
    other = toy_models(seed=1, vocab_size=11, gamma=4)[1]["dspark"]
    assert [cached(path, lab, drafter, measure)["number"] for _ in range(2)] == [1, 1]
    made_of = read_object(path)["made_of"]
    assert (
        made_of["device"].startswith("CPU")
        and made_of["draft"]
        and {"torch", "transformers", "dtype", "target"} <= made_of.keys()
    )
    assert cached(path, lab, other, measure)["number"] == 2
    assert cached(path, lab, other, measure, anew=True)["number"] == 3
    held = read_object(path)
    path.write_text(json.dumps({**held, "made_of": {**held["made_of"], "torch": "1.0"}}))
    assert cached(path, lab, other, measure)["number"] == 4


def test_fewer_prompts_are_answered_at_the_same_length(lab):
    lab.max_new_tokens = 7
    few = with_prompts(lab, 1)
    assert (
        few.prompts == {"math": ["one"]}
        and few.max_new_tokens == 7
        and lab.prompts == {"math": ["one", "two"]}
    )


def test_a_small_load_has_every_way_to_serve_at_each_load(lab, monkeypatch):
    monkeypatch.setattr(lab_results, "has_stored_results", lambda lab: False)
    monkeypatch.setattr(lab_results, "LOAD_TOKENS", 40)
    monkeypatch.setattr(lab, "encode", lambda text: torch.tensor([[1, 2, 3]]))
    drafter = DRAFTERS["dspark"]
    table = CostTable(range(1, 33), np.linspace(2, 1, 32))
    found = measure_lab_load(lab, drafter, table, loads=(1, 2), steps=3)
    rows = {(row["policy"], row["concurrency"]): row for row in found["rows"]}
    assert list(rows) == [
        (policy, load) for load in (1, 2) for policy in ("plain", "fixed", "algorithm1")
    ]
    assert (
        rows["plain", 2]["verified"] == rows["plain", 2]["accepted_length"] == 1
        and rows["fixed", 1]["verified"] == drafter.gamma + 1
    )
    assert (
        found["device"].startswith("CPU") and found["versions"] and found["drafter"] == drafter.name
    )
    fig = lesson_11.draw_lab_load(
        found,
        {"fixed": {1: 2.0, 2: 1.5}, "algorithm1": {1: 2.0, 2: 1.8, 64: 1.1}},
        "recorded on a CPU",
    )
    labels = [text.get_text() for text in fig.axes[0].get_legend().get_texts()]
    assert len(labels) == 4 and sum("recorded on a CPU" in label for label in labels) == 2
    plt.close(fig)


def own(names):
    """Own results of some domains or benchmarks: blocks of seven drafts that survive as said."""
    rng = np.random.default_rng(0)
    blocks = {
        name: Observations(rng.normal(size=(40, 7)), rng.integers(0, 8, 40), np.arange(40) % 4)
        for name in names
    }
    report = {
        "observations": {
            name: {part: getattr(found, part).tolist() for part in found._fields}
            for name, found in blocks.items()
        }
    }
    return LabConfidence("a model on a GPU", report, STS([1.5] * 7), CostTable([1], [1.0]))


@pytest.mark.slow(reason="fits and draws two calibrations")
def test_figure_6_shows_both():
    alone, *beside = (
        lesson_09.figure_6(*found)
        for found in (
            (),
            (own(("math", "code", "chat")),),
            (own(("gsm8k", "math500", "humaneval", "alpaca")),),
        )
    )
    legends = [[text.get_text() for text in fig.legends[0].get_texts()] for fig in (alone, *beside)]
    assert ["a model on a GPU" in legend for legend in legends] == [False, True, True]
    assert all(
        sum(len(axes.lines) for axes in fig.axes) > sum(len(axes.lines) for axes in alone.axes)
        for fig in beside
    )
    plt.close("all")


def test_own_lengths_stand_between_the_recorded_and_the_papers():
    fig = paper_figures.draw_lab_lengths(
        {"math": Estimate(4.0, 3.5, 4.5), "chat": Estimate(3.0, 2.5, 3.5)}, "mine"
    )
    assert {text.get_text() for text in fig.axes[0].get_legend().get_texts()} == {
        "mine",
        "here, tiny models, three trainings",
        "paper (Qwen3-4B)",
    }
    plt.close(fig)


def test_a_folder_is_named_by_target_and_device(tmp_path, monkeypatch):
    monkeypatch.delenv("DSPARK_MEASUREMENTS", raising=False)
    lab = SimpleNamespace(target=SimpleNamespace(name="Qwen/Qwen3-4B"), device_name="Tesla T4")
    assert lab_folder(lab).parts[-4:] == ("assets", "measurements", "own", "qwen3-4b-tesla-t4")
