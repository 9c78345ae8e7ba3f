"""Zero-overhead scheduling: overlapped and one after another write the same, with budgets of two steps before; passes in buckets."""

import threading

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from dspark_lite.common.errors import RequestError
from dspark_lite.course.extensions.block_verification import accept_block
from dspark_lite.decoding import generate
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import appendix_a, toy_models
from dspark_lite.scheduling import LaggedTopK, fixed, retrospective, survival
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.serving.engine import Engine, Request
from dspark_lite.serving.pipeline import PlannedTopK, serve
from dspark_lite.serving.runner import next_size, padded_to

TARGET, DRAFTERS = toy_models(seed=1, vocab_size=11, gamma=4)
PROMPTS = [
    torch.randint(11, (1, 1 + n), generator=torch.Generator().manual_seed(n)) for n in range(6)
]
TABLE = CostTable(range(1, 61), [1 / (1 + size / 8 + size % 3) for size in range(1, 61)])


def engine(**options):
    """An engine of toy models without stop tokens."""
    return Engine(
        TARGET, DRAFTERS["dspark"], **{"slots": 3, "capacity": 40, "stop_token_ids": (), **options}
    )


def served(overlapped, deliver=lambda report: None, **options):
    """Answers by id, the reports that were delivered, and the events of serving PROMPTS."""
    one, reports = engine(**options), []
    for seed, prompt in enumerate(PROMPTS):
        one.submit(Request(prompt, 9 + seed, seed=seed))
    events = serve(
        one, TABLE, lambda report: (reports.append(report), deliver(report)), overlapped=overlapped
    )
    assert one.idle
    return (
        {answer.id: answer.token_ids for report in reports for answer in report.answers},
        reports,
        events,
    )


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_overlapped_writes_what_one_after_another_writes(temperature):
    both = [served(overlapped, temperature=temperature)[0] for overlapped in (True, False)]
    assert both[0] == both[1] and sorted(both[0]) == list(range(len(PROMPTS)))


def test_greedy_answers_are_plain_decodings_and_every_step_is_delivered_once_in_order():
    answers, reports, events = served(True)
    assert answers == {
        number: generate(
            TARGET, None, prompt, max_new_tokens=9 + number, stop_token_ids=()
        ).token_ids
        for number, prompt in enumerate(PROMPTS)
    }
    written = {
        number: [token for report in reports for token in report.written.get(number, [])]
        for number in answers
    }
    assert written == answers, "what a step wrote is told by its report"
    delivered = [event.step for event in events if event.part == "deliver"]
    assert delivered == list(range(len(reports) - 1)), (
        "the last one is delivered when nothing runs any more"
    )


def test_a_drafter_without_confidence_is_refused():
    one = Engine(TARGET, DRAFTERS["dflash"], slots=3, capacity=40)
    one.submit(Request(PROMPTS[0], 9))
    with pytest.raises(RequestError, match="this policy needs a confidence head"):
        serve(one, TABLE, lambda report: None)


def test_one_after_another_the_lanes_take_turns():
    events = served(False)[2]
    device, host = (
        [event for event in events if event.lane == lane] for lane in ("device", "host")
    )
    ends = {
        step: max(event.ended for event in device if event.step == step)
        for step in {event.step for event in device}
    }
    assert all(event.began >= ends[event.step + 1] - 1e-3 for event in host), (
        "the host waits for the step that follows"
    )


def test_the_budget_is_that_of_two_steps_before():
    """While the same requests run, the lengths are those of LaggedTopK."""
    one, seen = engine(slots=6), []
    for prompt in PROMPTS:
        one.submit(Request(prompt, 12))
    policy = LaggedTopK(TABLE)
    lengths, wanted = [], []

    class Spy(PlannedTopK):
        def __call__(self, proposal):
            found = super().__call__(proposal)
            if (
                not seen
                or len(proposal.tokens) == len(seen[0].tokens)
                and proposal.tokens.shape == seen[0].tokens.shape
            ):
                seen.append(proposal)
                lengths.append(found)
                wanted.append(policy(proposal))
            return found

    from dspark_lite.serving import pipeline

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pipeline, "PlannedTopK", Spy)
        serve(one, TABLE, lambda report: None)
    assert len(seen) >= 4 and all(map(torch.equal, lengths[:4], wanted[:4]))


@pytest.mark.parametrize("overlapped", [True, False])
def test_after_a_step_without_drafts_the_next_but_one_verifies_whole_blocks(overlapped):
    """One slot: the second request ends with the token after its prompt, so that its step drafts nothing."""
    one, told, planned = engine(slots=1), [], []

    class Spy(PlannedTopK):
        def __call__(self, proposal):
            found = super().__call__(proposal)
            told.append((proposal.tokens.shape[1], self.budget, int(found.sum()), self.survivals))
            return found

        def plan(self, survivals):
            planned.append(survivals)
            return super().plan(survivals)

    for prompt, most in zip(PROMPTS, (7, 1, 12)):
        one.submit(Request(prompt, most))

    from dspark_lite.serving import pipeline

    begun = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pipeline, "PlannedTopK", Spy)
        patched.setattr(
            one.queue,
            "admit",
            lambda requests, admit=one.queue.admit: (
                begun.extend(len(told) for _ in requests) or admit(requests)
            ),
        )
        serve(one, TABLE, lambda report: None, overlapped=overlapped)
    _, second, third = begun
    assert second == third, "the second request has no round"
    drafted, budget, verified, _ = told[third + 1]
    assert budget is None and verified == drafted > 0
    assert len({id(survivals) for survivals in planned}) == len(planned), "each step's once"


