"""The script of the experiments goes on where it was stopped, and refuses what an earlier recipe gave."""

import json

import pytest

from dspark_lite.common.files import write_json
from dspark_lite.course.data import estimate
from dspark_lite.course.measure.studies import Run
from made_measurements import latency, measurement
from tools.measure import experiments

RUNS = {"tiny-dflash": Run("tiny-dflash"), "tiny-dflash-seed-2": Run("tiny-dflash", {"seed": 2})}


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
    monkeypatch.setattr(experiments, "RUNS", RUNS)
    monkeypatch.setattr(experiments, "train", no_training)
    monkeypatch.setattr(experiments, "setup", lambda profile, **options: None)
    monkeypatch.setattr(experiments, "round_latency", lambda lab: latency({}))
    for name in RUNS:
        write_json(experiments.WORK / f"{name}.json", measurement(name, 0.8))
    return tmp_path


def test_what_was_measured_is_not_measured_again(work):
    assert experiments.main([]) == 0
    for name in RUNS:
        assert (work / "assets" / f"{name}.json").read_bytes() == (
            experiments.WORK / f"{name}.json"
        ).read_bytes()
    assert json.loads((work / "assets" / "round_latency.json").read_text())["batch"] == 2


def test_one_run_does_not_time_rounds(work):
    assert experiments.main(["tiny-dflash-seed-2"]) == 0
    assert [path.name for path in (work / "assets").iterdir()] == ["tiny-dflash-seed-2.json"]


def test_a_measurement_of_an_earlier_recipe_is_refused(work, capsys):
    path = experiments.WORK / "tiny-dflash-seed-2.json"
    stale = json.loads(path.read_text())
    stale["recipe"]["epochs"] += 1
    write_json(path, stale)
    assert experiments.main(["tiny-dflash-seed-2"]) == 2
    said = capsys.readouterr().err
    assert (
        "tiny-dflash-seed-2.json was measured before assets/recipes/tiny-dflash.json was changed"
        in said
    )
    assert all(
        f"{folder}/tiny-dflash" in said
        for folder in ("build/experiments/checkpoints", "build/training")
    )
    assert not (work / "assets").exists()


def test_a_run_that_is_none_is_refused(work, capsys):
    assert (
        experiments.main(["tiny-nothing"]) == 2
        and "there is no run tiny-nothing" in capsys.readouterr().err
    )


def test_a_drafter_that_others_begin_from_is_measured_before_them(work, monkeypatch):
    measured = []
    longer = Run(
        "tiny-dflash",
        {"initial": "build/experiments/checkpoints/tiny-dflash", "config.block_size": 15},
    )
    monkeypatch.setattr(experiments, "RUNS", {"longer": longer, **RUNS})
    monkeypatch.setattr(experiments, "finished", lambda name: measured.append(name) or {"rows": []})
    assert experiments.main([]) == 0
    assert measured == [*RUNS, "longer"]


def test_an_estimate_says_what_is_left_and_starts_nothing(work, capsys, monkeypatch):
    for speed in ("operations_a_second", "bytes_a_second"):
        monkeypatch.setattr(estimate, speed, lambda *_: 1e11)
    (experiments.WORK / "tiny-dflash.json").unlink()
    assert experiments.main(["--estimate"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert (
        len(lines) == 2
        and lines[0].startswith("tiny-dflash: about ")
        and lines[1].startswith("1 of 2 trainings to go")
    )
    assert not (work / "assets").exists()
