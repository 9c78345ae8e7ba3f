"""The script of the experiments goes on where it was stopped, and refuses what an earlier recipe gave."""

import json

import experiments
import pytest
from made_measurements import latency, measurement

from dspark_lite.common.files import write_json
from dspark_course.making.recipes import load_recipe
from dspark_course.measure.studies import Run

RUNS = [Run("next-dflash"), Run("next-dflash", {"seed": 2})]


def no_training(recipe, **options):
    """Stands for the training, which none of these tests may need."""
    pytest.fail(f"{recipe} was trained again")


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A root with two finished measurements and nothing else."""
    monkeypatch.setattr(experiments, "ROOT", tmp_path)
    monkeypatch.setattr(experiments, "WORK", tmp_path / "build" / "experiments")
    monkeypatch.setattr(experiments, "BUILD", tmp_path / "build" / "training")
    monkeypatch.setattr(experiments, "MEASUREMENTS", tmp_path / "assets")
    monkeypatch.setattr(experiments, "next_runs", lambda: RUNS)
    monkeypatch.setattr(experiments, "train", no_training)
    monkeypatch.setattr(experiments, "setup", lambda profile, **options: None)
    monkeypatch.setattr(experiments, "round_latency", lambda lab: latency({}))
    for run in RUNS:
        recipe = load_recipe(*run)
        write_json(experiments.WORK / f"{recipe['name']}.json", {**measurement("deep-dflash", 0.8), "recipe": recipe})
    return tmp_path


def test_what_was_measured_is_not_measured_again(work):
    assert experiments.main([]) == 0
    for name in ("next-dflash", "next-dflash+seed=2"):
        assert (work / "assets" / f"{name}.json").read_bytes() == (experiments.WORK / f"{name}.json").read_bytes()
    assert json.loads((work / "assets" / "round_latency.json").read_text())["batch"] == 2


def test_one_recipe_with_a_change_does_not_time_rounds(work):
    assert experiments.main(["next-dflash", "--set", "seed=2"]) == 0
    assert [path.name for path in (work / "assets").iterdir()] == ["next-dflash+seed=2.json"]


def test_a_measurement_of_an_earlier_recipe_is_refused(work, capsys):
    path = experiments.WORK / "next-dflash.json"
    stale = json.loads(path.read_text())
    stale["recipe"]["epochs"] += 1
    write_json(path, stale)
    assert experiments.main(["next-dflash"]) == 2
    said = capsys.readouterr().err
    assert "next-dflash.json was measured before recipes/next-dflash.json was changed" in said
    assert not (work / "assets").exists()


@pytest.mark.parametrize(("arguments", "sentence"), [(["next-nothing"], "there is no recipe 'next-nothing'"),
                                                     (["--set", "seed=2"], "--set is given without a recipe")])
def test_wrong_input_is_one_sentence(work, capsys, arguments, sentence):
    assert experiments.main(arguments) == 2
    assert sentence in capsys.readouterr().err


def test_an_estimate_says_what_is_left_and_starts_nothing(work, capsys, monkeypatch):
    monkeypatch.setattr(experiments.Speed, "measured", lambda device, precision: experiments.Speed(1e11, 1e11, 1e10, "as told"))
    monkeypatch.setattr(experiments, "target_config", lambda recipe: load_recipe(recipe["target"])["config"])
    (experiments.WORK / "next-dflash.json").unlink()
    assert experiments.main(["--estimate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 and lines[0].startswith("next-dflash: about ") and lines[1].startswith("1 of 2 trainings to go")
    assert not (work / "assets").exists()
