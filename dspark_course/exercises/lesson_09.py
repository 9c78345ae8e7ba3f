"""Checkers of lesson 09: survival and its outcome, ECE from bins, sequential temperature scaling, a block cut short."""

import numpy as np
from scipy.special import expit

from dspark_lite.scheduling.calibration import ece, survived
from .checking import Exercise, Mistake, Step


def at_least(accepted, k):
    """Whether a prefix of k drafts survived in blocks that accepted so many."""
    return accepted >= k


def predicting(forecast):
    """An answer whose outcome is right; `forecast(confidence)` is its prediction."""
    return observing(at_least, forecast)


def observing(happened, forecast=lambda confidence: confidence.cumprod(1)):
    """An answer whose outcome is `happened(accepted, position)`, and whose prediction is right."""
    return lambda confidence, accepted: (
        forecast(confidence), happened(accepted[:, None], np.arange(1, confidence.shape[1] + 1)))


def prediction_and_outcome(confidence, accepted):
    """Predicted survival, and whether it survived, [N, g] each."""
    return observing(at_least)(confidence, accepted)


def pair(answer):
    """Two arrays."""
    if len(answer) != 2:
        raise Mistake("return two arrays: the prediction, then the outcome.")
    prediction, outcome = answer
    return prediction, outcome


CONFIDENCE = np.array([[0.9, 0.8, 0.5], [0.6, 0.7, 0.9], [0.95, 0.4, 0.3], [0.8, 0.9, 0.75]])
BLOCKS = [(CONFIDENCE, np.array([3, 0, 1, 2]))]
PREDICTION = Step(BLOCKS, {
    "that is the confidence of each position by itself. It holds given that all before survived; a prefix survives only "
    "if each of its tokens does, so multiply along the block.":
        predicting(lambda c: c),
    "that is the chance that the tokens before it survive; its own confidence belongs to the prefix too.":
        predicting(lambda c: np.insert(c.cumprod(1), 0, 1, 1)[:, :-1]),
    "you multiplied over the blocks; blocks have nothing to do with one another, positions of a block have.":
        predicting(lambda c: c.cumprod(0)),
    "cumprod without an axis runs through all blocks as one long row; give it the axis of the positions, 1.":
        predicting(lambda c: c.cumprod()),
    "you added; the chance that all of them happen is a product.":
        predicting(lambda c: c.cumsum(1)),
    "you averaged along the block; the chance that all of them happen is a product.":
        predicting(lambda c: c.cumsum(1) / np.arange(1, 4)),
    "you took the lowest confidence so far; the prefix is less likely than that, for each token can be rejected.":
        predicting(lambda c: np.minimum.accumulate(c, 1)),
    "those are averages over the blocks; every block has its own row.":
        predicting(lambda c: c.cumprod(1).mean(0)),
    "the order is the other way round: the prediction comes first, then the outcome.":
        lambda confidence, accepted: prediction_and_outcome(confidence, accepted)[::-1],
    "counts [N] do not line up with positions [g]: give them a second axis, accepted[:, None].":
        (lambda confidence, accepted: (confidence.cumprod(1), accepted >= np.arange(1, confidence.shape[1] + 1)),
         lambda confidence, accepted: (confidence.cumprod(1), np.arange(1, confidence.shape[1] + 1) <= accepted)),
    "return two arrays: the prediction, then the outcome.":
        lambda confidence, accepted: confidence.cumprod(1),
}, "the predicted survival is the running product of the confidences along a block.", lambda answer: pair(answer)[0])
OUTCOME = Step(BLOCKS, {
    "off by one: a prefix of k drafts survived where at least k were accepted; you ask for more than k.":
        observing(lambda accepted, k: accepted > k),
    "off by one: positions count from 1, so with 0 accepted drafts no prefix survived.":
        observing(lambda accepted, k: accepted >= k - 1),
    "you ask for exactly k; a block that accepted more has kept the prefix of k as well.":
        observing(lambda accepted, k: accepted == k),
    "that is where the prefix did not survive.":
        observing(lambda accepted, k: accepted < k),
    "that is the position where the block ended, the first refused one.":
        observing(lambda accepted, k: accepted == k - 1),
}, "the prefix of k drafts survived where at least k drafts were accepted.", lambda answer: pair(answer)[1])


def leaves_its_arguments(function) -> None:
    """Raises Mistake where `function` writes into the confidences that it is given."""
    confidence, accepted = (values.copy() for values in BLOCKS[0])
    function(confidence, accepted)
    if not np.array_equal(confidence, CONFIDENCE):
        raise Mistake("both arrays are right, but your function changes `confidence` itself; put the survivals into a new array.")


check_outcome = Exercise(prediction_and_outcome, PREDICTION, OUTCOME, manner=leaves_its_arguments)


