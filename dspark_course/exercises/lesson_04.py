"""Checkers of lesson 04: tapping, block ids, positions, mask and attention of a block, how often a second draft is kept."""

from functools import partial

import torch
import torch.nn.functional as F

from .checking import Exercise, Mistake, Step


def features_of(hidden_states, taps):
    """The tapped hidden states of a target, concatenated, [B, n, taps * H]."""
    return torch.cat([hidden_states[layer + 1] for layer in taps], -1)


def stacked(states, taps, axis):
    """The right states on a new axis: stacked, or in a list where `axis` is 0."""
    return torch.stack([states[i + 1] for i in taps], axis)


STATES = tuple(torch.randn(7, 1, 3, 4, generator=torch.Generator().manual_seed(0)))  # embedding output, then six layers


def of_tensors(function):
    """Raises Mistake for right numbers that are no tensor."""
    features = function(STATES, (1, 4))
    if not isinstance(features, torch.Tensor):
        raise Mistake(f"the numbers are right, but the drafter reads a tensor; this is of type {type(features).__name__}.")


check_features = Exercise(features_of, Step([(STATES, (1, 4)), (STATES, (5, 2))], {
    "you read hidden_states[i]; index 0 is the embedding, so layer i stands at hidden_states[i + 1].":
        lambda states, taps: torch.cat([states[i] for i in taps], -1),
    "you went from i the wrong way or too far; index 0 is the embedding, so layer i stands at hidden_states[i + 1].":
        (lambda states, taps: torch.cat([states[i - 1] for i in taps], -1),
         lambda states, taps: torch.cat([states[i + 2] for i in taps], -1)),
    "you added the taps up or took their mean; they are laid side by side, and fc learns how to mix them.":
        (lambda states, taps: sum(states[i + 1] for i in taps), lambda states, taps: sum(states[i + 1] for i in taps) / len(taps)),
    "you took every layer; only those in `taps` are laid side by side.":
        (lambda states, taps: torch.cat(states[1:], -1), lambda states, taps: torch.cat(states, -1)),
    "you kept the last token only; every token of the context has features.":
        (lambda states, taps: features_of(states, taps)[:, -1:], lambda states, taps: features_of(states, taps)[:, -1]),
    "you sorted the taps; fc expects them in the order of the list.":
        lambda states, taps: features_of(states, sorted(taps)),
    "the taps must be joined along the last axis (hidden size), not along the tokens.":
        lambda states, taps: torch.cat([states[i + 1] for i in taps], 1),
    "the taps must be joined along the last axis (hidden size); yours is the first, so they look like more texts in the batch.":
        lambda states, taps: torch.cat([states[i + 1] for i in taps]),
    "you joined the taps in reverse; fc expects them in the order of the list.":
        lambda states, taps: features_of(states, taps[::-1]),
    "the taps are interleaved number by number; they are laid side by side, all of the first tap, then all of the second.":
        lambda states, taps: torch.stack([states[i + 1] for i in taps], -1).flatten(-2),
    "you read an index that is not in the list: this check's model has six layers and two taps, so take the layers "
    "from `taps`.":
        lambda states, taps: features_of(states, (1, 4, 7, 10)),
    "you have the right states, but in a list or along an axis of their own; join them along the last axis: [1, 3, 8] here.":
        tuple(partial(stacked, axis=axis) for axis in (0, 1, 2, -1)),
}, "the features are not hidden_states[i + 1] of the two taps, joined along the last axis: [1, 3, 8] here."), manner=of_tensors)


def masks(anchor, gamma, mask_id):
    """Ids [B, gamma], all masks."""
    return torch.full((len(anchor), gamma), mask_id)


def block_ids(anchor, gamma, mask_id):
    """What goes into the backbone, [B, gamma], for anchors [B]."""
    return torch.cat([anchor[:, None], masks(anchor, gamma - 1, mask_id)], 1)


TWO_BLOCKS = (torch.tensor([3, 5]), 4, 9)


def of_integers(function):
    """Raises Mistake for right ids in a form that an embedding refuses."""
    anchors, *rest = TWO_BLOCKS
    ids = function(anchors.clone(), *rest)
    if not isinstance(ids, torch.Tensor):
        raise Mistake(f"the numbers are right, but an embedding reads a tensor of integers; this is of type {type(ids).__name__}.")
    if ids.is_floating_point():
        raise Mistake("the numbers are right, but an embedding reads a tensor of integers; these are floats.")


