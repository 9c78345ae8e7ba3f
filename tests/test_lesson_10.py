"""Lesson 10: the board says why it stopped."""

import math
import re

import matplotlib.pyplot as plt
import pytest
import stated
import torch

from dspark_lite import scheduling
from dspark_lite.common.estimates import Estimate
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness import find_violation
from dspark_course.figures import lesson_10 as figures
from dspark_lite.scheduling import global_optimum, schedule, survival
from dspark_lite.scheduling.cost_table import CostTable


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
    figure = figures.board(proposals(2), 2, name, POLICIES[name], FALLING, "two requests")
    assert says in figure.axes[1].get_title()
    plt.close(figure)


def test_titles_say_what_the_stop_costs_and_how_low_algorithm_1_falls(closing):
    curves = ("smooth", "jagged")
    lost = {curve: {view: {1: 0.0, 32: worst} for view, worst in (("raw", 0.5), ("monotone", 0.4), ("convex", 0.1))} for curve in curves}
    assert [axes.get_title() for axes in figures.prices(lost, "CPU").axes] == [f"{curve}: raw up to 50%, convex 10%" for curve in curves]
    found = {curve: {"algorithm1": {1: Estimate(1.0, 0.9, 1.1), 32: Estimate(0.4, 0.3, 0.5)}} for curve in curves}
    assert [axes.get_title() for axes in figures.ratios(found, "CPU").axes] == [f"{curve}: Algorithm 1 down to 0.40" for curve in curves]


def test_the_board_names_the_end_of_the_table_and_of_the_drafts():
    alive = survival(proposals(2)[0].confidence)
    short, flat = CostTable([1, 2, 3, 4], [1.0] * 4), CostTable(range(1, 9), [1.0] * 8)
    assert "end of the table" in figures.why("algorithm1", alive, schedule(alive, short), short)
    assert "everything is admitted" in figures.why("algorithm1", alive, schedule(alive, flat), flat)
    assert "more than the table covers" in figures.why("all", alive, torch.tensor([3, 3]), short)
    rising, doubtful = CostTable(range(1, 9), range(1, 9)), torch.tensor([[0.9, 0.0], [0.0, 0.0]])
    assert "no other draft can survive" in figures.why("algorithm1", doubtful, schedule(doubtful, rising), rising)
    stairs = CostTable(range(1, 9), [100, 100, 60, 60, 60, 60, 60, 60])
    assert "(lossy)" in figures.why("retrospective", alive, global_optimum(alive, stairs), stairs)


TIES = [
    (r"([\d.]+) % with 8 and [\d.]+ % with 32, and the monotone view is no help", r"^jagged +raw +(?:\S+ +){6}\d+% +([\d.]+)%"),
    (r"with 8 and ([\d.]+) % with 32, and the monotone view is no help", r"^jagged +raw .* ([\d.]+)%$"),
    (r"On the measured table it costs ([\d.]+) % with 8", r"^measured +raw +(?:\S+ +){6}\d+% +([\d.]+)%"),
    (r"with 8 requests, and ([\d.]+) % swapped", r"^swapped +raw +(?:\S+ +){6}\d+% +([\d.]+)%"),
    (r"with 8 requests it loses ([\d.]+) % or, swapped,", r"^measured +monotone +(?:\S+ +){6}\d+% +([\d.]+)%"),
    (r"with 8 requests it loses [\d.]+ % or, swapped, ([\d.]+) %", r"^swapped +monotone +(?:\S+ +){6}\d+% +([\d.]+)%"),
    (r"On tiles it still loses up to ([\d.]+) %", r"^jagged +convex +(?:\S+ +){8}\d+% +([\d.]+)%"),
    (r"would give the search ([\d.]+) % more with 8", r"^measured, R = 8: .* gains ([\d.]+)%$"),
    (r"here the first draft still pays for its tile, the 17th does not, and Algorithm 1 stops at (\d+)\.",
     r"^Algorithm 1 admits: .*'jagged': (\d+), 'measured': 0\}$"),
    (r"by Algorithm 1 with 32 requests .* it gives ([\d.]+) when alone and ([\d.]+) among 32",
     r"^smooth +confidence threshold +([\d.]+) .* ([\d.]+)$"),
    (r"where Algorithm 1 gives ([\d.]+) and ([\d.]+)\.", r"^smooth +Algorithm 1 +([\d.]+) .* ([\d.]+)$"),
    (r"verifies ([\d.]+) drafts on average and needs (\d+) rounds", r"^Algorithm 1 +(?=\d+ rounds, ([\d.]+) drafts)(\d+) rounds"),
    (r"the convex view of the same table it needs (\d+)\.", r"^Algorithm 1, convex view +(\d+) rounds"),
    (r"throws away ([\d.]+) % with 8 requests", r"^R =  8: lost by the coarse table ([\d.]+)%"),
    (r"with 8 requests and ([\d.]+) % with 32, on a machine", r"^R = 32: lost by the coarse table ([\d.]+)%"),
    (r"and gives ([\d.]+) times the throughput of Algorithm 1", r"^jagged    R = 32 +([\d.]+) \["),
    (r"request are verified, ([\d.]+) of 8 when alone", r"^smooth    R =  1 .* ([\d.]+)$"),
    (r"of 8 when alone and ([\d.]+) among 32", r"^smooth    R = 32 .* ([\d.]+)$"),
]


