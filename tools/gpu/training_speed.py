"""How many updates a second a recipe's training makes, on rows of random hidden states: no answers and no cache are needed."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.timing import wall_seconds
from dspark_lite.drafters import DSpark
from dspark_lite.training.blocks import TrainingBatch, draw_anchors
from dspark_lite.training.devices import autocast, precision_on, processes
from dspark_lite.training.drafts import new_draft, objective
from dspark_lite.training.optimisers import make_optimisers
from dspark_lite.training.recipe import DraftRecipe
from dspark_lite.training.train import Objective, update


def random_batch(recipe: DraftRecipe, drafter, rows: int, tokens: int) -> TrainingBatch:
    """A batch of random hidden states on the drafter's device, every token of it supervised."""
    kind, _ = objective(recipe)
    weight = drafter.embed_tokens.weight
    ids = torch.randint(len(weight), (rows, tokens), device=weight.device)
    widths = len(drafter.taps) * weight.shape[1], weight.shape[1]
    features, last_hidden = (
        torch.randn(rows, tokens, width, device=weight.device) for width in widths
    )
    supervised = torch.ones_like(ids, dtype=torch.bool)
    anchors, valid = draw_anchors(
        supervised, recipe.config.num_anchors if issubclass(kind, DSpark) else tokens, None
    )
    return TrainingBatch(ids, supervised, features, last_hidden, anchors, valid)


def training_speed(
    recipe: DraftRecipe, target, *, rows: int, tokens: int, updates: int = 5
) -> dict:
    """Seconds of updates of a recipe's drafter on `rows` rows of `tokens` tokens, after one that warms up; `updates_per_second`
    of them, `batches_per_second` of batches as large as the recipe's, and bytes at the peak (None on a CPU).

    Raises DSparkLiteError where the memory does not hold them.
    """
    torch.manual_seed(recipe.seed)
    device, accelerator, (_, loss) = target.device, processes(), objective(recipe)
    precision = precision_on(device, recipe.precision)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        drafter = new_draft(replace(recipe, initial=None), target)
        batch = tuple(random_batch(recipe, drafter, rows, tokens))
        optimisers = make_optimisers(drafter, recipe.learning_rate, recipe.matrix_rate)
        scaler = torch.amp.GradScaler(device.type, enabled=precision == "float16")

        def loss_of(tensors, progress):
            with autocast(device, precision):
                return loss(drafter, TrainingBatch(*tensors), recipe.loss, progress)

        an_update = partial(
            update, accelerator, Objective(drafter, loss_of), optimisers, scaler, batch, 1.0
        )
        spent = [wall_seconds(an_update, device) for _ in range(updates + 1)][1:]
    except torch.OutOfMemoryError as error:
        raise DSparkLiteError(
            f"the memory does not hold an update of {recipe.name} on {rows} x {tokens} tokens "
            f"({str(error).splitlines()[0]})"
        ) from error
    each = float(np.median(spent))
    return {
        "recipe": recipe.name,
        "rows": rows,
        "tokens": tokens,
        "precision": precision,
        "seconds": spent,
        "updates_per_second": 1 / each,
        "batch": recipe.batch,
        "batches_per_second": rows / recipe.batch / each,
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    }
