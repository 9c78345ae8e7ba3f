"""The released profile: lessons 09, 11 and 12 measure the lab's own drafter beside the recorded ones, and keep what they measured."""

import json

import pytest
from released_hub import RELEASED
from released_lessons import hub, run_lesson  # noqa: F401

CONFIDENCE = {"calibration.json", "steps.json", "sts.json", "sps.json"}
KEPT = {"09": CONFIDENCE, "11": CONFIDENCE | {"serving.json"}, "12": {"evaluate-dspark.json"}}
MEASURED = ("calibration.json", "steps.json", "serving.json", "evaluate-dspark.json")


@pytest.mark.parametrize("number", KEPT)
def test_a_lesson_runs_on_the_released_profile(hub, number, tmp_path):  # noqa: F811
    printed = run_lesson(hub, number, tmp_path)
    assert number == "11" or f"{RELEASED['target']} on CPU (1 thread)" in printed  # where it is a legend's
    (folder,) = (tmp_path / "measurements").iterdir()
    assert folder.name == "qwen3-4b-cpu-1-thread" and {path.name for path in folder.glob("*.json")} == KEPT[number]
    for name in KEPT[number] & set(MEASURED):
        held = json.loads((folder / name).read_text())
        assert held["target"] == RELEASED["target"] and held["device"] == "CPU (1 thread)" and held["versions"] and held["made_of"]["draft"]
