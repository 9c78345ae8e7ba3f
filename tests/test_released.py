"""The released drafts: every tensor that they hold finds its place in our modules, with its shape, and none is left over."""

import json

import pytest
import torch

from dspark_lite.common.errors import CheckpointError
from dspark_lite.common.files import ROOT
from dspark_lite.models.checkpoints import load_draft_alone
from dspark_lite.models.draft_config import DRAFTS, parse_draft_config

MANIFEST = json.loads((ROOT / "assets" / "reference" / "released_manifest.json").read_text())
GEMMA4 = ROOT / "assets" / "reference" / "golden" / "dspark_gemma4"


def test_the_manifest_holds_all_nine_qwen3_drafts():
    assert len(MANIFEST) == 9 and all(name.startswith("deepseek-ai/") for name in MANIFEST)


@pytest.mark.parametrize("name", MANIFEST)
def test_no_tensor_is_missing_unexpected_or_of_another_shape(name):
    released = MANIFEST[name]
    kind = DRAFTS[released["config"]["architectures"][0]]
    with torch.device("meta"):
        drafter = kind(parse_draft_config(kind, released["config"]))
    ours = {tensor: list(value.shape) for tensor, value in drafter.state_dict().items()}
    assert ours == released["tensors"]
    assert sum(parameter.numel() for parameter in drafter.parameters()) == released["parameters"]


@pytest.mark.parametrize("nested", ["dflash_config", "dspark_config"])
def test_fields_may_be_nested_as_other_publishers_do(nested):
    config = dict(MANIFEST["deepseek-ai/dspark_qwen3_4b_block7"]["config"])
    kind = DRAFTS["Qwen3DSparkModel"]
    inner = {
        field: config.pop(field)
        for field in ("block_size", "mask_token_id", "target_layer_ids", "markov_rank")
    }
    assert parse_draft_config(kind, config | {nested: inner}) == parse_draft_config(
        kind, config | inner
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"final_logit_softcapping": 30.0},
            "has final_logit_softcapping 30.0; only Gemma 4 drafts without it",
        ),
        ({"num_kv_shared_layers": 2}, "has num_kv_shared_layers 2"),
        (
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e6}}},
            "scales its positions .yarn.",
        ),
        (
            {"layer_types": ["sliding_attention", "full_attention"]},
            "only full_attention is drafted here",
        ),
        ({"architectures": ["Qwen3ForCausalLM"]}, "which is not drafted here"),
    ],
)
def test_a_gemma_4_draft_that_no_reference_pins_is_refused(tmp_path, change, sentence):
    config = json.loads((GEMMA4 / "draft" / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=sentence):
        load_draft_alone(tmp_path)