def of_gaps(rule):
    """An answer from the gaps of the bins and their counts."""
    return lambda predicted, observed, count: rule(predicted - observed, count)


def calibration_error(predicted, observed, count):
    """ECE of bins [m]."""
    return np.sum(count * np.abs(predicted - observed)) / np.sum(count)


def one_number(answer):
    """A single number."""
    if np.ndim(answer):
        raise Mistake("return one number, the sum over the bins.")
    return answer


BINS = np.array([0.05, 0.3, 0.62, 0.97]), np.array([0.1, 0.2, 0.8, 0.99]), np.array([10, 20, 30, 140])
check_ece = Exercise(calibration_error, Step([BINS], {
    "every bin weighs the same. A bin with ten blocks would count as much as one with a thousand: weigh by count.":
        of_gaps(lambda gap, count: np.abs(gap).mean()),
    "gaps of opposite sign cancel, so a head that is too high here and too low there looks perfect; take absolute values "
    "first.":
        of_gaps(lambda gap, count: (gap * count).sum() / count.sum()),
    "gaps of opposite sign cancel; take absolute values before you add.":
        (of_gaps(lambda gap, count: abs((gap * count).sum()) / count.sum()), of_gaps(lambda gap, count: abs(gap.mean()))),
    "you squared the gaps; ECE takes them as they are.":
        of_gaps(lambda gap, count: (gap**2 * count).sum() / count.sum()),
    "that is the root of the mean squared gap; ECE is the mean gap.":
        of_gaps(lambda gap, count: np.sqrt((gap**2 * count).sum() / count.sum())),
    "that is the largest gap (the maximum calibration error); ECE is the mean.":
        of_gaps(lambda gap, count: np.abs(gap).max()),
    "you weighed by count and did not divide by the number of blocks.":
        of_gaps(lambda gap, count: (np.abs(gap) * count).sum()),
    "you divided by the number of bins; the weights of all bins must sum to 1, so divide by the number of blocks.":
        of_gaps(lambda gap, count: (np.abs(gap) * count).mean()),
    "the shares of the blocks sum to 1 already: add the weighted gaps up, and do not average them.":
        of_gaps(lambda gap, count: (np.abs(gap) * count / count.sum()).mean()),
    "that is in percent; return a number from 0 to 1.":
        of_gaps(lambda gap, count: 100 * (np.abs(gap) * count).sum() / count.sum()),
    "return one number, the sum over the bins.":
        of_gaps(lambda gap, count: np.abs(gap) * count / count.sum()),
}, "ECE is the sum over bins of |predicted - observed|, each weighted by its share of the blocks.", one_number))


def fitting(forecast):
    """An answer that takes the temperatures whose `forecast(logits, temperature, k, chosen)` has the least error."""
    def sequential(logits, outcome, grid, error):
        chosen = []
        for k in range(logits.shape[1]):
            errors = [error(forecast(logits, temperature, k, chosen), outcome[:, k]) for temperature in grid]
            chosen.append(grid[np.argmin(errors)])
        return chosen

    return sequential


def carrying(update, start=1.0):
    """An answer that keeps `alive` [N]: `start` at first, then `update(alive, tried, best, kept)`, where `tried` holds what
    every temperature predicts, `best` is the place of the least error, and `kept` the position's own scaled confidence."""
    def sequential(logits, outcome, grid, error):
        survival, chosen = np.full(len(logits), start), []
        for z, true in zip(logits.T, outcome.T):
            tried = [survival * expit(z / temperature) for temperature in grid]
            best = int(np.argmin([error(predicted, true) for predicted in tried]))
            chosen.append(grid[best])
            survival = update(survival, tried, best, expit(z / grid[best]))
        return chosen

    return sequential


def alive(logits, k, temperatures):
    """Survival [N] of the first k positions at these temperatures."""
    return expit(logits[:, :k] / np.array([temperatures[:k]])).prod(1) if k else np.ones(len(logits))


def sequential(logits, outcome, grid, error):
    """Temperatures [g], one after the other, the earlier ones fixed."""
    survival = fitting(lambda z, t, k, chosen: alive(z, k, chosen) * expit(z[:, k] / t))
    return survival(logits, outcome, grid, error)


def among_reached(logits, outcome, grid, error):
    """Every position's confidence on the blocks that reached it."""
    reached = np.concatenate([np.ones((len(outcome), 1), bool), outcome[:, :-1]], 1)
    columns = [(logits[reached[:, k], k], outcome[reached[:, k], k]) for k in range(logits.shape[1])]
    return [grid[np.argmin([error(expit(z / t), kept) for t in grid])] for z, kept in columns]


def one_for_all(logits, outcome, grid, error):
    """One temperature for all positions."""
    survival, positions = [expit(logits / t).cumprod(1) for t in grid], range(logits.shape[1])
    errors = [np.mean([error(predicted[:, k], outcome[:, k]) for k in positions]) for predicted in survival]
    return [grid[np.argmin(errors)]] * len(positions)


