"""What `setup` may be told of device, number format and memory, and the sentence where memory ends in the middle of a lesson."""

import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest
import torch
from torch.cuda._utils import _get_device_index

from dspark_lite.common import supported
from dspark_lite.common.errors import DSparkLiteError, RequestError
from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.course.measure import lab
from dspark_lite.course.measure.lab import cap_memory, setup
from dspark_lite.decoding import Generation, generate
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import EMBEDDED
from dspark_lite.training.devices import precision_on

GPU = torch.device("cuda")


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (
            "4.57.1",
            'transformers 4.57.1 is too old: 5.0 or newer is needed; run `pip install --upgrade "transformers>=5.0"` and restart, or on Colab ',
        ),
        (None, "transformers is missing: 5.0 or newer is needed; run "),
    ],
)
def test_a_library_that_is_too_old_or_missing_is_a_sentence(monkeypatch, found, sentence):
    def version(name):
        if name != "transformers":
            return "99.0"
        if found is None:
            raise PackageNotFoundError(name)
        return found

    monkeypatch.setattr(supported, "version", version)
    with pytest.raises(DSparkLiteError, match=re.escape(sentence)):
        supported.check_versions()


def test_the_sentence_comes_before_the_old_library_is_imported():
    """Whatever part of the package is imported first."""
    code = (
        "import importlib.metadata, sys; importlib.metadata.version = lambda name: '1.0'\n"
        "try:\n    import dspark_lite.decoding.rounds\n"
        "except Exception as error:\n    print(type(error).__name__, error, 'torch' in sys.modules)"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert said.startswith("DSparkLiteError torch 1.0 is too old") and said.endswith(" False\n")


def test_a_local_or_early_build_of_the_oldest_version_is_no_older(monkeypatch):
    monkeypatch.setattr(supported, "version", lambda name: f"{supported.OLDEST[name]}.0rc1+cpu")
    supported.check_versions()


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ({"device": "tpu"}, "the device is 'tpu'; it must be cpu or cuda$"),
        ({"device": "mps"}, "is 'mps'; .* on a Mac it is \"cpu\""),
        ({"dtype": "int8"}, "the number format is 'int8'; it must be one of"),
        ({"memory_gb": "much"}, "the memory cap is 'much' GB; it must be a number above 0"),
        ({"memory_gb": -1.0}, "memory cap is -1.0 GB"),
        ({"memory_gb": 0}, "memory cap is 0 GB"),
        ({"memory_gb": [8]}, r"memory cap is \[8\] GB"),
        *(
            ({"seed": seed}, "the seed is .*; it must be a whole number")
            for seed in (None, 2.5, "3", -1, 2**63)
        ),
        *(
            (
                {"prompts": count},
                f"prompts is {count}; it must be a whole number of prompts a domain, 1 or more",
            )
            for count in (None, 0, -1, 2.5)
        ),
    ],
)
def test_an_option_that_makes_no_sense_is_refused(option, sentence):
    with pytest.raises(RequestError, match=sentence):
        setup("tiny", **{"prompts": 1, **option})


def test_a_lab_takes_names_folders_texts_and_ids_and_tells_what_is_none():
    lab = setup("tiny", prompts=1)
    assert fingerprint(lab.drafter(EMBEDDED / "tiny-dspark")) == fingerprint(lab.drafter("dspark"))
    for attempt, sentence in (
        (lambda: lab.drafter(None), "takes a name, a folder or a Hub id .*, not a NoneType"),
        (lambda: lab.drafter(lab.drafter("dspark")), "not a DSpark"),
        (lambda: lab.encode(None), "text, not a NoneType"),
        (lambda: lab.encode(["Hi"]), "text, not a list"),
        (lambda: lab.decode(Generation([5])), "not this Generation"),
        (lambda: lab.decode("Hi"), "not this str"),
        (lambda: lab.decode([-1]), "not this list"),
        (lambda: lab.decode({"ids": [5]}), "not this dict"),
    ):
        with pytest.raises(RequestError, match=sentence):
            attempt()


def test_the_environment_says_what_a_notebook_does_not(monkeypatch):
    asked = {}

    def load(name, *, device, dtype):
        asked.update(device=device, dtype=dtype)
        return SimpleNamespace(tokenizer=object(), device=device, stop_token_ids=(), name=name)

    monkeypatch.setattr(lab, "load_target", load)
    monkeypatch.setattr(lab, "named_device", torch.device)  # there may be no GPU here
    for name in ("PROFILE", "DEVICE", "DTYPE", "MEMORY_GB"):
        monkeypatch.setenv(f"DSPARK_{name}", "")  # set to nothing is not set
    assert lab.choose_profile() == "tiny" or torch.cuda.is_available()
    setup("tiny", prompts=1)
    assert asked == {"device": torch.device("cpu"), "dtype": None}
    monkeypatch.setenv("DSPARK_DTYPE", "float16")
    monkeypatch.setenv("DSPARK_DEVICE", "cuda")
    setup("tiny", prompts=1)
    assert asked == {"device": GPU, "dtype": torch.float16}
    setup("tiny", prompts=1, device="cpu", dtype="float32")
    assert asked == {"device": torch.device("cpu"), "dtype": torch.float32}
    monkeypatch.setenv("DSPARK_MEMORY_GB", "none")
    with pytest.raises(RequestError, match="the memory cap is 'none' GB"):
        setup("tiny", prompts=1)


def test_a_cap_is_a_share_of_what_the_gpu_has(monkeypatch):
    shares = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda _: SimpleNamespace(total_memory=40 * 10**9)
    )
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(
        torch.cuda,
        "set_per_process_memory_fraction",
        lambda share, device: _get_device_index(device) == 0 and shares.append(share),
    )
    assert [cap_memory(GPU, gigabytes) for gigabytes in (10, "15", None, 80, "inf")] == [
        10 * 10**9,
        15 * 10**9,
        40 * 10**9,
        40 * 10**9,
        40 * 10**9,
    ]
    assert shares == [0.25, 0.375, 1.0, 1.0, 1.0] and cap_memory(torch.device("cpu"), 15) is None


def test_too_little_memory_in_the_middle_of_a_lesson_is_a_sentence(monkeypatch):
    target, _ = toy_models()

    def full(**_):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr(target.model, "forward", full)
    with pytest.raises(
        DSparkLiteError,
        match="over 3 tokens does not fit beside what the GPU's memory holds; take a shorter prompt",
    ) as told:
        target.prefill(torch.tensor([[1, 2, 3]]))
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("part", "work"),
    [
        ("begin", "the context of dspark"),
        ("propose", "a block of dspark"),
        ("extend", "the context of dspark"),
    ],
)
def test_too_little_memory_for_the_drafter_is_a_sentence(monkeypatch, part, work):
    lab = setup("tiny", prompts=1)
    drafter = lab.drafter("dspark")

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr(drafter, part, full)
    with pytest.raises(
        DSparkLiteError,
        match=f"{work}.* does not fit beside what the GPU's memory holds; take a shorter prompt",
    ):
        generate(lab.target, drafter, lab.encode(lab.prompts["math"][0]), max_new_tokens=8)


def test_training_does_not_emulate_bfloat16_on_a_gpu_below_8(monkeypatch):
    for capability, wanted in (((7, 5), "float16"), ((8, 0), "bfloat16")):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_, found=capability: found)
        precision_on.cache_clear()
        assert precision_on(GPU, "bfloat16") == wanted and precision_on(GPU, "float32") == "float32"
    precision_on.cache_clear()
