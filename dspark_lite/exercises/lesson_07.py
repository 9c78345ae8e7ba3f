"""Checkers of lesson 07: possible anchors, the mask predicate, the confidence label, the weighted loss, DSpark's loss."""

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, pad

from .checking import Exercise, Mistake, Step


def following(supervised):
    """Whether the next position is supervised."""
    return pad(supervised[:, 1:], (0, 1))


def possible_anchors(supervised):
    """Where an anchor may stand, boolean [B, n] like `supervised`."""
    return supervised & following(supervised)


SUPERVISED = torch.tensor([[0, 0, 1, 1, 1, 0, 1, 0], [1, 1, 1, 1, 1, 0, 1, 1]]).bool()
check_possible_anchors = Exercise(possible_anchors, Step([(SUPERVISED,)], {
    "the last supervised token of a stretch has nothing supervised after it: its first slot would have no label.":
        lambda s: s,
    "you looked at the token before the anchor; the first slot predicts the one after it.":
        lambda s: s & pad(s[:, :-1], (1, 0)),
    "the anchor itself must be supervised too: a block starts from a token of the answer.":
        following,
    "torch.roll wraps around: the last position has no successor, least of all the first token.":
        lambda s: s & s.roll(-1, 1),
    "one of the two is not enough: the anchor and its successor must both be supervised.":
        lambda s: s | following(s),
    "positions are counted from 0 and the prompt is not supervised: these are all positions but the last.":
        lambda s: torch.arange(s.shape[1]).expand_as(s) < s.shape[1] - 1,
}, "an anchor is a supervised position whose successor is supervised."))


def seeing(context, slots):
    """A mask predicate of what is seen of the context, `context(key, anchor)`, and of the slots.

    `slots(block, owner, slot, other)` takes the blocks of query and key and their slots in them.
    """
    def sees(anchors, length, gamma, query, key):
        block, owner = query // gamma, (key - length) // gamma
        inside = slots(block, owner, query % gamma, (key - length) % gamma)
        return torch.where(key < length, context(key, anchors[block]), inside)

    return sees


def before(key, anchor):
    """Whether a key stands before the anchor."""
    return key < anchor


def own(block, owner, slot, other):
    """Whether a key is of the query's block."""
    return owner == block


def everything(one, another, *rest):
    """True for all indices."""
    return torch.ones_like(one + another).bool()


def nothing(*indices):
    """False for all indices."""
    return ~everything(*indices)


def sees(anchors, length, gamma, query, key):
    """Whether slot `query` may see `key`; index tensors that broadcast."""
    return seeing(before, own)(anchors, length, gamma, query, key)


def boolean(answer):
    """A mask of type bool."""
    if torch.as_tensor(answer).dtype != torch.bool:
        raise Mistake(f"the answer is of type {torch.as_tensor(answer).dtype}; it must be boolean.")
    return answer


SLOTS, KEYS = torch.arange(9)[:, None], torch.arange(6 + 9)  # three blocks of three slots after a context of six tokens
check_sees = Exercise(sees, Step([(torch.tensor([1, 3, 4]), 6, 3, SLOTS, KEYS)], {
    "the anchor's own context position is visible: when the block is drafted the target has not read the anchor yet, "
    "so its features do not exist. The context ends before the anchor (key < anchor).":
        seeing(lambda key, anchor: key <= anchor, own),
    "the whole context is visible, the tokens to be predicted among it: the drafter would learn to copy.":
        seeing(everything, own),
    "the slots of all blocks see one another; other blocks are drafted at other times, this one must not know them.":
        seeing(before, everything),
    "the mask is causal inside the block; its slots see each other in both directions.":
        seeing(before, lambda block, owner, slot, other: (owner == block) & (other <= slot)),
    "no slot sees a block; keys from `length` on are slots, and those of the query's own block are visible.":
        seeing(before, nothing),
    "the context is hidden; a slot sees what stands before its block's anchor.":
        seeing(nothing, own),
    "you compared whole key indices with blocks; a slot's block is (key - length) // gamma.":
        lambda anchors, length, g, query, key: (key < anchors[query // g]) | (key // g == query // g),
    "the answer is of type torch.float32; it must be boolean.":
        lambda *indices: sees(*indices).float(),
}, "a slot sees keys below its block's anchor, and from `length` on those of its own block.", boolean))


def distance(target_probs, draft_probs):
    """The L1 distance [...] of distributions [..., V]."""
    return (target_probs - draft_probs).abs().sum(-1)


def confidence_label(target_probs, draft_probs):
    """The chance [...] that a draft token is accepted, of [..., V]."""
    return 1 - distance(target_probs, draft_probs) / 2


LABEL_CASE = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]]), torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.7, 0.2]])
check_label = Exercise(confidence_label, Step([LABEL_CASE], {
    "this is 1 - TV / 2. TV is half the L1 distance already, so the chance is 1 - TV = 1 - L1 / 2.":
        lambda p, q: 1 - distance(p, q) / 4,
    "this is 1 - L1; every unit of probability that moves is counted twice in L1, so it must be halved.":
        lambda p, q: 1 - distance(p, q),
    "this is the chance of a refusal; the label is one minus it.":
        lambda p, q: distance(p, q) / 2,
    "this is the L1 distance itself; the label is 1 - L1 / 2.":
        distance,
    "this is the sum of max(p, q); it must be the smaller of the two.":
        lambda p, q: torch.maximum(p, q).sum(-1),
    "this is the chance that two independent draws agree; the rule keeps far more than that.":
        lambda p, q: (p * q).sum(-1),
    "the distance is a sum over the vocabulary, not a mean.":
        lambda p, q: 1 - (p - q).abs().mean(-1) / 2,
}, "the chance is the sum over the vocabulary of min(p, q), which is 1 - L1 / 2."))


