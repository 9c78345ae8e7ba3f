"""Lesson 10: the board says why it stopped."""

import math
import re

import matplotlib.pyplot as plt
import notebooks
import numpy as np
import pytest
import torch

from dspark_lite import scheduling
from dspark_lite.common.estimates import Estimate, bootstrap
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness import find_violation
from dspark_course.exercises import lesson_10
from dspark_course.figures import lesson_10 as figures
from dspark_course.figures import style
from dspark_course.replication import recorded_confidence
from dspark_lite.scheduling import global_optimum, schedule, survival
from dspark_lite.scheduling.cost_table import CostTable


def test_a_block_of_no_drafts_is_a_case_of_the_exercise(capsys):
    """An answer that looks at the first draft before it knows that there is one is not right."""
    assert lesson_10.check_stop(lambda theta: 0 if theta[1] <= theta[0] else lesson_10.admitted(theta)) is False
    assert "IndexError" in capsys.readouterr().out and lesson_10.check_stop(lesson_10.admitted)


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


def test_the_swapped_half_is_drawn_pale_and_counts_in_the_titles(closing):
    loads = {1: 0.0, 32: 0.5}
    fig = figures.prices({curve: {"raw": loads, "convex": loads} for curve in ("smooth", "measured")}, "CPU",
                         {"raw": {1: 0.0, 32: 0.7}, "convex": {1: 0.0, 32: 0.1}})
    assert [axes.get_title() for axes in fig.axes] == ["smooth: raw up to 50%, convex 50%", "measured: raw up to 70%, convex 50%"]
    assert [sum(line.get_alpha() is not None for line in axes.lines) for axes in fig.axes] == [0, 2]
    one = {"algorithm1": {1: Estimate(1.0, 0.9, 1.1), 32: Estimate(0.4, 0.3, 0.5)}}
    swapped = {"algorithm1": {1: Estimate(1.0, 0.9, 1.1), 32: Estimate(0.3, 0.2, 0.4)}}
    fig = figures.ratios({curve: one for curve in ("smooth", "measured")}, "CPU", swapped)
    assert [axes.get_title() for axes in fig.axes] == ["smooth: Algorithm 1 down to 0.40", "measured: Algorithm 1 down to 0.30"]


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


BUSY = CostTable(range(1, 7), [1.2, 1.0, 0.85, 0.8, 0.74, 0.6])
TABLE_2 = CostTable(range(1, 7), [1.2, 1.0, 0.65, 0.55, 0.5, 0.45])


@pytest.mark.parametrize(("first", "second", "lengths"), [(0, 0, [2, 1]), (0, 1, [2, 1]), (1, 0, [1, 2]), (1, 1, [1, 1])])
def test_what_was_drawn_decides_about_the_second_places_of_two_requests(first, second, lengths):
    alive = survival(torch.tensor([[0.8, (0.9, 0.0)[drawn]] for drawn in (first, second)]))
    assert schedule(alive, BUSY).tolist() == global_optimum(alive, BUSY).tolist() == lengths
    assert schedule(alive, TABLE_2).tolist() == [0, 0]


def rounded_to_a_tile(tile, whole):
    """A policy of exercise 6: the convex view's batch, rounded to a multiple of `tile` by `whole`, as a function of its table."""
    def policy_of(table):
        view = table.lower_hull()

        def policy(proposal):
            alive = survival(proposal.confidence)
            tokens = len(alive) + int(schedule(alive, view).sum())
            return scheduling.top_k(alive, min(max(tile * whole(tokens / tile) - len(alive), 0), alive.numel()))
        return policy
    return policy_of


def nearest(tiles):
    """The nearest end of a tile, but at least one tile: the lossy policy that `find_violation` does not see."""
    return max(round(tiles), 1)


@pytest.mark.parametrize(("tile", "whole", "refuted"), [
    (5, math.ceil, False), (3, math.ceil, False), (2, math.ceil, False), (5, round, True),
    (5, lambda tiles: math.floor(tiles + 0.5), True), (5, nearest, False), (3, nearest, False), (2, nearest, False),
    (16, round, False)])
def test_the_search_refutes_the_nearest_end_of_a_tile_of_five(tile, whole, refuted):
    assert (find_violation(rounded_to_a_tile(tile, whole), cases=12) is not None) == refuted


@pytest.fixture(scope="module")
def lesson():
    """The names of the lesson's cells that replay recorded steps, run from its source."""
    scope = {"np": np, "torch": torch, "CostTable": CostTable, "figures": figures, "style": style, **vars(scheduling),
             "recorded_confidence": recorded_confidence, "stored": recorded_confidence.stored_cost_table(),
             "measured": recorded_confidence.steps(), "bootstrap": bootstrap}
    code = [cell.source for cell in notebooks.read_cells(*notebooks.lesson_sources("10")) if cell.cell_type == "code"]
    for beginning in ("temperatures =", "def record(", "def smooth_seconds(", "def convex(", "loads =", "def ratio(", "def looks_ahead("):
        (cell,) = (cell for cell in code if re.search(rf"^{re.escape(beginning)}", cell, re.M))
        for lead, stop in (("loads =", "\n\n\nfor curve"), ("def ratio(", "\n\n\nagainst_all"), ("def looks_ahead(", "\nrivals =")):
            cell = cell.partition(stop)[0] if beginning == lead else cell
        exec(cell, scope)
    plt.close("all")
    return scope


@pytest.mark.parametrize(("whole", "sees"), [(nearest, True), (lambda tiles: math.floor(tiles + 0.5), True), (math.ceil, False)])
def test_looking_ahead_is_seen_on_recorded_steps_with_tiles_of_sixteen(lesson, whole, sees):
    policy = rounded_to_a_tile(16, whole)(lesson["jagged"])
    assert (lesson["looks_ahead"](policy) is not None) == sees