def miscalibrated():
    """Logits [4000, 3] of a head that is too sure twice and then too unsure, and whether each prefix survived."""
    rng = np.random.default_rng(7)
    right = rng.normal(1.0, 1.6, (4000, 3))
    # An error that no temperature corrects at position 2 tells a fit of survival from one among the blocks that reach it.
    fell = rng.random(right.shape) >= expit(right - [0.0, 0.5, 0.0])
    accepted = np.where(fell.any(1), fell.argmax(1), 3)
    return right * [2.0, 2.0, 0.5], survived(accepted, 3)


def three_temperatures(answer):
    """A temperature for each of the three positions."""
    if len(answer) != 3:
        raise Mistake(f"there are {len(answer)} temperatures for 3 positions.")
    return [float(temperature) for temperature in answer]


GRID = np.geomspace(0.25, 4, 9)  # upwards and downwards: a fit that says nothing takes the first, whichever it is
check_sequential = Exercise(sequential, Step([(*miscalibrated(), grid, ece) for grid in (GRID, GRID[::-1])], {
    "survival before position 1 is 1, not 0: with 0 every prediction is 0, whatever the temperature.":
        carrying(lambda survival, tried, best, kept: tried[best], start=0.0),
    "the survival that you carry on is that of the last temperature tried; carry on that of the best.":
        carrying(lambda survival, tried, best, kept: tried[-1]),
    "you overwrite the survival of the positions before with the last one's confidence; multiply it in.":
        carrying(lambda survival, tried, best, kept: kept),
    "each position was fitted among the blocks that reached it; what is scheduled by is survival, so fit the product, "
    "over all blocks.":
        among_reached,
    "the positions before are still raw: fix the temperatures that you have found, and multiply by the survival they "
    "give. Otherwise a later position has to make up for errors that are already corrected.":
        fitting(lambda z, t, k, chosen: alive(z, k, [1.0] * 3) * expit(z[:, k] / t)),
    "each position was fitted by itself, its confidence against the survival of the whole prefix. The prediction is the "
    "product: multiply by the survival of the positions before.":
        fitting(lambda z, t, k, chosen: expit(z[:, k] / t)),
    "every position was fitted to what became of the whole block; fit position k to its own column of `outcome`.":
        lambda z, outcome, grid, error: sequential(z, np.repeat(outcome[:, -1:], outcome.shape[1], 1), grid, error),
    "you scaled the positions before by the temperature that you try; theirs are fixed, each at its own.":
        fitting(lambda z, t, k, chosen: alive(z, k + 1, [t] * 3)),
    "you divided the confidence; divide its logit by the temperature, then take the sigmoid.":
        fitting(lambda z, t, k, chosen: alive(z, k + 1, [1.0] * 3) / np.prod([*chosen, t])),
    "all positions got one temperature; each position has its own.":
        one_for_all,
    "you multiplied the logits by the temperature; divide by it.":
        fitting(lambda z, t, k, chosen: alive(z, k, [1 / c for c in chosen]) * expit(z[:, k] * t)),
    "you took the temperature with the largest error, or gave `error` the outcome first; take the least, prediction first.":
        (lambda z, outcome, grid, error: sequential(z, outcome, grid, lambda *both: -error(*both)),
         lambda z, outcome, grid, error: sequential(z, outcome, grid, lambda predicted, true: error(true, predicted))),
    "those are places in the grid; return the temperatures that stand there.":
        lambda z, outcome, grid, error: [grid.tolist().index(chosen) for chosen in sequential(z, outcome, grid, error)],
    "there are 1 temperatures for 3 positions.":
        lambda z, outcome, grid, error: one_for_all(z, outcome, grid, error)[:1],
}, "for each position try every temperature on its logits, multiply by the survival that the earlier temperatures give, "
   "and keep the one with the least error.", three_temperatures))


def prefix(confidence, least):
    """How many positions [N] stand before the first below the threshold."""
    return (confidence >= least).cumprod(1).sum(1)


def cutting(length_of=prefix, kept_of=np.minimum, count=lambda kept, length: (kept.mean() + 1, (length - kept).mean())):
    """An answer that counts the drafts `kept_of(accepted, length)` of blocks cut to `length_of(confidence, least)`."""
    def cut(confidence, accepted, least):
        length = length_of(confidence, least)
        return count(kept_of(accepted, length), length)

    return cut


def cut(confidence, accepted, least):
    """Tokens (accepted with bonus, rejected) per round of blocks cut at `least`."""
    return cutting()(confidence, accepted, least)


