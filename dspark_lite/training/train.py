"""Train a drafter, from top to bottom: its training, the batches, the loop of updates, saves.

`train_draft` trains a drafter (DSpark, DFlash, Eagle3, MTP) on the target's own answers (paper,
section 3.3). Its caller, course/data/recipes.py, writes the answers and caches their hidden states
(cache.py). `new_draft` makes the drafter and its first weights (drafts.py), which names its loss
(blocks.py, chains.py); `make_optimisers` is optimisers.py's, and the caller saves the checkpoint.

`optimise` is the loop, for drafters and for language models of the tiny world; plan.py has its
rates and its time. `accelerate launch -m dspark_lite train RECIPE` splits each update over several
processes, whose result is that of one.
"""

from __future__ import annotations

import json
import math
import random
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn
from tqdm import tqdm

from ..common.errors import CheckpointError, DSparkLiteError
from ..common.files import read_json, write_atomically, write_json, write_tensors, write_text
from ..common.fingerprint import fingerprint, json_digest
from ..drafters import DSpark
from ..models.short_vocabulary import frequent_ids
from .blocks import TrainingBatch, draw_anchors
from .cache import OnlineFeatures, TargetCache
from .devices import autocast, c_library, precision_on, processes
from .drafts import class_and_loss, draft_config, new_draft
from .optimisers import make_optimisers, trainable
from .plan import ANSWER_TIME_SHARE, Allowance, Plan
from .recipe import DraftRecipe

DECAY_SHARE = 0.25  # of a pass: the updates in which a branch's rates fall (`_train_passes`)
SAVE_SECONDS = 60.0  # between saves
UPDATES_PER_TRIM = 20  # between two trims of a CPU's freed memory; more would fragment it
# The state of AdamW and Muon for a parameter.
MOMENTS = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer")


def train_draft(
    recipe: DraftRecipe,
    target,
    cache: TargetCache | OnlineFeatures,
    folder: Path,
    allowance: Allowance | None = None,
    kind: type | None = None,
    **fields,
):
    """Train the drafter of `recipe` on the rows of `cache`, within the allowed time, and return it
    on the target's device.

    `kind` and `fields` replace class and config fields (`draft_config`). Saves go to `folder`, and
    a second call resumes from them; saves of another recipe, class, target or initial checkpoint
    are deleted first. Raise DSparkLiteError for a recipe that cannot be trained and for losses that
    are not finite.
    """
    check_patience(recipe, allowance)
    if recipe.micro_batch and processes().num_processes > 1:
        raise DSparkLiteError(
            f"recipe {recipe.name} has a micro_batch, which works in one process only; remove it, or run "
            "without accelerate launch"
        )
    rows, device = TrainingRows(recipe, cache), target.device
    short = draft_config(recipe, target, kind, **fields).draft_vocab_size
    vocabulary = rows.vocabulary(target, folder) if short else None
    drafter = new_draft(recipe, target, kind, vocabulary, **fields)
    precision = precision_on(device, recipe.precision)
    _, loss = class_and_loss(recipe)
    # A fingerprint is a digest of all weights of a model.
    identity = json_digest(
        [
            recipe.digest,
            fingerprint(target),
            fingerprint(drafter) if recipe.initial else None,
            *([kind.__name__, fields] if kind else []),
        ]
    )

    def batch_at(step: int):
        return tuple(tensor.to(device) for tensor in rows.at(step))

    def loss_of(batch, progress: float):
        with autocast(device, precision):
            return loss(drafter, TrainingBatch(*batch), recipe.loss, progress)

    def run(plan: Plan, folder: Path):
        optimise(drafter, batch_at, loss_of, plan, folder, title=recipe.name, identity=identity)

    forget_others(folder, identity)
    plan = Plan(
        len(rows.batches),
        recipe.learning_rate,
        recipe.matrix_rate,
        precision=precision,
        allowance=allowance,
        micro_batch=recipe.micro_batch,
        time_share=(ANSWER_TIME_SHARE, 1.0),
    )
    if recipe.patience is None:
        run(plan, folder)
    else:
        _train_passes(run, plan, rows, folder, lambda: held_out_losses(drafter, recipe, cache))
    return drafter.eval()


def check_patience(recipe: DraftRecipe, allowance: Allowance | None) -> None:
    """Raise DSparkLiteError if a recipe has a `patience` that cannot end its training."""
    if recipe.patience is None:
        return
    if allowance is not None or recipe.steps is not None or processes().num_processes > 1:
        raise DSparkLiteError(
            f"recipe {recipe.name} has a patience, which cannot be combined with --minutes, "
            '"steps" or several processes; remove one of them'
        )
    if not recipe.data.held_out:
        raise DSparkLiteError(
            f"recipe {recipe.name} has a patience and holds no answers out to judge by; "
            'give its data a "held_out"'
        )


