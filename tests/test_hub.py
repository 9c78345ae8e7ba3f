"""Loading from a Hub on loopback by the real client: what is fetched, what survives a bad network, and one sentence for the rest."""

import os
import re
import shutil
import sys
import time
from contextlib import contextmanager

import pytest

from dspark_lite import setup
from dspark_lite.course.names import PROFILES
from dspark_lite.decoding import generate
from dspark_lite.models import hub as hub_client
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, load_target
from helpers import assert_refused, greedy, set_tensors, shard
from tools.hub_server import Hub

TARGET, DRAFT = PROFILES["released"]["target"], PROFILES["released"]["dspark"]
WEIGHTS = "model.safetensors"
NEEDED = ["config.json", "generation_config.json", WEIGHTS]


@pytest.fixture
def hub(pair, tmp_path):
    """The Hub of this process; it holds copies of the pair under released ids, the draft at "v2" with other weights."""
    for name in ("target", "draft"):
        shutil.copytree(pair / name, tmp_path / name)
    shutil.copytree(tmp_path / "draft", tmp_path / "draft-v2")
    set_tensors(
        tmp_path / "draft-v2", lambda tensors: {name: value * 2 for name, value in tensors.items()}
    )
    revisions = {
        "main": tmp_path / "draft",
        "v2": tmp_path / "draft-v2",
        "refs/pr/1": tmp_path / "draft-v2",
    }
    with (
        Hub({TARGET: {"main": tmp_path / "target"}, DRAFT: revisions}) as served,
        served.used_here(tmp_path / "home"),
    ):
        yield served


@pytest.fixture
def impatient(monkeypatch):
    """Lets the client wait a fiftieth of the seconds that it would wait before it tries again."""
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(seconds / 50))


def folder(hub, model=TARGET, revision="main"):
    """The folder that a model of the Hub is served from, for a test to change."""
    return hub.models[model][revision]


# What is fetched


def test_a_pair_loads_by_its_ids_and_writes_what_the_folders_write(hub, target):
    fetched = load_target(TARGET)
    assert greedy(fetched) == greedy(target)
    assert greedy(fetched, load_drafter(DRAFT, fetched)) == greedy(target)
    assert fetched.name == TARGET


def test_a_pinned_revision_is_the_one_that_loads(hub, target):
    weights = {
        name: load_drafter(DRAFT + name, target).fc.weight
        for name in (
            "",
            "@main",
            "@v2",
            "@refs/pr/1",
            "@" + hub.commit(DRAFT, "main"),
            "@" + hub.commit(DRAFT, "v2"),
        )
    }
    first = weights.pop("")
    doubled = {name for name, value in weights.items() if value.equal(first * 2)}
    assert doubled == {"@v2", "@refs/pr/1", "@" + hub.commit(DRAFT, "v2")}
    assert all(weights[name].equal(first) for name in weights.keys() - doubled)


def test_only_what_is_read_is_fetched_and_only_once(hub):
    for name in (
        "pytorch_model.bin",
        "training_args.bin",
        "modeling.py",
        "tokenizer.py",
        "tokenizer.pkl",
        "optimizer.safetensors",
        "original/model.safetensors",
        "README.md",
    ):
        path = folder(hub) / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"never fetched")
    load_target(TARGET)
    assert sorted(hub.sent()) == NEEDED
    hub.requests.clear()
    load_target(TARGET)
    assert hub.sent() == [] and all(
        request.path.startswith("/api/models/") for request in hub.requests
    )


def test_sharded_checkpoints_are_fetched_shard_by_shard(hub, target):
    shard(folder(hub))
    shard(folder(hub, DRAFT))
    fetched = load_target(TARGET)
    assert greedy(fetched, load_drafter(DRAFT, fetched)) == greedy(target)
    assert {"model-1.safetensors", "model-2.safetensors", "model.safetensors.index.json"} < set(
        hub.sent()
    )


def test_weights_of_other_formats_are_refused_and_stay_where_they_are(hub):
    (folder(hub) / WEIGHTS).rename(folder(hub) / "pytorch_model.bin")
    assert_refused(
        f"'{TARGET}' has no model.safetensors on the Hub; weights of other formats are not read",
        load_target,
        TARGET,
    )
    assert sorted(hub.sent()) == NEEDED[:2]


# A bad network


