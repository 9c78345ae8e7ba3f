"""Lesson 09: the checkers know right from wrong."""

import lesson_cells
import numpy as np
import pytest
from scipy.special import expit

from dspark_lite.exercises import lesson_09

NAMES = {"exercises": lesson_09, "np": np, "expit": expit}


def test_solutions_pass(capsys):
    assert lesson_cells.run("09", "solution", **NAMES) == 4
    assert capsys.readouterr().out == 4 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("09", "exercise", **NAMES) == 4
    assert capsys.readouterr().out.count("Not done yet") == 4


def at_least(accepted, gamma=3):
    """Whether each prefix of 1 to gamma drafts was accepted."""
    return accepted[:, None] >= np.arange(1, gamma + 1)


def predicted(forecast):
    """An answer to the first exercise whose outcome is right."""
    return lambda confidence, accepted: (forecast(confidence), at_least(accepted))


def outcome(happened):
    """An answer to the first exercise whose prediction is right; `happened(accepted, position)` is not."""
    return lambda confidence, accepted: (confidence.cumprod(1), happened(accepted[:, None], np.arange(1, 4)))


def of_gaps(rule):
    """An answer to the second exercise from the gaps and counts of the bins."""
    return lambda predicted, observed, count: rule(predicted - observed, count)


def fitted(forecast):
    """An answer to the third exercise; `forecast(logits, temperature, k, chosen)` is the survival to position k."""

    def sequential(logits, outcome, grid, error):
        chosen = []
        for k in range(logits.shape[1]):
            errors = [error(forecast(logits, t, k, chosen), outcome[:, k]) for t in grid]
            chosen.append(grid[np.argmin(errors)])
        return chosen

    return sequential


def before(logits, k, temperatures):
    """Survival of the first k positions at these temperatures."""
    return expit(logits[:, :k] / np.array(temperatures[:k])).prod(1) if k else 1.0


def one_for_all(logits, outcome, grid, error):
    """One temperature for all positions."""
    survival = [expit(logits / t).cumprod(1) for t in grid]
    errors = [np.mean([error(s[:, k], outcome[:, k]) for k in range(3)]) for s in survival]
    return [grid[np.argmin(errors)]] * 3


def among_reached(logits, outcome, grid, error):
    """Every position's confidence on the blocks that reached it."""
    reached = np.concatenate([np.ones((len(outcome), 1), bool), outcome[:, :-1]], 1)
    columns = [(logits[reached[:, k], k], outcome[reached[:, k], k]) for k in range(3)]
    return [grid[np.argmin([error(expit(z / t), kept) for t in grid])] for z, kept in columns]


right_fit = fitted(lambda z, t, k, chosen: before(z, k, chosen) * expit(z[:, k] / t))


def cutting(length_of, kept_of=np.minimum, bonus=1):
    """An answer to the fourth exercise."""

    def cut(confidence, accepted, least):
        length = length_of(confidence, least)
        kept = kept_of(accepted, length)
        return kept.mean() + bonus, (length - kept).mean()

    return cut


def prefix(confidence, least):
    """Positions before the first below the threshold."""
    return (confidence >= least).cumprod(1).sum(1)


def counting(rule):
    """An answer to the fourth exercise from the drafts kept of each block and the length it was cut to."""
    return lambda c, a, least: rule(np.minimum(a, prefix(c, least)), prefix(c, least))


WRONG = {
    lesson_09.check_outcome: {
        predicted(lambda c: c): "the confidence of each position by itself",
        predicted(lambda c: np.insert(c.cumprod(1), 0, 1, 1)[:, :-1]): "the tokens before it survive",
        predicted(lambda c: c.cumprod(0)): "multiplied over the blocks",
        predicted(lambda c: c.cumsum(1)): "you added",
        predicted(lambda c: c.cumsum(1) / np.arange(1, 4)): "you averaged",
        predicted(lambda c: np.minimum.accumulate(c, 1)): "the lowest confidence so far",
        predicted(lambda c: c / 2): "running product",
        outcome(lambda accepted, k: accepted > k): "you ask for more than k",
        outcome(lambda accepted, k: accepted >= k - 1): "positions count from 1",
        outcome(lambda accepted, k: accepted == k): "exactly k",
        outcome(lambda accepted, k: accepted < k): "where the prefix fell",
        outcome(lambda accepted, k: accepted == k - 1): "the first refused one",
        outcome(lambda accepted, k: accepted >= 0 * k): "survived where at least k drafts were accepted",
    },
    lesson_09.check_ece: {
        of_gaps(lambda gap, count: np.abs(gap).mean()): "weigh by count",
        of_gaps(lambda gap, count: (gap * count).sum() / count.sum()): "too high here and too low there",
        of_gaps(lambda gap, count: abs((gap * count).sum()) / count.sum()): "absolute values before you add",
        of_gaps(lambda gap, count: (gap**2 * count).sum() / count.sum()): "you squared",
        of_gaps(lambda gap, count: np.sqrt((gap**2 * count).sum() / count.sum())): "root of the mean squared",
        of_gaps(lambda gap, count: np.abs(gap).max()): "largest gap",
        of_gaps(lambda gap, count: (np.abs(gap) * count).sum()): "did not divide",
        of_gaps(lambda gap, count: (np.abs(gap) * count).mean()): "number of bins",
        of_gaps(lambda gap, count: 1.0): "the sum over bins",
    },
    lesson_09.check_sequential: {
        fitted(lambda z, t, k, chosen: before(z, k, [1.0] * 3) * expit(z[:, k] / t)): "the positions before are still",
        fitted(lambda z, t, k, chosen: expit(z[:, k] / t)): "fitted by itself",
        one_for_all: "one temperature; each position",
        fitted(lambda z, t, k, chosen: before(z, k, [1 / c for c in chosen]) * expit(z[:, k] * t)): "divide by it",
        lambda z, outcome, grid, error: right_fit(z, outcome, grid, lambda *both: -error(*both)): "largest error",
        lambda z, outcome, grid, error: np.searchsorted(grid, right_fit(z, outcome, grid, error)): "places in the grid",
        among_reached: "among the blocks that reached it",
        lambda logits, outcome, grid, error: [1.0]: "1 temperatures for 3",
        lambda logits, outcome, grid, error: [7.0] * 3: "try every temperature",
    },
    lesson_09.check_cut: {
        cutting(lambda c, least: (c >= least).sum(1)): "with holes",
        cutting(lambda c, least: (c.cumprod(1) >= least).sum(1)): "a threshold looks at each confidence",
        cutting(prefix, lambda accepted, length: accepted): "behind the cut are not verified",
        cutting(prefix, bonus=0): "the bonus is missing",
        counting(lambda kept, length: (kept.mean() + 1, (4 - kept).mean())): "never verified",
        counting(lambda kept, length: (kept.sum() + 5, (length - kept).sum())): "means",
        counting(lambda kept, length: (kept.mean() + 1, (length + 1 - kept).mean())): "never rejected",
        cutting(lambda c, least: (c < least).cumprod(1).sum(1)): "cut what lies above",
        lambda c, a, least: (0.0, 0.0): "cut each block at the first",
    },
}
CASES = [(check, answer, name) for check, wrong in WRONG.items() for answer, name in wrong.items()]


@pytest.mark.parametrize(("check", "answer", "name"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out


def test_tensors_are_answers_too(capsys):
    import torch

    def in_torch(confidence, accepted):
        return torch.tensor(confidence).cumprod(1), torch.tensor(accepted)[:, None] >= torch.arange(1, 4)

    assert lesson_09.check_outcome(in_torch)
    assert capsys.readouterr().out == "Correct.\n"
