"""Keys and values of rows of different lengths in one padded store.

Row b fills the first `lengths[b]` entries; a mask hides the rest. A pass writes each row's tokens
behind its own last one. So nothing moves, a rejected draft leaves no hole, and to roll back is to
lower a length.

The blocks of a batch have one size, so a padded pass of verification has little padding and needs no
new layout for attention: for 16 rows of the tiny pair it took 0.87 of the CPU time of the flat pass
of serving/slots.py (one run, one thread). Prompts of different lengths are padded and took 1.35.

Shapes: R rows of a pass, L tokens of each, S the longest row, m key heads, d head size.
"""

from typing import NamedTuple

import torch

from .attention import additive_mask


class RowPass(NamedTuple):
    """Where a pass writes and reads: S, the longest row with it; the `positions` [R, L] of its
    tokens and their entries `slot_index` [R * L] in the store; the `rows` [R] that it reads (None:
    all in their order)."""

    longest: int
    positions: torch.Tensor
    slot_index: torch.Tensor
    rows: torch.Tensor | None


class RowStore:
    """Keys and values [B, room, m, d] of every layer for B rows. Row b is its first `lengths[b]`
    entries; later ones are overwritten.

    It is the context of a drafter, and the cache of a pass of the target. The `joined` rows take
    part in the next pass; `current` is the RowPass of the last `begin_pass`.
    """

    def __init__(self, layers: int, rows: int, device: torch.device):
        self.pairs: list[list[torch.Tensor] | None] = [None] * layers
        self.lengths, self.joined, self.room, self.device = [0] * rows, range(rows), 0, device

    def begin_pass(self, tokens: int, counts: list[int] | None = None) -> torch.Tensor:
        """Begin a pass over [R, tokens] and return its positions [R, tokens]. With `counts`, the
        last `counts[r]` tokens of row r count and the others are padding at position 0."""
        starts = [self.lengths[row] for row in self.joined]
        longest = max(starts) + tokens
        self._make_room(longest + 1)
        lacking = [0] * len(starts) if counts is None else [tokens - count for count in counts]
        first, rows = torch.tensor(
            [[start - lack for start, lack in zip(starts, lacking)], list(self.joined)]
        ).to(self.device)[..., None]  # [R, 1] each
        position = first + torch.arange(tokens, device=self.device)
        # Padding before a row's tokens is written behind all rows.
        entry = position if counts is None else position.where(position >= 0, self.room - 1)
        in_place = list(self.joined) == list(range(len(self.lengths)))
        self.current = RowPass(
            longest,
            position.clamp(min=0),
            (rows * self.room + entry).flatten(),
            None if in_place else rows[:, 0],
        )
        return self.current.positions

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Begin a pass over tokens [R, L, ...] and return their positions [R, L]."""
        return self.begin_pass(entering.shape[1])

    def causal_mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the mask [R, 1, L, S] of the pass as numbers to add: a token sees its row up to
        itself."""
        entries = torch.arange(self.current.longest, device=self.device)
        return additive_mask(entries <= self.current.positions[..., None], dtype)[:, None]

    def mask(self, tokens: int) -> torch.Tensor | None:
        """Return the mask [R, 1, 1, S] of a block whose tokens see their row and one another; None
        if all rows are equally long."""
        if len({self.lengths[row] for row in self.joined}) == 1:
            return None
        end = self.current.positions[:, -1:] + 1
        return (torch.arange(self.current.longest, device=self.device) < end)[:, None, None]

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [R, m, L, d] of the pass. Return those of its rows, [R, m, S, d]."""
        if layer >= len(self.pairs):
            self.pairs += [None] * (layer + 1 - len(self.pairs))
        if self.pairs[layer] is None:
            self.pairs[layer] = [
                new.new_zeros(len(self.lengths), self.room, new.shape[1], new.shape[3])
                for new in (keys, values)
            ]
        for stored, new in zip(self.pairs[layer], (keys, values)):
            tokens = new.transpose(1, 2).flatten(0, 1)
            stored.flatten(0, 1).index_copy_(0, self.current.slot_index, tokens)
        entries = (stored[:, : self.current.longest] for stored in self.pairs[layer])
        if self.current.rows is not None:
            entries = (stored[self.current.rows] for stored in entries)
        return tuple(stored.transpose(1, 2) for stored in entries)

    def update(self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused, **more):
        """Call `append`. transformers calls a cache by this name."""
        return self.append(layer, keys, values)

    def get_seq_length(self, layer: int = 0) -> int:
        """Return the longest row. Every token of a pass has a position of its own."""
        return max(self.lengths)

    def advance(self, tokens: int) -> None:
        """Do nothing: whoever commits sets `lengths`."""

    def select(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        index = torch.tensor(rows, dtype=torch.long, device=self.device)
        self.lengths = [self.lengths[row] for row in rows]
        for layer, pair in enumerate(self.pairs):  # one layer after the other, for the memory
            self.pairs[layer] = pair and [stored[index] for stored in pair]

    def _make_room(self, needed: int) -> None:
        """Give every layer room for `needed` entries and half the longest row, at least 64, if it has
        less."""
        if needed <= self.room:
            return
        grown = max(64, needed + max(self.lengths) // 2)
        for pair in self.pairs:
            for part, stored in enumerate(pair or ()):
                pair[part] = stored.new_zeros(len(stored), grown, *stored.shape[2:])
                pair[part][:, : self.room] = stored
        self.room = grown