def weighing(weigh, divide=None):
    """A loss with weights `weigh(position, counted)` over the sum of `divide(weights, counted)`, or of the weights."""
    def loss(losses, counted):
        weights = weigh(torch.arange(losses.shape[1]), counted).expand_as(losses)
        return (losses * weights).sum() / (divide(weights, counted) if divide else weights).sum()

    return loss


def decay(position, counted, rate=4):
    """The weights of the slots that count."""
    return torch.exp(-position / rate) * counted


def decay_everywhere(position, counted):
    """The weights of all slots."""
    return torch.exp(-position / 4)


def weighted_loss(losses, counted):
    """A number from both [K, g]; position k (from 1) weighs exp(-(k - 1) / 4)."""
    return weighing(decay)(losses, counted)


def block_by_block(losses, counted):
    """Every block averaged by itself; an empty one is left out."""
    filled = counted.any(-1)
    return torch.stack([weighted_loss(*block) for block in zip(losses[filled, None], counted[filled, None])]).mean()


LOSSES = torch.rand(3, 7, generator=torch.Generator().manual_seed(0))
COUNTED = torch.tensor([[1] * 7, [1, 1, 1, 0, 0, 0, 0], [0] * 7]).bool()
check_weighted_loss = Exercise(weighted_loss, Step([(LOSSES, COUNTED)], {
    "you divided by how many slots count; divide by the sum of their weights, else the loss is no mean.":
        weighing(decay, lambda weights, counted: counted),
    "you divided by the number of all slots; only weights of slots that count belong below.":
        weighing(decay, lambda weights, counted: torch.ones_like(weights)),
    "slots that do not count are in the sum: they stand after the end of the answer and have no label.":
        weighing(decay_everywhere),
    "the weights of slots that do not count are in the divisor; they belong on neither side.":
        weighing(decay, lambda weights, counted: decay_everywhere(torch.arange(7), counted).expand_as(weights)),
    "each block is averaged by itself and then all blocks alike; one with few slots would weigh as a full one.":
        block_by_block,
    "the decay is 7; the released drafts were trained with 4 (the paper writes gamma there).":
        weighing(lambda position, counted: decay(position, counted, 7)),
    "every position weighs the same; position k weighs exp(-(k - 1) / 4).":
        weighing(lambda position, counted: counted),
    "the weights grow with the position; the exponent is negative.":
        weighing(lambda position, counted: decay(position, counted, -4)),
    "this is the numerator; divide it by the sum of the weights.":
        weighing(decay, lambda weights, counted: torch.ones(1)),
}, "the loss is the sum of weight * loss over the slots that count, divided by the sum of these weights."))


def text_loss(log_q, p, tokens):
    """Cross-entropy [K, g] with the text."""
    return -log_q.gather(-1, tokens[..., None])[..., 0]


def target_loss(log_q, p, tokens):
    """L1 distance [K, g] to the target."""
    return distance(p, log_q.exp())


def constant_label(p, q):
    """The chance of acceptance, a constant for the optimiser."""
    return confidence_label(p, q).detach()


def losing(text=text_loss, match=target_loss, label=constant_label, mean=weighted_loss, read=lambda confidence: confidence):
    """DSpark's loss with its parts: the text's, the target's, the confidence's label, and how each is averaged."""
    def loss(draft_logits, target_logits, tokens, counted, confidence, factors):
        log_q, p = torch.log_softmax(draft_logits, -1), torch.softmax(target_logits, -1)
        parts = {"cross_entropy": text(log_q, p, tokens), "l1": match(log_q, p, tokens),
                 "confidence": binary_cross_entropy_with_logits(read(confidence), label(p, log_q.exp()), reduction="none")}
        return sum(factors[name] * mean(part, counted) for name, part in parts.items())

    return loss


