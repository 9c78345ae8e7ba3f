"""Lesson 10: the board says why it stopped."""

import math
import re

import matplotlib.pyplot as plt
import notebooks
import numpy as np
import pytest
import stated
import torch

from dspark_lite import scheduling
from dspark_lite.common.estimates import Estimate, bootstrap
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness import find_violation
from dspark_course.figures import lesson_10 as figures
from dspark_course.figures import style
from dspark_course.replication import recorded_confidence
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


TIES = [
    (r"([\d.]+) % with 8 and [\d.]+ % with 32, and the monotone view is no help", r"^jagged +raw +(?:\S+ +){3}([\d.]+)%"),
    (r"with 8 and ([\d.]+) % with 32, and the monotone view is no help", r"^jagged +raw .* ([\d.]+)%$"),
    (r"On the measured table it costs ([\d.]+) % with 8", r"^measured +raw +(?:\S+ +){3}([\d.]+)%"),
    (r"with 8 requests, and ([\d.]+) % swapped", r"^swapped +raw +(?:\S+ +){3}([\d.]+)%"),
    (r"On tiles it still loses up to ([\d.]+) %", r"^jagged +convex +(?:\S+ +){4}([\d.]+)%"),
    (r"here the first draft still pays for its tile, the 17th does not, and Algorithm 1 stops at (\d+)\.",
     r"^Algorithm 1 admits: .*'jagged': (\d+), 'measured': 0\}$"),
    (r"On the smooth table the threshold is behind: there it gives ([\d.]+) when alone and ([\d.]+) among 32",
     r"^smooth +confidence threshold +([\d.]+) .* ([\d.]+)$"),
    (r"where Algorithm 1 gives ([\d.]+) and ([\d.]+)\.", r"^smooth +Algorithm 1 +([\d.]+) .* ([\d.]+)$"),
    (r"verifies ([\d.]+) drafts on average and needs (\d+) rounds", r"^Algorithm 1 +(?=\d+ rounds, ([\d.]+) drafts)(\d+) rounds"),
    (r"the convex view of the same table it needs (\d+)\.", r"^Algorithm 1, convex view +(\d+) rounds"),
    (r"throws away ([\d.]+) % with 8 requests", r"^R =  8: lost by the coarse table ([\d.]+)%"),
    (r"with 8 requests and ([\d.]+) % with 32, on a machine", r"^R = 32: lost by the coarse table ([\d.]+)%"),
    (r"and gives ([\d.]+) times the throughput of Algorithm 1", r"^R = 32 +\S+ \[\S+ \S+ +([\d.]+) \["),
    (r"Only (\d+) of the (\d+) cases test Algorithm 1", r"^Algorithm 1 +no violation; .* on draws in (\d+) of (\d+) cases"),
    (r"Lag 0 and the control are caught in case (\d+)\.", r"^lag 0: case (\d+), "),
    (r"Lag 0 and the control are caught in case (\d+)\.", r"^control: case (\d+), "),
    (r"control are caught in case (\d+)\. Lag 2 passes, but this is also the only case in which its length depends on draws",
     r"^lag 2: no violation in 12 cases; the length depends on draws in 1, case (\d+)$"),
    (r"request are verified, ([\d.]+) of 8 when alone", r"^R =  1 .* ([\d.]+)$"),
    (r"of 8 when alone and ([\d.]+) among 32", r"^R = 32 .* ([\d.]+)$"),
]


@pytest.mark.parametrize(("sentence", "output"), TIES)
def test_what_the_lesson_states_is_what_it_prints(sentence, output):
    stated.tied("10", sentence, output)


def test_the_vectors_take_less_than_a_hundredth_of_the_step():
    assert "The vectors take less than a hundredth of the step" in stated.prose("10")
    rows = re.findall(r"vectors ([\d.]+) ms, the step itself ([\d.]+) ms$", stated.printed("10"), re.M)
    assert len(rows) == 2 and all(float(vectors) < float(step) / 100 for vectors, step in rows)


def test_the_lag_costs_at_most_what_is_stated_on_the_smooth_table():
    (most,) = stated.caught(r"The lag costs little\.\*\* On the smooth table it is at most ([\d.]+) %", stated.prose("10"), "the prose")
    ratios = [float(ratio) for ratio in re.findall(r"^R = +\d+ +([\d.]+) \[", stated.printed("10"), re.M)]
    assert round(100 * (1 - min(ratios)), 1) == float(most) and len(ratios) == 6
    assert f"  replayed   {most}%" in stated.printed("10")


