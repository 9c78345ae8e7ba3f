"""What a training will take, before it starts: disk, memory and time, from the recipe and the target's config alone.

One step is run with tensors that have shapes and no numbers (the meta device), so that its memory and its arithmetic
are counted and nothing is downloaded but the config. The time follows from how fast this device multiplies matrices: an
order of magnitude.
"""

import math
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
from dspark_lite.training.drafts import ANSWERING, freeze_backbone, new_draft, objective
from dspark_lite.training.loop import operations_a_second, precision_on
from dspark_lite.training.recipe import LossWeights
from .answers import most_at_once

TINY_WORLD_TOKENS = 100  # a prompt of the tiny world and its answer, on average
LAYER_SECONDS = 0.001  # of Python and kernel launches for one layer when a token is decoded


class UpdateCost(NamedTuple):
    """What one sample takes in one update: parameters trained and frozen, those of the target and of its layers alone,
    bytes kept for the backward pass, and arithmetic operations."""

    trained: int
    frozen: int
    target: int
    target_layers: int
    activations: int
    operations: int


def estimate(
    recipe: dict, device: torch.device, processes: int = 1, minutes: float | None = None
) -> list[str]:
    """Lines that say what training a drafter by this recipe takes on `processes` devices of this kind, and what is made of
    the `minutes` that it may take.

    Raises CheckpointError where the target's config cannot be had.
    """
    config, samples, tokens = (
        target_config(recipe),
        sample_count(recipe),
        recipe.get("mean_tokens") or TINY_WORLD_TOKENS,
    )
    step, rows = dry_step(recipe, config, tokens), math.ceil(recipe["batch"] / processes)
    frozen = "the target's embedding and LM head" + (
        ", the backbone" if recipe.get("trained") else ""
    )
    return [
        f"{recipe['name']}: {samples:,} samples of {recipe['target']}, {recipe['epochs']} epochs, {update_count(recipe):,} steps of "
        f"{recipe['batch']} samples",
        *cache_lines(recipe, config, samples, tokens),
        f"drafter        {step.trained / 1e6:,.1f} M parameters trained, {step.frozen / 1e6:,.1f} M frozen ({frozen})",
        memory_line(step, rows, frozen_bytes(recipe, config, step, device), device),
        time_line(recipe, config, step, device, processes),
        *(
            []
            if minutes is None
            else [
                f"minutes        {minutes:g} in all runs together: no more answers are begun after {ANSWERING * minutes:.3g}, no more updates "
                f"after {minutes:g}; then the drafter is saved, and evaluated where the recipe says so"
            ]
        ),
    ]


def target_config(recipe: dict) -> dict:
    """The target's config: the recipe's own copy, or config.json of an embedded target, a folder or a Hub id."""
    if recipe.get("target_config"):
        return recipe["target_config"]
    try:
        return read_config(resolve(recipe["target"], lambda name: fetch(name, ["config.json"])))
    except CheckpointError as error:
        raise CheckpointError(f'{error}, or give the recipe a "target_config"') from error


def cache_lines(recipe: dict, config: dict, samples: int, tokens: int) -> list[str]:
    """The size of the target cache: (taps + 1) x hidden size x 2 bytes a token, at the mean and the largest length."""
    taps, hidden = (
        len(recipe.get("cached_layer_ids") or recipe["config"]["target_layer_ids"]),
        config["hidden_size"],
    )
    a_token = token_bytes(taps, hidden)
    if online(recipe):
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
    if longest := recipe["data"].get("max_length"):
        lines.append(
            f"               were every sample as long as allowed, {longest:,} tokens: {size(samples * longest * a_token)}"
        )
    if published := recipe.get("published_cache_bytes"):
        mean = published / a_token / samples
        lines.append(
            f"               published: {size(published)} = {published / a_token / 1e9:.2f} billion tokens = "
            f"{mean:,.0f} a sample, {mean / longest:.0%} of the longest"
        )
    return lines


def dry_step(recipe: dict, config: dict, tokens: int) -> UpdateCost:
    """Counts one sample of `tokens` tokens in one update.

    Blocks are counted with tensors that hold no numbers. What a chain (Eagle3, MTP) computes depends on numbers, so
    there the step is run on random ones; such a drafter is one layer.
    """
    kind, loss = objective(recipe)
    heads_alone = bool(recipe.get("trained"))
    recipe = {
        key: value for key, value in recipe.items() if key not in ("initial", "trained")
    }  # as large as random weights
    with (
        torch.random.fork_rng(devices=[]),
        torch.device("meta" if issubclass(kind, DSpark) else "cpu"),
    ):
        model = Qwen3ForCausalLM(Qwen3Config(**config))
        model.tie_weights()  # transformers 5.0 leaves it out where tensors hold no numbers
        target = Target(model)
        drafter = new_draft(recipe, target)
        if heads_alone:
            freeze_backbone(drafter, target.dtype)
        ids = torch.zeros(1, tokens, dtype=torch.long)
        widths = (len(drafter.taps) * config["hidden_size"], config["hidden_size"])
        features, last_hidden = (torch.zeros(1, tokens, width) for width in widths)
        count = recipe["config"].get("num_anchors") if issubclass(kind, DSpark) else None
        anchors, valid = draw_anchors(ids == 0, count or tokens, None)
        saved = SavedBytes(drafter.parameters())
        with FlopCounterMode(display=False) as operations:
            with torch.autograd.graph.saved_tensors_hooks(saved.keep, lambda tensor: tensor):
                batch = TrainingBatch(ids, ids == 0, features, last_hidden, anchors, valid)
                numerator, _, _ = loss(
                    drafter, batch, LossWeights(**recipe.get("loss", {})), 1.0
                )  # all losses together
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
    """The number of a model's parameters, or of those that are trained or not."""
    return sum(
        p.numel() for p in model.parameters() if trained is None or p.requires_grad == trained
    )