def _train_passes(run, plan: Plan, rows: TrainingRows, folder: Path, measure) -> None:
    """Train until a pass lowers the held-out loss by less than the share `patience`, for at most
    `epochs` passes.

    `run(plan, folder)` trains the drafter, `measure()` returns its held-out losses. The drafter
    ends as after the pass with the lowest loss. docs/training.md explains the trunk and its branches.
    """
    recipe, a_pass, losses = rows.recipe, rows.updates_a_pass, []
    decay = max(1, round(DECAY_SHARE * a_pass))

    def branch(passes: int) -> tuple[Plan, Path]:
        return (
            replace(
                plan, steps=passes * a_pass + decay, progress_updates=a_pass, cooldown_updates=decay
            ),
            folder / f"pass_{passes}",
        )

    for passes in range(1, recipe.epochs + 1):
        branch_plan, branch_folder = branch(passes)
        if not (branch_folder / "progress.safetensors").exists():
            run(
                replace(plan, steps=passes * a_pass, progress_updates=a_pass, cooldown_updates=0),
                folder / "trunk",
            )
            branch_saves(folder / "trunk", branch_folder)
        run(branch_plan, branch_folder)
        losses.append(measure())
        write_json(folder / "held_out.json", {"passes": losses})
        if passes > 1 and losses[-1]["loss"] > (1 - recipe.patience) * losses[-2]["loss"]:
            break
    best = min(range(len(losses)), key=lambda index: losses[index]["loss"]) + 1
    run(*branch(best))  # it has ended, so this loads its weights


@torch.no_grad()
def held_out_losses(
    drafter, recipe: DraftRecipe, cache: TargetCache | OnlineFeatures
) -> dict[str, float]:
    """Return the losses of a drafter on the held-out rows, in their final form: each by name, and
    their weighted sum as "loss". Raise DSparkLiteError if no held-out answer has two supervised
    tokens."""
    _, loss = class_and_loss(recipe)
    device, totals, weight = drafter.embed_tokens.weight.device, {}, 0.0
    with autocast(device, precision_on(device, recipe.precision)):
        for batch in TrainingRows(recipe, cache).held_out_batches():
            numerator, share, terms = loss(
                drafter, TrainingBatch(*(tensor.to(device) for tensor in batch)), recipe.loss, 1.0
            )
            for name, value in {"loss": numerator, **terms}.items():
                totals[name] = totals.get(name, 0.0) + float(value)
            weight += float(share)
    if not weight:
        raise DSparkLiteError(
            f"recipe {recipe.name}: no held-out answer has two supervised tokens, so there is no loss to "
            'judge by; raise "held_out" in its data'
        )
    return {name: value / weight for name, value in totals.items()}


