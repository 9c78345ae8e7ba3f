"""Checkers of lesson 09: survival, ECE from bins, sequential temperature scaling."""

from types import SimpleNamespace

import numpy as np
import torch
from scipy.special import expit

from ...scheduling.calibration import ece, survived
from ..checkers.checking import Comparison, Exercise, one_number
from ..checkers.random_cases import Cases, number, numbers
from ..own_decoder.my_dspark import survival

W1 = "markov_head.markov_w1.weight"
PROJ = "confidence_head.proj.weight"
BIAS = "confidence_head.proj.bias"


def surviving(
    rule=lambda logits: torch.sigmoid(logits).cumprod(0),
    tokens=lambda anchor, drafts: [anchor, *drafts[:-1]],
    order=lambda hidden, before: torch.cat([hidden, before], -1),
    bias=1.0,
):
    """Return a function for the survival [g] with one of its parts made in another way: `rule`
    makes it of the confidence logits [g], the head reads the hidden states and the rows of W1 of
    `tokens` in an `order`, and adds `bias` times its bias."""

    def survival(draft, hidden, anchor, drafts):
        return rule(
            order(hidden, draft.w[W1][tokens(anchor, drafts)]) @ draft.w[PROJ][0]
            + bias * draft.w[BIAS][0]
        )

    return survival


def small_draft(generator: torch.Generator):
    """Return what the confidence head reads of a draft: random weights under the names that
    `my_dspark.Draft` has for them."""
    return SimpleNamespace(
        w={
            name: torch.randn(shape, generator=generator)
            for name, shape in ((W1, (6, 3)), (PROJ, (1, 7)), (BIAS, (1,)))
        }
    )


def block(seed: int) -> tuple:
    """Return what `survival` is asked for: a draft, hidden states [4, 4], the anchor and the
    drafts."""
    generator = torch.Generator().manual_seed(seed)
    return small_draft(generator), torch.randn(4, 4, generator=generator), 2, [1, 5, 0, 3]


def drafted_case(generator):
    """Return a block of one to seven drafts of another head."""
    drafts = numbers(generator, number(generator, 1, 7), 0, 5)
    hidden = torch.randn(len(drafts), 4, generator=generator)
    return small_draft(generator), hidden, number(generator, 0, 5), drafts


check_survival = Exercise(
    survival,
    Comparison(
        Cases([block(0), block(1)], drafted_case),
        {
            "that is the confidence of each position by itself. It holds given that all before survived; a prefix survives only "
            "if each of its tokens does, so multiply along the block.": surviving(torch.sigmoid),
            "the head read x_k, the token that it judges. It reads x_(k-1): the anchor for the first slot, then each draft but the last.": surviving(
                tokens=lambda anchor, drafts: drafts
            ),
            "those are confidence logits; the chance is their sigmoid.": (
                surviving(lambda logits: logits),
                surviving(lambda logits: logits.cumprod(0)),
            ),
            "you multiplied the logits; take the sigmoid first, then the product.": surviving(
                lambda logits: torch.sigmoid(logits.cumprod(0))
            ),
            "the bias of the confidence head is missing.": surviving(bias=0.0),
            "the hidden state comes first, then the row of W1: the weights are stored in that order.": surviving(
                order=lambda hidden, before: torch.cat([before, hidden], -1)
            ),
            "you added; the chance that all of them survive is a product.": surviving(
                lambda logits: torch.sigmoid(logits).cumsum(0)
            ),
            "that is the survival before each position; its own confidence belongs to it.": surviving(
                lambda logits: torch.cat([torch.ones(1), torch.sigmoid(logits[:-1]).cumprod(0)])
            ),
            "these are the right numbers in a column [g, 1]; survival is [g], so take the head's one output with [:, 0].": lambda *case: (
                survival(*case)[:, None]
            ),
            "the anchor was read in every slot; from the second slot on the token before is a draft.": surviving(
                tokens=lambda anchor, drafts: [anchor] * len(drafts)
            ),
        },
        "c_k is the sigmoid of w [h_k ; W1[x_(k-1)]] + bias, and survival is the running product of the c_k.",
    ),
)


def of_gaps(rule):
    """Return an answer from the gaps of the bins and their counts."""
    return lambda predicted, observed, count: rule(predicted - observed, count)


