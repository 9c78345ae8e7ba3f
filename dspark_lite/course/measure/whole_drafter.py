"""Lesson 07's training of a whole drafter with a given mask and loss, a reader's or the course's,
and its results."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from ...common.files import ROOT
from ...models.checkpoints import save_draft
from ...training.blocks import (
    TrainingBatch,
    dense_mask,
    draw_anchors,
    target_logits_at,
    training_forward,
)
from ...training.cache import OnlineFeatures, build_cache
from ...training.drafts import new_draft
from ...training.recipe import Data
from ...training.train import TrainingRows
from ..data.answers import answered_rows, write_answers
from ..data.recipes import load_recipe
from ..result_files import read, reference
from . import evaluation
from .journal import header
from .lab import Lab

RECORDED = ROOT / "assets" / "measurements" / "whole_drafter.json"
WRITTEN_BY = "python -m tools.measure.whole_drafter"
ANSWERS = "lesson_answers.json"  # tools/measure/lesson_answers.py writes it
FACTORS = ("cross_entropy", "l1", "confidence")
WARM_UP = 20  # updates over which the learning rate rises
HELD_OUT_ANCHORS = 24  # blocks of each held-out answer


def recorded() -> dict:
    """Return what `train_whole` found on the tiny models when it was recorded."""
    return read(RECORDED, WRITTEN_BY)


def packed_mask(sees, anchors: torch.Tensor, length: int, gamma: int) -> torch.Tensor:
    """Return the mask [B, 1, K * g, n + K * g] of packed blocks, by `sees(anchors [K], length,
    gamma, query, key)`.

    anchors [B, K] are places in texts of `length` n tokens; a block has `gamma` g slots.
    """
    slots = anchors.shape[1] * gamma
    query = torch.arange(slots, device=anchors.device)[:, None]
    key = torch.arange(length + slots, device=anchors.device)[None]
    return torch.stack([sees(row, length, gamma, query, key) for row in anchors])[:, None]


def batch_loss(
    drafter, batch: TrainingBatch, sees, loss, factors: dict[str, float], shift: int = 0
) -> torch.Tensor:
    """Return the loss of a batch, one number: `loss` (exercise 2) of its blocks, packed by the mask
    `sees` (exercise 3).

    With a `shift` of 1 every slot is scored on the token before its own, and on the target one
    place earlier.
    """
    mask = packed_mask(sees, batch.anchors, batch.ids.shape[1], drafter.gamma)
    blocks = training_forward(
        drafter, batch.features, batch.ids, batch.supervised, batch.anchors, batch.valid, mask
    )
    row = torch.arange(len(batch.ids), device=batch.ids.device)[:, None, None]
    place = blocks.target_position - shift
    wanted = target_logits_at(drafter, batch.last_hidden, place)
    logits, wanted, tokens, counted, confidence = (
        part.flatten(0, 1)
        for part in (
            blocks.logits,
            wanted,
            batch.ids[row, place + 1],
            blocks.loss_mask,
            blocks.confidence_logits,
        )
    )
    return loss(logits, wanted, tokens, counted, confidence, factors)


def write_lesson_answers(
    lab: Lab, data: Data, prompts: dict[str, list[str]], folder: Path
) -> tuple[list, list]:
    """Return the target's own answers at temperature 1, each as (token ids, prompt length): to a
    recipe's prompts, and to held-out prompts {domain: [...]} in their order."""
    encoded = [lab.encode(text)[0].tolist() for texts in prompts.values() for text in texts]
    answers = write_answers(lab.target, encoded, 1.0, lab.max_new_tokens, lab.seed)
    return answered_rows(lab.target, data, folder / "answers.jsonl"), [
        (ids + answer, len(ids)) for ids, answer in zip(encoded, answers)
    ]


def lesson_answers(
    lab: Lab, data: Data, prompts: dict[str, list[str]], folder: Path
) -> tuple[list, list]:
    """Return `write_lesson_answers`; those of the tiny target are recorded."""
    if lab.profile != "tiny":
        return write_lesson_answers(lab, data, prompts, folder)
    stored = reference(ANSWERS)
    return tuple([(ids, length) for ids, length in stored[use]] for use in ("training", "held_out"))


def held_out_blocks(
    lab: Lab, taps, prompts: dict[str, list[str]], answers: list
) -> dict[str, list[TrainingBatch]]:
    """Return `answers` (token ids, prompt length) to prompts {domain: [...]}, one a batch, each
    with some random anchors."""
    read = OnlineFeatures(lab.target, answers, taps)
    generator, batches = lab.generator(lab.seed), []
    for index in range(len(answers)):
        ids, supervised, *hidden = read.batch([index], lab.device)
        anchors = draw_anchors(supervised, HELD_OUT_ANCHORS, generator)
        batches.append(TrainingBatch(ids, supervised, *hidden, *anchors))
    left = iter(batches)
    return {domain: [next(left) for _ in group] for domain, group in prompts.items()}


