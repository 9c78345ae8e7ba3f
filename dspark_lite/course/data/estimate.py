"""What a training takes, to an order of magnitude, before it starts: disk, memory and hours.

Everything is counted from the recipe and the target's config: nothing is downloaded but the config, nothing is run but a
matrix product and a read of memory, which say how fast this device is.
"""

import math
from typing import NamedTuple

import torch

from dspark_lite.common.errors import CheckpointError
from dspark_lite.common.timing import bytes_a_second
from dspark_lite.course.formats import duration, size
from dspark_lite.models.checkpoints import default_dtype, read_config, resolve
from dspark_lite.models.hub import fetch
from dspark_lite.training.cache import token_bytes
from dspark_lite.training.devices import operations_a_second, precision_on
from dspark_lite.training.recipe import DraftRecipe
from dspark_lite.training.train import ANSWERING
from .answers import chunk_size, most_at_once

TINY_WORLD_TOKENS = 100  # a prompt of the tiny world and its answer, on average
LAYER_SECONDS = 0.001  # of Python and kernel launches for one layer when a token is decoded


class Cost(NamedTuple):
    """Parameters: trained, of a backbone that is frozen, of an embedding with its LM head, of the target, of its layers; and of
    one sample in one update: bytes of activations, operations."""

    trained: int
    frozen: int
    tables: int
    target: int
    target_layers: int
    activations: int
    operations: int


def cost(recipe: DraftRecipe, config: dict) -> Cost:
    """Return what a training by this recipe costs, for a target of this config: matrices alone.

    An operation is a multiplication or an addition: two a weight and slot forwards, four backwards, two of them for the
    gradient of a weight, which frozen weights lack. A slot is a token of a block, or a token in a pass of a chain; of the logits of a
    slot the losses keep some copies for the backward pass.
    """
    draft, tokens = recipe.config, sample_tokens(recipe)
    vocabulary, hidden = config["vocab_size"], config["hidden_size"]
    head_size = config.get("head_dim") or hidden // config["num_attention_heads"]
    heads = config["num_attention_heads"] + config["num_key_value_heads"]
    layer = 2 * hidden * head_size * heads + 3 * hidden * config["intermediate_size"]
    layers, table = draft.num_hidden_layers, vocabulary * hidden
    backbone = layers * layer + len(draft.target_layer_ids) * hidden**2
    markov = 2 * vocabulary * (draft.markov_rank or 0)
    if draft.drafter in ("eagle3", "mtp"):
        slots, markov, copies = (draft.ttt_length or 1) * tokens, 0, 2
    else:
        slots, copies = (draft.num_anchors or tokens) * draft.block_size, 5
    whole = not recipe.trained  # or the heads alone
    # The LM head: our logits forwards and backwards, the target's forwards.
    operations = slots * (3 * markov + (6 if whole else 2) * backbone + 6 * table)
    inner = layers * (16 * hidden + 4 * config["intermediate_size"])
    numbers = copies * vocabulary + whole * inner
    target_layers = config["num_hidden_layers"] * layer
    return Cost(
        markov + whole * backbone,
        (not whole) * backbone,
        2 * table,
        target_layers + table * (1 if config.get("tie_word_embeddings") else 2),
        target_layers,
        4 * slots * numbers,
        operations,
    )


def estimate(
    recipe: DraftRecipe, device: torch.device, processes: int = 1, minutes: float | None = None
) -> list[str]:
    """Return lines on what training a drafter by this recipe takes on `processes` devices of this kind, within `minutes`.

    Raises CheckpointError if the target's config cannot be had.
    """
    config, samples = target_config(recipe), recipe.data.count
    found = cost(recipe, config)
    lines = [
        f"{recipe.name}: {samples:,} samples of {recipe.target}, {recipe.epochs} epochs, "
        f"{update_count(recipe):,} steps of {recipe.batch} samples",
        *cache_lines(recipe, config),
        f"drafter        about {found.trained / 1e6:,.0f} M parameters trained, {(found.frozen + found.tables) / 1e6:,.0f} M frozen",
        memory_line(recipe, found, device, processes),
        time_line(recipe, config, device, processes),
    ]
    if minutes is not None:
        lines.append(
            f"minutes        {minutes:g} in all runs together: no more answers are begun after {ANSWERING * minutes:.3g}, "
            f"no more updates after {minutes:g}; then the drafter is saved, and evaluated if the recipe says so"
        )
    return lines