def test_a_transfer_that_fails_for_good_is_told_and_the_next_call_fetches_the_rest(
    hub, target, impatient
):
    hub.cuts[WEIGHTS] = [0] * 6
    # The first call fetches small files only; they are no whole checkpoint for the second.
    for name in ("", "@main"):
        assert_refused(
            rf"'{TARGET}{name}' is no folder here and could not be fetched .*; check the network and the disk and load it again",
            load_target,
            TARGET + name,
        )
        hub.cuts[WEIGHTS] = [0] * 6
    hub.cuts.clear()
    hub.requests.clear()
    assert greedy(load_target(TARGET)) == greedy(target)
    assert hub.sent() == [WEIGHTS]


@pytest.mark.parametrize("file", [WEIGHTS, "config.json"])
def test_a_file_of_another_hash_is_never_used(hub, target, file):
    hub.spoiled.add(file)
    for _ in range(2):
        assert_refused(
            f"{file} of '{TARGET}' is not the file that the Hub lists .*; load it again",
            load_target,
            TARGET,
        )
    hub.stop()
    assert_refused("could not be fetched from the Hub", load_target, TARGET)
    hub.start()
    hub.spoiled.clear()
    hub.requests.clear()
    assert greedy(load_target(TARGET)) == greedy(target)
    assert hub.sent() == [file]


def test_a_file_that_another_program_has_fetched_is_checked_too(hub):
    from huggingface_hub import snapshot_download

    hub.spoiled.add(WEIGHTS)
    snapshot_download(TARGET)
    hub.stop()
    assert_refused(
        f"{WEIGHTS} of '{TARGET}' is not the file that the Hub lists", load_target, TARGET
    )


def test_hashes_are_computed_once_and_again_for_a_file_that_is_fetched_anew(
    hub, monkeypatch, tmp_path
):
    load_target(TARGET)
    with monkeypatch.context() as patched:
        patched.setattr(hub_client, "hashlib", None)
        load_target(TARGET)
        load_target(f"{TARGET}@{hub.commit(TARGET, 'main')}")
    next((tmp_path / "home").rglob(WEIGHTS)).resolve().unlink()
    hub.spoiled.add(WEIGHTS)
    assert_refused("is not the file that the Hub lists", load_target, TARGET)


# Answers of the Hub


ANSWERS = {
    "missing model": (
        "org/nobody",
        lambda hub: None,
        "no such model, or it is private.; check the name, or set HF_TOKEN",
    ),
    "no id": (
        "org/no body",
        lambda hub: None,
        "no name on the Hub.; a model is org/name or org/name@revision",
    ),
    "missing revision": (
        TARGET + "@v9",
        lambda hub: None,
        "no such revision.; check the branch, tag or commit after the @",
    ),
    "missing commit": (TARGET + "@" + "0" * 40, lambda hub: None, "no such revision"),
    "missing file": (
        TARGET,
        lambda hub: hub.missing.add(WEIGHTS),
        "a file that it lists is missing.; try another revision",
    ),
    "gated": (
        TARGET,
        lambda hub: hub.gated.update({TARGET: "hf_good"}),
        "it is gated.; accept its terms .* HF_TOKEN",
    ),
    "down": (
        TARGET,
        lambda hub: setattr(hub, "down", 503),
        "503 .*, and the cache does not hold it whole.; check the network",
    ),
    "hangs up": (
        TARGET,
        lambda hub: setattr(hub, "hangs_up", True),
        "could not be fetched from the Hub .*; check the network",
    ),
    "gone": (
        TARGET,
        lambda hub: hub.stop(),
        "refused, and the cache does not hold it whole.; check the network",
    ),
}


@pytest.mark.parametrize("case", ANSWERS)
def test_what_the_hub_does_not_give_is_told_in_one_sentence(hub, target, impatient, case):
    name, spoil, sentence = ANSWERS[case]
    spoil(hub)
    assert_refused(
        f"^'{re.escape(name)}' is no folder here and could not be fetched from the Hub",
        load_target,
        name,
    )
    assert_refused(sentence, load_drafter, name, target)