class TrainingRows:
    """The rows of a cache in the batches of a recipe: rows to learn from, and the last ones, which
    are held out.

    Raise DSparkLiteError if the recipe holds all of them out.
    """

    def __init__(self, recipe: DraftRecipe, cache: TargetCache | OnlineFeatures):
        self.recipe, self.cache = recipe, cache
        self.kind, _ = class_and_loss(recipe)
        held_out = recipe.data.held_out if recipe.data else 0
        learned = len(cache.rows) - held_out
        if learned < 1:
            raise DSparkLiteError(
                f"the recipe holds out {held_out} of {len(cache.rows)} answers, which leaves none to "
                "learn from; hold out fewer"
            )
        self.held_out = range(learned, len(cache.rows))
        self.updates_a_pass = math.ceil(learned / recipe.batch)
        # With a patience one pass more than there are: a branch reads the start of the next pass.
        passes = recipe.epochs + (recipe.patience is not None)
        batches = [
            batch
            for epoch in range(passes)
            for batch in self._batches(range(learned), recipe.seed * 1_000_003 + epoch)
        ]
        self.batches = batches[: recipe.steps]

    def vocabulary(self, target, folder: Path) -> torch.Tensor:
        """Return the ids [U] of a draft with a reduced vocabulary: the most frequent of the answers
        to learn from.

        `folder` keeps them, because a resumed training may have more answers.
        """
        path, recipe = folder / "vocabulary.json", self.recipe.digest
        with processes().main_process_first():
            kept = read_json(path) if path.exists() else {}
            if kept.get("recipe") != recipe:
                rows = self.cache.rows[: self.held_out.start]
                answers = [token for ids, prompt in rows for token in ids[prompt:]]
                ids = frequent_ids(answers, self.recipe.config.draft_vocab_size, target)
                kept = {"recipe": recipe, "ids": ids.tolist()}
                write_json(path, kept)
        return torch.tensor(kept["ids"])

    def _batches(self, rows: range, seed: int) -> list[list[int]]:
        return by_length(
            list(rows), self.recipe.batch, seed, lambda index: len(self.cache.rows[index][0])
        )

    def at(self, step: int) -> TrainingBatch:
        """Return the batch of an update, with new anchors, where the features are
        (training/cache.py). It depends on the recipe and `step` alone, so a resumed run reads the
        same batches."""
        return self._batch(self.batches[step], self.recipe.seed * 1_000_003 + step)

    def held_out_batches(self) -> list[TrainingBatch]:
        """Return the held-out rows, with the same anchors every time."""
        return [
            self._batch(rows, index) for index, rows in enumerate(self._batches(self.held_out, 0))
        ]

    def _batch(self, rows: list[int], seed: int) -> TrainingBatch:
        ids, supervised, features, last_hidden = self.cache.batch(rows, "cpu")
        # Blocks start at a random choice of anchors or at all of them, chains always at all.
        count = int(supervised.sum(1).max())
        if issubclass(self.kind, DSpark):
            count = min(count, self.recipe.config.num_anchors or count)
        anchors, valid = draw_anchors(supervised, count, torch.Generator().manual_seed(seed))
        return TrainingBatch(ids, supervised, features, last_hidden, anchors, valid)


def by_length(rows: list, batch: int, seed: int, length_of) -> list[list]:
    """Return batches of rows of similar length, in random order: little padding, and no trend from
    short to long.

    Rows are shuffled, then sorted in groups of 64 batches, in four groups if there are fewer than
    256. So two epochs with different seeds differ in which rows share a batch, not only in the
    order of batches.
    """
    rows, draw = list(rows), random.Random(seed)
    draw.shuffle(rows)
    group, batches = batch * max(1, min(64, len(rows) // (4 * batch))), []
    for start in range(0, len(rows), group):
        alike = sorted(rows[start : start + group], key=length_of)
        batches += [alike[at : at + batch] for at in range(0, len(alike), batch)]
    draw.shuffle(batches)
    return batches


def optimise(
    model: nn.Module, batch_at, loss_of, plan: Plan, folder: Path, *, title: str, identity: str = ""
) -> list[dict]:
    """Train `model` by a plan and return the log: for each update a dict of its step and its losses
    by name.

    `batch_at(step)` returns a tuple of tensors whose first dimension is the row. `loss_of(batch,
    progress)` returns the numerator of the loss, its denominator (a weight without gradient) and a
    dict of named numerators for the log.

    Saves go to `folder` with the `identity` of the training, and a second call resumes from the
    last one. Ctrl-C saves and stops after the current update. When the allowed time is over, one update
    follows, at progress 1. Raise DSparkLiteError at the first update whose loss or gradient is not
    finite; the last save stays.
    """
    accelerator, device = processes(), next(model.parameters()).device
    optimisers = make_optimisers(model, plan.learning_rate, plan.matrix_rate, plan.weight_decay)
    peaks = [group["lr"] for optimiser in optimisers for group in optimiser.param_groups]
    scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "float16")
    saves = Saves(folder, model, optimisers, scaler, identity)
    step, finished, log = saves.load()
    # With more time than before, a finished training goes on.
    finished = step >= plan.steps or finished and plan.time_over() == 1
    loss_module, *optimisers = accelerator.prepare(LossModule(model, loss_of), *optimisers)
    bar = tqdm(
        total=plan.steps,
        initial=step,
        desc=title,
        unit="step",
        disable=not accelerator.is_main_process,
    )
    with bar, finishing_the_update() as interrupted:
        while not finished:
            progress = plan.progress(step)
            _set_rates(optimisers, peaks, plan.rate(step, progress))
            try:
                losses = update(
                    accelerator,
                    loss_module,
                    optimisers,
                    scaler,
                    batch_at(step),
                    progress,
                    plan.micro_batch,
                )
            except FloatingPointError as error:
                raise DSparkLiteError(
                    f"{title} stops at step {step}, whose losses are no numbers any more ({error}); nothing of it is saved: train "
                    "with a smaller learning_rate, or a smaller matrix_rate where the recipe has one"
                ) from None
            log.append({"step": step, **{name: round(loss, 5) for name, loss in losses.items()}})
            step += 1
            finished = step >= plan.steps or plan.allowance is not None and progress == 1
            if accelerator.is_main_process and (finished or interrupted or saves.due()):
                saves.write(step, finished, log)
                if plan.allowance is not None:
                    plan.allowance.keep()
            if interrupted:
                raise KeyboardInterrupt
            if step % UPDATES_PER_TRIM == 0 and (library := c_library(device)):
                library.malloc_trim(0)
            bar.update()
            bar.set_postfix({name: f"{loss:.3f}" for name, loss in losses.items()}, refresh=False)
    accelerator.wait_for_everyone()
    return log


@contextmanager
def finishing_the_update() -> Iterator[list]:
    """Yield a list. Ctrl-C appends to it instead of interrupting, so no update is left half done.
    A second Ctrl-C interrupts at once. Outside the main thread nothing is changed.
    """
    interrupted: list = []
    if threading.current_thread() is not threading.main_thread():
        yield interrupted
        return

    def note(number, frame):
        if interrupted:
            raise KeyboardInterrupt
        interrupted.append(number)

    usual = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, usual)


