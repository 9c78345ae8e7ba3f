"""Answers that are held out: what is judged by them is never learned from, and every rate is judged alike; passes and ends."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course.data import recipes
from dspark_lite.drafters import DSpark
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.training import blocks, train as training
from dspark_lite.training.cache import build_cache
from dspark_lite.training.plan import Allowance, Plan
from dspark_lite.training.train import (
    TrainingRows,
    held_out_losses,
    read_log,
    train_draft,
)
from helpers import recipe_of

VOCAB, ANSWERS = 12, 14
FIELDS = {
    "name": "held-out",
    "kind": "draft",
    "seed": 1,
    "epochs": 3,
    "batch": 4,
    "learning_rate": 0.01,
    "precision": "float32",
    "target": "toy",
    "data": {"prompts": 14, "seed": 1, "max_new_tokens": 10, "held_out": 3},
    "config": {
        "num_hidden_layers": 1,
        "block_size": 3,
        "mask_token_id": VOCAB - 1,
        "target_layer_ids": [0, 1],
        "num_anchors": 512,
        "markov_rank": 4,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    },
    "loss": {"cross_entropy": 0.1, "l1": 0.9, "confidence": 1.0},
}
RECIPE = recipe_of(FIELDS)


@pytest.fixture(scope="module")
def target():
    """A toy target."""
    return toy_models(vocab_size=VOCAB, seed=3)[0]


@pytest.fixture(scope="module")
def cache(target, tmp_path_factory):
    """Random texts with the target's hidden states."""
    generator = torch.Generator().manual_seed(0)
    rows = [
        (torch.randint(VOCAB, (8 + index % 4,), generator=generator).tolist(), 2)
        for index in range(ANSWERS)
    ]
    return build_cache(target, rows, (0, 1), tmp_path_factory.mktemp("cache"))


def test_what_is_held_out_is_never_learned_from(cache):
    rows = TrainingRows(RECIPE, cache)
    learned = {index for batch in rows.batches for index in batch}
    assert learned == set(range(ANSWERS - 3)) and list(rows.held_out) == [11, 12, 13]
    assert sum(len(batch) for batch in rows.batches) == 3 * len(learned)
    assert sum(len(batch.ids) for batch in rows.held_out_batches()) == 3


def test_blocks_start_at_every_anchor_a_row_has_where_the_recipe_asks_for_more(cache):
    batch = TrainingRows(RECIPE, cache).at(0)
    # Supervised and followed by a supervised token: all of an answer but its last.
    assert batch.valid.sum(1).tolist() == (batch.supervised.sum(1) - 1).tolist()
    few = TrainingRows(recipe_of(FIELDS, config={"num_anchors": 2}), cache).at(0)
    assert few.anchors.shape[1] == 2


def test_every_epoch_has_other_minibatches_and_every_update_other_anchors(cache):
    rows = TrainingRows(recipe_of(FIELDS, config={"num_anchors": 2}), cache)
    of_an_epoch = len(rows.batches) // 3
    sets = [
        {frozenset(batch) for batch in rows.batches[start : start + of_an_epoch]}
        for start in range(0, 3 * of_an_epoch, of_an_epoch)
    ]
    assert (
        all(frozenset.union(*of_one) == set(range(ANSWERS - 3)) for of_one in sets)
        and len(set(map(frozenset, sets))) == 3
    )
    rows.batches = [rows.batches[0]] * 8  # the very same rows
    drawn = [rows.at(step).anchors.tolist() for step in range(8)]
    assert len({str(anchors) for anchors in drawn}) > 4 and rows.at(3).anchors.tolist() == drawn[3]


def test_another_seed_shares_no_epoch(cache):
    first, second = (
        {
            str(TrainingRows(replace(RECIPE, seed=seed, epochs=1), cache).batches)
            for seed in range(start, start + 5)
        }
        for start in (1, 6)
    )
    assert len(first) == len(second) == 5
    assert str(TrainingRows(replace(RECIPE, seed=2, epochs=1), cache).batches) != str(
        TrainingRows(replace(RECIPE, epochs=2), cache).batches[3:]
    )