def test_the_gain_over_whole_blocks_is_what_is_stated():
    table = re.findall(r"^(?:smooth|measured|swapped) +(?:confidence threshold|Algorithm 1|Algorithm 1, convex view|lagged top-K)"
                       r"((?: +\d\.\d{3}){6})$", stated.printed("10"), re.M)
    assert len(table) == 11
    assert "With 1 or 2 requests no policy here beats whole blocks" in stated.prose("10")
    assert all(float(ratio) <= 1 for row in table for ratio in row.split()[:2])
    alone, *shared = zip(*(map(float, row.split()) for row in (table[4], table[8])))
    assert "falls far below whole blocks from 2 requests on" in stated.prose("10")
    assert min(alone) > 0.95 and max(map(max, shared)) < 0.8
    assert "with 16 or 32 requests all others gain at least 6 %, on either half" in stated.prose("10")
    others = [row.split()[4:] for at, row in enumerate(table) if at not in (4, 8)]
    assert min(float(ratio) for row in others for ratio in row) >= 1.06
    names = ["threshold", "Algorithm 1", "lagged"] + ["threshold", "Algorithm 1", "convex", "lagged"] * 2
    among_32 = [float(row.split()[-1]) for row in table]
    assert "With 32 the threshold leads on one half and lagged top-K on the other" in stated.prose("10")
    assert [names[max(range(at, at + 4), key=among_32.__getitem__)] for at in (3, 7)] == ["threshold", "lagged"]
    rows = [list(map(float, row.split())) for row in table]
    said = ("With up to 4 requests the convex view is slightly ahead, on either half; with 8 they are level; with 16 the "
            "threshold leads")
    assert said in stated.prose("10") and "lesson 09's fixed threshold ties with the scheduler" in stated.prose("10")
    for cut, others in ((rows[3], rows[4:7]), (rows[7], rows[8:11])):
        assert all(0 < ours - fixed < 0.04 for ours, fixed in zip(others[1][:3], cut)) and abs(others[1][3] - cut[3]) < 0.003
        assert cut[4] > max(other[4] for other in others)
    said = stated.caught(r"On the smooth one the scheduler is ahead, by (\d) % alone and (\d) % among 32", stated.prose("10"), "the prose")
    assert said == tuple(f"{100 * (rows[1][at] / rows[0][at] - 1):.0f}" for at in (0, -1))
    assert "On the smooth table the lag costs up to 2.5 %" in stated.prose("10")


def test_the_convex_view_loses_what_is_stated_on_both_halves():
    rows = re.findall(r"^(?:measured|swapped) +(monotone|convex) +(.*)$", stated.printed("10"), re.M)
    found = [(view, [float(word[:-1]) for word in row.split()]) for view, row in rows]
    lost = [value for view, values in found if view == "convex" for value in values]
    said = stated.caught(r"swapped or not, it loses ([\d.]+) % at most", stated.prose("10"), "the prose")
    assert len(lost) == 12 and (max(lost),) == tuple(map(float, said))
    said = stated.caught(r"is up to ([\d.]+) % ahead of the search", stated.prose("10"), "the prose")
    assert (-min(lost),) == tuple(map(float, said))
    assert all(40 < values[-1] < 60 for view, values in found if view == "monotone")


BUSY = CostTable(range(1, 7), [1.2, 1.0, 0.85, 0.8, 0.74, 0.6])
TABLE_2 = CostTable(range(1, 7), [1.2, 1.0, 0.65, 0.55, 0.5, 0.45])


@pytest.mark.parametrize(("first", "second", "lengths"), [(0, 0, [2, 1]), (0, 1, [2, 1]), (1, 0, [1, 2]), (1, 1, [1, 1])])
def test_what_was_drawn_decides_about_the_second_places_of_two_requests(first, second, lengths):
    assert "exactly if the first drew a 1 and it drew a 0" in stated.prose("10")
    assert "On the second table Algorithm 1 verifies nothing; on the first both choose the same lengths" in stated.prose("10")
    alive = survival(torch.tensor([[0.8, (0.9, 0.0)[drawn]] for drawn in (first, second)]))
    assert schedule(alive, BUSY).tolist() == global_optimum(alive, BUSY).tolist() == lengths
    assert schedule(alive, TABLE_2).tolist() == [0, 0]
    source = "".join(cell.source for cell in stated.cells("10"))
    assert all(str(sps) in source for sps in ([1.2, 1.0, 0.85, 0.8, 0.74, 0.6], [1.2, 1.0, 0.65, 0.55, 0.5, 0.45]))
    assert re.search(r"^Algorithm 1 +total variation .* 0\.0000, .* 0\.0000; lengths \(1, 1\) \(1, 2\) \(2, 1\)$", stated.printed("10"), re.M)


def test_the_six_policies_are_named_before_the_question():
    before, found, _ = stated.prose("10").partition("under six policies: whole blocks, the threshold, Algorithm 1 on the")
    assert found and "Which of these six policies" not in before


def test_every_policy_gives_the_text_of_plain_decoding_as_is_said():
    assert "All six give it, the retrospective policy too" in stated.prose("10")
    assert re.search(r"^Which of these six policies .*\n.*\n  measured   none$", stated.printed("10"), re.M)
    assert len(re.findall(r"tokens committed in each$", stated.printed("10"), re.M)) == 6


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


@pytest.mark.parametrize("tile", [2, 3, 5])
def test_with_at_least_one_tile_the_search_is_blind_to_the_branch_that_goes_back(tile):
    assert "the branch that goes back is never taken" in stated.prose("10")
    assert all(tile * nearest(tokens / tile) >= tokens for tokens in (1, 2, 3))


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


def test_what_the_policies_of_exercise_6_give_is_what_its_folds_state(lesson):
    def over_convex(policy):
        return lesson["over_convex"](policy).value

    def eighty(proposal):
        return scheduling.top_k(survival(proposal.confidence), min(80, proposal.confidence.numel()))

    near, up = (over_convex(rounded_to_a_tile(16, whole)(lesson["jagged"])) for whole in (nearest, math.ceil))
    for said, found in ((r"This policy gives ([\d.]+) times what the convex view", near),
                        (r"fill six tiles, and give ([\d.]+) times what the convex", over_convex(eighty))):
        assert stated.caught(said, stated.prose("10"), "the prose") == (f"{found:.3f}",)
    assert abs(near - over_convex(scheduling.retrospective(lesson["jagged"]))) < 0.002 and abs(over_convex(eighty) - up) < 0.002
    few, many = (lesson["over_convex"](eighty, requests).value for requests in (4, 32))
    assert abs(few - 1) < 0.01 and many < 0.95  # whole blocks with 4 requests, too few drafts with 32
