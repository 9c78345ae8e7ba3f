"""DSpark: a parallel backbone, a sequential head that draws from left to right, a confidence head.

Paper, sections 3.1 and 3.2.1. The tapped hidden states of a committed token become one context
vector, and every layer caches its keys and values. The block [anchor, mask, ..., mask] attends to
the context and, without a causal mask, to itself. Without heads the class is DFlash, which draws
each position by itself.

In the released layout slot k of a block, from 0, predicts the token k + 1 places after the anchor.
In the original DFlash layout (Chen et al. 2026, `sample_from_anchor` false) slot k predicts its own
token, and the anchor's slot predicts nothing: a block has one draft fewer than slots.

Shapes: B rows, T tokens, n of them context, g drafts of a block, H hidden size, m key heads, d head
size, r Markov rank, V vocabulary.
"""

from dataclasses import dataclass

import torch
from torch import nn

from ..decoding.proposal import Context, Drafter, Proposal, draft_length
from ..decoding.row_store import RowStore
from ..decoding.sampling import draw_at, probabilities
from .layers import ContextCache, Draft, DraftConfig, Layer


class Backbone(Draft):
    """A block drafter without its heads.

    Parameters are named as in the released files.
    """

    layer_class = Layer

    def __init__(self, config):
        super().__init__(config)
        hidden = config.hidden_size
        self.first_slot = 0 if config.sample_from_anchor else 1  # the first slot that predicts
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.fc = nn.Linear(len(config.target_layer_ids) * hidden, hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(
            self.layer_class(config) for _ in range(config.num_hidden_layers)
        )
        self.norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, self.output_size, bias=False)

    def context(self, features: torch.Tensor) -> torch.Tensor:
        """Return the context vectors [B, T, H] of tapped hidden states [B, T, taps * H]."""
        return self.hidden_norm(self.fc(features))

    def extend_context(self, cache: Context, features: torch.Tensor) -> None:
        """Append committed tokens, features [B, T, taps * H], to every layer's cache."""
        context = self.context(features)
        rope = self.rope(cache.positions(context))
        for index, layer in enumerate(self.layers):
            cache.append(index, *layer.self_attn.keys_values(context, rope))
        cache.advance(context.shape[1])

    def block_ids(self, anchor: torch.Tensor) -> torch.Tensor:
        """Return the ids [..., block size] of a block: the anchor [...], then masks."""
        ids = anchor.new_full((*anchor.shape, self.config.block_size), self.config.mask_token_id)
        ids[..., 0] = anchor
        return ids

    def block_hidden(self, cache: Context, anchor: torch.Tensor) -> torch.Tensor:
        """Run one parallel pass over [anchor, mask, ..., mask] after the cached context.

        Return the hidden states [B, g, H] of the slots that predict.
        """
        ids = self.block_ids(anchor)  # [B, block size]
        rope, mask = self.rope(cache.positions(ids)), cache.mask(ids.shape[1])
        x = self.embed(ids)  # [B, block size, H]
        for index, layer in enumerate(self.layers):
            y, attention = layer.input_layernorm(x), layer.self_attn
            # [B, m, n + block size, d]; the next `append` overwrites the block
            keys, values = cache.append(index, *attention.keys_values(y, rope))
            x = layer.after_attention(x, attention(y, rope, keys, values, mask))
        return self.norm(x[:, self.first_slot :])

    def training_mask(self, anchors: torch.Tensor, length: int) -> torch.Tensor | None:
        """Return the mask [B, 1, K * g, n + K * g] of a training's K packed blocks of g slots, at
        `anchors` [B, K] after a context of `length` n tokens (training/blocks.py).

        None, the default: a slot sees the context before its anchor and its own block.
        """
        return None


