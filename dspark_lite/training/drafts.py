"""Trains a drafter (DSpark, DFlash, Eagle3, MTP) on the target's own answers (paper, section 3.3)."""

import math
import shutil
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from ..common.errors import CheckpointError, DSparkLiteError
from ..common.files import write_atomically, write_json
from ..common.fingerprint import fingerprint
from ..drafters import MTP, DraftConfig, DSpark, Eagle3
from ..models.checkpoints import check_pair, load_drafter
from ..models.draft_config import parse_draft_config
from ..models.weights import of_target
from .blocks import TrainingBatch, block_loss, draw_anchors
from .cache import OnlineFeatures, TargetCache
from .loop import (
    Allowance,
    Plan,
    autocast,
    by_length,
    forget_others,
    optimise,
    precision_on,
    processes,
)
from .recipe import DraftRecipe, digest_of
from .unrolled import eagle3_loss, mtp_loss

RESIDUAL = ("o_proj", "down_proj")  # what adds to the residual stream
MARKOV_DEVIATION = 0.3  # of a sequential head's first matrix
ANSWERING = 0.4  # share of a bounded time after which no more answers are begun
DECAY_SHARE = 0.25  # updates, as a share of a pass, over which a branch's rates fall where a recipe has `patience`


# The heads that a recipe may train alone, on a frozen backbone.
TRAINED_HEADS = (
    "markov_head",
    "confidence_head",
)
# The class and the loss of each objective.
OBJECTIVES = {
    "block": (DSpark, block_loss),
    "eagle3": (Eagle3, eagle3_loss),
    "mtp": (MTP, mtp_loss),
}


def objective(recipe: DraftRecipe | dict):
    """The drafter class and the loss that a recipe asks for."""
    return OBJECTIVES[DraftRecipe.of(recipe).config.drafter]


def draft_config(
    recipe: DraftRecipe | dict, target, kind: type | None = None, **fields
) -> DraftConfig:
    """The config of the drafter that a recipe asks for beside this target. A class `kind` takes the place of the recipe's, and `fields` are
    those of its config that a recipe does not know. Raise CheckpointError or DSparkLiteError for one that could not be drafted with, or is
    not trained here."""
    recipe, source = DraftRecipe.of(recipe), target.config
    kind = kind or objective(recipe)[0]
    inherited = {
        name: getattr(source, name)
        for name in (
            "vocab_size",
            "hidden_size",
            "intermediate_size",
            "num_attention_heads",
            "num_key_value_heads",
            "head_dim",
            "rms_norm_eps",
            "rope_parameters",
        )
    }
    # Checked as a config.json is: the class's own fields, whatever else the target's config says.
    config = replace(
        parse_draft_config(
            kind, {**inherited, "num_target_layers": target.num_layers, **recipe.config.given()}
        ),
        **fields,
    )
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


def new_draft(recipe: DraftRecipe | dict, target, kind: type | None = None, **fields):
    """The drafter as its training begins, of this `draft_config`: random, or the recipe's `initial`; embedding and LM head are the
    target's, frozen."""
    recipe, source = DraftRecipe.of(recipe), target.config
    config = draft_config(recipe, target, kind, **fields)
    with seeded(recipe.seed):
        drafter = (kind or objective(recipe)[0])(config)
        if recipe.initialisation == "width":
            initialise(drafter, config.num_hidden_layers)
        else:
            _begin_anew(drafter, source.initializer_range)
    if recipe.initial:
        _begin_from(drafter, recipe.initial, target, new_heads=recipe.trained == "heads")
    if recipe.trained:
        freeze_backbone(drafter, target.dtype)
    drafter.to(target.device)
    for name, theirs in of_target(target).items():
        # Shared where no number changes: a 16-bit target's are copied, because what is trained computes in float32.
        held = theirs.to(drafter.get_parameter(name).dtype)
        drafter.get_submodule(name.removesuffix(".weight")).weight = torch.nn.Parameter(
            held, requires_grad=False
        )
    return drafter


@contextmanager
def seeded(seed: int, device: torch.device | None = None):
    """Start torch's global generators of the CPU and of a GPU `device` from `seed`. Afterwards they go on
    as if nothing had been drawn: a notebook's random numbers do not depend on what was trained."""
    gpus = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(gpus):
        torch.default_generator.manual_seed(seed)
        for gpu in gpus:
            with torch.cuda.device(gpu):
                torch.cuda.manual_seed(seed)
        yield


def _begin_anew(drafter, deviation: float) -> None:
    """Random weights; a sequential head begins without a say and learns the transitions."""
    for module in drafter.modules():
        if isinstance(module, (torch.nn.Linear, torch.nn.Embedding)):
            torch.nn.init.normal_(module.weight, std=deviation)
    if getattr(drafter, "markov_head", None) is not None:
        torch.nn.init.zeros_(drafter.markov_head.markov_w2.weight)