def test_the_two_halves_are_the_lagged_policy():
    generator = torch.Generator().manual_seed(0)
    steps = [
        Proposal(
            torch.zeros(3, 4, dtype=torch.long),
            torch.empty(3, 4, 0),
            torch.randn(3, 4, generator=generator),
        )
        for _ in range(6)
    ]
    halves, whole, told = PlannedTopK(TABLE), LaggedTopK(TABLE), []
    for number, proposal in enumerate(steps):
        halves.budget = halves.plan(told[number - 2]) if number >= 2 else None
        assert number < 2 or torch.equal(halves(proposal), whole(proposal))
        if number < 2:
            halves(proposal)
            whole(proposal)
        told.append(survival(proposal.confidence))


def test_the_host_does_not_wait_for_the_device(monkeypatch):
    """`clock` synchronises a GPU, so only the device's thread reads it."""
    from dspark_lite.serving import pipeline

    threads, clock = set(), pipeline.clock
    monkeypatch.setattr(
        pipeline,
        "clock",
        lambda device: threads.add(threading.current_thread().name) or clock(device),
    )
    served(True)
    assert threads == {"device_0"}


def test_what_the_host_raises_ends_the_serving():
    def fails(report):
        raise OSError("the client is gone")

    with pytest.raises(OSError, match="the client is gone"):
        served(True, fails)


@pytest.mark.parametrize(
    ("policy_of", "lossless"),
    [(LaggedTopK, True), (lambda table: LaggedTopK(table, lag=1), True), (retrospective, False)],
    ids=["two steps", "one step", "none"],
)
def test_a_lag_is_lossless_and_looking_ahead_is_not(policy_of, lossless):
    """A lag of two takes hold in the third round, which begins at the fourth token at the latest."""
    target, drafter, table = appendix_a()
    alone, found = (
        output_distribution(target, *which, 4)
        for which in ((None, None), (drafter, policy_of(table)))
    )
    assert (total_variation(alone, found) < 1e-9) == lossless


# Buckets


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(0, 60))
def test_padding_fills_the_pass_as_far_as_blocks_reach(counts, size):
    counts = np.array(counts)
    padded = padded_to(counts, size, 8)
    assert (padded >= counts).all() and (padded <= 8).all()
    assert padded.sum() == min(max(size, counts.sum()), 8 * len(counts))


def test_the_next_size_is_the_smallest_that_holds_them():
    assert [next_size((8, 16, 32), tokens) for tokens in (1, 8, 9, 32, 33)] == [8, 8, 16, 32, 33]
    assert next_size((), 5) == 5


@pytest.mark.parametrize(
    ("sizes", "temperature"),
    [((6, 12, 15), 0.0), ((6, 12, 15), 1.0), ((15, 12, 6), 0.0), ([12, 6, 15, 12], 0.0)],
)
def test_buckets_pad_passes_and_change_no_answer(sizes, temperature):
    """In whatever order they are given, a pass is filled up to the smallest that holds it."""
    answers, steps = [], []
    for buckets in ((), sizes):
        one = engine(policy=fixed(2), buckets=buckets, temperature=temperature)
        ids = [one.submit(Request(prompt, 9, seed=seed)) for seed, prompt in enumerate(PROMPTS)]
        found = {}
        while not one.idle:
            steps.append((buckets, one.step()))
            found |= {answer.id: answer.token_ids for answer in steps[-1][1].answers}
        answers.append([found[number] for number in ids])
    assert answers[0] == answers[1]
    filled = [report for buckets, report in steps if buckets and report.requests]
    assert any(report.padding for report in filled)
    for report in filled:  # three requests at most, of five tokens each
        assert report.verified + report.padding == min(
            next_size((6, 12, 15), report.verified), 5 * report.requests
        )
    assert not any(report.padding for buckets, report in steps if not buckets)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_rule_sees_k_plus_1_rows_in_a_padded_pass(temperature):
    """A bucket larger than the blocks gives requests tokens beyond them; the rule sees none."""
    answers = []
    for buckets in ((), (16,)):
        one = engine(policy=fixed(1), buckets=buckets, temperature=temperature, rule=accept_block)
        for seed, prompt in enumerate(PROMPTS):
            one.submit(Request(prompt, 9, seed=seed))
        found = {}
        while not one.idle:
            found |= {answer.id: answer.token_ids for answer in one.step().answers}
        answers.append(found)
    assert answers[0] == answers[1] and len(answers[0]) == len(PROMPTS)


def test_a_table_in_buckets_pays_for_the_size_that_is_run():
    buckets = TABLE.in_buckets((8, 16, 24))
    assert buckets.max_batch_tokens == 24
    for tokens in range(1, 25):
        assert buckets.sps(2, tokens) == TABLE.sps(2, next_size((8, 16, 24), tokens))
    repeated = TABLE.in_buckets((16, 8, 24, 8, 24))
    assert repeated.batch_tokens.equal(buckets.batch_tokens)
    alive = torch.full((4, 4), 0.9).cumprod(1)
    assert PlannedTopK(buckets).plan(alive) + 4 in (8, 16, 20), (
        "the end of a bucket, or of the drafts"
    )
    with pytest.raises(RequestError, match="no size of"):
        TABLE.in_buckets((64,))
