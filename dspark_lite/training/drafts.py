"""The drafter of a recipe before its first update: class, config, initial weights, and the loss
that trains it."""

from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from ..common.errors import CheckpointError, DSparkLiteError
from ..drafters import MTP, DraftConfig, DSpark, Eagle3
from ..models.checkpoints import check_pair, load_drafter
from ..models.draft_config import parse_draft_config
from ..models.weights import check_target_weights, target_weights
from .blocks import block_loss
from .chains import eagle3_loss, mtp_loss
from .recipe import DraftRecipe, without_nones

# The class and the loss of each kind of drafter.
OBJECTIVES = {
    "block": (DSpark, block_loss),
    "eagle3": (Eagle3, eagle3_loss),
    "mtp": (MTP, mtp_loss),
}
# The fields of a drafter's config that the target's config supplies.
INHERITED = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "rms_norm_eps",
    "rope_parameters",
)
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
    inherited = {name: getattr(target.config, name) for name in INHERITED}
    # The same checks as for a config.json, which ignore fields that the class does not have.
    config = parse_draft_config(
        kind, {**inherited, "num_target_layers": target.num_layers, **without_nones(recipe.config)}
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


def new_draft(recipe: DraftRecipe, target, kind: type | None = None, **fields):
    """Return a recipe's drafter before its first update, on the target's device; see `draft_config`
    for `kind` and `fields`.

    Weights are random or those of the recipe's `initial`. Embedding and LM head are the target's,
    and frozen. Raise as `draft_config` does, and CheckpointError if `initial` has another shape, and
    if the target's embedding or LM head is quantised or offloaded.
    """
    config = draft_config(recipe, target, kind, **fields)
    check_target_weights(target)
    with seeded(recipe.seed):
        drafter = (kind or class_and_loss(recipe)[0])(config)
        if recipe.initialisation == "width":
            initialise(drafter, config.num_hidden_layers)
        else:
            _initialise_as_target(drafter, target.config.initializer_range)
    if recipe.initial:
        _load_initial(drafter, recipe.initial, target, new_heads=recipe.trained == "heads")
    if recipe.trained:
        freeze_backbone(drafter, target.dtype)
    drafter.to(target.device)
    for name, theirs in target_weights(target).items():
        # Trained weights are float32. A float32 target shares its tensors, a 16-bit target's are
        # copied.
        weight = theirs.to(drafter.get_parameter(name).dtype)
        drafter.get_submodule(name.removesuffix(".weight")).weight = nn.Parameter(
            weight, requires_grad=False
        )
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

    With `new_heads` it may lack heads: the drafter keeps its own. Raise CheckpointError for any
    other difference.
    """
    weights = load_drafter(name, target).state_dict()
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
