"""Grouped-query attention, additive masks, and a switch for the attention of a transformers model."""

import functools
from contextlib import contextmanager

import torch
import torch.nn.functional as F

# The default kernel for few queries fails if 129 or more queries share a key head. So we choose the kernel.
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
    """Return softmax(scale * queries keys^T) values, [B, n, T, d]: n/m of the queries [B, n, T, d]
    share each of the key heads in keys and values [B, m, S, d].

    The result is that of F.scaled_dot_product_attention(..., enable_gqa=True) in lesson 04. Here the
    queries of a key head are stacked, so that its keys are read once; this is faster with many rows.

    `mask` is None, boolean (True: visible) or added to the scores, with one row for all queries
    [B, 1, 1, S], one for each [B, 1, T, S] or one for each stacked query [B, 1, n/m * T, S]; or it
    is block-sparse, for FlexAttention on a GPU.
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
    stacked = queries.unflatten(1, (keys.shape[1], -1)).flatten(2, 3)  # [B, m, n/m * T, d]
    if mask is not None and 1 < mask.shape[2] == queries.shape[2] < stacked.shape[2]:
        mask = mask.repeat(1, 1, queries.shape[1] // keys.shape[1], 1)  # [B, 1, n/m * T, S]
    mixed = F.scaled_dot_product_attention(
        stacked, keys, values, attn_mask=mask, scale=scale
    )  # [B, m, n/m * T, d]
    return mixed.reshape(*queries.shape[:3], values.shape[-1])


def hiding(visible: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a boolean mask (True: visible) as numbers to add to scores: 0 or -inf."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, -torch.inf
    )


@contextmanager
def attending(model, implementation: str):
    """Switch the model to an attention that transformers knows by this name, and back afterwards,
    also after an error: others share the model."""
    usual = model.config._attn_implementation
    try:
        model.config._attn_implementation = implementation
        yield
    finally:
        model.config._attn_implementation = usual
