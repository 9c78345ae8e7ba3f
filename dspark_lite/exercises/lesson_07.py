"""Checkers of lesson 07: possible anchors, the mask predicate, the confidence label, the weighted loss."""

import torch

from .checking import Mistake, checker, finished, name_mistake


@checker
def check_possible_anchors(possible_anchors):
    """`possible_anchors(supervised)`: where an anchor may stand, boolean [B, n] like `supervised`."""
    supervised = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 0, 1, 1]]).bool()
    following = torch.cat([supervised[:, 1:], torch.zeros(2, 1, dtype=torch.bool)], 1)
    before = torch.cat([torch.zeros(2, 1, dtype=torch.bool), supervised[:, :-1]], 1)
    name_mistake(finished(possible_anchors(supervised)), supervised & following, {
        "the last supervised token of a stretch has nothing supervised behind it: its first slot would have no label.":
            supervised,
        "you looked at the token before the anchor; the first slot predicts the one behind it.": supervised & before,
        "the anchor itself must be supervised too: a block starts from a token of the answer.": following,
        "torch.roll wraps around: the last position has no successor, least of all the first token.":
            supervised & supervised.roll(-1, 1),
        "one of the two is not enough: the anchor and its successor must both be supervised.": supervised | following,
        "positions are counted from 0 and the prompt is not supervised: these are all positions but the last.":
            torch.arange(8).expand(2, -1) < 7,
    }, "an anchor is a supervised position whose successor is supervised.")


def _visible(anchors, length, gamma, sees):
    """The mask [K * g, n + K * g] that `sees(anchor, query's block, query's slot, key, key's block, key's slot)` gives;
    context keys have block -1 and the last slot 0."""
    rows = []
    for query in range(len(anchors) * gamma):
        block, slot = divmod(query, gamma)
        keys = [(key, -1, 0) for key in range(length)]
        keys += [(length + inside, *divmod(inside, gamma)) for inside in range(len(anchors) * gamma)]
        rows.append([sees(anchors[block], block, slot, *key) for key in keys])
    return torch.tensor(rows)


MASK_MISTAKES = {
    "the anchor's own context position is visible: when the block is drafted the target has not read the anchor yet, "
    "so its features do not exist. The context ends before the anchor (key < anchor).":
        lambda anchor, block, slot, key, owner, other: key <= anchor if owner < 0 else owner == block,
    "the whole context is visible, the tokens to be predicted among it: the drafter would learn to copy.":
        lambda anchor, block, slot, key, owner, other: owner in (-1, block),
    "the slots of all blocks see one another; other blocks are drafted at other times, this one must not know them.":
        lambda anchor, block, slot, key, owner, other: key < anchor or owner >= 0,
    "the mask is causal inside the block; its slots see each other in both directions.":
        lambda anchor, block, slot, key, owner, other: key < anchor if owner < 0 else owner == block and other <= slot,
    "no slot sees a block; keys from `length` on are slots, and those of the query's own block are visible.":
        lambda anchor, block, slot, key, owner, other: owner < 0 and key < anchor,
    "the context is hidden; a slot sees what stands before its block's anchor.":
        lambda anchor, block, slot, key, owner, other: owner == block,
}


@checker
def check_sees(sees):
    """`sees(anchors, length, gamma, query, key)`: whether slot `query` may see `key`; index tensors that broadcast."""
    anchors, length, gamma = [1, 3, 4], 6, 3
    slots = len(anchors) * gamma
    queries, keys = torch.arange(slots)[:, None], torch.arange(length + slots)
    answer = finished(sees(torch.tensor(anchors), length, gamma, queries, keys))
    right = _visible(anchors, length, gamma, lambda anchor, block, slot, key, owner, other: (
        key < anchor if owner < 0 else owner == block))
    if torch.as_tensor(answer).dtype != torch.bool:
        raise Mistake(f"the answer is of type {torch.as_tensor(answer).dtype}; it must be boolean.")
    name_mistake(answer, right, {
        **{sentence: _visible(anchors, length, gamma, wrong) for sentence, wrong in MASK_MISTAKES.items()},
        "you compared whole key indices with blocks; a slot's block is (key - length) // gamma.":
            (keys < torch.tensor(anchors)[queries // gamma]) | (keys // gamma == queries // gamma),
    }, "a slot sees keys below its block's anchor, and from `length` on those of its own block.")


@checker
def check_label(confidence_label):
    """`confidence_label(target_probs, draft_probs)`: the chance [...] that a draft token is accepted, of [..., V]."""
    target = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    draft = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.7, 0.2]])
    distance = (target - draft).abs().sum(-1)  # 0.6 and 1.2
    name_mistake(finished(confidence_label(target, draft)), 1 - distance / 2, {
        "this is 1 - TV / 2. TV is half the L1 distance already, so the chance is 1 - TV = 1 - L1 / 2.":
            1 - distance / 4,
        "this is 1 - L1; every unit of probability that moves is counted twice in L1, so it must be halved.":
            1 - distance,
        "this is the chance of a refusal; the label is one minus it.": distance / 2,
        "this is the L1 distance itself; the label is 1 - L1 / 2.": distance,
        "this is the sum of max(p, q); it must be the smaller of the two.": torch.maximum(target, draft).sum(-1),
        "this is the chance that two independent draws agree; the rule keeps far more than that.":
            (target * draft).sum(-1),
        "the distance is a sum over the vocabulary, not a mean.":
            1 - (target - draft).abs().mean(-1) / 2,
    }, "the chance is the sum over the vocabulary of min(p, q), which is 1 - L1 / 2.")


@checker
def check_weighted_loss(weighted_loss):
    """`weighted_loss(losses, counted)`: a number from both [K, g]; position k (from 1) weighs exp(-(k - 1) / 4)."""
    generator = torch.Generator().manual_seed(0)
    losses = torch.rand(3, 7, generator=generator)
    counted = torch.tensor([[1] * 7, [1, 1, 1, 0, 0, 0, 0], [0] * 7]).bool()
    position = torch.arange(7)

    def weighted(weight, over):
        return (losses * weight).sum() / over.sum()

    decay, slow = torch.exp(-position / 4) * counted, torch.exp(-position / 7) * counted
    name_mistake(finished(weighted_loss(losses, counted)), weighted(decay, decay), {
        "you divided by how many slots count; divide by the sum of their weights, else the loss is no mean.":
            weighted(decay, counted),
        "you divided by the number of all slots; only weights of slots that count belong below.":
            weighted(decay, torch.ones(3, 7)),
        "slots that do not count are in the sum: they stand behind the end of the answer and have no label.":
            weighted(torch.exp(-position / 4).expand(3, -1), torch.exp(-position / 4).expand(3, -1)),
        "the weights of slots that do not count are in the divisor; they belong on neither side.":
            weighted(decay, torch.exp(-position / 4).expand(3, -1)),
        "each block is averaged by itself and then all blocks alike; one with few slots would weigh as a full one.":
            ((losses * decay).sum(-1)[:2] / decay.sum(-1)[:2]).mean(),
        "the decay is 7; the released drafts were trained with 4 (the paper writes gamma there).": weighted(slow, slow),
        "every position weighs the same; position k weighs exp(-(k - 1) / 4).": weighted(counted, counted),
        "the weights grow with the position; the exponent is negative.":
            weighted(torch.exp(position / 4) * counted, torch.exp(position / 4) * counted),
        "this is the numerator; divide it by the sum of the weights.": (losses * decay).sum(),
    }, "the loss is the sum of weight * loss over the slots that count, divided by the sum of these weights.")
