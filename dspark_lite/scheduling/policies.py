"""Policies turn proposals into verification lengths: how much of a drafted block to verify.

A policy (decoding/proposal.py) gives lengths [R], each from 0 to a whole block; what goes beyond the
drafted length is cut. The proposal holds the blocks of all requests that share a step. A policy
keeps the output distribution exact if its decision about position k of a request looks at nothing
drawn at k or later (paper, section 3.2.2 and Appendix A).
"""

from typing import Protocol

import torch

from ..common.errors import RequestError
from ..decoding.proposal import Memoryless, Policy, Proposal

# Steps between the confidences that set a budget and the step that spends it (paper, section 5.2)
LAG = 2


class Costs(Protocol):
    """The cost of a step with `requests` requests that verifies `tokens` tokens (a number or a
    range), anchors included. Raise RequestError beyond what was measured.
    A table of steps per second is one (cost_table.py), a fitted line another (additive_costs.py).
    """

    max_batch_tokens: int

    def most_tokens(self, requests: int) -> int:
        """Return the largest batch of `requests` requests whose cost is known, in tokens. With 0,
        nothing is verified."""

    def seconds(self, requests: int, tokens: int | range) -> float | torch.Tensor:
        """Return the seconds of a step; float64 [n] for a range of n."""

    def sps(self, requests: int, tokens: int | range) -> float | torch.Tensor:
        """Return SPS, the steps per second, of a step that verifies `tokens` tokens."""


def fixed(length: int) -> Policy:
    """Return the policy that verifies the first `length` tokens of every block."""
    if length < 0:
        raise RequestError(f"the verification length is {length}; it must be 0 or more")

    def policy(proposal: Proposal) -> torch.Tensor:
        batch, drafted = proposal.tokens.shape
        return torch.full((batch,), min(length, drafted))

    return Memoryless(policy)


def threshold(least: float) -> Policy:
    """Return the policy that cuts a block at the first position whose confidence is below `least`."""

    return Memoryless(
        lambda proposal: (confidence_of(proposal) >= least).long().cumprod(-1).sum(-1)
    )


def algorithm1(cost_table: Costs) -> Policy:
    """Return the paper's scheduler: `schedule` on the survival of all requests of the step."""
    return Memoryless(lambda proposal: schedule(survival(confidence_of(proposal)), cost_table))


def retrospective(cost_table: Costs) -> Policy:
    """Return the lengths that maximise expected tokens per second over the whole blocks: the
    tempting mistake of Appendix A.

    Survival after a position depends on the token drawn there, so that token takes part in the
    decision to verify it: lossy.
    """
    return Memoryless(
        lambda proposal: global_optimum(survival(confidence_of(proposal)), cost_table)
    )


class LaggedTopK:
    """The scheduler of the production system (section 5.2): the optimum of the survivals `lag` steps
    ago is the budget, and the tokens with the highest current survival fill it. Lossless, because
    the budget is older than all draws of the step (docs/scheduling.md compares it to Algorithm 1).
    """

    def __init__(self, cost_table: Costs, lag: int = LAG):
        if lag < 1:
            raise RequestError(
                f"the lag is {lag} steps; at 0 a draw would decide about itself, so it must be 1 or more"
            )
        self.cost_table, self.lag = cost_table, lag
        self.begin()

    def begin(self) -> None:
        """Forget the survivals of earlier steps."""
        self.memory: tuple[torch.Tensor, ...] = ()  # the survivals of the last `lag` steps

    def __call__(self, proposal: Proposal) -> torch.Tensor:
        current = survival(confidence_of(proposal)).cpu()
        old = self.memory[0] if len(self.memory) == self.lag else torch.ones_like(current)
        self.memory = (*self.memory, current)[-self.lag :]
        return top_k(
            current, global_optimum(resample_rows(old, len(current)), self.cost_table).sum()
        )