class MarkovHead(nn.Module):
    """The transition bias W2 W1[x] of the previous token x: a V x V bigram table of rank r.

    A draft with a reduced vocabulary has a V x `outputs` table.
    """

    def __init__(self, vocab_size: int, rank: int, hidden_size: int, outputs: int | None = None):
        super().__init__()
        self.markov_w1 = nn.Embedding(vocab_size, rank)
        self.markov_w2 = nn.Linear(rank, outputs or vocab_size, bias=False)

    def begin(self, hidden: torch.Tensor):
        """Return the state before the first position of a block with hidden states [..., g, H].

        The Markov head has none.
        """
        return None

    def step(self, previous: torch.Tensor, hidden: torch.Tensor, state):
        """Return the transition bias [..., V] after the token `previous` [...], and the next state.

        `hidden` [..., H] is the hidden state of the position.
        """
        return self.markov_w2(self.markov_w1(previous)), state


class GatedHead(MarkovHead):
    """The Markov head with a gate on the hidden state: W2 (sigmoid(G [h; W1[x]]) * W1[x])."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int, outputs: int | None = None):
        super().__init__(vocab_size, rank, hidden_size, outputs)
        self.gate_proj = nn.Linear(hidden_size + rank, rank)

    def step(self, previous, hidden, state):
        embedded = self.markov_w1(previous)  # [..., r]
        gate = torch.sigmoid(self.gate_proj(torch.cat([hidden, embedded], -1)))
        return self.markov_w2(gate * embedded), state


class RNNHead(MarkovHead):
    """A recurrent head. Its state [..., r] starts at zero and carries the whole drafted prefix."""

    def __init__(self, vocab_size: int, rank: int, hidden_size: int, outputs: int | None = None):
        super().__init__(vocab_size, rank, hidden_size, outputs)
        self.joint_proj = nn.Linear(2 * rank + hidden_size, 3 * rank)

    def begin(self, hidden):
        return hidden.new_zeros(*hidden.shape[:-2], self.markov_w1.embedding_dim)

    def step(self, previous, hidden, state):
        joint = self.joint_proj(torch.cat([state, self.markov_w1(previous), hidden], -1))
        gate, candidate, output = joint.chunk(3, -1)
        gate = torch.sigmoid(gate)
        state = gate * state + (1 - gate) * torch.tanh(candidate)
        return self.markov_w2(torch.tanh(output)), state


SEQUENTIAL_HEADS = {"vanilla": MarkovHead, "gated": GatedHead, "rnn": RNNHead}


def transition_biases(
    head: MarkovHead, previous: torch.Tensor, hidden: torch.Tensor
) -> torch.Tensor:
    """Return the biases [..., g, V] of a block whose tokens are known, in training.

    `previous` [..., g] are the tokens before its positions, `hidden` [..., g, H] its hidden states.
    """
    state, biases = head.begin(hidden), []
    for k in range(previous.shape[-1]):
        bias, state = head.step(previous[..., k], hidden[..., k, :], state)
        biases.append(bias)
    return torch.stack(biases, -2)


class ConfidenceHead(nn.Module):
    """One logit a position: does this draft token survive, given that its predecessors did?"""

    def __init__(self, inputs: int):
        super().__init__()
        self.proj = nn.Linear(inputs, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return confidence logits [...] of inputs [..., H] or [..., H + r]."""
        return self.proj(inputs).squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class DSparkConfig(DraftConfig):
    """The fields of a block draft: block, sequential head (rank 0: no head), confidence head."""

    block_size: int
    mask_token_id: int
    sample_from_anchor: bool = True
    markov_rank: int = 0
    markov_head_type: str = "vanilla"
    enable_confidence_head: bool = False
    confidence_head_with_markov: bool = True


