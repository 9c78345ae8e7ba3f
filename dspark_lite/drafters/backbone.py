"""The parallel backbone (DFlash): a few Qwen3 layers whose block looks at the target's hidden states.

Each committed token's tapped hidden states become one context vector, whose keys and values are projected once and kept
in every layer's cache. The block [anchor, mask, ..., mask] then attends to the context and, without a causal mask, to
itself (paper, section 3.1). Shapes: B rows, T tokens, H hidden size, n query heads, m key heads, d head size.
"""

import functools

import torch
import torch.nn.functional as F
from torch import nn


def rotary(positions: torch.Tensor, head_dim: int, theta: float, turned: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines [B, 1, T, d] of absolute positions [B, T]; a share `turned` of the pairs turns, the first ones."""
    frequency = theta ** -(torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    frequency[int(turned * head_dim // 2):] = 0
    angle = positions[:, None, :, None].float() * frequency  # [B, 1, T, d/2]
    angle = torch.cat([angle, angle], -1)
    return angle.cos(), angle.sin()


def rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turns x [B, heads, T, d] by its positions."""
    cos, sin = rope
    left, right = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-right, left], -1) * sin.to(x.dtype)


@functools.cache
def flex_attention(device: str):
    """FlexAttention, compiled for a GPU: only there does it leave out what the mask hides."""
    from torch.nn.attention import flex_attention  # a slow import, of which drafting needs nothing

    attention = flex_attention.flex_attention
    return torch.compile(attention) if device == "cuda" else attention


def grouped_attention(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None,
                      scale: float) -> torch.Tensor:
    """Mixed values [B, n, T, d] of queries [B, n, T, d], n/m of which share each of the keys and values [B, m, S, d].

    The queries that share a key head stand below one another, so keys are never copied; a mask has a row for each query
    so stacked, [B, 1, n/m * T, S], or one for all.
    """
    heads, tokens = queries.shape[1:3]
    stacked = queries.unflatten(1, (keys.shape[1], -1)).flatten(2, 3)  # [B, m, n/m * T, d]
    mixed = F.scaled_dot_product_attention(stacked, keys, values, attn_mask=mask, scale=scale)
    return mixed.reshape(len(queries), heads, tokens, values.shape[-1])  # a process may have no rows


class ContextCache:
    """Keys and values of the committed context for every layer, with room for one block behind them.

    The buffer grows by doubling, so appending costs the same however long the context is. A block's own entries are
    written behind `length` and are overwritten by whatever comes next: rolling back is not moving `length`.
    """

    def __init__(self, layers: int):
        self.keys = [None] * layers
        self.values = [None] * layers
        self.length = 0

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Absolute positions [B, T] of what enters behind the context, [B, T, ...]."""
        batch, tokens = entering.shape[:2]
        return torch.arange(self.length, self.length + tokens, device=entering.device).expand(batch, -1)

    def mask(self, tokens: int) -> torch.Tensor | None:
        """What so many tokens behind the context must not see of it and of one another: nothing is hidden here."""
        return None

    def grow(self, tokens: int) -> None:
        """Counts what was put behind the context as context; a negative number forgets the last ones."""
        self.length += tokens

    def put(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes keys and values [B, m, T, d] behind the context and returns everything up to them."""
        end = self.length + keys.shape[2]
        if self.keys[layer] is None or self.keys[layer].shape[2] < end:
            self.keys[layer] = self._grown(self.keys[layer], keys, end)
            self.values[layer] = self._grown(self.values[layer], values, end)
        self.keys[layer][:, :, self.length:end] = keys
        self.values[layer][:, :, self.length:end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def _grown(self, old, like: torch.Tensor, least: int) -> torch.Tensor:
        batch, heads, _, size = like.shape
        new = like.new_zeros(batch, heads, max(64, 2 * least), size)
        if old is not None:
            new[:, :, :self.length] = old[:, :, :self.length]
        return new


class Attention(nn.Module):
    """Grouped-query attention with normed queries and keys, as in Qwen3; its input is `width` hidden sizes wide, and
    scores are multiplied by `scale`, one over the root of the head size unless told."""

    def __init__(self, config, width: int = 1, scale: float | None = None):
        super().__init__()
        inputs, bias = width * config.hidden_size, config.attention_bias
        self.heads, self.key_heads, self.size = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        self.q_proj = nn.Linear(inputs, self.heads * self.size, bias=bias)
        self.k_proj = nn.Linear(inputs, self.key_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(inputs, self.key_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.size, config.hidden_size, bias=bias)
        self.scale = self.size**-0.5 if scale is None else scale
        self.q_norm = nn.RMSNorm(self.size, eps=config.rms_norm_eps)
        self.k_norm = nn.RMSNorm(self.size, eps=config.rms_norm_eps)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, heads * d] -> [B, heads, T, d]."""
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)

    def queries(self, x: torch.Tensor, rope) -> torch.Tensor:
        """Queries [B, n, T, d] of x [B, T, width * H]."""
        return rotate(self.q_norm(self.split(self.q_proj(x))), rope)

    def keys_values(self, x: torch.Tensor, rope) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values [B, m, T, d] of x [B, T, width * H]."""
        return rotate(self.k_norm(self.split(self.k_proj(x))), rope), self.split(self.v_proj(x))

    def forward(self, x: torch.Tensor, rope, join, mask) -> torch.Tensor:
        """x [B, T, width * H] attends to what `join(keys, values)` makes of its own keys and the context's; [B, T, H]."""
        queries = self.queries(x, rope)  # [B, n, T, d]
        keys, values = join(*self.keys_values(x, rope))  # [B, m, S, d]
        return self.o_proj(self.attend(queries, keys, values, mask).transpose(1, 2).flatten(2))

    def attend(self, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask) -> torch.Tensor:
        """Mixed values [B, n, T, d]; `mask` is None, boolean [B, 1, T or 1, S], or a block-sparse one (training on a GPU)."""
        if mask is not None and not isinstance(mask, torch.Tensor):
            queries, keys = queries.to(values.dtype), keys.to(values.dtype)
            return flex_attention(queries.device.type)(queries, keys, values, block_mask=mask, enable_gqa=True, scale=self.scale)
        if mask is not None and mask.shape[2] > 1:
            mask = mask.repeat(1, 1, self.heads // self.key_heads, 1)  # [B, 1, n/m * T, S]
        return grouped_attention(queries, keys, values, mask, self.scale)


class MLP(nn.Module):
    """Qwen3's gated feed-forward network."""

    activation = staticmethod(F.silu)

    def __init__(self, config):
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, H] -> [B, T, H]."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm transformer layer, whose attention may read an input `width` hidden sizes wide."""

    def __init__(self, config, width: int = 1):
        super().__init__()
        self.self_attn = Attention(config, width)
        self.mlp = MLP(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: torch.Tensor, rope, join, mask=None) -> torch.Tensor:
        """[B, T, H] -> [B, T, H]."""
        return self.after_attention(x, self.self_attn(self.input_layernorm(x), rope, join, mask))

    def after_attention(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """The residual stream x [..., H], what attention adds to it, and what the feed-forward network adds to both."""
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x))


