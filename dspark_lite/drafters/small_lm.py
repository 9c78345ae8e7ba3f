"""The classic drafter: a smaller language model drafts token by token (Leviathan et al. 2023)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..decoding.proposal import Drafter, Proposal, draft_length
from ..decoding.sampling import draw_at, probabilities
from ..decoding.target import Target


@dataclass
class SmallLMState:
    """The small model's cache, the number of committed tokens, and those not yet read [B, t]."""

    cache: object
    committed: int
    unread: torch.Tensor

    @property
    def read(self) -> int:
        """Return the number of committed tokens in the cache. Later entries are drafts."""
        return self.committed - self.unread.shape[1]


class SmallLM(Drafter):
    """A drafter that is a causal language model over the target's vocabulary.

    It reads no hidden states of the target.

    `added` counts ids that padding or resizing has added to the target. The model must be able to
    read them, and never drafts them.
    """

    name = "small_lm"
    taps = ()

    def __init__(self, model: Target, gamma: int = 7, added: int = 0):
        self.model, self.gamma, self.added = model, gamma, added

    def begin(self, prompt_ids: torch.Tensor, features=None) -> SmallLMState:
        """Return the state after a prompt [B, n]."""
        _, cache = self.model.prefill(prompt_ids)
        return SmallLMState(cache, prompt_ids.shape[1], prompt_ids[:, :0])

    def extend(self, state: SmallLMState, token_ids: torch.Tensor, features=None) -> None:
        """Commit tokens [B, t] and drop rejected drafts from the cache.

        After a proposal the tokens are its anchor and its accepted drafts. More tokens may follow
        only if the whole block was accepted, or in another call.
        """
        cached, unread = state.cache.get_seq_length(), torch.cat([state.unread, token_ids], 1)
        committed = state.committed + token_ids.shape[1]
        self.model.roll_back(state.cache, max(0, cached - committed))
        state.unread = unread[:, min(cached, committed) - state.read :]
        state.committed = committed

    def propose(
        self,
        state: SmallLMState,
        anchor: torch.Tensor,
        *,
        gamma: int | None = None,
        temperature: float,
        generator: torch.Generator | None,
    ) -> Proposal:
        """Draft `gamma` tokens after `anchor` [B], one pass of the small model a token."""
        # Drop a block that nobody verified.
        self.model.roll_back(state.cache, state.cache.get_seq_length() - state.read)
        entering = torch.cat([state.unread, anchor[:, None]], 1)
        drawn = []
        for _ in range(draft_length(gamma, self.gamma)):
            logits = self.model.verify(entering, state.cache).logits[:, -1]
            probs = F.pad(probabilities(logits, temperature), (0, self.added))
            token = draw_at(probs, temperature, generator)
            drawn.append((token, probs))
            entering = token[:, None]
        return Proposal(*(torch.stack(part, 1) for part in zip(*drawn)))
