"""Drafted trees: several continuations of a text verified in one pass of the target, each token seeing its own branch alone.

A chain bets all its places on one continuation; a tree spreads them. A block drafter with a sequential head grows one at no further
pass: its hidden states are those of the depths, and only the small head sees the token before (PCTree for DSpark, arXiv 2608.02123;
DDTree, Ringel and Romano 2026). Which branches are drafted is decided without a draw, so the rule is simple: draw from the target,
and go on as long as the tree has what was drawn. N nodes, without the anchor, which is node 0.
"""

import heapq
from itertools import count
from typing import NamedTuple

import torch

from ...common.errors import RequestError
from ...decoding.answer import Generation, Round
from ...decoding.attention import additive_mask
from ...decoding.checks import check_models, check_request, stop_set, until_stop
from ...decoding.sampling import Randomness, draw, probabilities


class Tree(NamedTuple):
    """Drafted tokens [N] and the node that each follows, `parents`, 0 for the anchor; a parent stands before its children."""

    tokens: torch.Tensor
    parents: list[int]

    def lines(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return whether a node sees another, itself and those that lead to it, bool [N + 1, N +
        1], and each one's depth [N + 1]."""
        seen = torch.eye(len(self.parents) + 1, dtype=torch.bool)
        for node, parent in enumerate(self.parents, start=1):
            seen[node] |= seen[parent]
        return seen, seen.sum(1) - 1


def grow(drafter, state, anchor: torch.Tensor, nodes: int) -> Tree:
    """Grow the tree of the `nodes` most probable continuations of the anchor [1] by a block
    drafter. The best come first; a node's chance is the product of those on the way to it. Raise
    RequestError for a drafter without blocks."""
    if not hasattr(drafter, "block_hidden"):
        raise RequestError(
            f"{drafter.name} drafts no block whose positions could branch; grow trees with DSpark or DFlash"
        )
    hidden, head = drafter.block_hidden(state, anchor), drafter.markov_head
    base, order, waiting = drafter.lm_head(hidden)[0], count(), []
    tokens, parents = [], []

    def branch(node: int, token: torch.Tensor, depth: int, chance: float, memory) -> None:
        """Put the most probable children of a node among those that wait."""
        if depth == drafter.gamma:
            return
        bias, memory = head.step(token, hidden[:, depth], memory) if head else (0.0, None)
        logits = drafter.over_target(base[depth] + bias)
        likely = torch.log_softmax(logits.flatten(), -1).topk(min(nodes, logits.numel()))
        for value, child in zip(likely.values.tolist(), likely.indices):
            heapq.heappush(
                waiting, (-(chance + value), next(order), node, child[None], depth + 1, memory)
            )

    branch(0, anchor, 0, 0.0, head.begin(hidden) if head else None)
    while waiting and len(tokens) < nodes:
        chance, _, parent, token, depth, memory = heapq.heappop(waiting)
        tokens.append(token)
        parents.append(parent)
        branch(len(tokens), token, depth, -chance, memory)
    return Tree(torch.cat(tokens), parents)


def follow(
    target_probs: torch.Tensor, tree: Tree, generator: Randomness
) -> tuple[list[int], torch.Tensor]:
    """Return the nodes that the target's own draws lead through, the anchor first, and the token
    [1] drawn after them, which the tree does not have. target_probs [N + 1, V] are those of the
    anchor and of each node."""
    children = {
        (parent, token): node
        for node, (parent, token) in enumerate(zip(tree.parents, tree.tokens.tolist()), start=1)
    }
    path = [0]
    while True:
        token = draw(target_probs[path[-1]][None], generator)
        following = children.get((path[-1], token.item()))
        if following is None:
            return path, token
        path.append(following)


def verify_tree(target, cache, entering: torch.Tensor, tree: Tree, taps=()):
    """Run one pass of the target over the anchor and all nodes, `entering` [1, N + 1], each at the
    position of its depth and seeing the context and its own branch. Return logits [1, N + 1, V] and
    features."""
    length, (seen, depth) = cache.get_seq_length(), tree.lines()
    context = torch.ones(len(seen), length, dtype=torch.bool)
    mask = additive_mask(torch.cat([context, seen], 1), target.dtype).to(target.device)
    return target.read(
        entering,
        cache,
        taps,
        attention_mask=mask[None, None],
        position_ids=(length + depth)[None].to(target.device),
    )


def keep_path(target, cache, path: list[int], nodes: int) -> None:
    """Leave the nodes of a path in the cache, side by side, and forget the other branches."""
    begin = cache.get_seq_length() - nodes - 1
    rows = torch.tensor(path, device=target.device) + begin
    for layer in cache.layers:
        for part in (layer.keys, layer.values):
            part[:, :, begin : begin + len(path)] = part[:, :, rows]
    target.roll_back(cache, nodes + 1 - len(path))


@torch.inference_mode()
def generate_with_tree(
    target,
    drafter,
    input_ids: torch.Tensor,
    *,
    nodes: int,
    max_new_tokens: int,
    temperature: float = 0.0,
    stop_token_ids=None,
    generator: Randomness = None,
) -> Generation:
    """Decode one request [1, n] with a tree of `nodes` drafts in each round; the rest as
    `generate`. The output is exactly the target's: all its tokens are the target's own draws. Raise
    RequestError for a target with sliding windows or recurrent states."""
    check_models(target, drafter)
    if drafter is None or nodes < 1:
        raise RequestError(
            "a tree needs a drafter and at least one node; plain decoding is generate"
        )
    if target.has_windows or target.has_states:  # a branch's mask is that of every layer
        raise RequestError(
            f"{target.name} has layers with a sliding window or a recurrent state, which cannot tell the branches of a tree apart; "
            "decode with generate"
        )
    check_request(target, input_ids, max_new_tokens, temperature)
    stop = stop_set(target, stop_token_ids)
    output, cache = target.prefill(input_ids, drafter.taps)
    anchor = draw(probabilities(output.logits[:, -1], temperature), generator)
    state = drafter.begin(input_ids, output.features)
    answer = Generation([anchor.item()])
    while len(answer.token_ids) < max_new_tokens and answer.token_ids[-1] not in stop:
        tree = grow(drafter, state, anchor, nodes)
        entering = torch.cat([anchor, tree.tokens])[None]
        output = verify_tree(target, cache, entering, tree, drafter.taps)
        path, following = follow(probabilities(output.logits[0], temperature), tree, generator)
        keep_path(target, cache, path, len(tree.parents))
        drafter.extend(state, entering[:, path], output.features[:, path])
        room = max_new_tokens - len(answer.token_ids)
        tokens = until_stop([*entering[0, path[1:]].tolist(), following.item()][:room], stop)
        answer.rounds.append(
            Round(len(tree.parents), len(path) - 1, len(tokens), tree.tokens.tolist(), tokens)
        )
        answer.token_ids += tokens
        anchor = following
    return answer
