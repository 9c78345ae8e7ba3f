"""Files of measurements: their header, and the journal from which a stopped measurement resumes."""

import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryFile

import torch

from ...common.errors import DSparkLiteError
from ...common.files import ROOT
from ...common.origin import device_name, versions


def machine_header(device: torch.device) -> dict:
    """Return the header of a measurement without a lab: device, versions and commit."""
    return {"device": device_name(device), "versions": versions(), "commit": commit()}


def header(lab) -> dict:
    """Return the header of every measurement in a lab: device, versions, commit, seed, profile and
    target."""
    return {
        "device": lab.device_name,
        "versions": lab.versions,
        "commit": commit(),
        "seed": lab.seed,
        "profile": lab.profile,
        "target": lab.target.name,
    }


def commit() -> str | None:
    """Return the short hash of the checkout that this package runs from; None outside a clone or
    without git."""
    if not (ROOT / ".git").exists():
        return None
    try:
        git = subprocess.run(
            ["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        )
    except OSError:
        return None
    return git.stdout.strip() if git.returncode == 0 else None


def check_writable(path: Path) -> None:
    """Raise DSparkLiteError unless a file can be written to `path`, in a folder that is there or
    can be made: to be asked before measuring for minutes. It leaves nothing behind."""
    if path.is_dir():
        raise DSparkLiteError(
            f"{path} is a folder, so no result can be written to it; name a file in it"
        )
    folder = next(parent for parent in path.absolute().parents if os.path.exists(parent))
    try:
        TemporaryFile(dir=folder).close()
    except OSError as error:
        raise DSparkLiteError(
            f"nothing can be written to {folder} ({error.strerror}), so the result could not be kept in "
            f"{path}; name a file in a folder that can be written to"
        ) from None


def journal_path(path: Path) -> Path:
    """Return the path of the journal beside the measurement `path`: FILE.json has
    FILE.journal.jsonl."""
    return path.with_suffix(".journal.jsonl")


class Journal:
    """Finished pieces of a long measurement, a JSON line each, appended as they finish.

    The first line holds the settings; a journal of other settings in which something is kept is
    refused with DSparkLiteError. A last line that was half written is dropped. Without a path
    nothing is kept beyond this object.
    """

    def __init__(self, path: Path | None, settings: dict):
        self.path, self._done = path, {}
        if path is not None and not self._resume(settings):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"settings": settings})

    def __contains__(self, key: tuple) -> bool:
        return key in self._done

    def __getitem__(self, key: tuple):
        return self._done[key]

    def add(self, key: tuple, value) -> None:
        """Store the result of `key` (strings and numbers), as JSON knows it."""
        self._done[key] = value
        if self.path is not None:
            self._append([key, value])

    def _append(self, entry) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")

    def _resume(self, settings: dict) -> bool:
        """Read the file; return False if it holds nothing."""
        content = self.path.read_bytes() if self.path.exists() else b""
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            os.truncate(self.path, len(whole))
        if not whole:
            return False
        try:
            first, *entries = [json.loads(line) for line in whole.splitlines()]
            stored = first["settings"]
            self._done = {tuple(key): value for key, value in entries}
        except (ValueError, TypeError, KeyError) as error:
            raise DSparkLiteError(
                f"{self.path} is not the journal of a measurement ({error}); move it away"
            ) from None
        for name, wanted in settings.items():
            # The call was refused or stopped at once: nothing is lost.
            if stored.get(name) != wanted and not self._done:
                self.path.unlink()
                return False
            if stored.get(name) != wanted:
                raise DSparkLiteError(
                    f"{self.path} was begun with {name} {stored.get(name)}, not {wanted}; write to "
                    "another file, or delete that one to begin again"
                )
        return True
