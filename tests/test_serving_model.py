"""The engine's model: costs are looked up as they were measured, records are replayed as they were made, nobody is lost."""

import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from dspark_lite.common.errors import RequestError
from dspark_lite.course.measure.simulator import EngineModel, Record, simulate
from dspark_lite.course.measure.step_costs import StepCosts
from dspark_lite.course.replication.confidence_results import observations, stored_sts
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.scheduling import (
    LaggedTopK,
    algorithm1,
    fixed,
    schedule,
    survival,
    threshold,
    throughput,
    top_k,
)
from dspark_lite.scheduling.calibration import STS, Observations
from dspark_lite.scheduling.cost_table import CostTable, lower_hull
from dspark_lite.scheduling.policies import resample_rows

REQUESTS, TOKENS = (1, 4, 16, 64), range(1, 9)
# A host's share, a share a request for drafting, and a verification that is cheap until it fills the machine.
GRID = [[5e-3 + 4e-4 * r + 2e-4 * np.hypot(r * b, 40) for b in TOKENS] for r in REQUESTS]
COSTS = StepCosts(REQUESTS, TOKENS, GRID)


@pytest.fixture(scope="module")
def record():
    """The recorded blocks of lesson 09."""
    return Record.of(list(observations().values()), stored_sts())


# Costs


def test_costs_are_what_was_measured_and_straight_in_between():
    assert COSTS.seconds(16, 48) == pytest.approx(GRID[2][2]) and COSTS.seconds(
        1, 8
    ) == pytest.approx(GRID[0][7])
    assert COSTS.seconds(16, range(16, 129, 24)).tolist() == pytest.approx(
        [
            GRID[2][0],
            (GRID[2][1] + GRID[2][2]) / 2,
            GRID[2][3],
            (GRID[2][4] + GRID[2][5]) / 2,
            GRID[2][6],
        ]
    )
    assert COSTS.seconds(10, 30) == pytest.approx((GRID[1][2] + GRID[2][2]) / 2)
    assert COSTS.sps(16, 48) == 1 / COSTS.seconds(16, 48) and torch.equal(
        COSTS.sps(4, range(4, 9)), 1 / COSTS.seconds(4, range(4, 9))
    )
    assert COSTS.max_batch_tokens == 512


def test_costs_take_a_cost_tables_place():
    alive = survival(torch.rand(10, 7, generator=torch.Generator().manual_seed(0)) ** 0.3)
    table = CostTable(
        range(1, 81), 1 / np.concatenate([np.ones(9), COSTS.seconds(10, range(10, 81))])
    )
    assert (
        torch.equal(schedule(alive, COSTS), schedule(alive, table))
        and 0 < schedule(alive, COSTS).sum() < 70
    )
    torch.testing.assert_close(throughput(alive, COSTS)[1], throughput(alive, table)[1])


def test_a_longer_step_makes_a_further_token_cheaper():
    alive = survival(torch.full((16, 7), 0.8))
    longer = StepCosts(REQUESTS, TOKENS, np.add(GRID, 0.05))
    assert schedule(alive, longer).sum() > schedule(alive, COSTS).sum()


TIMES = st.lists(st.floats(0.01, 10), min_size=3, max_size=12)


@given(TIMES)
def test_the_largest_convex_curve_below_is_below_and_as_high_as_can_be(seconds):
    seconds = np.array(seconds)
    ours = lower_hull(np.arange(len(seconds)), seconds)
    assert (ours <= seconds + 1e-12).all() and (np.diff(ours, 2) >= -1e-9).all()
    # A convex curve lies below every chord of what it lies below, so at most at the least of them.
    count = len(seconds)
    least = [
        min(
            np.interp(k, (i, j), (seconds[i], seconds[j])) if i < j else seconds[k]
            for i in range(k + 1)
            for j in range(k, count)
        )
        for k in range(count)
    ]
    np.testing.assert_allclose(ours, least)
    np.testing.assert_allclose(lower_hull(np.arange(len(seconds)), ours), ours)


def convex_costs(seconds):
    """The convex view of the seconds of steps of two requests."""
    return StepCosts([2], range(1, len(seconds) + 1), [seconds]).convex_fit().step_seconds[0]


