"""Anchors and packing: many blocks of one sequence are trained in one pass behind one shared context.

A block starts at an anchor; its slot k (from 1) predicts the token k places after the anchor. Blocks see the context
before their anchor and themselves, never one another (paper, section 3.3). Shapes: B sequences of n tokens, K anchors,
g slots.
"""

from typing import NamedTuple

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from ..drafters.layers import block_sparse


class TrainingBatch(NamedTuple):
    """Rows to learn from: padded `ids` and what is `supervised` [B, n], tapped `features` [B, n, taps * H], `last_hidden`
    [B, n, H], `anchors` and whether each is `valid` [B, K]."""

    ids: torch.Tensor
    supervised: torch.Tensor
    features: torch.Tensor
    last_hidden: torch.Tensor
    anchors: torch.Tensor
    valid: torch.Tensor


def draw_anchors(supervised: torch.Tensor, count: int,
                 generator: torch.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions [B, K] of up to `count` random anchors a sequence, ascending, and which of them are `valid` [B, K].

    An anchor is a position that is supervised and followed by a supervised one; supervised [B, n] is boolean.
    """
    possible = torch.zeros_like(supervised)
    possible[:, :-1] = supervised[:, :-1] & supervised[:, 1:]
    order = torch.rand(supervised.shape, generator=generator, device=supervised.device).masked_fill(~possible, 2.0)
    chosen = order.argsort(-1)[:, :count]
    valid = possible.gather(1, chosen)
    anchors, place = chosen.masked_fill(~valid, supervised.shape[1]).sort(-1)
    valid = valid.gather(1, place)
    return anchors.masked_fill(~valid, 0), valid


def visible(anchors: torch.Tensor, length: int, gamma: int):
    """The predicate of what a slot may see: the context before its block's anchor, and its own block.

    It is called with index tensors of row, head, query slot and key, as FlexAttention asks for.
    """
    def sees(row, head, query, key):
        block = query // gamma
        return (key < anchors[row, block]) | ((key >= length) & ((key - length) // gamma == block))

    return sees


def dense_mask(anchors: torch.Tensor, length: int, gamma: int) -> torch.Tensor:
    """What each block slot may see as a boolean tensor [B, 1, K * g, n + K * g] (SDPA)."""
    batch, count = anchors.shape
    sizes = (batch, count * gamma, length + count * gamma)
    rows, slots, keys = (torch.arange(size, device=anchors.device) for size in sizes)
    return visible(anchors, length, gamma)(rows[:, None, None, None], None, slots[:, None], keys)


def sparse_mask(anchors: torch.Tensor, length: int, gamma: int) -> BlockMask:
    """The same for FlexAttention, which leaves out every tile of 128 x 128 that nobody sees."""
    batch, count = anchors.shape
    slots = count * gamma
    return create_block_mask(visible(anchors, length, gamma), batch, None, slots, length + slots, device=anchors.device)


def block_mask(anchors: torch.Tensor, length: int, gamma: int) -> BlockMask | None:
    """The sparse mask where FlexAttention serves, elsewhere none."""
    return sparse_mask(anchors, length, gamma) if block_sparse(anchors.device) else None


def block_targets(ids: torch.Tensor, supervised: torch.Tensor, anchors: torch.Tensor, valid: torch.Tensor,
                  gamma: int):
    """What each slot has to predict: `tokens` [B, K, g + 1] from the anchor on, `loss_mask` and `target_position`
    [B, K, g].

    A slot counts while every token from the anchor's successor up to its own is supervised; the target's distribution
    at `target_position` is what the slot imitates.
    """
    offset = torch.arange(gamma + 1, device=ids.device)
    place = anchors[..., None] + offset  # [B, K, g + 1]
    inside = place < ids.shape[1]
    place = place.clamp(max=ids.shape[1] - 1)
    rows = torch.arange(len(ids), device=ids.device)[:, None, None]
    tokens = ids[rows, place]
    loss_mask = (supervised[rows, place] & inside)[..., 1:].long().cumprod(-1).bool() & valid[..., None]
    return tokens, loss_mask, place[..., 1:] - 1
