"""The one reader of recorded results: measurements of this project, and reference numbers of the paper."""

import json
from functools import cache
from pathlib import Path

from ..common.errors import DSparkLiteError
from ..common.files import data_folder

REFERENCE = data_folder("reference")


@cache
def read(path: Path, written_by: str) -> dict:
    """Return what the JSON file at `path` holds, read once; `written_by` is the command that writes it.

    Raise DSparkLiteError where the file is missing or is not JSON; it names the file and the command.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DSparkLiteError(
            f"there is no {path.parent.name}/{path.name}; `{written_by}` writes it"
        ) from None
    except ValueError as error:
        raise DSparkLiteError(
            f"{path.parent.name}/{path.name} is not whole ({error}); `{written_by}` writes it anew"
        ) from None


def reference(file: str) -> dict:
    """Return what a JSON file of assets/reference holds: the paper's numbers, the released models, what others measured."""
    return read(REFERENCE / file, "git restore assets/reference")