@given(TIMES, TIMES)
def test_the_convex_view_is_the_nearest_curve_that_is_convex_and_rises(seconds, other):
    ours, seconds = convex_costs(seconds), np.array(seconds)
    assert (
        (ours >= seconds.min() - 1e-9).all()
        and (np.diff(ours) >= -1e-9).all()
        and (np.diff(ours, 2) >= -1e-9).all()
    )
    np.testing.assert_allclose(convex_costs(ours), ours)
    # Curves between ours and any other of the kind are of the kind, too: none of them may be nearer.
    slopes = np.sort(np.resize(other, len(seconds) - 1))
    another = seconds.min() + other[0] + np.concatenate([[0], slopes.cumsum()])
    assert ((seconds - ours) * (another - ours)).sum() <= 1e-6 * np.abs(another).max()


def test_one_short_measurement_bends_the_convex_view_little():
    honest = np.linspace(30, 36, 8)
    slipped = honest.copy()
    slipped[6] -= 3
    hull, ours = (
        np.diff(seconds)[-1] - np.diff(honest)[-1]
        for seconds in (lower_hull(np.arange(8), slipped), convex_costs(slipped))
    )
    assert hull > 2.9 and ours < hull / 2, (
        "the last step of the hull is as much too steep as the measurement was too short"
    )


def test_the_cost_tables_convex_view_has_every_size():
    table = CostTable([1, 4, 5, 9], [1.0, 0.9, 0.4, 0.39], 10)
    convex = table.lower_hull()
    assert convex.batch_tokens.tolist() == list(range(1, 11)) and convex.max_batch_tokens == 10
    seconds = convex.seconds(1, range(1, 11)).numpy()
    assert (np.diff(seconds, 2) >= -1e-9).all() and (
        seconds <= table.seconds(1, range(1, 11)).numpy() + 1e-12
    ).all()
    torch.testing.assert_close(
        convex.lower_hull().sps(1, range(1, 11)), convex.sps(1, range(1, 11))
    )


@pytest.mark.parametrize(
    ("requests", "tokens", "seconds", "sentence"),
    [
        (
            [1, 2],
            [1],
            [[1.0]],
            r"have shape \(1, 1\); they need a row for each of 2 numbers of requests",
        ),
        ([], [], [], "need a row for each of 0"),
        ([2, 1], [1], [[1.0], [1.0]], "do not increase"),
        ([1], [1, 1], [[1.0, 1.0]], "do not increase"),
        ([0, 1], [1], [[1.0], [1.0]], "do not increase from 1"),
        ([1], [1, 2], [[1.0, 0.0]], "does not take a positive number"),
        ([1], [1, 2], [[1.0, np.nan]], "does not take a positive number"),
    ],
)
def test_costs_that_make_no_sense_are_refused(requests, tokens, seconds, sentence):
    with pytest.raises(RequestError, match=sentence):
        StepCosts(requests, tokens, seconds)


def test_beyond_what_was_measured_nothing_is_known():
    with pytest.raises(RequestError, match="cover 1 to 64 requests; 65 were asked for"):
        COSTS.seconds(65, 65)
    with pytest.raises(
        RequestError, match="of 4 requests cover up to 32 tokens; 33 were asked for"
    ):
        COSTS.sps(4, range(4, 34))
    with pytest.raises(RequestError, match="do not cover 65 requests"):
        EngineModel(
            Record(
                1, None, *[np.ones(1, dtype=int)] * 2, np.zeros(1, dtype=int), np.ones(1, dtype=int)
            ),
            COSTS,
            slots=65,
        )


# A lagged budget where requests come and go


def test_old_survivals_stand_for_as_many_requests_as_there_are_now():
    old = torch.arange(4.0)[:, None].expand(4, 2)
    assert resample_rows(old, 4) is old
    assert [resample_rows(old, count)[:, 0].tolist() for count in (1, 2, 6)] == [
        [0],
        [0, 2],
        [0, 0, 1, 2, 2, 3],
    ]


