"""Prompt lookup drafts the tokens that followed the same few tokens before.

It has no model and needs no training.
"""

from dataclasses import dataclass, field

import torch

from ..decoding.proposal import Drafter, Proposal, draft_length


class IndexedText(list):
    """The token ids of a text, with an index of its n-grams of up to `longest` tokens.

    The index maps an n-gram to the position after its latest occurrence. An n-gram enters when a
    token stands after it, so only the last token, the anchor, may be taken back (`pop`).
    """

    def __init__(self, token_ids, longest: int):
        super().__init__(token_ids)
        self.longest, self.indexed, self.follows = longest, 0, {}

    def followed(self, ngram: list[int]) -> int | None:
        """Return the position after the latest earlier occurrence of an n-gram, or None."""
        for end in range(self.indexed + 1, len(self)):
            for size in range(1, min(self.longest, end) + 1):
                self.follows[tuple(self[end - size : end])] = end
            self.indexed = end
        return self.follows.get(tuple(ngram))


@dataclass
class LookupState:
    """The texts on the host, and the tokens [B, t] after them that only the device has.

    The texts end with the anchor if they are `anchored`, otherwise with the token before it.
    """

    texts: list[IndexedText]
    unread: list[torch.Tensor] = field(default_factory=list)
    anchored: bool = False

    def append(self, rows: list[list[int]]) -> None:
        """Append a row of tokens to each text."""
        for text, row in zip(self.texts, rows):
            text.extend(row)

    def drop_anchors(self) -> None:
        """Remove the last token of each text."""
        for text in self.texts:
            text.pop()


class PromptLookup(Drafter):
    """A drafter that copies the tokens after the latest earlier occurrence of the last n tokens.

    It tries n from `longest` down to 1. A round looks up at most `longest` n-grams and adds
    `longest` to the index for each new token, so its cost does not grow with the text.
    """

    name = "prompt_lookup"
    taps = ()

    def __init__(self, vocab_size: int, gamma: int = 7, longest: int = 3):
        self.vocab_size, self.gamma, self.longest = vocab_size, gamma, longest

    def __repr__(self) -> str:
        return f"PromptLookup(gamma={self.gamma}, longest={self.longest})"

    def begin(self, prompt_ids: torch.Tensor, features=None) -> LookupState:
        """Return the state after prompts [B, n], copied to the host."""
        return LookupState([IndexedText(row, self.longest) for row in prompt_ids.tolist()])

    def extend(self, state: LookupState, token_ids: torch.Tensor, features=None) -> None:
        """Append committed tokens [B, t].

        `propose` copies them to the host, unless `see_committed` gives them first.
        """
        if state.anchored:
            state.drop_anchors()  # the anchor is the first of these tokens
        state.unread.append(token_ids)
        state.anchored = False

    def see_committed(self, state: LookupState, tokens: list[list[int]]) -> None:
        """Append the tokens of the last `extend` and the anchor, as a list for each text."""
        if earlier := state.unread[:-1]:
            state.append(torch.cat(earlier, 1).tolist())
        state.append(tokens)
        state.unread, state.anchored = [], True

    def propose(
        self,
        state: LookupState,
        anchor: torch.Tensor,
        *,
        gamma: int | None = None,
        temperature: float,
        generator: torch.Generator | None,
    ) -> Proposal:
        """Draft up to `gamma` tokens after `anchor` [B].

        A copied token has probability 1 at any temperature.

        The shortest copy of the batch sets the length, which may be 0.
        """
        length = draft_length(gamma, self.gamma)
        if not state.anchored:
            state.append(torch.cat([*state.unread, anchor[:, None]], 1).tolist())
            state.unread = []
        drafts = [self.continuation(text, length) for text in state.texts]
        if not state.anchored:
            state.drop_anchors()  # `extend` brings them again
        length = min(map(len, drafts))
        tokens = torch.tensor(
            [draft[:length] for draft in drafts], dtype=torch.long, device=anchor.device
        )
        tokens = tokens.view(len(drafts), length)
        certain = torch.zeros(len(drafts), length, self.vocab_size, device=anchor.device)
        return Proposal(tokens, certain.scatter_(-1, tokens.unsqueeze(-1), 1.0))

    def continuation(self, text: list[int], length: int) -> list[int]:
        """Return up to `length` ids after the latest earlier occurrence of the end of `text`.

        The longest end that matches counts. A plain list is indexed first.
        """
        if not isinstance(text, IndexedText):
            text = IndexedText(text, self.longest)
        for size in range(min(self.longest, len(text) - 1), 0, -1):
            if (start := text.followed(text[-size:])) is not None:
                return text[start : start + length]
        return []
