"""The one optimisation loop: warm-up and cosine, gradient clipping, a progress bar, a save to resume from."""

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from tqdm import tqdm

from ..checkpoints import write_atomically
from ..errors import CheckpointError


@dataclass(frozen=True)
class Plan:
    """How to optimise: `steps` updates, peak learning rate, share of warm-up, decay of the weights, seconds between saves."""

    steps: int
    learning_rate: float
    warm_up: float = 0.04
    weight_decay: float = 0.0
    final_share: float = 0.0
    save_seconds: float = 60.0

    def rate(self, step: int) -> float:
        """Learning rate of update `step` (from 0): linear warm-up, then a cosine down to `final_share` of the peak."""
        warm = max(1, round(self.warm_up * self.steps))
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        done = (step - warm) / max(1, self.steps - warm)
        return self.learning_rate * (self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * done)) / 2)


def trainable(model) -> dict[str, torch.nn.Parameter]:
    """The parameters that the optimiser moves, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def save_progress(path: Path, model, optimiser, step: int) -> None:
    """Parameters, optimiser moments and the number of finished steps in one safetensors file."""
    tensors = {}
    for name, parameter in trainable(model).items():
        tensors[f"model.{name}"] = parameter.detach().contiguous()
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{key}.{name}"] = value.detach().contiguous()
    write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata={"step": str(step)}))


def load_progress(path: Path, model, optimiser) -> int:
    """Restores what `save_progress` wrote; returns the number of finished steps, 0 where there is no save."""
    if not path.exists():
        return 0
    try:
        return _restore(path, model, optimiser)
    except (SafetensorError, RuntimeError) as error:
        raise CheckpointError(f"{path} cannot be resumed from ({error}); delete its folder to train from the start") from None


def _restore(path: Path, model, optimiser) -> int:
    with safe_open(path, "pt") as saved:
        keys = set(saved.keys())
        for name, parameter in trainable(model).items():
            parameter.data.copy_(saved.get_tensor(f"model.{name}"))
            optimiser.state[parameter] = {key: saved.get_tensor(f"optimiser.{key}.{name}")
                                          for key in ("step", "exp_avg", "exp_avg_sq") if f"optimiser.{key}.{name}" in keys}
        return int(saved.metadata()["step"])


def optimise(model, batch_at, loss_of, plan: Plan, folder: Path, *, title: str) -> list[dict]:
    """Runs the plan and returns its log, one record of named losses a step.

    `batch_at(step)` gives the batch of a step, a tuple of tensors whose first dimension is the row, so that a resumed run
    sees the batches it would have seen. `loss_of(batch)` gives the numerator of the loss, the weight it is divided by (no
    gradient) and a dict of named numerators to record. Progress is saved in `folder`.
    """
    optimiser = torch.optim.AdamW(trainable(model).values(), lr=plan.learning_rate, betas=(0.9, 0.98),
                                  weight_decay=plan.weight_decay)
    progress, log_path = folder / "progress.safetensors", folder / "log.jsonl"
    first = load_progress(progress, model, optimiser)
    log = read_log(log_path, first)
    saved_at = time.monotonic()
    with tqdm(total=plan.steps, initial=first, desc=title, unit="step") as bar:
        for step in range(first, plan.steps):
            for group in optimiser.param_groups:
                group["lr"] = plan.rate(step)
            numerator, weight, record = loss_of(batch_at(step))
            (numerator / weight).backward()
            torch.nn.utils.clip_grad_norm_(trainable(model).values(), 1.0)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
            log.append({"step": step, **{key: round(float(value), 5) for key, value in record.items()}})
            bar.update(1)
            bar.set_postfix({key: f"{value:.3f}" for key, value in log[-1].items() if key != "step"}, refresh=False)
            if time.monotonic() - saved_at > plan.save_seconds or step + 1 == plan.steps:
                # The log first: it may hold more steps than the save (a resumed run drops them), never fewer.
                write_lines(log_path, log)
                save_progress(progress, model, optimiser, step + 1)
                saved_at = time.monotonic()
    return log


def write_lines(path: Path, rows: list) -> None:
    """Writes rows as JSON lines, whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text("".join(json.dumps(row) + "\n" for row in rows)))


def read_log(path: Path, steps: int) -> list[dict]:
    """The first `steps` records of an earlier run's log."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()][:steps]
