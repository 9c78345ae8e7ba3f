"""Checkers of lesson 10: the order of admission, expected throughput, where Algorithm 1 stops, a lagged budget."""

import torch

from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.scheduling.policies import global_optimum, schedule, survival, top_k
from .checking import Exercise, Step


def by_position(confidence):
    """All pairs (request, position), position by position."""
    requests, gamma = confidence.shape
    return [(r, k) for k in range(gamma) for r in range(requests)]


def ranked(value, pairs, sign=-1):
    """Pairs by their value, the highest first, ties as they come."""
    return sorted(pairs, key=lambda pair: sign * value[pair].item())


def admission_order(confidence):
    """Pairs (request, position), both from 0, in the order of their admission."""
    return ranked(survival(confidence), by_position(confidence))


check_order = Exercise(admission_order, Step([
    (torch.tensor([[0.9, 0.8, 0.5], [0.6, 0.95, 1.0]]),), (torch.tensor([[0.9, 0.0], [0.7, 0.8]]),)], {
    "you sorted by confidence. That of a late position can exceed that of an early one, so prefixes get holes; sort by "
    "survival, the product of confidences up to the position.":
        lambda c: ranked(c, by_position(c)),
    "of two equal survivals of one block the later position came first, which leaves a hole; break ties by position.":
        lambda c: ranked(survival(c), by_position(c)[::-1]),
    "the lowest survival came first; begin with the highest.":
        lambda c: ranked(survival(c), by_position(c), sign=1),
    "you went request by request; all tokens of the batch compete, so sort them together.":
        lambda c: sorted(by_position(c)),
    "you went position by position; a sure second draft comes before another request's doubtful first.":
        by_position,
    "tokens of survival 0 are missing; list all, those come last.":
        lambda c: [(r, k) for r, k in admission_order(c) if survival(c)[r, k] > 0],
    "the pairs are (position, request); write (request, position).":
        lambda c: [(k, r) for r, k in admission_order(c)],
    "requests and positions count from 0.":
        (lambda c: [(r, k + 1) for r, k in admission_order(c)],
         lambda c: [(r + 1, k + 1) for r, k in admission_order(c)]),
    "the product runs over the requests; survival is the product along a block.":
        lambda c: ranked(c.cumprod(0), by_position(c)),
}, "sort the pairs (request, position) by survival, the highest first, ties by position."))


def expected_throughput(admitted, requests, cost_table):
    """theta for the survivals `admitted`, a list."""
    return (requests + sum(admitted)) * cost_table.sps(requests, requests + len(admitted))


RAGGED = CostTable(range(1, 9), [100, 96, 90, 81, 75, 60, 58, 50])
check_theta = Exercise(expected_throughput, Step(
    [([], 2, RAGGED), ([0.9], 2, RAGGED), ([0.9, 0.7, 0.4], 2, RAGGED), ([0.8, 0.5], 3, RAGGED)], {
        "the anchors are missing from B: each request sends one token into the pass besides its drafts.":
            lambda s, r, table: (r + sum(s)) * table.sps(r, len(s)),
        "the anchors are missing from tau: each request commits one token of the target's own besides its drafts.":
            lambda s, r, table: sum(s) * table.sps(r, r + len(s)),
        "the anchors are missing, from B and from tau: each request verifies and commits one token besides its drafts.":
            lambda s, r, table: sum(s) * table.sps(r, len(s)),
        "you counted one anchor for the whole batch; there is one per request.":
            lambda s, r, table: (1 + sum(s)) * table.sps(r, 1 + len(s)),
        "every admitted draft is counted as accepted; it commits a token only with its survival's chance.":
            lambda s, r, table: (r + len(s)) * table.sps(r, r + len(s)),
        "the survivals are summed for the whole batch already; do not multiply their sum by the requests.":
            lambda s, r, table: r * (1 + sum(s)) * table.sps(r, r + len(s)),
        "`admitted` holds survivals, not confidences: their products are taken already, so only sum them.":
            (lambda s, r, table: (r + torch.tensor(s).cumprod(0).sum()) * table.sps(r, r + len(s)),
             lambda s, r, table: (r + torch.tensor(s).prod()) * table.sps(r, r + len(s))),
        "B is off by one: it is the anchors and the admitted drafts, no token more or less.":
            (lambda s, r, table: (r + sum(s)) * table.sps(r, r + len(s) - 1),
             lambda s, r, table: (r + sum(s)) * table.sps(r, r + len(s) + 1)),
        "tau is divided by SPS. SPS is steps a second, so tokens per step times SPS are tokens a second.":
            lambda s, r, table: (r + sum(s)) / table.sps(r, r + len(s)),
        "that is tau per request; theta counts the tokens of the whole batch.":
            lambda s, r, table: (1 + sum(s) / r) * table.sps(r, r + len(s)),
    }, "theta = (requests + sum of admitted survivals) * SPS(requests + number admitted)."))