@settings(max_examples=100)
@given(st.integers(1, 64), st.integers(1, 64), st.integers(0, 1000))
def test_a_lagged_budget_is_for_the_requests_of_now(before, now, seed):
    """What the old survivals would make optimal for the present number of requests, neither more nor less."""
    generator = torch.Generator().manual_seed(seed)
    policy = LaggedTopK(COSTS, lag=1)
    confidences = [torch.rand(count, 7, generator=generator) ** 0.2 for count in (before, now)]
    for said in confidences:
        lengths = policy(
            Proposal(
                torch.zeros(len(said), 7, dtype=torch.long),
                torch.empty(len(said), 7, 0),
                said.logit(),
            )
        )
    old, current = (survival(torch.sigmoid(said.logit())) for said in confidences)
    _, theta = throughput(resample_rows(old, now), COSTS)
    assert lengths.sum() == theta.argmax() and torch.equal(
        lengths, top_k(current, int(theta.argmax()))
    )


# The record and the model


MADE = Observations(
    np.array([[2.0, 0.0], [1.0, 1.0], [0.0, 4.0]]), np.array([2, 0, 1]), np.array([5, 5, 9])
)


def test_a_record_is_made_of_whole_answers():
    made = Record.of([MADE, MADE], STS([2.0, 0.5]))
    assert made.gamma == 2 and made.accepted.tolist() == [2, 0, 1] * 2
    assert made.first.tolist() == [0, 2, 3, 5] and made.blocks.tolist() == [2, 1, 2, 1]
    assert made.tokens.tolist() == [3 + 1 + 2, 2 + 2] * 2, (
        "each block's drafts and the token after it, and the last one cut short"
    )
    torch.testing.assert_close(made.logits[0], torch.tensor([1.0, 0.0]))


def test_an_end_falls_into_a_long_block_more_often_than_into_a_short_one():
    """Blocks of 8, 8, 1 and 1 tokens: an end at any of the 18 falls into a block of 8 in 16 of them, and halfway into it on average."""
    blocks = Observations(np.zeros((4, 7)), np.array([7, 7, 0, 0]), np.array([1, 1, 1, 1]))
    tokens = np.repeat([8, 8, 1, 1], [8, 8, 1, 1])  # of the block that each token stands in
    expected = ((tokens + 1) / 2).mean()
    assert round(expected) == 4 and Record.of([blocks], STS([1.0] * 7)).tokens.tolist() == [18 + 4]


def test_verified_whole_a_record_is_replayed_as_it_was_made():
    """Two recorded blocks, then one that the end cuts short, for which the first one comes again."""
    made = Record.of([MADE], STS([1.0, 1.0]))
    model = EngineModel(
        made, StepCosts([1], [1, 2, 3], [[1.0, 2.0, 3.0]]), slots=1, prefill=(10.0, 5.0)
    )
    model.submit(0, arrived=0.0)
    steps = [model.step() for _ in range(3)]
    assert [(s.admitted, s.verified, s.proposed, s.accepted, s.committed) for s in steps] == [
        (1, 3, 2, 2, 3),
        (0, 3, 2, 0, 1),
        (0, 3, 2, 2, 2),
    ]
    assert [s.seconds for s in steps] == [
        {"prefill": 15.0, "round": 3.0},
        {"prefill": 0.0, "round": 3.0},
        {"prefill": 0.0, "round": 3.0},
    ]
    assert steps[2].answers == [(6, 0.0, 15.0, 24.0)] and model.idle and model.step().requests == 0


def test_a_request_begins_with_its_first_block_whoever_had_the_slot_before():
    """The answer takes three rounds of two blocks, so a slot is left in the middle of them."""
    made = Record.of([MADE], STS([1.0, 1.0]))
    model = EngineModel(made, StepCosts([1], [1, 2, 3], [[1.0, 2.0, 3.0]]), slots=1)
    for _ in range(2):
        model.submit(0, arrived=0.0)
    steps = [(s.accepted, s.committed) for s in (model.step() for _ in range(6))]
    assert steps == [(2, 3), (0, 1), (2, 2)] * 2 and model.idle


