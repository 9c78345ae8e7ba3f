"""Find the package's files, read JSON, and write files whole or not at all."""

import glob
import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from .errors import CheckpointError, DSparkLiteError, RequestError

# The repository, or the folder into which the wheel was installed.
ROOT = Path(__file__).resolve().parents[2]
# pyproject.toml copies the package's files here when it builds a wheel.
CARRIED = ROOT / "dspark_lite" / "data"
IN_CLONE = not CARRIED.is_dir()
ABANDONED = 3600  # seconds after which a temporary file has no writer any more
# Commands write under this folder by default: the repository, or the current folder for a wheel.
WORK = ROOT if IN_CLONE else Path()
# The package's folders of files in a clone.
DATA = {
    "checkpoints": "assets/checkpoints",
    "recipes": "assets/recipes",
    "reference": "assets/reference",
}


def data_folder(name: str) -> Path:
    """Return a folder of the package's files, by a key of DATA."""
    return ROOT / DATA[name] if IN_CLONE else CARRIED / name


def read_json(path: Path):
    """Return what a JSON file in UTF-8 holds, with or without a byte-order mark."""
    return json.loads(path.read_text(encoding="utf-8-sig"))


def read_object(path: Path) -> dict:
    """Return the JSON object in a file.

    Raise CheckpointError if the file is missing or is no JSON object.
    """
    try:
        content = read_json(path)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read ({error.strerror}); check the path") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON ({error}); copy or download it again") from None
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path} holds a {type(content).__name__}, not a JSON object; copy or download it again"
        )
    return content


def load_fields(make, path: Path | str, *names: str, **optional):
    """Return `make(**fields)` for the fields `names` and `optional` of the JSON object in a file.

    `optional` gives defaults. Raise CheckpointError if the file or a field is missing, or if `make`
    refuses the fields.
    """
    content = read_object(Path(path))
    missing = [name for name in names if name not in content]
    if missing:
        raise CheckpointError(
            f"{path} has no field {', '.join(missing)}; it must have {', '.join(names)}"
        )
    try:
        return make(
            **{name: content[name] for name in names},
            **{name: content.get(name, default) for name, default in optional.items()},
        )
    except (RequestError, ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise CheckpointError(f"{path}: {error}") from None


def write_atomically(path: Path, write) -> None:
    """Call `write(temporary path)` and move the file to `path`, so that no stop leaves half a file.

    The temporary name has this process's number, because two kernels may write the same file. An
    error removes the temporary file. A killed process leaves it, and the first write to `path`
    more than an hour later removes it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for abandoned in path.parent.glob(f"{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError):
            if time.time() - abandoned.stat().st_mtime > ABANDONED:
                abandoned.unlink()
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def write_tensors(path: Path, tensors: dict, metadata: dict[str, str]) -> None:
    """Write named tensors to a safetensors file, whole or not at all. Raise OSError if it cannot be
    written."""
    from safetensors import SafetensorError  # torch comes along, and a list of commands needs none
    from safetensors.torch import save_file

    try:
        write_atomically(path, lambda temporary: save_file(tensors, temporary, metadata=metadata))
    except SafetensorError as error:
        raise OSError(None, str(error), str(path)) from None


def write_text(path: Path, text: str) -> None:
    """Write a text as UTF-8, whole or not at all, with the same bytes on every system."""
    write_atomically(path, lambda temporary: temporary.write_bytes(text.encode()))


# In the output of json.dumps: a string, a number unknown to JSON, or a (nested) list of numbers.
JSON_PIECE = re.compile(r'"(?:[^"\\]|\\.)*"|NaN|-?Infinity|\[[\s\d.,+e\-\[\]]+\]')


def write_json(path: Path, measured: dict) -> None:
    """Write a measurement, whole or not at all, with a line for each (nested) list of numbers.

    NaN marks a quantity without a measurement and becomes null. Raise DSparkLiteError for an
    infinite number, which JSON does not know.
    """

    def rewrite(match: re.Match) -> str:
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

    write_text(path, JSON_PIECE.sub(rewrite, json.dumps(measured, indent=1)) + "\n")