@pytest.mark.parametrize(("sentence", "output"), TIES)
def test_what_the_lesson_states_is_what_it_prints(sentence, output):
    stated.tied("10", sentence, output)


def test_the_lag_costs_at_most_what_is_stated_on_the_smooth_table():
    (most,) = stated.caught(r"the price of the lag alone, at most ([\d.]+) %", stated.prose("10"), "the prose")
    ratios = [float(ratio) for ratio in re.findall(r"^smooth    R = +\d+ +([\d.]+) \[", stated.printed("10"), re.M)]
    assert round(100 * (1 - min(ratios)), 1) == float(most) and len(ratios) == 6


def test_the_gain_over_whole_blocks_is_what_is_stated():
    (most,) = stated.caught(r"the highest gain is (\d+) %, by Algorithm 1 with 32", stated.prose("10"), "the prose")
    table = re.findall(r"^(?:smooth|measured|swapped) +(?:confidence threshold|Algorithm 1|Algorithm 1, convex view|lagged top-K)"
                       r"((?: +\d\.\d{3}){6})$", stated.printed("10"), re.M)
    assert len(table) == 12 and round(100 * (max(float(ratio) for row in table for ratio in row.split()) - 1)) == int(most)
    assert "With 1 or 2 requests no policy here beats whole blocks" in stated.prose("10")
    assert all(float(ratio) <= 1 for row in table for ratio in row.split()[:2])
    alone, *shared = zip(*(map(float, row.split()) for row in (table[5], table[9])))
    assert "falls far below whole blocks from 2 requests on" in stated.prose("10")
    assert min(alone) > 0.95 and max(map(max, shared)) < 0.8
    names = ["threshold", "Algorithm 1", "convex", "lagged"] * 3
    among_32 = [float(row.split()[-1]) for row in table]
    assert "with 32 requests the threshold, and lagged top-K when swapped" in stated.prose("10")
    assert [names[max(range(at, at + 4), key=among_32.__getitem__)] for at in (4, 8)] == ["threshold", "lagged"]
    assert "On the smooth table the lag costs up to 2.5 %" in stated.prose("10")


def test_the_convex_view_loses_and_gains_what_is_stated_on_both_halves():
    rows = re.findall(r"^(?:measured|swapped) +(monotone|convex) +(.*)$", stated.printed("10"), re.M)
    found = [(view, [float(word[:-1]) for word in row.split()][1::2]) for view, row in rows]
    lost = [value for view, values in found if view == "convex" for value in values]
    said = stated.caught(r"it loses ([\d.]+) % at most, and only with 4 requests is it \*ahead\* of the search without a stop in "
                         r"both, by ([\d.]+) % and ([\d.]+) %", stated.prose("10"), "the prose")
    measured, swapped = (values for view, values in found if view == "convex")
    assert len(lost) == 12 and (max(lost), -measured[2], -swapped[2]) == tuple(map(float, said))
    assert [max(pair) < 0 for pair in zip(measured, swapped)] == [False, False, True, False, False, False]
    assert all(40 < values[-1] < 60 for view, values in found if view == "monotone")


def rounded_to_a_tile(tile, whole):
    """A policy of exercise 6: the convex view's batch, rounded to a multiple of `tile` by `whole`."""
    def policy_of(table):
        def policy(proposal):
            alive = survival(proposal.confidence)
            tokens = len(alive) + int(schedule(alive, table.lower_hull()).sum())
            return scheduling.top_k(alive, min(max(tile * whole(tokens / tile) - len(alive), 0), alive.numel()))
        return policy
    return policy_of


@pytest.mark.parametrize(("tile", "whole", "refuted"), [
    (5, math.ceil, False), (3, math.ceil, False), (2, math.ceil, False), (5, round, True),
    (5, lambda tiles: math.floor(tiles + 0.5), True),
    (16, round, False)])
def test_the_search_refutes_the_nearest_end_of_a_tile_of_five(tile, whole, refuted):
    assert (find_violation(rounded_to_a_tile(tile, whole), cases=12) is not None) == refuted
