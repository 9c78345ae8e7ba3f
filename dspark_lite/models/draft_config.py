"""Parse and check the config.json of a draft in DeepSpec's field names, which our drafters use."""

from dataclasses import fields

from ..common.errors import CheckpointError
from ..drafters import MTP, DraftConfig, DSpark, Eagle3, Gemma4DSpark
from ..drafters.dspark import SEQUENTIAL_HEADS

DRAFTS = {kind.architecture: kind for kind in (DSpark, Gemma4DSpark, Eagle3, MTP)}

LAYERS = "transformer_layer_config"
SECTIONS = (LAYERS, "dflash_config", "dspark_config")

MINIMUMS = {"mask_token_id": 0, "markov_rank": 0}  # of whole numbers; others are 1 or more
MAY_BE_ZERO = {"step_loss_decay"}

SCALINGS = ("linear", "llama3", "yarn")  # of positions that are drafted here
WITHOUT_MASK = "only blocks whose slots see the whole context and one another are drafted here"
WITHOUT_PART = "only Gemma 4 drafts without it are drafted here"
# Fields that switch on parts of a draft which are not drafted here, and the reason.
QWEN3_PARTS = dict.fromkeys(("causal", "use_sliding_window"), WITHOUT_MASK)
GEMMA4_PARTS = dict.fromkeys(
    (
        "final_logit_softcapping",
        "hidden_size_per_layer_input",
        "enable_moe_block",
        "num_kv_shared_layers",
    ),
    WITHOUT_PART,
)


def flattened(config: dict) -> dict:
    """Return the fields of a config.json, with the fields of its sections beside the others.

    A block's section wins over a field beside it, and that wins over the section of the layers.
    """
    layers, *blocks = (config.get(section) or {} for section in SECTIONS)
    return {
        name: value
        for part in (layers, config, *blocks)
        for name, value in part.items()
        if name not in SECTIONS
    }


def parse_draft_config(kind: type, config: dict) -> DraftConfig:
    """Return the config of a drafter class `kind` from the fields of a config.json.

    Raise CheckpointError for a field that is missing or wrong, and for a part that is not drafted
    here.
    """
    flat = flattened(config)
    _check_parts(kind, flat)
    flat |= _positions(kind, flat)
    if kind is Gemma4DSpark:
        flat |= _gemma4_sizes(flat)
    if issubclass(kind, DSpark):
        flat |= _heads(flat)
    flat |= _vocabulary(flat)
    try:
        flat["target_layer_ids"] = tuple(flat["target_layer_ids"])
        parsed = kind.config_class(
            **{
                field.name: flat[field.name]
                for field in fields(kind.config_class)
                if flat.get(field.name) is not None
            }
        )
    except (KeyError, TypeError) as error:
        raise CheckpointError(
            f"config.json of the draft lacks a field ({error}); the released layout names all of them"
        ) from None
    _check_numbers(parsed)
    return parsed


def _check_parts(kind: type, flat: dict) -> None:
    """Raise CheckpointError for a part that a config asks for and that is not drafted here."""
    layer_types = set(flat.get("layer_types") or ())
    if layer_types - {"full_attention"}:
        raise CheckpointError(
            f"this draft has layers of type {sorted(layer_types)}; only full_attention is drafted here"
        )
    for field, reason in (GEMMA4_PARTS if kind is Gemma4DSpark else QWEN3_PARTS).items():
        if flat.get(field):
            raise CheckpointError(f"this draft has {field} {flat[field]}; {reason}")
    if kind is not Gemma4DSpark and flat.get("hidden_act", "silu") != "silu":
        raise CheckpointError(
            f"this draft has the activation {flat['hidden_act']!r}; only silu is drafted here"
        )
    if not issubclass(kind, DSpark) and flat.get("num_hidden_layers", 1) != 1:
        raise CheckpointError(
            f"this draft has {flat['num_hidden_layers']} layers; a {kind.architecture} is drafted here with one"
        )


def _positions(kind: type, flat: dict) -> dict:
    """Return `rope_theta`, and `rope_scaling` for positions that are scaled; for Gemma 4
    `partial_rotary_factor`.

    transformers writes the base in two places. Raise CheckpointError if they disagree, and for
    positions that are scaled otherwise than SCALINGS.
    """
    rope, older = flat.get("rope_parameters") or {}, flat.get("rope_scaling") or {}
    positions = {}
    if kind is Gemma4DSpark:
        rope = rope.get("full_attention") or rope
        scalings, allowed = (rope.get("rope_type"),), ("proportional", "default")
        positions["partial_rotary_factor"] = rope.get("partial_rotary_factor", 1.0)
    else:
        scalings = (rope.get("rope_type"), older.get("rope_type"), older.get("type"))
        allowed = (None, "default", *SCALINGS)
    for scaling in scalings:
        if scaling not in allowed:
            embeddings = " or ".join(f"{name}" for name in allowed if name)
            raise CheckpointError(
                f"this draft scales its positions ({scaling}); a {kind.architecture} is drafted here with the {embeddings} "
                "rotary embedding"
            )
    theta, newer = flat.get("rope_theta"), rope.get("rope_theta")
    if theta and newer and theta != newer:
        raise CheckpointError(
            f"config.json of the draft names two bases of its rotary embedding, rope_theta {theta} and, in rope_parameters, "
            f"{newer}; it must name one"
        )
    return positions | {"rope_theta": theta or newer, "rope_scaling": _scaling(rope, older)}


