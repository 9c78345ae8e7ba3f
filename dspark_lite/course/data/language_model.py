"""The training of a Qwen3 language model (the target, the small LM) on examples of the tiny
world."""

import dataclasses
import math
import multiprocessing
import os
import random
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import Qwen3Config, Qwen3ForCausalLM

from ...common.fingerprint import fingerprint, json_digest
from ...models.checkpoints import load_target
from ...training.devices import autocast, precision_on
from ...training.drafts import initialise, seeded
from ...training.plan import Allowance, Plan
from ...training.recipe import (
    Count,
    NonNegative,
    Precision,
    Seed,
    without_nones,
)
from ...training.train import by_length, forget_others, optimise
from ..world.examples import MAKERS, examples
from ..world.tokenizer import chat_ids

PIECE = 4000  # examples that a process draws at a time, from a seed of their own
# Of a prompt's token in the loss, beside 1 for an answer's. Prompts are random by construction: a
# model learns to read them and should not spend capacity on writing them.
PROMPT_WEIGHT = 0.1


@dataclass(frozen=True)
class TokenizerPlan:
    """The training of a new tokenizer: the arguments of `train_tokenizer`."""

    vocab_size: Count
    seed: Seed
    per_domain: Count | None = None  # texts; None: as many as `train_tokenizer` takes


@dataclass(frozen=True)
class LanguageModelShape:
    """The fields of a Qwen3Config. A field that is None, or not listed, has transformers'
    default."""

    vocab_size: Count
    hidden_size: Count
    intermediate_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    max_position_embeddings: Count
    tie_word_embeddings: bool = True
    rope_parameters: dict[str, object] | None = None


@dataclass(frozen=True)
class TrainingPhase:
    """A phase of a training: one pass over new examples, with rates that rise and fall."""

    examples: dict[Literal[tuple(MAKERS)], Count]  # number by kind of text
    learning_rate: NonNegative  # AdamW's, at its peak
    # Muon's for the layers' matrices, at its peak. None: AdamW moves them, too.
    matrix_rate: NonNegative | None = None
    batch: Count | None = None  # examples an update; None: the recipe's


@dataclass(frozen=True)
class LanguageModelRecipe:
    """The training of a target or a small LM."""

    name: str
    kind: Literal["language_model"]
    seed: Seed  # of weights, examples and batches
    config: LanguageModelShape
    batch: Count  # examples an update
    weight_decay: NonNegative
    precision: Precision  # of the matrix products
    phases: tuple[TrainingPhase, ...]  # one after another
    tokenizer: TokenizerPlan | None = None  # a new tokenizer
    tokenizer_of: str | None = None  # or that of this checkpoint
    initial: str | None = None  # a checkpoint to start from
    # "width": deviations that follow the layers' widths (training/drafts.py). None: transformers'
    # deviation.
    initialisation: Literal["width"] | None = None
    compile: bool = False  # compile the layers: minutes once, then faster updates on a CPU
    prompt_weight: NonNegative = PROMPT_WEIGHT

    @property
    def digest(self) -> str:
        """Return 16 hexadecimal digits that differ from those of a changed recipe of this name."""
        return json_digest(dataclasses.asdict(self))


