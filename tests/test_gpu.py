"""The script that measures on a GPU, tried out on a CPU: every part runs, and what does not fit is
a sentence in the file."""

import json

import pytest
import torch

from tools import gpu

CPU = torch.device("cpu")


def full(*_, **__):
    raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")


def test_without_a_gpu_the_full_run_is_refused_in_a_sentence(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu.main([]) == 2
    assert "there is no GPU" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-eagle3"])
def test_whole_updates_are_timed_and_one_that_memory_does_not_hold_has_a_reason(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(gpu, "WORK", tmp_path)
    monkeypatch.setattr(gpu, "UPDATES", 2)
    row = gpu.update_row(gpu.SMALL, CPU, name, 2, 12)
    assert len(row["seconds"]) == 2 and min(row["seconds"]) > 0 and row["peak_bytes"] is None
    assert not list(tmp_path.rglob("*.safetensors")), "nothing is saved: it was only timed"
    monkeypatch.setattr(gpu, "train_draft", full)
    shape = {"recipe": name, "rows": 2, "tokens": 12}
    assert gpu.update_row(gpu.SMALL, CPU, name, 2, 12) == {
        **shape,
        "reason": "CUDA out of memory.",
    }


def test_a_part_that_fails_leaves_a_reason_and_the_others_are_measured(tmp_path, monkeypatch):
    def lesson(size, device):
        full()

    monkeypatch.setattr(gpu, "PARTS", (lesson, lambda size, device: {"measured": True}))
    path = tmp_path / "found.json"
    assert gpu.measure(gpu.SMALL, CPU, path) == ["lesson: CUDA out of memory."]
    found = json.loads(path.read_text())
    assert found["lesson"] == {"reason": "CUDA out of memory."}
    assert found["<lambda>"] == {"measured": True} and found["device"]


@pytest.mark.slow(reason="decodes, plays forced rounds and trains on narrow models")
def test_every_part_runs_on_narrow_models(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu, "WORK", tmp_path)
    assert gpu.main(["--small"]) == 0
    found = json.loads((tmp_path / "small.json").read_text())
    speeds = {row["drafter"] for row in found["decoding"]["eager"]["rows"]}
    assert speeds == {"plain", "dspark"}
    lesson = found["lesson"]["bfloat16"]
    assert {row["drafter"] for row in lesson["phases"] if "drafter" in row} == {"plain", "dspark"}
    assert lesson["passes"].keys() == {"1", "8"} and "not measured" in lesson["acceptance"]
    assert [len(row["seconds"]) for row in found["training"]] == [gpu.UPDATES, gpu.UPDATES]