class SavedBytes:
    """Adds up what autograd keeps for the backward pass, each storage once, the parameters left out."""

    def __init__(self, parameters):
        self.seen = {parameter.untyped_storage()._cdata: parameter for parameter in parameters}
        self.total = 0

    def keep(self, tensor: torch.Tensor) -> torch.Tensor:
        """Counts a tensor that is saved and hands it on; it is held, so that no later one has its address."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.seen:
            self.seen[storage._cdata] = tensor
            self.total += storage.nbytes()
        return tensor


def frozen_bytes(recipe: dict, config: dict, step: UpdateCost, device: torch.device) -> int:
    """Bytes of what a drafter holds and does not train: in float32, or, where the heads alone are trained, in the target's
    format, which shares embedding and LM head."""
    if not recipe.get("trained"):
        return 4 * step.frozen
    return default_dtype(device).itemsize * (
        step.frozen - 2 * config["vocab_size"] * config["hidden_size"]
    )


def memory_line(step: UpdateCost, rows: int, frozen: int, device: torch.device) -> str:
    """Memory of a process with `rows` samples a step: float32 weights, gradients and AdamW's two moments of what is
    trained, the `frozen` bytes, activations in float32 (fewer in 16 bit), and the target."""
    weights, trained, activations = (
        4 * step.trained + frozen,
        12 * step.trained,
        rows * step.activations,
    )
    target = default_dtype(device).itemsize * step.target
    return (
        f"memory         weights {size(weights)}, gradients and AdamW {size(trained)}, activations at most "
        f"{size(activations)} ({size(step.activations)} a sample), target {size(target)}: "
        f"{size(weights + trained + activations + target)} a process"
    )


class Speed(NamedTuple):
    """How fast a device works: operations per second in the target's and in the training's number format, bytes per second
    of its memory, and its name."""

    inference: float
    training: float
    memory: float
    device: str

    @classmethod
    def measured(cls, device: torch.device, precision: str) -> "Speed":
        """That of the device at hand."""
        found = precision_on(device, precision)
        return cls(
            operations_a_second(device, default_dtype(device)),
            operations_a_second(device, getattr(torch, found)),
            bytes_a_second(device),
            f"in {found} on {device.type}",
        )


class Seconds(NamedTuple):
    """What a training takes: answers and cache, which recipes with the same data share, and the updates."""

    answers: float
    cache: float
    updates: float


def training_seconds(
    recipe: dict,
    config: dict,
    step: UpdateCost,
    speed: Speed,
    device: torch.device,
    processes: int = 1,
) -> Seconds:
    """Answers and cache at the speed the device reads memory and multiplies, updates at that of the training's format.

    An update also waits for its kernels to be launched, forwards and backwards, which is what a tiny drafter on a GPU
    does most of the time.
    """
    samples, tokens = sample_count(recipe), recipe.get("mean_tokens") or TINY_WORLD_TOKENS
    reading = default_dtype(device).itemsize * step.target / speed.memory
    most = most_at_once(device)
    together = min(most, recipe["data"].get("chunk") or most)
    decoding = (
        math.ceil(samples / together) * recipe["data"]["max_new_tokens"]
    )  # steps of so many answers each
    answers = decoding * (reading + LAYER_SECONDS * config["num_hidden_layers"])
    read = update_count(recipe) * recipe["batch"] if online(recipe) else samples
    cache = 2 * step.target_layers * read * tokens / speed.inference
    rows = math.ceil(recipe["batch"] / processes)
    update = max(
        rows * step.operations / speed.training,
        3 * LAYER_SECONDS * recipe["config"]["num_hidden_layers"],
    )
    return Seconds(answers, cache, update_count(recipe) * update)


def online(recipe: dict) -> bool:
    """Whether a recipe has its hidden states computed anew for each batch."""
    return recipe.get("features") == "online"


def sample_count(recipe: dict) -> int:
    """Answers that a recipe asks for."""
    data = recipe["data"]
    return data["prompts"] if data.get("dataset") else sum(data["prompts"].values())


def update_count(recipe: dict) -> int:
    """Updates of a recipe's training."""
    learned = sample_count(recipe) - recipe["data"].get("held_out", 0)
    updates = recipe["epochs"] * math.ceil(learned / recipe["batch"])
    return min(updates, recipe.get("steps") or updates)


def time_line(
    recipe: dict, config: dict, step: UpdateCost, device: torch.device, processes: int
) -> str:
    """The seconds of a training for a reader."""
    speed = Speed.measured(device, recipe["precision"])
    seconds = training_seconds(recipe, config, step, speed, device, processes)
    hidden_states = "hidden states" if online(recipe) else "the cache"
    return (
        f"time           about {duration(seconds.answers)} for answers (in process), {duration(seconds.cache)} for {hidden_states}, "
        f"{duration(seconds.updates)} for {update_count(recipe):,} steps, at {speed.training / 1e9:.3g} GFLOP/s {speed.device}"
    )
