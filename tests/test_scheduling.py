"""Algorithm 1 equals the paper's loop, and every policy but the retrospective one leaves the output distribution alone."""

import pytest
import torch
from hypothesis import given, strategies as st

from dspark_lite.common.errors import RequestError
from dspark_lite.course.measure.step_costs import StepCosts
from dspark_lite.decoding.proposal import Proposal, stack_proposals
from dspark_lite.losslessness import (
    find_violation,
    joint_distribution,
    marginal,
    output_distribution,
    total_variation,
)
from dspark_lite.losslessness.toys import appendix_a
from dspark_lite.scheduling import (
    LaggedTopK,
    algorithm1,
    fixed,
    global_optimum,
    retrospective,
    schedule,
    survival,
    threshold,
    throughput,
    top_k,
)
from dspark_lite.scheduling.additive_costs import AdditiveCosts
from dspark_lite.scheduling.cost_table import CostTable

LOSSLESS = {
    "all": lambda table: None,
    "threshold": lambda table: threshold(0.5),
    "algorithm 1": algorithm1,
    "lagged top-K": lambda table: LaggedTopK(table, lag=1),
}


@pytest.mark.parametrize("name", ["threshold", "algorithm 1"])
def test_no_policy_verifies_what_a_shorter_block_does_not_have(name):
    blocks = [
        Proposal(
            torch.zeros(1, length, dtype=torch.long),
            torch.ones(1, length, 1),
            torch.full((1, length), 4.0),
        )
        for length in (4, 1, 0)
    ]
    table = CostTable(range(1, 13), [1 / (20 + size) for size in range(1, 13)])
    assert LOSSLESS[name](table)(stack_proposals(blocks)).tolist() == [4, 1, 0]


def literal_schedule(survival, costs):
    """Algorithm 1 as the paper prints it, a token at a time: survivals [R, g] to lengths [R].

    The paper's table knows every batch; here a batch ends where the costs do.
    """
    requests, drafted = survival.shape
    most, lengths = costs.most_tokens(requests), torch.zeros(requests, dtype=torch.long)
    candidates = sorted(
        (
            (survival[r, j].item(), j, r)
            for r in range(requests)
            for j in range(drafted)
            if survival[r, j] > 0
        ),
        key=lambda candidate: (-candidate[0], *candidate[1:]),
    )
    tokens, expected = requests, float(requests)
    if tokens > most:
        return lengths
    best = expected * costs.sps(requests, tokens)
    for alive, _, r in candidates:
        tokens, expected = tokens + 1, expected + alive
        if tokens > most or (theta := expected * costs.sps(requests, tokens)) <= best:
            break
        best = theta
        lengths[r] += 1
    return lengths


