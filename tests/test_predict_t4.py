"""Predicted minutes: passes are counted and grown to full answers, the roofline prices them, header and table say what they are."""

import json
from collections import Counter

import notebooks
import pass_counts
import predict_t4
import pytest
import readme
import torch

from dspark_course.making import answers
from dspark_course.measure.roofline import Work
from dspark_lite.decoding import generate
from dspark_lite.decoding.target import Target
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.serving.engine import Engine, Request

LESSON = "00_start_here"
PROMPT = torch.tensor([[1, 0, 1]])


# Counting ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def counts(monkeypatch):
    """Counts of what follows; an answer of 5 tokens would have 9."""
    planted = pass_counts.PassCounts(longest=5, really=9)
    pass_counts.plant(planted, monkeypatch.setattr)
    return planted


def small_models(name="Qwen/Qwen3-4B"):
    """A toy target under this name, and its DSpark (blocks of two), which counts as one that was loaded."""
    toy, drafters = toy_models()
    drafters["dspark"].__dict__["counted_as"] = "dspark"
    return Target(toy.model, name=name), drafters["dspark"]


def test_plain_decoding_is_one_pass_over_the_prompt_and_one_for_each_further_token(counts):
    target, _ = small_models()
    generate(target, None, PROMPT, max_new_tokens=5, stop_token_ids=())
    held = counts.held()
    assert held["once"] == {"target": {3: 1}}
    assert held["writings"] == [{"have": 4, "full": 8, "passes": {"target": {1: 4}}}]


def test_a_round_is_a_draft_and_a_verification_of_the_block(counts):
    target, dspark = small_models()
    rounds = len(generate(target, dspark, PROMPT, max_new_tokens=7, stop_token_ids=()).rounds)
    held = counts.held()
    assert held["once"] == {"target": {3: 1}}
    assert held["writings"] == [{"have": 6, "full": 6, "passes": {"dspark": {2: rounds}, "target": {3: rounds}}}], "a limit of the lesson's own"


def test_other_models_and_what_writes_no_answer_are_not_grown(counts):
    target, dspark = small_models()
    other, _ = small_models("tiny-target")
    generate(other, None, PROMPT, max_new_tokens=5, stop_token_ids=())
    _, cache = target.prefill(PROMPT)
    target.verify(PROMPT[:, :2], cache)
    target.last_hidden(PROMPT.repeat(2, 1), (0,))
    assert counts.held() == {"once": {"target": {3: 1, 2: 1, 6: 1}}, "writings": [], "trained": []}


def test_the_engines_rounds_are_shared_by_its_answers(counts):
    target, dspark = small_models()
    engine = Engine(target, dspark, slots=2, capacity=32, stop_token_ids=())
    for _ in range(2):
        engine.submit(Request(PROMPT, max_new_tokens=5))
    steps = 0
    while not engine.idle:
        engine.step()
        steps += 1
    (writing,) = counts.held()["writings"]
    assert counts.held()["once"] == {"target": {6: 1}} and (writing["have"], writing["full"]) == (8, 16)
    assert writing["passes"] == {"dspark": {4: steps}, "target": {6: steps}}, "two equal requests end together"


def test_answers_of_transformers_are_passes_over_all_rows(counts):
    target, _ = small_models()
    target.tokenizer = Padded()
    target.model.generation_config.eos_token_id = None
    written = answers.write_answers(target, [[1, 0], [0, 1]], 0.0, 5, seed=0)
    assert [len(answer) for answer in written] == [5, 5]
    held = counts.held()
    assert {role: +Counter(passes) for role, passes in held["once"].items()} == {"target": {4: 1}}
    (writing,) = held["writings"]
    assert +Counter(writing["passes"]["target"]) == {2: 4} and (writing["have"], writing["full"]) == (4, 8)


class Padded:
    """As much of a tokenizer as prompts of one length need."""

    pad_token_id = 0

    def pad(self, prompts, return_tensors):
        """The prompts as tensors."""
        return Tensors(input_ids=torch.tensor(prompts["input_ids"]))


class Tensors(dict):
    """Tensors by name, which are where they are."""

    def to(self, device):
        """Themselves."""
        return self


# Scaling and price ---------------------------------------------------------------------------------------------------

COUNTS = {"once": {"target": {"3": 2}},
          "writings": [{"have": 4, "full": 10, "passes": {"target": {"8": 4}, "dspark": {"7": 4}}},
                       {"have": 5, "full": 5, "passes": {"target": {"8": 1}}}, {"have": 0, "full": 0, "passes": {"target": {"1": 3}}}],
          "trained": ["lesson-released"]}


@pytest.fixture
def round_numbers(monkeypatch):
    """A T4 of round numbers: a pass of the target reads for 10 ms, one of a draft launches 100 operations."""
    works = {"target": Work(3.2e9, 0, 0), "dspark": Work(0, 0, 100)}
    monkeypatch.setattr(predict_t4, "pass_work", lambda role, tokens: works[role])
    monkeypatch.setattr(predict_t4, "update_seconds", {"lesson-released": 7.25}.__getitem__)


def test_passes_that_write_grow_with_their_answers():
    assert predict_t4.full_passes(COUNTS) == {"target": {3: 2, 8: 4 * 2.5 + 1, 1: 3}, "dspark": {7: 10}}


