"""The training of block drafters: many blocks of a sequence in one pass, and DSpark's losses
(paper, section 3.3).

A block is [anchor, mask, ..., mask]; its slot k (from 1) predicts the token k places after the
anchor. A slot sees the context before its anchor and all of its own block, no other block. Every
loss is a weighted sum over a sum of weights, and position k weighs exp(-(k - 1) / decay). The
paper's decay is the draft length gamma, and so is ours unless a recipe sets `position_decay`: with
a fixed decay the ends of long blocks would hardly weigh (the last of 15 slots 0.03 with a decay of
4, 0.39 with 15). The configs of the released drafts (gamma 7) have 4.0. The format follows the
reference implementation.

Shapes: B sequences of n tokens, K anchors, g slots, H hidden size, m key heads with q query heads
each, d head size; draft and target logits [B, K, g, V], tokens and `loss_mask` [B, K, g].
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from ..decoding.attention import additive_mask, attend
from ..drafters.dspark import DSpark, transition_biases
from ..drafters.layers import block_sparse
from .recipe import LossWeights

RELEASED_DECAY = 4.0  # of the released configs, and of the reference tensors made with them
RAMP = 0.1  # share of the progress in which the loss turns from cross-entropy into its final form


class TrainingBatch(NamedTuple):
    """Rows to learn from, padded on the right: token `ids`, which of them are `supervised`, the
    taps' `features`, the `last_hidden` states, and `anchors` with a mark whether each is
    `valid`."""

    ids: torch.Tensor  # [B, n]
    supervised: torch.Tensor  # [B, n], boolean
    features: torch.Tensor  # [B, n, taps * H]
    last_hidden: torch.Tensor  # [B, n, H]
    anchors: torch.Tensor  # [B, K]
    valid: torch.Tensor  # [B, K], boolean


def draw_anchors(
    supervised: torch.Tensor, count: int, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return up to `count` random anchors of each sequence, ascending [B, K], and which of them are
    valid [B, K].

    An anchor is a supervised position before a supervised position; `supervised` [B, n] is boolean.
    """
    possible = torch.zeros_like(supervised)
    possible[:, :-1] = supervised[:, :-1] & supervised[:, 1:]
    order = torch.rand(supervised.shape, generator=generator, device=supervised.device).masked_fill(
        ~possible, 2.0
    )
    chosen = order.argsort(-1)[:, :count]
    valid = possible.gather(1, chosen)
    anchors, place = chosen.masked_fill(~valid, supervised.shape[1]).sort(-1)
    valid = valid.gather(1, place)
    return anchors.masked_fill(~valid, 0), valid


