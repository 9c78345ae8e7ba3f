"""Prompt lookup: the draft is what followed the same few tokens last time. No model, no training."""

from dataclasses import dataclass, field

import torch

from ..decoding.proposal import Proposal, draft_length


@dataclass
class LookupState:
    """The texts on the host, up to the anchor where they are `anchored`, else to the token before it, and the tokens
    [B, t] after them that only the device knows."""

    texts: list[list[int]]
    unread: list[torch.Tensor] = field(default_factory=list)
    anchored: bool = False


class PromptLookup:
    """Copies the tokens that followed the latest earlier occurrence of the current n-gram (n from `longest` down to 1)."""

    name = "prompt_lookup"
    taps = ()

    def __init__(self, vocab_size: int, gamma: int = 7, longest: int = 3):
        self.vocab_size, self.gamma, self.longest = vocab_size, gamma, longest

    def fast(self, gamma: int, backend: str) -> "PromptLookup":
        """This drafter on the fast path: it has no pass."""
        return self

    def begin(self, prompt_ids: torch.Tensor, features=None) -> LookupState:
        """The prompts [B, n]: looking up is the host's work, so it reads them."""
        return LookupState(prompt_ids.tolist())

    def extend(self, state: LookupState, token_ids: torch.Tensor, features=None) -> None:
        """Appends newly committed tokens [B, t]; drafting reads them, unless `note` says before what they are."""
        for text in state.texts if state.anchored else ():
            text.pop()  # the anchor is the first of these tokens
        state.unread.append(token_ids)
        state.anchored = False

    def note(self, state: LookupState, tokens: list[list[int]]) -> None:
        """Takes in, of each text, the tokens of the last `extend` and the anchor after them, which the host knows."""
        for text, known in zip(state.texts, tokens):
            text.extend(known)
        state.unread, state.anchored = [], True

    def propose(self, state: LookupState, anchor: torch.Tensor, *, gamma: int | None = None, temperature: float,
                generator: torch.Generator | None) -> Proposal:
        """Certain drafts: all probability on the copied token, whatever the temperature. The shortest copy of the batch
        sets the length, which may be 0."""
        length, texts = draft_length(gamma, self.gamma), state.texts
        if not state.anchored:
            for text, read in zip(texts, rows := torch.cat([*state.unread, anchor[:, None]], 1).tolist()):
                text.extend(read[:-1])
            state.unread, texts = [], [text + row[-1:] for text, row in zip(texts, rows)]
        drafts = [self.continuation(text, length) for text in texts]
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
