"""A Gemma 4 as a target: its text part out of a file that also has a vision part, with windows that can be rolled back."""

import json
import shutil

import pytest
import torch
import transformers

from dspark_lite.common.errors import RequestError
from dspark_lite.common.files import ROOT
from dspark_lite.custom_generate.custom_generate import CustomGenerate
from dspark_lite.decoding import generate
from dspark_lite.decoding.target import Target
from dspark_lite.models.checkpoints import load_draft_alone, load_drafter, load_target, save_draft
from dspark_lite.serving.engine import Engine
from helpers import assert_refused, set_config

gemma4 = pytest.importorskip(
    "transformers.models.gemma4",
    reason="transformers 5.0 has no Gemma 4; tests/test_checkpoints.py has its sentence",
)
# for a target of six layers
DRAFT = ROOT / "assets" / "reference" / "golden" / "dspark_gemma4" / "draft"
WINDOW = 8
TEXT = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_global_key_value_heads": 1,
    "sliding_window": WINDOW,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "vocab_size_per_layer_input": 67,
    "hidden_size_per_layer_input": 0,
    "num_kv_shared_layers": 0,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-6,
    "eos_token_id": None,
}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "patch_size": 4,
}
PROMPT = torch.arange(3 * WINDOW)[None] % 67  # longer than a window


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A folder with a small Gemma 4 that has a vision part, and the model."""
    torch.manual_seed(0)
    model = gemma4.Gemma4ForConditionalGeneration(
        gemma4.Gemma4Config(text_config=TEXT, vision_config=VISION, audio_config=None)
    ).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=0.3)  # so that answers vary
    folder = tmp_path_factory.mktemp("gemma4")
    model.save_pretrained(folder)
    return folder, model


@pytest.fixture(scope="module")
def target(whole):
    """Its text part as a target."""
    with pytest.warns(UserWarning, match="also has a vision part; its text part is loaded alone"):
        return load_target(str(whole[0]))


@torch.inference_mode()
def test_the_text_part_computes_what_the_whole_model_does(whole, target):
    torch.testing.assert_close(target.model(PROMPT).logits, whole[1](input_ids=PROMPT).logits)
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (
        6,
        32,
        67,
    ) and target.has_windows


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_draft_scales_its_embeddings_as_the_target_does_in_every_number_format(dtype):
    drafter, ids = load_draft_alone(DRAFT).to(dtype), torch.arange(67)
    size, scale = drafter.config.hidden_size, drafter.config.hidden_size**0.5
    theirs = gemma4.modeling_gemma4.Gemma4TextScaledWordEmbedding(67, size, None, embed_scale=scale)
    theirs.weight.copy_(drafter.embed_tokens.weight)
    assert scale % 1, "a root that every format holds shows no difference"
    assert torch.equal(drafter.embed(ids), theirs.to(dtype)(ids))


@pytest.mark.parametrize("name", ["prompt_lookup", str(DRAFT)])
def test_rejected_drafts_are_rolled_back_beyond_a_window(target, name):
    """Texts of every drafter are those of the model by itself, which reads everything anew at each token."""
    ids = PROMPT
    for _ in range(20):
        with torch.inference_mode():
            ids = torch.cat(
                [ids, target.model(ids, use_cache=False).logits[:, -1].argmax(-1)[:, None]], 1
            )
    alone = ids[0, PROMPT.shape[1] :].tolist()
    found = generate(
        target, load_drafter(name, target), PROMPT, max_new_tokens=20, stop_token_ids=()
    )
    assert (
        found.token_ids
        == generate(target, None, PROMPT, max_new_tokens=20, stop_token_ids=()).token_ids
        == alone
    )
    assert any(r.accepted < r.proposed for r in found.rounds), "nothing was rolled back"


def test_the_engine_refuses_windows_and_loading_refuses_what_transformers_lacks(
    whole, target, tmp_path, monkeypatch
):
    with pytest.raises(
        RequestError,
        match="a sliding window .*, which the engine's slots do not have; decode one request with generate",
    ):
        Engine(target)
    monkeypatch.setattr(transformers, "Gemma4ForCausalLM", None)
    assert_refused(
        "which transformers [0-9.]+ does not have; install a newer one", load_target, str(whole[0])
    )


def test_the_whole_model_decodes_text_with_a_drafter(whole):
    """What AutoModelForCausalLM gives for such a checkpoint."""
    model = whole[1]
    options = {"max_new_tokens": 12, "do_sample": False, "attention_mask": torch.ones_like(PROMPT)}
    drafted = CustomGenerate("prompt_lookup", model)
    alone = model.generate(PROMPT, **options)
    assert (
        torch.equal(model.generate(PROMPT, custom_generate=drafted, **options), alone)
        and drafted.answers[0].rounds
    )
    assert (
        generate(Target(model), None, PROMPT, max_new_tokens=12, stop_token_ids=()).token_ids
        == alone[0, PROMPT.shape[1] :].tolist()
    )


def test_a_saved_draft_is_the_draft_and_its_numbers_are_checked(target, tmp_path):
    drafter = load_drafter(str(DRAFT), target)
    save_draft(tmp_path / "draft", drafter, target)
    assert (
        load_drafter(str(tmp_path / "draft"), target).config == drafter.config
        and drafter.config.partial_rotary_factor < 1
    )
    for block_size in (-2, "3"):
        set_config(tmp_path / "draft", block_size=block_size)
        assert_refused(
            f"block_size of the draft is {block_size!r}; it must be a whole number",
            load_drafter,
            str(tmp_path / "draft"),
            target,
        )


def test_a_draft_with_other_positions_is_refused(target, tmp_path):
    shutil.copytree(DRAFT, tmp_path / "draft")
    config = json.loads((DRAFT / "config.json").read_text())
    config["rope_parameters"]["full_attention"]["rope_theta"] = 5e5
    (tmp_path / "draft" / "config.json").write_text(json.dumps(config))
    assert_refused(
        "positions of rope_theta 500000.0, this target has 1000000.0",
        load_drafter,
        str(tmp_path / "draft"),
        target,
    )
