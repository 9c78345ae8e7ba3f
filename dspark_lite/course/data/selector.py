"""DFlash 2's selector as a head of a DSpark: a few candidates for each position, and a walk that
scores pairs of them.

Published in August 2026: 16 candidates from the backbone's logits, a low-rank score of adjacent
pairs with a gate from the hidden state, and one walk from the anchor. At a temperature above 0 only
candidates have probability. The score is lesson 05's gated head. The convolution around each
sublayer is left out.
"""

import torch

from ...decoding.sampling import draw, probabilities
from ...drafters.dspark import DSpark

CANDIDATES = 16


class Selector(DSpark):
    """A DSpark whose gated head chooses among the CANDIDATES most probable tokens of each
    position."""

    def draw_block(self, hidden: torch.Tensor, anchor: torch.Tensor, temperature: float, generator):
        """Return drawn tokens [B, g], their logits [B, g, V] (-inf for a token that is no
        candidate) and their probabilities, as DSpark's does."""
        base = self.over_target(self.lm_head(hidden))  # [B, g, V]
        scores, candidates = base.topk(min(CANDIDATES, base.shape[-1]), -1)  # [B, g, K]
        previous, state, drawn = anchor, self.markov_head.begin(hidden), []
        for k in range(hidden.shape[1]):
            bias, state = self.markov_head.step(previous, hidden[:, k], state)  # [B, V]
            chosen = scores[:, k] + bias.gather(-1, candidates[:, k])
            logits = torch.full_like(base[:, k], -torch.inf).scatter(-1, candidates[:, k], chosen)
            probs = probabilities(logits, temperature)
            previous = draw(probs, generator)
            drawn.append((previous, logits, probs))
        return tuple(torch.stack(part, 1) for part in zip(*drawn))
