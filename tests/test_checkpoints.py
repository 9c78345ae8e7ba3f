"""Loading: what fits loads and is the same model; what does not is told in one sentence. (From a Hub: test_hub.py.)"""

import json
import re
import shutil
import warnings
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models import checkpoints, draft_weights
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, load_target
from dspark_lite.models.weights import target_weights
from dspark_lite.training.drafts import new_draft
from dspark_lite.training.recipe import DraftRecipe, DraftShape
from helpers import (
    GAMMA,
    PROMPT,
    VOCAB,
    assert_refused,
    cut_short,
    greedy,
    set_config,
    set_tensors,
    shard,
)

# What fits


def test_a_saved_draft_loads_as_the_same_model_in_the_released_format(pair, target):
    original = toy_models(vocab_size=VOCAB, gamma=GAMMA)[1]["dspark"]
    original.embed_tokens.weight.copy_(target.model.get_input_embeddings().weight)
    loaded = load_drafter(str(pair / "draft"), target)
    assert loaded.config == original.config and (loaded.name, loaded.gamma, loaded.taps) == (
        "dspark",
        GAMMA,
        (0, 1),
    )
    for name, value in original.state_dict().items():
        assert loaded.state_dict()[name].equal(value.bfloat16().float()), name
    config = json.loads((pair / "draft" / "config.json").read_text())
    assert (
        config["architectures"] == ["Qwen3DSparkModel"] and config["tie_word_embeddings"] is False
    )
    assert {
        tensor.dtype for tensor in load_file(pair / "draft" / "model.safetensors").values()
    } == {torch.bfloat16}
    assert greedy(target, loaded) == greedy(target)


@pytest.mark.parametrize(
    "shared",
    [(), ("embed_tokens.weight",), ("lm_head.weight",), ("embed_tokens.weight", "lm_head.weight")],
)
def test_the_targets_embedding_and_head_are_held_once_where_they_are_equal(copy, target, shared):
    own = {
        "embed_tokens.weight": target.model.get_input_embeddings().weight,
        "lm_head.weight": target.model.get_output_embeddings().weight,
    }
    set_tensors(
        copy / "draft",
        lambda tensors: (
            tensors
            | {name: (value + (name not in shared)).bfloat16() for name, value in own.items()}
        ),
    )
    drafter = load_drafter(str(copy / "draft"), target)
    held = load_file(copy / "draft" / "model.safetensors")
    for name, value in own.items():
        loaded = drafter.get_parameter(name)
        assert (loaded.data_ptr() == value.data_ptr()) == (name in shared) and loaded.equal(
            held[name].float()
        )
    assert greedy(target, drafter) == greedy(target)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_draft_to_be_trained_shares_them_where_no_number_changes(pair, dtype):
    """What is trained computes in float32, so those of a 16-bit target have to be copied."""
    target = load_target(str(pair / "target"), dtype=dtype)
    shape = DraftShape(1, (0,), block_size=3, mask_token_id=1)
    recipe = DraftRecipe("new", 0, 1, 1, learning_rate=0.01, precision="float32", config=shape)
    fresh = new_draft(recipe, target)
    for name, theirs in target_weights(target).items():
        ours = fresh.get_parameter(name)
        assert (ours.data_ptr() == theirs.data_ptr()) == (dtype == torch.float32)
        assert ours.dtype == torch.float32 and ours.equal(theirs.float()) and not ours.requires_grad


def test_a_small_language_model_of_another_tokenizer_is_told(tmp_path):
    target = load_target("tiny-target")
    folder = tmp_path / "small"
    shutil.copytree(EMBEDDED / "tiny-small-lm", folder)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_drafter(str(folder), target)
    told = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    names = list(told["model"]["vocab"])
    moved = dict(zip(names, [told["model"]["vocab"][name] for name in names[1:] + names[:1]]))
    told["model"]["vocab"] = moved
    (folder / "tokenizer.json").write_text(json.dumps(told), encoding="utf-8")
    with pytest.warns(UserWarning, match="ids otherwise than the target's"):
        load_drafter(str(folder), target)


