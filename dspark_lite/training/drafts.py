"""Trains a drafter (DSpark, DFlash, Eagle3, MTP) on the target's own answers (paper, section 3.3)."""

from pathlib import Path

import torch

from ..checkpoints import load_drafter, of_target, parse_draft_config
from ..drafters import MTP, DSpark, Eagle3
from ..errors import CheckpointError, DSparkLiteError
from .anchors import block_mask, draw_anchors
from .cache import TargetCache
from .language_model import by_length
from .loop import Plan, optimise
from .losses import block_losses, training_forward
from .precision import autocast, precision_on
from .unrolled import eagle3_loss, mtp_loss


def block_loss(drafter: DSpark, batch, recipe: dict) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """The three losses of packed blocks with the factors of recipe["loss"]."""
    ids, supervised, features, last_hidden, anchors, valid = batch
    mask = block_mask(anchors, ids.shape[1], drafter.gamma)
    logits, confidence, tokens, counted, before = training_forward(drafter, features, ids, supervised, anchors, valid, mask)
    with torch.no_grad():
        # The LM head is the target's own, applied at the sampled positions only: logits are never stored.
        target_logits = drafter.lm_head(last_hidden[torch.arange(len(ids), device=ids.device)[:, None, None], before])
    losses = block_losses(logits, target_logits, tokens, counted, confidence)
    terms = {name: getattr(losses, name) for name in ("cross_entropy", "l1", "confidence")}
    return sum(recipe["loss"][name] * term for name, term in terms.items()), losses.weight, terms


OBJECTIVES = {"block": (DSpark, block_loss), "eagle3": (Eagle3, eagle3_loss), "mtp": (MTP, mtp_loss)}  # name: (class, loss)


def objective(recipe: dict):
    """The drafter class and the loss that a recipe asks for; raises DSparkLiteError for an unknown one."""
    name = recipe["config"].get("drafter", "block")
    if name not in OBJECTIVES:
        raise DSparkLiteError(f"the recipe's drafter is {name!r}; it must be one of {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]


def new_draft(recipe: dict, target):
    """The drafter as its training begins: random, or the recipe's `initial`; embedding and LM head are the target's, frozen."""
    kind, _ = objective(recipe)
    torch.manual_seed(recipe["seed"])
    source = target.config
    inherited = {name: getattr(source, name) for name in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads",
                                                          "num_key_value_heads", "head_dim", "rms_norm_eps", "rope_parameters")}
    config = parse_draft_config(kind, {**inherited, "num_target_layers": target.num_layers, **recipe["config"]})
    if kind is DSpark and not config.sample_from_anchor:
        raise DSparkLiteError("the recipe asks for blocks whose anchor slot does not predict (sample_from_anchor: false); such drafts are read, "
                              "but only those that predict from it are trained here")
    drafter = kind(config)
    if "initial" in recipe:
        _begin_from(drafter, recipe["initial"], target)
    else:
        _begin_anew(drafter, source.initializer_range)
    drafter.to(target.device)
    for name, theirs in of_target(target).items():
        # Shared where no number changes: a 16-bit target's are copied, because what is trained computes in float32.
        held = theirs.to(drafter.get_parameter(name).dtype)
        drafter.get_submodule(name.removesuffix(".weight")).weight = torch.nn.Parameter(held, requires_grad=False)
    return drafter


def _begin_anew(drafter, deviation: float) -> None:
    """Random weights; a sequential head begins without a say and learns the transitions."""
    for module in drafter.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            torch.nn.init.normal_(module.weight, std=deviation)
    if getattr(drafter, "markov_head", None) is not None:
        torch.nn.init.zeros_(drafter.markov_head.markov_w2.weight)


def _begin_from(drafter, name: str, target) -> None:
    """The weights of a trained drafter, which may have another block size; raises CheckpointError where the rest differs."""
    try:
        drafter.load_state_dict(load_drafter(name, target).state_dict())
    except RuntimeError as error:
        raise CheckpointError(f"{name} cannot be trained on as this recipe's drafter ({' '.join(str(error).split())}); only "
                              "the block size may differ") from None


def train_draft(recipe: dict, target, cache: TargetCache, folder: Path):
    """Trains the drafter that `recipe` describes over the cached rows; resumes from `folder`."""
    drafter, device = new_draft(recipe, target), target.device
    kind, loss = objective(recipe)
    precision = precision_on(device, recipe["precision"])
    batches = [batch for epoch in range(recipe["epochs"])
               for batch in by_length(list(range(len(cache.rows))), recipe["batch"], recipe["seed"] + epoch, lambda index: len(cache.rows[index][0]))]

    def batch_at(step: int):
        generator = torch.Generator().manual_seed(recipe["seed"] * 1_000_003 + step)
        ids, supervised, features, last_hidden = cache.batch(batches[step], "cpu")
        # Blocks start at a few random anchors of each row, chains at all there are.
        count = recipe["config"]["num_anchors"] if kind is DSpark else int(supervised.sum(1).max())
        anchors, valid = draw_anchors(supervised, count, generator)
        return tuple(tensor.to(device) for tensor in (ids, supervised, features, last_hidden, anchors, valid))

    def loss_of(batch):
        with autocast(device, precision):
            return loss(drafter, batch, recipe)

    plan = Plan(steps=len(batches), learning_rate=recipe["learning_rate"], precision=precision)
    optimise(drafter, batch_at, loss_of, plan, folder, title=recipe["name"])
    return drafter.eval()