def block_visibility(anchors: torch.Tensor, length: int, gamma: int):
    """Return FlexAttention's predicate of index tensors (row, head, query slot, key): a slot sees
    the context before its block's anchor and its own block."""

    def sees(row, head, query, key):
        block = query // gamma
        return (key < anchors[row, block]) | ((key >= length) & ((key - length) // gamma == block))

    return sees


def dense_mask(anchors: torch.Tensor, length: int, gamma: int) -> torch.Tensor:
    """Return what each slot sees as a boolean mask [B, 1, K * g, n + K * g] for SDPA."""
    batch, count = anchors.shape
    sizes = (batch, count * gamma, length + count * gamma)
    rows, slots, keys = (torch.arange(size, device=anchors.device) for size in sizes)
    return block_visibility(anchors, length, gamma)(
        rows[:, None, None, None], None, slots[:, None], keys
    )


def sparse_mask(anchors: torch.Tensor, length: int, gamma: int) -> BlockMask:
    """Return the same mask for FlexAttention, which skips a tile of 128 x 128 in which no slot sees
    a key."""
    batch, count = anchors.shape
    slots = count * gamma
    return create_block_mask(
        block_visibility(anchors, length, gamma),
        batch,
        None,
        slots,
        length + slots,
        device=anchors.device,
    )


def block_mask(anchors: torch.Tensor, length: int, gamma: int) -> BlockMask | None:
    """Return the sparse mask where FlexAttention runs, else None: then `packed_attention` applies
    the rule itself."""
    return sparse_mask(anchors, length, gamma) if block_sparse(anchors.device) else None


def packed_hidden(
    drafter: DSpark,
    features: torch.Tensor,
    anchor_ids: torch.Tensor,
    anchors: torch.Tensor,
    mask: torch.Tensor | BlockMask | None,
) -> torch.Tensor:
    """Run one pass of a block drafter over K blocks that are packed after one context.

    Return the hidden states [B, K, g, H] of all slots. `features` [B, n, taps * H] belong to the
    context, `anchor_ids` [B, K] and positions `anchors` [B, K] to the blocks. `mask`
    [B, 1, K * g, n + K * g] is dense or sparse; None: a slot sees the context before its anchor and
    its own block. The drafter's `training_mask` comes before it.
    """
    own_mask = drafter.training_mask(anchors, features.shape[1])
    mask = mask if own_mask is None else own_mask
    context = drafter.context(features)  # [B, n, H]
    positions = torch.arange(context.shape[1], device=context.device)
    context_rope = drafter.rope(positions.expand(len(context), -1))
    ids = drafter.block_ids(anchor_ids)  # [B, K, g]
    slots = anchors[..., None] + torch.arange(ids.shape[-1], device=ids.device)
    rope, x = drafter.rope(slots.flatten(1)), drafter.embed(ids.flatten(1))  # x: [B, K * g, H]
    for layer in drafter.layers:
        y, attention = layer.input_layernorm(x), layer.self_attn
        block, queries = attention.keys_values(y, rope), attention.queries(y, rope)
        past = attention.keys_values(context, context_rope)
        if mask is None:
            before = positions < anchors[..., None]  # [B, K, n]
            hidden_from = additive_mask(before, torch.float32)
            mixed = packed_attention(queries, past, block, hidden_from, attention.scale)
        else:
            # keys, values: [B, m, n + K * g, d]
            keys, values = (torch.cat(pair, 2) for pair in zip(past, block))
            mixed = attend(queries, keys, values, mask, attention.scale)
        mixed = mixed.transpose(1, 2).flatten(2)  # [B, K * g, m * q * d]
        x = layer.after_attention(x, attention.o_proj(mixed))
    return drafter.norm(x).unflatten(1, ids.shape[1:])


# With a dense mask and `attend` instead, a training step on a CPU takes 1.23 times the time in
# bfloat16 and 1.05 in float32 (64 blocks after 230 tokens), 1.33 in float32 (150 after 400).
def packed_attention(
    queries: torch.Tensor, context, own, hidden_from: torch.Tensor, scale: float
) -> torch.Tensor:
    """Return the attention [B, m * q, K * g, d] of queries of K packed blocks, without a dense mask.

    A query sees the context's keys and values [B, m, n, d] and those of its own block among `own`
    [B, m, K * g, d]. `hidden_from` [B, K, n] is -inf where a block must not look. No slot is
    compared with another block.
    """
    blocks = hidden_from.shape[1]
    keys, values = context
    own_keys, own_values = (part.unflatten(2, (blocks, -1)) for part in own)  # [B, m, K, g, d]
    grouped = (queries * scale).unflatten(1, (keys.shape[1], -1)).unflatten(3, (blocks, -1))
    shape = grouped.shape  # [B, m, q, K, g, d]
    scores = (grouped.flatten(2, 4) @ keys.mT).unflatten(2, shape[2:5])  # [B, m, q, K, g, n]
    scores = scores + hidden_from[:, None, None, :, None]
    own_scores = grouped @ own_keys[:, :, None].mT  # [B, m, q, K, g, g]
    weights = torch.softmax(torch.cat([scores, own_scores], -1), -1).to(values.dtype)
    seen, among = weights.split([keys.shape[2], own_keys.shape[3]], -1)
    mixed = (seen.flatten(2, 4) @ values).unflatten(2, shape[2:5]) + among @ own_values[:, :, None]
    return mixed.flatten(3, 4).flatten(1, 2)


def block_targets(
    ids: torch.Tensor,
    supervised: torch.Tensor,
    anchors: torch.Tensor,
    valid: torch.Tensor,
    gamma: int,
):
    """Return `tokens` [B, K, g + 1] from the anchor on, `loss_mask` [B, K, g] and `target_position`
    [B, K, g].

    A slot counts if every token from the anchor's successor up to its own is supervised. It
    imitates the target's distribution at `target_position`.
    """
    offset = torch.arange(gamma + 1, device=ids.device)
    place = anchors[..., None] + offset  # [B, K, g + 1]
    inside = place < ids.shape[1]
    place = place.clamp(max=ids.shape[1] - 1)
    rows = torch.arange(len(ids), device=ids.device)[:, None, None]
    tokens = ids[rows, place]
    supervised_slots = (supervised[rows, place] & inside)[..., 1:].long().cumprod(-1).bool()
    return tokens, supervised_slots & valid[..., None], place[..., 1:] - 1


class Losses(NamedTuple):
    """The numerators of cross-entropy, L1, confidence and direct acceptance, and their common
    weight.

    Direct acceptance is minus the expected accepted drafts of a block, which weighs as much as its
    positions together; divided by the weight it lies between -g and 0.
    """

    cross_entropy: torch.Tensor
    l1: torch.Tensor
    confidence: torch.Tensor
    acceptance: torch.Tensor
    weight: torch.Tensor

    def total(self, cross_entropy: float, l1: float, confidence: float) -> torch.Tensor:
        """Return the paper's loss (equation 12) with these factors."""
        return (
            cross_entropy * self.cross_entropy + l1 * self.l1 + confidence * self.confidence
        ) / self.weight


class BlockPredictions(NamedTuple):
    """The outputs of a pass over packed blocks, and its targets (`block_targets`)."""

    logits: torch.Tensor  # [B, K, g, V]
    confidence_logits: torch.Tensor | None  # [B, K, g]
    tokens: torch.Tensor  # [B, K, g]
    loss_mask: torch.Tensor  # [B, K, g]
    target_position: torch.Tensor  # [B, K, g]


def position_weights(gamma: int, device=None, decay: float = RELEASED_DECAY) -> torch.Tensor:
    """Return exp(-(k - 1) / decay) for k = 1 .. g, shape [g]."""
    return torch.exp(-torch.arange(gamma, device=device) / decay)


def loss_factors(weights: LossWeights, progress: float) -> dict[str, float]:
    """Return the factors of the losses by name at a `progress` from 0 to 1; direct acceptance only
    if the recipe has it.

    They are the recipe's, unless it sets `cross_entropy_first`: then cross-entropy is alone for
    that share of the progress, and a ramp leads to the final factors. L1 has p(1 - p) times the
    gradient of cross-entropy, where p is the probability of the right token, so L1 hardly moves a
    draft that has not found the token yet.
    """
    first = weights.cross_entropy_first
    final = min(1.0, max(0.0, (progress - first) / RAMP)) if first else 1.0
    factors = {
        "cross_entropy": (1 - final) + final * weights.cross_entropy,
        "l1": final * weights.l1,
        "confidence": final * weights.confidence,
    }
    if weights.acceptance is not None:
        factors["acceptance"] = final * weights.acceptance
    return factors


def block_losses(
    draft_logits: torch.Tensor,
    target_logits: torch.Tensor,
    tokens: torch.Tensor,
    loss_mask: torch.Tensor,
    confidence_logits: torch.Tensor | None,
    decay: float = RELEASED_DECAY,
) -> Losses:
    """Return cross-entropy with the text, L1 distance to the target's distribution, binary
    cross-entropy of the confidence, and direct acceptance.

    The label of the confidence is the probability that the token is accepted, sum of min(p, q) = 1
    - L1 / 2, without a gradient. The default `decay` of positions is that of the released configs.
    """
    weight = position_weights(tokens.shape[-1], tokens.device, decay) * loss_mask
    log_probs = torch.log_softmax(draft_logits.float(), -1)
    cross_entropy = -log_probs.gather(-1, tokens[..., None]).squeeze(-1)
    # A draft cannot learn to write a token that is not in its vocabulary.
    cross_entropy = cross_entropy.masked_fill(cross_entropy.isinf(), 0.0)
    distance = F.l1_loss(
        log_probs.exp(), torch.softmax(target_logits.float(), -1), reduction="none"
    ).sum(-1)
    confidence = torch.zeros_like(weight)
    if confidence_logits is not None:
        label = (1 - distance.detach() / 2).clamp(0, 1)
        confidence = F.binary_cross_entropy_with_logits(
            confidence_logits.float(), label, reduction="none"
        )
    expected = ((1 - distance / 2).cumprod(-1) * loss_mask).sum(-1)  # accepted drafts, [B, K]
    return Losses(
        (cross_entropy * weight).sum(),
        (distance * weight).sum(),
        (confidence * weight).sum(),
        -(expected * weight.sum(-1)).sum(),
        weight.sum(),
    )


def training_forward(drafter, features, ids, supervised, anchors, valid, mask) -> BlockPredictions:
    """Run one teacher-forced pass over packed blocks; tensors as in TrainingBatch, `mask` as in
    `packed_hidden`."""
    tokens, loss_mask, target_position = block_targets(
        ids, supervised, anchors, valid, drafter.gamma
    )
    hidden = packed_hidden(drafter, features, tokens[..., 0], anchors, mask)
    logits = drafter.lm_head(hidden)
    previous = tokens[..., :-1]
    if drafter.markov_head is not None:
        logits = logits + transition_biases(drafter.markov_head, previous, hidden)
    return BlockPredictions(
        drafter.over_target(logits),
        drafter.confidence_logits(hidden, previous),
        tokens[..., 1:],
        loss_mask,
        target_position,
    )


@torch.no_grad()
def target_logits_at(drafter, last_hidden: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return the target's logits [B, K, g, V] at positions [B, K, g], from its last hidden states
    [B, n, H].

    The drafter has the target's LM head. It runs at these positions only: no logits are stored.
    """
    rows = torch.arange(len(last_hidden), device=last_hidden.device)[:, None, None]
    return drafter.capped(drafter.target_logits(last_hidden[rows, positions]))


def block_loss(
    drafter: DSpark, batch: TrainingBatch, weights: LossWeights, progress: float
) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """Return the numerator of a block drafter's loss at this progress, its weight, and the
    numerator of each loss by name."""
    ids, supervised, features, last_hidden, anchors, valid = batch
    mask = block_mask(anchors, ids.shape[1], drafter.gamma)
    blocks = training_forward(drafter, features, ids, supervised, anchors, valid, mask)
    target_logits = target_logits_at(drafter, last_hidden, blocks.target_position)
    decay = float(drafter.gamma) if weights.position_decay is None else weights.position_decay
    losses = block_losses(
        blocks.logits,
        target_logits,
        blocks.tokens,
        blocks.loss_mask,
        blocks.confidence_logits,
        decay,
    )
    factors = loss_factors(weights, progress)
    terms = {name: getattr(losses, name) for name in factors}
    return sum(factors[name] * term for name, term in terms.items()), losses.weight, terms
