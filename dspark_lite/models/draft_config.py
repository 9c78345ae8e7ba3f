"""The config.json of a draft: which layouts are drafted here, and the fields that are read, wherever they stand."""

from dataclasses import fields

from ..common.errors import CheckpointError
from ..drafters import MTP, DraftConfig, DSpark, Eagle3, Gemma4DSpark
from ..drafters.dspark import SEQUENTIAL_HEADS

DRAFTS = {kind.architecture: kind for kind in (DSpark, Gemma4DSpark, Eagle3, MTP)}


NESTED = ("dflash_config", "dspark_config")
LEAST = {"mask_token_id": 0, "markov_rank": 0}  # of whole numbers; of the others 1
MAY_BE_ZERO = {"step_loss_decay"}


def flattened(config: dict) -> dict:
    """A config.json with the fields that a publisher nests beside the others."""
    nested = [config.get(name) or {} for name in NESTED]
    return {
        name: value
        for part in (config, *nested)
        for name, value in part.items()
        if name not in NESTED
    }


def parse_draft_config(kind: type, config: dict) -> DraftConfig:
    """The fields of a config.json that a drafter class `kind` needs, also where a publisher nests them.

    Raise CheckpointError for layouts that are not drafted here.
    """
    flat = flattened(config)
    if any(kind != "full_attention" for kind in flat.get("layer_types") or []):
        raise CheckpointError(
            f"this draft has layers of type {sorted(set(flat['layer_types']))}; only full_attention is drafted here"
        )
    rope = flat.get("rope_parameters") or {}
    if kind is Gemma4DSpark:
        rope = _read_gemma4(flat, rope)
    else:
        _check_plain(flat, rope)
    flat["rope_theta"] = _one_theta(flat.get("rope_theta"), rope.get("rope_theta"))
    if issubclass(kind, DSpark):
        _read_heads(flat)
    elif flat.get("num_hidden_layers", 1) != 1:
        raise CheckpointError(
            f"this draft has {flat['num_hidden_layers']} layers; a {kind.architecture} is drafted here with one"
        )
    outputs, vocabulary = flat.get("draft_vocab_size"), flat.get("vocab_size")
    if outputs and vocabulary and outputs > vocabulary:
        raise CheckpointError(
            f"this draft draws from {outputs} ids of {vocabulary}; draft_vocab_size is at most vocab_size"
        )
    if outputs == vocabulary:
        flat["draft_vocab_size"] = None
    try:
        flat["target_layer_ids"] = tuple(flat["target_layer_ids"])
        made = kind.config_class(
            **{
                name: flat[name]
                for name in kind.config_class.__dataclass_fields__
                if flat.get(name) is not None
            }
        )
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"config.json of the draft lacks a field ({error}); the released layout names all of them"
        ) from None
    _check_numbers(made)
    return made


def _check_numbers(config: DraftConfig) -> None:
    """Raise CheckpointError for fields that are none of the numbers they have to be."""
    for name, of in ((one.name, one.type) for one in fields(config)):
        value, least = getattr(config, name), LEAST.get(name, 1)
        if (
            of in (int, int | None)
            and value is not None
            and (type(value) is not int or value < least)
        ):
            raise CheckpointError(
                f"{name} of the draft is {value!r}; it must be a whole number, {least} or more"
            )
        if of is float and (
            type(value) not in (int, float) or not (value > 0 or value == 0 and name in MAY_BE_ZERO)
        ):
            raise CheckpointError(f"{name} of the draft is {value!r}; it must be a positive number")
    if (
        any(type(layer) is not int for layer in config.target_layer_ids)
        or not config.target_layer_ids
    ):
        raise CheckpointError(
            f"target_layer_ids of the draft is {list(config.target_layer_ids)}; it must be a list of whole numbers"
        )
    if config.head_dim % 2 or config.num_attention_heads % config.num_key_value_heads:
        raise CheckpointError(
            f"the draft has heads of size {config.head_dim}, {config.num_attention_heads} of queries and "
            f"{config.num_key_value_heads} of keys; sizes are even, and the heads of keys divide those of queries"
        )