def test_a_training_with_patience_ends_where_a_further_pass_brings_too_little(
    target, cache, tmp_path, capsys
):
    """Measured after each pass with the rates down; a stopped one goes on; the best is returned."""
    recipe = replace(RECIPE, epochs=4, patience=0.02)
    drafter = train_draft(recipe, target, cache, tmp_path / "run")
    passes = [
        found["loss"]
        for found in json.loads((tmp_path / "run" / "held_out.json").read_text())["passes"]
    ]
    gains = [1 - after / before for before, after in zip(passes, passes[1:])]
    assert (
        2 <= len(passes) <= 4
        and all(gain >= 0.02 for gain in gains[:-1])
        and (len(passes) == 4 or gains[-1] < 0.02)
    )
    assert held_out_losses(drafter, recipe, cache)["loss"] == pytest.approx(min(passes), rel=1e-6)
    for name in ("trunk", "pass_1"):
        (tmp_path / "run" / name / "progress.safetensors").unlink()
    again = train_draft(recipe, target, cache, tmp_path / "run")
    for ours, theirs in zip(again.state_dict().values(), drafter.state_dict().values()):
        assert ours.equal(theirs)
    once = train_draft(replace(recipe, epochs=1), target, cache, tmp_path / "once")
    assert held_out_losses(once, recipe, cache)["loss"] == pytest.approx(passes[0], rel=1e-6), (
        "a branch is a training of so many passes"
    )


def test_a_training_that_could_not_be_judged_or_ended_is_one_sentence(
    target, cache, tmp_path, monkeypatch
):
    def refused(sentence, run, *arguments):
        with pytest.raises(DSparkLiteError, match=sentence):
            run(*arguments)

    patient, rest = replace(RECIPE, patience=0.02), (target, cache, tmp_path)
    none, all_of_them = (replace(RECIPE.data, held_out=count) for count in (0, ANSWERS))
    refused(
        "has a patience and holds no answers out", train_draft, replace(patient, data=none), *rest
    )
    refused(
        "has a patience, which cannot be combined",
        train_draft,
        replace(patient, steps=3),
        *rest,
    )
    refused(
        "has a patience, which cannot be combined",
        train_draft,
        patient,
        *rest,
        Allowance(tmp_path / "seconds.json", 60),
    )
    # what cannot end is refused before anything is loaded
    monkeypatch.setattr(recipes, "load_target", None)
    refused(
        "has a patience, which cannot be combined",
        lambda: recipes.train("tiny-dspark", minutes=1, build=tmp_path, out=tmp_path),
    )
    refused("matrix_rate is -1.0; it must be", recipes.search, "tiny-dspark", [-1.0], 3)
    refused("has a field .* that is not known", recipes.search, "tiny-target", [0.01], 3)
    refused("holds out 14 of 14 answers", TrainingRows, replace(RECIPE, data=all_of_them), cache)
    monkeypatch.setattr(recipes, "load_recipe", lambda name, changes: replace(RECIPE, data=none))
    refused("holds no answers out", recipes.search, "held-out", [0.01], 3)


def test_a_changed_recipe_target_or_class_trains_anew_and_says_so(target, cache, tmp_path, capsys):
    class Other(DSpark):
        """The same weights, and something else done with them."""

    first = train_draft(RECIPE, target, cache, tmp_path)
    assert (
        train_draft(RECIPE, target, cache, tmp_path).fc.weight.equal(first.fc.weight)
        and capsys.readouterr().out == ""
    )
    steps = len(read_log(tmp_path / "log.jsonl"))
    recipe = replace(RECIPE, learning_rate=0.02, steps=3)
    changed = train_draft(recipe, target, cache, tmp_path)
    assert (
        "belong to another recipe or target and are deleted; training starts from the beginning"
        in capsys.readouterr().out
    )
    assert len(read_log(tmp_path / "log.jsonl")) == 3 < steps
    fresh = train_draft(recipe, target, cache, tmp_path / "fresh")
    assert all(ours.equal(theirs) for ours, theirs in zip(changed.parameters(), fresh.parameters()))
    other = toy_models(vocab_size=VOCAB, seed=4)[0]
    train_draft(recipe, other, cache, tmp_path)
    assert "starts from the beginning" in capsys.readouterr().out
    assert (
        isinstance(train_draft(recipe, other, cache, tmp_path, kind=Other), Other)
        and "starts from the beginning" in capsys.readouterr().out
    )


