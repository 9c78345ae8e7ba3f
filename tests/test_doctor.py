"""`doctor` with and without a GPU, with and without a cache: what it finds, and what fits."""

import json
import shutil
from collections import namedtuple

import pytest
import torch

from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError
from dspark_lite.course import formats
from dspark_lite.course.data import estimate
from dspark_lite.course.measure import doctor, shapes
from dspark_lite.course.measure.lab import MIN_FREE_MEMORY
from dspark_lite.models import hub
from dspark_lite.models.checkpoints import load_target
from helpers import DRAFT, recipe_of
from tools.hub_server import Hub

WEIGHTS = "model.safetensors"
GIB = 2**30
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def offline(tmp_path, monkeypatch):
    """No network, an empty cache, no profile asked for."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    monkeypatch.delenv("DSPARK_PROFILE")


@pytest.fixture
def served(pair, tmp_path):
    """The Hub of this process with something under each released id: the pair's target, or its draft."""
    models = {}
    for role, name in shapes.RELEASED_MODELS.items():
        models[name] = {"main": tmp_path / role}
        shutil.copytree(
            pair / ("target" if shapes.is_language_model(role) else "draft"), tmp_path / role
        )
        (tmp_path / role / "pytorch_model.bin").write_bytes(b"never fetched, never counted")
    with Hub(models) as found, found.used_here(tmp_path / "home"):
        yield found


def gpu(monkeypatch, free):
    """Makes torch see a T4 with so many bytes free; it says, as a T4 does, that it knows bfloat16."""
    for function, answer in {
        "is_available": True,
        "get_device_capability": (7, 5),
        "mem_get_info": (int(free), int(14.7 * GIB)),
        "get_device_name": "Tesla T4",
        "is_bf16_supported": True,
    }.items():
        monkeypatch.setattr(torch.cuda, function, lambda *_, answer=answer, **__: answer)


def model(found, role):
    """The row of a model."""
    return next(row for row in found["models"] if row["role"] == role)


# Without a network, without a GPU


def test_offline_and_without_a_gpu_it_answers_from_what_is_known(offline, tmp_path, capsys):
    assert main(["doctor", "--json", str(tmp_path / "found.json")]) == 0
    out, found = capsys.readouterr().out, json.loads((tmp_path / "found.json").read_text())
    assert found["device"]["free_bytes"] is None and found["dtype"]["name"] == "float32"
    assert (
        found["profile"] == {"name": "tiny", "why": "there is no GPU"}
        and "profile: tiny (there is no GPU)" in out
    )
    assert {"python", "torch", "transformers", "huggingface_hub", "ipywidgets"} <= found[
        "versions"
    ].keys()
    assert [row["name"] for row in found["models"]] == list(shapes.RELEASED_MODELS.values())
    assert not any(row["cached"] for row in found["models"])
    assert model(found, "dspark")["file_bytes"] == 2 * 1393133569
    assert model(found, "small_lm")["file_bytes"] == 1503300328
    alone = model(found, "target")["together_bytes"]
    assert alone < model(found, "dspark")["together_bytes"] < alone + 2e9
    assert {row["fits"] for row in found["models"]} == {None} and all(
        row["fits_t4"] for row in found["models"]
    )
    missing = formats.size(sum(map(shapes.file_bytes, shapes.RELEASED_MODELS)))
    assert "no GPU" in out and f"to download: {missing}" in out
    assert out.count("\n") == 7 + len(found["models"]), "it fits on a screen"
    assert not (tmp_path / "home").exists()


def test_a_missing_library_is_named(offline, monkeypatch):
    monkeypatch.setattr(doctor, "LIBRARIES", ("ipywidgets", "no-such-library"))
    assert doctor.all_versions()["no-such-library"] == "not installed"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("released", "profile: released (DSPARK_PROFILE says so)"),
        (
            "huge",
            "DSPARK_PROFILE is set, but the profile is 'huge'; it must be one of tiny, released",
        ),
    ],
)
def test_a_profile_asked_for_is_told_and_a_wrong_one_is_no_failure(
    offline, monkeypatch, capsys, asked, words
):
    monkeypatch.setenv("DSPARK_PROFILE", asked)
    assert main(["doctor"]) == 0
    assert words in capsys.readouterr().out


def test_a_disk_without_room_is_told(offline, monkeypatch, capsys):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(20e9, 10e9, 10e9))
    assert main(["doctor"]) == 0
    assert "the disk has no room for it: set HF_HOME" in capsys.readouterr().out


# GPUs


def test_a_t4_gets_float16_and_the_released_profile(offline, monkeypatch, capsys):
    gpu(monkeypatch, free=14.6 * GIB)
    found = doctor.examine()
    assert found["dtype"]["name"] == "float16" and "is_bf16_supported" in found["dtype"]["why"]
    assert found["profile"] == {"name": "released", "why": "the GPU has at least 14 GiB free"}
    assert all(row["fits"] and row["fits_t4"] for row in found["models"])
    assert (
        "device: Tesla T4, compute capability 7.5, 15.7 GB of 15.8 GB free"
        in doctor.machine_report(found)
    )


def test_a_gpu_that_is_taken_gets_the_tiny_profile_and_does_not_hold_the_pair(offline, monkeypatch):
    gpu(monkeypatch, free=9 * GIB)
    found = doctor.examine()
    assert (
        found["profile"] == {"name": "tiny", "why": "the GPU has less than 14 GiB free"}
        and 9 * GIB < MIN_FREE_MEMORY
    )
    assert (
        model(found, "target")["fits"]
        and not model(found, "dspark")["fits"]
        and model(found, "dspark")["fits_t4"]
    )
    assert "does not fit" in "\n".join(doctor.machine_report(found))


# With a Hub


def test_a_model_that_is_not_whole_is_not_called_cached(served, tmp_path, monkeypatch):
    name = shapes.RELEASED_MODELS["target"]
    hub.fetch(name, ["config.json"])
    assert not doctor.is_cached(name)
    load_target(name)
    assert doctor.is_cached(name)
    blob = next((tmp_path / "home").rglob(WEIGHTS)).resolve()
    blob.write_bytes(blob.read_bytes()[:100])
    assert not doctor.is_cached(name)


def test_what_the_cache_holds_is_not_to_be_downloaded(offline, monkeypatch):
    monkeypatch.setattr(doctor, "is_cached", lambda name: True)
    assert "to download: 0 bytes" in "\n".join(doctor.machine_report(doctor.examine()))


# One way to the Hub


def test_an_estimate_fetches_a_config_and_nothing_else_and_leaves_no_half_checkpoint(
    served, monkeypatch
):
    from huggingface_hub import constants

    name = shapes.RELEASED_MODELS["target"]
    assert estimate.target_config(recipe_of(DRAFT, target=name))["hidden_size"] == 16
    assert served.sent() == ["config.json"]
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert estimate.target_config(recipe_of(DRAFT, target=name))["hidden_size"] == 16
    with pytest.raises(
        CheckpointError, match="HF_HUB_OFFLINE is set and the cache does not hold it whole"
    ):
        load_target(name)
    with pytest.raises(
        CheckpointError,
        match="'org/nobody' is no folder here and could not be fetched .*, or give the recipe a .target_config",
    ):
        estimate.target_config(recipe_of(DRAFT, target="org/nobody"))
