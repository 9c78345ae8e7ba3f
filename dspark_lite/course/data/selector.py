"""DFlash 2's selector, as a head behind DSpark's protocol: a few candidates for each position, and a walk that scores pairs of them.

Published in August 2026: 16 candidates from the backbone's own logits, a low-rank score of adjacent pairs under a gate from the hidden
state, one walk from the anchor; at a temperature above 0 the draft distribution lives on the candidates. The score is lesson 05's gated
head. What is left out is a convolution around each sublayer.
"""

import torch

from dspark_lite.drafters.dspark import DSpark
from dspark_lite.decoding.sampling import draw, probabilities

CANDIDATES = 16


class Selector(DSpark):
    """A DSpark with a gated head that chooses among the CANDIDATES most probable tokens of each position's base logits."""

    def draw_block(self, hidden: torch.Tensor, anchor: torch.Tensor, temperature: float, generator):
        """As DSpark's: tokens [B, g], the logits [B, g, V] they were drawn from (-inf for what is no candidate), and their probabilities."""
        base = self.over_target(self.lm_head(hidden))  # [B, g, V]
        kept, candidates = base.topk(min(CANDIDATES, base.shape[-1]), -1)  # [B, g, K]
        previous, state, drawn = anchor, self.markov_head.begin(hidden), []
        for k in range(hidden.shape[1]):
            bias, state = self.markov_head.step(
                previous, hidden[:, k], state
            )  # [B, V]; of it the candidates' are wanted
            chosen = kept[:, k] + bias.gather(-1, candidates[:, k])
            logits = torch.full_like(base[:, k], -torch.inf).scatter(-1, candidates[:, k], chosen)
            probs = probabilities(logits, temperature)
            previous = draw(probs, generator)
            drawn.append((previous, logits, probs))
        return tuple(torch.stack(part, 1) for part in zip(*drawn))