def _check_plain(flat: dict, rope: dict) -> None:
    """Raise CheckpointError for parts that a draft for Qwen3 may ask for and that are not drafted here."""
    older = flat.get("rope_scaling") or {}
    for scaling in (rope.get("rope_type"), older.get("rope_type"), older.get("type")):
        if scaling not in (None, "default"):
            raise CheckpointError(
                f"this draft scales its positions ({scaling}); only the default rotary embedding is drafted here"
            )
    for part in ("causal", "use_sliding_window"):
        if flat.get(part):
            raise CheckpointError(
                f"this draft has {part} {flat[part]}; only blocks whose slots see the whole context and one another are "
                "drafted here"
            )
    if flat.get("hidden_act", "silu") != "silu":
        raise CheckpointError(
            f"this draft has the activation {flat['hidden_act']!r}; only silu is drafted here"
        )


def _one_theta(older: float | None, newer: float | None) -> float | None:
    """The base of the rotary embedding, which configs of before and after transformers 5 write in two places.

    Raise CheckpointError where they differ.
    """
    if older and newer and older != newer:
        raise CheckpointError(
            f"config.json of the draft names two bases of its rotary embedding, rope_theta {older} and, in rope_parameters, "
            f"{newer}; it must name one"
        )
    return older or newer


def _read_gemma4(flat: dict, rope: dict) -> dict:
    """Rename the full-attention sizes of a Gemma 4 draft to the names of other drafts and return its rotary parameters.

    Raise CheckpointError for parts of Gemma 4 that the reference tensors do not pin.
    """
    for part in (
        "final_logit_softcapping",
        "hidden_size_per_layer_input",
        "enable_moe_block",
        "num_kv_shared_layers",
    ):
        if flat.get(part):
            raise CheckpointError(
                f"this draft has {part} {flat[part]}; only Gemma 4 drafts without it are drafted here"
            )
    flat["head_dim"] = flat.get("global_head_dim") or flat.get("head_dim")
    if flat.get("attention_k_eq_v"):
        flat["num_key_value_heads"] = flat.get("num_global_key_value_heads") or flat.get(
            "num_key_value_heads"
        )
    rope = rope.get("full_attention") or rope
    if rope.get("rope_type") not in ("proportional", "default"):
        raise CheckpointError(
            f"this draft scales its positions ({rope.get('rope_type')}); a Gemma 4 draft is drafted here with the "
            "proportional or the default rotary embedding"
        )
    flat["partial_rotary_factor"] = rope.get("partial_rotary_factor", 1.0)
    return rope


def _read_heads(flat: dict) -> None:
    """Fill in what a config of a block draft may leave out of its heads. Raise CheckpointError for an unknown one.

    Where nothing is said of the anchor, its slot predicts, as in all drafts that DeepSpec trains.
    """
    anchor = flat.setdefault("sample_from_anchor", True)
    if not isinstance(anchor, bool):
        raise CheckpointError(
            f"sample_from_anchor of this draft is {anchor!r}; it must be true (the anchor's slot predicts) or false (it does not)"
        )
    flat["markov_rank"] = flat.get("markov_rank") or 0
    flat["markov_head_type"] = flat.get("markov_head_type") or "vanilla"
    if flat["markov_head_type"] not in SEQUENTIAL_HEADS:
        raise CheckpointError(
            f"this draft has a sequential head of type {flat['markov_head_type']!r}; heads are {', '.join(SEQUENTIAL_HEADS)}"
        )
    if not anchor and flat["markov_rank"] and flat["markov_head_type"] == "rnn":
        raise CheckpointError(
            "this draft has an RNN head and does not predict from its anchor slot (sample_from_anchor: false); where its state "
            "begins in that layout nobody fixes, so only a Markov or a gated head is drafted here"
        )
    if flat.get("block_size") == 1 and not anchor:
        raise CheckpointError(
            "this draft has blocks of one slot, the anchor's, which does not predict (sample_from_anchor: false); such a block "
            "needs at least two slots"
        )
    flat["enable_confidence_head"] = bool(flat.get("enable_confidence_head"))
    flat["confidence_head_with_markov"] = (
        bool(flat.get("confidence_head_with_markov")) and flat["markov_rank"] > 0
    )
