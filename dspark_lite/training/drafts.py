"""The drafter of a recipe before its first update: class, config, initial weights, and the loss
that trains it."""

from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from ..common.errors import CheckpointError, DSparkLiteError
from ..drafters import MTP, DraftConfig, DSpark, Eagle3
from ..models.checkpoints import check_pair, load_drafter, rotary_parameters
from ..models.draft_config import SCALINGS, parse_draft_config
from ..models.short_vocabulary import shorten
from ..models.weights import check_target_weights, key_heads_and_size, target_weights
from .blocks import block_loss
from .chains import eagle3_loss, mtp_loss
from .recipe import DraftRecipe, without_nones

# The class and the loss of each kind of drafter.
OBJECTIVES = {
    "block": (DSpark, block_loss),
    "eagle3": (Eagle3, eagle3_loss),
    "mtp": (MTP, mtp_loss),
}
# Names under which families of targets have the sizes of their layers.
FEED_FORWARD = ("intermediate_size", "ffn_dim", "n_inner", "ffn_hidden_size")
NORM_EPSILON = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_eps", "norm_epsilon")
DEFAULT_TAPS = 5  # layers that a drafter reads unless the recipe names some, as the released drafts
# Fields of a config by which a target changes what its LM head returns.
HEAD_SCALES = ("logit_scale", "logits_scaling", "lm_head_multiplier", "output_multiplier_scale")
TRAINED_HEADS = ("markov_head", "confidence_head")  # a recipe with `trained` trains these alone
RESIDUAL = ("o_proj", "down_proj")  # layers that add to the residual stream
MARKOV_DEVIATION = 0.3  # of a sequential head's first matrix


def class_and_loss(recipe: DraftRecipe):
    """Return the drafter class and the loss function of a recipe."""
    return OBJECTIVES[recipe.config.drafter]


def draft_config(recipe: DraftRecipe, target, kind: type | None = None, **fields) -> DraftConfig:
    """Return the config of a recipe's drafter for `target`.

    A class `kind` replaces the recipe's class; `fields` set what only its config has. Raise
    CheckpointError if the pair cannot decode, and DSparkLiteError if the package cannot train such
    a drafter.
    """
    kind = kind or class_and_loss(recipe)[0]
    target.check_rollback()
    _check_head(target, kind)
    recipe = for_target(recipe, target)
    # The same checks as for a config.json, which ignore fields that the class does not have.
    config = parse_draft_config(
        kind,
        {
            **inherited_fields(target),
            "num_target_layers": target.num_layers,
            **without_nones(recipe.config),
        },
    )
    config = replace(config, **fields)
    if issubclass(kind, DSpark) and not config.sample_from_anchor:
        raise DSparkLiteError(
            "the recipe asks for blocks whose anchor slot does not predict (sample_from_anchor: false); such drafts are read, "
            "but only those that predict from it are trained here"
        )
    if recipe.trained and not recipe.initial:
        raise DSparkLiteError(
            'the recipe trains "heads" and has no draft to begin from; it may leave "trained" out, or train "heads" on the '
            'backbone of an "initial" draft'
        )
    check_pair(kind, config, target)
    return config


