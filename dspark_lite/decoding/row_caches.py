"""Caches of several rows: one shared store, or one cache and state per row.

Shapes: R rows of a pass, L tokens of each, k drafts.
"""

from contextlib import nullcontext
from typing import NamedTuple

import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import AttentionInterface, DynamicCache

from .attention import attend, use_attention
from .proposal import Drafter, Proposal, stack_proposals
from .row_store import RowStore
from .target import Target, TargetOutput, joined

GROUPED = "dspark_lite_grouped"  # the name of `grouped_attention` in transformers


def grouped_attention(module, query, key, value, attention_mask, *, scaling=None, **unused):
    """Compute transformers' "sdpa" attention, without a copy of the keys for each query head."""
    return attend(query, key, value, attention_mask, scaling).transpose(1, 2).contiguous(), None


AttentionInterface.register(GROUPED, grouped_attention)


class RowStoreView:
    """One model's view of a RowStore, which cuts and drops rows."""

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


class SharedCache(RowStoreView):
    """The target's cache of rows that share every pass."""

    def __init__(self, target: Target, prompts: list[torch.Tensor], taps):
        self.target = target
        self.store = RowStore(target.num_layers, len(prompts), target.device)
        longest = max(prompt.shape[1] for prompt in prompts)
        counts = [prompt.shape[1] for prompt in prompts]
        token_ids = prompts[0].new_zeros(len(prompts), longest)
        for row, (prompt, count) in enumerate(zip(prompts, counts)):
            token_ids[row, longest - count :] = prompt[0]
        features, end = [], 0
        for piece in target.pieces(token_ids):
            end, width = end + piece.shape[1], piece.shape[1]
            # A row's tokens in the piece, which are its last ones: padding is on the left.
            read = [min(width, max(0, count - longest + end)) for count in counts]
            output = self._pass(piece, taps, read, logits_to_keep=1)
            self.store.lengths = [sum(pair) for pair in zip(self.store.lengths, read)]
            features.append(output.features)
        self.logits = output.logits
        self.features = taps and [
            row[longest - count :] for row, count in zip(joined(features), counts)
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


class ReadText(NamedTuple):
    """A text that both models have read: its `ids` [1, n], the target's `cache` and the drafter's
    `state`."""

    ids: torch.Tensor
    cache: DynamicCache | None
    state: object


def _unread(prompt: torch.Tensor, text: ReadText | None) -> torch.Tensor:
    """Return the tokens of a prompt [1, n] after those of a text that was read."""
    return prompt if text is None else prompt[:, text.ids.shape[1] :]


class OwnCaches:
    """The target's caches of rows that are read one after the other. The prompts may go on from
    texts that were `begun`."""

    def __init__(self, target: Target, prompts: list[torch.Tensor], taps, begun=()):
        self.target = target
        begun = begun or [None] * len(prompts)
        outputs, self.caches = zip(
            *(
                target.prefill(_unread(prompt, text), taps, text and text.cache)
                for prompt, text in zip(prompts, begun)
            )
        )
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


class SharedContexts(RowStoreView):
    """The contexts of a drafter that drafts for all rows at once. `propose` sets
    `drafted`, the number of drafts of each row."""

    can_rewind = True

    def __init__(self, drafter: Drafter, store: RowStore, prompts, features):
        self.drafter, self.store = drafter, store
        counts = [prompt.shape[1] for prompt in prompts]
        self.extend(list(range(len(prompts))), [prompt[0] for prompt in prompts], features, counts)

    def propose(self, rows: list[int], anchor: torch.Tensor, **options) -> Proposal:
        """Draft a block [R, k] after the anchors [R] of these rows."""
        self.store.joined = rows
        block = self.drafter.propose(self.store, anchor, **options)
        self.drafted = [block.tokens.shape[1]] * len(rows)
        return block

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
    """One state per row. States cannot be rewound. `propose` drafts for one row after the other and
    sets `drafted`, the number of drafts of each row."""

    can_rewind = False

    def __init__(self, drafter: Drafter, prompts, features, begun=()):
        self.drafter = drafter
        features, self.states = features or [None] * len(prompts), []
        for prompt, row, text in zip(prompts, features, begun or [None] * len(prompts)):
            row = None if row is None else row[None]
            if text is None:
                self.states.append(drafter.begin(prompt, row))
            else:
                drafter.extend(text.state, _unread(prompt, text), row)
                self.states.append(text.state)
        self.counts = [prompt.shape[1] for prompt in prompts]

    def propose(self, rows: list[int], anchor: torch.Tensor, **options) -> Proposal:
        """Draft a block [R, k] after the anchors [R] of these rows; shorter ones are padded."""
        blocks = [
            self.drafter.propose(self.states[row], anchor[index : index + 1], **options)
            for index, row in enumerate(rows)
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
