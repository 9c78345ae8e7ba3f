"""Checkers of lesson 04: tapping, block ids, positions and the mask of a block."""

import torch

from .checking import checker, finished, name_mistake

MASK = 9


@checker
def check_features(features_of):
    """`features_of(hidden_states, taps)`: the tapped hidden states of a target, concatenated, [B, n, taps * H]."""
    generator = torch.Generator().manual_seed(0)
    states = tuple(torch.randn(1, 3, 4, generator=generator) for _ in range(7))  # embedding output, then six layers
    taps = (1, 4)
    name_mistake(finished(features_of(states, taps)), torch.cat([states[2], states[5]], -1), {
        "you read hidden_states[i]; index 0 is the embedding, so layer i stands at hidden_states[i + 1].":
            torch.cat([states[1], states[4]], -1),
        "you added the taps up; they are laid side by side, and fc learns how to mix them.": states[2] + states[5],
        "the taps must be joined along the last axis (hidden size), not along the tokens.":
            torch.cat([states[2], states[5]], 1),
        "you joined the taps in reverse; fc expects them in the order of the list.":
            torch.cat([states[5], states[2]], -1),
    }, "the features are not hidden_states[i + 1] of the taps 1 and 4, joined along the last axis.")


@checker
def check_block_ids(block_ids):
    """`block_ids(anchor, gamma, mask_id)`: what goes into the backbone, [B, gamma], for anchors [B]."""
    anchor = torch.tensor([3, 5])
    right = torch.tensor([[3, MASK, MASK, MASK], [5, MASK, MASK, MASK]])
    name_mistake(finished(block_ids(anchor, 4, MASK)), right, {
        "the anchor is missing: slot 0 holds a mask, so the block does not know which token it continues.":
            torch.full((2, 4), MASK),
        "you put gamma masks behind the anchor, gamma + 1 slots; here the anchor's own slot predicts, so gamma slots "
        "draft gamma tokens.": torch.cat([right, right[:, 1:2]], 1),
        "the anchor stands at the end; it comes first, and the masks wait for what follows it.": right.flip(1),
        "every slot holds the anchor; only slot 0 does, the others hold the mask.": anchor[:, None].expand(2, 4),
    }, "the ids are not the anchor followed by gamma - 1 masks, [B, gamma].")


@checker
def check_positions(block_positions):
    """`block_positions(context_length, gamma)`: RoPE positions [gamma] of a block behind the context."""
    slots = torch.arange(4)
    name_mistake(finished(block_positions(11, 4)), 11 + slots, {
        "the positions restart at 0; the context's keys were turned by absolute positions, so the block must count on.":
            slots,
        "the anchor stands one place too far right: n context tokens fill 0 to n - 1, and the anchor stands at n.":
            12 + slots,
        "the anchor shares the last context token's position; it stands one behind it, at n.": 10 + slots,
        "all slots stand at one position; slot k stands k places behind the anchor.": torch.full((4,), 11),
    }, "the positions are not n, n + 1, ..., n + gamma - 1.")


@checker
def check_block_mask(block_mask):
    """`block_mask(context_length, gamma)`: boolean [gamma, n + gamma], True where slot (row) may see key (column)."""
    sees_context, inside = torch.ones(3, 5), torch.ones(3, 3)
    name_mistake(finished(block_mask(5, 3)), torch.cat([sees_context, inside], 1), {
        "this is the target's causal mask; the slots of a block see each other in both directions.":
            torch.cat([sees_context, inside.tril()], 1),
        "the slots do not see one another; keys are the context and the whole block.":
            torch.cat([sees_context, 0 * inside], 1),
        "each slot sees only itself inside the block; it sees all slots.": torch.cat([sees_context, torch.eye(3)], 1),
        "the slots do not see the context; without it the block knows nothing but the anchor.":
            torch.cat([0 * sees_context, inside], 1),
        "there is a row for every key; queries come from the block alone, so there are gamma rows.": torch.ones(8, 8),
    }, "the mask does not let every slot see the whole context and the whole block.")
