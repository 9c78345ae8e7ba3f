"""The training of block drafters: many blocks of a sequence in one pass, and DSpark's losses
(paper, section 3.3).

A block is [anchor, mask, ..., mask]; its slot k (from 1) predicts the token k places after the
anchor. A slot sees the context before its anchor and all of its own block, no other block. Every
loss is a weighted sum over a sum of weights, and position k weighs exp(-(k - 1) / decay). The
paper's decay is the draft length gamma, and so is ours unless a recipe sets `position_decay`: with
a fixed decay the ends of long blocks would hardly weigh (the last of 15 slots 0.03 with a decay of
4, 0.39 with 15). The configs of the released drafts (gamma 7) have 4.0. The format follows the
reference implementation.

Shapes: B sequences of n tokens, K anchors, g slots; draft and target logits [B, K, g, V], tokens
and `loss_mask` [B, K, g].
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from ..drafters.dspark import DSpark, transition_biases
from ..drafters.layers import block_sparse
from .recipe import LossWeights

RELEASED_DECAY = 4.0  # of the released configs, and of the reference tensors made with them
RAMP = 0.1  # share of the training in which the loss turns from cross-entropy into its final form


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


def visible(anchors: torch.Tensor, length: int, gamma: int):
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
    return visible(anchors, length, gamma)(rows[:, None, None, None], None, slots[:, None], keys)


def sparse_mask(anchors: torch.Tensor, length: int, gamma: int) -> BlockMask:
    """Return the same mask for FlexAttention, which skips a tile of 128 x 128 in which no slot sees
    a key."""
    batch, count = anchors.shape
    slots = count * gamma
    return create_block_mask(
        visible(anchors, length, gamma), batch, None, slots, length + slots, device=anchors.device
    )


def block_mask(anchors: torch.Tensor, length: int, gamma: int) -> BlockMask | None:
    """Return the sparse mask where FlexAttention runs, else None: then `packed_hidden` applies the
    rule itself."""
    return sparse_mask(anchors, length, gamma) if block_sparse(anchors.device) else None


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
    `Backbone.packed_hidden`."""
    tokens, loss_mask, target_position = block_targets(
        ids, supervised, anchors, valid, drafter.gamma
    )
    hidden = drafter.packed_hidden(features, tokens[..., 0], anchors, mask)
    logits = drafter.lm_head(hidden)
    previous = tokens[..., :-1]
    if drafter.markov_head is not None:
        logits = logits + transition_biases(drafter.markov_head, previous, hidden)
    return BlockPredictions(
        logits,
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
    return drafter.lm_head(last_hidden[rows, positions])


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
