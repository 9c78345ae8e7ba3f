"""Drafts as engines load them: names, shapes and fields of each, the same drafts from our own loader, a reason for each refusal."""

import dataclasses
import json
import shlex
import shutil

import pytest
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from dspark_lite.__main__ import main
from dspark_lite.common.errors import CheckpointError, RequestError
from dspark_lite.decoding import generate
from dspark_lite.drafters import Eagle3
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, save_draft
from dspark_lite.models.export import ENGINES, ZERO_RANK, export
from helpers import set_tensors

VOCAB = 11
PROMPT = torch.tensor([[1, 2, 3, 4, 1, 2]])
KINDS = ("dspark", "dspark_gated", "dspark_rnn", "dflash", "eagle3", "mtp")


@pytest.fixture(scope="module")
def drafts(tmp_path_factory):
    """A target and the folders of its drafts, by name."""
    folder = tmp_path_factory.mktemp("drafts")
    target, drafters = toy_models(vocab_size=VOCAB, gamma=4)
    for name in KINDS:
        save_draft(folder / name, drafters[name], target)
    target.model.save_pretrained(folder / "target")
    return target, folder


def held(folder):
    """The config and the tensors of an exported folder."""
    return json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")


@pytest.mark.parametrize(
    ("name", "engine"),
    [("dspark", engine) for engine in ENGINES]
    + [("dspark_gated", "sglang"), ("dspark_rnn", "sglang")],
)
def test_a_dspark_is_handed_on_as_saved(drafts, tmp_path, name, engine):
    _, folder = drafts
    export(str(folder / name), engine, tmp_path / "out")
    config, tensors = held(tmp_path / "out")
    saved_config, saved = held(folder / name)
    assert (
        config == saved_config
        and tensors.keys() == saved.keys()
        and all(torch.equal(tensors[key], saved[key]) for key in saved)
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_a_dflash_gets_a_markov_head_that_adds_nothing(drafts, tmp_path, engine):
    target, folder = drafts
    command = export(str(folder / "dflash"), engine, tmp_path / "out")
    config, tensors = held(tmp_path / "out")
    assert (
        config["markov_rank"] == ZERO_RANK
        and config["markov_head_type"] == "vanilla"
        and config["architectures"] == ["Qwen3DSparkModel"]
    )
    for part in ("markov_w1", "markov_w2"):
        weight = tensors[f"markov_head.{part}.weight"]
        assert weight.shape == (VOCAB, ZERO_RANK) and not weight.any()
    assert "dspark" in command.lower()
    ours = load_drafter(str(folder / "dflash"), target)
    theirs = load_drafter(str(tmp_path / "out"), target)
    assert (ours.name, theirs.name) == ("dflash", "dspark")
    runs = [
        generate(
            target,
            drafter,
            PROMPT,
            max_new_tokens=20,
            temperature=1.0,
            generator=torch.Generator().manual_seed(0),
            stop_token_ids=(),
        )
        for drafter in (ours, theirs)
    ]
    assert [(r.draft_tokens, r.accepted) for r in runs[0].rounds] == [
        (r.draft_tokens, r.accepted) for r in runs[1].rounds
    ]


@pytest.mark.parametrize("name", ["it's mine", 'a "quoted" one', "Entwürfe"])
def test_the_command_of_vllm_quotes_every_folder(drafts, tmp_path, name):
    _, folder = drafts
    command = export(str(folder / "dspark"), "vllm", tmp_path / name)
    assert json.loads(shlex.split(command)[-1])["model"] == str(tmp_path / name)


def test_an_eagle3_gets_the_names_that_vllm_knows(drafts, tmp_path):
    _, folder = drafts
    command = export(str(folder / "eagle3"), "vllm", tmp_path / "out")
    config, tensors = held(tmp_path / "out")
    saved, _ = held(folder / "eagle3")
    assert config["architectures"] == ["Eagle3Qwen3ForCausalLM"] and config["model_type"] == "qwen3"
    assert config["eagle_aux_hidden_state_layer_ids"] == [
        layer + 1 for layer in saved["target_layer_ids"]
    ]
    assert config["num_aux_layers"] * config["hidden_size"] == tensors["fc.weight"].shape[1]
    assert tensors["layers.0.self_attn.q_proj.weight"].shape[1] == 2 * config["hidden_size"]
    assert {
        "layers.0.self_attn.q_norm.weight",
        "layers.0.hidden_norm.weight",
        "norm.weight",
        "lm_head.weight",
    } <= tensors.keys()
    assert '"method": "eagle3"' in command and '"num_speculative_tokens": 4' in command


def test_an_eagle3_that_taps_the_embedding_keeps_that_tap(drafts, tmp_path):
    """Layer -1 here is layer 0 there: one id for each tap that the projection reads."""
    target, folder = drafts
    config = dataclasses.replace(
        load_drafter(str(folder / "eagle3"), target).config, target_layer_ids=(-1, 1)
    )
    save_draft(tmp_path / "draft", Eagle3(config), target)
    export(str(tmp_path / "draft"), "vllm", tmp_path / "out")
    assert held(tmp_path / "out")[0]["eagle_aux_hidden_state_layer_ids"] == [0, 2]


@pytest.mark.parametrize(
    ("name", "engine", "sentence"),
    [
        (
            "dspark_gated",
            "vllm",
            "has a gated head, and vllm runs vanilla heads alone; export it for sglang",
        ),
        ("dspark_rnn", "llama.cpp", "has a rnn head, and llama.cpp runs vanilla heads alone"),
        ("eagle3", "sglang", "an Eagle3 whose attention norms queries and keys"),
        ("eagle3", "llama.cpp", "an Eagle3 whose attention"),
        ("mtp", "vllm", "is an MTP trained by this course"),
        ("target", "vllm", "needs no export: an engine loads a language model as it is"),
        ("nowhere", "vllm", "there is no checkpoint"),
    ],
)
def test_what_an_engine_cannot_run_is_refused_with_its_reason(
    drafts, tmp_path, name, engine, sentence
):
    _, folder = drafts
    with pytest.raises(CheckpointError, match=sentence) as caught:
        export(str(folder / name), engine, tmp_path / "out")
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_the_original_layout_and_strange_folders_are_refused(drafts, tmp_path):
    _, folder = drafts
    config, tensors = held(folder / "dspark")
    (tmp_path / "fill_in").mkdir()
    (tmp_path / "fill_in" / "config.json").write_text(
        json.dumps(config | {"sample_from_anchor": False})
    )
    with pytest.raises(CheckpointError, match="in the original DFlash layout"):
        export(str(tmp_path / "fill_in"), "vllm", tmp_path / "out")
    with pytest.raises(RequestError, match="no export for 'tensorrt'"):
        export(str(folder / "dspark"), "tensorrt", tmp_path / "out")
    with pytest.raises(RequestError, match="is no empty folder"):
        export(str(folder / "dspark"), "vllm", folder)


def test_the_command_prints_how_to_serve_and_writes_a_card(drafts, tmp_path, capfd):
    _, folder = drafts
    words = [
        "export",
        str(folder / "dspark"),
        "--for",
        "vllm",
        "--out",
        str(tmp_path / "out"),
        "--target",
        "org/model",
    ]
    assert main(words) == 0
    printed = capfd.readouterr().out.strip()
    assert printed.startswith("vllm serve org/model --speculative-config '")
    assert json.loads(printed.split("'")[1]) == {
        "method": "dspark",
        "model": str(tmp_path / "out"),
        "num_speculative_tokens": 4,
    }
    card = (tmp_path / "out" / "README.md").read_text()
    assert (
        card.startswith("---\nbase_model: org/model\n")
        and printed in card
        and "| `block_size` | `4` |" in card
    )
    assert main(words) == 2 and "is no empty folder" in capfd.readouterr().err


def test_a_nested_config_is_exported_flat_and_loads_again(drafts, tmp_path):
    """z-lab and DeepSpec nest the fields of a block; an engine and our loader read what is written beside the others."""
    target, folder = drafts
    shutil.copytree(folder / "dflash", tmp_path / "nested")
    config = json.loads((folder / "dflash" / "config.json").read_text())
    nested = {name: config.pop(name) for name in ("mask_token_id", "target_layer_ids")} | {
        "markov_rank": 0
    }
    (tmp_path / "nested" / "config.json").write_text(json.dumps(config | {"dflash_config": nested}))
    export(str(tmp_path / "nested"), "sglang", tmp_path / "out")
    assert held(tmp_path / "out")[0]["markov_rank"] == ZERO_RANK
    assert load_drafter(str(tmp_path / "out"), target).config.target_layer_ids == (0, 1)


def test_weights_that_do_not_fit_their_config_are_not_exported(drafts, tmp_path):
    _, folder = drafts
    shutil.copytree(folder / "dspark", tmp_path / "wrong")
    config = json.loads((folder / "dspark" / "config.json").read_text())
    (tmp_path / "wrong" / "config.json").write_text(json.dumps(config | {"markov_rank": 32}))
    for engine in ("vllm", "speculators"):
        with pytest.raises(CheckpointError, match="its config.json asks for"):
            export(str(tmp_path / "wrong"), engine, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (
            lambda weight: weight * torch.nan,
            "tensor norm.weight of .* holds numbers that are not finite",
        ),
        (lambda weight: weight / 0, "not finite in torch.bfloat16"),
        (lambda weight: weight.to(torch.int8), "holds torch.int8; a draft's weights"),
    ],
)
def test_weights_that_are_no_numbers_are_neither_loaded_nor_exported(
    drafts, tmp_path, spoil, sentence
):
    target, folder = drafts
    shutil.copytree(folder / "dspark", tmp_path / "wrong")
    set_tensors(
        tmp_path / "wrong", lambda tensors: tensors | {"norm.weight": spoil(tensors["norm.weight"])}
    )
    for attempt in (
        lambda name: export(name, "vllm", tmp_path / "out"),
        lambda name: load_drafter(name, target),
    ):
        with pytest.raises(
            CheckpointError, match=sentence.replace("bfloat16", "(bfloat16|float32)")
        ):
            attempt(str(tmp_path / "wrong"))


def test_an_export_that_breaks_off_leaves_nothing_behind(drafts, tmp_path, monkeypatch):
    _, folder = drafts

    def full(*_, **__):
        raise SafetensorError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(OSError, match="No space left on device"):
            export(str(folder / "dspark"), "vllm", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    export(str(folder / "dspark"), "vllm", tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 3


@pytest.mark.parametrize("engine", [*ENGINES, "speculators"])
def test_a_command_of_names_with_spaces_has_as_many_words(drafts, tmp_path, engine):
    _, folder = drafts
    plain, spaced = (
        shlex.split(export(str(folder / "dspark"), engine, tmp_path / name, target))
        for name, target in (("out", "target"), ("out two", "a target"))
    )
    assert len(plain) == len(spaced) and ("a target" in spaced or engine == "speculators")
