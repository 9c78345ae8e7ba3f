"""Grouped-query attention, additive masks, and a switch for a transformers model's attention."""

import functools
from contextlib import contextmanager

import torch
import torch.nn.functional as F

# FlexAttention's default kernel fails if 129 or more queries share a key head. So we choose the Triton kernel.
FLEX_KERNEL = {"BACKEND": "TRITON"}


@functools.cache
def flex_attention(device: str):
    """Return FlexAttention, compiled on a GPU: only there does it skip what the mask hides."""
    from torch.nn.attention import flex_attention  # a slow import that drafting does not need

    attention = flex_attention.flex_attention
    return torch.compile(attention) if device == "cuda" else attention


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask, scale: float
) -> torch.Tensor:
    """Return softmax(scale * queries keys^T) values, [B, n, T, d].

    n/m heads of the queries [B, n, T, d] share each head of keys and values [B, m, S, d]. `mask` is
    None, a tensor that broadcasts to [B, n, T, S], boolean (True: visible) or added to the scores,
    or a block-sparse mask for FlexAttention on a GPU.
    """
    if mask is not None and not isinstance(mask, torch.Tensor):
        sparse, dtype = flex_attention(queries.device.type), values.dtype
        return sparse(
            queries.to(dtype),
            keys.to(dtype),
            values,
            block_mask=mask,
            scale=scale,
            enable_gqa=True,
            kernel_options=FLEX_KERNEL,
        )
    return F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, scale=scale, enable_gqa=True
    )


def additive_mask(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a boolean mask (True: visible) as numbers to add to scores: 0 or -inf."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, -torch.inf
    )


@contextmanager
def use_attention(model, implementation: str):
    """Switch the model to an attention that transformers knows by this name, and back afterwards,
    also after an error: others share the model."""
    usual = model.config._attn_implementation
    try:
        model.config._attn_implementation = implementation
        yield
    finally:
        model.config._attn_implementation = usual
