"""The forms that drafts are published in, each read into DeepSpec's fields and tensor names: one reader a form.

DeepSpec's own files name everything as the drafters here do. speculators (0.9) nests the fields of the layers, counts tapped
layers as inputs of the next one, and leaves most targets' embedding and LM head out; z-lab's DFlash folders leave both out too.
"""

from typing import NamedTuple

import torch
from transformers import AutoConfig

from ..common.errors import CheckpointError
from ..drafters import MTP, DraftConfig, DSpark, Eagle3
from .draft_config import DRAFTS, parse_draft_config

DEEPSPEC, SPECULATORS, Z_LAB = "DeepSpec", "speculators", "z-lab DFlash"
# The class of each `speculators_model_type`.
SPECULATORS_KINDS = {
    "dspark": DSpark,
    "dflash": DSpark,
    "eagle3": Eagle3,
    "mtp": MTP,
}
# What speculators' Eagle3 may do with its features beside what is drafted here.
EAGLE3_SWITCHES = ("norm_before_fc", "fc_norm", "norm_output")
# The beginning of a name in speculators and here.
MTP_TENSORS = {
    "mtp_layers.0.input_proj.": "eh_proj.",
    "mtp_layers.0.hidden_layernorm.": "hnorm.",
    "mtp_layers.0.token_layernorm.": "enorm.",
    "mtp_layers.0.final_layernorm.": "norm.",
    "mtp_layers.0.": "layers.0.",
}
# Tensors of the target that only a training reads.
VERIFIER_TENSORS = (
    "verifier_norm.weight",
    "verifier_lm_head.weight",
)


class PublishedDraft(NamedTuple):
    """A draft's config.json as read: the `form` it is published in, the drafter's `kind` and `config`, the positions that it
    was made for and the target that it names (None where it says nothing)."""

    form: str
    kind: type
    config: DraftConfig
    max_positions: int | None
    target: str | None = None

    def tensor_name(self, stored: str) -> str | None:
        """A stored tensor's name in the drafter; None for one that drafting does not need."""
        if self.form == SPECULATORS and stored in VERIFIER_TENSORS:
            return None
        if self.form == SPECULATORS and self.kind is MTP:
            for theirs, ours in MTP_TENSORS.items():
                if stored.startswith(theirs):
                    return ours + stored.removeprefix(theirs)
        return stored

    def tensor(self, name: str, stored: torch.Tensor) -> torch.Tensor:
        """A tensor of the drafter as it is stored: speculators' MTP reads embedding and feature in the other order."""
        return (
            swapped_halves(stored)
            if self.form == SPECULATORS and name == "eh_proj.weight"
            else stored
        )


def as_speculators(kind: type, config: DraftConfig, max_positions: int | None, target: str) -> dict:
    """The config.json of a draft of DeepSpec's form in that of speculators, for a verifier of this name."""
    same = (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "attention_bias",
    )
    layers = config.num_target_layers if kind is MTP else config.num_hidden_layers
    layer = {name: getattr(config, name) for name in same} | {
        "model_type": "qwen3",
        "num_hidden_layers": layers,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "max_position_embeddings": max_positions,
        "rope_parameters": {"rope_type": "default", "rope_theta": config.rope_theta},
    }
    taps = [layer + 1 for layer in config.target_layer_ids]
    if kind is MTP:
        model_type, architecture, drafted, own = (
            "mtp",
            "MTPDraftModel",
            1,
            {"num_nextn_predict_layers": 1},
        )
    elif kind is Eagle3:
        model_type, architecture, drafted = "eagle3", "Eagle3Speculator", config.ttt_length
        own = {
            "eagle_aux_hidden_state_layer_ids": taps,
            "norm_before_residual": config.norm_before_residual,
        }
    else:
        model_type, architecture = (
            ("dspark", "DSparkSpeculator") if config.markov_rank else ("dflash", "DFlashSpeculator")
        )
        drafted = config.block_size - (not config.sample_from_anchor)
        heads = (
            (
                "markov_rank",
                "markov_head_type",
                "enable_confidence_head",
                "confidence_head_with_markov",
            )
            if config.markov_rank
            else ()
        )
        own = {"aux_hidden_state_layer_ids": taps} | {
            name: getattr(config, name)
            for name in ("block_size", "mask_token_id", "sample_from_anchor", *heads)
        }
    outputs = (
        {} if kind is MTP else {"draft_vocab_size": config.draft_vocab_size or config.vocab_size}
    )
    method = {"proposal_type": "greedy", "speculative_tokens": drafted}
    return {
        "architectures": [architecture],
        "speculators_model_type": model_type,
        "speculators_version": "0.9.0",
        "dtype": "bfloat16",
        "transformer_layer_config": {
            name: value for name, value in layer.items() if value is not None
        },
        **outputs,
        **own,
        "speculators_config": {
            "algorithm": model_type,
            "default_proposal_method": "greedy",
            "proposal_methods": [method],
            "verifier": {"name_or_path": target, "architectures": []},
        },
    }


