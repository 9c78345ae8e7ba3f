"""Trains a Qwen3 language model (the target, the small LM) on examples of the tiny world."""

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

from dspark_lite.common.fingerprint import fingerprint
from dspark_lite.models.checkpoints import load_target
from dspark_lite.training.drafts import initialise, seeded
from dspark_lite.training.loop import (
    Allowance,
    Plan,
    autocast,
    by_length,
    forget_others,
    optimise,
    precision_on,
)
from dspark_lite.training.recipe import Count, NonNegative, Precision, Seed, digest_of
from ..world.examples import MAKERS, examples
from ..world.tokenizer import chat_ids

PIECE = 4000  # examples that one process draws at a time, from a seed of their own
PROMPT_WEIGHT = 0.1  # prompts are random by construction: learn to read them, do not spend capacity on writing them


@dataclass(frozen=True)
class TokenizerPlan:
    """What a new tokenizer is trained on: the arguments of `train_tokenizer`."""

    vocab_size: Count
    seed: Seed
    per_domain: Count | None = None  # texts


@dataclass(frozen=True)
class LanguageModelShape:
    """The fields of a Qwen3Config; what is not given is transformers' default."""

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
    """A part of a training: one pass over fresh examples, with rates that rise and fall."""

    examples: dict[Literal[tuple(MAKERS)], Count]  # kind of text: how many
    learning_rate: NonNegative  # AdamW's, at its peak
    matrix_rate: NonNegative | None = (
        None  # Muon's for the layers' matrices, at its peak; None: AdamW moves them, too
    )
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
    tokenizer: TokenizerPlan | None = None  # of a new one
    tokenizer_of: str | None = None  # the checkpoint whose tokenizer is taken
    initial: str | None = None  # a checkpoint to begin from
    initialisation: Literal["width"] | None = (
        None  # deviations that a width asks for; None: those of transformers
    )
    compile: bool = False  # has the layers compiled: minutes once, then faster steps on a CPU
    prompt_weight: NonNegative = (
        PROMPT_WEIGHT  # of a prompt's token in the loss, beside 1 for an answer's
    )

    @property
    def digest(self) -> str:
        """What tells this recipe from a changed one of its name."""
        return digest_of(dataclasses.asdict(self))


def corpus_rows(
    tokenizer, counts: dict[str, int], seed: int, processes: int | None = None
) -> list[tuple[np.ndarray, int]]:
    """Token ids (int32) and prompt length of freshly drawn training examples, `counts` of each domain, in a seeded order.

    They are drawn PIECE at a time by so many `processes` (None: one for each core, where there is more than one piece).
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
    """Rows of one piece: (domain, its number in the domain, examples)."""
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
    """Right-padded ids [B, n] and the weight [B, n] of each token as something to be predicted."""
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
    """Trains the model that `recipe` describes, phase after phase, from random weights or from those of its `initial`
    checkpoint, and returns it in float32; resumes from `folder`, unless what was saved there is of another recipe or
    another initial checkpoint. The phases share an `allowance` of time in proportion to their updates."""
    shape = {name: value for name, value in vars(recipe.config).items() if value is not None}
    config = Qwen3Config(
        **shape,
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
        identity = digest_of([recipe.digest, fingerprint(initial)])
    model.to(device).train()
    if recipe.compile:
        compile_layers(model)
    forget_others(folder, identity)
    updates = [phase_updates(recipe, phase) for phase in recipe.phases]
    for number, phase in enumerate(recipe.phases):
        window = sum(updates[:number]) / sum(updates), sum(updates[: number + 1]) / sum(updates)
        plan = Plan(
            updates[number],
            phase.learning_rate,
            phase.matrix_rate,
            weight_decay=recipe.weight_decay,
            precision=precision_on(device, recipe.precision),
            allowance=allowance,
            window=window,
        )
        _train_phase(
            model, recipe, number, plan, tokenizer, folder / f"phase_{number + 1}", identity
        )
    return model.eval()


def phase_updates(recipe: LanguageModelRecipe, phase: TrainingPhase) -> int:
    """Updates of a phase: one pass over its examples."""
    return math.ceil(sum(phase.examples.values()) / (phase.batch or recipe.batch))


def compile_layers(model: Qwen3ForCausalLM) -> None:
    """Has the layers compiled, which halves a step on a CPU; their attention is then written out, as the fused one has a
    slow backward pass there. Compilation takes minutes once and needs a C++ compiler."""
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
