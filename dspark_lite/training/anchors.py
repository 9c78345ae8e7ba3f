"""Anchors and packing: many blocks of one sequence are trained in one pass behind one shared context.

A block starts at an anchor; its slot k (from 1) predicts the token k places behind the anchor. Blocks see the context
before their anchor and themselves, never one another (paper, section 3.4). Shapes: B sequences of n tokens, K anchors, g slots.
"""

import torch


def draw_anchors(supervised: torch.Tensor, count: int, generator: torch.Generator | None) -> tuple[torch.Tensor, torch.Tensor]:
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


def block_mask(anchors: torch.Tensor, length: int, gamma: int) -> torch.Tensor:
    """What each block slot may see, boolean [B, 1, K * g, n + K * g]: the context before its anchor, then its own block."""
    batch, count = anchors.shape
    owner = torch.arange(count, device=anchors.device).repeat_interleave(gamma)  # [K * g]
    context = torch.arange(length, device=anchors.device) < anchors[:, owner, None]  # [B, K * g, n]
    block = (owner[:, None] == owner).expand(batch, -1, -1)  # [B, K * g, K * g]
    return torch.cat([context, block], -1)[:, None]


def block_targets(ids: torch.Tensor, supervised: torch.Tensor, anchors: torch.Tensor, valid: torch.Tensor, gamma: int):
    """What each slot has to predict: `tokens` [B, K, g + 1] from the anchor on, `counted` [B, K, g], `before` [B, K, g].

    A slot counts while every token from the anchor's successor up to its own is supervised; `before` is the position
    whose target distribution the slot imitates.
    """
    offset = torch.arange(gamma + 1, device=ids.device)
    place = anchors[..., None] + offset  # [B, K, g + 1]
    inside = place < ids.shape[1]
    place = place.clamp(max=ids.shape[1] - 1)
    rows = torch.arange(len(ids), device=ids.device)[:, None, None]
    tokens = ids[rows, place]
    counted = (supervised[rows, place] & inside)[..., 1:].long().cumprod(-1).bool() & valid[..., None]
    return tokens, counted, place[..., 1:] - 1