def target_config(recipe: DraftRecipe) -> dict:
    """Return the target's config: the recipe's own copy, or config.json of an embedded target, a folder or a Hub id."""
    if recipe.target_config:
        return recipe.target_config
    try:
        return read_config(resolve(recipe.target, lambda name: fetch(name, ["config.json"])))
    except CheckpointError as error:
        raise CheckpointError(f'{error}, or give the recipe a "target_config"') from error


def cache_lines(recipe: DraftRecipe, config: dict) -> list[str]:
    """Return lines on the size of the target cache: (taps + 1) x hidden size x 2 bytes a token."""
    samples, tokens, hidden = recipe.data.count, sample_tokens(recipe), config["hidden_size"]
    taps = len(recipe.cached_taps)
    each = token_bytes(taps, hidden)
    whole = size(samples * tokens * each)
    if recipe.features == "online":
        return [
            f"target cache   none: hidden states are computed for each batch; cached, they would take {whole}"
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
    """Return the line on a process's memory: float32 weights, gradients and AdamW's two moments, activations, and the target.

    The frozen backbone of heads that are trained alone has the target's format and shares its embedding and LM head.
    """
    width, rows = default_dtype(device).itemsize, math.ceil(recipe.batch / processes)
    trained, activations = 16 * found.trained, rows * found.activations
    frozen = width * found.frozen if recipe.trained else 4 * found.tables
    target = width * found.target
    whole = size(trained + frozen + activations + target)
    return (
        f"memory         weights, gradients and AdamW {size(trained)}, activations {size(activations)}, "
        f"target {size(target)}: about {whole} a process"
    )


class Seconds(NamedTuple):
    """What a training takes: answers and cache, which recipes with the same data share, and the updates."""

    answers: float
    cache: float
    updates: float


def seconds(recipe: DraftRecipe, config: dict, device: torch.device, processes: int = 1) -> Seconds:
    """Return the seconds of a training at the speed at which this device reads memory and multiplies matrices.

    An update also waits for its kernels to be launched: that is most of a tiny drafter's time on a GPU.
    """
    found, dtype, samples = cost(recipe, config), default_dtype(device), recipe.data.count
    precision = getattr(torch, precision_on(device, recipe.precision))
    turns = math.ceil(samples / min(most_at_once(device), chunk_size(recipe.data)))
    token = dtype.itemsize * found.target / bytes_a_second(device)
    token += LAYER_SECONDS * config["num_hidden_layers"]
    read = update_count(recipe) * recipe.batch if recipe.features == "online" else samples
    states = 2 * found.target_layers * read * sample_tokens(recipe)
    rows = math.ceil(recipe.batch / processes)
    update = max(
        rows * found.operations / operations_a_second(device, precision),
        3 * LAYER_SECONDS * recipe.config.num_hidden_layers,
    )
    return Seconds(
        turns * recipe.data.max_new_tokens * token,
        states / operations_a_second(device, dtype),
        update_count(recipe) * update,
    )


def time_line(recipe: DraftRecipe, config: dict, device: torch.device, processes: int) -> str:
    """Return the line on the hours of a training."""
    found = seconds(recipe, config, device, processes)
    states = "hidden states" if recipe.features == "online" else "the cache"
    return (
        f"time           about {duration(found.answers)} for answers (in process), {duration(found.cache)} "
        f"for {states}, {duration(found.updates)} for {update_count(recipe):,} steps, on {device.type}"
    )


def sample_tokens(recipe: DraftRecipe) -> int:
    """Return the tokens of a prompt and its answer, on average."""
    return recipe.mean_tokens or TINY_WORLD_TOKENS


def update_count(recipe: DraftRecipe) -> int:
    """Return how many updates a recipe's training has."""
    learned = recipe.data.count - recipe.data.held_out
    updates = recipe.epochs * math.ceil(learned / recipe.batch)
    return min(updates, recipe.steps or updates)