def test_no_step_of_the_model_counts_a_draft_behind_the_end_of_an_answer():
    """Of the third block, which is the first one again, one token is left to write."""
    made = replace(Record.of([MADE], STS([1.0, 1.0])), tokens=np.array([5, 4]))
    model = EngineModel(made, StepCosts([1], [1, 2, 3], [[1.0, 2.0, 3.0]]), slots=1)
    model.submit(0, arrived=0.0)
    assert [(s.proposed, s.accepted, s.committed) for s in (model.step() for _ in range(3))] == [
        (2, 2, 3),
        (2, 0, 1),
        (2, 1, 1),
    ]


def closed(record, costs, policy, concurrency):
    """Tokens a second, tokens verified a request and accepted length of a closed loop of the model while all slots are taken."""
    model = EngineModel(record, costs, policy, slots=concurrency)
    steps = [
        s
        for s in simulate(model, np.zeros(60 + 2 * concurrency), np.random.default_rng(0))
        if s.requests == concurrency
    ]
    committed, verified, rounds = (
        sum(getattr(s, name) for s in steps) for name in ("committed", "verified", "requests")
    )
    return committed / sum(s.seconds["round"] for s in steps), verified / rounds, committed / rounds


def test_the_accepted_length_is_that_of_the_record(record):
    _, verified, length = closed(record, COSTS, None, 16)
    whole = record.tokens.sum() / (record.blocks + 1).sum()
    assert verified == record.gamma + 1 and length == pytest.approx(whole, rel=0.05)
    _, verified, length = closed(record, COSTS, fixed(0), 16)
    assert (verified, length) == (1, 1)


def test_budgets_fall_as_load_grows(record):
    for policy in (algorithm1, LaggedTopK):
        budgets = [closed(record, COSTS, policy(COSTS), concurrency)[1] for concurrency in REQUESTS]
        assert budgets == sorted(budgets, reverse=True) and budgets[0] > budgets[-1] + 1


def test_the_scheduler_is_no_worse_than_any_fixed_length_or_threshold(record):
    for concurrency in (4, 64):
        rivals = [fixed(length) for length in (0, 1, 3, 5, 7)] + [threshold(0.6)]
        best = max(closed(record, COSTS, rival, concurrency)[0] for rival in rivals)
        assert closed(record, COSTS, algorithm1(COSTS), concurrency)[0] > 0.99 * best


def test_a_drafter_of_one_token_is_accepted_at_its_rate(record):
    _, verified, length = closed(
        record.drafting_one(0.9, np.random.default_rng(0)), COSTS, None, 16
    )
    assert verified == 2 and length == pytest.approx(1.9, abs=0.02)


HOURS = 1 if os.environ.get("DSPARK_THOROUGH") == "1" else 1 / 8


def test_arrivals_of_an_hour_are_simulated_and_nobody_is_lost(record):
    """4,096 requests an hour; an eighth of it unless DSPARK_THOROUGH=1."""
    count, seconds = round(4096 * HOURS), 3600 * HOURS
    arrivals = np.sort(np.random.default_rng(1).uniform(0, seconds, count))
    model = EngineModel(
        record,
        StepCosts(REQUESTS, TOKENS, 8 * np.array(GRID)),
        fixed(7),
        slots=32,
        prefill=(0.01, 0.02),
    )
    steps = simulate(model, arrivals, np.random.default_rng(2))
    answers = [answer for step in steps for answer in step.answers]
    assert (
        sorted(answer.arrived for answer in answers) == arrivals.tolist()
        and seconds - 10 < model.now < 1.1 * seconds
    )
    assert all(answer.arrived < answer.first_token < answer.ended for answer in answers)
    assert (
        sum(step.admitted for step in steps) == count and max(step.requests for step in steps) > 1
    )
    assert sum(step.committed for step in steps) == sum(answer.tokens for answer in answers)


def test_under_overload_requests_wait_in_the_order_of_arrival(record):
    steps = simulate(
        EngineModel(record, COSTS, fixed(1), slots=4),
        np.arange(60) * 1e-3,
        np.random.default_rng(0),
    )
    answers = sorted(
        (answer for step in steps for answer in step.answers), key=lambda answer: answer.arrived
    )
    begun = [answer.first_token for answer in answers]
    assert len(answers) == 60 and begun == sorted(begun) and begun[-1] - answers[-1].arrived > 0.5
