"""Trains a drafter (DSpark, DFlash, Eagle3, MTP) on the target's own answers (paper, section 3.3)."""

from pathlib import Path

import torch

from ..common.errors import CheckpointError, DSparkLiteError
from ..drafters import MTP, DSpark, Eagle3, FirstLayerContext
from ..models.checkpoints import load_drafter
from ..models.weights import of_target
from ..models.draft_config import parse_draft_config
from .acceptance_loss import acceptance_loss
from .allowance import Allowance
from .anchors import TrainingBatch, block_mask, draw_anchors
from .cache import TargetCache
from .initialisation import initialise
from .loop import Plan, by_length, optimise
from .losses import DECAY, block_losses, loss_factors, training_forward
from .online import OnlineFeatures
from .precision import autocast, precision_on
from .unrolled import eagle3_loss, mtp_loss


def block_loss(drafter: DSpark, batch: TrainingBatch, recipe: dict) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """The three losses of packed blocks, and direct acceptance where it is asked for, with the factors of recipe["loss"]."""
    ids, supervised, features, last_hidden, anchors, valid, progress = batch
    mask = block_mask(anchors, ids.shape[1], drafter.gamma)
    blocks = training_forward(drafter, features, ids, supervised, anchors, valid, mask)
    with torch.no_grad():
        # The LM head is the target's own, applied at the sampled positions only: logits are never stored.
        rows = torch.arange(len(ids), device=ids.device)[:, None, None]
        target_logits = drafter.lm_head(last_hidden[rows, blocks.target_position])
    decay = recipe["loss"].get("position_decay", DECAY)
    losses = block_losses(blocks.logits, target_logits, blocks.tokens, blocks.loss_mask, blocks.confidence_logits, decay)
    # The same in every row; a process may have none of a small batch.
    factors = loss_factors(recipe["loss"], progress.mean().nan_to_num().item())
    terms = {name: getattr(losses, name) for name in factors if name != "acceptance"}
    if "acceptance" in factors:
        terms["acceptance"] = acceptance_loss(blocks.logits, target_logits, blocks.loss_mask, decay)
    return sum(factors[name] * term for name, term in terms.items()), losses.weight, terms


TRAINED_HEADS = ("markov_head", "confidence_head")  # what a recipe may train alone, on a backbone that stays as it is
OBJECTIVES = {"block": (DSpark, block_loss), "block, context in the first layer": (FirstLayerContext, block_loss),  # name: (class, loss)
              "eagle3": (Eagle3, eagle3_loss), "mtp": (MTP, mtp_loss)}


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
    if issubclass(kind, DSpark) and not config.sample_from_anchor:
        raise DSparkLiteError("the recipe asks for blocks whose anchor slot does not predict (sample_from_anchor: false); such drafts are read, "
                              "but only those that predict from it are trained here")
    if "trained" in recipe and (recipe["trained"] != "heads" or "initial" not in recipe):
        raise DSparkLiteError(f"the recipe trains {recipe['trained']!r}; it may leave \"trained\" out, or train \"heads\" on the backbone of an "
                              "\"initial\" draft")
    drafter = kind(config)
    if recipe.get("initialisation") == "width":
        initialise(drafter, config.num_hidden_layers)
    else:
        _begin_anew(drafter, source.initializer_range)
    if "initial" in recipe:
        _begin_from(drafter, recipe["initial"], target, new_heads="trained" in recipe)
    if "trained" in recipe:
        freeze_backbone(drafter, target.dtype)
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


def _begin_from(drafter, name: str, target, new_heads: bool) -> None:
    """The weights of a trained drafter, which may have another block size and, with `new_heads`, lack heads: those stay as they
    are. Raises CheckpointError where the rest differs."""
    weights = load_drafter(name, target).state_dict()
    for head in TRAINED_HEADS if new_heads else ():
        if not any(map(_within(head), weights)):
            weights |= {key: value for key, value in drafter.state_dict().items() if _within(head)(key)}
    try:
        drafter.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"{name} cannot be trained on as this recipe's drafter ({' '.join(str(error).split())}); only "
                              "the block size may differ") from None


def _within(head: str):
    """Says of a parameter's name whether it is one of the head's."""
    return lambda name: name.startswith(f"{head}.")


