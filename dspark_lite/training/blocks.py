"""How block drafters are trained: many blocks of one sequence in one pass behind one shared context, and the losses of DSpark (paper,
section 3.3; format facts of the reference implementation).

A block is [anchor, mask, ..., mask]; its slot k (from 1) predicts the token k places after the anchor. Blocks see the context before
their anchor and themselves, in both directions, never one another. Position k of a block weighs exp(-(k - 1) / decay); every loss is a weighted
sum over a sum of weights. The paper's decay is the draft length gamma, and so is that of a training here whose recipe does not
say `position_decay`: a decay that stays the same while blocks grow would leave their ends nearly without weight (0.03 for the
last of 15 slots at 4, 0.39 at 15). The configs of the released drafts, of gamma 7, have 4.0.

Shapes: B sequences of n tokens, K anchors, g slots; draft and target logits [B, K, g, V], tokens and `loss_mask` [B, K, g].
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from ..drafters.dspark import DSpark, transition_biases
from ..drafters.layers import block_sparse
from .recipe import LossWeights

RELEASED_DECAY = 4.0  # of the released configs, and of the reference tensors made with them
RAMP = 0.1  # share of the training over which the loss turns from cross-entropy alone into its final form


class TrainingBatch(NamedTuple):
    """Rows to learn from: padded `ids` and what is `supervised` [B, n], tapped `features` [B, n, taps * H], `last_hidden`
    [B, n, H], `anchors` and whether each is `valid` [B, K]."""

    ids: torch.Tensor
    supervised: torch.Tensor
    features: torch.Tensor
    last_hidden: torch.Tensor
    anchors: torch.Tensor
    valid: torch.Tensor


# Anchors and packing --------------------------------------------------------------------------------------------------


def draw_anchors(
    supervised: torch.Tensor, count: int, generator: torch.Generator | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions [B, K] of up to `count` random anchors a sequence, ascending, and which of them are `valid` [B, K].

    An anchor is a position that is supervised and followed by a supervised one; supervised [B, n] is boolean.
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
    return create_block_mask(
        visible(anchors, length, gamma), batch, None, slots, length + slots, device=anchors.device
    )


def block_mask(anchors: torch.Tensor, length: int, gamma: int) -> BlockMask | None:
    """The sparse mask where FlexAttention serves; elsewhere none, and `packed_hidden` applies the same rule itself."""
    return sparse_mask(anchors, length, gamma) if block_sparse(anchors.device) else None


def block_targets(
    ids: torch.Tensor,
    supervised: torch.Tensor,
    anchors: torch.Tensor,
    valid: torch.Tensor,
    gamma: int,
):
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
    loss_mask = (supervised[rows, place] & inside)[..., 1:].long().cumprod(-1).bool() & valid[
        ..., None
    ]
    return tokens, loss_mask, place[..., 1:] - 1


# Losses ---------------------------------------------------------------------------------------------------------------


class Losses(NamedTuple):
    """Numerators of cross-entropy, L1, confidence and direct acceptance, and the sum of weights they share.

    Direct acceptance is minus the expected accepted drafts of a block, which weighs what its positions weigh together: over the sum
    of weights it lies between -g and 0.
    """

    cross_entropy: torch.Tensor
    l1: torch.Tensor
    confidence: torch.Tensor
    acceptance: torch.Tensor
    weight: torch.Tensor

    def total(
        self,
        cross_entropy: float,
        l1: float,
        confidence: float,
        position_decay: float | None = None,
    ) -> torch.Tensor:
        """The training loss with a recipe's factors, normalised by the weights, which its `position_decay` has shaped already."""
        return (
            cross_entropy * self.cross_entropy + l1 * self.l1 + confidence * self.confidence
        ) / self.weight


class BlockPredictions(NamedTuple):
    """What a pass over packed blocks gives: draft logits [B, K, g, V], confidence logits [B, K, g] or None, and the block
    targets `tokens`, `loss_mask`, `target_position` [B, K, g]."""

    logits: torch.Tensor
    confidence_logits: torch.Tensor | None
    tokens: torch.Tensor
    loss_mask: torch.Tensor
    target_position: torch.Tensor


def position_weights(gamma: int, device=None, decay: float = RELEASED_DECAY) -> torch.Tensor:
    """exp(-(k - 1) / decay) for k = 1 .. g, shape [g]."""
    return torch.exp(-torch.arange(gamma, device=device) / decay)


def loss_factors(weights: LossWeights, progress: float) -> dict[str, float]:
    """The factors of cross-entropy, L1 and confidence, and of direct acceptance where the recipe has one, at a `progress` of the
    training from 0 to 1.

    They are the recipe's, unless it asks for `cross_entropy_first`: cross-entropy alone for that share of the progress, then a
    ramp to the final factors. The gradient of L1 is p(1 - p) times that of cross-entropy where p is the chance of the right
    token: a draft that has not found it yet is hardly told to.
    """
    first = weights.cross_entropy_first
    final = min(1.0, max(0.0, (progress - first) / RAMP)) if first else 1.0
    factors = {
        "cross_entropy": (1 - final) + final * weights.cross_entropy,
        "l1": final * weights.l1,
        "confidence": final * weights.confidence,
    }
    return (
        factors
        if weights.acceptance is None
        else {**factors, "acceptance": final * weights.acceptance}
    )


def block_losses(
    draft_logits: torch.Tensor,
    target_logits: torch.Tensor,
    tokens: torch.Tensor,
    loss_mask: torch.Tensor,
    confidence_logits: torch.Tensor | None,
    decay: float = RELEASED_DECAY,
) -> Losses:
    """Cross-entropy with the text, L1 distance to the target's distribution, binary cross-entropy of the confidence, and direct
    acceptance; positions decay as in the released configs, unless another `decay` is given.

    The confidence label is the chance that the token is accepted: sum of min(p, q) = 1 - L1 / 2, held constant.
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
    # Accepted drafts of a block, [B, K]
    expected = ((1 - distance / 2).cumprod(-1) * loss_mask).sum(-1)
    return Losses(
        (cross_entropy * weight).sum(),
        (distance * weight).sum(),
        (confidence * weight).sum(),
        -(expected * weight.sum(-1)).sum(),
        weight.sum(),
    )


def training_forward(drafter, features, ids, supervised, anchors, valid, mask) -> BlockPredictions:
    """One teacher-forced pass over packed blocks; `mask` as in `Backbone.packed_hidden`."""
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


def block_loss(
    drafter: DSpark, batch: TrainingBatch, weights: LossWeights, progress: float
) -> tuple[torch.Tensor, torch.Tensor, dict]:
    """The three losses of packed blocks, and direct acceptance where it is asked for, with their factors at this progress."""
    ids, supervised, features, last_hidden, anchors, valid = batch
    mask = block_mask(anchors, ids.shape[1], drafter.gamma)
    blocks = training_forward(drafter, features, ids, supervised, anchors, valid, mask)
    with torch.no_grad():
        # The LM head is the target's own, applied at the sampled positions only: logits are never stored.
        rows = torch.arange(len(ids), device=ids.device)[:, None, None]
        target_logits = drafter.lm_head(last_hidden[rows, blocks.target_position])
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
