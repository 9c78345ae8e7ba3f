"""The target cache: outputs of the tapped layers (counted from 0) and the last hidden states, after the final norm, which the LM head
reads; never logits (a vocabulary is far wider).

Sharded safetensors, written whole or not at all, so a stopped run goes on where it was. The files are memory-mapped and
a row is read where it lies, so a cache may be far larger than memory; every read is checked against the row's checksum. What
needs no disk, OnlineFeatures, computes them for each batch anew.
"""

import bisect
import hashlib
import json
import shutil
import zlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from ..common.errors import CheckpointError
from ..common.files import write_tensors, write_text
from ..common.fingerprint import fingerprint

SHARD = 512  # sequences in a shard, at most
SHARD_BYTES = 2**30  # about the largest shard: it is held in memory while it is written
PASS_SEQUENCES = 32  # sequences in a pass of the target, at most
PASS_TOKENS = 16384  # tokens in a pass of the target, at most: the hidden states of all layers are held at once
CACHED_TENSORS = ("features", "last_hidden")


def token_bytes(taps: int, hidden_size: int) -> int:
    """Bytes that a token takes in the cache: (taps + 1) hidden states of 16-bit numbers."""
    return (taps + 1) * hidden_size * 2


def shard_spans(lengths: list[int], bytes_per_token: int) -> list[tuple[int, int]]:
    """First row and end of every shard: SHARD rows of these lengths, or fewer that fill SHARD_BYTES."""
    spans, start, size = [], 0, 0
    for row, length in enumerate(lengths):
        if row - start == SHARD or (row > start and size + length * bytes_per_token > SHARD_BYTES):
            spans.append((start, row))
            start, size = row, 0
        size += length * bytes_per_token
    return spans + [(start, len(lengths))] if lengths else []


def digest(value) -> str:
    """SHA-256 of a value's JSON."""
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


class Shard:
    """One file of the cache, memory-mapped; `identity` says whose hidden states of which rows it must hold.

    Raises CheckpointError where the file is truncated, no safetensors file or another shard, and where a row that is
    read is not what was written.
    """

    def __init__(self, path: Path, identity: str, lengths: list[int]):
        self.path = path
        self.ends = [0, *torch.tensor(lengths).cumsum(0).tolist()]
        try:
            saved = safe_open(path, "pt")
            if (saved.metadata() or {}).get("identity") != identity:
                raise self._refused("is not the shard of these rows and this target")
            self.checksums = saved.get_tensor("checksums").tolist()
            self.slices = {name: saved.get_slice(name) for name in CACHED_TENSORS}
        except (SafetensorError, OSError) as error:
            raise self._refused(f"cannot be read ({error})") from None

    def row(self, index: int) -> list[torch.Tensor]:
        """Features [n, taps * H] and last hidden states [n, H] of the shard's row `index`, bfloat16."""
        found = [
            self.slices[name][self.ends[index] : self.ends[index + 1]] for name in CACHED_TENSORS
        ]
        if checksum(*found) != self.checksums[index]:
            raise self._refused("is damaged")
        return found

    def _refused(self, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} of the target cache {reason}; delete this file and train again: it alone "
            "is then written anew"
        )


def checksum(*tensors: torch.Tensor) -> int:
    """CRC-32 over the bytes of 16-bit tensors."""
    found = 0
    for tensor in tensors:
        found = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy(), found)
    return found


