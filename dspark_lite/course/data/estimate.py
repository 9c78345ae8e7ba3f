"""An estimate of a training before it starts: disk, memory and time, from the recipe and the
target's config alone.

An update is run with tensors that have shapes and no numbers (the meta device), which counts its
memory and arithmetic and downloads nothing but the config. Time follows from the measured speed of
a matrix product on this device: an order of magnitude.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from dspark_lite.common.errors import CheckpointError
from dspark_lite.course.formats import duration, size
from dspark_lite.common.timing import bytes_a_second
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import DSpark
from dspark_lite.models.checkpoints import default_dtype, read_config, resolve
from dspark_lite.models.hub import fetch
from dspark_lite.training.blocks import TrainingBatch, draw_anchors
from dspark_lite.training.cache import shard_spans, token_bytes
from dspark_lite.training.devices import operations_a_second, precision_on
from dspark_lite.training.drafts import freeze_backbone, new_draft, objective
from dspark_lite.training.recipe import DraftRecipe
from dspark_lite.training.train import ANSWERING
from .answers import chunk_size, most_at_once

TINY_WORLD_TOKENS = 100  # of a prompt of the tiny world and its answer, on average
LAYER_SECONDS = 0.001  # of Python and kernel launches for a layer when a token is decoded


class UpdateCost(NamedTuple):
    """The cost of one sample in an update."""

    trained: int  # parameters of the drafter that are trained
    frozen: int  # its other parameters
    target: int  # parameters of the target
    target_layers: int  # those of its layers alone
    activations: int  # bytes that autograd stores for the backward pass
    operations: int  # arithmetic, forward and backward


def estimate(
    recipe: DraftRecipe, device: torch.device, processes: int = 1, minutes: float | None = None
) -> list[str]:
    """Return lines that say what a training takes on `processes` devices of this kind, and how it
    spends `minutes`.

    Raise CheckpointError if the target's config cannot be fetched.
    """
    config, tokens = target_config(recipe), sample_tokens(recipe)
    step, rows = dry_step(recipe, config, tokens), math.ceil(recipe.batch / processes)
    frozen = "the target's embedding and LM head" + (", the backbone" if recipe.trained else "")
    lines = [
        f"{recipe.name}: {recipe.data.count:,} samples of {recipe.target}, {recipe.epochs} epochs, {update_count(recipe):,} steps of "
        f"{recipe.batch} samples",
        *cache_lines(recipe, config, tokens),
        f"drafter        {step.trained / 1e6:,.1f} M parameters trained, {step.frozen / 1e6:,.1f} M frozen ({frozen})",
        memory_line(step, rows, frozen_bytes(recipe, config, step, device), device),
        time_line(recipe, config, step, device, processes),
    ]
    if minutes is not None:
        lines.append(
            f"minutes        {minutes:g} in all runs together: no more answers are begun after {ANSWERING * minutes:.3g}, no more updates "
            f"after {minutes:g}; then the drafter is saved, and evaluated where the recipe says so"
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


def sample_tokens(recipe: DraftRecipe) -> int:
    """Return the mean number of tokens of a prompt and its answer."""
    return recipe.mean_tokens or TINY_WORLD_TOKENS


def update_count(recipe: DraftRecipe) -> int:
    """Return the number of updates of a training."""
    learned = recipe.data.count - recipe.data.held_out
    updates = recipe.epochs * math.ceil(learned / recipe.batch)
    return min(updates, recipe.steps or updates)


def cache_lines(recipe: DraftRecipe, config: dict, tokens: int) -> list[str]:
    """Return lines on the size of the target cache, (taps + 1) x hidden size x 2 bytes a token, for
    samples of `tokens` tokens and of the largest length."""
    samples, taps, hidden = recipe.data.count, len(recipe.cached_taps), config["hidden_size"]
    a_token = token_bytes(taps, hidden)
    if recipe.features == "online":
        return [
            f"target cache   none: hidden states are computed for each batch anew; kept, they would take {size(samples * tokens * a_token)}"
        ]
    start, end = shard_spans([tokens] * min(samples, 2**16), a_token)[0]
    shards = math.ceil(samples / (end - start))
    lines = [
        f"target cache   ({taps} taps + 1) x {hidden:,} x 2 bytes = {a_token:,} bytes a token; {samples:,} "
        f"samples x {tokens:,} tokens: {size(samples * tokens * a_token)} in {shards:,} shards of at most "
        f"{size((end - start) * tokens * a_token)}"
    ]
    if longest := recipe.data.max_length:
        lines.append(
            f"               were every sample as long as allowed, {longest:,} tokens: {size(samples * longest * a_token)}"
        )
    if published := recipe.published_cache_bytes:
        mean = published / a_token / samples
        lines.append(
            f"               published: {size(published)} = {published / a_token / 1e9:.2f} billion tokens = "
            f"{mean:,.0f} a sample, {mean / longest:.0%} of the longest"
        )
    return lines


def dry_step(recipe: DraftRecipe, config: dict, tokens: int) -> UpdateCost:
    """Return the cost of one sample of `tokens` tokens in an update.

    A pass over blocks is counted with tensors that hold no numbers. The computation of a chain
    (Eagle3, MTP) depends on numbers, so it runs on random ones; such a drafter is one layer.
    """
    kind, loss = objective(recipe)
    random = replace(
        recipe, initial=None, trained=None
    )  # random weights are as large as trained ones
    with (
        torch.random.fork_rng(devices=[]),
        torch.device("meta" if issubclass(kind, DSpark) else "cpu"),
    ):
        model = Qwen3ForCausalLM(Qwen3Config(**config))
        model.tie_weights()  # transformers 5.0 leaves it out where tensors hold no numbers
        target = Target(model)
        drafter = new_draft(random, target)
        if recipe.trained:
            freeze_backbone(drafter, target.dtype)
        ids = torch.zeros(1, tokens, dtype=torch.long)
        widths = (len(drafter.taps) * config["hidden_size"], config["hidden_size"])
        features, last_hidden = (torch.zeros(1, tokens, width) for width in widths)
        count = recipe.config.num_anchors if issubclass(kind, DSpark) else None
        anchors, valid = draw_anchors(ids == 0, count or tokens, None)
        saved = SavedBytes(drafter.parameters())
        with FlopCounterMode(display=False) as operations:
            with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda tensor: tensor):
                batch = TrainingBatch(ids, ids == 0, features, last_hidden, anchors, valid)
                numerator, _, _ = loss(drafter, batch, recipe.loss, 1.0)  # all losses together
            numerator.backward()
    return UpdateCost(
        parameters(drafter, True),
        parameters(drafter, False),
        parameters(target.model),
        parameters(target.model.model.layers),
        saved.total,
        operations.get_total_flops(),
    )


def parameters(model, trained: bool | None = None) -> int:
    """Return the number of a model's parameters, or of those that are trained (True) or frozen
    (False)."""
    return sum(
        p.numel() for p in model.parameters() if trained is None or p.requires_grad == trained
    )


class SavedBytes:
    """The bytes that autograd stores for the backward pass, in `total`: each storage once, without
    `parameters`."""

    def __init__(self, parameters):
        self.seen = {parameter.untyped_storage()._cdata: parameter for parameter in parameters}
        self.total = 0

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Count a saved tensor and return it. It is kept, so that no later one gets its address."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.seen:
            self.seen[storage._cdata] = tensor
            self.total += storage.nbytes()
        return tensor


def frozen_bytes(recipe: DraftRecipe, config: dict, step: UpdateCost, device: torch.device) -> int:
    """Return the bytes of a drafter's frozen weights.

    They are float32. If the heads alone are trained, they have the target's format, and the
    target's embedding and LM head are shared.
    """
    if not recipe.trained:
        return 4 * step.frozen
    return default_dtype(device).itemsize * (
        step.frozen - 2 * config["vocab_size"] * config["hidden_size"]
    )


def memory_line(step: UpdateCost, rows: int, frozen: int, device: torch.device) -> str:
    """Return a line on the memory of a process with `rows` samples an update.

    It adds float32 weights, gradients and AdamW's two moments of the trained parameters, the
    `frozen` bytes, activations in float32 (16 bit needs less), and the target.
    """
    weights, trained = 4 * step.trained + frozen, 12 * step.trained
    activations, target = rows * step.activations, default_dtype(device).itemsize * step.target
    return (
        f"memory         weights {size(weights)}, gradients and AdamW {size(trained)}, activations at most "
        f"{size(activations)} ({size(step.activations)} a sample), target {size(target)}: "
        f"{size(weights + trained + activations + target)} a process"
    )


class Speed(NamedTuple):
    """The speed of a device."""

    inference: float  # operations a second in the target's number format
    training: float  # operations a second in the training's
    memory: float  # bytes a second
    device: str  # its name

    @classmethod
    def measured(cls, device: torch.device, precision: str) -> "Speed":
        """Return the speed of `device`, measured now, for a training of this precision."""
        found = precision_on(device, precision)
        return cls(
            operations_a_second(device, default_dtype(device)),
            operations_a_second(device, getattr(torch, found)),
            bytes_a_second(device),
            f"in {found} on {device.type}",
        )


class Seconds(NamedTuple):
    """The seconds of a training's parts; recipes with the same data share answers and cache."""

    answers: float
    cache: float
    updates: float