def two_means(answer):
    """Accepted and rejected per round."""
    if isinstance(answer, (int, float)):  # np.float64 among them
        raise Mistake("return two numbers: tokens accepted per round, then drafts rejected per round.")
    accepted, rejected = answer
    if np.ndim(accepted):
        raise Mistake("those are values of single blocks; return the means over all blocks.")
    return accepted, rejected


def first_below(confidence, least):
    """The place [N] of the first confidence below the threshold, as argmax gives it: 0 where there is none."""
    return (confidence < least).argmax(1)


CUT_CONFIDENCE = np.array([[0.9, 0.8, 0.3, 0.95], [0.4, 0.9, 0.9, 0.9], [0.9, 0.6, 0.85, 0.8], [0.75, 0.7, 0.9, 0.2],
                           [0.95, 0.2, 0.9, 0.9]])  # one of them is the threshold itself
check_cut = Exercise(cut, Step([(CUT_CONFIDENCE, np.array([4, 2, 3, 0, 1]), 0.6)], {
    "a confidence that equals the threshold reaches it: cut what is below `least`, and keep `>=`.":
        cutting(lambda c, least: (c > least).cumprod(1).sum(1)),
    "you verified the first position below the threshold too; cut before it.":
        cutting(lambda c, least: np.minimum(prefix(c, least) + 1, 4)),
    "your length is one too large: it counts the drafts before the first one below the threshold, and neither that one nor the "
    "anchor.":
        cutting(lambda c, least: prefix(c, least) + 1),
    "a block with no confidence below the threshold came out with length 0: `argmax` of a row that is all False is 0. It is "
    "not cut at all.":
        cutting(first_below),
    "the order is the other way round: accepted first, then rejected.":
        lambda *case: cut(*case)[::-1],
    "that is the acceptance rate and what it leaves; return tokens per round.":
        cutting(count=lambda kept, length: ((kept + 1).sum() / (length + 1).sum(), 1 - (kept + 1).sum() / (length + 1).sum())),
    "return two numbers: tokens accepted per round, then drafts rejected per round.":
        cutting(count=lambda kept, length: (kept + 1).sum() / (length + 1).sum()),
    "those are values of single blocks; return the means over all blocks.":
        cutting(count=lambda kept, length: (kept + 1, length - kept)),
    "you kept every position above the threshold, with holes between them. What stands after a gap cannot be verified: "
    "cut at the first position below.":
        cutting(lambda c, least: (c >= least).sum(1)),
    "you cut where the survival, the product, falls below the threshold; a threshold looks at each confidence by itself.":
        cutting(lambda c, least: (c.cumprod(1) >= least).sum(1)),
    "drafts after the cut are not verified, so they cannot be accepted: at most the length of the cut block is.":
        (cutting(kept_of=lambda accepted, length: accepted),
         lambda confidence, accepted, least: (accepted.mean() + 1, cut(confidence, accepted, least)[1])),
    "the bonus is missing: every round commits one token of the target's own.":
        cutting(count=lambda kept, length: (kept.mean(), (length - kept).mean())),
    "every round commits one token of the target's own, after a refusal as well; here it always counts as the bonus.":
        (cutting(count=lambda kept, length: ((kept + (kept == length)).mean(), (length - kept).mean())),
         lambda *case: (cut(*case)[0] - (case[1] < 4).mean(), cut(*case)[1])),
    "a block that is cut before its first refusal has no rejected draft; length - accepted is below 0 there.":
        lambda *case: (cut(*case)[0], (prefix(case[0], case[2]) - case[1]).mean()),
    "a block may be cut to nothing: the target then verifies the anchor alone.":
        cutting(lambda c, least: np.maximum(prefix(c, least), 1)),
    "all drafts from the refused one on were verified in vain, so all of them are rejected: the refused one and those after it.":
        (cutting(count=lambda kept, length: (kept.mean() + 1, (kept < length).mean())),
         cutting(count=lambda kept, length: (kept.mean() + 1, np.maximum(length - kept - 1, 0).mean()))),
    "rejected are drafts that were verified and refused; those after the cut were never verified.":
        cutting(count=lambda kept, length: (kept.mean() + 1, (4 - kept).mean())),
    "those are sums over all blocks; tokens per round are means.":
        cutting(count=lambda kept, length: (kept.sum() + len(kept), (length - kept).sum())),
    "the bonus is not a draft and is never rejected.":
        (cutting(count=lambda kept, length: (kept.mean() + 1, (length - kept - 1).mean())),
         cutting(count=lambda kept, length: (kept.mean() + 1, (length + 1 - kept).mean())),
         cutting(count=lambda kept, length: (kept.mean(), (length + 1 - kept).mean()))),
    "you verified what lies below the threshold and cut what lies above.":
        cutting(lambda c, least: (c < least).cumprod(1).sum(1)),
}, "cut each block at the first confidence below the threshold; accepted is at most that length, rejected the rest of it.",
    two_means))