def test_seconds_are_of_models_training_and_all_else(round_numbers):
    found = predict_t4.predict(COUNTS, cpu_seconds=28.2)
    assert found["passes"] == {"dspark": {"passes": 10, "tokens": 70}, "target": {"passes": 16, "tokens": 97}}
    assert found["seconds"] == {"models": pytest.approx(16 * 0.01 + 10 * 0.001, abs=0.05), "training": 7.2, "all else": 28.2}
    assert predict_t4.model_seconds({"target": Counter({8: 15.5}), "dspark": Counter({7: 5})}) == pytest.approx(15.5 * 0.010 + 5 * 0.001)


def test_a_round_costs_what_lesson_08_predicts():
    """Draft and verification, priced pass by pass, are its predicted round."""
    for role, passes, drafted in (("dspark", 1, 7), ("dflash", 1, 7), ("eagle3", 7, 1), ("small_lm", 7, 1)):
        priced = 1e3 * predict_t4.model_seconds({"target": {8: 1}, role: {drafted: passes}})
        assert priced == pytest.approx(predict_t4.roofline.predict("T4", role).round, abs=0.07), "launches per pass are rounded"
    assert 1e3 * predict_t4.model_seconds({"target": {1: 2}}) == pytest.approx(2 * predict_t4.roofline.predict("T4").plain)


def test_a_long_pass_is_bound_by_its_operations():
    long, short = (predict_t4.pass_work("target", tokens) for tokens in (1000, 1))
    assert long.operations == 1000 * short.operations and long.bytes == short.bytes and long.launches == short.launches
    assert long.bound(predict_t4.roofline.DEVICES["T4"]) == pytest.approx(1e3 * long.operations / 65e12)


def test_the_released_training_has_a_price():
    assert 1 < predict_t4.update_seconds("lesson-released") < 3600


# What readers see ----------------------------------------------------------------------------------------------------


@pytest.fixture
def times(tmp_path, monkeypatch):
    """Puts made times in the place of the recorded ones: seconds of the one lesson by device, None for a file without it."""
    monkeypatch.setattr(notebooks, "MEASURED", tmp_path / "lessons.json")
    monkeypatch.setattr(notebooks, "PREDICTED", tmp_path / "predicted.json")

    def put(predicted=..., **measured):
        notebooks.MEASURED.write_text(json.dumps({device: {"seconds": {LESSON: spent}} for device, spent in measured.items()}))
        if predicted is not ...:
            notebooks.PREDICTED.write_text(json.dumps({"seconds": {} if predicted is None else {LESSON: predicted}}))

    return put


@pytest.mark.parametrize(("given", "line"), [
    ({"cpu": 90.0}, "*Time: CPU 2 min.*"),
    ({"cpu": 90.0, "predicted": 310.0}, "*Time: CPU 2 min, T4 6 min (predicted, without download).*"),
    ({"cpu": 30.0, "predicted": 50.0}, "*Time: CPU under 1 min, T4 under 1 min (predicted, without download).*"),
    ({"cpu": 90.0, "predicted": None}, "*Time: CPU 2 min, T4 not predicted.*"),
    ({"cpu": 90.0, "t4": 100.0, "predicted": 310.0}, "*Time: CPU 2 min, T4 2 min.*"),
    ({"predicted": 310.0}, "*Time: CPU not measured yet, T4 6 min (predicted, without download).*")])
def test_the_header_tells_predicted_times_from_measured_ones(times, given, line):
    times(**given)
    (source,) = notebooks.lesson_sources(LESSON[:2])
    assert notebooks.generate(source, solutions=False).cells[0].source.endswith("\n\n" + line)


@pytest.mark.parametrize(("given", "columns", "cells"), [
    ({"cpu": 90.0}, "| CPU |", "| 2 min |"),
    ({"cpu": 90.0, "predicted": 310.0}, "| CPU | T4, predicted |", "| 2 min | 6 min |"),
    ({"cpu": 90.0, "predicted": None}, "| CPU | T4, predicted |", "| 2 min | not predicted |"),
    ({"cpu": 90.0, "t4": 100.0, "predicted": 310.0}, "| CPU | T4 |", "| 2 min | 2 min |")])
def test_the_table_tells_predicted_times_from_measured_ones(times, given, columns, cells):
    times(**given)
    lines = readme.lessons().splitlines()
    assert lines[0] == "| | lesson | " + columns and lines[2].endswith(cells) and lines[1].count("---") == lines[0].count("|") - 1
    assert (lines[-1] == readme.PREDICTION) == ("T4, predicted" in columns)
    assert "without the download" in readme.PREDICTION and "not measured" in readme.PREDICTION


def test_a_lesson_is_added_to_the_file_and_replaced_in_it(tmp_path, monkeypatch, round_numbers):
    monkeypatch.setattr(predict_t4, "PREDICTED", tmp_path / "predicted.json")
    for lesson, spent in (("01_b", 10.0), ("00_a", 20.0), ("01_b", 30.0)):
        predict_t4.keep(lesson, predict_t4.predict({"once": {}, "writings": [], "trained": []}, spent))
    held = json.loads(predict_t4.PREDICTED.read_text())
    assert held["seconds"] == {"00_a": 20.0, "01_b": 30.0} and list(held["lessons"]) == ["00_a", "01_b"]
    assert held["device"] == "T4, predicted" and {"assumes", "versions", "commit"} <= held.keys()


def test_a_lesson_without_cpu_time_is_not_predicted(times, monkeypatch):
    times(cpu=90.0)
    monkeypatch.setattr(predict_t4, "write_released", lambda folder, tokenizer: {})
    (source,) = notebooks.lesson_sources("01")
    assert predict_t4.predict_lessons([source]) == ["01_why_decoding_is_slow: its CPU time is not measured (`make record`), so it is not predicted."]
    assert not notebooks.PREDICTED.exists()
