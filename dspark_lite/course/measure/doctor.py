"""What fits this machine, and which versions it has: one screen, without a GPU and without a
network too."""

import os
import shutil
from importlib import metadata
from pathlib import Path

import torch

from ...common.errors import CheckpointError, DSparkLiteError
from ...models import hub
from ...models.checkpoints import default_dtype, read_config, weight_files
from ..formats import size
from . import lab, shapes

LIBRARIES = ("huggingface_hub", "ipywidgets")  # beside those that lab.versions names


def examine() -> dict:
    """Return everything that `doctor` prints, as JSON has it: device, dtype, versions, profile,
    cache, models.

    On a CPU capability, free_bytes and total_bytes of the device are None, and so is `fits` of a
    model.
    """
    from huggingface_hub import constants

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    free = total = capability = None
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info()
        capability = list(torch.cuda.get_device_capability())
    cache = Path(constants.HF_HUB_CACHE)
    return {
        "device": {
            "name": lab.device_name(device),
            "capability": capability,
            "free_bytes": free,
            "total_bytes": total,
        },
        "dtype": number_format(device),
        "versions": all_versions(),
        "profile": chosen_profile(),
        "cache": {"folder": str(cache), "free_bytes": free_disk(cache)},
        "models": [fitting(role, free) for role in shapes.RELEASED_MODELS],
    }


def number_format(device: torch.device) -> dict:
    """Return the number format that a checkpoint is loaded in, and why."""
    chosen = default_dtype(device)
    reasons = {
        torch.float32: "there is no GPU",
        torch.bfloat16: "the GPU's compute capability is at least 8.0",
        torch.float16: "bfloat16 needs compute capability 8.0; below, it is emulated, whatever is_bf16_supported says",
    }
    return {"name": str(chosen).removeprefix("torch."), "why": reasons[chosen]}


def all_versions() -> dict[str, str]:
    """Return the versions of Python and the libraries, "not installed" for one that is missing."""
    installed = lab.versions()
    for name in LIBRARIES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "not installed"
    return installed


def chosen_profile() -> dict:
    """Return the profile that `setup()` takes, and why; the name is None if DSPARK_PROFILE names no
    profile."""
    try:
        name = lab.choose_profile()
    except DSparkLiteError as error:
        return {"name": None, "why": f"DSPARK_PROFILE is set, but {error}"}
    if "DSPARK_PROFILE" in os.environ:
        return {"name": name, "why": "DSPARK_PROFILE says so"}
    if not torch.cuda.is_available():
        return {"name": name, "why": "there is no GPU"}
    free = "at least" if name == "released" else "less than"
    return {
        "name": name,
        "why": f"the GPU has {free} {lab.MIN_FREE_MEMORY / 2**30:.0f} GiB free",
    }


def free_disk(folder: Path) -> int:
    """Return the bytes free on the disk of a folder that may not exist yet."""
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def fitting(role: str, free: int | None) -> dict:
    """Return a model of the released profile: bytes of its files, and of target, this drafter and a
    prompt together.

    `fits` says whether they fit in `free` bytes (None: there is no GPU), `fits_t4` whether they fit
    on a T4.
    """
    drafter = None if role == "target" else role
    together = sum(shapes.memory(drafter).values())
    return {
        "role": role,
        "name": shapes.RELEASED_MODELS[role],
        "cached": is_cached(shapes.RELEASED_MODELS[role]),
        "file_bytes": shapes.file_bytes(role),
        "together_bytes": together,
        "fits": None if free is None else together <= free,
        "fits_t4": shapes.fits(drafter, shapes.T4),
    }


def is_cached(name: str) -> bool:
    """Return whether the Hub's cache holds a model whole, so that it loads without a network."""
    folder = hub.cached(name)
    try:
        return folder is not None and bool(read_config(folder) and weight_files(folder))
    except CheckpointError:
        return False


def machine_report(examined: dict) -> list[str]:
    """Return what `examine` returned as lines."""
    machine, cache, room = examined["device"], examined["cache"], ""
    if machine["free_bytes"] is not None:
        capability = ".".join(map(str, machine["capability"]))
        free, total = (size(machine[name]) for name in ("free_bytes", "total_bytes"))
        room = f", compute capability {capability}, {free} of {total} free"
    versions = ", ".join(f"{name} {version}" for name, version in examined["versions"].items())
    missing = sum(model["file_bytes"] for model in examined["models"] if not model["cached"])
    full = "; the disk has no room for it: set HF_HOME to a folder on another disk"
    return [
        f"device: {machine['name']}{room}",
        f"number format: {examined['dtype']['name']} ({examined['dtype']['why']})",
        f"versions: {versions}",
        f"profile: {examined['profile']['name']} ({examined['profile']['why']})",
        f"the released models, in 16 bit, with a prompt of {shapes.PROMPT_TOKENS:,} tokens:",
        *_table(examined["models"]),
        f"to download: {size(missing)}; the cache is {cache['folder']}, {size(cache['free_bytes'])} free"
        + full * (missing > cache["free_bytes"]),
    ]


def _table(models: list[dict]) -> list[str]:
    """Return a line for each model, in columns."""
    words = {None: "no GPU", True: "fits", False: "does not fit"}
    rows = [("", "file", "with the target", "here", "on a T4", "cached")]
    for model in models:
        sizes = size(model["file_bytes"]), size(model["together_bytes"])
        fits = words[model["fits"]], words[model["fits_t4"]]
        rows.append((model["name"], *sizes, *fits, "yes" if model["cached"] else "no"))
    widths = [max(map(len, column)) for column in zip(*rows)]
    return [
        "  " + "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
        for row in rows
    ]
