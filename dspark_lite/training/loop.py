"""The optimisation loop, from top to bottom: how long and how fast, batches, what moves the weights, precision, saves, updates.

One process or several (`accelerate launch -m dspark_lite train RECIPE`): data parallel, an update is that of one process.
Saves are one safetensors file, moved into place: accelerate's `save_state` writes a folder of pickles, not all at once.
"""

import ctypes
import json
import math
import random
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from safetensors import SafetensorError, safe_open
from torch import nn
from tqdm import tqdm

from ..common.errors import CheckpointError, DSparkLiteError
from ..common.files import write_json, write_tensors, write_text
from ..common.timing import fastest
from ..models.checkpoints import default_dtype
from .muon import Muon

MUON_MOMENTUM = 0.95
# Tables with a row for each token are trained by AdamW, as vectors are.
VOCABULARY = (
    "embed_tokens",
    "lm_head",
    "markov_w1",
    "markov_w2",
)
# The state of AdamW and Muon for a parameter.
MOMENTS = (
    "step",
    "exp_avg",
    "exp_avg_sq",
    "momentum_buffer",
)
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # parameters of mallopt(3) in glibc's malloc.h
KEPT_UPDATES = 20  # updates for which a CPU's freed memory is kept: the longer, the more of it lies in pieces that fit nothing
REACHED = 0.4  # share of the fastest matrix product that a pass reaches
WAIT = timedelta(days=30)  # the main process writes answers and cache alone, the others wait


# How long and how fast ------------------------------------------------------------------------------------------------


class Allowance:
    """The seconds that a training may take in all its runs together; those of earlier runs are kept in the file `path`, under
    the `identity` of what is trained: another training begins with all of its time.

    `clock` gives seconds. Raises DSparkLiteError for a time that is not above 0 or has no end.
    """

    def __init__(
        self,
        path: Path,
        seconds: float,
        identity: str = "",
        clock: Callable[[], float] = time.monotonic,
    ):
        if not 0 < seconds < math.inf:
            raise DSparkLiteError(
                f"--minutes is {seconds / 60:g}; a training needs some time and an end, "
                "5 minutes for the tiny target, an evening on a T4"
            )
        self.path, self.seconds, self.identity, self.clock, self.started = (
            path,
            seconds,
            identity,
            clock,
            clock(),
        )
        earlier = json.loads(path.read_text()) if path.exists() else {}
        self.before = earlier["seconds"] if earlier.get("identity") == identity else 0.0

    def spent(self, start: float = 0.0, end: float = 1.0) -> float:
        """The share of the time between the shares `start` and `end` of it that is over, from 0 to 1."""
        over = (self.before + self.clock() - self.started) / self.seconds
        return min(1.0, max(0.0, (over - start) / (end - start)))

    def keep(self) -> None:
        """Write down the seconds so far, for the run after a stop."""
        write_json(
            self.path,
            {"seconds": self.before + self.clock() - self.started, "identity": self.identity},
        )


@dataclass(frozen=True)
class Plan:
    """How long and how fast to learn."""

    steps: int  # updates, unless the time is over sooner
    learning_rate: float  # AdamW's, at its peak
    matrix_rate: float | None = (
        None  # Muon's for the layers' matrices, at its peak; None: AdamW moves them, too
    )
    warm_up: float = 0.04  # share of the progress over which the rates rise
    weight_decay: float = 0.0
    final_share: float = 0.02  # of the peak rates, at the end of the cosine
    decay: int | None = (
        None  # the last updates, over which constant rates fall linearly to 0; None: they fall along a cosine
    )
    span: int | None = (
        None  # updates from progress 0 to 1, where that is not the end (a training of several passes); None: `steps`
    )
    precision: str = (
        "float32"  # of the matrix products; float16 gradients would vanish, so its loss is scaled
    )
    save_seconds: float = 60.0  # between saves
    allowance: Allowance | None = None  # the time, where it is bounded
    # When these updates start and end, as shares of the allowed time.
    window: tuple[float, float] = (
        0.0,
        1.0,
    )

    def time_over(self) -> float:
        """The share of the time for these updates that is over; 0 where it is not bounded."""
        return 0.0 if self.allowance is None else self.allowance.spent(*self.window)

    def progress(self, step: int) -> float:
        """How far update `step` (from 0) is: 0 in the first, 1 in the last one, by updates or, where that is farther, by time.

        Rates and losses both follow this number. So a training that its time cuts short still comes to their ends.
        """
        return min(1.0, max(step / max(1, (self.span or self.steps) - 1), self.time_over()))

    def rate(self, step: int, progress: float) -> float:
        """Share of the peak rates in an update: linear warm-up, then a cosine, or constant with a linear end."""
        span = self.span or self.steps
        warm = (progress * (span - 1) + 1) / max(1.0, self.warm_up * span)
        if warm <= 1:
            return warm
        if self.decay is not None:
            return min(1.0, (self.steps - step) / (self.decay + 1))
        fallen = max(0.0, (progress - self.warm_up) / (1 - self.warm_up))
        return self.final_share + (1 - self.final_share) * (1 + math.cos(math.pi * fallen)) / 2