def inherited_fields(target) -> dict:
    """Return the fields of a drafter's config that the target's config supplies.

    A family that lacks a field gets what its layers amount to: GPT-2 has no key heads of its own,
    Bloom no rotary positions. Positions that are scaled in a way that drafts have not (dynamic,
    long) become plain ones of the same base.
    """
    config = target.config
    heads = config.num_attention_heads
    key_heads, size = key_heads_and_size(config)
    if size < 2 or size % 2:  # rotary positions turn pairs
        size = max(2, target.hidden_size // heads // 2 * 2)
    inner = _first_number(config, FEED_FORWARD) or 4 * target.hidden_size
    return {
        "vocab_size": target.vocab_size,
        "hidden_size": target.hidden_size,
        "intermediate_size": inner,
        "num_attention_heads": heads,
        "num_key_value_heads": key_heads,
        "head_dim": size,
        "rms_norm_eps": _first_number(config, NORM_EPSILON) or 1e-6,
        "rope_parameters": _rotary_parameters(target),
    }


def _first_number(config, names: tuple[str, ...]):
    """Return the first of these fields that is a number above 0, or None."""
    values = (getattr(config, name, None) for name in names)
    return next((value for value in values if isinstance(value, (int, float)) and value > 0), None)


def _rotary_parameters(target) -> dict:
    """Return the rotary parameters of a target's full-attention layers for its drafter."""
    rope = rotary_parameters(target)
    plain = {"rope_type": "default", "rope_theta": rope.get("rope_theta") or 10_000.0}
    if rope.get("rope_type") not in SCALINGS:
        return plain
    longest = rope.get("original_max_position_embeddings") or target.max_positions
    return {**rope, **plain, "rope_type": rope["rope_type"]} | {
        "original_max_position_embeddings": longest
    }


def for_target(recipe: DraftRecipe, target) -> DraftRecipe:
    """Return the recipe with taps and mask token: those that it names, else those that suit the
    target's depth and vocabulary. An MTP reads the last layer."""
    taps, mask = recipe.config.target_layer_ids, recipe.config.mask_token_id
    if taps is None:
        last = target.num_layers - 1
        taps = (last,) if recipe.config.drafter == "mtp" else default_taps(target.num_layers)
    if mask is None and recipe.config.drafter == "block":
        mask = spare_token(target)
    return replace(recipe, config=replace(recipe.config, target_layer_ids=taps, mask_token_id=mask))


def default_taps(layers: int) -> tuple[int, ...]:
    """Return up to DEFAULT_TAPS evenly spaced layers of a target with this many, from 1 to the
    third before the last; of a shallow target those that can be tapped, the embedding (-1) too."""
    first, last = (1, layers - 3) if layers > 4 else (-1, layers - 2)
    count = min(DEFAULT_TAPS, last - first + 1)
    if count == 1:
        return (first,)
    return tuple(round(first + index * (last - first) / (count - 1)) for index in range(count))


def spare_token(target) -> int:
    """Return a token id that a target never writes, for the mask of its drafter's blocks: the first
    id behind its tokenizer's, else its tokenizer's mask, padding or unknown token, else its last
    id."""
    tokenizer = target.tokenizer
    if tokenizer is None:
        return target.vocab_size - 1
    if len(tokenizer) < target.vocab_size:
        return len(tokenizer)
    names = ("mask_token_id", "pad_token_id", "unk_token_id")
    candidates = (getattr(tokenizer, name, None) for name in names)
    return next(
        (
            token
            for token in candidates
            if token is not None
            and token < target.vocab_size
            and token not in target.stop_token_ids
        ),
        target.vocab_size - 1,
    )


def _check_head(target, kind: type) -> None:
    """Raise CheckpointError for a target whose logits are not its LM head's product with the last
    hidden state: a draft learns from that product, block drafts and MTP also with a soft cap."""
    scales = {name: getattr(target.config, name, None) for name in HEAD_SCALES}
    changed = [f"{name} {scale}" for name, scale in scales.items() if scale not in (None, 1, 1.0)]
    if getattr(target.model.get_output_embeddings(), "bias", None) is not None:
        changed.append("a bias")
    cap = getattr(target.config, "final_logit_softcapping", None)
    if cap and kind is Eagle3:
        changed.append(f"a soft cap of {cap:g}")
    if changed:
        raise CheckpointError(
            f"the LM head of {target.name} has {' and '.join(changed)}, which {kind.__name__}'s has not; no such draft is trained for it"
        )


def new_draft(
    recipe: DraftRecipe,
    target,
    kind: type | None = None,
    vocabulary: torch.Tensor | None = None,
    **fields,
):
    """Return a recipe's drafter before its first update, on the target's device; see `draft_config`
    for `kind` and `fields`.

    Weights are random or those of the recipe's `initial`. Embedding and LM head are the target's,
    and frozen. A draft with a reduced vocabulary chooses among the ids `vocabulary` [U] (None: the
    first ones), unless `initial` has its own. Raise as `draft_config` does, and CheckpointError if `initial` has another shape, and
    if the target's embedding or LM head is quantised or offloaded.
    """
    config = draft_config(recipe, target, kind, **fields)
    check_target_weights(target)
    with seeded(recipe.seed):
        drafter = (kind or class_and_loss(recipe)[0])(config)
        if vocabulary is not None:
            drafter.d2t.copy_(vocabulary - torch.arange(len(vocabulary)))
        if recipe.initialisation == "width":
            initialise(drafter, config.num_hidden_layers)
        else:
            _initialise_as_target(drafter, getattr(target.config, "initializer_range", 0.02))
    if recipe.initial:
        _load_initial(drafter, recipe.initial, target, new_heads=recipe.trained == "heads")
    if recipe.trained:
        freeze_backbone(drafter, target.dtype)
    drafter.to(target.device)
    for name, theirs in target_weights(target).items():
        # Trained weights are float32. A float32 target shares its tensors, a 16-bit target's are
        # copied.
        weight = theirs.to(drafter.get_parameter(name).dtype)
        if name == "lm_head.weight" and drafter.d2t is not None:
            drafter.target_head, weight = weight, weight[drafter.output_ids]
        drafter.get_submodule(name.removesuffix(".weight")).weight = nn.Parameter(
            weight, requires_grad=False
        )
    drafter.max_positions = target.max_positions
    drafter.logit_softcap = getattr(target.config, "final_logit_softcapping", None)
    return drafter


@contextmanager
def seeded(seed: int, device: torch.device | None = None):
    """Seed torch's global generators of the CPU and of a GPU `device` inside a `with` block.

    Afterwards both generators continue as if the block had drawn nothing: a training does not
    change the random numbers of the notebook around it.
    """
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield


def initialise(model: nn.Module, layers: int) -> None:
    """Draw every weight of a model of `layers` layers anew, with deviation 1/sqrt(inputs).

    Layers that add to the residual stream get a deviation smaller by sqrt(2 * layers), so the
    stream does not grow with depth. An embedding has the deviation of an LM head that reads its
    rows. A sequential head starts at zero: its second matrix is zero, and its first is large enough
    to give the second a gradient at once.
    """
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            continue
        deviation = module.weight.shape[1] ** -0.5
        if name.rpartition(".")[2] in RESIDUAL:
            deviation /= (2 * layers) ** 0.5
        nn.init.normal_(module.weight, std=deviation)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
    head = getattr(model, "markov_head", None)
    if head is not None:
        nn.init.normal_(head.markov_w1.weight, std=MARKOV_DEVIATION)
        nn.init.zeros_(head.markov_w2.weight)


def _initialise_as_target(drafter, deviation: float) -> None:
    """Draw every weight with the target's deviation. A sequential head starts at zero."""
    for module in drafter.modules():
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=deviation)
    if getattr(drafter, "markov_head", None) is not None:
        nn.init.zeros_(drafter.markov_head.markov_w2.weight)


