"""The one optimisation loop: warm-up and cosine, gradient clipping, a progress bar, a save to resume from."""

import json
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tqdm import tqdm

from ..common.errors import CheckpointError
from ..common.files import write_atomically, write_text
from .allowance import Allowance
from .memory import give_back_freed_memory, keep_freed_memory
from .optimisers import check_sharding, make_optimisers, trainable
from .parallel import Objective, gather, own_rows, processes, sharded_like, whole

MOMENTS = ("step", "exp_avg", "exp_avg_sq", "momentum_buffer")  # what AdamW and Muon remember of a parameter


@dataclass(frozen=True)
class Plan:
    """How to optimise.

    `steps` updates (of which only the first `stop_at` are made if that is given), the peak learning rate and that of Muon
    for the layers' matrices (None: AdamW moves them, too), the share of warm-up, the decay of the weights, the share of
    the peak that is left at the end, seconds between saves, the number format of the matrix products (float16 gradients
    would vanish, so its loss is scaled), and the time it may take: where that is too short for the steps, the schedule is
    run through all the same, in fewer of them.
    """

    steps: int
    learning_rate: float
    matrix_rate: float | None = None
    warm_up: float = 0.04
    weight_decay: float = 0.0
    final_share: float = 0.0
    save_seconds: float = 60.0
    precision: str = "float32"
    stop_at: int | None = None
    allowance: Allowance | None = None

    @property
    def last(self) -> int:
        """The number of updates that are made."""
        return self.steps if self.stop_at is None else min(self.stop_at, self.steps)

    def place(self, step: int) -> int:
        """Where in the schedule update `step` stands: at its number, or farther on where more of the time is spent."""
        return step if self.allowance is None else max(step, int(self.steps * self.allowance.learned()))

    def share(self, step: int) -> float:
        """Share of the peak rates in update `step` (from 0): linear warm-up, then a cosine down to `final_share`."""
        warm = max(1, round(self.warm_up * self.steps))
        if step < warm:
            return (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * done)) / 2


def by_length(rows: list, batch: int, seed: int, length_of) -> list[list]:
    """Batches of rows of similar length, in a seeded order: little padding, no trend from short to long."""
    rows = list(rows)
    group = 64 * batch
    batches = []
    for start in range(0, len(rows), group):
        chunk = sorted(rows[start:start + group], key=length_of)
        batches += [chunk[at:at + batch] for at in range(0, len(chunk), batch)]
    random.Random(seed).shuffle(batches)
    return batches


def save_progress(path: Path, model, optimisers, scaler, step: int, *, write: bool = True) -> None:
    """Parameters, the optimisers' moments, loss scale and the number of finished steps in one safetensors file.

    Every process has to call this, because sharded tensors are gathered; only the one told to `write` does.
    """
    tensors = {}
    for name, parameter in trainable(model).items():
        tensors[f"model.{name}"] = whole(parameter.detach()).contiguous()
        for key, value in [entry for optimiser in optimisers for entry in optimiser.state.get(parameter, {}).items()]:
            tensors[f"optimiser.{key}.{name}"] = whole(value.detach()).contiguous()
    metadata = {"step": str(step), "scaler": json.dumps(scaler.state_dict())}
    if write:
        write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=metadata))


