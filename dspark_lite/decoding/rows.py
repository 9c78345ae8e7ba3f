"""Sequences of different lengths that share every pass of the target.

The keys and values of all rows are in one padded store. Row b fills the first `lengths[b]` entries;
a mask hides the rest. A pass writes each row's tokens behind its own last one. So nothing moves, a
rejected draft leaves no hole, and to roll back is to lower a length.

The blocks of a batch have one size, so a padded pass of verification has little padding and needs no
new layout for attention: for 16 rows of the tiny pair it took 0.87 of the CPU time of the flat pass
of serving/slots.py (one run, one thread). Prompts of different lengths are padded and took 1.35.

Shapes: R rows of a pass, L tokens of each, S the longest row, m key heads, d head size.
"""

import inspect
from contextlib import nullcontext

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, DynamicCache

from .attention import additive_mask, attend, use_attention
from .proposal import Drafter, Proposal, stack_proposals
from .rounds import Sequence
from .sampling import Randomness
from .target import Target, TargetOutput, within_memory

GROUPED = "dspark_lite_grouped"  # the name of `grouped_attention` in transformers


def grouped_attention(module, query, key, value, attention_mask, *, scaling=None, **unused):
    """Compute transformers' "sdpa" attention, without a copy of the keys for each query head."""
    return attend(query, key, value, attention_mask, scaling).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)


def can_share_passes(target: Target, longest: int) -> bool:
    """Return whether rows of up to `longest` tokens can share the passes of this target.

    They can if the model takes a mask with four dimensions and positions, and each layer caches all
    keys and values: its attention is transformers' "sdpa" or "eager" behind the common interface,
    it has no recurrent state, it reads text alone, no sliding window is shorter than a row, and all
    layers are on one device.
    """
    if type(target) is not Target:
        return False
    model = target.model
    windows = [
        getattr(layer, "sliding_window", None) or 0
        for layer in DynamicCache(config=target.config).layers
        if getattr(layer, "is_sliding", False)
    ]
    return (
        getattr(model, "_supports_attention_backend", False)
        and target.config._attn_implementation in ("sdpa", "eager")
        and target.config is model.config
        and "position_ids" in inspect.signature(model.forward).parameters
        and not target.has_states
        and len(set(getattr(model, "hf_device_map", {}).values())) < 2
        and all(longest <= window for window in windows)
    )