def training_seconds(
    recipe: DraftRecipe,
    config: dict,
    step: UpdateCost,
    speed: Speed,
    device: torch.device,
    processes: int = 1,
) -> Seconds:
    """Return the seconds of a training on `processes` devices of this speed.

    Answers and cache take what memory and products of the target take, updates what products of the
    training take. An update also waits for the launches of its kernels, forward and backward: most
    of the time of a tiny drafter on a GPU.
    """
    samples, tokens = recipe.data.count, sample_tokens(recipe)
    reading = default_dtype(device).itemsize * step.target / speed.memory
    together = min(most_at_once(device), chunk_size(recipe.data))
    decoding = math.ceil(samples / together) * recipe.data.max_new_tokens  # steps of the target
    answers = decoding * (reading + LAYER_SECONDS * config["num_hidden_layers"])
    read = update_count(recipe) * recipe.batch if recipe.features == "online" else samples
    cache = 2 * step.target_layers * read * tokens / speed.inference
    rows = math.ceil(recipe.batch / processes)
    update = max(
        rows * step.operations / speed.training,
        3 * LAYER_SECONDS * recipe.config.num_hidden_layers,
    )
    return Seconds(answers, cache, update_count(recipe) * update)


def time_line(
    recipe: DraftRecipe, config: dict, step: UpdateCost, device: torch.device, processes: int
) -> str:
    """Return a line on the time of a training on this device, in words."""
    speed = Speed.measured(device, recipe.precision)
    seconds = training_seconds(recipe, config, step, speed, device, processes)
    hidden_states = "hidden states" if recipe.features == "online" else "the cache"
    return (
        f"time           about {duration(seconds.answers)} for answers (in process), {duration(seconds.cache)} for {hidden_states}, "
        f"{duration(seconds.updates)} for {update_count(recipe):,} steps, at {speed.training / 1e9:.3g} GFLOP/s {speed.device}"
    )