def _load_initial(drafter, name: str, target, new_heads: bool) -> None:
    """Load the weights of the trained drafter `name`, which may have another block size.

    With `new_heads` it may lack heads: the drafter keeps its own. Of a whole vocabulary the ids of
    a reduced one are taken. Raise CheckpointError for any
    other difference.
    """
    initial = load_drafter(name, target)
    if drafter.d2t is not None and getattr(initial, "d2t", None) is None:
        shorten(initial, drafter.output_ids)
    weights = initial.state_dict()
    for head in TRAINED_HEADS if new_heads else ():
        if not any(_in_head(key, head) for key in weights):
            weights |= {
                key: value for key, value in drafter.state_dict().items() if _in_head(key, head)
            }
    try:
        drafter.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"{name} cannot be trained on as this recipe's drafter ({' '.join(str(error).split())}); only "
            "the block size may differ"
        ) from None


def _in_head(parameter: str, head: str) -> bool:
    """Return whether a parameter of this name belongs to the head."""
    return parameter.startswith(f"{head}.")


def freeze_backbone(drafter, dtype: torch.dtype) -> None:
    """Freeze everything but the heads, and convert it to `dtype`, the target's, so that both share
    embedding and LM head.

    Raise DSparkLiteError for a draft without a head.
    """
    for name, parameter in drafter.named_parameters():
        parameter.requires_grad_(any(_in_head(name, head) for head in TRAINED_HEADS))
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    if not any(parameter.requires_grad for parameter in drafter.parameters()):
        raise DSparkLiteError(
            "the recipe trains the heads alone and its draft has none; give its config a markov_rank or a confidence head"
        )
