"""Direct acceptance: a fourth loss, which is the number that the others stand for (asked for as pull request 58 of DeepSpec).

A draft of the text is accepted with alpha_k = 1 - L1_k / 2, and the prefix up to it with the product of alpha_1 .. alpha_k; a
block's expected number of accepted drafts is the sum of these products. Training raises it where a recipe's loss has
"acceptance": its factor. Unlike the three losses of the paper it weighs a position by how often a round gets there, and a
position behind one that fails learns little, so it is added to them rather than put in their place.
"""

import torch

from .losses import RELEASED_DECAY, position_weights


def acceptance_loss(draft_logits: torch.Tensor, target_logits: torch.Tensor, loss_mask: torch.Tensor,
                    decay: float = RELEASED_DECAY) -> torch.Tensor:
    """Minus the expected accepted drafts of each block, weighted as the block's other losses are and summed.

    Logits [B, K, g, V], mask [B, K, g]; over the sum of weights (losses.py) it is minus the mean, between -g and 0.
    """
    distance = (torch.softmax(draft_logits.float(), -1) - torch.softmax(target_logits.float(), -1)).abs().sum(-1)
    expected = expected_accepted(1 - distance / 2, loss_mask)
    weight = (position_weights(loss_mask.shape[-1], loss_mask.device, decay) * loss_mask).sum(-1)  # of a block, [B, K]
    return -(expected * weight).sum()


def expected_accepted(acceptance: torch.Tensor, loss_mask: torch.Tensor) -> torch.Tensor:
    """How many drafts of each block are accepted on average, [B, K], from the chance of each, [B, K, g]."""
    return (acceptance.cumprod(-1) * loss_mask).sum(-1)
