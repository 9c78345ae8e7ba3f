"""A prediction of a round's time on a GPU: bytes over bandwidth, arithmetic, launches.

At batch 1 every pass reads all its weights once, for one token or for a block of eight, so its time
has a floor: bytes read over the memory's bandwidth (or arithmetic over the peak, where that is
more). Eager PyTorch adds the host's time for each operation that it launches; how many there are is
counted, by running the same code on a model as deep and as narrow as can be. The two are added, as
if nothing overlapped, and the bandwidth is the data sheet's, which nobody reaches quite: these are
predictions, and every table and figure made from them says so.

Sources: NVIDIA's data sheets for T4, L4 (dense: half of what is printed with sparsity), A100 80GB
SXM (1758950, also in glennklockwood.com/garden/processors/A100) and H200 SXM (dense). A launch
takes 5 to 25 microseconds of host time, depending on the host (jiahuanglin.xyz, "From PyTorch op to
kernel launch"); LAUNCH is in between, and `python -m dspark_lite bench --shapes released` measures
the least.

For a notebook: `table()` is the predicted table as markdown, `predictions()` its rows.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ...common.errors import DSparkLiteError
from ...common.fingerprint import module_of
from .. import paper
from ..formats import markdown
from ..names import DRAFTER_LABELS as LABELS
from . import shapes
from .forced_rounds import forced_text, measure_parts

LAUNCH = 10.0  # microseconds of the host for an operation
ROUND_CONTEXT = 256  # tokens before the round
PREDICTED_DRAFTERS = ("plain", "small_lm", "eagle3", "dflash", "dspark")  # "plain" drafts nothing
NO_KERNEL = {
    "aten.empty",
    "aten.empty_like",
    "aten.new_empty",
    "aten.detach",
    "aten.lift_fresh",
    "aten._unsafe_view",
}


@dataclass(frozen=True)
class Device:
    """A GPU as its data sheet has it: bytes a second, dense 16-bit operations a second, bytes of
    memory."""

    name: str
    bandwidth: float
    operations: float
    memory: float


DEVICES = {
    device.name: device
    for device in (
        Device("T4", 320e9, 65e12, 15e9),
        Device("L4", 300e9, 121e12, 24e9),
        Device("A100", 2039e9, 312e12, 80e9),
        Device("H200", 4800e9, 989e12, 141e9),
    )
}


@dataclass(frozen=True)
class Work:
    """What a part of a round reads (bytes), computes (operations) and launches."""

    bytes: float
    operations: float
    launches: int

    def bound(self, device: Device) -> float:
        """Return the least milliseconds of this work."""
        return 1e3 * max(self.bytes / device.bandwidth, self.operations / device.operations)

    def milliseconds(self, device: Device, launch: float = LAUNCH) -> float:
        """Return milliseconds with `launch` microseconds an operation."""
        return self.bound(device) + 1e-3 * launch * self.launches


@dataclass(frozen=True)
class Prediction:
    """A round of the released models on a device, batch 1: milliseconds of drafting and of the
    rest, the floor that bytes and arithmetic set for both together, the plain step, and bytes of
    memory with a prompt of 1,024 tokens."""

    device: str
    drafter: str
    draft: float
    verify: float
    bound: float
    plain: float
    memory: int
    fits: bool

    @property
    def round(self) -> float:
        """Return the milliseconds of the whole round."""
        return self.draft + self.verify

    @property
    def break_even(self) -> float:
        """Return the accepted length (bonus included) at which the drafter is as fast as plain
        decoding."""
        return self.round / self.plain

    def tokens_per_second(self, accepted_length: float) -> float:
        """Return tokens a second at an accepted length, bonus included."""
        return 1e3 * accepted_length / self.round


def predictions(devices=tuple(DEVICES), drafters=PREDICTED_DRAFTERS) -> list[Prediction]:
    """Return rows of the predicted table, device by device, for Qwen3-4B and the drafters of the
    released profile.

    Raise DSparkLiteError for an unknown device or drafter.
    """
    return [predict(device, drafter) for device in devices for drafter in drafters]


def predict(device: str, drafter: str = "plain", *, launch: float = LAUNCH) -> Prediction:
    """Return a round of `drafter`, one of PREDICTED_DRAFTERS, on `device`, one of DEVICES, with
    `launch` microseconds an operation."""
    if device not in DEVICES or drafter not in PREDICTED_DRAFTERS:
        raise DSparkLiteError(
            f"there is no prediction of {drafter!r} on {device!r}; drafters are "
            f"{', '.join(PREDICTED_DRAFTERS)}, devices {', '.join(DEVICES)}"
        )
    gpu, role = DEVICES[device], None if drafter == "plain" else drafter
    parts = [draft_work(drafter), verify_work(drafter)]
    draft, verify = (part.milliseconds(gpu, launch) for part in parts)
    return Prediction(
        device,
        drafter,
        draft,
        verify,
        sum(part.bound(gpu) for part in parts),
        verify_work("plain").milliseconds(gpu, launch),
        sum(shapes.memory(role).values()),
        shapes.fits(role, gpu.memory),
    )


def table(devices=tuple(DEVICES), drafters=PREDICTED_DRAFTERS) -> str:
    """Return the predicted table as markdown, with tokens a second at the paper's accepted lengths
    on Qwen3-4B (a drafter that the paper does not have gets its break-even alone)."""
    accepted, rows = paper_lengths(), []
    for row in predictions(devices, drafters):
        length = accepted.get(row.drafter)
        speed = (
            ["-", "-", "-"]
            if length is None
            else [
                f"{length:.2f}",
                f"{row.tokens_per_second(length):.0f}",
                f"{length / row.break_even:.2f}",
            ]
        )
        times = [
            f"{row.draft:.1f}",
            f"{row.verify:.1f}",
            f"{row.bound:.1f}",
            f"{row.break_even:.2f}",
        ]
        memory = f"{row.memory / 1e9:.1f}" + ("" if row.fits else ", does not fit")
        rows.append([row.device, LABELS[row.drafter], *times, *speed, memory])
    return markdown(
        [
            "predicted for",
            "drafter",
            "draft (ms)",
            "verify (ms)",
            "of both, bandwidth bound (ms)",
            "break-even accepted length",
            "accepted length",
            "tokens/s",
            "times plain",
            "memory (GB)",
        ],
        rows,
    )


def paper_lengths() -> dict[str, float]:
    """Return accepted lengths on Qwen3-4B in the paper's Table 1, the mean over its domains; 1 for
    plain decoding."""
    means = {name: paper.domain_means("Qwen3-4B", name).values() for name in paper.LABELS}
    return {"plain": 1.0, **{name: float(np.mean(list(values))) for name, values in means.items()}}


def draft_work(drafter: str, context: int = ROUND_CONTEXT) -> Work:
    """Return the work of drafting a block after `context` tokens."""
    if drafter == "plain":
        return Work(0, 0, 0)
    model, read = shapes.module(drafter), shapes.keys_values(drafter, context)
    passes = model.gamma if drafter in ("small_lm", "eagle3") else 1
    tokens = 1 if passes > 1 else model.config.block_size
    once = multiplied(model.fc) if hasattr(model, "fc") else 0  # committed tokens alone pass it
    weights = multiplied(model) - once
    # A sequential head is read once a position; the pass counts it once already.
    head = (
        multiplied(model.markov_head) * (model.gamma - 1)
        if getattr(model, "markov_head", None)
        else 0
    )
    operations = 2 * tokens * passes * weights / shapes.ITEM
    return Work(passes * (weights + read) + head + once, operations, launches(drafter)["draft"])


def verify_work(drafter: str, context: int = ROUND_CONTEXT) -> Work:
    """Return the work of verifying, accepting and committing a block after `context` tokens; for
    "plain" of a step of plain decoding."""
    tokens = 1 + (shapes.module(drafter).gamma if drafter != "plain" else 0)
    weights = multiplied(shapes.module("target"))
    return Work(
        weights + shapes.keys_values("target", context),
        weights / shapes.ITEM * 2 * tokens,
        sum(count for part, count in launches(drafter).items() if part != "draft"),
    )


def multiplied(model) -> int:
    """Return the bytes of the weights that a pass of a target, drafter or module multiplies with;
    embeddings are looked up instead."""
    modules = [
        module
        for module in module_of(model).modules()
        if not isinstance(module, torch.nn.Embedding)
    ]
    return shapes.ITEM * sum(
        value.numel() for module in modules for value in module.parameters(recurse=False)
    )


class Launches(TorchDispatchMode):
    """Counts the operations that would each start a kernel on a GPU: views and allocations do not."""

    def __init__(self, device: torch.device | None = None):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, operation, types, arguments=(), named=None):
        self.total += not (operation.is_view or str(operation.overloadpacket) in NO_KERNEL)
        return operation(*arguments, **(named or {}))


@cache
def launches(drafter: str) -> dict[str, int]:
    """Return operations of each of ROUND_PARTS, in a round that is accepted whole."""
    with torch.random.fork_rng(devices=[]), torch.inference_mode():
        target, model = (
            None if role == "plain" else shapes.build(role, shapes.narrow_config(role))
            for role in ("target", drafter)
        )
        for part in (target, model) if model else (target,):
            module_of(
                part
            ).bfloat16()  # in float32 the casts of a 16-bit model are not there to be counted
        text = forced_text(
            target, model, torch.ones(1, 8, dtype=torch.long), 2 * [model.gamma if model else 0]
        )
        measure_parts(text)  # the first round finds buffers that have to grow
        return measure_parts(text, Launches)[1]