def test_a_small_language_model_and_prompt_lookup_are_drafters(pair, target):
    small, lookup = load_drafter(str(pair / "small"), target), load_drafter("prompt_lookup", target)
    assert (small.name, lookup.name) == ("small_lm", "prompt_lookup")
    assert greedy(target, small) == greedy(target, lookup) == greedy(target)


NESTED = {
    "target_layer_ids": [0, 1],
    "mask_token_id": VOCAB - 1,
    "block_size": GAMMA,
    "markov_rank": 4,
}


@pytest.mark.parametrize(
    "fields",
    [
        {**dict.fromkeys(NESTED, ...), "dspark_config": NESTED},
        {**dict.fromkeys(NESTED, ...), "dflash_config": NESTED},
        {"rope_parameters": ..., "rope_scaling": None, "rope_theta": 1e4},
        {"sample_from_anchor": ...},
        {"dspark_config": {"sample_from_anchor": True}},
    ],
)
def test_a_config_that_says_the_same_in_another_way_is_read(pair, copy, target, fields):
    """As other publishers, older transformers and drafts that take their anchor for granted write it."""
    set_config(copy / "draft", **fields)
    assert (
        load_drafter(str(copy / "draft"), target).config
        == load_drafter(str(pair / "draft"), target).config
    )


def test_no_tensor_is_held_twice_while_a_drafter_loads(pair, target, monkeypatch):
    """The bytes read are those of the drafter's own tensors, and of a few rows to compare."""
    own = [
        value
        for name, value in load_drafter(str(pair / "draft"), target).named_parameters()
        if name != "embed_tokens.weight"
    ]
    opener, read = draft_weights.safe_open, []

    @contextmanager
    def counted(*arguments, **options):
        with opener(*arguments, **options) as weights:
            yield SimpleNamespace(
                keys=weights.keys,
                get_slice=weights.get_slice,
                get_tensor=lambda name: read.append(weights.get_tensor(name)) or read[-1],
            )

    monkeypatch.setattr(draft_weights, "safe_open", counted)
    load_drafter(str(pair / "draft"), target)
    assert sum(tensor.nbytes for tensor in read) == sum(value.nbytes for value in own) // 2, (
        "16 bit in the file"
    )


@pytest.mark.parametrize("rows", [1, 3, VOCAB, 4096])
@pytest.mark.parametrize("different", [None, 0, VOCAB - 1])
def test_a_copy_is_told_from_the_target_by_its_last_row_too(
    copy, target, monkeypatch, rows, different
):
    monkeypatch.setattr(draft_weights, "COMPARED", rows)

    def change(tensors):
        if different is not None:
            tensors["embed_tokens.weight"][different, -1] += 1
        return tensors

    set_tensors(copy / "draft", change)
    loaded = load_drafter(str(copy / "draft"), target).embed_tokens.weight
    assert (loaded.data_ptr() == target.model.get_input_embeddings().weight.data_ptr()) == (
        different is None
    )
    assert loaded.equal(
        load_file(copy / "draft" / "model.safetensors")["embed_tokens.weight"].float()
    )


def test_a_drafter_that_shares_answers_as_one_that_does_not(pair, target):
    shared = load_drafter(str(pair / "draft"), target)
    alone = checkpoints.load_draft_alone(pair / "draft")
    output, _ = target.prefill(PROMPT, shared.taps)
    anchor = output.logits[:, -1].argmax(-1)
    blocks = [
        drafter.propose(
            drafter.begin(PROMPT, output.features),
            anchor,
            temperature=0.7,
            generator=torch.Generator().manual_seed(1),
        )
        for drafter in (shared, alone)
    ]
    assert shared.embed_tokens.weight.data_ptr() != alone.embed_tokens.weight.data_ptr()
    for name in ("tokens", "probs", "confidence_logits"):
        assert getattr(blocks[0], name).equal(getattr(blocks[1], name))


