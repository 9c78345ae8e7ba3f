"""Trains a Qwen3 language model (the target, the small LM) on examples of the tiny world."""

import random
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import Qwen3Config, Qwen3ForCausalLM

from dspark_lite.models.checkpoints import load_target
from dspark_lite.training.initialisation import initialise
from dspark_lite.training.loop import Plan, by_length, optimise
from dspark_lite.training.precision import autocast, precision_on
from ..world.corpus import examples
from ..world.examples import examples as world_examples
from ..world.tokenizer import chat_ids

PROMPT_WEIGHT = 0.1  # prompts are random by construction: learn to read them, do not spend capacity on writing them


def corpus_rows(tokenizer, counts: dict[str, int], seed: int, habits: dict[str, float], world: str = "shallow") -> list[tuple[list[int], int]]:
    """Token ids and prompt length of freshly drawn training examples, `counts` of each domain, in a seeded order."""
    rows = []
    for domain, count in counts.items():
        drawn = world_examples(domain, count, seed) if world == "deep" else examples(domain, count, seed, habit=habits.get(domain, 0.0))
        for example in drawn:
            prompt = chat_ids(tokenizer, example.prompt)
            answer = tokenizer(example.answer, add_special_tokens=False)["input_ids"] + [tokenizer.eos_token_id]
            rows.append((prompt + answer, len(prompt)))
    random.Random(seed).shuffle(rows)
    return rows


def pad(batch: list[tuple[list[int], int]], device, prompt_weight: float = PROMPT_WEIGHT) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-padded ids [B, n] and the weight [B, n] of each token as something to be predicted."""
    ids = pad_sequence([torch.tensor(tokens) for tokens, _ in batch], batch_first=True)
    weight = pad_sequence([torch.tensor([prompt_weight] * prompt_length + [1.0] * (len(tokens) - prompt_length))
                           for tokens, prompt_length in batch], batch_first=True)
    return ids.to(device), weight.to(device)


def train_language_model(recipe: dict, tokenizer, folder: Path, device: torch.device) -> Qwen3ForCausalLM:
    """Trains the model that `recipe` describes, phase after phase, from random weights or from those of its `initial`
    checkpoint, and returns it in float32; resumes from `folder`."""
    torch.manual_seed(recipe["seed"])
    config = Qwen3Config(**recipe["config"], eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id,
                         bos_token_id=None)
    model = Qwen3ForCausalLM(config)
    if "initial" in recipe:
        model.load_state_dict(load_target(recipe["initial"]).model.state_dict())
    elif recipe.get("initialisation") == "width":
        initialise(model, config.num_hidden_layers)
    model.to(device).train()
    if recipe.get("compile"):
        compile_layers(model)
    for number, phase in enumerate(recipe["phases"]):
        _train_phase(model, recipe, phase, recipe["seed"] + number, tokenizer, folder / f"phase_{number + 1}")
    return model.eval()


def compile_layers(model: Qwen3ForCausalLM) -> None:
    """Has the layers compiled, which halves a step on a CPU; their attention is then written out, as the fused one has a
    slow backward pass there. Compilation takes minutes once and needs a C++ compiler."""
    if model.device.type == "cpu":
        model.config._attn_implementation = "eager"
    for layer in model.model.layers:
        layer.compile(dynamic=True)


def _train_phase(model, recipe: dict, phase: dict, seed: int, tokenizer, folder: Path) -> None:
    rows = corpus_rows(tokenizer, phase["examples"], seed, phase.get("habits", {}), recipe.get("world", "shallow"))
    batches = by_length(rows, phase.get("batch", recipe["batch"]), seed, lambda row: len(row[0]))
    precision, prompt_weight = precision_on(model.device, recipe["precision"]), recipe.get("prompt_weight", PROMPT_WEIGHT)

    def loss_of(batch):
        ids, weight = batch
        with autocast(model.device, precision):
            logits = model(input_ids=ids[:, :-1], use_cache=False).logits
        each = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view_as(ids[:, 1:])
        weight = weight[:, 1:]
        answer, total = (weight == 1.0).float(), weight.sum()
        return (each * weight).sum(), total, {"loss": (each * answer).sum() / answer.sum() * total}

    plan = Plan(steps=len(batches), learning_rate=phase["learning_rate"], matrix_rate=phase.get("matrix_rate"), weight_decay=recipe["weight_decay"],
                final_share=0.02, precision=precision, stop_at=phase.get("stop_at"))
    optimise(model, lambda step: pad(batches[step], model.device, prompt_weight), loss_of, plan, folder, title=f"{recipe['name']} {folder.name}")
