"""A report on this machine before any download: hardware, profile, models that fit, and the time of downloads.

Works without a GPU and without a network. The Hub is asked for sizes and for a second of a transfer; where it does not
answer within HUB_SECONDS, sizes are the known ones of the released files and the rate is assumed.
"""

import os
import shutil
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from threading import Thread

import torch

from dspark_lite.common.errors import CheckpointError, DSparkLiteError
from dspark_lite.course.formats import duration, size
from dspark_lite.models import hub
from dspark_lite.models.checkpoints import default_dtype, read_config, weight_files
from . import lab, shapes

HUB_SECONDS, PROBE_SECONDS = 5.0, 1.0
ASSUMED_RATE = 25e6  # bytes a second
LIBRARIES = ("huggingface_hub", "ipywidgets")  # beside those that lab.versions names


def examine() -> dict:
    """Return everything that `doctor` prints, as JSON knows it: device, dtype, versions, cache, profile, models, download."""
    from huggingface_hub import constants

    device, folder = (
        torch.device("cuda" if torch.cuda.is_available() else "cpu"),
        Path(constants.HF_HUB_CACHE),
    )
    machine = {
        "name": lab.device_name(device),
        "capability": None,
        "free_bytes": None,
        "total_bytes": None,
    }  # None: a CPU
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        machine |= {
            "capability": list(torch.cuda.get_device_capability()),
            "free_bytes": free,
            "total_bytes": total,
        }
    sizes, rate = ask_hub(HUB_SECONDS)
    models, disk = (
        [fitting(role, sizes, machine["free_bytes"]) for role in shapes.RELEASED_MODELS],
        free_disk(folder),
    )
    return {
        "device": machine,
        "dtype": number_format(device),
        "versions": all_versions(),
        "profile": chosen_profile(),
        "models": models,
        "cache": {"folder": str(folder), "free_bytes": disk},
        "download": download_plan(models, rate, disk),
    }


def number_format(device: torch.device) -> dict:
    """Return the number format of a loaded checkpoint, and why."""
    chosen = default_dtype(device)
    reasons = {
        torch.float32: "there is no GPU",
        torch.bfloat16: "the GPU's compute capability is at least 8.0",
        torch.float16: "bfloat16 needs compute capability 8.0; below it is emulated, whatever is_bf16_supported "
        "says",
    }
    return {"name": str(chosen).removeprefix("torch."), "why": reasons[chosen]}


def all_versions() -> dict[str, str]:
    """Return versions of Python and the libraries, "not installed" where one is missing."""
    found = lab.versions()
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found