def _begin_from(drafter, name: str, target, new_heads: bool) -> None:
    """The weights of a trained drafter, which may have another block size and, with `new_heads`, lack heads: those stay as they
    are. Raise CheckpointError where the rest differs."""
    weights = load_drafter(name, target).state_dict()
    for head in TRAINED_HEADS if new_heads else ():
        if not any(map(_within(head), weights)):
            weights |= {
                key: value for key, value in drafter.state_dict().items() if _within(head)(key)
            }
    try:
        drafter.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(
            f"{name} cannot be trained on as this recipe's drafter ({' '.join(str(error).split())}); only "
            "the block size may differ"
        ) from None


def _within(head: str):
    """Say of a parameter's name whether it is one of the head's."""
    return lambda name: name.startswith(f"{head}.")


def freeze_backbone(drafter, dtype: torch.dtype) -> None:
    """Leave nothing to be trained but the heads, and convert the rest to the number format `dtype`, the target's, so that what is
    the target's is shared. Raise DSparkLiteError for a draft without a head."""
    for name, parameter in drafter.named_parameters():
        parameter.requires_grad_(any(_within(head)(name) for head in TRAINED_HEADS))
        if not parameter.requires_grad:
            parameter.data = parameter.data.to(dtype)
    if not any(parameter.requires_grad for parameter in drafter.parameters()):
        raise DSparkLiteError(
            "the recipe trains the heads alone and its draft has none; give its config a markov_rank or a confidence head"
        )


class Rows:
    """The rows of a cache as a recipe uses them: those learned from, in batches, and the last ones, which are held out."""

    def __init__(self, recipe: DraftRecipe | dict, cache: TargetCache | OnlineFeatures):
        self.recipe, self.cache = DraftRecipe.of(recipe), cache
        self.kind, _ = objective(self.recipe)
        held_out = self.recipe.data.held_out if self.recipe.data else 0
        learned = len(cache.rows) - held_out
        if learned < 1:
            raise DSparkLiteError(
                f"the recipe holds out {held_out} of {len(cache.rows)} answers, which leaves none to "
                "learn from; hold out fewer"
            )
        self.held_out = range(learned, len(cache.rows))
        self.updates_a_pass = math.ceil(learned / self.recipe.batch)
        # One pass more than the most there are: a branch reads the beginning of the next.
        passes = self.recipe.epochs + (self.recipe.patience is not None)
        batches = [
            batch
            for epoch in range(passes)
            for batch in self._batches(range(learned), self.recipe.seed * 1_000_003 + epoch)
        ]
        self.batches = batches[: self.recipe.steps]

    def _batches(self, rows: range, seed: int) -> list[list[int]]:
        return by_length(
            list(rows), self.recipe.batch, seed, lambda index: len(self.cache.rows[index][0])
        )

    def at(self, step: int) -> TrainingBatch:
        """The batch of an update, its anchors drawn anew, on the CPU: a resumed run sees what it would have seen."""
        return self._batch(self.batches[step], self.recipe.seed * 1_000_003 + step)

    def held_out_batches(self) -> list[TrainingBatch]:
        """The rows held out, with the same anchors every time."""
        return [
            self._batch(rows, index) for index, rows in enumerate(self._batches(self.held_out, 0))
        ]

    def _batch(self, rows: list[int], seed: int) -> TrainingBatch:
        ids, supervised, features, last_hidden = self.cache.batch(rows, "cpu")
        # Blocks start at some random anchors of each row or at all there are, chains always at all.
        count = int(supervised.sum(1).max())
        if issubclass(self.kind, DSpark):
            count = min(count, self.recipe.config.num_anchors or count)
        anchors, valid = draw_anchors(supervised, count, torch.Generator().manual_seed(seed))
        return TrainingBatch(ids, supervised, features, last_hidden, anchors, valid)


def check_end(recipe: DraftRecipe, allowance: Allowance | None) -> None:
    """Raise DSparkLiteError where a recipe's `patience`, which says when its training ends, cannot do so."""
    if recipe.patience is None:
        return
    if allowance is not None or recipe.steps is not None or processes().num_processes > 1:
        raise DSparkLiteError(
            f"recipe {recipe.name} has a patience, which says when the training ends, in one process; leave it out, or else "
            '--minutes, "steps" and further processes'
        )
    if not recipe.data.held_out:
        raise DSparkLiteError(
            f'recipe {recipe.name} has a patience and holds no answers out to judge by; give its data a "held_out"'
        )


