"""Fetch a model's files from the Hub into its cache, and check each against its hash.

The client follows HF_HOME, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE.
"""

import hashlib
import re
from contextlib import suppress
from pathlib import Path

from ..common.errors import CheckpointError

FILES = [
    "model*.safetensors",
    "model.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer*.json",
    "vocab.json",
    "merges.txt",
    "*.jinja",
]
# The Hub gives Git's SHA-1 of a small file and SHA-256 of a large file.
HASH = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


def download(name: str) -> Path:
    """Fetch the model "org/name" or "org/name@revision". Return its folder in the Hub's cache.

    Raise CheckpointError with cause and cure if it cannot be fetched, or has no safetensors.
    """
    folder = fetch(name, FILES)
    if not any(folder.glob("model*.safetensors")):
        raise CheckpointError(
            f"{name!r} has no model.safetensors on the Hub; weights of other formats are not read, because a pickle can "
            "execute code: name a model that has safetensors"
        )
    return folder


def fetch(name: str, patterns: list[str]) -> Path:
    """Fetch the files of a model that match `patterns`. Return its folder in the Hub's cache.

    Raise CheckpointError with cause and cure if they cannot be fetched, or if a hash differs.
    """
    try:
        folder = _snapshot(**_wanted(name, patterns))
    except Exception as error:  # the client raises errors of many libraries
        cause, cure = _cause_and_cure(error)
        raise CheckpointError(
            f"{name!r} is no folder here and could not be fetched from the Hub ({cause}); {cure}"
        ) from error
    for pattern in patterns:
        for path in folder.glob(pattern):
            _check_hash(name, path)
    return folder


def upload(folder: str | Path, name: str, *, private: bool | None, token: str | None) -> str:
    """Upload the files of a folder to the model "org/name", which is made if there is none. Return
    its address.

    Raise CheckpointError with cause and cure if the Hub refuses.
    """
    from huggingface_hub import HfApi

    hub = HfApi(token=token)
    try:
        address = hub.create_repo(name, private=private, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=str(folder))
    except Exception as error:  # the client raises errors of many libraries
        cause, cure = _cause_and_cure(error)
        raise CheckpointError(
            f"{name!r} could not be uploaded to the Hub ({cause}); {cure}"
        ) from error
    return str(address)


def _wanted(name: str, patterns: list[str]) -> dict:
    """Return the client's arguments for the files of a model that match `patterns`."""
    repository, _, revision = name.partition("@")
    return {
        "repo_id": repository,
        "revision": revision or None,
        "allow_patterns": patterns,
        "ignore_patterns": "*/*",
    }


def cached(name: str) -> Path | None:
    """Return the folder of a model in the cache, or None if the cache lacks a file.

    Asks the disk only.
    """
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(**_wanted(name, FILES), local_files_only=True))
    except Exception:  # for any reason, the model would have to be fetched
        return None


def fetch_header(name: str) -> dict[str, tuple[tuple[int, ...], int]]:
    """Return shape and bytes of each tensor of a model on the Hub.

    Fetches the headers of its files only.

    Raise CheckpointError with cause and cure if they cannot be fetched.
    """
    from huggingface_hub import HfApi

    wanted = _wanted(name, FILES)
    try:
        files = (
            HfApi()
            .get_safetensors_metadata(wanted["repo_id"], revision=wanted["revision"])
            .files_metadata
        )
    except Exception as error:  # the client raises errors of many libraries
        cause, cure = _cause_and_cure(error)
        raise CheckpointError(
            f"the header of {name!r} could not be fetched from the Hub ({cause}); {cure}"
        ) from error
    tensors = {tensor: entry for file in files.values() for tensor, entry in file.tensors.items()}
    return {
        tensor: (tuple(entry.shape), entry.data_offsets[1] - entry.data_offsets[0])
        for tensor, entry in tensors.items()
    }


def _snapshot(**wanted) -> Path:
    """Return the client's snapshot; if the network is broken, a whole one in the cache."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError

    try:
        return Path(snapshot_download(**wanted))
    except HfHubHTTPError:  # after an answer of the Hub the client has looked into the cache itself
        raise
    except Exception:
        with suppress(Exception):
            return Path(snapshot_download(**wanted, local_files_only=True))
        raise


def _cause_and_cure(error: Exception) -> tuple[str, str]:
    """Return why a model could not be fetched, and a remedy."""
    from huggingface_hub import errors

    # This error hides the error before it, after which the client looked into the cache.
    uncached = isinstance(error, errors.LocalEntryNotFoundError)
    error = error.__cause__ or error if uncached else error
    answers = {
        errors.HFValidationError: (
            "that is no name on the Hub",
            "a model is org/name or org/name@revision",
        ),
        errors.GatedRepoError: (
            "it is gated",
            "accept its terms on its page and set HF_TOKEN to a token of that account",
        ),
        errors.RepositoryNotFoundError: (
            "there is no such model, or it is private",
            "check the name, or set HF_TOKEN to a token that may read it",
        ),
        errors.RevisionNotFoundError: (
            "it has no such revision",
            "check the branch, tag or commit after the @",
        ),
        errors.RemoteEntryNotFoundError: (
            "a file that it lists is missing",
            "try another revision",
        ),
        errors.OfflineModeIsEnabled: (
            "HF_HUB_OFFLINE is set and the cache does not hold it whole",
            "unset it to download, or give a folder",
        ),
    }
    for kind, answer in answers.items():
        if isinstance(error, kind):
            return answer
    if isinstance(error, errors.HfHubHTTPError) and error.response.status_code == 401:
        return "the token is not accepted", "check HF_TOKEN"
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    if uncached:
        return (
            f"{reason}, and the cache does not hold it whole",
            "check the network, or give a folder",
        )
    return (
        reason,
        "check the network and the disk and load it again: files that came whole are kept",
    )


def _check_hash(name: str, path: Path) -> None:
    """Compare a file in the cache with its hash, once. The client compares lengths only.

    The hash is the name of the file that its link leads to. A cache without links (Windows without
    developer mode) has no hashes, so nothing is compared. Raise CheckpointError if the hash
    differs, and delete the file: the next call fetches it again.
    """
    blob = path.parent / path.readlink() if path.is_symlink() else path
    if not (HASH.fullmatch(blob.name) and blob.exists()):
        return
    checked = path.parents[2] / "checked" / blob.name
    if checked.exists() and checked.stat().st_mtime_ns >= blob.stat().st_mtime_ns:
        return
    digest = (
        hashlib.sha256()
        if len(blob.name) == 64
        else hashlib.sha1(b"blob %d\0" % blob.stat().st_size)
    )
    with blob.open("rb") as content:
        while piece := content.read(2**24):
            digest.update(piece)
    if digest.hexdigest() != blob.name:
        with suppress(OSError):  # if it cannot be deleted, every call refuses it
            path.unlink()
            blob.unlink()
        raise CheckpointError(
            f"{path.name} of {name!r} is not the file that the Hub lists (its hash differs); load it again to fetch it anew"
        )
    with suppress(OSError):  # in a cache that is read-only, every call checks
        checked.parent.mkdir(exist_ok=True)
        checked.touch()