def calibration_error(predicted, observed, count):
    """Return the ECE of bins [m]."""
    return np.sum(count * np.abs(predicted - observed)) / np.sum(count)


BINS = (
    np.array([0.05, 0.3, 0.62, 0.97]),
    np.array([0.1, 0.2, 0.8, 0.99]),
    np.array([10, 20, 30, 140]),
)


def bins_case(generator):
    """Return one to ten bins."""
    size = number(generator, 1, 10)
    predicted, observed = torch.rand(2, size, generator=generator, dtype=torch.float64).numpy()
    return predicted, observed, torch.randint(1, 200, (size,), generator=generator).numpy()


check_ece = Exercise(
    calibration_error,
    Comparison(
        Cases([BINS], bins_case),
        {
            "every bin weighs the same. A bin with ten blocks would count as much as one with a thousand: weigh by count.": of_gaps(
                lambda gap, count: np.abs(gap).mean()
            ),
            "gaps of opposite sign cancel, so a head that is too high here and too low there looks perfect; take absolute values first.": (
                of_gaps(lambda gap, count: (gap * count).sum() / count.sum()),
                of_gaps(lambda gap, count: abs((gap * count).sum()) / count.sum()),
                of_gaps(lambda gap, count: abs(gap.mean())),
            ),
            "you squared the gaps; ECE takes them as they are.": of_gaps(
                lambda gap, count: (gap**2 * count).sum() / count.sum()
            ),
            "that is the root of the mean squared gap; ECE is the mean gap.": of_gaps(
                lambda gap, count: np.sqrt((gap**2 * count).sum() / count.sum())
            ),
            "that is the largest gap (the maximum calibration error); ECE is the mean.": of_gaps(
                lambda gap, count: np.abs(gap).max()
            ),
            "you weighed by count and did not divide by the number of blocks.": of_gaps(
                lambda gap, count: (np.abs(gap) * count).sum()
            ),
            "you divided by the number of bins; the shares of the blocks sum to 1, so add up the gaps that they weigh.": (
                of_gaps(lambda gap, count: (np.abs(gap) * count).mean()),
                of_gaps(lambda gap, count: (np.abs(gap) * count / count.sum()).mean()),
            ),
            "return one number, the sum.": of_gaps(
                lambda gap, count: np.abs(gap) * count / count.sum()
            ),
        },
        "ECE is the sum over bins of |predicted - observed|, each weighted by its share of the blocks.",
        one_number,
    ),
)


def fitting(forecast):
    """Return an answer that takes the temperatures whose `forecast(logits, temperature, k, chosen)`
    has the least error."""

    def sequential(logits, outcome, grid, error):
        chosen = []
        for k in range(logits.shape[1]):
            errors = [
                error(forecast(logits, temperature, k, chosen), outcome[:, k])
                for temperature in grid
            ]
            chosen.append(grid[np.argmin(errors)])
        return chosen

    return sequential


def carrying(update, start=1.0):
    """Return an answer that keeps `alive` [N]: `start` at first, then `update(alive, tried, best,
    kept)`, where `tried` holds what every temperature predicts, `best` is the place of the least
    error, and `kept` the position's own scaled confidence."""

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
    """Return the survival [N] of the first k positions at these temperatures."""
    return (
        expit(logits[:, :k] / np.array([temperatures[:k]])).prod(1) if k else np.ones(len(logits))
    )


def sequential(logits, outcome, grid, error):
    """Return temperatures [g], one after the other, the earlier ones fixed."""
    survival = fitting(lambda z, t, k, chosen: alive(z, k, chosen) * expit(z[:, k] / t))
    return survival(logits, outcome, grid, error)


def among_reached(logits, outcome, grid, error):
    """Return every position's confidence on the blocks that reached it."""
    reached = np.concatenate([np.ones((len(outcome), 1), bool), outcome[:, :-1]], 1)
    columns = [
        (logits[reached[:, k], k], outcome[reached[:, k], k]) for k in range(logits.shape[1])
    ]
    return [
        grid[np.argmin([error(expit(z / t), survived) for t in grid])] for z, survived in columns
    ]


def one_for_all(logits, outcome, grid, error):
    """Return one temperature for all positions."""
    survival, positions = [expit(logits / t).cumprod(1) for t in grid], range(logits.shape[1])
    errors = [
        np.mean([error(predicted[:, k], outcome[:, k]) for k in positions])
        for predicted in survival
    ]
    return [grid[np.argmin(errors)]] * len(positions)