check_block_ids = Exercise(block_ids, Step([TWO_BLOCKS], {
    "the anchor is missing: slot 0 holds a mask, so the block does not know which token it continues.":
        masks,
    "you put gamma masks after the anchor, gamma + 1 slots; here the anchor's own slot predicts, so gamma slots draft "
    "gamma tokens.":
        lambda a, g, m: block_ids(a, g + 1, m),
    "the anchor stands at the end; it comes first, and the masks wait for what follows it.":
        lambda a, g, m: block_ids(a, g, m).flip(1),
    "you filled row 0 with an anchor; a row is a block, and each anchor stands in slot 0 (column 0) of its own row.":
        lambda a, g, m: torch.cat([a[:1].expand(1, g), masks(a[1:], g, m)]),
    "every slot holds the anchor; only slot 0 does, the others hold the mask.":
        lambda a, g, m: a[:, None].repeat(1, g),
    "two anchors went in, so two rows must come out, [B, gamma]; yours has masks or ids for one.":
        (lambda a, g, m: block_ids(a[:1], g, m), lambda a, g, m: block_ids(a[:1], g, m)[0],
         lambda a, g, m: torch.cat([a[:, None], masks(a[:1], g - 1, m)], 1),
         lambda a, g, m: torch.cat([a, masks(a, g - 1, m)[0]])),
    "rows and columns are swapped; each anchor begins a row of its own: [B, gamma].":
        lambda a, g, m: block_ids(a, g, m).T,
    "after the anchor stand zeros; an empty slot holds `mask_id`, here 9.":
        lambda a, g, m: block_ids(a, g, 0),
    "you used the lesson's 7 or 1023; take gamma and mask_id from the arguments, here 4 and 9.":
        (lambda a, g, m: block_ids(a, 7, 1023), lambda a, g, m: block_ids(a, g, 1023), lambda a, g, m: block_ids(a, 7, m)),
}, "the ids are not the anchor followed by masks, one slot for each draft and a row for each of the two anchors: [2, 4] here."),
    manner=of_integers)


def block_positions(context_length, gamma):
    """RoPE positions [gamma] of a block after the context."""
    return context_length + torch.arange(gamma)


check_positions = Exercise(block_positions, Step([(11, 4)], {
    "the positions restart at 0 or 1; the context's keys were turned by absolute positions, so the block must count on.":
        (lambda n, g: torch.arange(g), lambda n, g: 1 + torch.arange(g)),
    "the anchor stands one place too far right: n context tokens fill 0 to n - 1, and the anchor stands at n.":
        lambda n, g: n + 1 + torch.arange(g),
    "the anchor shares the last context token's position; it stands one after it, at n.":
        lambda n, g: n - 1 + torch.arange(g),
    "all slots stand at one position; slot k stands k places after the anchor.":
        lambda n, g: torch.full((g,), n),
    "there are gamma + 1 positions; a block has gamma slots, the anchor's among them.":
        lambda n, g: n + torch.arange(g + 1),
    "there are gamma - 1 positions; the anchor's slot is one of the gamma.":
        (lambda n, g: n + torch.arange(g - 1), lambda n, g: n + 1 + torch.arange(g - 1)),
    "the context's positions are among them; its keys are rotated already, and only the block's gamma slots are asked for.":
        (lambda n, g: torch.arange(n + g), lambda n, g: torch.arange(n)),
    "the slots stand one after another, in steps of exactly 1, so the last stands at n + gamma - 1.":
        lambda n, g: torch.linspace(n, n + g, g),
    "the numbers are right, but in a column; they belong in one row, [gamma] or [1, gamma].":
        lambda n, g: block_positions(n, g)[:, None],
    "you used the lesson's 32 or 7; take context_length and gamma from the arguments, here 11 and 4.":
        (lambda n, g: block_positions(32, g), lambda n, g: block_positions(n, 7), lambda n, g: block_positions(32, 7)),
}, "the positions are not n, n + 1, ..., n + gamma - 1, in a tensor [gamma]."),
    also_right=(lambda n, g: block_positions(n, g)[None],))


def block_mask(context_length, gamma):
    """Boolean [gamma, n + gamma], True where slot (row) may see key (column)."""
    return torch.ones(gamma, context_length + gamma).bool()


def of_booleans(function):
    """Raises Mistake for a right mask that attention would take for numbers."""
    mask = function(5, 3)
    if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool:
        raise Mistake("the places are right, but the mask must be a Boolean tensor: attention adds numbers to the scores.")