@pytest.mark.parametrize(("updates", "seconds"), [(12, 1e9), (4, 300.0), (3, 101.0), (2, 1.0)])
def test_the_last_update_has_all_losses_and_low_rates_however_little_time_there_is(
    target, cache, tmp_path, monkeypatch, updates, seconds
):
    """Each update takes 100 seconds here, and the last is begun when the time is over; 40 % of it are the answers'."""
    now, seen = [0.0], []
    allowance = Allowance(tmp_path / "seconds.json", seconds / 0.6, clock=lambda: now[0])
    now[0] = 0.4 * seconds / 0.6
    factors, clip = blocks.loss_factors, torch.nn.utils.clip_grad_norm_
    monkeypatch.setattr(
        blocks, "loss_factors", lambda *given: seen.append(factors(*given)) or seen[-1]
    )
    monkeypatch.setattr(
        torch.nn.utils,
        "clip_grad_norm_",
        lambda *given: now.__setitem__(0, now[0] + 100) or clip(*given),
    )
    recipe = recipe_of(FIELDS, epochs=4, loss={"cross_entropy_first": 0.5})
    train_draft(recipe, target, cache, tmp_path, allowance)
    assert len(seen) == updates and seen[-1] == FIELDS["loss"]
    assert seen[0] == {"cross_entropy": 1.0, "l1": 0.0, "confidence": 0.0}
    train_draft(recipe, target, cache, tmp_path, allowance)
    assert len(seen) == updates, "nothing is left to do"


def test_the_losses_are_those_of_all_rows_held_out_at_once(target, cache, tmp_path):
    recipe = replace(RECIPE, steps=2)
    drafter = train_draft(recipe, target, cache, tmp_path)
    one_by_one, at_once = (
        held_out_losses(drafter, replace(recipe, batch=size), cache) for size in (1, 3)
    )
    assert one_by_one == pytest.approx(at_once, rel=1e-5)
    assert at_once["loss"] == pytest.approx(
        0.1 * at_once["cross_entropy"] + 0.9 * at_once["l1"] + at_once["confidence"]
    )


def test_held_out_answers_without_two_supervised_tokens_are_one_sentence(cache, monkeypatch):
    drafter = SimpleNamespace(embed_tokens=torch.nn.Embedding(2, 2))
    nothing = lambda *given: (torch.zeros(()), torch.zeros(()), {})  # noqa: E731
    monkeypatch.setattr(training, "class_and_loss", lambda recipe: (DSpark, nothing))
    with pytest.raises(DSparkLiteError, match="no held-out answer has two supervised tokens"):
        held_out_losses(drafter, RECIPE, cache)


def test_a_search_trains_each_rate_once_and_gives_its_loss(target, cache, tmp_path, monkeypatch):
    trained, changed = [], [0.01]
    monkeypatch.setattr(
        recipes,
        "load_recipe",
        lambda name, changes: recipe_of(FIELDS, learning_rate=changed[0], **(changes or {})),
    )
    monkeypatch.setattr(recipes, "load_target", lambda *args, **options: target)
    monkeypatch.setattr(recipes, "recipe_states", lambda *args: cache)
    monkeypatch.setattr(
        recipes,
        "train_draft",
        lambda recipe, *rest: trained.append(recipe.matrix_rate) or train_draft(recipe, *rest),
    )
    losses = recipes.search("held-out", [0.001, 0.05], 3, device="cpu", build=tmp_path)
    assert list(losses) == trained == [0.001, 0.05] and losses[0.001] != losses[0.05]
    assert (
        recipes.search("held-out", [0.05, 0.001, 0.02], 3, device="cpu", build=tmp_path)[0.05]
        == losses[0.05]
    )
    assert trained == [0.001, 0.05, 0.02]
    changed[0] = 0.02
    recipes.search("held-out", [0.05], 3, device="cpu", build=tmp_path)
    assert trained == [0.001, 0.05, 0.02, 0.05], "a changed recipe is searched anew"


def test_a_search_loads_the_target_where_it_trains(monkeypatch):
    asked = {}

    def load_target(name, **options):
        asked.update(options)
        raise KeyboardInterrupt

    monkeypatch.setattr(recipes, "load_recipe", lambda name, changes: RECIPE)
    monkeypatch.setattr(recipes, "load_target", load_target)
    monkeypatch.setattr(recipes, "training_device", lambda device: torch.device(device or "cuda"))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (8, 0))
    with pytest.raises(KeyboardInterrupt):
        recipes.search("held-out", [0.01], 5)
    assert asked == {"device": torch.device("cuda"), "dtype": torch.bfloat16}


def test_patience_keeps_the_best_pass_and_not_the_last(tmp_path):
    losses, continued_from = iter([1.0, 0.9, 0.95]), []

    def learn(plan, place):
        place.mkdir(exist_ok=True)
        for name in ("progress.safetensors", "log.jsonl"):
            (place / name).write_text("")
        continued_from.append(place.name)

    rows = SimpleNamespace(recipe=SimpleNamespace(epochs=4, patience=0.02), updates_a_pass=8)
    training._train_passes(learn, Plan(8, 1e-3), rows, tmp_path, lambda: {"loss": next(losses)})
    assert continued_from[-1] == "pass_2"