def resample_rows(survivals: torch.Tensor, requests: int) -> torch.Tensor:
    """Resample the rows of survivals [R, g] evenly to `requests` rows."""
    rows = len(survivals)
    if rows == requests:
        return survivals
    return survivals[torch.arange(requests, device=survivals.device) * rows // requests]


def survival(confidence: torch.Tensor) -> torch.Tensor:
    """Return the probability [R, g] that the prefix up to each position survives: the product of
    confidences (section 3.2.2)."""
    return confidence.cumprod(-1)


def schedule(survival: torch.Tensor, cost_table: Costs) -> torch.Tensor:
    """Return the verification lengths [R] of Algorithm 1 for survival probabilities [R, g].

    Tokens of survival above 0 are admitted in the order of their survival as long as each one
    raises the expected throughput theta = (R + sum of admitted survivals) * SPS(R + admitted). The
    first token that does not stops the search, because later survivals may depend on its draw. Ties
    are admitted by position, then by request. A batch never grows beyond what the table covers;
    where it does not even cover the anchors, nothing is verified. Raise RequestError for survivals
    that are not probabilities or grow along a block.
    """
    survival = survival.cpu()
    order, theta = throughput(survival, cost_table)
    # Behind the last token there is nothing to admit.
    fails = torch.ones_like(theta, dtype=torch.uint8)
    torch.le(theta[1:], theta[:-1], out=fails[:-1])
    candidates = (survival > 0).sum()  # those of survival 0 are last in the order
    return _lengths(order, torch.minimum(fails.argmax(), candidates), survival.shape)


def global_optimum(survivals: torch.Tensor, cost_table: Costs) -> torch.Tensor:
    """Return verification lengths [R] with the highest expected throughput of all, the smallest
    batch where several have it.

    Lossy when the survivals are those of the step's own draws (`retrospective`).
    """
    order, theta = throughput(survivals, cost_table)
    return _lengths(order, theta.argmax(), survivals.shape)


def top_k(survivals: torch.Tensor, budget) -> torch.Tensor:
    """Return verification lengths [R] that give `budget` tokens, an int or a scalar tensor, to the
    highest survivals [R, g]."""
    order, _ = _by_survival(survivals)
    return _lengths(order, budget, survivals.shape)


def throughput(survivals: torch.Tensor, cost_table: Costs) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the order in which tokens would be admitted, and the expected tokens per second
    (float64) after 0, 1, ... of them. If the costs do not cover the anchors, no token is
    admitted and the second is [R] alone, in tokens per step.

    The order holds indices into the positions-first view, position * R + request.
    """
    order, ranked = _by_survival(survivals)
    requests, drafted = survivals.shape
    most = cost_table.most_tokens(requests)
    covered = min(requests * drafted, max(most - requests, 0))
    expected = torch.cat([ranked.new_tensor([requests]), ranked[:covered]]).cumsum(0)
    if requests > most:
        return order, expected
    return order, expected * cost_table.sps(requests, range(requests, requests + covered + 1))


def _by_survival(survivals: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return positions-first indices and float64 survivals, highest first; ties by position, so a
    prefix never has holes.

    Both are on the host, which reads the survivals [R, g] once. Raise RequestError unless they are
    probabilities that never grow along a block.
    """
    if survivals.ndim != 2:
        raise RequestError(
            f"survival has shape {tuple(survivals.shape)}; it must be [requests, positions]"
        )
    survivals = survivals.cpu()
    ranked, order = survivals.t().flatten().sort(descending=True, stable=True)  # nan comes first
    ranked = ranked.double()
    falling = (survivals[:, 1:] <= survivals[:, :-1]).all()
    if len(ranked) and not (falling and ranked[0] <= 1 and ranked[-1] >= 0):
        raise RequestError(
            "survival holds a number that is not a probability or is larger than the one before it; give "
            "the running product of confidences between 0 and 1"
        )
    return order, ranked


def _lengths(order: torch.Tensor, admitted, shape) -> torch.Tensor:
    """Return how many of the first `admitted` tokens belong to each request, [R]."""
    return torch.bincount(order[:admitted] % max(shape[0], 1), minlength=shape[0])


def confidence_of(proposal: Proposal) -> torch.Tensor:
    """Return the confidences [R, g] of drafted blocks. Raise RequestError where the drafter has no
    confidence head."""
    if proposal.confidence_logits is None:
        raise RequestError(
            "this policy needs a confidence head, and the drafter has none; use a DSpark drafter or a "
            "fixed length"
        )
    return proposal.confidence
