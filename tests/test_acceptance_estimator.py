"""Confidence without a head: margins, the fit as blocks come, and that nothing about the text changes."""

import gc
import weakref

import pytest
import torch

from dspark_lite import scheduling
from dspark_lite.common.errors import RequestError
from dspark_lite.decoding import generate, generate_together
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import toy_models
from dspark_course.beyond.acceptance_estimator import LARGEST_MARGIN, AcceptanceEstimator, WithEstimate, margins

TARGET, DRAFTERS = toy_models()
PROMPTS = [torch.tensor([[0, 1, 1]]), torch.tensor([[1, 0]])]


def test_a_margin_is_the_lead_of_the_first_token_whichever_was_drawn():
    probs = torch.tensor([[[0.6, 0.3, 0.1], [0.0, 1.0, 0.0]]])
    torch.testing.assert_close(margins(probs), torch.tensor([[2.0, 1.0]]).log().index_fill(1, torch.tensor([1]), LARGEST_MARGIN))
    assert torch.equal(margins(probs[..., [2, 0, 1]]), margins(probs))


def test_the_coefficients_of_a_known_drafter_are_found():
    generator = torch.Generator().manual_seed(0)
    slope, intercepts = 1.2, torch.tensor([0.3, -0.4, -1.0])
    estimator = AcceptanceEstimator(3)
    for found in 3 * torch.rand(10_000, 3, generator=generator):
        kept = torch.rand(3, generator=generator) < torch.sigmoid(slope * found + intercepts)
        estimator.learn(found, 3, int(kept.long().cumprod(0).sum()))
    torch.testing.assert_close(estimator.coefficients, torch.tensor([slope, *intercepts]).double(), atol=0.25, rtol=0)


def test_what_was_cut_or_never_judged_teaches_nothing():
    estimator = AcceptanceEstimator(3, refit=200)
    before = estimator.coefficients.clone()
    for _ in range(100):
        estimator.learn(torch.ones(3), 1, 1)  # one verified and kept, two cut
        estimator.learn(torch.ones(3), 3, 0)  # the first rejected, two never judged
    assert torch.equal(estimator.coefficients[2:], before[2:]) and estimator.coefficients[1] != before[1]


def test_a_slope_never_falls_below_zero():
    estimator = AcceptanceEstimator(1, refit=50)
    for turn in range(500):
        estimator.learn(torch.tensor([float(turn % 2)]), 1, (turn + 1) % 2)  # the wider margin is always rejected
    assert estimator.coefficients[0] == 0


class Noting(AcceptanceEstimator):
    """Keeps what it is told."""

    def learn(self, found, verified, accepted):
        self.told = [*getattr(self, "told", []), (verified, accepted)]
        super().learn(found, verified, accepted)


@pytest.mark.parametrize("policy", [None, scheduling.fixed(1)], ids=["whole", "one"])
def test_decoding_is_that_of_the_drafter_inside_and_each_round_is_learnt_from(policy):
    drafter = DRAFTERS["eagle3"]
    estimated = WithEstimate(drafter, Noting(drafter.gamma))
    options = {"max_new_tokens": 20, "temperature": 1.0, "stop_token_ids": ()}
    plain = generate(TARGET, drafter, PROMPTS[0], policy=policy, generator=torch.Generator().manual_seed(0), **options)
    found = generate(TARGET, estimated, PROMPTS[0], policy=policy, generator=torch.Generator().manual_seed(0), **options)
    assert found.token_ids == plain.token_ids
    assert estimated.estimator.told == [(r.proposed, r.accepted) for r in found.rounds]


def test_requests_that_share_steps_are_told_apart():
    estimated = WithEstimate(DRAFTERS["small_lm"], Noting(DRAFTERS["small_lm"].gamma))
    runs = generate_together(TARGET, estimated, PROMPTS, max_new_tokens=10, temperature=1.0, stop_token_ids=(),
                             policy=lambda proposal: torch.arange(len(proposal.tokens)), generator=torch.Generator().manual_seed(1))
    shared = min(len(run.rounds) for run in runs)
    in_turn = [(run.rounds[number].proposed, run.rounds[number].accepted) for number in range(shared) for run in runs]
    assert estimated.estimator.told[:2 * shared] == in_turn and {verified for verified, _ in in_turn} == {0, 1}


def test_an_answer_without_the_policy_leaves_nothing_for_the_next_one():
    drafter, rounds = DRAFTERS["eagle3"], []
    estimated = WithEstimate(drafter, Noting(drafter.gamma))
    for policy in (None, scheduling.fixed(1)):
        rounds += generate(TARGET, estimated, PROMPTS[0], max_new_tokens=9, temperature=1.0, stop_token_ids=(),
                           policy=policy, generator=torch.Generator().manual_seed(0)).rounds
    assert estimated.estimator.told == [(r.proposed, r.accepted) for r in rounds]


def test_a_position_that_was_seldom_judged_is_not_moved_far_by_one_block():
    """However long ago the others were: what the first coefficients weigh stays."""
    estimator = AcceptanceEstimator(2, refit=1)
    for turn in range(600):
        estimator.learn(torch.ones(2), 1, turn % 2)
    before = estimator.coefficients[2].item()
    estimator.learn(torch.ones(2), 2, 2)
    assert 0 < estimator.coefficients[2] - before < 0.5


def test_a_cut_by_the_estimate_is_lossless_by_enumeration():
    drafter, lengths = DRAFTERS["dflash"], set()
    estimated = WithEstimate(drafter, AcceptanceEstimator(drafter.gamma, refit=10**9))  # what it says stays the same on every path
    estimated.estimator.coefficients = torch.tensor([1.0, -1.0, -1.5], dtype=torch.float64)
    cut = scheduling.threshold(0.5)

    def noting(proposal):
        lengths.add(cut(proposal).item())
        return cut(proposal)

    exact = output_distribution(TARGET, None, None, 4, prompt=(0, 1))
    assert total_variation(output_distribution(TARGET, estimated, noting, 4, prompt=(0, 1)), exact) < 1e-5
    assert len(lengths) > 1, "every block was treated alike, so nothing was tested"


def test_greedy_drafts_have_no_margin():
    with pytest.raises(RequestError, match="certain of its token, so its margin says nothing"):
        generate(TARGET, WithEstimate(DRAFTERS["dflash"]), PROMPTS[0], max_new_tokens=4)


def test_nothing_of_an_answer_outlives_it():
    """With a policy and without one; the caches of an answer are large."""
    estimated = WithEstimate(DRAFTERS["dflash"])
    states, begin = [], estimated.begin
    estimated.begin = lambda *given: states.append(begin(*given)) or states[-1]
    for policy in (None, scheduling.fixed(1)):
        generate(TARGET, estimated, PROMPTS[0], max_new_tokens=8, temperature=1.0, stop_token_ids=(), policy=policy)
    alive = [weakref.ref(state) for state in states]
    states.clear()
    gc.collect()
    assert len(alive) == 2 and [ref() for ref in alive] == [None, None]
