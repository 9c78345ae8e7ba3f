"""The forms in which drafts are published, as one table of renamings to the names of our drafters.

Our names are DeepSpec's. z-lab publishes DFlash without the target's embedding and LM head.
speculators (0.9) nests the fields of the layers, numbers layer outputs from 1 on, and leaves most
targets' embedding and LM head out.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig

from ..common.errors import CheckpointError
from ..drafters import MTP, DraftConfig, DSpark, Eagle3
from .draft_config import DRAFTS, LAYERS, flattened, parse_draft_config

DEEPSPEC, SPECULATORS, Z_LAB = "DeepSpec", "speculators", "z-lab DFlash"


class Form(NamedTuple):
    """A form of drafts of one kind, and how its names map to ours.

    `fields` gives the paths of our fields in config.json; the first path with a value counts.
    `defaults` are fields that config.json may leave out, `fixed` fields that it never sets.
    `default_taps` gives the taps, in the form's numbers, for a target of n layers.
    `first_layer` is the form's number of the output of the target's layer 0.
    `tensors` maps beginnings of tensor names to ours; None: the tensor is not read.
    `swapped` names our projections whose two inputs come in the other order.
    `unsupported` names switches that must be off.
    """

    publisher: str
    kind: type
    fields: dict[str, tuple[str, ...]] = {}
    defaults: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    default_taps: Callable[[int], list[int]] | None = None
    first_layer: int = 0
    tensors: dict[str, str | None] = {}
    swapped: tuple[str, ...] = ()
    unsupported: tuple[str, ...] = ()

    def tensor_name(self, stored: str) -> str | None:
        """Return our name of a stored tensor, or None if drafting does not need it."""
        for theirs, ours in self.tensors.items():
            if stored.startswith(theirs):
                return ours and ours + stored.removeprefix(theirs)
        return stored

    def stored_name(self, name: str) -> str:
        """Return the form's name of our tensor `name`."""
        for theirs, ours in self.tensors.items():
            if ours and name.startswith(ours):
                return theirs + name.removeprefix(ours)
        return name

    def reordered(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Return our tensor `name` from the stored value, or the stored value from ours."""
        return torch.cat(value.chunk(2, -1)[::-1], -1) if name in self.swapped else value


TYPE = "speculators_model_type"
METHOD = "speculators_config.proposal_methods.0"
VERIFIER = "speculators_config.verifier"
LAYER_FIELDS = {
    name: (f"{LAYERS}.{name}",)
    for name in (
        "vocab_size",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "attention_bias",
        "max_position_embeddings",
        "rope_parameters",
    )
}
BLOCK_TAPS, CHAIN_TAPS = "aux_hidden_state_layer_ids", "eagle_aux_hidden_state_layer_ids"
BLOCK_FIELDS = LAYER_FIELDS | {
    "target_layer_ids": (BLOCK_TAPS, CHAIN_TAPS),
    "gamma": (f"{METHOD}.speculative_tokens",),
    "draft_vocab_size": ("draft_vocab_size",),
    "block_size": ("block_size",),
    "mask_token_id": ("mask_token_id",),
    "sample_from_anchor": ("sample_from_anchor",),
}
HEAD_FIELDS = {
    name: (name,)
    for name in (
        "markov_rank",
        "markov_head_type",
        "enable_confidence_head",
        "confidence_head_with_markov",
    )
}
VERIFIER_TENSORS = {"verifier_norm.weight": None, "verifier_lm_head.weight": None}

# The forms by the type in `speculators_model_type`, or by the architecture in `architectures`.
FORMS = {
    **{architecture: Form(DEEPSPEC, kind) for architecture, kind in DRAFTS.items()},
    "DFlashDraftModel": Form(Z_LAB, DSpark, fixed={"sample_from_anchor": False}),
    "dspark": Form(
        SPECULATORS,
        DSpark,
        fields=BLOCK_FIELDS | HEAD_FIELDS,
        defaults={"sample_from_anchor": False},
        fixed={"qk_norm": True},
        first_layer=1,
        tensors=VERIFIER_TENSORS,
    ),
    "dflash": Form(
        SPECULATORS,
        DSpark,
        fields=BLOCK_FIELDS,
        defaults={"sample_from_anchor": False},
        fixed={"qk_norm": True, "markov_rank": 0, "enable_confidence_head": False},
        first_layer=1,
        tensors=VERIFIER_TENSORS,
    ),
    "eagle3": Form(
        SPECULATORS,
        Eagle3,
        fields=LAYER_FIELDS
        | {
            "target_layer_ids": (CHAIN_TAPS, BLOCK_TAPS),
            "ttt_length": (f"{METHOD}.speculative_tokens",),
            "draft_vocab_size": ("draft_vocab_size",),
            "norm_before_residual": ("norm_before_residual",),
        },
        default_taps=lambda layers: [2, layers // 2, layers - 3],
        first_layer=1,
        tensors=VERIFIER_TENSORS,
        unsupported=("norm_before_fc", "fc_norm", "norm_output"),
    ),
    "mtp": Form(
        SPECULATORS,
        MTP,
        fields={name: path for name, path in LAYER_FIELDS.items() if name != "num_hidden_layers"}
        | {
            "num_target_layers": (f"{LAYERS}.num_hidden_layers",),
            "gamma": (f"{METHOD}.speculative_tokens",),
        },
        fixed={"qk_norm": True, "num_hidden_layers": 1, "layer_types": None},
        default_taps=lambda layers: [layers],
        first_layer=1,
        tensors=VERIFIER_TENSORS
        | {
            "mtp_layers.0.input_proj.": "eh_proj.",
            "mtp_layers.0.hidden_layernorm.": "hnorm.",
            "mtp_layers.0.token_layernorm.": "enorm.",
            "mtp_layers.0.final_layernorm.": "norm.",
            "mtp_layers.0.": "layers.0.",
        },
        swapped=("eh_proj.weight",),
    ),
}
SPECULATORS_TYPES = [name for name, form in FORMS.items() if form.publisher == SPECULATORS]


class PublishedDraft(NamedTuple):
    """A draft as its config.json describes it.

    `form` is its row of FORMS. `max_positions` counts the positions that it was trained for;
    `target` is the name of its target. Both are None if config.json does not give them.
    """

    form: Form
    config: DraftConfig
    max_positions: int | None
    target: str | None = None

    @property
    def publisher(self) -> str:
        """Return the publisher of its form: DEEPSPEC, SPECULATORS or Z_LAB."""
        return self.form.publisher

    @property
    def kind(self) -> type:
        """Return the class of the drafter."""
        return self.form.kind


def read_draft(name: str, config: dict, num_target_layers: int | None = None) -> PublishedDraft:
    """Return the draft that a config.json describes, in any form.

    `num_target_layers` counts the layers of its target, if the caller knows them. Raise
    CheckpointError if config.json describes no draft, or a draft that is not drafted here.
    """
    try:
        return _read(name, config, num_target_layers)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"config.json of {name} has a field of another kind than its form has ({error}); copy or download it again"
        ) from error


def _read(name: str, config: dict, num_target_layers: int | None) -> PublishedDraft:
    """Call `read_draft`; a field of a wrong type raises Python's own errors."""
    form = _form(name, config)
    if form.publisher == SPECULATORS:
        config = config | {LAYERS: _layer_fields(name, config.get(LAYERS) or {})}
    renamed = {ours: first_value(config, *paths) for ours, paths in form.fields.items()}
    fields = (
        form.defaults
        | flattened(config)
        | {ours: value for ours, value in renamed.items() if value is not None}
        | form.fixed
    )
    if form.publisher == SPECULATORS:
        _check_speculators(name, form, config, fields)
        layers = fields.get("num_target_layers") or num_target_layers
        taps = renamed.get("target_layer_ids")
        if not taps and form.default_taps and layers:
            taps = form.default_taps(layers)
        if not taps:
            raise CheckpointError(
                f"{name} names no aux_hidden_state_layer_ids, the target's layers that it reads, so its context cannot be made"
            )
        fields["target_layer_ids"] = [layer - form.first_layer for layer in taps]
    return PublishedDraft(
        form,
        parse_draft_config(form.kind, fields),
        fields.get("max_position_embeddings"),
        first_value(config, f"{VERIFIER}.name_or_path"),
    )


def first_value(config: dict, *paths: str):
    """Return the value at the first of these paths in a config.json that has one, or None."""
    for path in paths:
        value = config
        for part in path.split("."):
            value = (value[int(part)] if part.isdigit() else value.get(part)) if value else None
        if value not in (None, []):
            return value
    return None


def _form(name: str, config: dict) -> Form:
    """Return the row of FORMS for a config.json. Raise CheckpointError if there is none."""
    if TYPE in config:
        if config[TYPE] not in SPECULATORS_TYPES:
            raise CheckpointError(
                f"{name} is a {config[TYPE]!r} of speculators, which is not drafted here; its types here are "
                f"{', '.join(SPECULATORS_TYPES)}"
            )
        return FORMS[config[TYPE]]
    architecture = (config.get("architectures") or ["?"])[0]
    if architecture not in FORMS or architecture in SPECULATORS_TYPES:
        raise CheckpointError(
            f"{name} is a {architecture}, which is not drafted here; drafters are {', '.join(DRAFTS)}, "
            "DFlashDraftModel, the drafts of speculators, and language models of the target's vocabulary"
        )
    return FORMS[architecture]


def _layer_fields(name: str, given: dict) -> dict:
    """Return the fields of a `transformer_layer_config`, with transformers' defaults.

    Raise CheckpointError for layers that are not drafted here.
    """
    model_type = given.get("model_type", "qwen3")
    if model_type not in ("qwen3", "llama") or given.get("mlp_bias"):
        part = (
            "a bias in its feed-forward network"
            if given.get("mlp_bias")
            else f"layers of type {model_type!r}"
        )
        raise CheckpointError(
            f"{name} has {part}; this package runs speculators' drafts with layers of qwen3 or "
            "llama, without a bias in the feed-forward network"
        )
    try:
        layers = AutoConfig.for_model(**{**given, "model_type": model_type}).to_dict()
    except (
        StrictDataclassError,
        ArithmeticError,
        AttributeError,
        LookupError,
        TypeError,
        ValueError,
    ) as error:
        raise CheckpointError(
            f"the transformer_layer_config of {name} is none of {model_type} ({' '.join(str(error).split())})"
        ) from error
    return layers | {"qk_norm": model_type != "llama"}


def _check_speculators(name: str, form: Form, config: dict, fields: dict) -> None:
    """Raise CheckpointError for parts of a speculators draft that are open or not drafted here."""
    if config.get("target_hidden_size") not in (None, fields["hidden_size"]):
        raise CheckpointError(
            f"{name} is for a target of hidden size {config['target_hidden_size']}, its own is {fields['hidden_size']}; only drafts "
            "of the target's hidden size are drafted here"
        )
    for switch in form.unsupported:
        if config.get(switch):
            raise CheckpointError(
                f"{name} has {switch}, which is not drafted here; an Eagle3 here norms its features in its layer alone"
            )
    if form.kind is Eagle3 and not fields.get("ttt_length"):
        raise CheckpointError(
            f"{name} does not say how many tokens it drafts (speculators_config, proposal_methods, speculative_tokens)"
        )
    # speculators 0.9 writes `sample_from_anchor`. Older files do not, nor predict from the anchor.
    gamma, block = fields.get("gamma"), fields.get("block_size")
    if form.kind is DSpark and "sample_from_anchor" not in config and gamma and gamma == block:
        raise CheckpointError(
            f"{name} does not say whether its anchor's slot predicts (sample_from_anchor): by speculators' older layout it does "
            f"not, but {gamma} tokens of a block of {block} say that it does; add the field"
        )
