"""Keys and values in storage of fixed place and shape, for compiled or captured passes.

A pass attends to the first `limit` entries; a mask hides entries that are not committed. Attention
reads hidden entries too, so the limit is the length rounded up, not the capacity. Shapes: T tokens
enter, S is the limit, m key heads of size d.
"""

import torch
from transformers import AttentionInterface

from ..decoding.attention import additive_mask, attend

STATIC = "dspark_lite_static"  # the name of `static_attention` in transformers
MIN_CAPACITY = 2048  # entries; storage doubles from here on


class StaticContext:
    """The keys and values [1, m, capacity, d] of one text in every layer.

    The host counts its `length`. It is the cache of a target's pass (transformers calls `update`)
    and the `Context` of a drafter's. `like` gives the shapes: keys and values [1, m, n, d] of every
    layer.
    """

    def __init__(self, like: list[tuple[torch.Tensor, torch.Tensor]]):
        self.like, self.dtype, self.device = like, like[0][0].dtype, like[0][0].device
        # The length in a tensor, because a compiled pass reads only tensors.
        self.device_length = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.length = self.draft_offset = self.capacity = 0
        self._make_room(MIN_CAPACITY)

    def _make_room(self, needed: int) -> None:
        """Grow the storage to at least `needed` entries, and keep its content."""
        if needed <= self.capacity:
            return
        full = self.pairs if self.capacity else []
        self.capacity = max(MIN_CAPACITY, 1 << (needed - 1).bit_length())
        self.pairs = [
            tuple(part.new_zeros(*part.shape[:2], self.capacity, part.shape[3]) for part in pair)
            for pair in self.like
        ]
        self.like = [tuple(part[:, :, :0] for part in pair) for pair in self.pairs]
        self.entries, self._first = torch.arange(self.capacity, device=self.device), {}
        if full:
            self.take_over(full, self.length)

    def take_over(self, pairs: list[tuple[torch.Tensor, torch.Tensor]], length: int) -> None:
        """Replace the text by the first `length` keys and values of every layer, [1, m, n, d]."""
        self._make_room(length)
        for stored, new in zip(
            (part for pair in self.pairs for part in pair),
            (part for pair in pairs for part in pair),
        ):
            stored[:, :, :length] = new[:, :, :length]
        self.length, self.draft_offset = length, 0

    def begin_pass(self, tokens: int) -> int:
        """Prepare a pass over `tokens` new tokens. Return its limit S."""
        self._make_room(self.length + tokens)
        limit = min(self.capacity, _rounded(self.length + tokens, self.device))
        if limit not in self._first:
            self._first[limit] = self.entries[:limit]
            torch._dynamo.mark_dynamic(self._first[limit], 0)  # one compilation serves every limit
        self.entry_index = self._first[limit]  # [S]
        self.device_length.fill_(self.length)
        return limit

    def commit(self, tokens: int) -> None:
        """Add the first `tokens` of the pass to the text. A negative number drops the text's last
        tokens."""
        self.length, self.draft_offset = self.length + tokens, 0

    def get_seq_length(self) -> int:
        """Return the length in tokens. transformers calls this."""
        return self.length

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Return the absolute positions [1, T] of entering tokens [1, T, ...]."""
        return self.device_length + torch.arange(
            self.draft_offset, self.draft_offset + entering.shape[1], device=entering.device
        )

    def mask(self, tokens: int) -> torch.Tensor:
        """Return the mask [1, 1, 1, S] that hides all entries after a block of `tokens` tokens."""
        return additive_mask(
            self.entry_index < self.device_length + self.draft_offset + tokens, self.dtype
        )[None, None]

    def causal_mask(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the mask [1, 1, T, S] that hides later entries from tokens at positions [1, T]."""
        return additive_mask(self.entry_index <= positions[0, :, None], self.dtype)[None, None]

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [1, m, T, d] after the context. Return all entries up to the limit,
        [1, m, S, d]."""
        positions = self.positions(keys.transpose(1, 2))[0]
        limit = self.entry_index.shape[0]
        for stored, new in zip(self.pairs[layer], (keys, values)):
            stored.index_copy_(2, positions, new)
        return tuple(stored[:, :, :limit] for stored in self.pairs[layer])

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Do what `append` does, with transformers' arguments."""
        return self.append(layer, keys, values)

    def advance(self, tokens: int) -> None:
        """Move the position of the next `append` by `tokens`. Only `commit` changes the length."""
        self.draft_offset += tokens


def _rounded(needed: int, device: torch.device) -> int:
    """Return `needed` rounded up to a multiple of 64; on CUDA to a power of two, at least 256.

    CUDA captures each limit, so fewer limits are better there.
    """
    if device.type == "cuda":
        return max(256, 1 << (needed - 1).bit_length())
    return -(-needed // 64) * 64


def static_attention(module, query, key, value, attention_mask, *, scaling, **options):
    """Attend with query [1, n, T, d] to key and value [1, m, S, d].

    The signature is transformers' attention interface: return [1, T, n, d], and None for weights.
    """
    return attend(query, key, value, attention_mask, scaling).transpose(1, 2), None


AttentionInterface.register(STATIC, static_attention)