def test_sharded_weights_are_the_same_model(copy, target):
    whole = load_drafter(str(copy / "draft"), target).state_dict()
    shard(copy / "target")
    shard(copy / "draft")
    parted = load_target(str(copy / "target"))
    assert greedy(parted) == greedy(target)
    for name, value in load_drafter(str(copy / "draft"), parted).state_dict().items():
        assert value.equal(whole[name])


def test_logits_are_float32_whatever_the_weights(pair):
    half = load_target(str(pair / "target"), dtype=torch.bfloat16)
    assert half.dtype == torch.bfloat16 and half.prefill(PROMPT)[0].logits.dtype == torch.float32
    proposal = load_drafter(str(pair / "draft"), half)
    assert proposal.fc.weight.dtype == torch.bfloat16


# What does not


@pytest.mark.parametrize(
    "name", ["nonsense", "./no/such/folder", "a/b/c", str(Path("no/such").absolute())]
)
def test_an_unknown_name_is_answered_with_the_known_ones(target, name):
    assert_refused(f"no checkpoint '{re.escape(name)}'.*embedded.*tiny-target", load_target, name)
    assert_refused(f"no checkpoint '{re.escape(name)}'", load_drafter, name, target)


def lose_shard(folder):
    """Splits the weights of a checkpoint and deletes a part."""
    shard(folder)
    (folder / "model-2.safetensors").unlink()


def cut_shard(folder):
    """Splits the weights of a checkpoint and truncates a part."""
    shard(folder)
    cut_short(folder / "model-2.safetensors")


