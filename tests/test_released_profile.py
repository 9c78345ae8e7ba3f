"""The released profile from end to end: a Hub on loopback, the real client, and lessons 00 to 03. Lessons 04 to 12 stand in
files of their own, so that workers share them."""

import json

import pytest
from released_hub import MANIFEST, RELEASED
from released_lessons import hub, run_lesson  # noqa: F401


def test_the_small_shapes_have_the_released_files_and_fields(hub):  # noqa: F811
    for name in RELEASED.values():
        folder = hub.models[name]["main"]
        config = json.loads((folder / "config.json").read_text())
        if name in MANIFEST:
            assert MANIFEST[name]["config"].keys() <= config.keys()
            assert config["architectures"] == MANIFEST[name]["config"]["architectures"]
        else:
            assert (folder / "tokenizer.json").exists() and (folder / "merges.txt").exists() and config["architectures"] == ["Qwen3ForCausalLM"]
    target = hub.models[RELEASED["target"]]["main"]
    assert len(list(target.glob("model-*.safetensors"))) > 1 and (target / "model.safetensors.index.json").exists()


@pytest.mark.parametrize("number", ["00", "01", "03"])  # 02 needs no large model
def test_a_lesson_runs_on_the_released_profile(hub, number, tmp_path):  # noqa: F811
    run_lesson(hub, number, tmp_path)
