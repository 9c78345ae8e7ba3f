"""Memory and time of the released shapes with random weights: lesson 08's needs on a GPU, without a
download.

Checkpoints of random numbers are written to a temporary folder in the released format and loaded as
the real ones are, in float16 or bfloat16, with the memory capped at a T4's. Random weights agree on
nothing, so acceptance is forced to a pattern drawn from the paper's measurements, and every report
says so: milliseconds and bytes are measured, tokens a second follow from them and the pattern.
"""

import json
import tempfile
import zlib
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tqdm import tqdm

from ...common.errors import DSparkLiteError, RequestError
from ...common.timing import bytes_a_second, fastest, wall_seconds
from ...models import weights
from ...models.checkpoints import load_drafter, load_target
from ..formats import size
from . import roofline, shapes as released
from .forced_rounds import ROUND_PARTS, forced_text, paper_pattern, timed_rounds
from .journal import machine_header
from .lab import cap_memory

FORCED = (
    "random weights; acceptance forced to a pattern drawn from the paper's Figure 2 (DSpark on Qwen3-4B), not "
    "measured"
)
FILE_BYTES = 2**30  # of a file of weights, at most
DEVIATION = 0.02  # of random weights
PROMPT = {"released": released.PROMPT_TOKENS, "tiny": 32}  # tokens
ROUNDS = {"released": 64, "tiny": 4}
# the last with all that CUDA takes
MEMORY_FIELDS = (
    "peak_bytes",
    "reserved_bytes",
    "held_bytes",
    "device_used_bytes",
)
WARM_UP = 3  # rounds that are not counted
LESSON_DRAFTERS = ("dspark", "dflash", "small_lm")  # those of lesson 08


def measure_shapes(
    shapes: str,
    drafters: list[str] | None = None,
    seed: int = 0,
    *,
    dtype: torch.dtype = torch.float16,
    folder: Path | None = None,
) -> dict:
    """Return bytes and seconds of loading, prefill and rounds, for plain decoding and each of
    `drafters` (default: LESSON_DRAFTERS).

    `shapes` is "released", which needs a GPU, or "tiny", for trying it out. The random weights stay
    in `folder`, which may hold them already (None: they are thrown away). Raise DSparkLiteError
    without a GPU, for an unknown drafter, or where the capped memory does not hold them.
    """
    names = list(LESSON_DRAFTERS if drafters is None else drafters)
    if unknown := set(names) - set(released.RELEASED_DRAFTERS):
        raise RequestError(
            f"there are no released shapes of {', '.join(sorted(unknown))}; drafters are "
            f"{', '.join(released.RELEASED_DRAFTERS)}"
        )
    if shapes == "released" and not torch.cuda.is_available():
        raise RequestError(
            "there is no GPU, and the released shapes are measured on one; run this where "
            "torch.cuda.is_available() is true, or try it out with --shapes tiny"
        )
    device = (
        torch.device("cuda", torch.cuda.current_device())
        if torch.cuda.is_available()
        else torch.device("cpu")
    )
    torch.manual_seed(seed)
    measured = {
        **machine_header(device),
        "seed": seed,
        "shapes": shapes,
        "weights": f"random, {str(dtype).removeprefix('torch.')}",
        "acceptance": FORCED,
        "prompt_tokens": PROMPT[shapes],
        "memory_cap_bytes": cap_memory(device, released.T4 / 1e9),
        **_speed(device),
    }
    try:
        with nullcontext(folder) if folder else tempfile.TemporaryDirectory() as scratch:
            rows = _phases(Path(scratch), shapes, names, device, seed, dtype)
    except torch.OutOfMemoryError as error:
        reason = str(error).splitlines()[0]
        raise DSparkLiteError(
            f"{released.T4 / 1e9:.0f} GB of GPU memory do not hold these shapes ({reason}); end what "
            "else runs on the GPU"
        ) from error
    finally:
        if device.type == "cuda":
            torch.cuda.set_per_process_memory_fraction(1.0)
    for row in rows:
        if "drafter" in row:
            row["bound_milliseconds"] = (
                bound(row["drafter"], measured) if shapes == "released" else None
            )
    return {**measured, "phases": rows}


