"""Keys and values whose storage never moves and whose shapes never change, for passes that are compiled or captured.

Every pass attends to the first `limit` entries, of which a mask hides those that nobody has committed. The limit is the
length rounded up, because attention reads all that it is given, hidden or not. Shapes: T tokens enter, S is the limit, m
key heads of size d.
"""

import torch
from transformers import AttentionInterface

from .attention import attend, hiding

STATIC = "dspark_lite_static"  # the name of `static_attention` in transformers
MIN_CAPACITY = 2048  # entries; storage doubles from here on


class StaticContext:
    """One text's keys and values [1, m, capacity, d] in every layer; its `length` is the host's to count.

    It is the cache of a target's pass (transformers asks for `update`) and the `Context` of a drafter's. `like` are keys and
    values [1, m, n, d] of every layer.
    """

    def __init__(self, like: list[tuple[torch.Tensor, torch.Tensor]]):
        self.like, self.dtype, self.device = like, like[0][0].dtype, like[0][0].device
        # The length, as the device knows it
        self.start = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.length = self.ahead = self.capacity = 0
        self._make_room(MIN_CAPACITY)

    def _make_room(self, needed: int) -> None:
        """Grow the storage to at least `needed` entries, with all that is in it."""
        if needed <= self.capacity:
            return
        held = self.pairs if self.capacity else []
        self.capacity = max(MIN_CAPACITY, 1 << (needed - 1).bit_length())
        self.pairs = [
            tuple(part.new_zeros(*part.shape[:2], self.capacity, part.shape[3]) for part in pair)
            for pair in self.like
        ]
        self.like = [tuple(part[:, :, :0] for part in pair) for pair in self.pairs]
        self.entries, self._first = torch.arange(self.capacity, device=self.device), {}
        if held:
            self.take_over(held, self.length)

    def take_over(self, pairs: list[tuple[torch.Tensor, torch.Tensor]], length: int) -> None:
        """Copy the first `length` keys and values of every layer, [1, m, n, d], over whatever is here."""
        self._make_room(length)
        for stored, new in zip(
            (part for pair in self.pairs for part in pair),
            (part for pair in pairs for part in pair),
        ):
            stored[:, :, :length] = new[:, :, :length]
        self.length, self.ahead = length, 0

    def enter(self, tokens: int) -> int:
        """Prepare for a pass in which `tokens` enter. Return the limit S of what it attends to."""
        self._make_room(self.length + tokens)
        limit = min(self.capacity, _rounded(self.length + tokens, self.device))
        if limit not in self._first:
            self._first[limit] = self.entries[:limit]
            torch._dynamo.mark_dynamic(self._first[limit], 0)  # one compilation serves every limit
        self.seen = self._first[limit]  # [S]
        self.start.fill_(self.length)
        return limit

    def commit(self, tokens: int) -> None:
        """Count `tokens` of those that entered as part of the text; a negative number drops the last ones."""
        self.length, self.ahead = self.length + tokens, 0

    def get_seq_length(self) -> int:
        """The length, as transformers' caches are asked for it."""
        return self.length

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Absolute positions [1, T] of what enters, [1, T, ...]."""
        return self.start + torch.arange(
            self.ahead, self.ahead + entering.shape[1], device=entering.device
        )

    def mask(self, tokens: int) -> torch.Tensor:
        """Return the mask [1, 1, 1, S] that hides the entries after a block of `tokens` tokens."""
        return hiding(self.seen < self.start + self.ahead + tokens, self.dtype)[None, None]

    def causal_mask(self, positions: torch.Tensor) -> torch.Tensor:
        """Return the mask [1, 1, T, S] that hides from tokens at positions [1, T] the entries after each."""
        return hiding(self.seen <= positions[0, :, None], self.dtype)[None, None]

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [1, m, T, d] after the context and return everything up to the limit, [1, m, S, d]."""
        at, limit = self.positions(keys.transpose(1, 2))[0], self.seen.shape[0]
        for stored, new in zip(self.pairs[layer], (keys, values)):
            stored.index_copy_(2, at, new)
        return tuple(stored[:, :, :limit] for stored in self.pairs[layer])

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """`append` as transformers asks for it."""
        return self.append(layer, keys, values)

    def advance(self, tokens: int) -> None:
        """Move the draft cursor; `commit` alone counts."""
        self.ahead += tokens


def _rounded(needed: int, device: torch.device) -> int:
    """`needed` up to the next multiple of 64; with CUDA, where each limit is captured, to the next power of two from 256 on."""
    if device.type == "cuda":
        return max(256, 1 << (needed - 1).bit_length())
    return -(-needed // 64) * 64


def static_attention(module, query, key, value, attention_mask, *, scaling, **options):
    """transformers' attention interface: query [1, n, T, d], key and value [1, m, S, d]. Return [1, T, n, d], no weights."""
    return attend(query, key, value, attention_mask, scaling).transpose(1, 2), None


AttentionInterface.register(STATIC, static_attention)
