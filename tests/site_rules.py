"""Random cases for the rules of the web edition's playground (tools/site/static/rules.js), with the package's answers."""

import torch

from dspark_lite.decoding.sampling import RandomSource, accept, residual
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.scheduling.policies import global_optimum, schedule, survival, throughput, top_k

CASES = 200
# What a script that has imported rules.js as `rules` answers to each kind of case.
ANSWERS = """({
    rule: ({ target, draft }) => ({ overlap: rules.overlap(target, draft), residual: rules.residual(target, draft) }),
    accept: ({ targets, drafts, tokens, coins, last }) => rules.accept(targets, drafts, tokens, coins, last),
    schedule: ({ confidences, alive, sizes, speeds, budget, least }) => {
        const table = rules.costTable(sizes, speeds), found = rules.throughput(alive, table);
        return {
            survival: confidences.map(rules.survival), theta: found.theta, schedule: rules.schedule(alive, table),
            optimum: rules.lengthsOf(found.order, rules.topOf(found), alive.length), topK: rules.topK(alive, budget),
            threshold: rules.thresholdLengths(confidences, least),
        };
    },
})"""


class Given(RandomSource):
    """Coins and a number that are given beforehand, in place of a generator's."""

    def __init__(self, coins, last):
        self.coins, self.last = coins, last

    def accepted_prefix_length(self, keep):
        return (self.coins < keep).long().cumprod(-1).sum(-1)

    def draw(self, probs):
        return (probs.double().cumsum(-1) <= self.last).sum(-1)


def distributions(*shape, generator):
    """Random distributions; a third of the weights is 0."""
    weights = torch.rand(shape, generator=generator) * (torch.rand(shape, generator=generator) > 1 / 3)
    weights[..., 0] += 0.01
    return weights / weights.sum(-1, keepdim=True)


def rule_case(generator):
    """Two distributions (now and then the same one), how much they overlap and what is owed."""
    target, draft = distributions(2, 5, generator=generator)
    draft = target if torch.rand((), generator=generator) < 0.1 else draft
    answer = {"overlap": torch.minimum(target, draft).sum().item(), "residual": residual(target, draft).tolist()}
    return {"target": target.tolist(), "draft": draft.tolist()}, answer


def accept_case(generator):
    """A block of up to four drafts, and what is kept and drawn after it."""
    gamma = int(torch.randint(1, 5, (), generator=generator))
    targets, drafts = distributions(gamma + 1, 4, generator=generator), distributions(gamma, 4, generator=generator)
    tokens = torch.multinomial(drafts, 1, generator=generator)[:, 0]
    coins, last = torch.rand(gamma, generator=generator), torch.rand((), generator=generator).double() * 0.999
    verdict = accept(targets[None], drafts[None], tokens[None], None, Given(coins, last))
    case = {"targets": targets, "drafts": drafts, "tokens": tokens, "coins": coins, "last": last}
    return {name: tensor.tolist() for name, tensor in case.items()}, {
        "accepted": verdict.accepted.item(),
        "next": verdict.next_token.item(),
    }


def schedule_case(generator):
    """Confidences (with ties, and zeros), a cost table with bumps that may end early, a budget, a threshold."""
    requests, gamma = (int(torch.randint(1, most, (), generator=generator)) for most in (6, 6))
    confidence = (torch.rand(requests, gamma, generator=generator) * 8).round() / 8
    alive = survival(confidence)
    last = requests + int(torch.randint(0, requests * gamma + 1, (), generator=generator))
    sizes = sorted({1, last, *torch.randint(1, last + 1, (4,), generator=generator).tolist()})
    speeds = (100 * torch.rand(len(sizes), generator=generator).sort(descending=True).values + 20).double()
    table, budget, least = (
        CostTable(sizes, speeds),
        int(torch.randint(0, requests * gamma + 1, (), generator=generator)),
        0.45,
    )
    answer = {
        "survival": alive,
        "theta": throughput(alive, table)[1],
        "schedule": schedule(alive, table),
        "optimum": global_optimum(alive, table),
        "topK": top_k(alive, budget),
        "threshold": (confidence >= least).long().cumprod(-1).sum(-1),
    }
    case = {
        "confidences": confidence.tolist(),
        "alive": alive.tolist(),
        "sizes": sizes,
        "speeds": speeds.tolist(),
        "budget": budget,
        "least": least,
    }
    return case, {name: tensor.tolist() for name, tensor in answer.items()}


def cases() -> dict[str, list[tuple[dict, dict]]]:
    """CASES pairs of a case and the package's answer, of each kind."""
    generator = torch.Generator().manual_seed(0)
    return {
        kind: [make(generator) for _ in range(CASES)]
        for kind, make in (("rule", rule_case), ("accept", accept_case), ("schedule", schedule_case))
    }


def differing(answer, expected) -> bool:
    """Whether two answers of the same form differ; numbers may by a millionth."""
    if isinstance(expected, dict):
        return answer.keys() != expected.keys() or any(
            differing(answer[name], value) for name, value in expected.items()
        )
    if isinstance(expected, list):
        return len(answer) != len(expected) or any(map(differing, answer, expected))
    return answer != expected if isinstance(expected, int) else abs(answer - expected) > 1e-6 * max(1, abs(expected))
