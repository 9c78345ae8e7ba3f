"""On the stand-in device: an update of every drafter in mixed precision (tests/test_stand_in_device.py)."""

import json

import pytest
import torch
from helpers import DRAFT
from stand_in_device import CARD

from dspark_lite.decoding import generate
from dspark_lite.decoding.target import Target
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, save_draft
from dspark_lite.training import drafts
from dspark_lite.training.cache import OnlineFeatures, build_cache
from dspark_lite.training.loop import trainable

VOCAB = 13
ROWS = [(torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(length)).tolist(), 3)
        for length in (12, 9, 14, 10)]
BLOCK = {**DRAFT["config"], "mask_token_id": VOCAB - 1}
CONFIGS = {"dspark": BLOCK, "dspark, gated": {**BLOCK, "markov_head_type": "gated"},
           "dspark, rnn": {**BLOCK, "markov_head_type": "rnn"},
           "dflash": {**BLOCK, "markov_rank": 0, "enable_confidence_head": False},
           "eagle3": {"drafter": "eagle3", "num_hidden_layers": 1, "target_layer_ids": [0, 1], "ttt_length": 3},
           "mtp": {"drafter": "mtp", "num_hidden_layers": 1, "target_layer_ids": [2]}}


def recipe_of(name, precision):
    """Two updates of a drafter, by AdamW and by Muon."""
    return {"name": "mini", "kind": "draft", "seed": 1, "epochs": 1, "batch": 2, "learning_rate": 0.01,
            "matrix_rate": 0.01, "precision": precision, "config": CONFIGS[name], "loss": DRAFT["loss"]}


def trained(device, recipe, folder):
    """The drafter and its log."""
    target = Target(toy_models(seed=2, vocab_size=VOCAB)[0].model.to(device))
    features = OnlineFeatures(target, ROWS, recipe["config"]["target_layer_ids"])
    drafter = drafts.train_draft(recipe, target, features, folder)
    return target, drafter, [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_updates_are_those_of_the_cpu_to_the_precision_of_their_products(name, precision, tmp_path, monkeypatch):
    monkeypatch.setattr(drafts, "precision_on", lambda device, asked: asked)
    recipe = recipe_of(name, precision)
    target, drafter, log = trained(CARD, recipe, tmp_path / "card")
    _, wanted, wanted_log = trained("cpu", recipe, tmp_path / "cpu")
    assert len(log) == len(wanted_log) == 2
    for found, right in zip(log, wanted_log, strict=True):
        assert found == pytest.approx(right, rel=0.02, abs=0.02)
    moved = trainable(drafter)
    assert {parameter.device.type for parameter in drafter.parameters()} == {CARD}
    assert moved.keys() == trainable(wanted).keys()
    for key, parameter in moved.items():
        assert parameter.dtype == torch.float32 and parameter.isfinite().all()
        torch.testing.assert_close(parameter.detach().cpu(), trainable(wanted)[key].detach(), atol=0.03, rtol=0.05)
    # What was trained is saved, is loaded where its target is, and drafts there.
    save_draft(tmp_path / "draft", drafter, target)
    prompt, saved = torch.tensor([ROWS[0][0]], device=CARD), load_drafter(str(tmp_path / "draft"), target)
    answer = generate(target, saved, prompt, max_new_tokens=6, stop_token_ids=())
    assert len(answer.token_ids) == 6


def test_a_stopped_training_goes_on_with_what_it_saved(tmp_path):
    recipe = recipe_of("dspark", "float16")
    _, once, _ = trained(CARD, recipe, tmp_path / "training")
    _, again, log = trained(CARD, recipe, tmp_path / "training")  # finished: it is read from its save
    assert len(log) == 2
    for name, parameter in trainable(once).items():
        assert torch.equal(parameter, trainable(again)[name])


def test_the_target_cache_holds_what_the_cpu_computes(tmp_path):
    rows = []
    for device in ("cpu", CARD):
        target = Target(toy_models(seed=2, vocab_size=VOCAB)[0].model.to(device))
        rows.append(build_cache(target, ROWS, (0, 1), tmp_path / device).batch([0, 2], device))
    assert all(torch.equal(on_cpu, on_card.cpu()) for on_cpu, on_card in zip(*rows, strict=True))
