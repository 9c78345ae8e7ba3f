"""Checkers of lesson 10: the order of admission, expected throughput, where Algorithm 1 stops, a lagged budget."""

import torch

from ..cost_table import CostTable
from ..scheduling import global_optimum, schedule, survival, top_k
from .checking import Mistake, checker, finished, name_mistake


@checker
def check_order(admission_order):
    """`admission_order(confidence)`: pairs (request, position), both from 0, in the order of their admission."""
    confidence = torch.tensor([[0.9, 0.8, 0.5], [0.6, 0.95, 1.0]])
    by_position = [(r, k) for k in range(3) for r in range(2)]
    alive = survival(confidence)

    def by(value, tokens=by_position, sign=-1):
        return sorted(tokens, key=lambda token: sign * value[token].item())

    answer = [tuple(int(index) for index in token) for token in finished(admission_order(confidence))]
    name_mistake(answer, by(alive), {
        "you sorted by confidence. That of a late position can exceed that of an early one, so prefixes get holes; "
        "sort by survival, the product of confidences up to the position.": by(confidence),
        "of two equal survivals of one block the later position came first, which leaves a hole; break ties by "
        "position.": by(alive, by_position[::-1]),
        "the lowest survival came first; begin with the highest.": by(alive, sign=1),
        "you went request by request; all tokens of the batch compete, so sort them together.": sorted(by_position),
        "you went position by position; a sure second draft comes before another request's doubtful first.":
            by_position,
        "the pairs are (position, request); write (request, position).": [(k, r) for r, k in by(alive)],
    }, "sort the pairs (request, position) by survival, the highest first, ties by position.")


@checker
def check_theta(expected_throughput):
    """`expected_throughput(admitted, requests, cost_table)`: theta for the survivals `admitted`, a list."""
    table = CostTable(range(1, 9), [100, 96, 90, 81, 75, 60, 58, 50])
    cases = [([], 2), ([0.9], 2), ([0.9, 0.7, 0.4], 2), ([0.8, 0.5], 3)]

    def of(rule):
        return [rule(sum(admitted), len(admitted), requests) for admitted, requests in cases]

    answer = [float(finished(expected_throughput(admitted, requests, table))) for admitted, requests in cases]
    name_mistake(answer, of(lambda alive, count, anchors: (anchors + alive) * table(anchors + count)), {
        "the anchors are missing from B: each request sends one token into the pass besides its drafts.":
            of(lambda alive, count, anchors: (anchors + alive) * table(count)),
        "the anchors are missing from tau: each request commits one token of the target's own besides its drafts.":
            of(lambda alive, count, anchors: alive * table(anchors + count)),
        "the anchors are missing, from B and from tau: each request verifies and commits one token besides its drafts.":
            of(lambda alive, count, anchors: alive * table(count)),
        "you counted one anchor for the whole batch; there is one a request.":
            of(lambda alive, count, anchors: (1 + alive) * table(1 + count)),
        "every admitted draft is counted as accepted; it commits a token only with its survival's chance.":
            of(lambda alive, count, anchors: (anchors + count) * table(anchors + count)),
        "tau is divided by SPS. SPS is steps a second, so tokens a step times SPS are tokens a second.":
            of(lambda alive, count, anchors: (anchors + alive) / table(anchors + count)),
        "that is tau a request; theta counts the tokens of the whole batch.":
            of(lambda alive, count, anchors: (anchors + alive) / anchors * table(anchors + count)),
    }, "theta = (requests + sum of admitted survivals) * SPS(requests + number admitted).")


@checker
def check_stop(admitted):
    """`admitted(theta)`: how many tokens Algorithm 1 admits, from theta [n + 1] after 0, 1, ... n of them."""
    cases = [[2.0, 2.5, 2.4, 2.7, 3.0, 2.9], [3.0, 2.9, 3.2], [1.0, 1.5, 1.5, 1.8], [1.0, 1.1, 1.2],
             [2.0, 2.6, 2.2, 2.3, 1.9, 2.8], [1.0]]

    def of(rule):
        return [rule(torch.tensor(theta, dtype=torch.double)) for theta in cases]

    def leading(keeps):
        return int(keeps.long().cumprod(0).sum())

    answer = [float(finished(admitted(torch.tensor(theta, dtype=torch.double)))) for theta in cases]
    right = of(lambda theta: leading(theta.diff() > 0))
    name_mistake(answer, right, {
        "that is the highest theta of all. A place behind the first fall is reached because of survivals that were "
        "computed from drafts already drawn: lossy. Stop at the first token that does not raise theta.":
            of(lambda theta: int(theta.argmax())),
        "you went on after a token failed and admitted whatever beats the best so far; the first failure ends it.":
            of(lambda theta: sum(int(theta[k] > theta[:k].max()) for k in range(1, len(theta)))),
        "you counted every rise, those behind the first fall too; the first failure ends it.":
            of(lambda theta: int((theta.diff() > 0).sum())),
        "a token that leaves theta as it is was admitted; it must raise theta.":
            of(lambda theta: leading(theta.diff() >= 0)),
        "the token that failed is counted too; it is not admitted.":
            of(lambda theta: min(leading(theta.diff() > 0) + 1, len(theta) - 1)),
        "each theta is compared with the first one, that of no drafts; compare it with the one before it.":
            of(lambda theta: leading(theta[1:] > theta[0])),
        "that is off by one: theta[0] stands for no drafts.":
            of(lambda theta: leading(theta.diff() > 0) - 1),
        "that is a theta; return the number of tokens.":
            of(lambda theta: theta[leading(theta.diff() > 0)].item()),
    }, "count the rises of theta before the first value that is not above the one before it.")


@checker
def check_lagged(lagged_lengths):
    """`lagged_lengths(old, current, cost_table)`: lengths [R] from survivals two steps old and from those of now."""
    table = CostTable(range(1, 13), [98, 97, 96, 95, 94, 80, 79, 66, 66, 63, 50, 50])
    old = torch.tensor([[0.75, 0.74, 0.73], [0.73, 0.72, 0.71], [0.72, 0.71, 0.70]])
    current = torch.tensor([[0.3, 0.1, 0.02], [0.95, 0.92, 0.9], [0.9, 0.85, 0.7]])
    budget, own = global_optimum(old, table).sum(), global_optimum(current, table).sum()
    answer = torch.as_tensor(finished(lagged_lengths(old, current, table)))
    if answer.shape == ():
        raise Mistake("that is one number for the whole batch; hand the budget out with top_k.")
    name_mistake(answer, top_k(current, budget), {
        "the budget comes from the current survivals, which know what was drawn: that is the retrospective choice. "
        "Take it from the old ones.": top_k(current, own),
        "these are the lengths that were right two steps ago. That is lossless, but the places go to requests whose "
        "new drafts may be weak; take only the sum from the old survivals.": global_optimum(old, table),
        "the budget was found with the early stop. The old draws are over and can bias nothing, so search without it.":
            top_k(current, schedule(old, table).sum()),
        "that is Algorithm 1 on the current survivals; here the budget is to be known before this step's drafts.":
            schedule(current, table),
        "old and current are swapped: the old survivals set the budget, the current ones hand it out.": top_k(old, own),
        "the anchors are in the budget; it counts drafts, and anchors always go in.": top_k(current, budget + len(old)),
    }, "the budget is the sum of the lengths that are best for the old survivals; top_k hands it out by the current.")