def load_progress(path: Path, model, optimisers, scaler) -> int:
    """Restores what `save_progress` wrote; returns the number of finished steps, 0 where there is no save."""
    if not path.exists():
        return 0
    try:
        return _restore(path, model, optimisers, scaler)
    except (SafetensorError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        advice = "delete its folder to train from the start"
        raise CheckpointError(f"{path} cannot be resumed from ({reason}); {advice}") from None


@torch.no_grad()
def _restore(path: Path, model, optimisers, scaler) -> int:
    mover = {id(parameter): optimiser for optimiser in optimisers for group in optimiser.param_groups for parameter in group["params"]}
    with safe_open(path, "pt") as saved:
        keys = saved.keys()
        for name, parameter in trainable(model).items():
            parameter.copy_(sharded_like(saved.get_tensor(f"model.{name}"), parameter))
            # In the same order everywhere: to share a tensor out is a step of all processes together.
            moments = {key: saved.get_tensor(f"optimiser.{key}.{name}") for key in MOMENTS if f"optimiser.{key}.{name}" in keys}
            if moments:
                mover[id(parameter)].state[parameter] = {key: value if key == "step" else sharded_like(value, parameter).to(parameter.device)
                                                         for key, value in moments.items()}
        scaler.load_state_dict(json.loads(saved.metadata().get("scaler", "{}")))
        return int(saved.metadata()["step"])


def optimise(model, batch_at, loss_of, plan: Plan, folder: Path, *, title: str) -> list[dict]:
    """Runs the plan and returns its log, one record of named losses a step.

    `batch_at(step)` gives the batch of a step, a tuple of tensors whose first dimension is the row, so that a resumed
    run sees the batches it would have seen. `loss_of(batch)` gives the numerator of the loss, the weight it is divided
    by (no gradient) and a dict of named numerators to record. Progress is saved in `folder`. Launched as several
    processes (training/parallel.py), each takes its share of the rows: the update is that of one process.
    """
    accelerator = processes()
    device = next(model.parameters()).device
    keep_freed_memory(device)
    check_sharding(accelerator, plan.matrix_rate)
    optimisers = make_optimisers(model, plan.learning_rate, plan.matrix_rate, plan.weight_decay)
    objective, *optimisers = accelerator.prepare(Objective(model, loss_of), *optimisers)
    scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "float16")
    progress, log_path = folder / "progress.safetensors", folder / "log.jsonl"
    first = load_progress(progress, model, optimisers, scaler)
    log = read_log(log_path, first)
    step, place, saved_at = first, plan.place(first), time.monotonic()
    with tqdm(total=plan.last, initial=first, desc=title, unit="step", disable=not accelerator.is_main_process) as bar:
        while place < plan.last:
            set_rates(optimisers, plan.share(place))
            record = backward(accelerator, objective, batch_at(step), scaler)
            update(model, optimisers, scaler)
            log.append({"step": step, **{key: round(value, 5) for key, value in record.items()}})
            step, place = step + 1, plan.place(step + 1)
            give_back_freed_memory(device, step)
            bar.update(place - bar.n)
            bar.set_postfix({key: f"{value:.3f}" for key, value in record.items()}, refresh=False)
            if place >= plan.last or agreed(accelerator, time.monotonic() - saved_at > plan.save_seconds):
                # The log first: it may hold more steps than the save (a resumed run drops them), never fewer.
                if accelerator.is_main_process:
                    write_text(log_path, "".join(json.dumps(record) + "\n" for record in log))
                save_progress(progress, model, optimisers, scaler, step, write=accelerator.is_main_process)
                if plan.allowance is not None:
                    plan.allowance.keep()
                saved_at = time.monotonic()
    gather(model)
    accelerator.wait_for_everyone()
    return log


def set_rates(optimisers, share: float) -> None:
    """Sets every learning rate to a share of its peak."""
    for group in [group for optimiser in optimisers for group in optimiser.param_groups]:
        group["lr"] = group["peak"] * share


def update(model, optimisers, scaler) -> None:
    """Clips the gradients, moves the parameters and forgets the gradients."""
    for optimiser in optimisers:
        scaler.unscale_(optimiser)
    torch.nn.utils.clip_grad_norm_(trainable(model).values(), 1.0)
    for optimiser in optimisers:
        scaler.step(optimiser)
    scaler.update()
    for optimiser in optimisers:
        optimiser.zero_grad(set_to_none=True)


def backward(accelerator, objective, batch: tuple[torch.Tensor, ...], scaler) -> dict[str, float]:
    """Leaves the gradient of the whole batch's loss in the parameters and returns the losses to record.

    Processes average their gradients, so each one's numerator is multiplied by their number; the weight is that of all.
    """
    numerator, weight, record = objective(*own_rows(accelerator, batch))
    total, *sums = accelerator.reduce(torch.stack([weight, *record.values()]).detach(), "sum")
    total = total.clamp(min=1e-6)  # a batch with nothing to predict
    scaler.scale(numerator * accelerator.num_processes / total).backward()
    return {name: (value / total).item() for name, value in zip(record, sums)}


def agreed(accelerator, wish: bool) -> bool:
    """What the main process wishes, known to all of them (their clocks differ, and all must save at once)."""
    if accelerator.num_processes == 1:
        return wish
    wished = torch.tensor(float(wish and accelerator.is_main_process), device=accelerator.device)
    return bool(accelerator.reduce(wished, "sum"))


def read_log(path: Path, steps: int | None = None) -> list[dict]:
    """The first `steps` records of an earlier run's log, or all of them."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()][:steps]