def padded_ids(
    rows: list[tuple[list[int], int]], indices: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids of some rows and which of them are supervised, [B, n], padded on the right."""
    ids = [torch.tensor(rows[index][0]) for index in indices]
    # The last prompt token can be an anchor's predecessor but is nothing to be drafted.
    supervised = [
        torch.arange(len(tokens)) >= rows[index][1] for tokens, index in zip(ids, indices)
    ]
    return pad_sequence(ids, batch_first=True), pad_sequence(supervised, batch_first=True)


class TargetCache:
    """`rows` of (ids, prompt length) with tapped features and last hidden states, read row by row from `shards`."""

    def __init__(self, rows: list[tuple[list[int], int]], shards: list[Shard], starts: list[int]):
        self.rows, self.shards, self.starts = rows, shards, starts

    def batch(self, indices: list[int], device):
        """Padded ids, supervised [B, n], features [B, n, taps * H] and last hidden states [B, n, H] of some rows."""
        hidden = zip(*(self._row(index) for index in indices))
        parts = (
            *padded_ids(self.rows, indices),
            *(pad_sequence(part, batch_first=True) for part in hidden),
        )
        return tuple(part.to(device) for part in parts)

    def _row(self, index: int) -> list[torch.Tensor]:
        """Features [n, taps * H] and last hidden states [n, H] of a row."""
        shard = bisect.bisect_right(self.starts, index) - 1
        return [part.float() for part in self.shards[shard].row(index - self.starts[shard])]


@torch.no_grad()
def build_cache(target, rows: list[tuple[list[int], int]], taps, folder: Path) -> TargetCache:
    """Run the target once over every row and return the cache in `folder`; shards that exist are kept.

    Raise CheckpointError where `folder` holds a cache of another target, other taps or other rows, or a damaged shard.
    """
    source = {"target": target.name, "fingerprint": fingerprint(target), "taps": list(taps)}
    _check_identity(folder, {**source, "rows": len(rows), "digest": digest(rows)})
    lengths = [len(ids) for ids, _ in rows]
    spans, shards = shard_spans(lengths, token_bytes(len(taps), target.hidden_size)), []
    paths = [folder / f"shard_{number:05d}.safetensors" for number in range(len(spans))]
    _check_space(
        folder,
        sum(
            sum(lengths[start:end]) for path, (start, end) in zip(paths, spans) if not path.exists()
        )
        * token_bytes(len(taps), target.hidden_size),
    )
    with tqdm(spans, desc="target cache", unit="shard") as bar:
        for (start, end), path in zip(bar, paths):
            identity = digest([source, rows[start:end]])
            if not path.exists():
                write_tensors(
                    path, _hidden_states(target, rows[start:end], taps), {"identity": identity}
                )
            shards.append(Shard(path, identity, lengths[start:end]))
    return TargetCache(rows, shards, [start for start, _ in spans])


def _check_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise CheckpointError(
            f"the target cache needs {needed / 1e9:.1f} GB more in {folder}, which has "
            f"{free / 1e9:.1f} GB free; make room, or let the recipe have fewer prompts or taps"
        )


def _check_identity(folder: Path, identity: dict) -> None:
    path = folder / "cache.json"
    if path.exists() and path.read_text() != json.dumps(identity):
        raise CheckpointError(
            f"{folder.name} holds a target cache made for {path.read_text().strip()}, not for "
            f"{json.dumps(identity)}; use another folder, or delete {folder}"
        )
    write_text(path, json.dumps(identity))


def _hidden_states(target, rows, taps) -> dict[str, torch.Tensor]:
    """Concatenated bfloat16 hidden states of the rows and the checksum of each row."""
    found = [None] * len(rows)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index][0]), reverse=True)
    while order:
        longest = len(rows[order[0]][0])
        count = max(1, min(PASS_SEQUENCES, PASS_TOKENS // longest))
        group, order = order[:count], order[count:]
        # Padding stands on the right, where a causal target cannot see it from any real token.
        ids = pad_sequence([torch.tensor(rows[index][0]) for index in group], batch_first=True)
        last_hidden, features = target.last_hidden(ids.to(target.device), taps)
        for row, index in enumerate(group):
            length = len(rows[index][0])
            found[index] = [
                part[row, :length].to("cpu", torch.bfloat16) for part in (features, last_hidden)
            ]
    return {
        **{name: torch.cat(parts) for name, parts in zip(CACHED_TENSORS, zip(*found))},
        "checksums": torch.tensor([checksum(*parts) for parts in found]),
    }


class OnlineFeatures:
    """`rows` of (ids, prompt length) and what `target` computes of them, in the place of a TargetCache."""

    def __init__(self, target, rows: list[tuple[list[int], int]], taps):
        self.target, self.rows, self.taps = target, rows, taps

    @torch.no_grad()
    def batch(self, indices: list[int], device):
        """Padded ids and supervised [B, n] on `device`, features [B, n, taps * H] and last hidden states [B, n, H] where
        the target computes."""
        ids, supervised = padded_ids(self.rows, indices)
        # Padding stands on the right, where a causal target cannot see it from any real token.
        last_hidden, features = self.target.last_hidden(ids.to(self.target.device), self.taps)
        return ids.to(device), supervised.to(device), features.float(), last_hidden.float()
