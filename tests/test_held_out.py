"""Answers that are held out: what is judged by them is never learned from, and every rate is judged alike."""

import pytest
import torch

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.losslessness.toys import toy_models
from dspark_course.making import recipes
from dspark_lite.training.cache import build_cache
from dspark_lite.training.drafts import Rows, held_out_losses, train_draft

VOCAB, ANSWERS = 12, 14
RECIPE = {"name": "held-out", "kind": "draft", "seed": 1, "epochs": 3, "batch": 4, "learning_rate": 0.01, "precision": "float32",
          "target": "toy", "data": {"held_out": 3},
          "config": {"num_hidden_layers": 1, "block_size": 3, "mask_token_id": VOCAB - 1, "target_layer_ids": [0, 1], "num_anchors": 512,
                     "markov_rank": 4, "markov_head_type": "vanilla", "enable_confidence_head": True, "confidence_head_with_markov": True},
          "loss": {"cross_entropy": 0.1, "l1": 0.9, "confidence": 1.0}}


@pytest.fixture(scope="module")
def target():
    """A toy target."""
    return toy_models(vocab_size=VOCAB, seed=3)[0]


@pytest.fixture(scope="module")
def cache(target, tmp_path_factory):
    """Random texts with the target's hidden states."""
    generator = torch.Generator().manual_seed(0)
    rows = [(torch.randint(VOCAB, (8 + index % 4,), generator=generator).tolist(), 2) for index in range(ANSWERS)]
    return build_cache(target, rows, (0, 1), tmp_path_factory.mktemp("cache"))


def test_what_is_held_out_is_never_learned_from(cache):
    rows = Rows(RECIPE, cache)
    learned = {index for batch in rows.batches for index in batch}
    assert learned == set(range(ANSWERS - 3)) and list(rows.held_out) == [11, 12, 13]
    assert sum(len(batch) for batch in rows.batches) == 3 * len(learned)
    assert sum(len(batch.ids) for batch in rows.held_out_batches()) == 3


def test_blocks_start_at_every_anchor_a_row_has_where_the_recipe_asks_for_more(cache):
    batch = Rows(RECIPE, cache).at(0)
    # Supervised and followed by a supervised token: all of an answer but its last.
    assert batch.valid.sum(1).tolist() == (batch.supervised.sum(1) - 1).tolist()
    few = Rows({**RECIPE, "config": {**RECIPE["config"], "num_anchors": 2}}, cache).at(0)
    assert few.anchors.shape[1] == 2


def test_the_share_that_is_done_rises_from_nothing_to_nearly_all(cache):
    rows = Rows({**RECIPE, "steps": 5}, cache)
    assert len(rows.batches) == 5
    assert [rows.at(step).progress[0].item() for step in range(5)] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert rows.held_out_batches()[0].progress.eq(1).all()


def test_the_losses_are_those_of_all_rows_held_out_at_once(target, cache, tmp_path):
    recipe = {**RECIPE, "steps": 2}
    drafter = train_draft(recipe, target, cache, tmp_path)
    one_by_one, at_once = (held_out_losses(drafter, {**recipe, "batch": size}, cache) for size in (1, 3))
    assert one_by_one == pytest.approx(at_once, rel=1e-5)
    assert at_once["loss"] == pytest.approx(0.1 * at_once["cross_entropy"] + 0.9 * at_once["l1"] + at_once["confidence"])


def test_nothing_left_to_learn_from_is_one_sentence(cache):
    with pytest.raises(DSparkLiteError, match="holds out 14 of 14 answers"):
        Rows({**RECIPE, "data": {"held_out": ANSWERS}}, cache)


def test_a_search_trains_each_rate_once_and_gives_its_loss(target, cache, tmp_path, monkeypatch):
    trained = []
    monkeypatch.setattr(recipes, "load_recipe", lambda name: RECIPE)
    monkeypatch.setattr(recipes, "load_target", lambda *args, **options: target)
    monkeypatch.setattr(recipes, "recipe_states", lambda *args: cache)
    monkeypatch.setattr(recipes, "train_draft", lambda recipe, *rest: trained.append(recipe["matrix_rate"]) or train_draft(recipe, *rest))
    losses = recipes.search("held-out", [0.001, 0.05], 3, device="cpu", build=tmp_path)
    assert list(losses) == trained == [0.001, 0.05] and losses[0.001] != losses[0.05]
    assert recipes.search("held-out", [0.05, 0.001, 0.02], 3, device="cpu", build=tmp_path)[0.05] == losses[0.05]
    assert trained == [0.001, 0.05, 0.02]


def test_a_search_needs_answers_to_judge_by(monkeypatch):
    monkeypatch.setattr(recipes, "load_recipe", lambda name: {**RECIPE, "data": {}})
    with pytest.raises(DSparkLiteError, match="holds no answers out"):
        recipes.search("held-out", [0.01], 3)