def free_disk(folder: Path) -> int:
    """Return bytes free on the disk of a folder that may not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def chosen_profile() -> dict:
    """Return the profile that `setup()` would take, and why; an unknown profile is reported, not raised."""
    try:
        name = lab.choose_profile()
    except DSparkLiteError as error:
        return {"name": None, "why": f"DSPARK_PROFILE is set, but {error}"}
    free = f"the GPU has {'at least' if name == 'released' else 'less than'} {lab.MIN_FREE_MEMORY / 2**30:.0f} GiB free"
    why = (
        "DSPARK_PROFILE says so"
        if "DSPARK_PROFILE" in os.environ
        else free
        if torch.cuda.is_available()
        else "there is no GPU"
    )
    return {"name": name, "why": why}


def ask_hub(seconds: float) -> tuple[dict[str, int], float | None]:
    """Return the Hub's answers within `seconds`: bytes by model, and bytes a second of a transfer (None without an answer).

    The client tries again and again where there is no network; nobody waits for it here.
    """
    sizes, rates = {}, []

    def ask():
        with suppress(
            Exception
        ):  # no network, or a Hub that refuses: what it would have said is known or assumed
            files = {name: hub.file_sizes(name) for name in shapes.RELEASED_MODELS.values()}
            sizes.update({name: sum(found.values()) for name, found in files.items()})
            weights = {
                (name, file): count
                for name, found in files.items()
                for file, count in found.items()
            }
            rates.append(hub.transfer_rate(*max(weights, key=weights.get), PROBE_SECONDS))

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return dict(sizes), rates[0] if rates else None


def is_cached(name: str) -> bool:
    """Return whether the cache holds a model whole, so that it loads without a network."""
    folder = hub.cached(name)
    try:
        return folder is not None and bool(read_config(folder) and weight_files(folder))
    except CheckpointError:
        return False


def fitting(role: str, sizes: dict[str, int], free: int | None) -> dict:
    """Return the memory of a model of the released profile: bytes on the Hub, alone, beside the target, and of both with a
    prompt; whether the target with it fits in `free` bytes (None without a GPU) and on a T4."""
    name, drafter = shapes.RELEASED_MODELS[role], None if role == "target" else role
    parts = shapes.memory(drafter)
    together = sum(parts.values())
    return {
        "role": role,
        "name": name,
        "cached": is_cached(name),
        "file_bytes": sizes.get(name, shapes.file_bytes(role)),
        "size_from": "Hub" if name in sizes else "known",
        "alone_bytes": shapes.weight_bytes(role),
        "beside_bytes": parts["drafter" if drafter else "target"],
        "request_bytes": parts["keys and values"] + parts["activations"],
        "together_bytes": together,
        "fits": None if free is None else together <= free,
        "fits_t4": shapes.fits(drafter, shapes.T4),
    }


def download_plan(models: list[dict], rate: float | None, free: int) -> dict:
    """Return bytes that are not in the cache yet, seconds that they take at the measured or the assumed rate, and whether the
    disk has room for them."""
    missing = sum(model["file_bytes"] for model in models if not model["cached"])
    speed = rate or ASSUMED_RATE
    return {
        "missing_bytes": missing,
        "bytes_per_second": speed,
        "rate": "measured" if rate else "assumed",
        "seconds": missing / speed,
        "disk_has_room": missing <= free,
    }


def machine_report(found: dict) -> list[str]:
    """Return the report of `examine` for a reader."""
    machine = found["device"]
    room = ""
    if machine["free_bytes"] is not None:
        room = (
            f", compute capability {'.'.join(map(str, machine['capability']))}, {size(machine['free_bytes'])} of "
            f"{size(machine['total_bytes'])} free"
        )
    cached = [model["name"] for model in found["models"] if model["cached"]]
    return [
        f"device: {machine['name']}{room}",
        f"number format: {found['dtype']['name']} ({found['dtype']['why']})",
        "versions: "
        + ", ".join(f"{name} {version}" for name, version in found["versions"].items()),
        f"Hub cache: {found['cache']['folder']}, {size(found['cache']['free_bytes'])} free on its disk; whole in it: "
        + (", ".join(cached) or "none of the models below"),
        f"profile: {found['profile']['name']} ({found['profile']['why']})",
        "",
        f"what fits (16 bit, a prompt of {shapes.PROMPT_TOKENS:,} tokens; a T4 has {size(shapes.T4)}, of which CUDA "
        f"takes about {size(shapes.CUDA)}):",
        *_fitting_lines(found["models"]),
        "",
        _download_line(found),
    ]


def _fitting_lines(models: list[dict]) -> list[str]:
    rows = [
        (
            "",
            "on the Hub",
            "alone",
            "beside target",
            "K/V, activations",
            "all together",
            "here",
            "on a T4",
        )
    ]
    fields = ("file_bytes", "alone_bytes", "beside_bytes", "request_bytes", "together_bytes")
    answers = {None: "no GPU", True: "fits", False: "does not fit"}
    for model in models:
        sizes = (model[field] for field in fields)
        rows.append(
            (model["name"], *map(size, sizes), answers[model["fits"]], answers[model["fits_t4"]])
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
        for row in rows
    ]


def _download_line(found: dict) -> str:
    loading = found["download"]
    if not loading["missing_bytes"]:
        return "download: nothing, the cache holds all of them"
    known = all(model["size_from"] == "Hub" for model in found["models"])
    sizes = "as the Hub lists them" if known else "known sizes, the Hub did not answer"
    full = "; the disk of the cache has no room for it: set HF_HOME to a folder on another disk"
    return (
        f"download: {size(loading['missing_bytes'])} ({sizes}), {duration(loading['seconds'])} at "
        f"{size(loading['bytes_per_second'])}/s ({loading['rate']}){'' if loading['disk_has_room'] else full}"
    )
