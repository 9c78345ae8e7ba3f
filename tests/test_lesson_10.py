"""Lesson 10: the board says why it stopped."""

import re

import matplotlib.pyplot as plt
import pytest
import stated
import torch

from dspark_lite import scheduling
from dspark_lite.decoding.proposal import Proposal
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
    (r"cuts the loss with 8 requests from ([\d.]+) to [\d.]+ %", r"^measured +raw +(?:\S+ +){6}\d+% +([\d.]+)%"),
    (r"cuts the loss with 8 requests from [\d.]+ to ([\d.]+) %", r"^measured +monotone +(?:\S+ +){6}\d+% +([\d.]+)%"),
    (r"but not with 32, where ([\d.]+) % stay lost", r"^measured +monotone .* ([\d.]+)%$"),
    (r"On tiles it still loses up to ([\d.]+) %", r"^jagged +convex +(?:\S+ +){8}\d+% +([\d.]+)%"),
    (r"On the measured table it loses ([\d.]+) % when alone", r"^measured +convex +\d+% +([\d.]+)%"),
    (r"with 8 requests it is ([\d.]+) % \*ahead\*", r"^measured +convex +(?:\S+ +){6}\d+% +-([\d.]+)%"),
    (r"would give the search ([\d.]+) % more", r"^measured, R = 8: .* gains ([\d.]+)%$"),
    (r"by Algorithm 1 with 32 requests .* it gives ([\d.]+) when alone and ([\d.]+) among 32",
     r"^smooth +confidence threshold +([\d.]+) .* ([\d.]+)$"),
    (r"where Algorithm 1 gives ([\d.]+) and ([\d.]+)\.", r"^smooth +Algorithm 1 +([\d.]+) .* ([\d.]+)$"),
    (r"with 8 requests it gives ([\d.]+) of whole blocks", r"^measured +lagged top-K +(?:\S+ ){3}([\d.]+) "),
    (r"of whole blocks, the convex view ([\d.]+)\.", r"^measured +Algorithm 1, convex view +(?:\S+ ){3}([\d.]+) "),
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
    (most,) = stated.caught(r"the pure price of the lag, at most ([\d.]+) %", stated.prose("10"), "the prose")
    ratios = [float(ratio) for ratio in re.findall(r"^smooth    R = +\d+ +([\d.]+) \[", stated.printed("10"), re.M)]
    assert round(100 * (1 - min(ratios)), 1) == float(most) and len(ratios) == 6


def test_the_lag_and_the_gain_over_whole_blocks_are_what_is_stated():
    (most,) = stated.caught(r"nobody gains much: (\d+) % at most", stated.prose("10"), "the prose")
    table = re.findall(r"^(?:smooth|measured) +(?:confidence threshold|Algorithm 1|Algorithm 1, convex view|lagged top-K)"
                       r"((?: +\d\.\d{3}){6})$", stated.printed("10"), re.M)
    assert len(table) == 8 and round(100 * (max(float(ratio) for row in table for ratio in row.split()) - 1)) == int(most)
    (alone,) = stated.caught(r"On the measured table it is ([\d.]+) % when alone", stated.prose("10"), "the prose")
    (ratio,) = stated.caught(r"^measured +R = +1 +([\d.]+) \[", stated.printed("10"), "the output")
    assert round(100 * (1 - float(ratio)), 1) == float(alone)