def dspark_loss(draft_logits, target_logits, tokens, counted, confidence, factors):
    """The loss of K blocks: cross-entropy, L1 and the confidence's binary cross-entropy, weighed and added."""
    return losing()(draft_logits, target_logits, tokens, counted, confidence, factors)


FACTORS = {"cross_entropy": 0.2, "l1": 0.7, "confidence": 0.5}
_numbers = torch.Generator().manual_seed(3)
LOSS_CASE = (torch.randn(3, 7, 5, generator=_numbers), torch.randn(3, 7, 5, generator=_numbers),
             torch.randint(5, (3, 7), generator=_numbers), COUNTED, torch.randn(3, 7, generator=_numbers), FACTORS)


def gradients(function) -> list[torch.Tensor]:
    """The gradients that `function` gives the drafter's logits and the confidence's."""
    with torch.enable_grad():
        leaves = [LOSS_CASE[0].clone().requires_grad_(), LOSS_CASE[4].clone().requires_grad_()]
        loss = function(leaves[0], *LOSS_CASE[1:4], leaves[1], dict(FACTORS))
        return list(torch.autograd.grad(loss, leaves, allow_unused=True, materialize_grads=True))


def trains_the_right_parts(function) -> None:
    """Raises Mistake unless the gradients are those of the reference."""
    try:
        found = gradients(function)
    except RuntimeError:
        raise Mistake("the value is right, but nothing can be learned from it: the loss has lost its gradient (.item(), "
                      ".detach() or torch.no_grad() on the way)") from None
    of_drafter, of_confidence = (torch.allclose(*pair, atol=1e-5) for pair in zip(found, gradients(dspark_loss)))
    if not found[0].any():
        raise Mistake("the value is right, but the drafter learns nothing from it; only the label is detached")
    if not of_confidence:
        raise Mistake("the value is right, but the confidence head does not learn from it as it should; only the label is detached")
    if not of_drafter:
        raise Mistake("the value is right, but the confidence's label moves the drafter: it is a constant for the optimiser, "
                      "so detach it")


check_dspark_loss = Exercise(dspark_loss, Step([LOSS_CASE], {
    "the L1 term is halved; the loss is the L1 distance itself, and its factor does the rest.":
        losing(match=lambda log_q, p, tokens: target_loss(log_q, p, tokens) / 2),
    "the L1 term is averaged over the vocabulary; it is a sum.":
        losing(match=lambda log_q, p, tokens: (p - log_q.exp()).abs().mean(-1)),
    "the squares of the differences are not L1; take absolute values.":
        losing(match=lambda log_q, p, tokens: (p - log_q.exp()).square().sum(-1)),
    "the confidence's label is 1 - L1; the chance of acceptance is 1 - L1 / 2.":
        losing(label=lambda p, q: (1 - distance(p, q)).clamp(0, 1)),
    "the confidence is told whether the text's token is likely; its label is the chance of acceptance, sum of min(p, q).":
        losing(label=lambda p, q: p.gather(-1, LOSS_CASE[2][..., None])[..., 0]),
    "the confidence's label is the chance of a refusal; turn it around.":
        losing(label=lambda p, q: distance(p, q) / 2),
    "the confidence goes through a sigmoid twice: binary_cross_entropy_with_logits takes the logits as they are.":
        losing(read=torch.sigmoid),
    "cross-entropy is taken with the target's distribution; here it is the text's token that counts, -log q(x).":
        losing(text=lambda log_q, p, tokens: -(p * log_q).sum(-1)),
    "cross-entropy is -log q(x), not 1 - q(x).":
        losing(text=lambda log_q, p, tokens: 1 - log_q.exp().gather(-1, tokens[..., None])[..., 0]),
    "the sign of the cross-entropy is turned: -log q(x) is positive.":
        losing(text=lambda log_q, p, tokens: -text_loss(log_q, p, tokens)),
    "every position weighs the same; use your weighted_loss.":
        losing(mean=weighing(lambda position, counted: counted)),
    "slots that do not count are in the sum; use your weighted_loss.":
        losing(mean=weighing(decay_everywhere)),
    "the factors are missing: each loss times its own, then add.":
        lambda *case: losing()(*case[:-1], dict.fromkeys(FACTORS, 1.0)),
}, "add factor * weighted mean of -log q(x), of the L1 distance, and of the confidence's binary cross-entropy with its label."),
    manner=trains_the_right_parts)