def miscalibrated():
    """Return logits [4000, 3] of a head that is too sure twice and then too unsure, and whether
    each prefix survived."""
    rng = np.random.default_rng(7)
    right = rng.normal(1.0, 1.6, (4000, 3))
    # An error that no temperature corrects at position 2 tells a fit of survival from one among the blocks that reach it.
    fell = rng.random(right.shape) >= expit(right - [0.0, 0.5, 0.0])
    accepted = np.where(fell.any(1), fell.argmax(1), 3)
    return right * [2.0, 2.0, 0.5], survived(accepted, 3)


def temperatures(answer):
    """Return a list of numbers."""
    return [float(temperature) for temperature in answer]


def head_case(generator):
    """Return a head of one to four positions, each too sure or too unsure by a factor of its own,
    and a grid of five temperatures."""
    rng = np.random.default_rng(number(generator, 0, 10**6))
    right = rng.normal(1.0, 1.6, (300, number(generator, 1, 4)))
    fell = rng.random(right.shape) >= expit(right)
    accepted = np.where(fell.any(1), fell.argmax(1), right.shape[1])
    logits = right * rng.choice([0.4, 0.6, 1.7, 2.5], right.shape[1])
    grid = np.geomspace(0.25, 4, 5)[:: rng.choice([1, -1])]
    return logits, survived(accepted, right.shape[1]), grid, ece


# Upwards and downwards: a fit that says nothing takes the first value, whichever it is.
GRID = np.geomspace(0.25, 4, 9)
check_sequential = Exercise(
    sequential,
    Comparison(
        Cases([(*miscalibrated(), grid, ece) for grid in (GRID, GRID[::-1])], head_case, count=200),
        {
            "survival before position 1 is 1, not 0: with 0 every prediction is 0, whatever the temperature.": carrying(
                lambda survival, tried, best, kept: tried[best], start=0.0
            ),
            "the survival that you carry on is that of the last temperature tried; carry on that of the best.": carrying(
                lambda survival, tried, best, kept: tried[-1]
            ),
            "you overwrite the survival of the positions before with the last one's confidence; multiply it in.": carrying(
                lambda survival, tried, best, kept: kept
            ),
            "each position was fitted among the blocks that reached it; what is scheduled by is survival, so fit the product, "
            "over all blocks.": among_reached,
            "the positions before are still raw: fix the temperatures that you have found, and multiply by the survival they "
            "give. Otherwise a later position has to make up for errors that are already corrected.": fitting(
                lambda z, t, k, chosen: alive(z, k, [1.0] * k) * expit(z[:, k] / t)
            ),
            "each position was fitted by itself, its confidence against the survival of the whole prefix. The prediction is the "
            "product: multiply by the survival of the positions before.": fitting(
                lambda z, t, k, chosen: expit(z[:, k] / t)
            ),
            "all positions got one temperature; each position has its own.": one_for_all,
            "you multiplied the logits by the temperature; divide by it.": (
                fitting(
                    lambda z, t, k, chosen: (
                        alive(z, k, [1 / c for c in chosen]) * expit(z[:, k] * t)
                    )
                ),
                fitting(lambda z, t, k, chosen: alive(z, k, chosen) * expit(z[:, k] * t)),
            ),
            "you took the temperature with the largest error, or gave `error` the outcome first; take the least, prediction first.": (
                lambda z, outcome, grid, error: sequential(
                    z, outcome, grid, lambda *both: -error(*both)
                ),
                lambda z, outcome, grid, error: sequential(
                    z, outcome, grid, lambda predicted, true: error(true, predicted)
                ),
            ),
            "return a temperature for each position, as many as `logits` has columns.": lambda z, outcome, grid, error: (
                one_for_all(z, outcome, grid, error)[:1]
            ),
            "those are places in the grid; return the temperatures that stand there.": lambda z, outcome, grid, error: [
                int(np.abs(grid - found).argmin()) for found in sequential(z, outcome, grid, error)
            ],
        },
        "for each position try every temperature on its logits, multiply by the survival that the earlier temperatures give, "
        "and keep the one with the least error.",
        temperatures,
    ),
)
