"""The base of Eagle3 and MTP: one layer reads a feature of the target with the token after it.

Position i of the layer reads the feature of token i and the embedding of token i + 1. Its output
predicts token i + 2. So the newest feature waits for the token after it, the anchor. While
drafting, the layer reads its own last output instead of a feature, one token a pass. These entries
leave the cache again: committed tokens enter it with the target's features.

Shapes: B rows, T tokens, H hidden size, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import nn

from ..decoding.proposal import Context, Drafter, Proposal, draft_length
from ..decoding.sampling import draw_at, probabilities
from .layers import ContextCache, Draft, DraftConfig, Layer


@dataclass
class ChainState:
    """The cache of committed pairs (feature, next token), and the newest feature, which waits.

    `waiting` is [B, 1, H]; before the first token no feature waits, and it is [B, 0, H].
    """

    cache: Context
    waiting: torch.Tensor

    def take_pairs(
        self, token_ids: torch.Tensor, features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the committed tokens [B, t] that have a feature before them, and these features.

        `features` [B, t, H] are the tokens' own. The last of them waits.
        """
        hidden = torch.cat([self.waiting, features], 1)
        before, self.waiting = hidden[:, :-1], hidden[:, -1:]
        return token_ids[:, token_ids.shape[1] - before.shape[1] :], before


class Autoregressive(Draft, Drafter):
    """A drafter of one layer that drafts token by token. A subclass defines `project` and `layer_input`.

    Parameters are named as in the released files.
    """

    def __init__(self, config: DraftConfig, layer: Layer, gamma: int):
        super().__init__(config)
        self.gamma, self.taps = gamma, config.target_layer_ids
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList([layer])
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, self.output_size, bias=False)

    def project(self, features: torch.Tensor) -> torch.Tensor:
        """Return the features [..., H] of tapped hidden states [..., taps * H]."""
        raise NotImplementedError

    def fed_back(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return what the next pass reads instead of a feature, from the layer's output
        [..., H]."""
        return hidden

    def layer_input(
        self, token_ids: torch.Tensor, hidden: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the residual stream [..., H] and the attention's input [..., width * H].

        `hidden` [..., H] are features, `token_ids` [...] the tokens after them.
        """
        raise NotImplementedError

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor) -> ChainState:
        """Return the state after a prompt [B, n] with tapped hidden states [B, n, taps * H]."""
        state = ChainState(
            ContextCache(1), features.new_empty(len(features), 0, self.config.hidden_size)
        )
        self.extend(state, prompt_ids, features)
        return state

    def extend(self, state: ChainState, token_ids: torch.Tensor, features: torch.Tensor) -> None:
        """Add committed tokens [B, t] with tapped hidden states [B, t, taps * H] to the cache."""
        token_ids, before = state.take_pairs(token_ids, self.project(features))
        _, inputs = self.layer_input(token_ids, before)
        rope = self.rope(state.cache.positions(token_ids))
        state.cache.append(0, *self.layers[0].self_attn.keys_values(inputs, rope))
        state.cache.advance(token_ids.shape[1])

    def propose(
        self,
        state: ChainState,
        anchor: torch.Tensor,
        *,
        gamma: int | None = None,
        temperature: float,
        generator: torch.Generator | None,
    ) -> Proposal:
        """Draft `gamma` tokens (None: as in training) after `anchor` [B], one pass a token."""
        tokens, _, probs = self.draw_chain(
            state, anchor, draft_length(gamma, self.gamma), temperature, generator
        )
        return Proposal(tokens, probs)

    def draw_chain(
        self, state: ChainState, anchor: torch.Tensor, length: int, temperature: float, generator
    ):
        """Draw tokens [B, g].

        Return them, their logits [B, g, V] and their probabilities [B, g, V].
        """
        token, hidden, drawn = anchor, state.waiting, []
        for position in range(length):
            if position:
                hidden = self.fed_back(hidden)
            hidden = self.next_hidden(state.cache, token, hidden)
            logits = self.over_target(self.lm_head(self.norm(hidden[:, 0])))
            probs = probabilities(logits, temperature)
            token = draw_at(probs, temperature, generator)
            drawn.append((token, logits, probs))
        state.cache.advance(-length)  # drop the drafts' entries
        return tuple(torch.stack(part, 1) for part in zip(*drawn))

    def next_hidden(
        self, cache: Context, token: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        """Return the layer's output [B, 1, H] for a feature [B, 1, H] and the token [B] after it.

        The pair stays in the cache.
        """
        token_ids, layer = token[:, None], self.layers[0]
        residual, inputs = self.layer_input(token_ids, hidden)  # [B, 1, H], [B, 1, width * H]
        rope, mask = self.rope(cache.positions(token_ids)), cache.mask(1)
        keys, values = cache.append(0, *layer.self_attn.keys_values(inputs, rope))  # [B, m, S, d]
        cache.advance(1)
        return layer.after_attention(residual, layer.self_attn(inputs, rope, keys, values, mask))
