"""Sequences of different lengths that share every pass of the target.

Shapes: B rows, R of them in a round, k drafts, V vocabulary.
"""

import inspect

import torch
from transformers import DynamicCache

from .proposal import Drafter, Proposal
from .rounds import Sequence
from .row_caches import OwnCaches, OwnContexts, ReadText, SharedCache, SharedContexts
from .sampling import Randomness
from .target import Target, within_memory


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


class Rows(Sequence):
    """B sequences of different lengths. Those that `join` a round are its rows [R].

    The constructor reads the prompts [1, n]; `logits` [B, 1, V] belong to the tokens after them.
    `longest` is the length of the longest row when it ends. Rows that cannot share a pass
    (`can_share_passes`), and a single one, are verified one after the other, in the same rounds.
    A single prompt may go on from a text that was `begun`.
    """

    def __init__(
        self,
        target: Target,
        drafter: Drafter | None,
        prompts: list[torch.Tensor],
        longest: int,
        temperature: float,
        generator: Randomness,
        begun: ReadText | None = None,
        **options,
    ):
        taps = drafter.taps if drafter else ()
        shared = len(prompts) > 1 and can_share_passes(target, longest)
        texts = () if begun is None else (begun,)
        with within_memory("the prompts' context"):
            cache = (
                SharedCache(target, prompts, taps)
                if shared
                else OwnCaches(target, prompts, taps, texts)
            )
        super().__init__(target, drafter, cache, None, None, temperature, generator, **options)
        self.logits, self.numbers = cache.logits, list(range(len(prompts)))
        # Of each row's last pass: its tokens [L] and their features [L, taps * H].
        self.read_last: dict[int, tuple] = {}
        if drafter:
            with within_memory(f"the context of {drafter.name}"):
                store = drafter.row_store(len(prompts), target.device) if shared else None
                self.state = (
                    OwnContexts(drafter, prompts, cache.features, texts)
                    if store is None
                    else SharedContexts(drafter, store, prompts, cache.features)
                )
        del cache.logits, cache.features

    def read_text(self, ids: torch.Tensor) -> ReadText:
        """Return the text of a single row, of which both models keep `ids` [1, n]."""
        self.join(self.numbers, [ids.shape[1]], [0], [0])
        if self.drafter:
            self._catch_up()
        return ReadText(ids, self.cache.caches[0], self.state and self.state.states[0])

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
        indices = [self.numbers.index(row) for row in rows]
        self.cache.select(indices)
        if self.drafter:
            self.state.select(indices)
        self.numbers = rows

    def join(self, rows: list[int], lengths: list[int], anchors: list[int], rooms: list[int]):
        """Begin a round of these rows: the first `lengths` tokens of each are kept, and `anchors`
        are the tokens after them. `rooms`: how many drafts can count."""
        self.joined, self.lengths, self.rooms = rows, lengths, rooms
        self.indices = [self.numbers.index(row) for row in rows]
        self.anchor = torch.tensor(anchors, device=self.target.device)
        for index, row, length in zip(self.indices, rows, lengths):
            if row in self.read_last:
                self.cache.cut(index, length)

    def draft(self) -> Proposal:
        """Draft a block [R, k] after the anchors, once the drafter has read what was kept."""
        if self.drafter:
            with self.observe("draft"), within_memory(f"the context of {self.drafter.name}"):
                self._catch_up()
        return super().draft()

    def _catch_up(self) -> None:
        fresh = []
        for index, row, length in zip(self.indices, self.joined, self.lengths):
            if length > (start := self.state.length(index)):
                fresh.append((index, *self.read_last[row], length - start))
            elif length < start:
                self.state.cut(index, length)
        if fresh:
            self.state.extend(*map(list, zip(*fresh)))

    def propose(self, length: int) -> Proposal:
        """Draft a block [R, length], and limit each row's room to the drafts that it got."""
        block = self.state.propose(
            self.indices,
            self.anchor,
            gamma=length,
            temperature=self.temperature,
            generator=self.generator,
        )
        self.rooms = [min(pair) for pair in zip(self.rooms, self.state.drafted)]
        return block

    def read(self, block: Proposal) -> torch.Tensor:
        """Read the anchors and the drafts [R, k] of all rows. Return float32 logits [R, k+1, V]."""
        entering = torch.cat([self.anchor[:, None], block.tokens], 1)  # [R, k+1]
        taps = self.drafter.taps if self.drafter else ()
        output = self.cache.read(self.indices, entering, block.lengths, taps)
        features = [None] * len(entering) if output.features is None else output.features
        self.read_last |= zip(self.joined, zip(entering, features))
        return output.logits

    def keep(self, counts: list[int], next_token: torch.Tensor) -> None:
        """Do nothing: the next `join` says what both models keep."""
