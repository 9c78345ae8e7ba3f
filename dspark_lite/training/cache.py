"""The target's hidden states at its answers: cached on the disk, or computed for each batch.

A row holds the outputs of the tapped layers (counted from 0) and the last hidden states after the
final norm, which the LM head reads; never logits, because a vocabulary is far wider. The cache is
sharded safetensors. A shard is written whole or not at all, so a stopped run goes on where it was.
The files are memory-mapped, so a cache may be far larger than memory; a checksum guards each row.
"""

import bisect
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
from ..common.fingerprint import fingerprint, json_digest

SHARD = 512  # sequences in a shard, at most
SHARD_BYTES = 2**30  # of the largest shard, about: memory holds a shard while it is written
PASS_SEQUENCES = 32  # sequences in a pass of the target, at most
# Tokens in a pass of the target, at most: memory holds the states of all layers.
PASS_TOKENS = 16384
CACHED_TENSORS = ("features", "last_hidden")


def token_bytes(taps: int, hidden_size: int) -> int:
    """Return the bytes of a token in the cache: (taps + 1) hidden states of 16-bit numbers."""
    return (taps + 1) * hidden_size * 2


def shard_spans(lengths: list[int], bytes_per_token: int) -> list[tuple[int, int]]:
    """Return first row and end of every shard: SHARD rows of these lengths, or fewer that fill
    SHARD_BYTES."""
    spans, start, size = [], 0, 0
    for row, length in enumerate(lengths):
        if row - start == SHARD or (row > start and size + length * bytes_per_token > SHARD_BYTES):
            spans.append((start, row))
            start, size = row, 0
        size += length * bytes_per_token
    return spans + [(start, len(lengths))] if lengths else []


class Shard:
    """A file of the cache, memory-mapped. `identity` names the target and the rows it must belong
    to.

    Raise CheckpointError if the file is cut off, no safetensors file or another shard, and if a row
    that is read differs from the row that was written.
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
        """Return features [n, taps * H] and last hidden states [n, H] of the shard's row `index`,
        in bfloat16."""
        states = [
            self.slices[name][self.ends[index] : self.ends[index + 1]] for name in CACHED_TENSORS
        ]
        if crc32_of(*states) != self.checksums[index]:
            raise self._refused("is damaged")
        return states

    def _refused(self, reason: str) -> CheckpointError:
        return CheckpointError(
            f"{self.path} of the target cache {reason}; delete this file and train again: it alone "
            "is then written anew"
        )


def crc32_of(*tensors: torch.Tensor) -> int:
    """Return the CRC-32 of the bytes of tensors."""
    crc = 0
    for tensor in tensors:
        crc = zlib.crc32(tensor.contiguous().view(torch.uint8).numpy(), crc)
    return crc


def padded_ids(
    rows: list[tuple[list[int], int]], indices: list[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids of some rows and which of them are supervised, both [B, n] and padded on the
    right."""
    ids = [torch.tensor(rows[index][0]) for index in indices]
    # The answer is supervised; the first anchor is its first token.
    supervised = [
        torch.arange(len(tokens)) >= rows[index][1] for tokens, index in zip(ids, indices)
    ]
    return pad_sequence(ids, batch_first=True), pad_sequence(supervised, batch_first=True)


class TargetCache:
    """Rows of (ids, prompt length) with their hidden states in `shards`; `starts` are the shards'
    first rows."""

    def __init__(self, rows: list[tuple[list[int], int]], shards: list[Shard], starts: list[int]):
        self.rows, self.shards, self.starts = rows, shards, starts

    def batch(self, indices: list[int], device):
        """Return ids and supervised [B, n], features [B, n, taps * H] and last hidden states [B, n,
        H] of some rows, on `device`."""
        hidden = zip(*(self._row(index) for index in indices))
        parts = (
            *padded_ids(self.rows, indices),
            *(pad_sequence(part, batch_first=True) for part in hidden),
        )
        return tuple(part.to(device) for part in parts)

    def _row(self, index: int) -> list[torch.Tensor]:
        """Return features [n, taps * H] and last hidden states [n, H] of a row, in float32."""
        shard = bisect.bisect_right(self.starts, index) - 1
        return [part.float() for part in self.shards[shard].row(index - self.starts[shard])]


