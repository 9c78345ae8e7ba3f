"""Attention of packed blocks where no block-sparse kernel serves: each slot is compared with the context and with its own
block, never with the other blocks, of which there may be a hundred and fifty. Shapes: B sequences of n tokens, K blocks
of g slots, m key heads, r query heads that share one.
"""

import torch


def packed_hidden(drafter, features: torch.Tensor, anchor_ids: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """`Backbone.packed_hidden` with the mask written out: hidden states [B, K, g, H] of blocks at anchors [B, K]."""
    context = drafter.context(features)  # [B, n, H]
    positions = torch.arange(context.shape[1], device=context.device)
    context_rope = drafter.rope(positions.expand(len(context), -1))
    hidden_from = torch.zeros(*anchors.shape, len(positions), device=context.device)
    hidden_from.masked_fill_(positions >= anchors[..., None], float("-inf"))  # [B, K, n]
    ids = drafter.block_ids(anchor_ids)  # [B, K, g]
    slots = anchors[..., None] + torch.arange(ids.shape[-1], device=ids.device)
    rope, x = drafter.rope(slots.flatten(1)), drafter.embed(ids.flatten(1))
    for layer in drafter.layers:
        attention, normed = layer.self_attn, layer.input_layernorm(x)
        own = attention.keys_values(normed, rope)
        mixed = packed_attention(attention.queries(normed, rope), attention.keys_values(context, context_rope), own, hidden_from,
                                 attention.scale)
        x = layer.after_attention(x, attention.o_proj(mixed))
    return drafter.norm(x).unflatten(1, ids.shape[1:])


def packed_attention(queries: torch.Tensor, context, own, hidden_from: torch.Tensor, scale: float) -> torch.Tensor:
    """What queries [B, m * r, K * g, d] mix of the context's keys and values [B, m, n, d] and of those of their own block,
    `own` [B, m, K * g, d]; `hidden_from` [B, K, n] is -inf where a block must not look. [B, K * g, m * r * d]."""
    blocks = hidden_from.shape[1]
    (keys, values), (own_keys, own_values) = context, (part.unflatten(2, (blocks, -1)) for part in own)  # own: [B, m, K, g, d]
    grouped = (queries * scale).unflatten(1, (keys.shape[1], -1)).unflatten(3, (blocks, -1))  # [B, m, r, K, g, d]
    scores = (grouped.flatten(2, 4) @ keys.mT).unflatten(2, grouped.shape[2:5]) + hidden_from[:, None, None, :, None]
    own_scores = grouped @ own_keys[:, :, None].mT  # [B, m, r, K, g, g]
    weights = torch.softmax(torch.cat([scores, own_scores], -1), -1).to(values.dtype)
    seen, among = weights.split([keys.shape[2], own_keys.shape[3]], -1)
    mixed = (seen.flatten(2, 4) @ values).unflatten(2, grouped.shape[2:5]) + among @ own_values[:, :, None]
    return mixed.flatten(3, 4).flatten(1, 2).transpose(1, 2).flatten(2)
