"""A drafted block, what drafts it, and the context that a drafter attends to."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch.nn.utils.rnn import pad_sequence

from ..common.errors import RequestError


@dataclass
class Proposal:
    """A drafted block: `tokens` [B, g], the float32 distribution `probs` [B, g, V] each was drawn from, and the float32
    `confidence_logits` [B, g] of a confidence head (None without one)."""

    tokens: torch.Tensor
    probs: torch.Tensor
    confidence_logits: torch.Tensor | None = None

    @property
    def confidence(self) -> torch.Tensor | None:
        """The chance [B, g] that a token survives given that its predecessors did; None without a confidence head."""
        return None if self.confidence_logits is None else torch.sigmoid(self.confidence_logits)

    def cut(self, length: int) -> "Proposal":
        """The first `length` positions; a block that is no longer stays as it is."""
        if length >= self.tokens.shape[1]:
            return self
        logits = None if self.confidence_logits is None else self.confidence_logits[:, :length]
        return Proposal(self.tokens[:, :length], self.probs[:, :length], logits)

    def within(self, room: list[int]) -> "Proposal":
        """The block without drafts that cannot count, where row b has room for `room[b]` of them: cut to the largest
        room, in rows of less with confidence logit -inf behind it."""
        longest, logits = max(room), self.confidence_logits
        if logits is not None and min(room) < min(longest, self.tokens.shape[1]):
            position = torch.arange(self.tokens.shape[1], device=logits.device)
            beyond = position >= torch.tensor(room, device=logits.device)[:, None]
            logits = logits.masked_fill(beyond, -torch.inf)
        return Proposal(self.tokens, self.probs, logits).cut(longest)


def stack_proposals(proposals: list[Proposal]) -> Proposal:
    """The blocks [1, g] of several requests as one proposal [R, g], for a policy that decides about all of them; a
    single proposal as it is.

    Shorter blocks are padded; a padded position has confidence logit -inf. An empty block needs no confidence for that.
    """
    if len(proposals) == 1:
        return proposals[0]

    def stack(parts, padding=0.0):
        return pad_sequence([part[0] for part in parts], batch_first=True, padding_value=padding)

    logits = None
    if any(one.confidence_logits is not None for one in proposals):
        logits = stack([one.probs.new_empty(1, 0) if one.confidence_logits is None else one.confidence_logits
                        for one in proposals], -torch.inf)
    return Proposal(stack([one.tokens for one in proposals]), stack([one.probs for one in proposals]), logits)


def draft_length(gamma: int | None, longest: int) -> int:
    """The draft length to use: `longest` unless `gamma` asks for fewer; raises RequestError beyond the block."""
    if gamma is None:
        return longest
    if not 1 <= gamma <= longest:
        raise RequestError(f"gamma is {gamma}; this drafter drafts between 1 and {longest} tokens a block")
    return gamma


@runtime_checkable
class Drafter(Protocol):
    """Guesses what the target will write. Its state holds the committed text up to the anchor, the newest token, and
    nothing that was drafted: whatever is rejected leaves no trace. One that works on the host may have a `note` as
    drafters/prompt_lookup.py has: `generate` tells it what was committed, so that it need not read the device."""

    name: str
    gamma: int  # drafts of a whole block
    taps: tuple[int, ...]  # the target's layers whose hidden states it reads

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor | None) -> object:
        """The state after prompts [B, n], whose tapped hidden states are features [B, n, taps * H] (or None)."""

    def propose(self, state, anchor: torch.Tensor, *, gamma: int | None = None, temperature: float,
                generator) -> Proposal:
        """A block of `gamma` drafts (None: whole) after the anchor [B], each drawn from the distribution beside it."""

    def extend(self, state, token_ids: torch.Tensor, features: torch.Tensor | None) -> None:
        """Takes in newly committed tokens [B, t] with the features [B, t, taps * H] that verification gave."""


@runtime_checkable
class Context(Protocol):
    """Keys and values of the committed tokens in every layer: what the layers of a drafter attend to."""

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Absolute positions [B, T] of tokens that enter after the context, [B, T, ...]."""

    def mask(self, tokens: int) -> torch.Tensor | None:
        """Which of the context and of so many tokens after it may be seen, [B, 1, 1, S]; None: everything."""

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes keys and values [B, m, T, d] after the context and returns everything up to them, [B, m, S, d]."""

    def advance(self, tokens: int) -> None:
        """Counts so many appended tokens as context; the others are overwritten by what comes next."""