@torch.no_grad()
def build_cache(target, rows: list[tuple[list[int], int]], taps, folder: Path) -> TargetCache:
    """Run the target once over every row and return the cache in `folder`. Shards that exist are
    not computed again.

    `taps` are the layers to store. A shard's name ends with a hash of its rows, so caches of more
    answers or of other answers share `folder` and the shards that agree. Raise CheckpointError if
    `folder` has the cache of another target or other taps, a damaged shard, or too little space.
    """
    source = {"target": target.name, "fingerprint": fingerprint(target), "taps": list(taps)}
    _check_identity(folder, source)
    lengths = [len(ids) for ids, _ in rows]
    spans, shards = shard_spans(lengths, token_bytes(len(taps), target.hidden_size)), []
    identities = [json_digest([source, rows[start:end]]) for start, end in spans]
    paths = [
        folder / f"shard_{number:05d}-{identity[:8]}.safetensors"
        for number, identity in enumerate(identities)
    ]
    _check_space(
        folder,
        sum(
            sum(lengths[start:end]) for path, (start, end) in zip(paths, spans) if not path.exists()
        )
        * token_bytes(len(taps), target.hidden_size),
    )
    with tqdm(spans, desc="target cache", unit="shard") as bar:
        for (start, end), path, identity in zip(bar, paths, identities):
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
    """Raise CheckpointError if `folder` has a cache of another `identity`, else write it there."""
    path = folder / "cache.json"
    if path.exists() and path.read_text(encoding="utf-8") != json.dumps(identity):
        raise CheckpointError(
            f"{folder.name} holds a target cache made for {path.read_text(encoding='utf-8').strip()}, not for "
            f"{json.dumps(identity)}; use another folder, or delete {folder}"
        )
    write_text(path, json.dumps(identity))


def _hidden_states(target, rows, taps) -> dict[str, torch.Tensor]:
    """Return the tensors of a shard: the rows' hidden states in bfloat16, end to end, and a
    checksum for each row."""
    states = [None] * len(rows)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index][0]), reverse=True)
    while order:
        longest = len(rows[order[0]][0])
        count = max(1, min(PASS_SEQUENCES, PASS_TOKENS // longest))
        group, order = order[:count], order[count:]
        # Padding is on the right: the target is causal, so no real token sees it.
        ids = pad_sequence([torch.tensor(rows[index][0]) for index in group], batch_first=True)
        last_hidden, features = target.last_hidden(ids.to(target.device), taps)
        for row, index in enumerate(group):
            length = len(rows[index][0])
            states[index] = [
                part[row, :length].to("cpu", torch.bfloat16) for part in (features, last_hidden)
            ]
    return {
        **{name: torch.cat(parts) for name, parts in zip(CACHED_TENSORS, zip(*states))},
        "checksums": torch.tensor([crc32_of(*parts) for parts in states]),
    }


class OnlineFeatures:
    """Rows of (ids, prompt length) whose hidden states `target` computes for each batch; used like
    a TargetCache."""

    def __init__(self, target, rows: list[tuple[list[int], int]], taps):
        self.target, self.rows, self.taps = target, rows, taps

    @torch.no_grad()
    def batch(self, indices: list[int], device):
        """Return ids and supervised [B, n] on `device`, features [B, n, taps * H] and last hidden
        states [B, n, H] on the target's."""
        ids, supervised = padded_ids(self.rows, indices)
        # Padding is on the right: the target is causal, so no real token sees it.
        last_hidden, features = self.target.last_hidden(ids.to(self.target.device), self.taps)
        return ids.to(device), supervised.to(device), features.float(), last_hidden.float()
