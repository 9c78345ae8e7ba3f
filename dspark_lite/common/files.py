"""Files: where the package's own and a reader's lie, reading JSON, and writing that leaves no half of a file."""

import glob
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from .errors import CheckpointError, DSparkLiteError, RequestError

# The repository, or the folder into which the wheel was installed.
ROOT = Path(__file__).resolve().parents[2]
# Files that a wheel carries: pyproject.toml puts them there.
CARRIED = ROOT / "dspark_lite" / "data"
IN_CLONE = not CARRIED.is_dir()
ABANDONED = 3600  # seconds after which nobody writes a temporary file any more
# Commands write under this folder by default; from a wheel, it is the current one.
WORK = ROOT if IN_CLONE else Path()
# The folder of each in a clone.
DATA = {
    "checkpoints": "assets/checkpoints",
    "recipes": "assets/recipes",
    "reference": "assets/reference",
}


def data_folder(name: str) -> Path:
    """The folder of what comes with the package, a key of DATA: in a clone where git has it, else inside dspark_lite."""
    return ROOT / DATA[name] if IN_CLONE else CARRIED / name


def read_object(path: Path) -> dict:
    """The JSON object in a file. Raise CheckpointError for a file that is missing or holds something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}); copy or download it again") from None
    if not isinstance(found, dict):
        raise CheckpointError(
            f"{path} holds a {type(found).__name__}, not a JSON object; copy or download it again"
        )
    return found


def load_fields(make, path: Path | str, *names: str, **optional):
    """What `make` makes of the named fields of a JSON object in a file and of the `optional` ones, which have a default; raises
    CheckpointError where the file or a field is missing, and where `make` refuses them."""
    held = read_object(Path(path))
    missing = [name for name in names if name not in held]
    if missing:
        raise CheckpointError(
            f"{path} has no field {', '.join(missing)}; it must have {', '.join(names)}"
        )
    try:
        return make(
            **{name: held[name] for name in names},
            **{name: held.get(name, default) for name, default in optional.items()},
        )
    except (
        RequestError,
        ValueError,
        TypeError,
        OverflowError,
        RuntimeError,
    ) as error:  # the last two by torch and numpy
        raise CheckpointError(f"{path}: {error}") from None


def write_atomically(path: Path, write) -> None:
    """Call `write(temporary path)` and move the result to `path`, so that a stop never leaves half a file.

    The temporary file carries this process's number, because two kernels may write the same file. An error removes
    it. If a killed process left one, the first write of that file more than an hour later removes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for left in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > ABANDONED:
                left.unlink()
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_tensors(path: Path, tensors: dict[str, torch.Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file, whole or not at all. Raise OSError as for other files, on a full disk too."""
    try:
        write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=metadata))
    except SafetensorError as error:
        raise OSError(None, str(error), str(path)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, whole or not at all, with the same bytes on every system."""
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode()))


# What json.dumps writes: a string, a number that JSON does not know, or a list of numbers (also nested).
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity|\[[\s\d.,+e\-\[\]]+\]')


def write_json(path: Path, measured: dict) -> None:
    """Write a measurement, whole or not at all; each list of numbers, also a nested one, stands on one line.

    NaN, which stands for a quantity that nothing was measured of, becomes null. Raise DSparkLiteError for an
    infinite number, which JSON does not know.
    """

    def written(match: re.Match) -> str:
        token = match[0]
        if token.startswith('"'):
            return token
        if token.startswith("["):
            return re.sub(r"\s+", " ", token)
        if token == "NaN":
            return "null"
        raise DSparkLiteError(
            f"{path} is not written: a number in it is infinite, and JSON knows no such number"
        )

    write_text(path, TOKEN.sub(written, json.dumps(measured, indent=1)) + "\n")