def speculators_tensors(
    kind: type, config: DraftConfig, tensors: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """A drafter's tensors by speculators' names."""
    if kind is MTP:
        named = {
            next(
                (
                    theirs + name.removeprefix(ours)
                    for theirs, ours in MTP_TENSORS.items()
                    if name.startswith(ours)
                ),
                name,
            ): value
            for name, value in tensors.items()
        }
        return named | {"mtp_layers.0.input_proj.weight": swapped_halves(tensors["eh_proj.weight"])}
    if config.draft_vocab_size is None:
        return tensors
    has = torch.zeros(config.vocab_size, dtype=torch.bool)
    has[torch.arange(config.draft_vocab_size) + tensors["d2t"]] = True
    return tensors | {"t2d": has}


def swapped_halves(weight: torch.Tensor) -> torch.Tensor:
    """A projection [H, 2H] of two inputs that come in the other order."""
    return torch.cat(weight.chunk(2, -1)[::-1], -1)


def read_draft(name: str, config: dict, num_target_layers: int | None = None) -> PublishedDraft:
    """The draft that a config.json describes, in whatever form; `num_target_layers` of the target it is for, where that is known.

    Raise CheckpointError for what is no draft, or none that is drafted here.
    """
    try:
        return _described(name, config, num_target_layers)
    except (
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
    ) as error:  # a list for an object, a text for a number
        raise CheckpointError(
            f"config.json of {name} has a field of another kind than its form has ({error}); copy or download it again"
        ) from error


def _described(name: str, config: dict, num_target_layers: int | None) -> PublishedDraft:
    architecture = (config.get("architectures") or ["?"])[0]
    if "speculators_model_type" in config:
        form, flat = SPECULATORS, _from_speculators(name, config, num_target_layers)
    elif architecture == "DFlashDraftModel":
        form, flat = (
            Z_LAB,
            {**config, "architectures": [DSpark.architecture], "sample_from_anchor": False},
        )
    elif architecture in DRAFTS:
        form, flat = DEEPSPEC, config
    else:
        raise CheckpointError(
            f"{name} is a {architecture}, which is not drafted here; drafters are {', '.join(DRAFTS)}, "
            "DFlashDraftModel, the drafts of speculators, and language models of the target's vocabulary"
        )
    kind = DRAFTS[flat["architectures"][0]]
    return PublishedDraft(
        form,
        kind,
        parse_draft_config(kind, flat),
        flat.get("max_position_embeddings"),
        _verifier(config),
    )


def _verifier(config: dict) -> str | None:
    """The target that a config of speculators names."""
    return ((config.get("speculators_config") or {}).get("verifier") or {}).get("name_or_path")


def _from_speculators(name: str, config: dict, num_target_layers: int | None) -> dict:
    """DeepSpec's fields of a config of speculators."""
    model_type = config["speculators_model_type"]
    if model_type not in SPECULATORS_KINDS:
        raise CheckpointError(
            f"{name} is a {model_type!r} of speculators, which is not drafted here; its types here are "
            f"{', '.join(SPECULATORS_KINDS)}"
        )
    kind, layer = SPECULATORS_KINDS[model_type], _layer_fields(name, config)
    if config.get("target_hidden_size") not in (None, layer["hidden_size"]):
        raise CheckpointError(
            f"{name} is for a target of hidden size {config['target_hidden_size']}, its own is {layer['hidden_size']}; only drafts "
            "of the target's hidden size are drafted here"
        )
    flat = {**layer, **config, "architectures": [kind.architecture]}
    if kind is MTP:
        layers = layer["num_hidden_layers"]  # the target's
        return {
            **flat,
            "num_hidden_layers": 1,
            "layer_types": None,
            "num_target_layers": layers,
            "target_layer_ids": [layers - 1],
        }
    taps = config.get("aux_hidden_state_layer_ids") or config.get(
        "eagle_aux_hidden_state_layer_ids"
    )
    if kind is Eagle3:
        _check_eagle3(name, config)
        if not taps and num_target_layers:
            # The default of speculators.
            taps = [
                2,
                num_target_layers // 2,
                num_target_layers - 3,
            ]
        flat |= {
            "qk_norm": layer["model_type"] != "llama",
            "ttt_length": _speculative_tokens(config),
        }
    else:
        flat |= _anchor(name, config)
    if not taps:
        raise CheckpointError(
            f"{name} names no aux_hidden_state_layer_ids, the target's layers that it reads, so its context cannot be made"
        )
    return {**flat, "target_layer_ids": [layer - 1 for layer in taps]}


def _layer_fields(name: str, config: dict) -> dict:
    """The fields of `transformer_layer_config`, with the defaults of its kind of model where it says nothing."""
    said = config.get("transformer_layer_config") or {}
    model_type = said.get("model_type", "qwen3")
    if model_type not in ("qwen3", "llama") or said.get("mlp_bias"):
        part = (
            "a bias in its feed-forward network"
            if said.get("mlp_bias")
            else f"layers of type {model_type!r}"
        )
        raise CheckpointError(
            f"{name} has {part}; of speculators' drafts those with the layers of qwen3 or llama and without it are drafted here"
        )
    try:
        return AutoConfig.for_model(**{**said, "model_type": model_type}).to_dict()
    except (
        Exception
    ) as error:  # transformers checks each field in its own way; the reader needs one sentence
        raise CheckpointError(
            f"the transformer_layer_config of {name} is none of {model_type} ({' '.join(str(error).split())})"
        ) from error


def _speculative_tokens(config: dict) -> int | None:
    """How many tokens a config of speculators drafts a round; None where it does not say."""
    methods = (config.get("speculators_config") or {}).get("proposal_methods") or [{}]
    return methods[0].get("speculative_tokens")


def _check_eagle3(name: str, config: dict) -> None:
    """Raise CheckpointError for an Eagle3 of speculators with parts that are not drafted here."""
    switched = [switch for switch in EAGLE3_SWITCHES if config.get(switch)]
    if switched:
        raise CheckpointError(
            f"{name} has {switched[0]}, which is not drafted here; an Eagle3 here norms its features in its layer alone"
        )
    if not _speculative_tokens(config):
        raise CheckpointError(
            f"{name} does not say how many tokens it drafts (speculators_config, proposal_methods, speculative_tokens)"
        )


def _anchor(name: str, config: dict) -> dict:
    """Return whether the anchor's slot predicts, and what heads there are. speculators writes both since 0.9; files without
    `sample_from_anchor` are older, and fill themselves in."""
    dspark = config["speculators_model_type"] == "dspark"
    heads = {} if dspark else {"markov_rank": 0, "enable_confidence_head": False}
    drafted, block = _speculative_tokens(config), config.get("block_size")
    if "sample_from_anchor" not in config and drafted and drafted == block:
        raise CheckpointError(
            f"{name} does not say whether its anchor's slot predicts (sample_from_anchor): by speculators' older layout it does "
            f"not, but {drafted} tokens of a block of {block} say that it does; add the field"
        )
    return {"sample_from_anchor": config.get("sample_from_anchor", False), **heads}