@st.composite
def families(draw, requests=64, gamma=16):
    """From seeds to instances of one kind: survivals with ties, ones and zeros or without, and costs that are flat, smooth,
    jagged or a sum, of all batches, of small ones only, or of fewer requests."""
    count, length = draw(st.integers(1, requests)), draw(st.integers(1, gamma))
    power, ties = draw(st.sampled_from([0.05, 0.3, 1.0])), draw(st.booleans())
    kind = draw(st.sampled_from(["flat", "smooth", "jagged", "steps", "sum"]))
    share = draw(st.floats(0, 1)) if draw(st.booleans()) else 1
    probed = draw(st.integers(1, count + 1))  # requests, where the costs are a sum
    sizes = torch.arange(1, count * (length + 1) + 1)

    def instance(seed):
        generator = torch.Generator().manual_seed(seed)
        confidence = torch.rand(count, length, generator=generator) ** power
        if ties:
            confidence = (confidence * 4).round() / 4  # zeros and ones too
        covered = max(1, round(share * len(sizes)))
        if kind == "sum":
            rises = torch.rand(covered + 1, generator=generator) ** 8  # most of them small
            return survival(confidence), AdditiveCosts(
                1.0, [1, probed + 1], [0.0, 0.5], sizes[:covered], rises[1:].cumsum(0)
            )
        seconds = {
            "flat": torch.ones(len(sizes)),
            "smooth": 20 + sizes,
            "jagged": (20 + sizes) * (0.7 + 0.6 * torch.rand(len(sizes), generator=generator)),
            "steps": 20.0 + 8 * (sizes // 8),
        }[kind]
        return survival(confidence), CostTable(sizes[:covered], 1 / seconds[:covered].double())

    return instance


def instances(**sizes):
    """Single instances of all kinds."""
    return st.builds(lambda family, seed: family(seed), families(**sizes), st.integers(0, 2**31))


@given(families(requests=16, gamma=8), st.integers(0, 2**31))
def test_algorithm_1_equals_its_literal_transcription(family, seed):
    """Four instances of each kind."""
    for instance in map(family, range(seed, seed + 4)):
        assert torch.equal(schedule(*instance), literal_schedule(*instance))


@pytest.mark.parametrize("decide", [schedule, literal_schedule])
@pytest.mark.parametrize(("requests", "length"), [(1, 3), (2, 3), (3, 0)])
def test_more_requests_than_were_probed_are_not_verified(decide, requests, length):
    costs = AdditiveCosts(1.0, [1, 2], [0.0, 0.1], [1, 100], [0.0, 0.1])
    assert decide(torch.ones(requests, 3), costs).tolist() == [length] * requests


@given(instances(requests=3, gamma=4))
def test_the_global_optimum_is_the_best_of_all_lengths(instance):
    alive, table = instance
    requests, gamma = alive.shape
    most = table.most_tokens(requests)
    if requests > most:
        assert global_optimum(alive, table).sum() == 0
        return

    def value(lengths):
        tokens = requests + int(lengths.sum())
        expected = requests + sum(
            alive[r, :length].double().sum() for r, length in enumerate(lengths.tolist())
        )
        return float(expected) * table.sps(requests, tokens) if tokens <= most else 0.0

    every = torch.cartesian_prod(*[torch.arange(gamma + 1)] * requests).view(-1, requests)
    assert value(global_optimum(alive, table)) == pytest.approx(max(map(value, every)))


@given(instances(), st.integers(0, 100))
def test_top_k_spends_its_budget_on_the_highest_survivals(instance, budget):
    alive, _ = instance
    lengths = top_k(alive, budget)
    assert lengths.sum() == min(budget, alive.numel())
    kept = torch.arange(alive.shape[1]) < lengths[:, None]
    if kept.any() and not kept.all():
        assert alive[kept].min() >= alive[~kept].max()


@given(instances())
def test_algorithm_1_stops_at_the_first_token_that_does_not_pay(instance):
    admitted, candidates = int(schedule(*instance).sum()), int((instance[0] > 0).sum())
    _, theta = throughput(*instance)
    assert (theta[1 : admitted + 1] > theta[:admitted]).all()
    assert admitted == min(candidates, len(theta) - 1) or theta[admitted + 1] <= theta[admitted]


# a larger batch is the faster one
RISING = CostTable([1, 2, 3, 4, 5, 6], [1.0, 1.1, 1.2, 1.3, 1.4, 1.5])


@pytest.mark.parametrize("decide", [schedule, literal_schedule])
def test_only_tokens_that_can_survive_are_candidates(decide):
    """Algorithm 1, line 4: E = {(r, j) : a > 0}. Each further token would raise theta here."""
    assert decide(torch.zeros(1, 2), RISING).tolist() == [0]
    assert decide(torch.tensor([[0.5, 0.0], [0.25, 0.25]]), RISING).tolist() == [1, 2]
    assert decide(torch.tensor([[1e-30, 0.0]]), RISING).tolist() == [1], "little is not nothing"


@pytest.mark.parametrize("decide", [schedule, literal_schedule])
def test_a_token_that_leaves_theta_as_it_is_ends_it(decide):
    # theta is 3 without and with the first token, and 4 with both
    table = CostTable([1, 2, 3], [3.0, 2.0, 2.0])
    assert decide(torch.tensor([[0.5, 0.5]]), table).tolist() == [0]


@given(families(requests=8, gamma=8), st.integers(0, 2**31), st.integers(0, 8))
def test_where_blocks_end_in_zeros_both_admit_the_same_and_no_zero(family, seed, alive):
    """Confidence 0 at position `alive` and wherever chance has it; the faster the larger the batch, or any of the tables."""
    survivals, table = family(seed)
    survivals[:, alive:] = 0
    # The second is the faster the larger the batch.
    for costs in (table, CostTable(range(1, 73), torch.linspace(1, 2, 72))):
        lengths = schedule(survivals, costs)
        assert torch.equal(lengths, literal_schedule(survivals, costs))
        assert (lengths <= (survivals > 0).sum(1)).all()


def test_ties_are_broken_by_position_then_by_request():
    alive = torch.full((3, 4), 0.8)
    assert [top_k(alive, budget).tolist() for budget in (1, 4, 5)] == [
        [1, 0, 0],
        [2, 1, 1],
        [2, 2, 1],
    ]


def test_appendix_a_exactly():
    target, drafter, table = appendix_a()
    for first, lengths in ((0.9, [0.8, 0.72]), (0.0, [0.8, 0.0])):
        proposal = Proposal(
            torch.zeros(1, 2, dtype=torch.long),
            torch.ones(1, 2, 2) / 2,
            torch.tensor([[0.8, first]]).logit(),
        )
        assert algorithm1(table)(proposal).tolist() == [0]
        torch.testing.assert_close(survival(proposal.confidence), torch.tensor([lengths]))
    _, theta = throughput(torch.tensor([[0.8, 0.72]]), table)
    assert theta.tolist() == pytest.approx([1.0, 0.9, 1.134])
    exact = marginal(output_distribution(target, drafter, algorithm1(table), 3), 1)
    lossy = marginal(output_distribution(target, drafter, retrospective(table), 3), 1)
    assert exact == pytest.approx({0: 0.7, 1: 0.3}) and lossy == pytest.approx({0: 0.85, 1: 0.15})


WIDE = pytest.mark.slow(reason="visits every outcome of many rounds")


@pytest.mark.parametrize(
    "search",
    [
        {"cases": 4},
        {"cases": 1, "length": 3, "seed": 1},
        pytest.param({"cases": 12}, marks=WIDE),
        pytest.param({"cases": 3, "length": 3, "seed": 1}, marks=WIDE),
        pytest.param({"cases": 2, "requests": 2}, marks=WIDE),
    ],
    ids=lambda search: ", ".join(f"{value} {name}" for name, value in search.items()),
)
@pytest.mark.parametrize("name", LOSSLESS)
def test_no_small_case_violates_a_lossless_policy(name, search):
    """Two requests that share their steps are exact and independent."""
    assert find_violation(LOSSLESS[name], **search) is None


@pytest.mark.slow(
    reason="visits every outcome of two requests over three steps, a quarter of a minute"
)
def test_a_lagged_budget_that_two_requests_share_is_exact_in_later_steps():
    assert find_violation(LOSSLESS["lagged top-K"], cases=1, requests=2, length=3) is None


def test_the_search_finds_the_retrospective_policy():
    found = find_violation(retrospective)
    assert found is not None and found.distance > 1e-3
    exact = output_distribution(found.target, None, None, 2)
    again = output_distribution(found.target, found.drafter, retrospective(found.cost_table), 2)
    assert total_variation(again, exact) == pytest.approx(found.distance)


def test_a_shared_batch_gives_lossy_policies_away():
    target, drafter, table = appendix_a()
    table = CostTable([1, 2, 3, 4, 5, 6], [1.0, 1.0, 0.5, 0.45, 0.45, 0.45])
    exact = joint_distribution(target, None, None, 2, [(0,), (1,)])
    assert (
        total_variation(
            joint_distribution(target, drafter, algorithm1(table), 2, [(0,), (1,)]), exact
        )
        < 1e-5
    )
    assert (
        total_variation(
            joint_distribution(target, drafter, retrospective(table), 2, [(0,), (1,)]), exact
        )
        > 1e-2
    )


def block(*confidence):
    """A proposal with these confidences [R, g]."""
    logits = torch.tensor(confidence).logit()
    return Proposal(
        torch.zeros(logits.shape, dtype=torch.long), torch.ones(*logits.shape, 2) / 2, logits
    )


@pytest.mark.parametrize(
    ("policy", "lengths"),
    [
        (threshold(0.5), [2, 0]),
        (threshold(0.49), [2, 3]),
        (threshold(0.0), [3, 3]),
        (threshold(1.0), [0, 0]),  # at the threshold is enough
        (fixed(0), [0, 0]),
        (fixed(2), [2, 2]),
        (fixed(9), [3, 3]),
    ],
)
def test_policies_that_know_no_costs(policy, lengths):
    """Twice: none of them remembers."""
    proposal = block([0.5, 0.5, 0.4], [0.49, 0.9, 0.9])
    assert policy(proposal).tolist() == policy(proposal).tolist() == lengths


def test_what_a_policy_cannot_be_is_refused():
    with pytest.raises(RequestError, match="the verification length is -1"):
        fixed(-1)
    with pytest.raises(RequestError, match="lag is 0 steps"):
        LaggedTopK(CostTable([1], [1.0]), lag=0)


@pytest.mark.parametrize(
    ("lag", "lengths"),
    [({}, [3, 3, 0, 0, 0, 3]), ({"lag": 1}, [3, 0, 0, 0, 3, 3]), ({"lag": 3}, [3, 3, 3, 0, 0, 0])],
)
def test_the_lagged_budget_is_that_of_so_many_steps_before(lag, lengths):
    """Two unless told."""
    sure, doubtful = block([0.99, 0.99, 0.99]), block([0.05, 0.05, 0.05])
    policy = LaggedTopK(CostTable([1, 2, 3, 4], [1.0, 0.9, 0.8, 0.7]), **lag)
    assert [
        policy(one).item() for one in (doubtful, doubtful, doubtful, sure, sure, sure)
    ] == lengths
    policy.begin()
    assert policy(doubtful).item() == 3, "begin forgets what was seen"


def test_the_lagged_budget_goes_to_the_current_confidences():
    policy = LaggedTopK(CostTable([1, 8], [1.0, 0.2]), lag=1)
    policy(block([0.9, 0.9], [0.1, 0.1]))
    budget = int(
        global_optimum(survival(torch.tensor([[0.9, 0.9], [0.1, 0.1]])), policy.cost_table).sum()
    )
    now = block([0.1, 0.1], [0.9, 0.9])
    assert policy(now).tolist() == top_k(survival(now.confidence), budget).tolist()


@pytest.mark.parametrize(
    "values",
    [[[0.5, float("nan")]], [[1.2, 0.5]], [[-0.1, -0.2]], [[0.5, 0.6]], [[float("inf"), 0.5]]],
)
def test_survivals_that_are_none_are_refused(values):
    table = CostTable([1, 8], [1.0, 0.5])
    for decide in (
        lambda alive: schedule(alive, table),
        lambda alive: global_optimum(alive, table),
        lambda alive: top_k(alive, 1),
    ):
        with pytest.raises(
            RequestError, match="not a probability or is larger than the one before"
        ):
            decide(torch.tensor(values))
    with pytest.raises(RequestError, match=r"it must be \[requests, positions\]"):
        schedule(torch.tensor([0.5]), table)


def test_an_empty_batch_gets_no_lengths():
    table = CostTable([1], [1.0])
    assert schedule(torch.empty(0, 7), table).tolist() == []
    assert (
        top_k(torch.empty(0, 7), 5).tolist() == []
        and global_optimum(torch.empty(0, 7), table).tolist() == []
    )


def test_a_table_that_does_not_cover_the_batch_stops_it_there():
    sure = torch.full((4, 7), 1.0)
    assert schedule(sure, CostTable([1], [1.0], 10)).sum() == 6, "the batch grew beyond the table"
    assert schedule(sure, CostTable([1], [1.0], 4)).sum() == 0
    assert schedule(sure, CostTable([1], [1.0], 3)).sum() == 0, "not even the anchors are covered"


@pytest.mark.parametrize(
    "costs",
    [
        CostTable([1, 2, 4], [3.0, 2.0, 1.5]),
        AdditiveCosts(0.01, [1, 2], [0.0, 0.001], [1, 4], [0.0, 0.002]),
        StepCosts([1, 2], [1, 2], [[0.01, 0.011], [0.012, 0.013]]),
    ],
    ids=lambda costs: type(costs).__name__,
)
@pytest.mark.parametrize("choose", [schedule, global_optimum])
def test_more_requests_than_the_costs_cover_are_not_verified(costs, choose):
    """In every form of costs alike; as many as they cover are."""
    assert choose(torch.full((2, 1), 0.99), costs).sum() > 0
    assert choose(torch.full((5, 1), 0.99), costs).tolist() == [0] * 5
