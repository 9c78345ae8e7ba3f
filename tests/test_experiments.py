"""The script of the experiments goes on where it was stopped, and refuses what an earlier recipe gave."""

import json

import experiments
import pytest
import torch
from made_measurements import latency, measurement

from dspark_lite.common.files import write_json
from dspark_course.making.recipes import load_recipe


def no_training(recipe, out):
    """Stands for the training, which none of these tests may need."""
    pytest.fail(f"{load_recipe(recipe)['name']} was trained again")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A root with two finished measurements and nothing else."""
    monkeypatch.setattr(experiments, "ROOT", tmp_path)
    monkeypatch.setattr(experiments, "WORK", tmp_path / "build" / "experiments")
    monkeypatch.setattr(experiments, "BUILD", tmp_path / "build" / "training")
    monkeypatch.setattr(experiments, "MEASUREMENTS", tmp_path / "assets")
    monkeypatch.setattr(experiments, "MEASURED_RECIPES", ("tiny-dflash", "tiny-dspark"))
    monkeypatch.setattr(experiments, "train", no_training)
    monkeypatch.setattr(experiments, "round_latency", lambda lab: latency({}))
    monkeypatch.setattr(experiments.Speed, "measured", lambda device, precision: experiments.Speed(1e11, 1e11, 1e10, "as told"))
    for recipe in experiments.MEASURED_RECIPES:
        write_json(experiments.WORK / f"{recipe}.json", measurement(recipe, 0.8))
    return tmp_path


def test_what_was_measured_is_not_measured_again(work):
    assert experiments.main([]) == 0
    for recipe in experiments.MEASURED_RECIPES:
        kept = (work / "assets" / f"{recipe}.json").read_bytes()
        assert kept == (experiments.WORK / f"{recipe}.json").read_bytes()
    assert json.loads((work / "assets" / "round_latency.json").read_text())["batch"] == 2


def test_one_recipe_does_not_time_rounds(work):
    assert experiments.main(["tiny-dspark"]) == 0
    assert [path.name for path in (work / "assets").iterdir()] == ["tiny-dspark.json"]


def test_a_measurement_of_an_earlier_recipe_is_refused(work, capsys):
    path = experiments.WORK / "tiny-dspark.json"
    stale = json.loads(path.read_text())
    stale["recipe"]["epochs"] += 1
    write_json(path, stale)
    assert experiments.main(["tiny-dspark"]) == 2
    said = capsys.readouterr().err
    assert "tiny-dspark.json was measured before recipes/tiny-dspark.json was changed" in said
    assert not (work / "assets").exists()


def test_an_unknown_recipe_is_one_sentence(work, capsys):
    assert experiments.main(["tiny-nothing"]) == 2
    assert "there is no recipe 'tiny-nothing'" in capsys.readouterr().err


def test_what_is_to_come_is_said_before_anything_starts(work, capsys):
    (experiments.WORK / "tiny-dflash.json").unlink()
    assert experiments.main(["--estimate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].startswith("tiny-dflash ") and "here" in lines[0] and "one T4, predicted" in lines[0]
    assert lines[1].startswith("1 of 2 recipes to go") and not (work / "assets").exists()


def test_twice_the_prompts_take_twice_as_long_to_measure_and_a_faster_device_trains_faster():
    recipe, device = load_recipe("tiny-dspark"), torch.device("cpu")
    slow, fast = (experiments.Speed(rate, rate, 1e10, "") for rate in (1e10, 2e10))
    training, measuring = experiments.experiment_seconds(recipe, 10, slow, device)
    sooner, longer = experiments.experiment_seconds(recipe, 20, fast, device)
    assert longer == pytest.approx(2 * measuring) and sooner == pytest.approx(training / 2)
    assert experiments.experiment_seconds(load_recipe("tiny-small-lm"), 10, slow, device)[0] > 0
