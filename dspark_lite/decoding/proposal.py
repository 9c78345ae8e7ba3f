"""A drafted block as the corridor takes it, several of them as one, and the draft length that may be asked for."""

from dataclasses import dataclass

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


def stack_proposals(proposals: list[Proposal]) -> Proposal:
    """The blocks [1, g] of several requests as one proposal [R, g], for a policy that decides about all of them.

    Shorter blocks are padded; a padded position has confidence logit -inf.
    """
    def stack(parts, padding=0.0):
        return pad_sequence([part[0] for part in parts], batch_first=True, padding_value=padding)

    logits = [one.confidence_logits for one in proposals]
    return Proposal(stack([one.tokens for one in proposals]), stack([one.probs for one in proposals]),
                    None if logits[0] is None else stack(logits, -torch.inf))


def draft_length(gamma: int | None, longest: int) -> int:
    """The draft length to use: `longest` unless `gamma` asks for fewer; raises RequestError beyond the block."""
    if gamma is None:
        return longest
    if not 1 <= gamma <= longest:
        raise RequestError(f"gamma is {gamma}; this drafter drafts between 1 and {longest} tokens a block")
    return gamma