check_block_mask = Exercise(block_mask, Step([(5, 3)], {
    "this is the target's causal mask; the slots of a block see each other in both directions.":
        lambda n, g: torch.ones(g, n + g).tril(n).bool(),
    "this is tril() without an offset: the n context keys stand before the block's, and every slot sees all of both.":
        lambda n, g: torch.ones(g, n + g).tril().bool(),
    "rows and columns are swapped; a row is a slot, a column is a key: [gamma, context_length + gamma].":
        lambda n, g: block_mask(n, g).T,
    "the context's columns are missing: the keys are the context's, then the block's, [gamma, context_length + gamma].":
        lambda n, g: torch.ones(g, g).bool(),
    "each slot sees only what stands before it; the slots of a block see each other in both directions, and themselves.":
        lambda n, g: torch.ones(g, n + g).tril(n - 1).bool(),
    "this is triu(), which hides what stands to the left; every slot sees the whole context and the whole block.":
        (lambda n, g: torch.ones(g, n + g).triu(n).bool(), lambda n, g: torch.ones(g, n + g).triu().bool(),
         lambda n, g: torch.cat([torch.ones(g, n), torch.ones(g, g).triu()], 1).bool()),
    "the places are right, but there is an axis too many: one row for each slot, [gamma, context_length + gamma].":
        (lambda n, g: block_mask(n, g)[None], lambda n, g: block_mask(n, g)[None, None]),
    "the slots see the anchor but not the masks; they see all slots of the block.":
        lambda n, g: torch.arange(n + g).expand(g, -1) <= n,
    "no slot sees itself; it sees all slots, its own as well.":
        lambda n, g: torch.cat([torch.ones(g, n), 1 - torch.eye(g)], 1).bool(),
    "the slots do not see one another; keys are the context and the whole block.":
        lambda n, g: torch.arange(n + g).expand(g, -1) < n,
    "each slot sees only itself inside the block; it sees all slots.":
        lambda n, g: torch.cat([torch.ones(g, n), torch.eye(g)], 1).bool(),
    "the slots do not see the context; without it the block knows nothing but the anchor.":
        lambda n, g: torch.arange(n + g).expand(g, -1) >= n,
    "there is a row for every key; queries come from the block alone, so there are gamma rows.":
        lambda n, g: torch.ones(n + g, n + g).bool(),
    "there is a row too many; the target verifies gamma + 1 slots, but the drafter's block has gamma.":
        (lambda n, g: torch.ones(g + 1, n + g).bool(), lambda n, g: torch.ones(g + 1, n + g + 1).bool()),
    "there is one row only; each of the gamma slots has its own, [gamma, context_length + gamma].":
        (lambda n, g: torch.ones(n + g).bool(), lambda n, g: torch.ones(1, n + g).bool()),
    "True means that the slot may see the key; yours is False everywhere, which hides all of it.":
        lambda n, g: torch.zeros(g, n + g).bool(),
}, "the mask does not let every slot see the whole context and the whole block: [3, 8] for a context of 5 and gamma 3."),
    manner=of_booleans)


