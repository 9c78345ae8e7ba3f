"""Checkers of lesson 09: survival and its outcome, ECE from bins, sequential temperature scaling, a block cut short."""

from functools import partial

import numpy as np
import torch
from scipy.special import expit

from ..calibration import ece, survived
from .checking import Mistake, checker, finished, name_mistake, same


@checker
def check_outcome(prediction_and_outcome):
    """`prediction_and_outcome(confidence, accepted)`: predicted survival, and whether it survived, [N, g] each."""
    confidence = np.array([[0.9, 0.8, 0.5], [0.6, 0.7, 0.9], [0.95, 0.4, 0.3], [0.8, 0.9, 0.75]])
    accepted, position = np.array([3, 0, 1, 2])[:, None], np.arange(1, 4)
    predicted, outcome = finished(prediction_and_outcome(confidence, accepted[:, 0]))
    name_mistake(predicted, confidence.cumprod(1), {
        "that is the confidence of each position by itself. It holds given that all before survived; a prefix survives "
        "only if each of its tokens does, so multiply along the block.": confidence,
        "that is the chance that the tokens before it survive; its own confidence belongs to the prefix too.":
            np.concatenate([np.ones((4, 1)), confidence.cumprod(1)[:, :-1]], 1),
        "you multiplied over the blocks; blocks have nothing to do with one another, positions of a block have.":
            confidence.cumprod(0),
        "you added; the chance that all of them happen is a product.": confidence.cumsum(1),
        "you averaged along the block; the chance that all of them happen is a product.":
            confidence.cumsum(1) / position,
        "you took the lowest confidence so far; the prefix is less likely than that, for each token can fall.":
            np.minimum.accumulate(confidence, 1),
    }, "the predicted survival is the running product of the confidences along a block.")
    name_mistake(outcome, accepted >= position, {
        "off by one: a prefix of k drafts survived where at least k were accepted; you ask for more than k.":
            accepted > position,
        "off by one: positions count from 1, so with 0 accepted drafts no prefix survived.": accepted > position - 2,
        "you ask for exactly k; a block that accepted more has kept the prefix of k as well.": accepted == position,
        "that is where the prefix fell.": accepted < position,
        "that is the position where the block ended, the first refused one.": accepted == position - 1,
    }, "the prefix of k drafts survived where at least k drafts were accepted.")


@checker
def check_ece(calibration_error):
    """`calibration_error(predicted, observed, count)`: ECE of bins [m]."""
    predicted, observed = np.array([0.05, 0.3, 0.62, 0.97]), np.array([0.1, 0.2, 0.8, 0.99])
    count = np.array([10, 20, 30, 140])
    gap, share = predicted - observed, count / count.sum()
    name_mistake(finished(calibration_error(predicted, observed, count)), (np.abs(gap) * share).sum(), {
        "every bin weighs the same. A bin with ten blocks would count as much as one with a thousand: weigh by count.":
            np.abs(gap).mean(),
        "gaps of opposite sign cancel, so a head that is too high here and too low there looks perfect; take absolute "
        "values first.": (gap * share).sum(),
        "gaps of opposite sign cancel; take absolute values before you add.": np.abs((gap * share).sum()),
        "you squared the gaps; ECE takes them as they are.": (gap**2 * share).sum(),
        "that is the root of the mean squared gap; ECE is the mean gap.": np.sqrt((gap**2 * share).sum()),
        "that is the largest gap (the maximum calibration error); ECE is the mean.": np.abs(gap).max(),
        "you weighed by count and did not divide by the number of blocks.": (np.abs(gap) * count).sum(),
        "you divided by the number of bins; the weights of all bins must sum to 1, so divide by the number of blocks.":
            (np.abs(gap) * count).mean(),
    }, "ECE is the sum over bins of |predicted - observed|, each weighted by its share of the blocks.")


def _search(logits, outcome, grid, error, forecast):
    """Temperatures by position: the one whose `forecast(scaled, k, chosen)` of survival to k has the least error."""
    chosen = []
    for k in range(logits.shape[1]):
        errors = [error(forecast(logits[:, k], temperature, k, chosen), outcome[:, k]) for temperature in grid]
        chosen.append(float(grid[int(np.argmin(errors))]))
    return chosen


def _miscalibrated():
    """Logits [4000, 3] of a head that is too sure twice and then too unsure, and the drafts each block kept."""
    rng = np.random.default_rng(7)
    right = rng.normal(1.0, 1.6, (4000, 3))
    # An error that no temperature mends at position 2 tells a fit of survival from one among the blocks that reach it.
    fell = rng.random(right.shape) >= expit(right - [0.0, 0.5, 0.0])
    accepted = np.where(fell.any(1), fell.argmax(1), 3)
    return right * [2.0, 2.0, 0.5], accepted


