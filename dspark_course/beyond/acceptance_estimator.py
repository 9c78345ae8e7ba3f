"""Confidence without a confidence head: a drafter's own certainty, fitted to what becomes of its drafts while it runs.

The chance that a draft survives, given that its predecessors did, is sigmoid(slope * margin + intercept_k): `margin` is how
far the draft distribution's most probable token is ahead of the second, in log probability, and k the position in the
block. It depends on what was drawn before k and not on the token drawn at k, so a policy that cuts by it stays lossless.
Slope and intercepts follow Newton's method for logistic regression, a step every so many observed blocks (vLLM 0.32 schedules
drafters without a head by such an estimate).
"""

import torch
import torch.nn.functional as F

from dspark_lite.common.errors import RequestError
from dspark_lite.decoding.proposal import Drafter, Proposal
from dspark_lite.decoding.sampling import LEAST_TEMPERATURE

LARGEST_MARGIN = 40.0  # of a distribution that is all on one token
SLOPE, INTERCEPT = 0.5, 0.0  # before anything was observed
REFIT = 100  # observed blocks between two fits
KEPT = 0.98  # of what earlier blocks weigh, at each fit: about fifty fits are remembered
RIDGE = 1.0  # what the first coefficients weigh, in observations of about a quarter each


def margins(probs: torch.Tensor) -> torch.Tensor:
    """How far the first token is ahead of the second, [...], in log probability, of distributions [..., V]."""
    first, second = probs.topk(2, -1).values.clamp(min=torch.finfo(probs.dtype).tiny).log().unbind(-1)
    return (first - second).clamp(max=LARGEST_MARGIN)


class AcceptanceEstimator:
    """Slope and intercepts [gamma] of the chance that a draft of a margin survives at its position; `learn` fits them."""

    def __init__(self, gamma: int, refit: int = REFIT):
        self.refit = refit
        self.coefficients = torch.tensor([SLOPE, *[INTERCEPT] * gamma], dtype=torch.float64)  # slope, intercepts
        self._seen: list[tuple[torch.Tensor, int, int]] = []  # since the last fit: margins [g], how many observed, kept
        self._information = RIDGE * torch.eye(1 + gamma, dtype=torch.float64)

    def logits(self, found: torch.Tensor) -> torch.Tensor:
        """Float32 confidence logits [..., g] of margins [..., g]."""
        slope, intercepts = self.coefficients[0], self.coefficients[1:1 + found.shape[-1]]
        return (slope.to(found) * found + intercepts.to(found)).float()

    def learn(self, found: torch.Tensor, verified: int, accepted: int) -> None:
        """Takes in what became of a block with margins [g] of which `verified` drafts were verified and `accepted` kept.

        The kept ones and the first that was not are observed; what stands after it was never judged.
        """
        self._seen.append((found, min(accepted + 1, verified), accepted))
        if len(self._seen) >= self.refit:
            self._fit()

    def _fit(self) -> None:
        """One step of Newton's method: the gradient of the blocks since the last one, by the information of all that are
        remembered, so that steps grow smaller as it grows. The slope never falls below zero."""
        # Margins [n] of all observed drafts: the device is read once a fit.
        found = torch.cat([found[:observed] for found, observed, _ in self._seen]).double().cpu()
        position = torch.cat([torch.arange(observed) for _, observed, _ in self._seen])
        label = torch.cat([torch.arange(observed) < accepted for _, observed, accepted in self._seen]).double()
        design = torch.cat([found[:, None], F.one_hot(position, len(self.coefficients) - 1)], 1)  # [n, 1 + gamma]
        chance = torch.sigmoid(design @ self.coefficients)
        self._information = self._information + design.T @ (design * (chance * (1 - chance))[:, None])
        step = torch.linalg.solve(self._information, design.T @ (label - chance))
        slope, intercepts = (self.coefficients + step).split([1, len(step) - 1])
        self.coefficients = torch.cat([slope.clamp(min=0), intercepts])
        self._information = KEPT * self._information + (1 - KEPT) * RIDGE * torch.eye(len(step), dtype=torch.float64)
        self._seen = []


class _Watched:
    """A drafter's state, and the margins [g] of the block drafted last."""

    def __init__(self, state):
        self.state, self.margins = state, torch.empty(0)


class WithEstimate(Drafter):
    """A drafter whose proposals carry an estimated confidence, which learns from each of its own rounds.

    Decoding is that of the drafter inside, with whatever policy. One request at a time, or several that share steps; not in the
    serving engine.
    """

    def __init__(self, drafter, estimator: AcceptanceEstimator | None = None):
        self.drafter, self.name, self.gamma, self.taps = drafter, drafter.name, drafter.gamma, drafter.taps
        self.estimator = estimator or AcceptanceEstimator(drafter.gamma)

    def begin(self, prompt_ids, features) -> _Watched:
        """The state after prompts [1, n]."""
        return _Watched(self.drafter.begin(prompt_ids, features))

    def propose(self, state: _Watched, anchor, *, gamma=None, temperature, generator) -> Proposal:
        """The block of the drafter inside, with estimated confidence; raises RequestError for greedy drafts, whose
        distributions are certain of every token."""
        if temperature < LEAST_TEMPERATURE:
            raise RequestError("a greedy draft's distribution is certain of its token, so its margin says nothing; estimate acceptance at a "
                               "temperature above 0, or use a drafter with a confidence head")
        proposal = self.drafter.propose(state.state, anchor, gamma=gamma, temperature=temperature, generator=generator)
        found = margins(proposal.probs)
        state.margins = found[0]
        return Proposal(proposal.tokens, proposal.probs, self.estimator.logits(found))

    def learn(self, state: _Watched, verified: int, accepted: int) -> None:
        """Learns from a round, which calls this before `extend`: of the block drafted last so many were verified, and so many kept."""
        self.estimator.learn(state.margins, verified, accepted)

    def extend(self, state: _Watched, token_ids, features) -> None:
        """Takes in the anchor and the accepted drafts."""
        self.drafter.extend(state.state, token_ids, features)
