"""What a training takes, to an order of magnitude, before it starts: disk, memory and hours.

Everything is counted from the recipe and the target's config: nothing is downloaded but the config,
nothing is run but a matrix product and a read of memory, which say how fast this device is.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from ...common.errors import CheckpointError
from ...common.timing import bytes_a_second
from ...models.checkpoints import (
    default_dtype,
    load_tokenizer,
    read_config,
    resolve,
    unloaded_target,
)
from ...models.hub import cached, fetch
from ...training.cache import token_bytes
from ...training.devices import operations_a_second, precision_on
from ...training.drafts import draft_config, for_target, inherited_fields
from ...training.plan import ANSWER_TIME_SHARE
from ...training.recipe import DraftRecipe
from ..formats import duration, size
from ..world.prompts import prompt_ids
from .answers import chunk_size, most_at_once

TINY_WORLD_TOKENS = 100  # of a prompt of the tiny world and its answer, on average
LAYER_SECONDS = 0.001  # of Python and kernel launches for a layer when a token is decoded


class Cost(NamedTuple):
    """The parameters of a training, and the cost of one sample in an update."""

    trained: int  # parameters of the drafter that are trained
    frozen: int  # those of its backbone if only the heads are trained
    tables: int  # those of an embedding with its LM head, always frozen
    target: int  # parameters of the target
    target_layers: int  # those of its layers alone
    activations: int  # bytes that are stored for the backward pass
    operations: int  # multiplications and additions, forward and backward


def cost(recipe: DraftRecipe, config: dict) -> Cost:
    """Return what a training by this recipe costs, for a target of this config: matrices alone.

    A weight takes two operations a slot forward and four backward, two of them for its gradient,
    which a frozen weight lacks. A slot is a token of a block, or a token in a pass of a chain. The
    losses store some copies of a slot's logits for the backward pass.
    """
    draft, tokens = recipe.config, sample_tokens(recipe)
    vocabulary, hidden = config["vocab_size"], config["hidden_size"]
    head_size = config.get("head_dim") or hidden // config["num_attention_heads"]
    heads = config["num_attention_heads"] + config["num_key_value_heads"]
    layer = 2 * hidden * head_size * heads + 3 * hidden * config["intermediate_size"]
    layers, table = draft.num_hidden_layers, vocabulary * hidden
    backbone = layers * layer + len(draft.target_layer_ids) * hidden**2
    outputs = draft.draft_vocab_size or vocabulary
    markov = (vocabulary + outputs) * (draft.markov_rank or 0)
    if draft.drafter == "block":
        slots, copies = (draft.num_anchors or tokens) * draft.block_size, 5
    else:
        slots, markov, copies = (draft.ttt_length or 1) * tokens, 0, 2
    whole = not recipe.trained  # or the heads alone
    # The LM head: our logits forward and backward, the target's forward.
    logits = 4 * outputs * hidden + 2 * table
    operations = slots * (3 * markov + (6 if whole else 2) * backbone + logits)
    inner = layers * (16 * hidden + 4 * config["intermediate_size"])
    target_layers = config["num_hidden_layers"] * layer
    return Cost(
        trained=markov + whole * backbone,
        frozen=(not whole) * backbone,
        tables=2 * table,
        target=target_layers + table * (1 if config.get("tie_word_embeddings") else 2),
        target_layers=target_layers,
        activations=4 * slots * (copies * vocabulary + whole * inner),
        operations=operations,
    )


def estimate(
    recipe: DraftRecipe, device: torch.device, processes: int = 1, minutes: float | None = None
) -> list[str]:
    """Return lines that say what a training takes on `processes` devices of this kind, and how it
    spends `minutes`.

    Raise CheckpointError if the target's config cannot be fetched, and as the training does for a
    target that it refuses. (A recipe's copy of the config holds sizes alone and is not checked.)
    """
    config = target_config(recipe)
    if config.get("architectures"):
        target = unloaded_target(recipe.target, config)
        draft_config(recipe, target)
        recipe, config = for_target(recipe, target), sizes_of(target)
    costs = cost(recipe, config)
    frozen = (costs.frozen + costs.tables) / 1e6
    lines = [
        f"{recipe.name}: {recipe.data.count:,} samples of {recipe.target}, {recipe.epochs} epochs, "
        f"{update_count(recipe):,} steps of {recipe.batch} samples",
        *cache_lines(recipe, config),
        f"drafter        about {costs.trained / 1e6:,.1f} M parameters trained, {frozen:,.1f} M frozen",
        memory_line(recipe, costs, device, processes),
        time_line(recipe, config, device, processes),
    ]
    if minutes is not None:
        lines.append(
            f"minutes        {minutes:g} in all runs together: no more answers are begun after "
            f"{ANSWER_TIME_SHARE * minutes:.3g}, no more updates after {minutes:g}; then the drafter is "
            "saved, and evaluated if the recipe says so"
        )
    return lines


def target_config(recipe: DraftRecipe) -> dict:
    """Return the target's config: the recipe's copy, or config.json of an embedded target, a folder
    or a Hub id.

    Raise CheckpointError if it cannot be fetched.
    """
    if recipe.target_config:
        return recipe.target_config
    try:
        return read_config(resolve(recipe.target, lambda name: fetch(name, ["config.json"])))
    except CheckpointError as error:
        raise CheckpointError(f'{error}, or give the recipe a "target_config"') from error


def sizes_of(target) -> dict:
    """Return the sizes of a target's layers, as a config.json names them, whatever its family."""
    return {
        **inherited_fields(target),
        "num_hidden_layers": target.num_layers,
        "tie_word_embeddings": getattr(target.config, "tie_word_embeddings", False),
    }


def with_own_prompts(recipe: DraftRecipe) -> DraftRecipe:
    """Return the recipe with the number of prompts that its file or folder holds.

    Raise DSparkLiteError as the training does if these are refused. Nothing is downloaded: a data
    set on the Hub, or for a target that is not here, is not read.
    """
    data = recipe.data
    if data.dataset and Path(data.dataset.partition("@")[0]).exists():
        if (folder := resolve(recipe.target, cached)) is not None:
            count = len(prompt_ids(load_tokenizer(folder), data))
            return replace(recipe, data=replace(data, prompts=count))
    return recipe


def sample_tokens(recipe: DraftRecipe) -> int:
    """Return the mean number of tokens of a prompt and its answer."""
    return recipe.mean_tokens or TINY_WORLD_TOKENS


def update_count(recipe: DraftRecipe) -> int:
    """Return the number of updates of a training."""
    learned = recipe.data.count - recipe.data.held_out
    updates = recipe.epochs * math.ceil(learned / recipe.batch)
    return min(updates, recipe.steps or updates)


def cache_lines(recipe: DraftRecipe, config: dict) -> list[str]:
    """Return lines on the size of the target cache, (taps + 1) x hidden size x 2 bytes a token."""
    samples, tokens, hidden = recipe.data.count, sample_tokens(recipe), config["hidden_size"]
    taps = len(recipe.cached_taps)
    each = token_bytes(taps, hidden)
    whole = size(samples * tokens * each)
    if recipe.features == "online":
        return [
            "target cache   none: hidden states are computed for each batch; cached, they would "
            f"take {whole}"
        ]
    lines = [
        f"target cache   ({taps} taps + 1) x {hidden:,} x 2 bytes = {each:,} bytes a token; "
        f"{samples:,} samples x {tokens:,} tokens: {whole}"
    ]
    if published := recipe.published_cache_bytes:
        lines.append(
            f"               published: {size(published)} = {published / each / 1e9:.2f} billion "
            f"tokens = {published / each / samples:,.0f} a sample"
        )
    return lines


def memory_line(recipe: DraftRecipe, found: Cost, device: torch.device, processes: int) -> str:
    """Return a line on the memory of a process.

    It adds float32 weights, gradients and AdamW's two moments of the trained parameters, the frozen
    ones, activations in float32 (16 bit needs less), and the target. The frozen backbone of heads
    that are trained alone has the target's format and shares its embedding and LM head.
    """
    width, rows = (
        default_dtype(device).itemsize,
        math.ceil((recipe.micro_batch or recipe.batch) / processes),
    )
    trained, activations = 16 * found.trained, rows * found.activations
    frozen = width * found.frozen if recipe.trained else 4 * found.tables
    target = width * found.target
    return (
        f"memory         weights, gradients and AdamW {size(trained)}, activations "
        f"{size(activations)}, target {size(target)}: about "
        f"{size(trained + frozen + activations + target)} a process"
    )


class Seconds(NamedTuple):
    """The seconds of a training's parts; recipes with the same data share answers and cache."""

    answers: float
    cache: float
    updates: float


def seconds(recipe: DraftRecipe, config: dict, device: torch.device, processes: int = 1) -> Seconds:
    """Return the seconds of a training at the measured speed of this device.

    Answers and cache take what memory and products of the target take, updates what products of the
    training take. An update also waits for the launches of its kernels, forward and backward: most
    of the time of a tiny drafter on a GPU.
    """
    costs, dtype, samples = cost(recipe, config), default_dtype(device), recipe.data.count
    precision = getattr(torch, precision_on(device, recipe.precision))
    turns = math.ceil(samples / min(most_at_once(device), chunk_size(recipe.data)))
    token = dtype.itemsize * costs.target / bytes_a_second(device)
    token += LAYER_SECONDS * config["num_hidden_layers"]
    read = update_count(recipe) * recipe.batch if recipe.features == "online" else samples
    states = 2 * costs.target_layers * read * sample_tokens(recipe)
    rows = math.ceil(recipe.batch / processes)
    update = max(
        rows * costs.operations / operations_a_second(device, precision),
        3 * LAYER_SECONDS * recipe.config.num_hidden_layers,
    )
    return Seconds(
        turns * recipe.data.max_new_tokens * token,
        states / operations_a_second(device, dtype),
        update_count(recipe) * update,
    )


def time_line(recipe: DraftRecipe, config: dict, device: torch.device, processes: int) -> str:
    """Return a line on the time of a training on this device, in words."""
    estimated = seconds(recipe, config, device, processes)
    states = "hidden states" if recipe.features == "online" else "the cache"
    return (
        f"time           about {duration(estimated.answers)} for answers (in process), "
        f"{duration(estimated.cache)} for {states}, {duration(estimated.updates)} for "
        f"{update_count(recipe):,} steps, on {device.type}"
    )