def freeze_backbone(drafter, dtype: torch.dtype) -> None:
    """Leaves nothing to be trained but the heads, and holds the rest in the number format `dtype`, the target's, so that what is
    the target's is shared. Raises DSparkLiteError for a draft without a head."""
    for name, parameter in drafter.named_parameters():
        parameter.requires_grad_(any(_within(head)(name) for head in TRAINED_HEADS))
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    if not any(parameter.requires_grad for parameter in drafter.parameters()):
        raise DSparkLiteError("the recipe trains the heads alone and its draft has none; give its config a markov_rank or a confidence head")


class Rows:
    """The rows of a cache as a recipe uses them: those learned from, in batches, and the last ones, which are held out."""

    def __init__(self, recipe: dict, cache: TargetCache | OnlineFeatures):
        self.recipe, self.cache = recipe, cache
        self.kind, _ = objective(recipe)
        held_out = recipe.get("data", {}).get("held_out", 0)
        learned = len(cache.rows) - held_out
        if learned < 1:
            raise DSparkLiteError(f"the recipe holds out {held_out} of {len(cache.rows)} answers, which leaves none to "
                                  "learn from; hold out fewer")
        self.held_out = range(learned, len(cache.rows))
        batches = [batch for epoch in range(recipe["epochs"]) for batch in self._batches(range(learned), recipe["seed"] + epoch)]
        self.batches = batches[:recipe.get("steps", len(batches))]

    def _batches(self, rows: range, seed: int) -> list[list[int]]:
        return by_length(list(rows), self.recipe["batch"], seed, lambda index: len(self.cache.rows[index][0]))

    def at(self, step: int) -> TrainingBatch:
        """The batch of a step, drawn on the CPU: a resumed run sees what it would have seen."""
        return self._batch(self.batches[step], self.recipe["seed"] * 1_000_003 + step, step / len(self.batches))

    def held_out_batches(self) -> list[TrainingBatch]:
        """The rows held out, with the same anchors every time."""
        return [self._batch(rows, index, 1.0) for index, rows in enumerate(self._batches(self.held_out, 0))]

    def _batch(self, rows: list[int], seed: int, progress: float) -> TrainingBatch:
        ids, supervised, features, last_hidden = self.cache.batch(rows, "cpu")
        # Blocks start at some random anchors of each row or at all there are, chains always at all.
        count = int(supervised.sum(1).max())
        if issubclass(self.kind, DSpark):
            count = min(count, self.recipe["config"]["num_anchors"])
        anchors, valid = draw_anchors(supervised, count, torch.Generator().manual_seed(seed))
        return TrainingBatch(ids, supervised, features, last_hidden, anchors, valid, torch.full((len(ids),), progress))


def train_draft(recipe: dict, target, cache: TargetCache | OnlineFeatures, folder: Path, allowance: Allowance | None = None):
    """Trains the drafter that `recipe` describes over the rows, within the time allowed; resumes from `folder`."""
    drafter, device = new_draft(recipe, target), target.device
    _, loss = objective(recipe)
    rows, precision = Rows(recipe, cache), precision_on(device, recipe["precision"])

    def batch_at(step: int):
        return tuple(tensor.to(device) for tensor in rows.at(step))

    def loss_of(batch):
        with autocast(device, precision):
            return loss(drafter, TrainingBatch(*batch), recipe)

    plan = Plan(steps=len(rows.batches), learning_rate=recipe["learning_rate"], matrix_rate=recipe.get("matrix_rate"), precision=precision,
                allowance=allowance)
    optimise(drafter, batch_at, loss_of, plan, folder, title=recipe["name"])
    return drafter.eval()


@torch.no_grad()
def held_out_losses(drafter, recipe: dict, cache: TargetCache) -> dict[str, float]:
    """The final losses, each and as "loss" with the recipe's factors, on the rows that the recipe holds out."""
    _, loss = objective(recipe)
    device, totals, weight = drafter.embed_tokens.weight.device, {}, 0.0
    with autocast(device, precision_on(device, recipe["precision"])):
        for batch in Rows(recipe, cache).held_out_batches():
            numerator, share, terms = loss(drafter, TrainingBatch(*(tensor.to(device) for tensor in batch)), recipe)
            for name, value in {"loss": numerator, **terms}.items():
                totals[name] = totals.get(name, 0.0) + float(value)
            weight += float(share)
    return {name: value / weight for name, value in totals.items()}
