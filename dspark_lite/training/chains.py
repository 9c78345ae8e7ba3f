"""The training of chains: Eagle3 and MTP with all chains of a sequence side by side, and their
losses.

A chain starts at an anchor, as a block does. Its first pass reads the target's feature before the
anchor and the anchor itself. Pass k reads the output of pass k - 1 and the text's token k - 1 after
the anchor (the training-time test of Li et al. 2025). It sees what it sees when drafting: every
pair of a feature and its next token up to its own, then its own passes. MTP-1 is a chain of one pass.
Shapes: B sequences of n tokens, K anchors, g passes, N slots that count.
"""

import torch
import torch.nn.functional as F

from ..decoding.attention import additive_mask
from .blocks import TrainingBatch, block_targets
from .recipe import LossWeights


def unrolled_hidden(
    drafter, features: torch.Tensor, ids: torch.Tensor, tokens: torch.Tensor, anchors: torch.Tensor
):
    """Yield the normed hidden states [B, K, H] of each pass, from features [B, n, taps * H] and ids
    [B, n].

    `anchors` [B, K] are the positions at which chains start, from 1; `tokens` [B, K, g] the anchors
    and the text after them.
    """
    layer, hidden = drafter.layers[0], drafter.project(features)
    _, inputs = drafter.layer_input(ids[:, 1:], hidden[:, :-1])
    positions = torch.arange(inputs.shape[1], device=ids.device)
    context = layer.self_attn.keys_values(inputs, drafter.rope(positions[None]))
    hidden_from = additive_mask(positions < anchors[..., None], torch.float32)  # [B, K, n - 1]
    hidden = hidden[torch.arange(len(ids), device=ids.device)[:, None], anchors - 1]
    own = []
    for k in range(tokens.shape[-1]):
        if k:
            hidden = drafter.fed_back(hidden)
        residual, inputs = drafter.layer_input(tokens[..., k], hidden)
        rope = drafter.rope(anchors - 1 + k)
        if k:
            own.append(layer.self_attn.keys_values(inputs, rope))
        mixed = chain_attention(layer.self_attn.queries(inputs, rope), context, own, hidden_from)
        hidden = layer.after_attention(residual, layer.self_attn.o_proj(mixed))
        yield drafter.norm(hidden)


def chain_attention(
    queries: torch.Tensor, context, own: list, hidden_from: torch.Tensor
) -> torch.Tensor:
    """Return the attention outputs [B, K, heads * d] of queries [B, heads, K, d], one query a
    chain.

    A query attends to the context and to the passes of its own chain. `context` and each of `own`
    are keys and values [B, key heads, n or K, d]; `hidden_from` [B, K, n] is -inf at context that a
    chain does not see.
    """
    keys, values = context
    # [B, m, heads / m, K, d], with m key heads
    grouped = queries.unflatten(1, (keys.shape[1], -1)) * queries.shape[-1] ** -0.5
    scores = (grouped.flatten(2, 3) @ keys.mT).unflatten(2, grouped.shape[2:4])
    scores = scores + hidden_from[:, None, None]
    own_scores = [(grouped * own_keys[:, :, None]).sum(-1, keepdim=True) for own_keys, _ in own]
    # [B, m, heads / m, K, n + len(own)]
    weights = torch.softmax(torch.cat([scores, *own_scores], -1), -1).to(values.dtype)
    mixed = (weights[..., : keys.shape[2]].flatten(2, 3) @ values).unflatten(2, grouped.shape[2:4])
    for index, (_, own_values) in enumerate(own, keys.shape[2]):
        mixed = mixed + weights[..., index, None] * own_values[:, :, None]
    return mixed.flatten(1, 2).transpose(1, 2).flatten(2)


def eagle3_loss(
    drafter, batch: TrainingBatch, weights: LossWeights, progress: float
) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Return the numerator of Eagle3's loss, its weight, and the numerator by name.

    It is cross-entropy with the target's distribution in each pass, over the ids that the draft has;
    a pass weighs `step_loss_decay`
    of the one before. `weights` and `progress` are for block drafters and change nothing.
    """
    ids, supervised, features, last_hidden, anchors, valid = batch
    tokens, loss_mask, target_position = block_targets(
        ids, supervised, anchors, valid, drafter.gamma
    )
    rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(anchors)
    # A slot imitates the target after an anchor: every position between two supervised tokens is
    # one.
    place = torch.zeros_like(ids)
    place[rows[valid], anchors[valid]] = torch.arange(int(valid.sum()), device=ids.device)
    with torch.no_grad():
        # [N, V]
        target_probs = torch.softmax(
            drafter.target_logits(last_hidden[rows[valid], anchors[valid]]).float(), -1
        )
        mass = target_probs.new_ones(len(target_probs))  # of what the draft can write
        if drafter.d2t is not None:
            target_probs = target_probs[:, drafter.output_ids]
            mass = target_probs.sum(-1)
        # p . logits = p . (W h) = (p W) . h, so that a pass handles its [N, V] logits once and
        # gathers [N, H] only.
        wanted = target_probs @ drafter.lm_head.weight
    numerator, weight, decay = 0.0, 0.0, 1.0
    for k, hidden in enumerate(
        unrolled_hidden(drafter, features, ids, tokens[..., :-1], anchors.clamp(min=1))
    ):
        chosen = loss_mask[..., k]
        hidden = hidden[chosen]  # [N, H]
        at = place[rows, target_position[..., k]][chosen]
        imitated = (hidden * wanted[at]).sum(dtype=torch.float32)
        normaliser = drafter.lm_head(hidden).float().logsumexp(-1)
        numerator = numerator + decay * ((mass[at] * normaliser).sum() - imitated)
        weight, decay = weight + decay * chosen.sum(), decay * drafter.config.step_loss_decay
    return numerator, weight, {"cross_entropy": numerator}


def mtp_loss(
    drafter, batch: TrainingBatch, weights: LossWeights, progress: float
) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Return the numerator of MTP's loss, cross-entropy with the text as far as the draft has its
    ids, its weight, and the numerator by name.

    `weights` and `progress` are for block drafters and change nothing.
    """
    ids, supervised, _, last_hidden, anchors, valid = batch
    tokens, loss_mask, _ = block_targets(ids, supervised, anchors, valid, drafter.gamma)
    numerator, weight, decay = 0.0, 0.0, 1.0
    for k, hidden in enumerate(
        unrolled_hidden(drafter, last_hidden, ids, tokens[..., :-1], anchors.clamp(min=1))
    ):
        chosen = loss_mask[..., k]
        if drafter.d2t is not None:
            chosen = chosen & torch.isin(tokens[..., k + 1], drafter.output_ids)
        logits = drafter.over_target(drafter.lm_head(hidden[chosen])).float()
        numerator = numerator + decay * F.cross_entropy(
            logits, tokens[..., k + 1][chosen], reduction="sum"
        )
        weight, decay = weight + decay * chosen.sum(), decay * drafter.config.step_loss_decay
    return numerator, weight, {"cross_entropy": numerator}