def bound(drafter: str, measured: dict) -> dict[str, float]:
    """Return the least milliseconds of drafting and of the rest of a round, at the measured rate of
    reading."""
    device = roofline.Device(
        measured["device"], measured["bytes_per_second"], float("inf"), released.T4
    )
    works = {"draft": roofline.draft_work, "verify": roofline.verify_work}
    return {
        part: work(drafter, measured["prompt_tokens"]).bound(device) for part, work in works.items()
    }


def _speed(device: torch.device) -> dict:
    """Return the measured parts of the bound: bytes a second of reading, microseconds of a launch."""
    few, many = torch.zeros(8, device=device), 1000

    def launch():
        for _ in range(many):
            few.add_(1)

    row = {
        "bytes_per_second": bytes_a_second(device),
        "launch_microseconds": 1e6 * fastest(launch, device) / many,
    }
    if device.type == "cuda":
        torch.cuda.empty_cache()
    return row


def random_models(folder: Path, shapes: str, names: list[str], device: torch.device) -> None:
    """Write the models of the profile that `folder` lacks, in released or tiny shapes, with random
    weights."""
    shape_of = released.config if shapes == "released" else released.narrow_config
    for role in tqdm(
        [role for role in names if not (folder / role / "config.json").exists()],
        desc="random weights",
        unit="model",
    ):
        write_random(folder / role, shape_of(role), device)
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _phases(
    folder: Path, shapes: str, names: list[str], device: torch.device, seed: int, dtype: torch.dtype
) -> list[dict]:
    """Return the rows of a measurement, one a phase; only one drafter is in memory at a time."""
    random_models(folder, shapes, ["target", *names], device)
    rows, pattern = [], paper_pattern("dspark", WARM_UP + ROUNDS[shapes], seed)
    phase = partial(_phase, rows, device)
    target = phase(
        "load target", partial(load_target, str(folder / "target"), device=device, dtype=dtype)
    )
    ids = torch.arange(PROMPT[shapes], device=device)[None] % target.vocab_size
    for name in tqdm(["plain", *names], desc="phases", unit="drafter"):
        _with_drafter(phase, name, folder, target, ids, pattern)
    return rows


@torch.inference_mode()
def _with_drafter(
    phase, name: str, folder: Path, target, ids: torch.Tensor, pattern: list[int]
) -> None:
    """Load a drafter ("plain": none), read the prompt and play the rounds; let the drafter go at
    the end."""
    drafter = (
        None
        if name == "plain"
        else phase(f"load {name}", partial(load_drafter, str(folder / name), target))
    )
    generator = torch.Generator(target.device).manual_seed(0)
    pattern = [min(accepted, drafter.gamma if drafter else 0) for accepted in pattern]
    text = phase(
        f"prefill, {name}", partial(forced_text, target, drafter, ids, pattern, generator=generator)
    )
    timed_rounds(text, WARM_UP)
    phase(
        f"rounds, {name}",
        partial(timed_rounds, text, len(pattern) - WARM_UP),
        partial(_rounds_row, name, pattern[WARM_UP:]),
    )


def _phase(rows: list[dict], device: torch.device, title: str, work, summary=lambda result: {}):
    """Return the result of `work()`; add a row of its seconds, on a GPU of bytes at its peak and
    after it, and of the `summary` of the result."""
    results = []
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    row = {
        "phase": title,
        "seconds": wall_seconds(lambda: results.append(work()), device),
        **dict.fromkeys(MEMORY_FIELDS),
    }
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        row |= dict(
            zip(
                MEMORY_FIELDS,
                (
                    torch.cuda.max_memory_allocated(device),
                    torch.cuda.max_memory_reserved(device),
                    torch.cuda.memory_allocated(device),
                    total - free,
                ),
            )
        )
    rows.append(row | summary(results[0]))
    return results[0]


