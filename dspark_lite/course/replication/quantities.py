"""Quantities that the paper's claims compare, built of those that `experiment_results`, `confidence_results` and
`serving_results` measure; and the example of Appendix A, which is computed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache

import torch

from ...losslessness import enumeration, toys
from ...scheduling import policies as scheduling
from ..estimates import RESULTS, Estimate, Quantity, mean_of
from .experiment_results import DRAFT_LENGTHS, Acceptance, Draft, Length, gain
from .serving_results import HEAVY, Served

FIRST, LAST = 1, 7  # the positions between which Figure 2's lines fall or rise
SERVED = "lagged"  # the policy of the production system
APPENDIX_THROUGHPUT = ("0 drafts:", "1 draft:", "2 drafts:")
APPENDIX_OUTPUT = ("retrospective, A:", "retrospective, B:", "lossless, A:", "lossless, B:")
EXACT = 1e-6  # rounding of a number that is computed, not measured


@dataclass(frozen=True)
class Computed(Quantity):
    """A number that a function computes from our measurements, without an interval but for `rounding`."""

    function: Callable[..., float]
    arguments: tuple = ()
    rounding: float = 0.0

    def estimate(self, source: str = RESULTS) -> Estimate:
        """Return the number."""
        number = self.function(*self.arguments)
        return Estimate(number, number - self.rounding, number + self.rounding)


def fall(draft: Draft, domains: Iterable[str]) -> Quantity:
    """Return how far conditional acceptance falls from the first position to the last, the mean over domains."""
    return mean_of(
        Acceptance(draft, domain, FIRST) - Acceptance(draft, domain, LAST) for domain in domains
    )


def longer(draft: Draft, other: Draft) -> Quantity:
    """Return how many tokens longer one draft is accepted than another, in the mean over the domains."""
    return Length(draft, "all") - Length(other, "all")


def length_gain(
    place: str, length: int, drafter: str = "dspark", rival: str = "dflash"
) -> Quantity:
    """Return how much longer one drafter is accepted than another at a draft length of Figure 4, as a fraction."""
    return gain(DRAFT_LENGTHS[drafter, length], DRAFT_LENGTHS[rival, length], place)


def static_loss(length: int) -> Quantity:
    """Return how much more throughput MTP-1 gives at HEAVY load than a DSpark that always verifies `length` drafts, as a fraction."""
    static = Served("throughput", "dspark", f"fixed {length}", HEAVY)
    return Served("throughput", "mtp", "all", HEAVY) / static - 1


@cache
def appendix_a_numbers() -> dict[str, float]:
    """Return the numbers of Appendix A: throughput of 0, 1, 2 drafts in case 1, and the output distribution of the
    retrospective scheduler and of Algorithm 1."""
    target, drafter, table = toys.appendix_a()
    confidence_of_case_1 = torch.tensor([[drafter.first_confidence, drafter.confidence[0]]])
    _, theta = scheduling.throughput(scheduling.survival(confidence_of_case_1), table)
    numbers = dict(zip(APPENDIX_THROUGHPUT, theta.tolist()))
    policies = (scheduling.retrospective(table), scheduling.algorithm1(table))
    outputs = [
        enumeration.marginal(enumeration.output_distribution(target, drafter, policy, 3), 1)
        for policy in policies
    ]
    return numbers | dict(
        zip(APPENDIX_OUTPUT, (output[token] for output in outputs for token in (0, 1)))
    )


def appendix_a(label: str) -> Quantity:
    """Return the number of Appendix A with this label."""
    return Computed(lambda: appendix_a_numbers()[label], rounding=EXACT)