def leading(keeps):
    """An answer that counts the leading tokens for which `keeps(theta)` [n] holds."""
    return lambda theta: int(keeps(theta).long().cumprod(0).sum())


def admitted(theta):
    """How many tokens Algorithm 1 admits, from theta [n + 1] after 0, 1, ... n of them."""
    return leading(lambda theta: theta.diff() > 0)(theta)


THETAS = [[2.0, 2.5, 2.4, 2.7, 3.0, 2.9], [3.0, 2.9, 3.2], [1.0, 1.5, 1.5, 1.8], [1.0, 1.1, 1.2],
          [2.0, 2.6, 2.2, 2.3, 1.9, 2.8], [1.0]]
check_stop = Exercise(admitted, Step([(torch.tensor(theta, dtype=torch.double),) for theta in THETAS], {
    "that is the highest theta of all. A place after the first fall is reached because of survivals that were computed "
    "from drafts already drawn: lossy. Stop at the first token that does not raise theta.":
        lambda theta: theta.argmax(),
    "you went on after a token failed and admitted whatever beats the best so far; the first failure ends it.":
        lambda theta: sum(theta[k] > theta[:k].max() for k in range(1, len(theta))),
    "you counted every rise, those after the first fall too; the first failure ends it.":
        lambda theta: (theta.diff() > 0).sum(),
    "a token that leaves theta as it is was admitted; it must raise theta.":
        leading(lambda theta: theta.diff() >= 0),
    "the token that failed is counted too; it is not admitted.":
        (lambda theta: min(admitted(theta) + 1, len(theta) - 1), lambda theta: admitted(theta) + 1),
    "each theta is compared with the first one, that of no drafts; compare it with the one before it.":
        leading(lambda theta: theta[1:] > theta[0]),
    "that is off by one: theta[0] stands for no drafts.":
        lambda theta: admitted(theta) - 1,
    "you looked for the first token that fails, and where none fails found none; then all are admitted.":
        (lambda theta: next((k for k, rise in enumerate(theta.diff()) if rise <= 0), 0),
         lambda theta: (theta.diff() <= 0).int().argmax(),
         lambda theta: (theta.diff() <= 0).nonzero()[0],
         lambda theta: int((theta.diff() <= 0).nonzero()[0])),
    "that is a theta; return the number of tokens.":
        lambda theta: theta[admitted(theta)],
}, "count the rises of theta before the first value that is not above the one before it."))


def lagged_lengths(old, current, cost_table):
    """Lengths [R] from survivals two steps old and from those of now."""
    return top_k(current, global_optimum(old, cost_table).sum())


STAIRS = CostTable(range(1, 13), [98, 97, 96, 95, 94, 80, 79, 66, 66, 63, 50, 50])
OLD = torch.tensor([[0.75, 0.74, 0.73], [0.73, 0.72, 0.71], [0.72, 0.71, 0.70]])
CURRENT = torch.tensor([[0.3, 0.1, 0.02], [0.95, 0.92, 0.9], [0.9, 0.85, 0.7]])
check_lagged = Exercise(lagged_lengths, Step([(OLD, CURRENT, STAIRS)], {
    "the budget comes from the current survivals, which know what was drawn: that is the retrospective choice. Take it "
    "from the old ones.":
        (lambda old, now, table: global_optimum(now, table),
         lambda old, now, table: top_k(now, global_optimum(now, table).sum())),
    "these are the lengths that were right two steps ago. That is lossless, but the places go to requests whose new "
    "drafts may be weak; take only the sum from the old survivals.":
        lambda old, now, table: global_optimum(old, table),
    "the budget was found with the early stop. The old draws are over and can bias nothing, so search without it.":
        lambda old, now, table: top_k(now, schedule(old, table).sum()),
    "that is Algorithm 1 on the current survivals; here the budget is to be known before this step's drafts.":
        lambda old, now, table: schedule(now, table),
    "old and current are swapped: the old survivals set the budget, the current ones hand it out.":
        lambda old, now, table: top_k(old, global_optimum(now, table).sum()),
    "the anchors are in the budget; it counts drafts, and anchors always go in.":
        lambda old, now, table: top_k(now, global_optimum(old, table).sum() + len(old)),
    "that is one number for the whole batch; hand the budget out with top_k.":
        lambda old, now, table: global_optimum(old, table).sum(),
    "top_k takes one number as its budget, and you gave it a length for each request: add them up.":
        lambda old, now, table: top_k(now, global_optimum(old, table)),
}, "the budget is the sum of the lengths that are best for the old survivals; top_k hands it out by the current."))