class Backbone(nn.Module):
    """Embedding, context projection, layers, final norm and LM head of a block drafter, named as in the released files."""

    layer_class = Layer

    def __init__(self, config):
        super().__init__()
        hidden = config.hidden_size
        self.config = config
        self.first_slot = 0 if config.sample_from_anchor else 1  # of those that predict
        self.embed_tokens = nn.Embedding(config.vocab_size, hidden)
        self.fc = nn.Linear(len(config.target_layer_ids) * hidden, hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.layers = nn.ModuleList(self.layer_class(config) for _ in range(config.num_hidden_layers))
        self.norm = nn.RMSNorm(hidden, eps=config.rms_norm_eps)
        self.lm_head = nn.Linear(hidden, config.vocab_size, bias=False)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Token embeddings [..., H] of ids."""
        return self.embed_tokens(ids)

    def rope(self, positions: torch.Tensor):
        """Rotary cosines and sines of absolute positions [B, T]."""
        return rotary(positions, self.config.head_dim, self.config.rope_theta)

    def context(self, features: torch.Tensor) -> torch.Tensor:
        """Context vectors [B, T, H] of tapped hidden states [B, T, taps * H]."""
        return self.hidden_norm(self.fc(features))

    def extend_context(self, cache: ContextCache, features: torch.Tensor) -> None:
        """Appends the keys and values of newly committed tokens, features [B, T, taps * H], to every layer's cache."""
        context = self.context(features)
        rope = self.rope(cache.positions(context))
        for index, layer in enumerate(self.layers):
            cache.put(index, *layer.self_attn.keys_values(context, rope))
        cache.grow(context.shape[1])

    def block_ids(self, anchor: torch.Tensor) -> torch.Tensor:
        """[..., block size] ids of the block: the anchor [...], then masks."""
        ids = anchor.new_full((*anchor.shape, self.config.block_size), self.config.mask_token_id)
        ids[..., 0] = anchor
        return ids

    def block_hidden(self, cache: ContextCache, anchor: torch.Tensor) -> torch.Tensor:
        """Hidden states [B, g, H] of the slots that predict, of one parallel pass over [anchor, mask, ..., mask] behind the
        cached context."""
        ids = self.block_ids(anchor)
        rope, mask, x = self.rope(cache.positions(ids)), cache.mask(ids.shape[1]), self.embed(ids)
        for index, layer in enumerate(self.layers):
            x = layer(x, rope, lambda keys, values, index=index: cache.put(index, keys, values), mask)
        return self.norm(x[:, self.first_slot:])

    def packed_hidden(self, features: torch.Tensor, anchor_ids: torch.Tensor, anchors: torch.Tensor,
                      mask) -> torch.Tensor:
        """Hidden states [B, K, g, H] of K blocks packed behind one context (training).

        features [B, n, taps * H]; anchor_ids and anchors [B, K] are the anchor tokens and their positions;
        mask [B, 1, K * g, n + K * g], dense or block-sparse, says what each slot may see (training/anchors.py).
        """
        context = self.context(features)
        batch, length, _ = context.shape
        context_rope = self.rope(torch.arange(length, device=context.device).expand(batch, -1))
        ids = self.block_ids(anchor_ids)  # [B, K, g]
        positions = anchors[..., None] + torch.arange(ids.shape[-1], device=ids.device)
        rope, x = self.rope(positions.flatten(1)), self.embed(ids.flatten(1))
        for layer in self.layers:
            past = layer.self_attn.keys_values(context, context_rope)
            x = layer(x, rope, lambda keys, values, past=past: (torch.cat([past[0], keys], 2), torch.cat([past[1], values], 2)), mask)
        return self.norm(x).unflatten(1, ids.shape[1:])
