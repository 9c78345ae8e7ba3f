"""Traffic: arrivals and requests follow what was asked for, and a closed loop keeps its engine busy."""

from itertools import islice

import numpy as np
import pytest
import torch
from scipy.stats import binomtest, kstest

from dspark_lite.common.errors import RequestError
from dspark_lite.course.measure.serving_load import closed_loop, requests
from dspark_lite.course.measure.simulator import poisson
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.serving.engine import Engine

FALSE_ALARM = 1e-4
TARGET, DRAFTERS = toy_models(seed=1, vocab_size=13, gamma=4)
PROMPTS = {
    "math": [torch.tensor([[1, 2]]), torch.tensor([[3]])],
    "chat": [torch.tensor([[4, 5, 6]])],
}


def random(seed=0):
    """A generator."""
    return torch.Generator().manual_seed(seed)


def engine(**options):
    """An engine of toy models without stop tokens."""
    return Engine(
        TARGET, DRAFTERS["dspark"], **{"slots": 3, "capacity": 30, "stop_token_ids": (), **options}
    )


def test_arrivals_are_poisson():
    gaps = np.diff(poisson(20.0, 3000, np.random.default_rng(0)), prepend=0.0)
    assert (gaps > 0).all() and kstest(gaps, "expon", args=(0, 1 / 20)).pvalue > FALSE_ALARM
    assert kstest(gaps, "expon", args=(0, 1 / 24)).pvalue < FALSE_ALARM, (
        "another rate passes as well"
    )
    one, same, other = (poisson(20.0, 5, np.random.default_rng(seed)) for seed in (3, 3, 4))
    assert one == same != other


@pytest.mark.parametrize("rate", [0, -1.0, float("nan")])
def test_a_rate_that_is_none_is_refused(rate):
    with pytest.raises(RequestError, match="requests a second; it must be above 0"):
        poisson(rate, 3, np.random.default_rng(0))


def test_requests_are_of_every_domain_alike_and_keep_the_bounds_they_were_given():
    drawn = list(islice(requests(PROMPTS, random(), new_tokens=(5, 8)), 2000))
    math = sum(request.domain == "math" for request in drawn)
    assert binomtest(math, 2000, 0.5).pvalue > FALSE_ALARM > binomtest(math, 2000, 2 / 3).pvalue
    assert {request.max_new_tokens for request in drawn} == {5, 6, 7, 8}
    assert all(
        any(request.input_ids is ids for ids in PROMPTS[request.domain]) for request in drawn
    )
    assert (
        len({id(request.input_ids) for request in drawn}) == 3
        and len({request.seed for request in drawn}) == 2000
    )


def test_a_closed_loop_replaces_what_ends_at_once():
    served = engine()
    steps = list(islice(closed_loop(served, requests(PROMPTS, random(), new_tokens=(4, 9)), 3), 60))
    ended = [answer.id for step in steps for answer in step.answers]
    assert len(ended) > 10 and len(set(ended)) == len(ended)
    assert (
        all(step.requests == 3 for step in steps)
        and len(served.running) + len(steps[-1].answers) == 3
    )


def test_a_closed_loop_may_leave_slots_empty():
    steps = list(
        islice(closed_loop(engine(), requests(PROMPTS, random(), new_tokens=(4, 9)), 2), 20)
    )
    assert {step.requests for step in steps} == {2}