def _scaling(*sections: dict) -> dict | None:
    """Return the fields of scaled positions from the first section that has them."""
    for section in sections:
        kind = section.get("rope_type") or section.get("type")
        if kind in SCALINGS:
            left_out = ("type", "rope_theta")
            fields = {name: value for name, value in section.items() if name not in left_out}
            factor = section.get("factor")
            if type(factor) not in (int, float) or factor <= 0:
                raise CheckpointError(
                    f"this draft scales its positions ({kind}) by the factor {factor!r}; it must be a number above 0"
                )
            return {**fields, "rope_type": kind}
    return None


def _gemma4_sizes(flat: dict) -> dict:
    """Return the sizes of Gemma 4's full-attention layers, under the names of other drafts."""
    sizes = {"head_dim": flat.get("global_head_dim") or flat.get("head_dim")}
    if flat.get("attention_k_eq_v") and flat.get("num_global_key_value_heads"):
        sizes["num_key_value_heads"] = flat["num_global_key_value_heads"]
    return sizes


def _heads(flat: dict) -> dict:
    """Return the fields of a block draft's heads that a config may leave out.

    Without `sample_from_anchor` the anchor's slot predicts, as in every draft that DeepSpec trains.
    Raise CheckpointError for a head that is not drafted here.
    """
    anchor = flat.get("sample_from_anchor", True)
    rank, head = flat.get("markov_rank") or 0, flat.get("markov_head_type") or "vanilla"
    if not isinstance(anchor, bool):
        raise CheckpointError(
            f"sample_from_anchor of this draft is {anchor!r}; it must be true (the anchor's slot predicts) or false (it does not)"
        )
    if head not in SEQUENTIAL_HEADS:
        raise CheckpointError(
            f"this draft has a sequential head of type {head!r}; heads are {', '.join(SEQUENTIAL_HEADS)}"
        )
    if not anchor and rank and head == "rnn":
        raise CheckpointError(
            "this draft has an RNN head and does not predict from its anchor slot (sample_from_anchor: false); no format "
            "defines where its state starts in that layout; use a Markov or a gated head"
        )
    if flat.get("block_size") == 1 and not anchor:
        raise CheckpointError(
            "this draft has blocks of one slot, the anchor's, which does not predict (sample_from_anchor: false); such a block "
            "needs at least two slots"
        )
    return {
        "sample_from_anchor": anchor,
        "markov_rank": rank,
        "markov_head_type": head,
        "enable_confidence_head": bool(flat.get("enable_confidence_head")),
        "confidence_head_with_markov": bool(flat.get("confidence_head_with_markov")) and rank > 0,
    }


def _vocabulary(flat: dict) -> dict:
    """Return `draft_vocab_size`: None if the draft has all of its target's ids.

    Raise CheckpointError if it has more.
    """
    outputs, ids = flat.get("draft_vocab_size"), flat.get("vocab_size")
    if outputs and ids and outputs > ids:
        raise CheckpointError(
            f"this draft draws from {outputs} ids of {ids}; draft_vocab_size is at most vocab_size"
        )
    return {"draft_vocab_size": None if outputs == ids else outputs}


def _check_numbers(config: DraftConfig) -> None:
    """Raise CheckpointError for a field of another type or range than it must have."""
    for field in fields(config):
        name, value, minimum = field.name, getattr(config, field.name), MINIMUMS.get(field.name, 1)
        whole = field.type is int or field.type == int | None and value is not None
        if whole and (type(value) is not int or value < minimum):
            raise CheckpointError(
                f"{name} of the draft is {value!r}; it must be a whole number, {minimum} or more"
            )
        if field.type is float and (
            type(value) not in (int, float) or not (value > 0 or value == 0 and name in MAY_BE_ZERO)
        ):
            raise CheckpointError(f"{name} of the draft is {value!r}; it must be a positive number")
    taps = config.target_layer_ids
    if not taps or any(type(layer) is not int for layer in taps):
        raise CheckpointError(
            f"target_layer_ids of the draft is {list(taps)}; it must be a list of whole numbers"
        )
    if config.head_dim % 2 or config.num_attention_heads % config.num_key_value_heads:
        raise CheckpointError(
            f"the draft has heads of size {config.head_dim}, {config.num_attention_heads} of queries and "
            f"{config.num_key_value_heads} of keys; sizes are even, and the heads of keys divide those of queries"
        )