DAMAGES = {
    "no config": (
        lambda f: (f / "config.json").unlink(),
        "has no config.json; a checkpoint folder holds",
    ),
    "config not JSON": (lambda f: (f / "config.json").write_text("{"), "config.json is not JSON"),
    "config no object": (
        lambda f: (f / "config.json").write_text("[]"),
        "config.json holds a list",
    ),
    "config binary": (
        lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"),
        "config.json is not JSON",
    ),
    "unknown architecture": (
        lambda f: set_config(f, architectures=["BertForMaskedLM"]),
        "is a BertForMaskedLM",
    ),
    "no weights": (
        lambda f: (f / "model.safetensors").unlink(),
        r"model.safetensors is missing; copy or download",
    ),
    "pickle only": (
        lambda f: (f / "model.safetensors").rename(f / "pytorch_model.bin"),
        "pytorch_model.bin is not read, because a pickle can execute code",
    ),
    "pickle in disguise": (
        lambda f: torch.save({}, f / "model.safetensors"),
        "is not a whole safetensors file",
    ),
    "truncated": (lambda f: cut_short(f / "model.safetensors"), "is not a whole safetensors file"),
    "empty": (
        lambda f: (f / "model.safetensors").write_bytes(b""),
        "is not a whole safetensors file",
    ),
    "a tensor missing": (
        lambda f: set_tensors(f, lambda t: dict(sorted(t.items())[1:])),
        "tensor .* is missing|has shape none",
    ),
    "a tensor too small": (
        lambda f: set_tensors(f, lambda t: {n: v[:4].clone() for n, v in t.items()}),
        "tensor .* has (another )?shape",
    ),
    "a shard missing": (
        lose_shard,
        "model-2.safetensors is missing",
    ),
    "a shard truncated": (
        cut_shard,
        "model-2.safetensors is not a whole",
    ),
    "index not JSON": (
        lambda f: (f / "model.safetensors.index.json").write_text("{"),
        "index.json is not JSON",
    ),
    "index empty": (
        lambda f: (f / "model.safetensors.index.json").write_text("{}"),
        "has no weight_map",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_refused_as_target_and_as_drafter(copy, target, damage):
    spoil, sentence = DAMAGES[damage]
    spoil(copy / "target")
    spoil(copy / "draft")
    assert_refused(sentence, load_target, str(copy / "target"))
    assert_refused(sentence, load_drafter, str(copy / "draft"), target)


def test_a_damaged_tokenizer_or_configuration_of_a_target_is_refused(copy):
    (copy / "target" / "tokenizer.json").write_text("{")
    assert_refused("does not load as Qwen3ForCausalLM", load_target, str(copy / "target"))
    set_config(copy / "small", hidden_size="wide")
    assert_refused("does not load as Qwen3ForCausalLM", load_target, str(copy / "small"))


def test_a_tokenizer_that_knows_more_tokens_than_the_model_is_refused(copy):
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(EMBEDDED / "tiny-target" / name, copy / "target")
    assert_refused(
        f"tokenizer of .* knows [0-9]+ tokens, its model {VOCAB}; copy or download both",
        load_target,
        str(copy / "target"),
    )


@pytest.mark.parametrize(
    "reader",
    [
        "transformers.Qwen3ForCausalLM.from_pretrained",
        "dspark_lite.models.draft_weights._same_rows",
    ],
)
def test_a_gpu_without_room_is_told_and_what_to_do(pair, target, monkeypatch, reader):
    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 2 GiB")

    monkeypatch.setattr(reader, full)
    load = (
        [load_target, str(pair / "target")]
        if "Qwen3" in reader
        else [load_drafter, str(pair / "draft"), target]
    )
    assert_refused(
        "does not fit beside what this GPU's memory holds; restart the kernel, .*doctor says what fits",
        *load,
    )


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        (
            {"vocab_size": 12},
            "made for a vocabulary of 12 tokens, this target has 11.* load the drafter that belongs to it",
        ),
        ({"hidden_size": 32}, "made for a hidden size of 32, this target has 16"),
        ({"num_target_layers": 36}, "made for a target of 36 layers, this target has 3"),
        (
            {"target_layer_ids": [0, 2]},
            r"taps layer 2, but .* tapped at -1 \(the embedding\) to 1.* the last is read after the norm",
        ),
        ({"target_layer_ids": [-2, 0]}, "taps layer -2"),
        (
            {"target_layer_ids": [0]},
            r"tensor fc.weight of draft has shape \(16, 32\); its config.json asks for \(16, 16\)",
        ),
        ({"target_layer_ids": ...}, "lacks a field .*target_layer_ids"),
        ({"target_layer_ids": 3}, "lacks a field"),
        ({"target_layer_ids": ["0", "1"]}, "it must be a list of whole numbers"),
        ({"mask_token_id": 11}, "mask token is 11; it must be one of its 11 tokens"),
        ({"mask_token_id": -1}, "mask_token_id of the draft is -1"),
        ({"mask_token_id": ...}, "lacks a field .*mask_token_id"),
        (
            {"sample_from_anchor": "false"},
            "sample_from_anchor of this draft is 'false'; it must be true .* or false",
        ),
        ({"sample_from_anchor": 0}, "sample_from_anchor of this draft is 0"),
        (
            {"dflash_config": {"sample_from_anchor": False}, "markov_head_type": "rnn"},
            "has an RNN head and does not predict from its anchor",
        ),
        (
            {"sample_from_anchor": False, "block_size": 1},
            "blocks of one slot, the anchor's, which does not predict",
        ),
        (
            {"dflash_config": {"causal": True}},
            "this draft has causal True; only blocks whose slots see",
        ),
        ({"use_sliding_window": True}, "this draft has use_sliding_window True"),
        ({"hidden_act": "gelu"}, "has the activation 'gelu'; only silu"),
        (
            {"layer_types": ["full_attention", "sliding_attention"]},
            "only full_attention is drafted here",
        ),
        (
            {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e6}},
            r"scales its positions \(longrope\)",
        ),
        (
            {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}},
            r"scales its positions \(yarn\) by the factor None",
        ),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": "2"}},
            r"scales its positions \(linear\) by the factor '2'",
        ),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, r"scales its positions \(dynamic\)"),
        (
            {"rope_theta": 1e6},
            "names two bases of its rotary embedding, rope_theta 1000000.0 and, in rope_parameters, 10000.0",
        ),
        (
            {"rope_parameters": {"rope_theta": 1e6}},
            "made for positions of rope_theta 1000000.0, this target has 10000.0",
        ),
        (
            {"rope_parameters": ..., "rope_theta": 1e6},
            "made for positions of rope_theta 1000000.0, this target has 10000.0",
        ),
        ({"rope_parameters": ...}, "lacks a field .*rope_theta"),
        ({"rope_parameters": [1]}, "has a field of another kind than its form has"),
        ({"dflash_config": 3}, "has a field of another kind than its form has"),
        ({"markov_head_type": "lstm"}, "head of type 'lstm'; heads are vanilla, gated, rnn"),
        (
            {"architectures": ["Gemma4Eagle3Model"]},
            "is a Gemma4Eagle3Model, which is not drafted here; drafters are .*Qwen3Eagle3Model",
        ),
        ({"architectures": ...}, r"is a \?, which is not drafted here"),
        ({"architectures": "Qwen3DSparkModel"}, "is 'Qwen3DSparkModel'; it is a list of names"),
        ({"architectures": [None]}, "it is a list of names"),
        ({"block_size": 0}, "block_size of the draft is 0; it must be a whole number, 1 or more"),
        (
            {"num_hidden_layers": "1"},
            "num_hidden_layers of the draft is '1'; it must be a whole number",
        ),
        ({"vocab_size": 11.0}, "vocab_size of the draft is 11.0"),
        (
            {"rms_norm_eps": "tiny"},
            "rms_norm_eps of the draft is 'tiny'; it must be a positive number",
        ),
        (
            {"markov_rank": -1},
            "markov_rank of the draft is -1; it must be a whole number, 0 or more",
        ),
        ({"head_dim": 7}, "heads of size 7, .* sizes are even"),
    ],
)
def test_a_drafter_that_does_not_fit_is_refused(copy, target, fields, sentence):
    set_config(copy / "draft", **fields)
    assert_refused(sentence, load_drafter, str(copy / "draft"), target)