def corpus_rows(
    tokenizer, counts: dict[str, int], seed: int, processes: int | None = None
) -> list[tuple[np.ndarray, int]]:
    """Return token ids (int32) and prompt length of new training examples, `counts` of each domain,
    in a seeded order.

    `processes` draw them, PIECE examples at a time. None: one process a core, or this one if there
    is a single piece.
    """
    draw = partial(_piece, tokenizer, seed)
    pieces = [
        (domain, start // PIECE, min(PIECE, count - start))
        for domain, count in counts.items()
        for start in range(0, count, PIECE)
    ]
    processes = processes or min(len(pieces), os.cpu_count() or 1)
    if processes > 1:
        with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
            drawn = list(
                tqdm(pool.map(draw, pieces), total=len(pieces), desc="examples", unit="piece")
            )
    else:
        drawn = map(draw, pieces)
    rows = [row for piece in drawn for row in piece]
    random.Random(seed).shuffle(rows)
    return rows


def _piece(tokenizer, seed: int, piece: tuple[str, int, int]) -> list[tuple[np.ndarray, int]]:
    """Return the rows of a piece: (domain, number of the piece in its domain, number of
    examples)."""
    domain, number, count = piece
    rows = []
    for example in examples(domain, count, seed + 1_000_003 * number):
        prompt = chat_ids(tokenizer, example.prompt)
        answer = tokenizer(example.answer, add_special_tokens=False)["input_ids"] + [
            tokenizer.eos_token_id
        ]
        rows.append((np.array(prompt + answer, dtype=np.int32), len(prompt)))
    return rows


def pad(
    batch: list[tuple[np.ndarray, int]], device, prompt_weight: float = PROMPT_WEIGHT
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids [B, n], padded on the right, and the weight [B, n] of each token in the loss, on
    `device`."""
    ids = pad_sequence(
        [torch.as_tensor(tokens, dtype=torch.long) for tokens, _ in batch], batch_first=True
    )
    weight = pad_sequence(
        [
            torch.tensor([prompt_weight] * prompt_length + [1.0] * (len(tokens) - prompt_length))
            for tokens, prompt_length in batch
        ],
        batch_first=True,
    )
    return ids.to(device), weight.to(device)


def train_language_model(
    recipe: LanguageModelRecipe,
    tokenizer,
    folder: Path,
    device: torch.device,
    allowance: Allowance | None = None,
) -> Qwen3ForCausalLM:
    """Train the model of `recipe`, phase after phase, and return it in float32 on `device`.

    Weights begin at random or with those of the recipe's `initial`. Saves go to `folder`, and a
    second call resumes from them; saves of another recipe or another initial checkpoint are deleted
    first. The phases share an `allowance` of time in proportion to their updates. Raise
    DSparkLiteError if a loss is not finite.
    """
    config = Qwen3Config(
        **without_nones(recipe.config),
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    with seeded(recipe.seed):
        model = Qwen3ForCausalLM(config)
        if recipe.initialisation == "width":
            initialise(model, config.num_hidden_layers)
    identity = recipe.digest
    if recipe.initial:
        initial = load_target(recipe.initial)
        model.load_state_dict(initial.model.state_dict())
        identity = json_digest([recipe.digest, fingerprint(initial)])
    model.to(device).train()
    if recipe.compile:
        compile_layers(model)
    forget_others(folder, identity)
    updates = [phase_updates(recipe, phase) for phase in recipe.phases]
    for number, phase in enumerate(recipe.phases):
        share = sum(updates[:number]) / sum(updates), sum(updates[: number + 1]) / sum(updates)
        plan = Plan(
            updates[number],
            phase.learning_rate,
            phase.matrix_rate,
            weight_decay=recipe.weight_decay,
            precision=precision_on(device, recipe.precision),
            allowance=allowance,
            time_share=share,
        )
        _train_phase(
            model, recipe, number, plan, tokenizer, folder / f"phase_{number + 1}", identity
        )
    return model.eval()


def phase_updates(recipe: LanguageModelRecipe, phase: TrainingPhase) -> int:
    """Return the number of updates of a phase: one pass over its examples."""
    return math.ceil(sum(phase.examples.values()) / (phase.batch or recipe.batch))


def compile_layers(model: Qwen3ForCausalLM) -> None:
    """Compile the layers, which halves the time of an update on a CPU. Takes minutes once and needs
    a C++ compiler.

    On a CPU their attention becomes the eager one: the fused one has a slow backward pass there.
    """
    if model.device.type == "cpu":
        model.config._attn_implementation = "eager"
    for layer in model.model.layers:
        layer.compile(dynamic=True)


def _train_phase(
    model,
    recipe: LanguageModelRecipe,
    number: int,
    plan: Plan,
    tokenizer,
    folder: Path,
    identity: str,
) -> None:
    """Train a phase of the recipe, resumed from `folder`."""
    phase, seed = recipe.phases[number], recipe.seed + number
    rows = corpus_rows(tokenizer, phase.examples, seed)
    batches = by_length(rows, phase.batch or recipe.batch, seed, lambda row: len(row[0]))

    def loss_of(batch, progress: float):
        ids, weight = batch
        with autocast(model.device, plan.precision):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        each = F.cross_entropy(
            logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none"
        ).view_as(ids[:, 1:])
        weight = weight[:, 1:]
        answer, total = (weight == 1.0).float(), weight.sum()
        return (
            (each * weight).sum(),
            total,
            {"loss": (each * answer).sum() / answer.sum().clamp(min=1) * total},
        )

    optimise(
        model,
        lambda step: pad(batches[step], model.device, recipe.prompt_weight),
        loss_of,
        plan,
        folder,
        title=f"{recipe.name} {folder.name}",
        identity=identity,
    )
