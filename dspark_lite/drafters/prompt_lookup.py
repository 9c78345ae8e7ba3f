"""Prompt lookup: the draft is what followed the same few tokens last time. No model, no training."""

import torch

from ..decoding.proposal import Proposal, draft_length


class PromptLookup:
    """Copies the tokens that followed the latest earlier occurrence of the current n-gram (n from `longest` down to 1)."""

    name = "prompt_lookup"
    taps = ()

    def __init__(self, vocab_size: int, gamma: int = 7, longest: int = 3):
        self.vocab_size, self.gamma, self.longest = vocab_size, gamma, longest

    def fast(self, gamma: int, backend: str) -> "PromptLookup":
        """This drafter on the fast path: it has no pass."""
        return self

    def begin(self, prompt_ids: torch.Tensor, features=None) -> list[list[int]]:
        """The text so far, a list of ids a row: looking up is the host's work."""
        return prompt_ids.tolist()

    def extend(self, state: list[list[int]], token_ids: torch.Tensor, features=None) -> None:
        """Appends newly committed tokens [B, t]."""
        for text, tokens in zip(state, token_ids.tolist()):
            text.extend(tokens)

    def propose(self, state: list[list[int]], anchor: torch.Tensor, *, gamma: int | None = None, temperature: float,
                generator: torch.Generator | None) -> Proposal:
        """Certain drafts: all probability on the copied token, whatever the temperature. The shortest copy of the batch
        sets the length, which may be 0."""
        length = draft_length(gamma, self.gamma)
        drafts = [self.continuation(text + [first], length) for text, first in zip(state, anchor.tolist())]
        length = min(map(len, drafts))
        tokens = torch.tensor([draft[:length] for draft in drafts], dtype=torch.long, device=anchor.device).view(len(drafts), length)
        certain = torch.zeros(len(drafts), length, self.vocab_size, device=anchor.device)
        return Proposal(tokens, certain.scatter_(-1, tokens.unsqueeze(-1), 1.0))

    def continuation(self, text: list[int], length: int) -> list[int]:
        """Up to `length` ids that followed the latest earlier occurrence of the longest matching ending of `text`."""
        for size in range(min(self.longest, len(text) - 1), 0, -1):
            ending = text[-size:]
            for start in range(len(text) - size - 1, -1, -1):
                if text[start:start + size] == ending:
                    return text[start + size:start + size + length]
        return []
