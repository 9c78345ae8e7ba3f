"""Requests of different lengths in one pass: keys and values in slots, a step's tokens in one
sequence.

A step is one sequence [1, N] of independent tokens, each with a position and a slot in index
tensors. Operations on single tokens run on this sequence unchanged. Attention uses the
block-diagonal causal mask `sees` and computes only its diagonal blocks. Shapes: N tokens, R
requests, L the most tokens that one of them brings, S the longest context, n query heads, m key
heads, d head size, H hidden size.
"""

from functools import cached_property

import numpy as np
import torch
from transformers import AttentionInterface

from ..common.errors import RequestError
from ..decoding.attention import additive_mask, attend, use_attention
from ..decoding.target import Target, TargetOutput
from ..drafters.autoregressive import Autoregressive, ChainState
from ..drafters.dspark import Backbone
from ..drafters.layers import block_sparse

RAGGED = "dspark_lite_ragged"  # the name of `ragged_attention` in transformers


def sees(slot, position, key_slot, key_position):
    """Return the mask of a step: a token sees the keys of its own slot up to its own position."""
    return (slot == key_slot) & (key_position <= position)


class SlotStore:
    """Keys and values [m, slots, capacity, d] of every layer of the target or of a block drafter,
    an entry for each committed token. The caller says where to write. So nothing moves, and
    whatever is rolled back is overwritten."""

    def __init__(self, layers: int, slots: int, capacity: int, device: torch.device):
        self.slots, self.capacity, self.device = slots, capacity, device
        self.keys, self.values = [None] * layers, [None] * layers
        self.flex = block_sparse(device)  # FlexAttention skips what the mask hides

    def write(
        self, layer: int, slot_index: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> None:
        """Write keys and values [m, N, d] at slot_index [N] = slot * capacity + position."""
        for buffers, new in ((self.keys, keys), (self.values, values)):
            if buffers[layer] is None:
                buffers[layer] = new.new_zeros(len(new), self.slots, self.capacity, new.shape[-1])
            buffers[layer].flatten(1, 2).index_copy_(1, slot_index, new)

    def read(self, layer: int, rows, longest: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first `longest` keys and values [R, m, S, d] of the slots that `rows` selects."""
        return tuple(
            buffers[layer][:, rows, :longest].transpose(0, 1)
            for buffers in (self.keys, self.values)
        )

    def whole(self, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [1, m, slots * capacity, d] of all slots."""
        return tuple(buffers[layer].flatten(1, 2)[None] for buffers in (self.keys, self.values))

    def rows(self, slots: list[int]):
        """Return an index that selects these slots. The first ones are a slice, which copies
        nothing."""
        return (
            slice(len(slots))
            if slots == list(range(len(slots)))
            else torch.tensor(slots, device=self.device)
        )

    def clear(self, slot: int) -> None:
        """Zero a slot that may hold numbers that are not finite: they spread in spite of a mask."""
        for buffer in (*self.keys, *self.values):
            if buffer is not None:
                buffer[:, slot] = 0

    def draft_context(self, slots: list[int], lengths: list[int]) -> "DraftView":
        """Return the context that a drafter drafts from, after `lengths` committed tokens of each
        slot."""
        return DraftView(self, slots, lengths)

    def append_context(self, slots: list[int], starts, counts) -> "Layout":
        """Return the context that a drafter extends, by `counts` tokens of each slot from `starts`
        on."""
        return Layout(self, slots, starts, counts)


def spans(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lay runs of lengths `counts` end to end. Return each element's run and its offset in it, [N]."""
    row = np.repeat(np.arange(len(counts)), counts)
    return row, np.arange(len(row)) - (counts.cumsum() - counts)[row]


class Layout:
    """The places of a step's N tokens: request r has `counts[r]` of them in slot `slots[r]`, from
    position `starts[r]` on. `row`, `offset` (within the request), `position` and `slot_index` (in
    the store) are [N].

    A pass over these tokens uses it as its cache. transformers calls `update` for the target; a
    drafter that reads committed tokens calls `positions`, `append` and `advance`.
    """

    def __init__(self, store: SlotStore, slots: list[int], starts, counts):
        starts, counts = np.asarray(starts), np.asarray(counts)
        row, offset = spans(counts)
        position = starts[row] + offset
        indices = np.stack(
            [row, offset, position, np.asarray(slots)[row] * store.capacity + position]
        )
        self.store = store
        self.rows = store.rows(slots)
        self.counts = counts
        self.device = store.device
        self.row, self.offset, self.position, self.slot_index = torch.from_numpy(indices).to(
            self.device
        )
        self.starts = torch.from_numpy(starts).to(self.device)
        self._added: torch.Tensor | None = None
        self.max_count, self.max_length = int(counts.max()), int((starts + counts).max())

    @cached_property
    def mask(self) -> torch.Tensor:
        """Return the diagonal blocks [R, L, S] of the mask: whether token l of a request sees key s
        of its slot."""
        position = self.starts[:, None] + torch.arange(self.max_count, device=self.device)  # [R, L]
        return torch.arange(self.max_length, device=self.device) <= position[..., None]

    @cached_property
    def block_mask(self):
        """Return the mask over the whole store, block-sparse, for FlexAttention."""
        # A slow import, needed on a GPU only
        from torch.nn.attention.flex_attention import (
            create_block_mask,
        )

        capacity, keys = self.store.capacity, self.store.slots * self.store.capacity

        def slot_visibility(batch, head, query, key):
            index = self.slot_index[query]
            return sees(index // capacity, index % capacity, key // capacity, key % capacity)

        return create_block_mask(
            slot_visibility, None, None, len(self.slot_index), keys, device=self.device
        )

    def added_mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the mask [R, 1, L, S] as numbers to add to scores. All layers of a step share it."""
        if self._added is None:
            self._added = additive_mask(self.mask, dtype)[:, None]
        return self._added

    def by_request(self, flat: torch.Tensor) -> torch.Tensor:
        """Lay [N, ...] out by request, [R, L, ...], with zeros behind shorter ones."""
        if self.counts.min() == self.max_count:
            return flat.unflatten(0, (-1, self.max_count))
        laid = flat.new_zeros(len(self.counts) * self.max_count, *flat.shape[1:])
        return laid.index_copy_(0, self._at, flat).unflatten(0, (-1, self.max_count))

    def flat(self, by_request: torch.Tensor) -> torch.Tensor:
        """Put [R, L, ...] back into one sequence, [N, ...]."""
        if self.counts.min() == self.max_count:
            return by_request.flatten(0, 1)
        return by_request.flatten(0, 1).index_select(0, self._at)

    @cached_property
    def _at(self) -> torch.Tensor:
        return self.row * self.max_count + self.offset

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Return the absolute positions [1, N]."""
        return self.position[None]

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [1, m, N, d] to the store and return what `ragged_attention` reads:
        those of the requests up to the longest, [R, m, S, d], or on the block-sparse path those of
        all slots."""
        self.store.write(layer, self.slot_index, keys[0], values[0])
        return (
            self.store.whole(layer)
            if self.store.flex
            else self.store.read(layer, self.rows, self.max_length)
        )

    def advance(self, tokens: int) -> None:
        """Do nothing: the scheduler knows the lengths."""

    def get_seq_length(self, layer: int = 0) -> int:
        """Return 0. transformers 5.0 asks for it; every token here has a position of its own."""
        return 0

    def update(
        self, keys: torch.Tensor, values: torch.Tensor, layer: int, *unused
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Call `append`. transformers calls a cache by this name."""
        return self.append(layer, keys, values)


def ragged_attention(
    module, query, key, value, attention_mask, *, scaling, layout: Layout, **options
):
    """Attend to a step's keys, as transformers' attention interface.

    query [1, n, N, d], key and value from `Layout.update`. Return [1, N, n, d] and no weights.
    """
    if layout.store.flex:
        return attend(query, key, value, layout.block_mask, scaling).transpose(1, 2), None
    queries = layout.by_request(query[0].transpose(0, 1)).transpose(1, 2)  # [R, n, L, d]
    mixed = attend(queries, key, value, layout.added_mask(query.dtype), scaling)
    return layout.flat(mixed.transpose(1, 2))[None], None


AttentionInterface.register(RAGGED, ragged_attention)


def ragged_step(
    target: Target, token_ids: torch.Tensor, layout: Layout, taps=(), logits_at=0
) -> TargetOutput:
    """Read the tokens [N] of a step in one pass of the target.

    Return logits [1, N, V], or at the indices `logits_at` [R] alone, and features [1, N, taps * H].
    The layout is the cache of the pass, and reaches `ragged_attention` as a keyword argument.
    """
    with use_attention(target.model, RAGGED):
        return target.read(
            token_ids[None],
            layout,
            taps,
            logits_at,
            position_ids=layout.position[None],
            layout=layout,
        )


class DraftView:
    """The contexts of R requests in slots. Each gets the same number of new tokens: a block or one
    draft."""

    def __init__(self, store: SlotStore, slots: list[int], lengths: list[int]):
        self.store, self.rows, self.device = store, store.rows(slots), store.device
        self.length = torch.tensor(lengths, device=self.device)  # [R]
        self.first = torch.tensor(slots, device=self.device) * store.capacity
        self.max_length, self.even, self.ahead = max(lengths), len(set(lengths)) == 1, 0

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Return the absolute positions [R, T] of new tokens [R, T, ...]."""
        return self.length[:, None] + torch.arange(
            self.ahead, self.ahead + entering.shape[1], device=self.device
        )

    def mask(self, tokens: int) -> torch.Tensor | None:
        """Return the mask [R, 1, 1, S] that hides the slots behind shorter contexts; None if all are
        equally long."""
        end = self.ahead + tokens
        seen = torch.arange(self.max_length + end, device=self.device) < self.length[:, None] + end
        return None if self.even else seen[:, None, None]

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [R, m, T, d] after the contexts. Return the contexts with them, [R, m,
        S, d]."""
        slot_index = (self.first[:, None] + self.positions(keys.transpose(1, 2))).flatten()
        self.store.write(
            layer, slot_index, *(new.transpose(0, 1).flatten(1, 2) for new in (keys, values))
        )
        return self.store.read(layer, self.rows, self.max_length + self.ahead + keys.shape[2])

    def advance(self, tokens: int) -> None:
        """Move the draft cursor, back if `tokens` is negative. Nothing is committed."""
        self.ahead += tokens


class ChainStore(SlotStore):
    """The contexts of Eagle3 and MTP: entry i holds feature i and token i + 1, and the last feature
    is `waiting` [slots, H] for its own token."""

    def __init__(self, drafter: Autoregressive, slots: int, capacity: int, device: torch.device):
        super().__init__(len(drafter.layers), slots, capacity, device)
        weight = drafter.embed_tokens.weight
        self.waiting = torch.zeros(slots, weight.shape[1], dtype=weight.dtype, device=device)

    def draft_context(self, slots: list[int], lengths: list[int]) -> ChainState:
        cache = DraftView(self, slots, [length - 1 for length in lengths])
        return ChainState(cache, self.waiting[cache.rows][:, None])  # waiting: [R, 1, H]

    def append_context(self, slots: list[int], starts, counts) -> "ChainAppendView":
        return ChainAppendView(self, slots, np.asarray(starts), np.asarray(counts))


class ChainAppendView:
    """A ChainState for extending requests in slots."""

    def __init__(self, store: ChainStore, slots: list[int], starts: np.ndarray, counts: np.ndarray):
        fresh = starts == 0  # nothing precedes the first token of a prompt, so it makes no entry
        self.store, self.cache = store, Layout(store, slots, starts - 1 + fresh, counts - fresh)
        last = counts.cumsum() - 1
        first = last + 1 - counts
        entered = np.delete(np.arange(counts.sum()), first[fresh])
        self.slots, self.first, self.last, self.entered = (
            torch.as_tensor(index, device=store.device) for index in (slots, first, last, entered)
        )

    def take_pairs(
        self, token_ids: torch.Tensor, features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the newly committed tokens that make an entry, and the feature before each of them.

        token_ids [1, N]; features [1, N, H] are the tokens' own.
        """
        before = features.roll(1, 1)
        before[0, self.first] = self.store.waiting[self.slots]
        self.store.waiting[self.slots] = features[0, self.last]
        return token_ids[:, self.entered], before[:, self.entered]


def drafter_slots(drafter, slots: int, capacity: int, device: torch.device) -> SlotStore:
    """Return the slotted contexts of a drafter. Raise RequestError for a drafter whose context is
    of another kind."""
    if isinstance(drafter, Autoregressive):
        return ChainStore(drafter, slots, capacity, device)
    if isinstance(drafter, Backbone):
        return SlotStore(len(drafter.layers), slots, capacity, device)
    raise RequestError(
        f"{drafter.name} keeps no context that the engine can hold in slots; serve with DSpark, DFlash, Eagle3 "
        "or MTP, or decode one request with generate"
    )