def train_draft(
    recipe: DraftRecipe | dict,
    target,
    cache: TargetCache | OnlineFeatures,
    folder: Path,
    allowance: Allowance | None = None,
    kind: type | None = None,
    **fields,
):
    """Train the drafter that `recipe` describes, or one of a class `kind`, over the rows, within the time allowed. Resume from `folder`,
    unless what was saved there is of another recipe, class, target or initial checkpoint."""
    recipe = DraftRecipe.of(recipe)
    check_end(recipe, allowance)
    drafter, device = new_draft(recipe, target, kind, **fields), target.device
    _, loss = objective(recipe)
    rows, precision = Rows(recipe, cache), precision_on(device, recipe.precision)
    other = [kind.__name__, fields] if kind else []  # what takes the place of the recipe's
    # What is trained on what; a fingerprint is a digest of every number of a model.
    identity = digest_of(
        [
            recipe.digest,
            fingerprint(target),
            fingerprint(drafter) if recipe.initial else None,
            *other,
        ]
    )

    def batch_at(step: int):
        return tuple(tensor.to(device) for tensor in rows.at(step))

    def loss_of(batch, progress: float):
        with autocast(device, precision):
            return loss(drafter, TrainingBatch(*batch), recipe.loss, progress)

    def learn(plan: Plan, place: Path):
        optimise(drafter, batch_at, loss_of, plan, place, title=recipe.name, identity=identity)

    forget_others(folder, identity)
    plan = Plan(
        len(rows.batches),
        recipe.learning_rate,
        recipe.matrix_rate,
        precision=precision,
        allowance=allowance,
        window=(ANSWERING, 1.0),
    )
    if recipe.patience is None:
        learn(plan, folder)
    else:
        _learn_passes(learn, plan, rows, folder, lambda: held_out_losses(drafter, recipe, cache))
    return drafter.eval()


def _learn_passes(learn, plan: Plan, rows: Rows, folder: Path, measure) -> None:
    """Train until a further pass lowers the loss on the rows held out by less than the share `patience`, for `epochs` passes at
    most; the drafter is left as it was at the lowest of these losses, which held_out.json lists by pass.

    Losses after different numbers of passes can be compared only where the rates have come down: with a cosine that would be a
    training of its own for each number. So the rates of one trunk stay constant, and after each pass a branch of it lets them
    fall linearly over DECAY_SHARE of a pass. It gives the drafter that a training planned for so many passes would give (the
    schedule warm-up, stable, decay: Hu et al. 2024, MiniCPM; Hägele et al. 2024). Four passes cost five, where trainings of 1, 2
    and 4 passes cost seven. The loss takes its final form within the first pass, whose share is the progress.
    """
    recipe, a_pass, losses = rows.recipe, rows.updates_a_pass, []
    decay = max(1, round(DECAY_SHARE * a_pass))
    for passes in range(1, recipe.epochs + 1):
        trunk, branch = (
            folder / name / "progress.safetensors" for name in ("trunk", f"pass_{passes}")
        )
        if not branch.exists():
            learn(replace(plan, steps=passes * a_pass, span=a_pass, decay=0), trunk.parent)
            for name in ("log.jsonl", trunk.name):
                write_atomically(
                    branch.with_name(name), partial(shutil.copyfile, trunk.with_name(name))
                )
        learn(replace(plan, steps=passes * a_pass + decay, span=a_pass, decay=decay), branch.parent)
        losses.append(measure())
        write_json(folder / "held_out.json", {"passes": losses})
        if passes > 1 and losses[-1]["loss"] > (1 - recipe.patience) * losses[-2]["loss"]:
            break
    best = min(range(len(losses)), key=lambda index: losses[index]["loss"]) + 1
    # This training has ended, so it is only loaded.
    learn(
        replace(plan, steps=best * a_pass + decay, span=a_pass, decay=decay),
        folder / f"pass_{best}",
    )


@torch.no_grad()
def held_out_losses(drafter, recipe: DraftRecipe | dict, cache: TargetCache) -> dict[str, float]:
    """The final losses, each and as "loss" with the recipe's factors, on the rows that the recipe holds out."""
    recipe = DraftRecipe.of(recipe)
    _, loss = objective(recipe)
    device, totals, weight = drafter.embed_tokens.weight.device, {}, 0.0
    with autocast(device, precision_on(device, recipe.precision)):
        for batch in Rows(recipe, cache).held_out_batches():
            numerator, share, terms = loss(
                drafter, TrainingBatch(*(tensor.to(device) for tensor in batch)), recipe.loss, 1.0
            )
            for name, value in {"loss": numerator, **terms}.items():
                totals[name] = totals.get(name, 0.0) + float(value)
            weight += float(share)
    return {name: value / weight for name, value in totals.items()}


def initialise(model: nn.Module, layers: int) -> None:
    """Draw every weight anew with deviation 1/sqrt(inputs); those that add to the residual stream are divided by
    sqrt(2 * layers), so that the stream does not grow with depth.

    An embedding is drawn as the LM head that reads its rows. A sequential head begins without a say, since its second
    matrix is zero; the first is large enough for the second to have a gradient at once.
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
