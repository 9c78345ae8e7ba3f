"""The measurements of a GPU, tried out on a CPU: a stopped run goes on, a part that fails is told and tried again, what is forced
is labelled, and each part measures what it says."""

import json
import subprocess
from types import SimpleNamespace

import pytest
import torch

from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.common.origin import versions
from dspark_lite.losslessness.toys import toy_models
from dspark_course.making.recipes import load_recipe
from tools.gpu import gpu as script
from tools.gpu import training_speed as training
from tools.gpu.forced_engine import measure_engine


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """Three parts that note when they are measured, run in this process; `stops` says which raise what."""
    made = SimpleNamespace(calls=[], stops={}, folder=tmp_path / "build" / "gpu" / "small")

    def part(name):
        def measure(size):
            made.calls.append(name)
            if name in made.stops:
                raise made.stops[name]
            return {"hidden_states": "none", "rows": []}
        return measure

    def run(called, cwd, timeout):
        return SimpleNamespace(returncode=script.main(called[3:]))

    monkeypatch.setattr(script, "ROOT", tmp_path)
    monkeypatch.setattr(script, "WORK", tmp_path / "build" / "gpu")
    monkeypatch.setattr(script, "PARTS", {name: part(name) for name in ("one", "two", "three")})
    processes(monkeypatch, run)
    return made


def processes(monkeypatch, run):
    """Has the script, and nobody else, start processes by `run`."""
    monkeypatch.setattr(script, "subprocess", SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired))


def held(parts):
    """{file name: what it holds} of a run."""
    return {path.name: json.loads(path.read_text()) for path in parts.folder.glob("*/*.json")}


def test_a_stopped_run_goes_on_with_the_part_it_was_at(parts, capsys):
    parts.stops = {"two": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        script.main(["--small"])
    assert list(held(parts)) == ["one.json"]
    parts.stops = {}
    assert script.main(["--small"]) == 0
    assert parts.calls == ["one", "two", "two", "three"] and "[1/3] one: kept" in capsys.readouterr().out
    for found in held(parts).values():
        assert found["device"].startswith("CPU") and found["versions"] == versions() and found["size"]["shapes"] == "tiny"
    assert script.main(["--small"]) == 0 and parts.calls[4:] == []


def test_a_part_that_fails_is_told_and_tried_again(parts, capsys):
    parts.stops = {"one": RequestError("there is no room"), "two": torch.OutOfMemoryError("CUDA out of memory.\nTried to")}
    assert script.main(["--small"]) == 1
    out = capsys.readouterr().out
    assert "one: failed (there is no room)" in out and "two: failed (CUDA out of memory.)" in out and "- three:" in out
    assert set(held(parts)) == {"one.failed.json", "two.failed.json", "three.json"}
    parts.stops = {}
    assert script.main(["--small"]) == 0
    assert parts.calls == ["one", "two", "three", "one", "two"] and set(held(parts)) == {"one.json", "two.json", "three.json"}


@pytest.mark.parametrize(("run", "reason"), [
    (lambda *_, **__: SimpleNamespace(returncode=-9), "its process ended with code -9"),
    (lambda called, cwd, timeout: (_ for _ in ()).throw(subprocess.TimeoutExpired(called, timeout)), "it took longer than 0.5 hours")])
def test_a_part_that_is_killed_or_hangs_does_not_stop_the_others(parts, monkeypatch, run, reason):
    processes(monkeypatch, run)
    monkeypatch.setattr(script, "HOURS", 0.5)
    assert script.main(["--small"]) == 1
    assert [found["reason"] for found in held(parts).values()] == [reason] * 3


def test_what_other_versions_or_another_size_gave_is_measured_anew(parts):
    assert script.main(["--small", "--only", "one"]) == 0
    (path,) = parts.folder.glob("*/one.json")
    assert script.is_done(path, script.SMALL) and not script.is_done(path, script.FULL)
    path.write_text(json.dumps({**json.loads(path.read_text()), "versions": {"torch": "1.0"}}))
    assert script.main(["--small", "--only", "one"]) == 0 and parts.calls == ["one", "one"]


def test_without_a_gpu_the_full_run_is_refused_in_a_sentence(capsys):
    assert script.main([]) == 2
    assert capsys.readouterr().err == ("there is no GPU: torch.cuda.is_available() is false; try everything out with make gpu "
                                       "ARGS=--small\n")


# What the parts measure ----------------------------------------------------------------------------------------------


def test_the_forced_engine_accepts_the_pattern_at_every_load_and_stops_where_memory_ends(monkeypatch):
    target, drafters = toy_models(vocab_size=11, gamma=4)
    plain, anchors, whole = measure_engine(target, {"plain": None, "dspark": drafters["dspark"]}, [3], loads=(2,), prompt=5, steps=3)
    assert [row["length"] for row in (plain, anchors, whole)] == [0, 0, 4]
    assert (plain["verified"], plain["committed"]) == (2, 2) == (anchors["verified"], anchors["committed"])
    assert (whole["verified"], whole["committed"]) == (10, 8), "two requests, each of a block of five of which three drafts and one more are kept"
    assert whole["tokens_per_second"] == pytest.approx(8 / sum(whole["seconds"].values())) and whole["peak_bytes"] is None

    def full(**_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(target.model, "forward", full)
    (row,) = measure_engine(target, {"plain": None}, [3], loads=(1, 2), prompt=5, steps=1)
    assert row["concurrency"] == 1 and "does not fit beside" in row["reason"]


@pytest.mark.parametrize("name", ["tiny-dspark", "tiny-eagle3", "tiny-mtp"])
def test_the_speed_of_a_training_is_that_of_whole_updates(name, monkeypatch):
    recipe = load_recipe(name)
    layers = {"target_layer_ids": [2] if name == "tiny-mtp" else [0], "mask_token_id": 10, "num_anchors": 3}
    recipe = {**recipe, "precision": "float32", "config": {**recipe["config"], **layers}}
    target, _ = toy_models(vocab_size=11, gamma=4)
    found = training.training_speed(recipe, target, rows=2, tokens=12, updates=3)
    assert len(found["seconds"]) == 3 and found["batches_per_second"] == pytest.approx(found["updates_per_second"] * 2 / recipe["batch"])

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(training, "update", full)
    with pytest.raises(DSparkLiteError, match=f"the memory does not hold an update of {name} on 2 x 12 tokens .CUDA out of memory.."):
        training.training_speed(recipe, target, rows=2, tokens=12)