def expected_length(lab: Lab, drafter, held_out: dict[str, list[TrainingBatch]]) -> dict:
    """Return the expected accepted length of rounds that begin at random places of held-out
    answers, {domain: [N, 2]}.

    A row is an answer: the tokens of its rounds, added up, and how many rounds they are.
    """
    return {
        domain: np.array([expected_tokens(drafter, batch, lab.target.dtype) for batch in batches])
        for domain, batches in held_out.items()
    }


@torch.no_grad()
def expected_tokens(drafter, batch: TrainingBatch, dtype: torch.dtype) -> tuple[float, int]:
    """Return the expected tokens of a round begun at each anchor, added up, and the number of
    anchors, of texts of the target.

    A token x that the target drew, weighed by min(1, q(x) / p(x)), is in the mean the overlap of q
    and p, and so is the product over the first k tokens the chance that k drafts are accepted.
    Blocks that the text is too short for are left out.
    """
    mask = dense_mask(batch.anchors, batch.ids.shape[1], drafter.gamma)
    features, last_hidden = batch.features.to(dtype), batch.last_hidden.to(dtype)
    blocks = training_forward(
        drafter, features, batch.ids, batch.supervised, batch.anchors, batch.valid, mask
    )
    wanted = target_logits_at(drafter, last_hidden, blocks.target_position)
    log_q, log_p = (
        logits.float().log_softmax(-1).gather(-1, blocks.tokens[..., None])[..., 0]
        for logits in (blocks.logits, wanted)
    )
    tokens = 1 + (log_q - log_p).exp().clamp(max=1).cumprod(-1).sum(-1)  # [B, K]
    whole = blocks.loss_mask.all(-1)
    return float(tokens[whole].sum()), int(whole.sum())


def tokens_per_round(lab: Lab, drafter, prompts: int) -> dict[str, float]:
    """Return the accepted length by domain, on the first `prompts` of each domain at temperature 1."""
    lengths = {}
    for domain, texts in lab.prompts.items():
        answers = evaluation.rollouts(lab, drafter, texts[:prompts], temperature=1.0)
        lengths[domain] = float(evaluation.mean_accepted_length([evaluation.tally(answers)]))
    return lengths


def train(parameters: list, batch_at, loss_of, steps: int, rate_at) -> list[float]:
    """Train parameters by AdamW, `loss_of(batch_at(step))` at the rate `rate_at(step)`; return the
    loss of each step."""
    optimiser, losses = torch.optim.AdamW(parameters), []
    for step in range(steps):
        for group in optimiser.param_groups:
            group["lr"] = rate_at(step)
        loss = loss_of(batch_at(step))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    return losses


def train_whole(lab: Lab, folder: Path, sees, loss, prompts: int) -> dict:
    """Train drafters from scratch by the recipe `lesson-PROFILE`, and count their tokens per round
    beside the lab's DSpark.

    `sees` and `loss` are what lesson 07's exercises 3 and 2 ask for; answers, cache and drafters go to `folder`.
    Return the loss of each update ("losses") with "right labels", with right labels "stopped early" after a fifth of the
    updates, and with labels "off by one" for as few; and {whose: {domain: tokens per round}} ("accepted_length") on `prompts`
    prompts of each domain.
    """
    recipe = load_recipe(f"lesson-{lab.profile}")
    answers = answered_rows(lab.target, recipe.data, folder / "answers.jsonl")
    rows = TrainingRows(
        recipe,
        build_cache(lab.target, answers, recipe.config.target_layer_ids, folder / "cache"),
    )
    steps, factors = len(rows.batches), {name: getattr(recipe.loss, name) for name in FACTORS}

    def batch_at(step):
        return TrainingBatch(*(part.to(lab.device) for part in rows.at(step)))

    def rate_at(step):
        return recipe.learning_rate * min(1, (step + 1) / WARM_UP) * (1 - step / steps)

    losses = {}
    for name, updates, shift in (
        ("right labels", steps, 0),
        ("stopped early", steps // 5, 0),
        ("off by one", steps // 5, 1),
    ):
        drafter = new_draft(recipe, lab.target)
        learning = [parameter for parameter in drafter.parameters() if parameter.requires_grad]
        losses[name] = train(
            learning,
            batch_at,
            partial(batch_loss, drafter, sees=sees, loss=loss, factors=factors, shift=shift),
            updates,
            rate_at,
        )
        save_draft(folder / name, drafter, lab.target)
        drafter = learning = None  # the lab's takes its place
    lengths = {
        name: tokens_per_round(lab, lab.drafter(which), prompts)
        for name, which in {
            **{name: str(folder / name) for name in losses},
            "the lab's DSpark": "dspark",
        }.items()
    }
    return {
        **header(lab),
        "recipe": recipe.name,
        "answers": len(answers),
        "prompts": prompts,
        "max_new_tokens": lab.max_new_tokens,
        "losses": losses,
        "accepted_length": lengths,
    }