def _set_rates(optimisers, peaks: list[float], rate: float) -> None:
    """Set the rate of every parameter group to the share `rate` of its peak."""
    groups = [group for optimiser in optimisers for group in optimiser.param_groups]
    for group, peak in zip(groups, peaks):
        group["lr"] = peak * rate


class LossModule(nn.Module):
    """The model and its loss as one module, so that DDP wraps the whole forward pass."""

    def __init__(self, model: nn.Module, loss_of):
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward(self, batch: tuple[torch.Tensor, ...], progress: float):
        """Return what `loss_of` returns: numerator, denominator and named numerators."""
        return self.loss_of(batch, progress)


def update(
    accelerator,
    loss_module,
    optimisers,
    scaler,
    batch: tuple[torch.Tensor, ...],
    progress: float,
    micro_batch: int | None = None,
) -> dict[str, float]:
    """Update the parameters once, on a batch, and return the losses by name. Gradients are computed
    for `micro_batch` rows at a time and added up (None: for all at once): the same update in less
    memory.

    Each process reads every `num_processes`-th row. DDP averages the gradients, so each process
    multiplies its numerator by their number and divides by the weight of all rows. Raise
    FloatingPointError, in all processes and before any parameter moves, if a loss or the gradient
    is not finite; with a scaled loss (float16) the scaler skips such gradients.
    """
    share = tuple(
        tensor[accelerator.process_index :: accelerator.num_processes] for tensor in batch
    )
    size, sums = micro_batch or len(share[0]) or 1, 0.0
    for piece in zip(*(tensor.split(size) for tensor in share)):
        numerator, weight, record = loss_module(piece, progress)
        sums = sums + torch.stack([weight, *record.values()]).detach()
        total, *reduced = accelerator.reduce(sums.clone(), "sum")  # in place
        total = total.clamp(min=1e-6)  # a batch with nothing to predict
        # The weight of several pieces is known behind the last one. Until then the number of
        # tokens keeps 16-bit gradients small.
        divisor = total if size >= len(share[0]) else batch[0].numel()
        scaler.scale(numerator * accelerator.num_processes / divisor).backward()
    for optimiser in optimisers:
        scaler.unscale_(optimiser)
    if size < len(share[0]):
        for parameter in trainable(loss_module).values():
            if parameter.grad is not None:
                parameter.grad *= divisor / total
    length = nn.utils.clip_grad_norm_(trainable(loss_module).values(), 1.0)
    record = {name: (value / total).item() for name, value in zip(record, reduced)}
    checked = record if scaler.is_enabled() else {**record, "gradient": length.item()}
    if wrong := [f"{name} {value}" for name, value in checked.items() if not math.isfinite(value)]:
        raise FloatingPointError(", ".join(wrong))
    for optimiser in optimisers:
        scaler.step(optimiser)
    scaler.update()
    for optimiser in optimisers:
        optimiser.zero_grad(set_to_none=True)
    return record


