"""Attention of queries that share key heads, the masks added to its scores, and how a model is made to attend otherwise."""

import functools
from contextlib import contextmanager

import torch
import torch.nn.functional as F

# Left to choose, torch takes a kernel for few queries that has no tile where those that share a key head are 129 or more, and raises.
FLEX_KERNEL = {"BACKEND": "TRITON"}


@functools.cache
def flex_attention(device: str):
    """FlexAttention, compiled for a GPU: only there does it leave out what the mask hides."""
    from torch.nn.attention import flex_attention  # a slow import, of which drafting needs nothing

    attention = flex_attention.flex_attention
    return torch.compile(attention) if device == "cuda" else attention


def attend(
    queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask, scale: float
) -> torch.Tensor:
    """softmax(scale * queries keys^T) values, [B, n, T, d]: n/m of the queries [B, n, T, d] share each key head of keys
    and values [B, m, S, d], as in F.scaled_dot_product_attention(..., enable_gqa=True) of lesson 04.

    Here the queries that share a key head stand below one another, so that its keys are read once, which is faster for
    many rows. `mask` is None, a row for all queries [B, 1, 1, S], one for each [B, 1, T, S] or one for each of those
    stacked [B, 1, n/m * T, S], boolean (True: may be seen) or added to the scores; or block-sparse, for FlexAttention on
    a GPU.
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
    """A boolean mask (True: may be seen) as numbers to add to scores: 0 or -inf."""
    return torch.zeros(visible.shape, dtype=dtype, device=visible.device).masked_fill_(
        ~visible, -torch.inf
    )


@contextmanager
def attending(model, implementation: str):
    """Has the model attend by what transformers knows by this name, and as before afterwards, whatever happens: others share
    the model."""
    usual = model.config._attn_implementation
    try:
        model.config._attn_implementation = implementation
        yield
    finally:
        model.config._attn_implementation = usual