@pytest.mark.parametrize("name", [".", "", "..", "../reference", Path("nowhere/at/all")])
def test_a_name_reaches_no_folder_but_those_of_the_embedded_checkpoints(
    tmp_path, monkeypatch, name
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert_refused(
        "there is no checkpoint|has no model|is a \\?, not a target|has no config.json|is a \\?",
        load_target,
        name,
    )


def test_nothing_of_a_checkpoint_is_executed(copy, tmp_path):
    """A config that names code of its own loads without that code being run."""
    set_config(copy / "target", auto_map={"AutoModelForCausalLM": "modeling.Evil"})
    (copy / "target" / "modeling.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Evil: pass\n"
    )
    load_target(str(copy / "target"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("enabled", [True, False])
def test_progress_bars_of_transformers_are_as_they_were_after_a_load(enabled):
    from transformers.utils import logging

    before = logging.is_progress_bar_enabled()
    try:
        (logging.enable_progress_bar if enabled else logging.disable_progress_bar)()
        load_target("tiny-target")
        assert logging.is_progress_bar_enabled() == enabled
    finally:
        (logging.enable_progress_bar if before else logging.disable_progress_bar)()


@pytest.mark.parametrize("weight_map", [["a"], {}, {"x": 3}, {"x": "../../elsewhere.safetensors"}])
def test_an_index_that_names_no_files_is_refused(copy, target, weight_map):
    (copy / "draft" / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": weight_map})
    )
    assert_refused(
        "has no weight_map from tensors to files beside it",
        load_drafter,
        str(copy / "draft"),
        target,
    )