class DSpark(Backbone, Drafter):
    """A block drafter; `name` is "dspark" with a sequential head and "dflash" without."""

    architecture, config_class = "Qwen3DSparkModel", DSparkConfig

    def __init__(self, config: DSparkConfig):
        super().__init__(config)
        self.name = "dspark" if config.markov_rank else "dflash"
        self.gamma = config.block_size - self.first_slot
        self.taps = config.target_layer_ids
        self.markov_head = self.confidence_head = None
        if config.markov_rank:
            head = SEQUENTIAL_HEADS[config.markov_head_type]
            self.markov_head = head(
                config.vocab_size, config.markov_rank, config.hidden_size, self.output_size
            )
        if config.enable_confidence_head:
            with_markov = config.markov_rank if config.confidence_head_with_markov else 0
            self.confidence_head = ConfidenceHead(config.hidden_size + with_markov)
        # Temperatures [g] of the confidence logits; None until `STS.attach` sets them
        self.temperatures: torch.Tensor | None = None

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor) -> ContextCache:
        """Return a context cache with the prompt, features [B, n, taps * H]."""
        cache = ContextCache(len(self.layers))
        self.extend_context(cache, features)
        return cache

    def row_store(self, rows: int, device: torch.device) -> RowStore:
        """Return an empty context for rows of different lengths."""
        return RowStore(len(self.layers), rows, device)

    def extend(self, state: Context, token_ids: torch.Tensor, features: torch.Tensor) -> None:
        """Append committed tokens with the features [B, t, taps * H] of their verification."""
        self.extend_context(state, features)

    def propose(
        self,
        state: Context,
        anchor: torch.Tensor,
        *,
        gamma: int | None = None,
        temperature: float,
        generator: torch.Generator | None,
    ) -> Proposal:
        """Draft `gamma` tokens (None: a whole block) after `anchor` [B]: one pass of the
        backbone, then a step of the sequential head for each token."""
        length = draft_length(gamma, self.gamma)
        hidden = self.block_hidden(state, anchor)[:, :length]
        tokens, _, probs = self.draw_block(hidden, anchor, temperature, generator)
        logits = self.confidence_logits(hidden, self.previous(anchor, tokens))
        return Proposal(tokens, probs, None if logits is None else self.calibrated(logits.float()))

    def calibrated(self, confidence_logits: torch.Tensor) -> torch.Tensor:
        """Return confidence logits [B, g] in float32, divided by the fitted temperatures."""
        if self.temperatures is None:
            return confidence_logits
        return confidence_logits / self.temperatures[: confidence_logits.shape[1]].to(
            confidence_logits.device
        )

    def draw_block(self, hidden: torch.Tensor, anchor: torch.Tensor, temperature: float, generator):
        """Draw tokens [B, g]. Return them, their logits [B, g, V] and their probabilities [B, g, V].

        With a sequential head, logits_k = base logits_k + the transition bias of the token drawn
        at k-1 (equation 5).
        """
        base_logits = self.lm_head(hidden)
        if self.markov_head is None:
            logits = self.over_target(base_logits)
            probs = probabilities(logits, temperature)
            return draw_at(probs, temperature, generator), logits, probs
        previous, state, drawn = anchor, self.markov_head.begin(hidden), []
        for k in range(hidden.shape[1]):
            bias, state = self.markov_head.step(previous, hidden[:, k], state)
            logits = self.over_target(base_logits[:, k] + bias)
            probs = probabilities(logits, temperature)
            previous = draw_at(probs, temperature, generator)
            drawn.append((previous, logits, probs))
        return tuple(torch.stack(part, 1) for part in zip(*drawn))

    def confidence_logits(
        self, hidden: torch.Tensor, previous: torch.Tensor
    ) -> torch.Tensor | None:
        """Return confidence logits [..., g] of hidden states [..., g, H], None without a head.

        `previous` [..., g] are the tokens before the positions.
        """
        if self.confidence_head is None:
            return None
        if self.config.confidence_head_with_markov and self.markov_head is not None:
            hidden = torch.cat([hidden, self.markov_head.markov_w1(previous)], -1)
        return self.confidence_head(hidden)

    @staticmethod
    def previous(anchor: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
        """Return the token before each of `tokens` [B, g]: the anchor [B], then the tokens."""
        return torch.cat([anchor[:, None], tokens[:, :-1]], 1)