@checker
def check_sequential(sequential):
    """`sequential(logits, outcome, grid, error)`: temperatures [g], one after the other, the earlier ones fixed."""
    logits, accepted = _miscalibrated()
    outcome, grid = survived(accepted, 3), np.array([0.25, 0.5, 1.0, 2.0, 4.0])
    search = partial(_search, logits, outcome, grid, ece)

    def prefix(k, temperatures):
        return expit(logits[:, :k] / np.array([temperatures[:k]])).prod(1) if k else np.ones(len(logits))

    def alone(k):
        """The best temperature of a position among the blocks that reached it."""
        reached = accepted >= k
        tried = [ece(expit(logits[reached, k] / temperature), accepted[reached] > k) for temperature in grid]
        return float(grid[int(np.argmin(tried))])

    right = search(lambda z, t, k, chosen: prefix(k, chosen) * expit(z / t))
    one = [np.mean([ece(expit(logits / t).cumprod(1)[:, k], outcome[:, k]) for k in range(3)]) for t in grid]
    answer = torch.tensor([float(t) for t in finished(sequential(logits, outcome, grid, ece))])
    if len(answer) != 3:
        raise Mistake(f"there are {len(answer)} temperatures for 3 positions.")
    if same(answer, [alone(k) for k in range(3)]) and not same(answer, right):
        raise Mistake("each position was fitted among the blocks that reached it; what is scheduled by is survival, so "
                      "fit the product, over all blocks.")
    name_mistake(answer, right, {
        "the positions before are still raw: fix the temperatures that you have found, and multiply by the survival "
        "they give. Otherwise a later position has to make up for errors that are already mended.":
            search(lambda z, t, k, chosen: prefix(k, [1.0, 1.0, 1.0]) * expit(z / t)),
        "each position was fitted by itself, its confidence against the survival of the whole prefix. The prediction "
        "is the product: multiply by the survival of the positions before.":
            search(lambda z, t, k, chosen: expit(z / t)),
        "all positions got one temperature; each position has its own.": [float(grid[int(np.argmin(one))])] * 3,
        "you multiplied the logits by the temperature; divide by it.":
            search(lambda z, t, k, chosen: prefix(k, [1 / c for c in chosen]) * expit(z * t)),
        "you took the temperature with the largest error; take the least.":
            _search(logits, outcome, grid, lambda *both: -ece(*both),
                    lambda z, t, k, chosen: prefix(k, chosen) * expit(z / t)),
        "those are places in the grid; return the temperatures that stand there.":
            [float(np.flatnonzero(grid == t)[0]) for t in right],
    }, "for each position try every temperature on its logits, multiply by the survival that the earlier temperatures "
       "give, and keep the one with the least error.")


@checker
def check_cut(cut):
    """`cut(confidence, accepted, least)`: tokens (accepted with bonus, rejected) a step of blocks cut at `least`."""
    confidence = np.array([[0.9, 0.8, 0.3, 0.95], [0.4, 0.9, 0.9, 0.9], [0.9, 0.9, 0.85, 0.8], [0.75, 0.7, 0.9, 0.2],
                           [0.95, 0.2, 0.9, 0.9]])
    accepted, least = np.array([4, 3, 2, 0, 1]), 0.6
    sure = confidence >= least
    length = sure.cumprod(1).sum(1)
    kept = np.minimum(accepted, length)

    def of(length, kept, bonus=1.0):
        return [kept.mean() + bonus, (length - kept).mean()]

    holes, by_survival = sure.sum(1), (confidence.cumprod(1) >= least).sum(1)
    name_mistake([float(value) for value in finished(cut(confidence, accepted, least))], of(length, kept), {
        "you kept every position above the threshold, with holes between them. What stands behind a gap cannot be "
        "verified: cut at the first position below.": of(holes, np.minimum(accepted, holes)),
        "you cut where the survival, the product, falls below the threshold; a threshold looks at each confidence by "
        "itself.":
            of(by_survival, np.minimum(accepted, by_survival)),
        "drafts behind the cut are not verified, so they cannot be accepted: at most the length of the cut block is.":
            of(length, accepted),
        "the bonus is missing: every step commits one token of the target's own.": of(length, kept, 0.0),
        "rejected are drafts that were verified and refused; those behind the cut were never verified.":
            of(np.full(5, 4), kept),
        "those are sums over all blocks; tokens a step are means.": [kept.sum() + 5, (length - kept).sum()],
        "the bonus is not a draft and is never rejected.": [kept.mean() + 1, (length + 1 - kept).mean()],
        "you verified what lies below the threshold and cut what lies above.":
            of((~sure).cumprod(1).sum(1), np.minimum(accepted, (~sure).cumprod(1).sum(1))),
    }, "cut each block at the first confidence below the threshold; accepted is at most that length, rejected the rest "
       "of it.")
