"""Case 09: a confidence head that reads the token it judges. Case 10: a policy that looks past the stop."""

from collections.abc import Callable
from typing import NamedTuple

import torch

from dspark_lite.course.own_decoder import verifying
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness.enumeration import output_distribution, total_variation
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, appendix_a
from dspark_lite.scheduling.policies import algorithm1, retrospective, threshold

from .case_02 import likeliest
from .recorded import Recorded, Rows


class Scheduled(NamedTuple):
    """A drafter's tables, its confidences, a policy, and the rule; `late` lets the head read the token that it judges."""

    policy: Callable
    confidence: tuple[float, float]
    first: float
    late: bool = False
    rule: Callable = verifying.verify
    claimed: tuple = ()  # the table that is claimed, where drafts are drawn from another


class Judging(ToyDrafter):
    """A drafter whose head may read the token that it judges, or that claims another table than it draws from."""

    late, claimed = False, None

    def propose(self, state, anchor, **how):
        proposal = super().propose(state, anchor, **how)
        logits, probs = proposal.confidence_logits, proposal.probs
        if self.late:
            logits = self.confidence[proposal.tokens].logit()
        if self.claimed is not None:
            probs = self.claimed[torch.cat([anchor[:, None], proposal.tokens[:, :-1]], 1)]
        return Proposal(proposal.tokens, probs, logits)


def scheduled_measured(program: Scheduled, target, table) -> dict[str, Rows]:
    """Enumerate answers of a target over two words, 0 and 1, whose drafter draws from `table` [2, 2]."""

    def texts(program, target=target, table=table):
        drafter = Judging(table, program.first, program.confidence, gamma=2)
        drafter.late = program.late
        if program.claimed:
            drafter.claimed = torch.tensor(program.claimed)
        found = output_distribution(
            target, drafter, program.policy, length=2, rule=verifying.as_accept(program.rule)
        )
        wanted = output_distribution(target, None, None, length=2)
        second = sum(share for tokens, share in found.items() if tokens[1] == 1)
        return f"{total_variation(found, wanted):.3f}", f"{second:.3f}"

    onehot = likeliest(target.table)
    level = program._replace(confidence=(program.first, program.first))
    return {
        "greedy texts": {
            "total variation": texts(
                program._replace(claimed=()), ToyTarget(onehot), likeliest(torch.tensor(table))
            )[0]
        },
        "texts at temperature 1": {"total variation": texts(program)[0]},
        "seen": {
            "“no” as the second word": texts(program)[1],
            "by the target": f"{wanted_no(target):.3f}",
        },
        "whole blocks": {"total variation": texts(program._replace(policy=None))[0]},
        "equal confidences": {"total variation": texts(level)[0]},
        "another first draft": {
            "drafted “yes”": f"confidence {confidence_of_first(program, 0):.2f}",
            "drafted “no”": f"confidence {confidence_of_first(program, 1):.2f}",
        },
    }


def wanted_no(target) -> float:
    """Return how often the target's second word is 1."""
    wanted = output_distribution(target, None, None, length=2)
    return sum(share for tokens, share in wanted.items() if tokens[1] == 1)


def confidence_of_first(program: Scheduled, word: int) -> float:
    """Return the first draft's confidence if it is this word."""
    return program.confidence[word] if program.late else program.first


def one_place_on(proposal) -> torch.Tensor:
    """Verify a draft if the confidence of the draft after it is high."""
    return (proposal.confidence[:, 1:] >= 0.5).long().cumprod(-1).sum(-1)


def case_09() -> Recorded:
    half = [[0.5, 0.5], [0.5, 0.5]]
    right = Scheduled(threshold(0.5), (0.9, 0.1), 0.9)
    drawn = ((0.8, 0.2), (0.8, 0.2))
    return Recorded(
        right,
        {
            "the head reads the token that it judges": right._replace(late=True),
            "the head is too sure": right._replace(confidence=(0.99, 0.4), first=0.99),
            "the threshold reads the confidence of the next place": right._replace(
                policy=one_place_on
            ),
            "q is not what the drafts were drawn from": right._replace(claimed=drawn),
        },
        lambda program: scheduled_measured(program, ToyTarget(half), half),
    )


def case_10() -> Recorded:
    target, drafter, costs = appendix_a()
    right = Scheduled(algorithm1(costs), (0.9, 0.0), 0.8)
    return Recorded(
        right,
        {
            "the scheduler looks past its stop": right._replace(policy=retrospective(costs)),
            "the cost table is another machine's": right._replace(
                policy=algorithm1(type(costs)([1, 2, 3], [1.0, 0.99, 0.98]))
            ),
            "the head is too sure": right._replace(confidence=(1.0, 0.9), first=1.0),
            "the head reads the token that it judges": right._replace(late=True),
            "after a refusal it draws from p": right._replace(
                rule=verifying.variant(correction=lambda p, q, k: p[k])
            ),
        },
        lambda program: scheduled_measured(program, target, drafter.table.tolist()),
    )
