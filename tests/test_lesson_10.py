"""Lesson 10: the checkers know right from wrong, and the board says why it stopped."""

import lesson_cells
import matplotlib.pyplot as plt
import pytest
import torch

from dspark_lite import scheduler_plots, scheduling
from dspark_lite.cost_table import CostTable
from dspark_lite.drafters import Proposal
from dspark_lite.exercises import lesson_10
from dspark_lite.scheduling import global_optimum, schedule, survival, top_k

NAMES = {"exercises": lesson_10, "torch": torch, **vars(scheduling)}


def test_solutions_pass(capsys):
    assert lesson_cells.run("10", "solution", **NAMES) == 4
    assert capsys.readouterr().out == 4 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("10", "exercise", **NAMES) == 4
    assert capsys.readouterr().out.count("Not done yet") == 4


def tokens(confidence):
    """All pairs (request, position), positions first."""
    requests, gamma = confidence.shape
    return [(r, k) for k in range(gamma) for r in range(requests)]


def ranked(value, pairs):
    """Pairs by their value, the highest first, ties as they come."""
    return sorted(pairs, key=lambda pair: -value[pair].item())


def admits(keeps):
    """An answer to exercise 3 that counts the leading tokens for which `keeps(theta)` [n] holds."""
    return lambda theta: int(keeps(theta).long().cumprod(0).sum())


WRONG = {
    lesson_10.check_order: {
        lambda c: ranked(c, tokens(c)): "sorted by confidence",
        lambda c: ranked(survival(c), tokens(c)[::-1]): "break ties by position",
        lambda c: sorted(tokens(c), key=lambda pair: survival(c)[pair].item()): "the lowest survival came first",
        lambda c: sorted(tokens(c)): "request by request",
        lambda c: tokens(c): "position by position",
        lambda c: [(k, r) for r, k in ranked(survival(c), tokens(c))]: "(position, request)",
        lambda c: tokens(c)[:3]: "sort the pairs",
    },
    lesson_10.check_theta: {
        lambda s, r, table: (r + sum(s)) * table(len(s)): "missing from B: each",
        lambda s, r, table: sum(s) * table(r + len(s)): "missing from tau",
        lambda s, r, table: sum(s) * table(len(s)): "from B and from tau",
        lambda s, r, table: (1 + sum(s)) * table(1 + len(s)): "one anchor for the whole batch",
        lambda s, r, table: (r + len(s)) * table(r + len(s)): "counted as accepted",
        lambda s, r, table: (r + sum(s)) / table(r + len(s)): "divided by SPS",
        lambda s, r, table: (1 + sum(s) / r) * table(r + len(s)): "tau a request",
        lambda s, r, table: 0.0: "theta = ",
    },
    lesson_10.check_stop: {
        lambda theta: theta.argmax(): "the highest theta of all",
        lambda theta: sum(theta[k] > theta[:k].max() for k in range(1, len(theta))): "beats the best so far",
        lambda theta: (theta.diff() > 0).sum(): "every rise",
        admits(lambda theta: theta.diff() >= 0): "leaves theta as it is",
        admits(lambda theta: theta[1:] > theta[0]): "compared with the first one",
        lambda theta: min(admits(lambda t: t.diff() > 0)(theta) + 1, len(theta) - 1): "the token that failed",
        lambda theta: admits(lambda t: t.diff() > 0)(theta) - 1: "off by one",
        lambda theta: theta[admits(lambda t: t.diff() > 0)(theta)]: "return the number",
        lambda theta: 7: "count the rises",
    },
    lesson_10.check_lagged: {
        lambda old, now, table: global_optimum(now, table): "retrospective",
        lambda old, now, table: global_optimum(old, table): "right two steps ago",
        lambda old, now, table: top_k(now, schedule(old, table).sum()): "with the early stop",
        lambda old, now, table: schedule(now, table): "Algorithm 1 on the current",
        lambda old, now, table: top_k(old, global_optimum(now, table).sum()): "swapped",
        lambda old, now, table: top_k(now, global_optimum(old, table).sum() + len(old)): "anchors are in the budget",
        lambda old, now, table: global_optimum(old, table).sum(): "one number",
        lambda old, now, table: torch.zeros(3): "top_k hands it out",
    },
}
CASES = [(check, answer, name) for check, wrong in WRONG.items() for answer, name in wrong.items()]


@pytest.mark.parametrize(("check", "answer", "name"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out


def proposals(requests):
    """Three steps of so many requests that were all given the same confidences."""
    logits = torch.tensor([0.9, 0.8, 0.2]).logit().expand(requests, -1)
    return [Proposal(torch.zeros(requests, 3, dtype=torch.long), torch.empty(requests, 3, 1), logits)] * 3


FALLING = CostTable(range(1, 9), [100, 90, 85, 80, 75, 50, 49, 48])
POLICIES = {"all": scheduling.fixed(3), "threshold": scheduling.threshold(0.5),
            **{name: policy_of(FALLING) for name, policy_of in (
                ("algorithm1", scheduling.algorithm1), ("retrospective", scheduling.retrospective),
                ("lagged", scheduling.LaggedTopK))}}


@pytest.mark.parametrize(("name", "says"), [
    ("all", "everything is verified"), ("threshold", "the threshold"), ("algorithm1", "stopped: draft 2 of request 2"),
    ("retrospective", "the same as Algorithm 1"), ("lagged", "a budget of 3 drafts")])
def test_the_board_says_why_it_stopped(name, says):
    figure = scheduler_plots.board(proposals(2), 2, name, POLICIES[name], FALLING, "two requests")
    assert says in figure.axes[1].get_title()
    plt.close(figure)


def test_the_board_names_the_end_of_the_table_and_of_the_drafts():
    alive = survival(proposals(2)[0].confidence)
    short, flat = CostTable([1, 2, 3, 4], [1.0] * 4), CostTable(range(1, 9), [1.0] * 8)
    assert "end of the table" in scheduler_plots.why("algorithm1", alive, schedule(alive, short), short)
    assert "everything is admitted" in scheduler_plots.why("algorithm1", alive, schedule(alive, flat), flat)
    assert "more than the table covers" in scheduler_plots.why("all", alive, torch.tensor([3, 3]), short)
    rising, doubtful = CostTable(range(1, 9), range(1, 9)), torch.tensor([[0.9, 0.0], [0.0, 0.0]])
    assert "no other draft can survive" in scheduler_plots.why("algorithm1", doubtful, schedule(doubtful, rising), rising)
    stairs = CostTable(range(1, 9), [100, 100, 60, 60, 60, 60, 60, 60])
    assert "(lossy)" in scheduler_plots.why("retrospective", alive, global_optimum(alive, stairs), stairs)