def joined(context, block, queries, share=torch.repeat_interleave):
    """The context's keys or values [B, m, n, d], then the block's, one for each query head: [B, a, n + g, d]."""
    return share(torch.cat([context, block], 2), queries.shape[1] // context.shape[1], 1)


def weighed(scores, mask, scale):
    """Attention weights of scores [B, a, g, n + g], multiplied by `scale`, where the mask allows them."""
    return torch.softmax((scores * scale).masked_fill(~mask, -torch.inf), -1)


def attend(queries, context_keys, context_values, block_keys, block_values, mask):
    """What each slot takes [B, a, g, d] from the context [B, m, n, d] and the block [B, m, g, d], where mask [g, n + g] allows it."""
    return attending(weighed)(queries, context_keys, context_values, block_keys, block_values, mask)


def attending(weigh, share=torch.repeat_interleave):
    """`attend` with other weights, `weigh(scores, mask, scale)`, or key heads shared in another way."""
    def attended(queries, context_keys, context_values, block_keys, block_values, mask):
        keys, values = joined(context_keys, block_keys, queries, share), joined(context_values, block_values, queries, share)
        return weigh(queries @ keys.mT, mask, queries.shape[-1] ** -0.5) @ values
    return attended


def open_to(mask):
    """A mask of the same shape that hides nothing."""
    return torch.ones_like(mask)


def two_rows(seed=3):
    """Arguments of `attend`: four query heads, two key heads, a context of 5 and a block of 3, and a mask that hides some keys."""
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(2, 4, 3, 8, generator=generator)
    context_keys, context_values = torch.randn(2, 2, 2, 5, 8, generator=generator)
    block_keys, block_values = torch.randn(2, 2, 2, 3, 8, generator=generator)
    mask = torch.ones(3, 8).tril(5).bool()
    mask[[0, 1, 2], [1, 3, 0]] = False  # so that no row or column is hidden or seen altogether
    return queries, context_keys, context_values, block_keys, block_values, mask


check_attend = Exercise(attend, Step([two_rows()], {
    "the scores are not divided by the square root of d.":
        attending(lambda scores, mask, scale: weighed(scores, mask, 1)),
    "you divided the scores by d; divide by its square root.":
        attending(lambda scores, mask, scale: weighed(scores, mask, scale**2)),
    "you did not use the mask; this check's mask hides some keys.":
        attending(lambda scores, mask, scale: weighed(scores, open_to(mask), scale)),
    "you hid what the mask allows; True means that the slot may see the key.":
        attending(lambda scores, mask, scale: weighed(scores, ~mask, scale)),
    "you added the mask to the scores or multiplied them by it; a hidden score must become -inf before the softmax.":
        (attending(lambda scores, mask, scale: torch.softmax(scores * scale + mask, -1)),
         attending(lambda scores, mask, scale: torch.softmax(scores * scale * mask, -1))),
    "you hid weights after the softmax, so that a row no longer sums to 1; hide the scores before it.":
        attending(lambda scores, mask, scale: torch.softmax(scores * scale, -1) * mask),
    "the weights do not sum to 1 over the keys; take the softmax along the last axis.":
        (attending(lambda scores, mask, scale: torch.softmax((scores * scale).masked_fill(~mask, -1e9), -2)),
         attending(lambda scores, mask, scale: torch.softmax((scores * scale).masked_fill(~mask, -torch.inf), -2))),
    "there is no softmax: scores are not weights yet.":
        attending(lambda scores, mask, scale: scores * scale),
    "the key heads go to the wrong query heads: repeat() lays them out 0, 1, 0, 1; key head 0 serves the first two, so 0, 0, 1, 1.":
        attending(weighed, lambda x, count, axis: torch.cat([x] * count, axis)),
    "there are fewer key heads than query heads; repeat each key and value head for the query heads that it serves.":
        (attending(weighed, lambda x, count, axis: x),
         lambda q, ck, cv, bk, bv, m: F.scaled_dot_product_attention(q, torch.cat([ck, bk], 2), torch.cat([cv, bv], 2), attn_mask=m)),
    "the block's keys stand before the context's; the mask's columns are the context's first.":
        lambda q, ck, cv, bk, bv, m: attend(q, bk, bv, ck, cv, m),
    "the slots look at the context only; the keys and values of the block come after it.":
        (lambda q, ck, cv, bk, bv, m: attend(q, ck, cv, bk[:, :, :0], bv[:, :, :0], m[:, :ck.shape[2]]),
         lambda q, ck, cv, bk, bv, m: attend(q, ck, cv, bk[:, :, :0], bv[:, :, :0], open_to(m)[:, :ck.shape[2]])),
    "the slots look at the block only; the keys and values of the context come before it.":
        (lambda q, ck, cv, bk, bv, m: attend(q, ck[:, :, :0], cv[:, :, :0], bk, bv, m[:, ck.shape[2]:]),
         lambda q, ck, cv, bk, bv, m: attend(q, ck[:, :, :0], cv[:, :, :0], bk, bv, open_to(m)[:, ck.shape[2]:])),
    "context and block have a softmax of their own; the keys of both share one.":
        lambda q, ck, cv, bk, bv, m: (attend(q, ck, cv, bk[:, :, :0], bv[:, :, :0], m[:, :5])
                                      + attend(q, ck[:, :, :0], cv[:, :, :0], bk, bv, m[:, 5:])),
    "you weighed the keys; the weights are for the values.":
        lambda q, ck, cv, bk, bv, m: attend(q, ck, ck, bk, bk, m),
    "these are the attention weights; each slot takes the values, weighted by them.":
        lambda q, ck, cv, bk, bv, m: weighed(q @ joined(ck, bk, q).mT, m, q.shape[-1] ** -0.5),
    "the heads are joined already; leave them apart, [B, a, g, d]: the next cell joins them.":
        (lambda *case: attend(*case).transpose(1, 2).flatten(2), lambda *case: attend(*case).transpose(1, 2)),
}, "the result is not softmax(queries keys^T / sqrt(d)) values, over the context's keys and then the block's where the mask is True: "
   "[2, 4, 3, 8] here."))


def kept_after(joint, q2):
    """How often a second draft is kept after each first token, [m], for the target's pairs [m, V] and a slot's q2 [V]."""
    return torch.minimum(joint / joint.sum(1, keepdim=True), q2).sum(1)


def first_kept(joint, q1):
    """How often the first draft is kept and is this token, [m]."""
    return torch.minimum(joint.sum(1), q1)


def second_kept(joint, q1, q2):
    """How often the second of two independent drafts is kept where the first is, for joint [m, V], q1 [m] and q2 [V]."""
    weights = first_kept(joint, q1)
    return weights @ kept_after(joint, q2) / weights.sum()


def weighted(weights, values):
    """The mean of values [m] with weights [m]."""
    return weights @ values / weights.sum()


PAIRS = (torch.tensor([[0.4, 0.02, 0.0, 0.03], [0.0, 0.2, 0.1, 0.05], [0.02, 0.0, 0.08, 0.0]]), torch.tensor([0.2, 0.5, 0.2]),
         torch.tensor([0.3, 0.4, 0.1, 0.15]))

check_second_kept = Exercise(second_kept, Step([PAIRS], {
    "you weighted the first tokens by how often they are drafted; only those that are kept count, min(p(x1), q1(x1)).":
        (lambda joint, q1, q2: weighted(q1, kept_after(joint, q2)), lambda joint, q1, q2: q1 @ kept_after(joint, q2)),
    "you weighted the first tokens by how often the target writes them; those that are drafted and kept count, min(p(x1), q1(x1)).":
        (lambda joint, q1, q2: weighted(joint.sum(1), kept_after(joint, q2)), lambda joint, q1, q2: joint.sum(1) @ kept_after(joint, q2)),
    "you gave all first tokens the same weight; each counts as often as it is drafted and kept, min(p(x1), q1(x1)).":
        lambda joint, q1, q2: kept_after(joint, q2).mean(),
    "this is how often both drafts are kept; divide by how often the first is.":
        lambda joint, q1, q2: first_kept(joint, q1) @ kept_after(joint, q2),
    "this is how often the first draft is kept; the second is asked for.":
        lambda joint, q1, q2: first_kept(joint, q1).sum(),
    "you compared q2 with the pairs; once the first token is known, the target's distribution is its row divided by the row's sum.":
        (lambda joint, q1, q2: weighted(first_kept(joint, q1), torch.minimum(joint, q2).sum(1)),
         lambda joint, q1, q2: torch.minimum(joint, q2).sum()),
    "you compared q2 with the target's marginal of the second token; the target knows the first, so it judges by the first's own row.":
        (lambda joint, q1, q2: torch.minimum(joint.sum(0), q2).sum(), lambda joint, q1, q2: torch.minimum(joint.sum(0) / joint.sum(), q2).sum()),
    "you compared pairs with pairs; the accept rule judges the first draft by itself, then the second by the row of the first.":
        (lambda joint, q1, q2: torch.minimum(joint, q1[:, None] * q2).sum(),
         lambda joint, q1, q2: torch.minimum(joint, q1[:, None] * q2).sum() / first_kept(joint, q1).sum()),
    "you multiplied p(x2 | x1) by q2(x2); the accept rule keeps a draft with min(1, p / q), so the two share their minimum.":
        lambda joint, q1, q2: weighted(first_kept(joint, q1), (joint / joint.sum(1, keepdim=True) * q2).sum(1)),
    "this is one number for each first token; take their mean, each as often as it is drafted and kept.":
        (lambda joint, q1, q2: kept_after(joint, q2), lambda joint, q1, q2: first_kept(joint, q1) * kept_after(joint, q2),
         lambda joint, q1, q2: first_kept(joint, q1) * kept_after(joint, q2) / first_kept(joint, q1).sum()),
    "you divided by the sum of q1; divide by how often the first draft is kept.":
        lambda joint, q1, q2: first_kept(joint, q1) @ kept_after(joint, q2) / q1.sum(),
}, "the number is not the mean of sum over x2 of min(p(x2 | x1), q2(x2)), with each x1 weighted by min(p(x1), q1(x1))."))