class Saves:
    """The saves of a training in `folder`: the last one in progress.safetensors, its log in
    log.jsonl.

    A save holds the parameters of `model`, the moments of its `optimisers`, the loss scale, the
    number of updates, and the training's `identity`. It is one safetensors file that is moved into
    place; accelerate's `save_state` writes a folder of pickles, not all at once.
    """

    def __init__(self, folder: Path, model: nn.Module, optimisers, scaler, identity: str = ""):
        self.path, self.log_path = folder / "progress.safetensors", folder / "log.jsonl"
        self.model, self.optimisers, self.scaler = model, optimisers, scaler
        self.identity, self.written_at = identity, time.monotonic()

    def due(self) -> bool:
        """Return whether the last save was written more than SAVE_SECONDS ago."""
        return time.monotonic() - self.written_at > SAVE_SECONDS

    def write(self, step: int, finished: bool, log: list[dict]) -> None:
        """Save the training after `step` updates; `finished` says whether it has ended."""
        # The log first: a resumed training drops what the log has beyond the save.
        write_text(self.log_path, "".join(json.dumps(record) + "\n" for record in log))
        self._write_progress(step, finished)
        self.written_at = time.monotonic()

    def _write_progress(self, step: int, finished: bool) -> None:
        """Write progress.safetensors."""
        tensors = {}
        for name, parameter in trainable(self.model).items():
            tensors[f"model.{name}"] = parameter.detach().contiguous()
            for optimiser in self.optimisers:
                for key, value in optimiser.state.get(parameter, {}).items():
                    tensors[f"optimiser.{key}.{name}"] = value.detach().contiguous()
        metadata = {
            "step": str(step),
            "finished": json.dumps(finished),
            "scaler": json.dumps(self.scaler.state_dict()),
            "identity": self.identity,
        }
        write_tensors(self.path, tensors, metadata)

    def load(self) -> tuple[int, bool, list[dict]]:
        """Restore the last save. Return its number of updates, whether the training had ended, and
        its log.

        Without a save, return (0, False, []). Raise CheckpointError for a damaged one and one of
        another model.
        """
        if not self.path.exists():
            return 0, False, []
        try:
            with safe_open(self.path, "pt") as saved:
                self._restore(saved)
                step, finished, scale = (
                    json.loads((saved.metadata() or {})[key])
                    for key in ("step", "finished", "scaler")
                )
            self.scaler.load_state_dict(scale)
        except (SafetensorError, RuntimeError, KeyError) as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(
                f"{self.path} cannot be resumed from ({reason}); delete its folder to train from the start"
            ) from None
        return step, finished, read_log(self.log_path, step)

    @torch.no_grad()
    def _restore(self, saved) -> None:
        """Copy parameters and moments out of an open save."""
        optimiser_of = {
            id(parameter): optimiser
            for optimiser in self.optimisers
            for group in optimiser.param_groups
            for parameter in group["params"]
        }
        for name, parameter in trainable(self.model).items():
            parameter.copy_(saved.get_tensor(f"model.{name}"))
            moments = {
                key: saved.get_tensor(f"optimiser.{key}.{name}")
                for key in MOMENTS
                if f"optimiser.{key}.{name}" in saved.keys()
            }
            if moments:
                optimiser_of[id(parameter)].state[parameter] = {
                    key: value if key == "step" else value.to(parameter.device)
                    for key, value in moments.items()
                }


def branch_saves(folder: Path, branch: Path) -> None:
    """Copy the log and the last save of the training in `folder` to `branch`, the save last."""
    for name in ("log.jsonl", "progress.safetensors"):
        write_atomically(branch / name, partial(shutil.copyfile, folder / name))


def forget_others(folder: Path, identity: str) -> None:
    """Delete the saves in `folder` that have another identity, and print a sentence if there are
    any. Damaged ones stay."""
    with processes().main_process_first():
        others = [
            path
            for path in sorted(folder.rglob("progress.safetensors"))
            if _identity_of(path) not in (None, identity)
        ]
        if others:
            print(
                f"{folder.name}: the saves in {folder} belong to another recipe or target and are deleted; training "
                "starts from the beginning"
            )
        for path in others:
            path.unlink()
            path.with_name("log.jsonl").unlink(missing_ok=True)


def _identity_of(path: Path) -> str | None:
    """Return the identity in a save, None if it is damaged."""
    try:
        with safe_open(path, "pt") as saved:
            return (saved.metadata() or {}).get("identity")
    except SafetensorError:
        return None


def read_log(path: Path, steps: int | None = None) -> list[dict]:
    """Return the first `steps` records of a log, by default all. Skip a last line that was only
    half written.

    Raise CheckpointError for any other line that is no record.
    """
    lines = (
        path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if path.exists()
        else []
    )
    try:
        return [json.loads(line) for line in lines if line.endswith("\n")][:steps]
    except ValueError:
        raise CheckpointError(
            f"{path} has a line that is no record of an update; delete this line and train again"
        ) from None
