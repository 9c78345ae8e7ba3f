"""The classic drafter: a smaller language model that writes the block token by token (Leviathan et al. 2023)."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from ..decoding.fast import FastTarget
from ..decoding.proposal import Drafter, Proposal, draft_length
from ..decoding.sampling import draw, probabilities
from ..decoding.target import Target


@dataclass
class SmallLMState:
    """The small model's cache, the number of committed tokens, and the last of them [B, t], which the model has not read yet."""

    cache: object
    committed: int
    unread: torch.Tensor

    @property
    def read(self) -> int:
        """The committed tokens that the cache holds; what stands behind them was drafted."""
        return self.committed - self.unread.shape[1]


class SmallLM(Drafter):
    """Drafts with another causal language model over the same vocabulary; it needs no hidden states of the target.

    `added` counts the ids that the target has besides, because its vocabulary was padded or resized: the model must be able to
    read them, and they are never drafted.
    """

    name = "small_lm"
    taps = ()

    def __init__(self, model: Target, gamma: int = 7, added: int = 0):
        self.model, self.gamma, self.added = model, gamma, added

    def fast(self, gamma: int, backend: str) -> "SmallLM":
        """This drafter on the fast path: a pass reads the anchor, and before it a token of a block that was accepted whole."""
        return SmallLM(FastTarget(self.model, 2, backend), gamma, self.added)

    def begin(self, prompt_ids: torch.Tensor, features=None) -> SmallLMState:
        """Read the prompt [B, n]."""
        _, cache = self.model.prefill(prompt_ids)
        return SmallLMState(cache, prompt_ids.shape[1], prompt_ids[:, :0])

    def extend(self, state: SmallLMState, token_ids: torch.Tensor, features=None) -> None:
        """Keep the accepted drafts in the cache, drop the rest, and note the tokens that are still to be read.

        The tokens [B, t] that follow a proposal are its anchor and the drafts accepted of it. Others may come with them only
        where the whole block was accepted, or in a further call.
        """
        held, unread = state.cache.get_seq_length(), torch.cat([state.unread, token_ids], 1)
        committed = state.committed + token_ids.shape[1]
        self.model.roll_back(state.cache, max(0, held - committed))
        state.unread = unread[:, min(held, committed) - state.read :]
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
        """Draw `gamma` tokens after `anchor` [B], one pass of the small model each."""
        # Drop a block that was drafted and never verified.
        self.model.roll_back(state.cache, state.cache.get_seq_length() - state.read)
        entering = torch.cat([state.unread, anchor[:, None]], 1)
        drawn = []
        for _ in range(draft_length(gamma, self.gamma)):
            logits = self.model.verify(entering, state.cache).logits[:, -1]
            probs = F.pad(probabilities(logits, temperature), (0, self.added))
            token = draw(probs, generator)
            drawn.append((token, probs))
            entering = token[:, None]
        return Proposal(*(torch.stack(part, 1) for part in zip(*drawn)))