class RowStore:
    """Keys and values [B, room, m, d] of every layer for B rows. Row b is its first `lengths[b]`
    entries; later ones are overwritten.

    It is the context of a drafter, and the cache of a pass of the target. The `joined` rows take
    part in the next pass. `begin_pass` sets what holds until the next one: `longest`, the entries
    of the longest row with the pass; `position` [R, L] of its tokens; `slot_index` [R * L], their
    places in the store; `index` [R], the rows of the pass (None: all rows in their order).
    """

    def __init__(self, layers: int, rows: int, device: torch.device):
        self.pairs: list[list[torch.Tensor] | None] = [None] * layers
        self.lengths, self.joined, self.room, self.device = [0] * rows, range(rows), 0, device

    def begin_pass(self, tokens: int, counts: list[int] | None = None) -> torch.Tensor:
        """Begin a pass over [R, tokens] and return its positions [R, tokens]. With `counts`, the
        last `counts[r]` tokens of row r count and the others are padding at position 0."""
        starts = [self.lengths[row] for row in self.joined]
        self.longest = max(starts) + tokens
        self._make_room(self.longest + 1)
        lacking = [0] * len(starts) if counts is None else [tokens - count for count in counts]
        first, rows = torch.tensor(
            [[start - lack for start, lack in zip(starts, lacking)], list(self.joined)]
        ).to(self.device)[..., None]  # [R, 1] each
        position = first + torch.arange(tokens, device=self.device)
        # Padding before a row's tokens is written behind all rows.
        entry = position if counts is None else position.where(position >= 0, self.room - 1)
        self.slot_index = (rows * self.room + entry).flatten()
        in_place = list(self.joined) == list(range(len(self.lengths)))
        self.index = None if in_place else rows[:, 0]
        self.position = position.clamp(min=0)
        return self.position

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Begin a pass over tokens [R, L, ...] and return their positions [R, L]."""
        return self.begin_pass(entering.shape[1])

    def causal_mask(self, dtype: torch.dtype) -> torch.Tensor:
        """Return the mask [R, 1, L, S] of the pass as numbers to add: a token sees its row up to
        itself."""
        entries = torch.arange(self.longest, device=self.device)
        return additive_mask(entries <= self.position[..., None], dtype)[:, None]

    def mask(self, tokens: int) -> torch.Tensor | None:
        """Return the mask [R, 1, 1, S] of a block whose tokens see their row and one another; None
        if all rows are equally long."""
        end = self.position[:, -1:] + 1
        if len({self.lengths[row] for row in self.joined}) == 1:
            return None
        return (torch.arange(self.longest, device=self.device) < end)[:, None, None]

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
        for held, new in zip(self.pairs[layer], (keys, values)):
            held.flatten(0, 1).index_copy_(0, self.slot_index, new.transpose(1, 2).flatten(0, 1))
        entries = (held[:, : self.longest] for held in self.pairs[layer])
        if self.index is not None:
            entries = (held[self.index] for held in entries)
        return tuple(held.transpose(1, 2) for held in entries)

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
            self.pairs[layer] = pair and [held[index] for held in pair]

    def _make_room(self, needed: int) -> None:
        """Give every layer room for `needed` entries and half the longest row, at least 64, if it has
        less."""
        if needed <= self.room:
            return
        grown = max(64, needed + max(self.lengths) // 2)
        for pair in self.pairs:
            for part, held in enumerate(pair or ()):
                pair[part] = held.new_zeros(len(held), grown, *held.shape[2:])
                pair[part][:, : self.room] = held
        self.room = grown


class Stored:
    """What is in a RowStore: rows are cut and dropped there."""

    store: RowStore

    def length(self, row: int) -> int:
        """Return how many tokens of a row are stored."""
        return self.store.lengths[row]

    def cut(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of a row."""
        self.store.lengths[row] = length

    def select(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        self.store.select(rows)


class SharedCache(Stored):
    """The target's cache of rows that share every pass."""

    def __init__(self, target: Target, prompts: list[torch.Tensor], taps):
        self.target = target
        self.store = RowStore(target.num_layers, len(prompts), target.device)
        longest = max(prompt.shape[1] for prompt in prompts)
        counts = [prompt.shape[1] for prompt in prompts]
        token_ids = prompts[0].new_zeros(len(prompts), longest)
        for row, (prompt, count) in enumerate(zip(prompts, counts)):
            token_ids[row, longest - count :] = prompt[0]
        output = self._pass(token_ids, taps, counts, logits_to_keep=1)
        self.store.lengths = counts
        self.logits = output.logits
        self.features = taps and [
            features[longest - count :] for features, count in zip(output.features, counts)
        ]

    def _pass(self, token_ids, taps, counts=None, **options) -> TargetOutput:
        target, positions = self.target, self.store.begin_pass(token_ids.shape[1], counts)
        shared = target.config._attn_implementation == "sdpa"
        with use_attention(target.model, GROUPED) if shared else nullcontext():
            return target.read(
                token_ids,
                self.store,
                taps,
                attention_mask=self.store.causal_mask(target.dtype),
                position_ids=positions.clamp(max=target.max_positions - 1),  # of padding
                **options,
            )

    def read(self, rows: list[int], token_ids: torch.Tensor, lengths, taps) -> TargetOutput:
        """Read [anchor, drafts] [R, k+1] of these rows in one pass."""
        self.store.joined = rows
        return self._pass(token_ids, taps)


class OwnCaches:
    """The target's caches of rows that are read one after the other."""

    def __init__(self, target: Target, prompts: list[torch.Tensor], taps):
        self.target = target
        outputs, self.caches = zip(*(target.prefill(prompt, taps) for prompt in prompts))
        self.counts = [prompt.shape[1] for prompt in prompts]
        self.logits = torch.cat([output.logits for output in outputs])
        self.features = taps and [output.features[0] for output in outputs]

    def length(self, row: int) -> int:
        """Return how many tokens of a row are cached."""
        return self.counts[row]

    def read(self, rows: list[int], token_ids: torch.Tensor, lengths, taps) -> TargetOutput:
        """Read [anchor, drafts] [R, k+1] of these rows, each up to its `lengths` of drafts."""
        outputs = []
        for row, tokens, length in zip(rows, token_ids, lengths):
            outputs.append(self.target.verify(tokens[None, : length + 1], self.caches[row], taps))
            self.counts[row] += length + 1
        return TargetOutput(
            pad_sequence([output.logits[0] for output in outputs], batch_first=True),
            pad_sequence([output.features[0] for output in outputs], batch_first=True)
            if taps
            else None,
        )

    def cut(self, row: int, length: int) -> None:
        """Keep the first `length` tokens of a row."""
        self.target.roll_back(self.caches[row], self.counts[row] - length)
        self.counts[row] = length

    def select(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        self.caches, self.counts = zip(*((self.caches[row], self.counts[row]) for row in rows))
        self.counts = list(self.counts)


class SharedContexts(Stored):
    """The contexts of a drafter that drafts for all rows at once."""

    can_rewind = True

    def __init__(self, drafter: Drafter, store: RowStore, prompts, features):
        self.drafter, self.store = drafter, store
        counts = [prompt.shape[1] for prompt in prompts]
        self.extend(list(range(len(prompts))), [prompt[0] for prompt in prompts], features, counts)

    def propose(self, rows: list[int], anchor: torch.Tensor, **options) -> Proposal:
        """Draft a block [R, k] after the anchors [R] of these rows."""
        self.store.joined = rows
        return self.drafter.propose(self.store, anchor, **options)

    def extend(self, rows: list[int], token_ids: list, features: list, counts: list[int]) -> None:
        """Add the first `counts` of the tokens [L] with features [L, taps * H] of these rows."""
        self.store.joined, most = rows, max(counts)
        self.drafter.extend(
            self.store,
            pad_sequence([tokens[:most] for tokens in token_ids], batch_first=True),
            pad_sequence([row[:most] for row in features], batch_first=True),
        )
        for row, count in zip(rows, counts):
            self.store.lengths[row] += count


class OwnContexts:
    """The states of a drafter that drafts for one row after the other. They never forget."""

    can_rewind = False

    def __init__(self, drafter: Drafter, prompts, features):
        self.drafter = drafter
        features = features or [None] * len(prompts)
        self.states = [
            drafter.begin(prompt, None if row is None else row[None])
            for prompt, row in zip(prompts, features)
        ]
        self.counts = [prompt.shape[1] for prompt in prompts]

    def propose(self, rows: list[int], anchor: torch.Tensor, **options) -> Proposal:
        """Draft a block [R, k] after the anchors [R] of these rows; shorter ones are padded."""
        blocks = [
            self.drafter.propose(self.states[row], anchor[place : place + 1], **options)
            for place, row in enumerate(rows)
        ]
        self.drafted = [block.tokens.shape[1] for block in blocks]
        return stack_proposals(blocks)

    def extend(self, rows: list[int], token_ids: list, features: list, counts: list[int]) -> None:
        """Add the first `counts` of the tokens [L] with features [L, taps * H] of these rows."""
        for row, tokens, seen, count in zip(rows, token_ids, features, counts):
            seen = None if seen is None else seen[None, :count]
            self.drafter.extend(self.states[row], tokens[None, :count], seen)
            self.counts[row] += count

    def length(self, row: int) -> int:
        """Return how many tokens of a row the drafter has read."""
        return self.counts[row]

    def select(self, rows: list[int]) -> None:
        """Drop all rows but these."""
        self.states = [self.states[row] for row in rows]
        self.counts = [self.counts[row] for row in rows]


class Rows(Sequence):
    """B sequences of different lengths. Those that `join` a round are its rows [R].

    The constructor reads the prompts [1, n]; `logits` [B, 1, V] belong to the tokens after them.
    `longest` is the length of the longest row when it ends. Rows that cannot share a pass
    (`can_share_passes`), and a single one, are verified one after the other, in the same rounds.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        prompts: list[torch.Tensor],
        longest: int,
        temperature: float,
        generator: Randomness,
        **options,
    ):
        taps = drafter.taps if drafter else ()
        shared = len(prompts) > 1 and can_share_passes(target, longest)
        with within_memory("the prompts' context"):
            cache = (SharedCache if shared else OwnCaches)(target, prompts, taps)
        super().__init__(target, drafter, cache, None, None, temperature, generator, **options)
        self.logits, self.numbers = cache.logits, list(range(len(prompts)))
        # Of each row's last pass: its tokens [L] and their features [L, taps * H].
        self.read_last: dict[int, tuple] = {}
        if drafter:
            with within_memory(f"the context of {drafter.name}"):
                store = drafter.row_store(len(prompts), target.device) if shared else None
                self.state = (
                    OwnContexts(drafter, prompts, cache.features)
                    if store is None
                    else SharedContexts(drafter, store, prompts, cache.features)
                )
        del cache.logits, cache.features

    @property
    def can_rewind(self) -> bool:
        """Return whether a row may `join` with fewer tokens than it had."""
        return self.drafter is None or self.state.can_rewind

    @property
    def room(self) -> list[int]:
        """Return, for each row, the number of drafts in the next block that can still count."""
        return self.rooms

    def select(self, rows: list[int]) -> None:
        """Drop all rows but these. Rows keep their numbers."""
        if rows == self.numbers:
            return
        places = [self.numbers.index(row) for row in rows]
        self.cache.select(places)
        if self.drafter:
            self.state.select(places)
        self.numbers = rows

    def join(self, rows: list[int], lengths: list[int], anchors: list[int], rooms: list[int]):
        """Begin a round of these rows: the first `lengths` tokens of each are kept, and `anchors`
        are the tokens after them. `rooms`: how many drafts can count."""
        self.joined, self.lengths, self.rooms = rows, lengths, rooms
        self.places = [self.numbers.index(row) for row in rows]
        self.anchor = torch.tensor(anchors, device=self.target.device)
        for place, row, length in zip(self.places, rows, lengths):
            if row in self.read_last:
                self.cache.cut(place, length)

    def draft(self) -> Proposal:
        """Draft a block [R, k] after the anchors, once the drafter has read what was kept."""
        if self.drafter:
            with self.observe("draft"), within_memory(f"the context of {self.drafter.name}"):
                self._catch_up()
        return super().draft()

    def _catch_up(self) -> None:
        fresh = []
        for place, row, length in zip(self.places, self.joined, self.lengths):
            if length > (start := self.state.length(place)):
                fresh.append((place, *self.read_last[row], length - start))
            elif length < start:
                self.state.cut(place, length)
        if fresh:
            self.state.extend(*map(list, zip(*fresh)))

    def propose(self, length: int) -> Proposal:
        """Draft a block [R, length], and limit each row's room to the drafts that it got."""
        block = self.state.propose(
            self.places,
            self.anchor,
            gamma=length,
            temperature=self.temperature,
            generator=self.generator,
        )
        if not isinstance(self.state, SharedContexts):
            self.rooms = [min(pair) for pair in zip(self.rooms, self.state.drafted)]
        return block

    def read(self, block: Proposal) -> torch.Tensor:
        """Read the anchors and the drafts [R, k] of all rows. Return float32 logits [R, k+1, V]."""
        entering = torch.cat([self.anchor[:, None], block.tokens], 1)  # [R, k+1]
        taps = self.drafter.taps if self.drafter else ()
        output = self.cache.read(self.places, entering, block.lengths, taps)
        features = [None] * len(entering) if output.features is None else output.features
        self.read_last |= zip(self.joined, zip(entering, features))
        return output.logits

    def keep(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Do nothing: the next `join` says what both models keep."""
