"""What the measurements of a GPU rest on: forced rounds, the speed of updates."""

import pytest
import torch

from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.losslessness.toys import toy_models
from tools.gpu import gpu
from tools.gpu import training_speed as training
from tools.gpu.forced_engine import measure_engine


def full(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")


def test_the_forced_engine_accepts_the_pattern_at_every_load_and_stops_where_memory_ends(
    monkeypatch,
):
    target, drafters = toy_models(vocab_size=11, gamma=4)
    ways = {"plain": None, "dspark": drafters["dspark"]}
    plain, anchors, whole = measure_engine(target, ways, [3], loads=(2,), prompt=5, steps=3)
    assert [row["length"] for row in (plain, anchors, whole)] == [0, 0, 4]
    assert (
        (plain["verified"], plain["committed"])
        == (2, 2)
        == (anchors["verified"], anchors["committed"])
    )
    # Two requests, each with a block of five tokens, of which three drafts and one more token are committed.
    assert (whole["verified"], whole["committed"]) == (10, 8)
    assert (
        whole["tokens_per_second"] == pytest.approx(8 / sum(whole["seconds"].values()))
        and whole["peak_bytes"] is None
    )

    monkeypatch.setattr(target.model, "forward", full)
    (row,) = measure_engine(target, {"plain": None}, [3], loads=(1, 2), prompt=5, steps=1)
    assert row["concurrency"] == 1 and "does not fit beside" in row["reason"]


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-eagle3", "tiny-mtp"])
def test_the_speed_of_a_training_is_that_of_whole_updates(name, monkeypatch):
    recipe = load_recipe(name)
    layers = {
        "target_layer_ids": [2] if name == "tiny-mtp" else [0],
        "mask_token_id": 10,
        "num_anchors": 3,
    }
    recipe = {**recipe, "precision": "float32", "config": {**recipe["config"], **layers}}
    target, _ = toy_models(vocab_size=11, gamma=4)
    found = training.training_speed(recipe, target, rows=2, tokens=12, updates=3)
    assert len(found["seconds"]) == 3
    assert found["batches_per_second"] == pytest.approx(
        found["updates_per_second"] * 2 / recipe["batch"]
    )

    monkeypatch.setattr(training, "update", full)
    sentence = (
        f"the memory does not hold an update of {name} on 2 x 12 tokens .CUDA out of memory.."
    )
    with pytest.raises(DSparkLiteError, match=sentence):
        training.training_speed(recipe, target, rows=2, tokens=12)


def test_without_a_gpu_the_full_run_is_refused_in_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "there is no GPU" in capsys.readouterr().err