def _rounds_row(name: str, pattern: list[int], times: list[dict[str, float]]) -> dict:
    """Return the median milliseconds of each part of a round, and the numbers that follow from them
    and the forced pattern."""
    parts = {part: float(np.median([row[part] for row in times])) for part in ROUND_PARTS}
    total = sum(sum(row.values()) for row in times)
    committed = sum(pattern) + len(pattern)
    forced = {} if name == "plain" else {"accepted": pattern}
    return {
        "drafter": name,
        "milliseconds": parts,
        **forced,
        "accepted_length": committed / len(times),
        "tokens_per_second": 1e3 * committed / total,
    }


def write_random(folder: Path, config: dict, device: torch.device) -> None:
    """Write a checkpoint of random bfloat16 weights of this config into `folder`, in files of at
    most FILE_BYTES bytes.

    Every embedding and LM head of one shape is the same, so that those of a draft are copies of its
    target's.
    """
    from huggingface_hub import split_torch_state_dict_into_shards

    with torch.device("meta"):
        shapes = weights.module_of(released.build("target", config)).bfloat16().state_dict()
    if config.get("tie_word_embeddings"):
        shapes.pop("lm_head.weight")
    folder.mkdir(parents=True, exist_ok=True)
    files = split_torch_state_dict_into_shards(shapes, max_shard_size=FILE_BYTES)
    for file, names in files.filename_to_tensors.items():
        tensors = {name: random_tensor(name, shapes[name].shape, device) for name in names}
        save_file(tensors, folder / file, metadata={"format": "pt"})
    if files.is_sharded:
        index = {"metadata": {}, "weight_map": files.tensor_to_filename}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "config.json").write_text(json.dumps(config))


def random_tensor(name: str, shape: torch.Size, device: torch.device) -> torch.Tensor:
    """Return random numbers that the name decides, gains of one and biases of zero; made on the
    device, handed to the CPU."""
    if len(shape) < 2:
        return (torch.zeros if name.endswith("bias") else torch.ones)(shape, dtype=torch.bfloat16)
    tables = ("embed_tokens.weight", "lm_head.weight")
    seed = 0 if name.endswith(tables) else zlib.crc32(name.encode())
    generator = torch.Generator(device).manual_seed(seed)
    return (
        torch.randn(shape, generator=generator, device=device, dtype=torch.bfloat16) * DEVIATION
    ).cpu()


def shapes_report(measured: dict) -> list[str]:
    """Return a measurement for a reader."""
    cap, rate = measured["memory_cap_bytes"], size(measured["bytes_per_second"])
    capped = f", memory capped at {size(cap)}" if cap else ""
    lines = [
        f"{measured['shapes']} shapes, {measured['weights']}, on {measured['device']}{capped}, prompt of "
        f"{measured['prompt_tokens']:,} tokens",
        f"reads {rate}/s; a launch takes {measured['launch_microseconds']:.1f} microseconds",
    ]
    for row in measured["phases"]:
        lines += _phase_lines(row)
    return [*lines, f"acceptance: {measured['acceptance']}"]


def _phase_lines(row: dict) -> list[str]:
    peak = ""
    if row["peak_bytes"] is not None:
        peak = (
            f"  peak {size(row['peak_bytes'])} (reserved {size(row['reserved_bytes'])}), after it "
            f"{size(row['held_bytes'])}"
        )
    lines = [f"{row['phase']:24} {row['seconds']:8.2f} s{peak}"]
    if "drafter" in row:
        bound = (
            f"; bandwidth bound {_milliseconds(row['bound_milliseconds'])}"
            if row["bound_milliseconds"]
            else ""
        )
        forced = (
            ""
            if row["drafter"] == "plain"
            else f", accepted length {row['accepted_length']:.2f} FORCED"
        )
        lines.append(
            f"{'':24} ms a round: {_milliseconds(row['milliseconds'])}{bound}; "
            f"{row['tokens_per_second']:.1f} tokens/s{forced}"
        )
    return lines


def _milliseconds(parts: dict[str, float]) -> str:
    return ", ".join(f"{part} {value:.2f}" for part, value in parts.items())