# Batches and optimisers -----------------------------------------------------------------------------------------------


def by_length(rows: list, batch: int, seed: int, length_of) -> list[list]:
    """Batches of rows of similar length in a random order: little padding, no trend from short to long.

    Rows are mixed first and sorted within groups of 64 batches, or four groups of fewer: epochs, each with a seed of its own,
    differ in which rows meet, not only in when.
    """
    rows, draw = list(rows), random.Random(seed)
    draw.shuffle(rows)
    group, batches = batch * max(1, min(64, len(rows) // (4 * batch))), []
    for start in range(0, len(rows), group):
        alike = sorted(rows[start : start + group], key=length_of)
        batches += [alike[at : at + batch] for at in range(0, len(alike), batch)]
    draw.shuffle(batches)
    return batches


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that the optimisers move, by name."""
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }


def is_layer_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Return whether Muon is meant for this parameter: a matrix between hidden states, no vector and no vocabulary's table."""
    return (
        parameter.ndim == 2
        and min(parameter.shape) > 1
        and not any(table in name for table in VOCABULARY)
    )


def make_optimisers(model: nn.Module, plan: Plan) -> list[torch.optim.Optimizer]:
    """AdamW for everything or, with a `matrix_rate`, beside Muon for the layers' matrices, which moves each along its momentum made
    orthogonal (Jordan et al. 2024), scaled by the root of rows over columns where that is more than 1."""
    named = trainable(model)
    matrices = {
        name: p
        for name, p in named.items()
        if plan.matrix_rate is not None and is_layer_matrix(name, p)
    }
    others = [p for name, p in named.items() if name not in matrices]
    optimisers = (
        [
            torch.optim.AdamW(
                others, lr=plan.learning_rate, betas=(0.9, 0.98), weight_decay=plan.weight_decay
            )
        ]
        if others
        else []
    )
    if matrices:
        device = next(iter(matrices.values())).device
        dtype = torch.bfloat16 if precision_on(device, "bfloat16") == "bfloat16" else torch.float32
        optimisers.append(
            Muon(
                matrices.values(),
                dtype,
                lr=plan.matrix_rate,
                momentum=MUON_MOMENTUM,
                weight_decay=plan.weight_decay,
            )
        )
    return optimisers


# Processes and memory -------------------------------------------------------------------------------------------------


def processes() -> Accelerator:
    """The processes of this training: those of `accelerate launch`, or this one alone, which stays on its device."""
    return Accelerator(
        device_placement=False, kwargs_handlers=[InitProcessGroupKwargs(timeout=WAIT)]
    )


def training_device(device: str | None) -> torch.device:
    """The device asked for, else a GPU where there is one; each launched process has its own."""
    accelerator = processes()
    if accelerator.num_processes > 1:
        return accelerator.device
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


def autocast(device: torch.device, precision: str):
    """16-bit matrix products, "bfloat16" or "float16", plain float32 for "float32"."""
    return (
        nullcontext()
        if precision == "float32"
        else torch.autocast(device.type, getattr(torch, precision))
    )


@cache
def precision_on(device: torch.device, asked: str) -> str:
    """The precision a recipe asks for; "float32" on a CPU that is slower in it (many have no 16-bit arithmetic and take a
    hundred times as long), "float16" for "bfloat16" on a GPU that would emulate it (of a compute capability below 8.0)."""
    if device.type == "cuda" and asked == "bfloat16":
        return str(default_dtype(device)).removeprefix("torch.")
    if device.type != "cpu" or asked == "float32":
        return asked
    faster = operations_a_second(device, getattr(torch, asked)) > operations_a_second(
        device, torch.float32
    )
    return asked if faster else "float32"


def operations_a_second(device: torch.device, dtype: torch.dtype) -> float:
    """Arithmetic operations a second that a pass reaches on this device: a share of what a matrix product reaches."""
    side = 4096 if device.type == "cuda" else 256
    own = torch.Generator(device).manual_seed(0)  # the caller's random numbers stay as they are
    matrix = torch.randn(side, side, generator=own, device=device, dtype=dtype)
    return REACHED * 2 * side**3 / fastest(lambda: matrix @ matrix, device)


class Objective(nn.Module):
    """The model and its loss as one module, so that DDP sees the whole forward pass."""

    def __init__(self, model: nn.Module, loss_of):
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward(self, batch: tuple[torch.Tensor, ...], progress: float):
        return self.loss_of(batch, progress)


def c_library(device: torch.device):
    """The C library where it is glibc and tensors are a CPU's, else None."""
    library = ctypes.CDLL(None) if (device.type, sys.platform) == ("cpu", "linux") else None
    return library if hasattr(library, "malloc_trim") else None


def keep_freed_memory(device: torch.device) -> None:
    """Let glibc keep freed memory for a CPU's next tensors. Else each large one comes from the kernel, page by page
    and zeroed, and goes back to it: a quarter of an update's time. The loop trims it every KEPT_UPDATES updates, or it
    would grow. The setting is the whole process's and cannot be taken back: it is for a process that only trains.
    """
    if library := c_library(device):
        library.mallopt(M_MMAP_MAX, 0)
        library.mallopt(M_TRIM_THRESHOLD, -1)  # never


# Saves ----------------------------------------------------------------------------------------------------------------


def save_progress(
    path: Path, model: nn.Module, optimisers, scaler, step: int, finished: bool, identity: str
) -> None:
    """Parameters, the optimisers' moments, the loss scale, the number of finished updates, whether the last one is among them,
    and what is trained on what, in one safetensors file."""
    tensors = {}
    for name, parameter in trainable(model).items():
        tensors[f"model.{name}"] = parameter.detach().contiguous()
        for key, value in [
            entry
            for optimiser in optimisers
            for entry in optimiser.state.get(parameter, {}).items()
        ]:
            tensors[f"optimiser.{key}.{name}"] = value.detach().contiguous()
    metadata = {
        "step": str(step),
        "finished": json.dumps(finished),
        "scaler": json.dumps(scaler.state_dict()),
        "identity": identity,
    }
    write_tensors(path, tensors, metadata)


@torch.no_grad()
def load_progress(path: Path, model: nn.Module, optimisers, scaler) -> tuple[int, bool]:
    """Restore what `save_progress` wrote. Return the number of finished updates and whether the last one was among them, (0,
    False) where there is no save. Raise CheckpointError for a damaged one."""
    if not path.exists():
        return 0, False
    mover = {
        id(parameter): optimiser
        for optimiser in optimisers
        for group in optimiser.param_groups
        for parameter in group["params"]
    }
    try:
        with safe_open(path, "pt") as saved:
            for name, parameter in trainable(model).items():
                parameter.copy_(saved.get_tensor(f"model.{name}"))
                moments = {
                    key: saved.get_tensor(f"optimiser.{key}.{name}")
                    for key in MOMENTS
                    if f"optimiser.{key}.{name}" in saved.keys()
                }
                if moments:
                    mover[id(parameter)].state[parameter] = {
                        key: value if key == "step" else value.to(parameter.device)
                        for key, value in moments.items()
                    }
            step, finished, scale = (
                json.loads(saved.metadata()[key]) for key in ("step", "finished", "scaler")
            )
        scaler.load_state_dict(scale)
        return step, finished
    except (SafetensorError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{path} cannot be resumed from ({reason}); delete its folder to train from the start"
        ) from None


def forget_others(folder: Path, identity: str) -> None:
    """Deletes the saves in `folder` of a training of another `identity` (what is trained on what), after one sentence, so that
    this one starts anew; damaged ones stay."""
    with processes().main_process_first():
        others = [
            path
            for path in sorted(folder.rglob("progress.safetensors"))
            if _identity_of(path) not in (None, identity)
        ]
        if others:
            print(
                f"{folder.name}: what was saved in {folder} is of another recipe or another target; the training starts anew"
            )
        for path in others:
            path.unlink()
            path.with_name("log.jsonl").unlink(missing_ok=True)


def _identity_of(path: Path) -> str | None:
    """The identity in a save, None in a damaged one."""
    try:
        with safe_open(path, "pt") as saved:
            return saved.metadata().get("identity", "")
    except SafetensorError:
        return None


def read_log(path: Path, steps: int | None = None) -> list[dict]:
    """The first `steps` records of an earlier run's log, or all of them; a last line that was only half written is left out.

    Raise CheckpointError for another line that is no record.
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


# Updates --------------------------------------------------------------------------------------------------------------


def update(
    accelerator, objective, optimisers, scaler, batch: tuple[torch.Tensor, ...], progress: float
) -> dict[str, float]:
    """One update of the parameters on a batch. Return the losses to record.

    Each process takes every `num_processes`-th row. Processes average their gradients, so each one's numerator is multiplied
    by their number; the weight is that of all. Raise FloatingPointError, in all processes and before any parameter moves, where
    a loss or the gradient is not finite; with a scaled loss (float16) such gradients are the scaler's to skip.
    """
    own = tuple(tensor[accelerator.process_index :: accelerator.num_processes] for tensor in batch)
    numerator, weight, record = objective(own, progress)
    total, *sums = accelerator.reduce(torch.stack([weight, *record.values()]).detach(), "sum")
    total = total.clamp(min=1e-6)  # a batch with nothing to predict
    scaler.scale(numerator * accelerator.num_processes / total).backward()
    for optimiser in optimisers:
        scaler.unscale_(optimiser)
    length = nn.utils.clip_grad_norm_(trainable(objective).values(), 1.0)
    record = {name: (value / total).item() for name, value in zip(record, sums)}
    judged = record if scaler.is_enabled() else {**record, "gradient": length.item()}
    if wrong := [f"{name} {value}" for name, value in judged.items() if not math.isfinite(value)]:
        raise FloatingPointError(", ".join(wrong))
    for optimiser in optimisers:
        scaler.step(optimiser)
    scaler.update()
    for optimiser in optimisers:
        optimiser.zero_grad(set_to_none=True)
    return record


def optimise(
    model: nn.Module, batch_at, loss_of, plan: Plan, folder: Path, *, title: str, identity: str = ""
) -> list[dict]:
    """Run the plan and return its log, one record of named losses an update.

    `batch_at(step)` gives the batch of an update, a tuple of tensors whose first dimension is the row: a resumed run sees the
    batches it would have seen. `loss_of(batch, progress)`, with the plan's progress from 0 to 1, gives the numerator of the
    loss, the weight it is divided by (no gradient) and a dict of named numerators to record.

    Progress is saved in `folder`, with the `identity` that `forget_others` goes by. Where the time is over, one more update is
    made, at progress 1. Raise DSparkLiteError at the first update whose loss or gradient is not finite; the last save stays.
    """
    accelerator, device = processes(), next(model.parameters()).device
    optimisers = make_optimisers(model, plan)
    peaks = [group["lr"] for optimiser in optimisers for group in optimiser.param_groups]
    scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "float16")
    path, log_path = folder / "progress.safetensors", folder / "log.jsonl"
    step, finished = load_progress(path, model, optimisers, scaler)
    log, saved_at = read_log(log_path, step), time.monotonic()
    objective, *optimisers = accelerator.prepare(Objective(model, loss_of), *optimisers)
    # With more time than before, a finished training goes on.
    finished = step >= plan.steps or finished and plan.time_over() == 1
    with tqdm(
        total=plan.steps,
        initial=step,
        desc=title,
        unit="step",
        disable=not accelerator.is_main_process,
    ) as bar:
        while not finished:
            progress = plan.progress(step)
            for group, peak in zip(
                [group for optimiser in optimisers for group in optimiser.param_groups], peaks
            ):
                group["lr"] = peak * plan.rate(step, progress)
            try:
                record = update(
                    accelerator, objective, optimisers, scaler, batch_at(step), progress
                )
            except FloatingPointError as error:
                raise DSparkLiteError(
                    f"{title} stops at step {step}, whose losses are no numbers any more ({error}); nothing of it is saved: train "
                    "with a smaller learning_rate, or a smaller matrix_rate where the recipe has one"
                ) from None
            log.append({"step": step, **{key: round(value, 5) for key, value in record.items()}})
            step += 1
            finished = step >= plan.steps or plan.allowance is not None and progress == 1
            if step % KEPT_UPDATES == 0 and (library := c_library(device)):
                library.malloc_trim(0)
            bar.update()
            bar.set_postfix({key: f"{value:.3f}" for key, value in record.items()}, refresh=False)
            if accelerator.is_main_process and (
                finished or time.monotonic() - saved_at > plan.save_seconds
            ):
                # The log first: it may hold more updates than the save (a resumed run drops them), never fewer.
                write_text(log_path, "".join(json.dumps(record) + "\n" for record in log))
                save_progress(path, model, optimisers, scaler, step, finished, identity)
                if plan.allowance is not None:
                    plan.allowance.keep()
                saved_at = time.monotonic()
    accelerator.wait_for_everyone()
    return log