def test_a_model_that_is_not_there_is_told_to_whom_the_hub_knows_too(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_good")  # now the answer is 404, without a token it is 401
    assert_refused("no such model, or it is private.; check the name", load_target, "org/nobody")


def test_a_token_opens_a_gated_model_and_never_reaches_the_cdn(hub, target, monkeypatch):
    hub.gated[TARGET] = "hf_good"
    hub.expired.add("hf_old")
    monkeypatch.setenv("HF_TOKEN", "hf_other")
    assert_refused("it is gated", load_target, TARGET)
    monkeypatch.setenv("HF_TOKEN", "hf_old")
    assert_refused("the token is not accepted.; check HF_TOKEN", load_target, TARGET)
    monkeypatch.setenv("HF_TOKEN", "hf_good")
    hub.requests.clear()
    assert greedy(load_target(TARGET)) == greedy(target)
    assert {request.token for request in hub.requests if request.at == "hub"} == {"Bearer hf_good"}
    assert {request.token for request in hub.requests if request.at == "cdn"} == {None}


# Without a network


@pytest.mark.parametrize("lose", ["stop", "hangs_up", "down", "offline"])
def test_what_is_cached_loads_without_a_hub(hub, target, monkeypatch, impatient, lose):
    from huggingface_hub import constants

    load_target(TARGET)
    load_drafter(DRAFT + "@v2", target)
    hub.requests.clear()
    if lose == "stop":
        hub.stop()
    elif lose == "offline":
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    else:
        setattr(hub, lose, 503)
    fetched = load_target(TARGET)
    assert greedy(fetched, load_drafter(DRAFT + "@v2", fetched)) == greedy(target)
    assert hub.sent() == [] and (lose != "offline" or hub.requests == [])


def test_offline_what_is_not_cached_or_not_whole_is_told(hub, monkeypatch, impatient):
    from huggingface_hub import constants

    hub.cuts[WEIGHTS] = [0] * 6
    assert_refused("could not be fetched", load_target, TARGET)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for name in (TARGET, DRAFT, DRAFT + "@" + hub.commit(DRAFT, "v2")):
        assert_refused(
            rf"^'{name}' is no folder here .* \(HF_HUB_OFFLINE is set and the cache does not hold it whole.; unset",
            load_target,
            name,
        )


@contextmanager
def fresh_client(environment):
    """Has the client imported anew, which is when it reads its environment; afterwards the one before is back."""

    def imported():
        return [name for name in sys.modules if name.split(".")[0] == "huggingface_hub"]

    before = {name: sys.modules.pop(name) for name in imported()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "environ", environment)
        yield
    for name in imported():
        del sys.modules[name]
    sys.modules.update(before)


def test_hf_endpoint_hf_home_hf_token_and_hf_hub_offline_are_honoured(tmp_path):
    """The released profile with embedded checkpoints in the place of the released ones; offline it may not ask the Hub."""
    models = {TARGET: {"main": EMBEDDED / "tiny-target"}, DRAFT: {"main": EMBEDDED / "tiny-dspark"}}
    # For what transformers would ask, which is nothing.
    with Hub(models) as hub, hub.used_here(tmp_path / "elsewhere"):
        hub.gated = dict.fromkeys((TARGET, DRAFT), "hf_good")
        for others, tokens in (
            ({"HF_TOKEN": "hf_good"}, {"Bearer hf_good"}),
            ({"HF_HUB_OFFLINE": "1"}, set()),
        ):
            hub.requests.clear()
            with fresh_client(hub.environment(tmp_path / "home", **others)):
                lab = setup("released", prompts=1)
                prompt, drafter = lab.encode(lab.prompts["math"][0]), lab.drafter("dspark")
            drafted = generate(
                lab.target, drafter, prompt, max_new_tokens=12, stop_token_ids=()
            ).token_ids
            assert (
                drafted
                == generate(
                    lab.target, None, prompt, max_new_tokens=12, stop_token_ids=()
                ).token_ids
            )
            assert {request.token for request in hub.requests if request.at == "hub"} == tokens
    cached = sorted(path.name for path in (tmp_path / "home" / "hub").glob("models--*"))
    assert (
        cached == sorted("models--" + name.replace("/", "--") for name in (TARGET, DRAFT))
        and not (tmp_path / "elsewhere").exists()
    )
    # tied to the head, as that of Qwen3-4B is: one tensor for all four
    embedding = lab.target.model.get_input_embeddings().weight
    assert {drafter.embed_tokens.weight.data_ptr(), drafter.lm_head.weight.data_ptr()} == {
        embedding.data_ptr()
    }
