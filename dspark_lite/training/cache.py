"""The target cache: hidden states of the tapped layers and the last one, never logits (a vocabulary is far wider).

Sharded safetensors, a shard of sequences a file, written whole or not at all, so a stopped run goes on where it was.
"""

import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tqdm import tqdm

from ..checkpoints import write_atomically
from ..errors import CheckpointError

SHARD = 512  # sequences in a shard
PARALLEL = 32  # sequences in a pass of the target


class TargetCache:
    """`rows` of (ids, prompt length) with their tapped features and last hidden states, read shard by shard."""

    def __init__(self, folder: Path, rows: list[tuple[list[int], int]]):
        self.folder, self.rows = folder, rows
        self.shards = [self._open(shard) for shard in range(-(-len(rows) // SHARD))]

    def _open(self, shard: int) -> dict[str, torch.Tensor]:
        path = self.folder / f"shard_{shard:05d}.safetensors"
        try:
            with safe_open(path, "pt") as saved:
                return {name: saved.get_tensor(name) for name in saved.keys()}
        except Exception as error:
            raise CheckpointError(f"{path.name} of the target cache cannot be read ({error}); delete it and train again: it is then "
                                  "written anew") from None

    def batch(self, indices: list[int], device):
        """Padded ids [B, n], supervised [B, n], features [B, n, taps * H] and last hidden states [B, n, H] of some rows."""
        longest = max(len(self.rows[index][0]) for index in indices)
        ids = torch.zeros(len(indices), longest, dtype=torch.long)
        supervised = torch.zeros(len(indices), longest, dtype=torch.bool)
        parts = {"features": [], "last_hidden": []}
        for row, index in enumerate(indices):
            tokens, prompt_length = self.rows[index]
            ids[row, :len(tokens)] = torch.tensor(tokens)
            # The last prompt token can be an anchor's predecessor but is nothing to be drafted.
            supervised[row, prompt_length:len(tokens)] = True
            for name, stack in parts.items():
                stack.append(self._tensor(name, index, longest))
        return ids.to(device), supervised.to(device), torch.stack(parts["features"]).to(device), torch.stack(parts["last_hidden"]).to(device)

    def _tensor(self, name: str, index: int, length: int) -> torch.Tensor:
        shard = self.shards[index // SHARD]
        start, end = shard["ends"][index % SHARD].item(), shard["ends"][index % SHARD + 1].item()
        return torch.nn.functional.pad(shard[name][start:end].float(), (0, 0, 0, length - (end - start)))


@torch.no_grad()
def build_cache(target, rows: list[tuple[list[int], int]], taps, folder: Path) -> TargetCache:
    """Runs the target once over every row and returns the cache in `folder`; shards that exist are kept.

    Raises CheckpointError where `folder` holds a cache of another target, other taps or other rows.
    """
    _check_identity(folder, {"target": target.name, "taps": list(taps), "rows": len(rows)})
    starts = range(0, len(rows), SHARD)
    with tqdm(starts, desc="target cache", unit="shard") as bar:
        for shard, start in enumerate(bar):
            path = folder / f"shard_{shard:05d}.safetensors"
            if not path.exists():
                _write_shard(path, _hidden_states(target, rows[start:start + SHARD], taps))
    return TargetCache(folder, rows)


def _write_shard(path: Path, tensors: dict[str, torch.Tensor]) -> None:
    write_atomically(path, lambda temporary: save_file(tensors, temporary))


def _check_identity(folder: Path, identity: dict) -> None:
    path = folder / "cache.json"
    if path.exists() and json.loads(path.read_text()) != identity:
        raise CheckpointError(f"{folder.name} holds a target cache made for {path.read_text().strip()}, not for "
                              f"{json.dumps(identity)}; use another folder")
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(identity)))


def _hidden_states(target, rows, taps) -> dict[str, torch.Tensor]:
    """Concatenated bfloat16 hidden states of the rows and where each row ends."""
    features, last = [None] * len(rows), [None] * len(rows)
    order = sorted(range(len(rows)), key=lambda index: len(rows[index][0]))
    for start in range(0, len(order), PARALLEL):
        group = order[start:start + PARALLEL]
        longest = max(len(rows[index][0]) for index in group)
        # Padding stands on the right, where a causal target cannot see it from any real token.
        ids = torch.tensor([rows[index][0] + [0] * (longest - len(rows[index][0])) for index in group], device=target.device)
        hidden, tapped = target.last_hidden(ids, taps)
        for row, index in enumerate(group):
            length = len(rows[index][0])
            features[index] = tapped[row, :length].to("cpu", torch.bfloat16)
            last[index] = hidden[row, :length].to("cpu", torch.bfloat16)
    ends = torch.tensor([0] + [len(ids) for ids, _ in rows]).cumsum(0)
    return {"features": torch.cat(features), "last_hidden": torch.cat(last), "ends": ends}
