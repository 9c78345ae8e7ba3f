"""Lesson 10: the board says why it stopped, three numbers of a machine say when a draft pays."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from dspark_lite import scheduling
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.exercises import lesson_10 as exercises
from dspark_lite.course.figures import lesson_10 as figures
from dspark_lite.course.measure import machines as model
from dspark_lite.course.measure.machines import PassTime, StepTime
from dspark_lite.course.replication import machine_results
from dspark_lite.course.replication.block_replay import (
    lengths_by,
    replayed_speed,
    stored_blocks,
    stored_steps,
    tokens_and_seconds,
)
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness import find_violation
from dspark_lite.scheduling import global_optimum, schedule, survival
from dspark_lite.scheduling.cost_table import CostTable


def proposals(requests):
    """Three steps of so many requests that were all given the same confidences."""
    logits = torch.tensor([0.9, 0.8, 0.2]).logit().expand(requests, -1)
    return [
        Proposal(torch.zeros(requests, 3, dtype=torch.long), torch.empty(requests, 3, 1), logits)
    ] * 3


FALLING = CostTable(range(1, 9), [100, 90, 85, 80, 75, 50, 49, 48])
POLICIES = {
    "all": scheduling.fixed(3),
    "threshold": scheduling.threshold(0.5),
    **{
        name: policy_of(FALLING)
        for name, policy_of in (
            ("algorithm1", scheduling.algorithm1),
            ("retrospective", scheduling.retrospective),
            ("lagged", scheduling.LaggedTopK),
        )
    },
}


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("all", "everything is verified"),
        ("threshold", "the threshold"),
        ("algorithm1", "stopped: draft 2 of request 2"),
        ("retrospective", "the same as Algorithm 1"),
        ("lagged", "a budget of 3 drafts"),
    ],
)
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
    assert "no other draft can survive" in figures.why(
        "algorithm1", doubtful, schedule(doubtful, rising), rising
    )
    stairs = CostTable(range(1, 9), [100, 100, 60, 60, 60, 60, 60, 60])
    assert "(lossy)" in figures.why("retrospective", alive, global_optimum(alive, stairs), stairs)


@pytest.mark.parametrize(
    ("compared", "named"),
    [
        (lambda chance, expected, batch, sps: sps(batch + 1) > sps(batch), "no draft is ever"),
        (lambda chance, expected, batch, sps: chance * sps(batch + 1) > sps(batch), "no draft is"),
        (lambda chance, expected, batch, sps: expected + chance > expected, "tau alone always"),
        (lambda chance, expected, batch, sps: chance > 0.5, "a threshold does not know"),
        (
            lambda chance, expected, batch, sps: (
                chance * sps(batch + 1) > sps(batch) - sps(batch + 1)
            ),
            "tau is missing",
        ),
    ],
    ids=["sps", "chance times sps", "tau", "chance", "what the draft brings"],
)
def test_half_a_comparison_is_named(compared, named, capsys):
    def lengths_of(survivals, sps):
        lengths, expected, batch = [0] * len(survivals), float(len(survivals)), len(survivals)
        for minus_chance, _, request in sorted(exercises.tokens_of(survivals)):
            if not compared(-minus_chance, expected, batch, sps):
                break
            expected, batch = expected - minus_chance, batch + 1
            lengths[request] += 1
        return lengths

    assert exercises.check_algorithm_1(lengths_of) is False
    assert named in capsys.readouterr().out


def test_going_on_behind_a_failed_draft_that_is_not_counted_changes_nothing():
    """What the lesson asks behind exercise 2: `continue` in place of `break`."""

    def going_on(survivals, sps):
        lengths, expected, batch = [0] * len(survivals), float(len(survivals)), len(survivals)
        for minus_chance, _, request in sorted(exercises.tokens_of(survivals)):
            if (expected - minus_chance) * sps(batch + 1) <= expected * sps(batch):
                continue
            expected, batch = expected - minus_chance, batch + 1
            lengths[request] += 1
        return lengths

    assert exercises.check_algorithm_1(going_on) is True


BUSY = CostTable(range(1, 7), [1.2, 1.0, 0.85, 0.8, 0.74, 0.6])
TABLE_2 = CostTable(range(1, 7), [1.2, 1.0, 0.65, 0.55, 0.5, 0.45])


@pytest.mark.parametrize(
    ("first", "second", "lengths"), [(0, 0, [2, 1]), (0, 1, [2, 1]), (1, 0, [1, 2]), (1, 1, [1, 1])]
)
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
            return scheduling.top_k(
                alive, min(max(tile * whole(tokens / tile) - len(alive), 0), alive.numel())
            )

        return policy

    return policy_of


def nearest(tiles):
    """The nearest end of a tile, but at least one tile: the lossy policy that `find_violation` does not see."""
    return max(round(tiles), 1)


@pytest.mark.parametrize(
    ("tile", "whole", "refuted"),
    [
        (5, math.ceil, False),
        (3, math.ceil, False),
        (2, math.ceil, False),
        (5, round, True),
        (5, lambda tiles: math.floor(tiles + 0.5), True),
        (5, nearest, False),
        (3, nearest, False),
        (2, nearest, False),
        (16, round, False),
    ],
)
def test_the_search_refutes_the_nearest_end_of_a_tile_of_five(tile, whole, refuted):
    assert (find_violation(rounded_to_a_tile(tile, whole), cases=12) is not None) == refuted


def test_a_replay_begins_without_a_memory_and_pays_by_the_batch():
    steps, accepted = stored_steps(4, most=6)
    table = CostTable(range(1, 33), [100.0 / (10 + batch) for batch in range(1, 33)])
    lagged = scheduling.LaggedTopK(table)
    first = lengths_by(lagged, steps)
    # the second replay has forgotten the first
    assert torch.equal(first, lengths_by(lagged, steps))
    rows = tokens_and_seconds(torch.full_like(accepted, 2), accepted, table)
    assert rows[:, 0].tolist() == (accepted.clamp(max=2).sum(1) + 4).tolist()
    assert np.allclose(rows[:, 1], (10 + 12) / 100)
    assert np.isclose(replayed_speed(rows), rows[:, 0].sum() / rows[:, 1].sum())


def test_stored_steps_are_the_blocks_of_several_prompts_side_by_side():
    logits, accepted = stored_blocks()
    steps, kept = stored_steps(3, most=5)
    apart = len(logits) // 3
    for step, proposal in enumerate(steps):
        places = [step, step + apart, step + 2 * apart]
        assert torch.equal(proposal.confidence_logits, logits[places]) and torch.equal(
            kept[step], accepted[places]
        )
    assert len(stored_steps(64)[0]) == min(240, len(logits) // 64)


def test_requests_of_several_domains_share_the_steps_evenly():
    domains = ("chat", "math")
    steps, kept = stored_steps(4, most=5, domains=domains)
    assert kept.shape == (5, 4) and len(steps) == 5
    for first, domain in zip((0, 2), domains):
        logits, accepted = stored_blocks((domain,))
        apart = len(logits) // 2
        for step, proposal in enumerate(steps):
            places = [step, step + apart]
            assert torch.equal(proposal.confidence_logits[first : first + 2], logits[places])
            assert torch.equal(kept[step, first : first + 2], accepted[places])


# What a verified token costs


def machine(n: float, fixed_part: float = 16.0) -> StepTime:
    """A machine on which a request costs as much as n tokens, and the fixed part as much as so many whole requests."""
    return StepTime(PassTime(fixed_part * (n + 8), n, 1.0))


@pytest.mark.parametrize("load", [1, 16, 10**9])
@pytest.mark.parametrize("n", [0.0, 5.0, 12.0])
def test_the_least_survival_divides_what_is_admitted_from_what_is_not(n, load):
    """On all recorded blocks in one step; with a load without end the fixed part has dropped out of it."""
    step, record = machine(n), machine_results.records().dspark
    alive = survival(record.logits.sigmoid())
    drafts, _ = model.scheduled_on_average(step, load, record)
    ranked = alive.flatten().sort(descending=True).values
    admitted = round(drafts * len(alive))
    tokens, committed = 1 + drafts, 1 + ranked[:admitted].double().sum().item() / len(alive)
    fixed_part = step.verify.fixed / load
    least = exercises.least_survival(fixed_part, n, 1.0, 1, tokens, committed)
    assert ranked[admitted - 1] >= least - 1e-6
    assert admitted == len(ranked) or ranked[admitted] <= least + 1e-6
    if load == 10**9:
        assert least == pytest.approx(committed / (n + tokens), rel=1e-6)


def test_the_dearer_a_request_or_the_fixed_part_the_less_a_scheduler_does():
    record = machine_results.records().dspark
    by_request = [model.scheduled_on_average(machine(n), 256, record) for n in (0.0, 5.0, 12.0)]
    by_fixed = [model.scheduled_on_average(machine(5, f), 32, record) for f in (4, 16, 64)]
    for found in (by_request, by_fixed):
        drafts, gains = zip(*found)
        assert list(drafts) == sorted(drafts) and list(gains) == sorted(gains, reverse=True)
        assert drafts[0] < drafts[-1] <= 7 and gains[0] > gains[-1]


@pytest.mark.parametrize("name", ["this CPU", "H100", "DeepSeek-V4-Flash, at most"])
def test_the_step_of_all_blocks_is_near_the_replay_of_a_full_machine(name):
    step = machine_results.machines()[name].step("dspark")
    drafts, gain = model.scheduled_on_average(step, 256, machine_results.records().dspark)
    row = machine_results.replayed_row(name, "algorithm1", 256)
    assert drafts == pytest.approx(row["drafts"], abs=0.2)
    assert row["gains"]["whole"].low < gain < row["gains"]["whole"].high


def test_what_a_request_costs_in_tokens_is_counted_by_hand():
    assert model.tokens_per_request(StepTime(PassTime(9, 3, 0.5), PassTime(1, 1, 7.0), 2)) == 8


def test_the_figures_of_machines_label_their_lines_and_ring_the_steepest():
    gain = Estimate(0.04, 0.03, 0.05)
    lines = {"H100 (modelled)": {1: gain, 256: gain}, "V4 (derived)": {1: gain, 256: gain}}
    drawn = figures.gains_on_machines({"over whole blocks": lines, "over one length": lines})
    for axes in drawn.axes:
        assert {text.get_text() for text in axes.texts} == {"H100\n(modelled)", "V4\n(derived)"}
    turned = figures.request_prices({"n = 0: tokens": {1: (7.0, 0.0), 64: (5.5, 0.04)}})
    assert [list(axes.lines[0].get_ydata()) for axes in turned.axes] == [[7.0, 5.5], [0.0, 4.0]]
    assert all(axes.texts[0].get_text() == "n = 0:\ntokens" for axes in turned.axes)
    paths = {"two": np.array([1.0, 2.0, 3.0]), "one": np.array([10.0, 11.0, 12.0])}
    steepest = figures.steepest_lines(paths, np.array([1.0, 1.9, 2.0]))
    labels = [text.get_text() for text in steepest.axes[0].texts]
    assert labels == ["two:\nbest with 0", "one:\nbest with 1"]
    for found in (drawn, turned, steepest):
        plt.close(found)
