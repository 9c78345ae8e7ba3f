"""Experiments on reasons: a told name is drafted, refusals are counted where they fell, and what came out is read right."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dspark_lite.decoding import Round
from dspark_lite.losslessness.toys import toy_models
from dspark_course.measure import causes
from dspark_course.replication import experiments, recorded_serving
from dspark_lite.scheduling.calibration import Observations


class Words:
    """A lab whose tokenizer splits at blanks and underscores."""

    vocabulary = ["```python\ndef", "get", "_report"]

    def tokenizer(self, text, add_special_tokens):
        return {"input_ids": [self.vocabulary.index(word) for word in text.replace("_", " _").split(" ")]}


def test_the_chain_is_def_and_the_name():
    assert causes.name_chain(Words(), "Give me a Python function get_report that returns") == [0, 1, 2]


def test_a_told_head_draws_the_name_and_forgets_it_afterwards():
    _, drafters = toy_models(vocab_size=11, gamma=4)
    drafter = drafters["dspark"]
    hidden, anchor = torch.zeros(1, 4, drafter.config.hidden_size), torch.tensor([3])
    before = drafter.draw_block(hidden, anchor, 0.0, None)[0].tolist()
    with causes.told(drafter, [3, 7, 5]):
        assert drafter.draw_block(hidden, anchor, 0.0, None)[0][0, :2].tolist() == [7, 5]
    assert drafter.draw_block(hidden, anchor, 0.0, None)[0].tolist() == before and "step" not in vars(drafter.markov_head)


def test_refusals_are_counted_where_they_fell():
    answer = SimpleNamespace(token_ids=[9, 0, 1, 2, 8, 8, 8, 8], rounds=[Round(3, 1, 2), Round(3, 0, 1), Round(3, 2, 3), Round(3, 3, 1)])
    # Of the first round the second draft, of the second the first fell on the name; the last round was cut by the end.
    assert causes.refusals(answer, [0, 1, 2]) == (2, 3)


def test_greedy_decoding_is_observed_on_the_first_prompts_of_each_domain(monkeypatch):
    """Each domain's first prompts, at temperature 0; what was said of them by prompt."""
    asked = []

    def observe(lab, drafter, texts, *, temperature, **_):
        asked.append((texts, temperature))
        return Observations(np.array([[0.12345, 1.0]]), np.array([1]), np.array([0]))

    monkeypatch.setattr("dspark_course.measure.confidence.observe", observe)
    lab = SimpleNamespace(prompts={"math": list("abc"), "chat": list("de")}, drafter=lambda name: name)
    found = causes.unlike_training(lab, 2)
    assert asked == [(["a", "b"], 0.0), (["d", "e"], 0.0)]
    assert found["chat"] == {"logits": [[0.123, 1.0]], "accepted": [1], "prompts": [0]}


def test_costs_of_a_step_are_found_again(monkeypatch):
    requests, tokens = np.array([1.0, 4.0, 16.0]), np.arange(1.0, 5.0)
    seconds = 0.02 + 0.003 * requests[:, None] + 0.0005 * requests[:, None] * tokens
    costs = SimpleNamespace(requests=requests, tokens_per_request=tokens, step_seconds=seconds)
    monkeypatch.setattr(recorded_serving, "engine_costs", lambda drafter, world: costs)
    assert experiments.additive_step() == pytest.approx([0.02, 0.003, 0.0005])


def test_every_experiment_says_what_was_varied_and_what_came_out():
    """On the committed measurements."""
    table = [entry for entry in [*vars(experiments).values(), *experiments.NAME_TOLD.values()] if isinstance(entry, experiments.Varied)]
    assert len(table) > 15
    for entry in table:
        assert all(re.search(r"\d", value) for value in entry.found().values())
        assert entry() == f"{entry.what}: " + "; ".join(f"{condition} {value}" for condition, value in entry.found().items())
    assert experiments.several(*table[:2])() == f"{table[0]()}. {table[1]()}"


def test_excess_and_overhead_are_by_position_and_by_context():
    assert experiments.greedy_excesses().shape == (7,) and list(experiments.overheads_by_context()) == [256, 512, 1024]
