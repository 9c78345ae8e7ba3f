"""What is measured beyond the paper: both rules on the same blocks, the estimator beside the head."""

from functools import partial

import numpy as np
import pytest
import torch

from dspark_course.beyond.block_verification import accept_block
from dspark_lite.decoding.sampling import accept
from dspark_lite.losslessness.enumeration import outcomes
from dspark_course.measure.beyond import Blocks, auc_by_position, block_gain, estimated_logits, expected_by_rule, watch
from dspark_course.measure.confidence import observe


def test_expectations_are_those_of_the_rules_own_coins():
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        target, draft = (torch.randn(1, length, 4, generator=generator).softmax(-1) for length in (4, 3))
        block = target, draft, torch.randint(4, (1, 3), generator=generator)
        played = [sum(probability * verdict.accepted.item() for verdict, probability in outcomes(partial(rule, *block, None)))
                  for rule in (accept, accept_block)]
        assert expected_by_rule(*block) == pytest.approx(tuple(played), abs=1e-6)


def test_the_blocks_watched_are_those_that_a_calibration_observes(short_lab):
    drafter, texts = short_lab.drafter("dspark"), short_lab.prompts["math"][:3]
    watched, observed = watch(short_lab, drafter, texts), observe(short_lab, drafter, texts)
    np.testing.assert_allclose(watched.logits, observed.logits)
    assert np.array_equal(watched.accepted, observed.accepted) and np.array_equal(watched.prompts, observed.prompts)


def made(count=2000):
    """Blocks whose margin decides, over an intercept that falls with the position, what is accepted."""
    rng = np.random.default_rng(0)
    found = rng.exponential(2.0, (count, 3))
    kept = rng.random((count, 3)) < 1 / (1 + np.exp(-(1.5 * found - np.array([1.0, 2.0, 3.0]))))
    accepted = kept.cumprod(1).sum(1)
    return Blocks(accepted.astype(float), accepted + 0.5, accepted, found, rng.normal(size=(count, 3)), np.arange(count) // 10)


def test_a_gain_is_the_share_of_committed_tokens_with_its_interval():
    blocks = made()
    found = block_gain(blocks)
    mean = blocks.token.mean() + 1
    assert found["token"].value == pytest.approx(mean) and found["block"].value == pytest.approx(mean + 0.5)
    assert found["gain"].value == pytest.approx(0.5 / mean) and found["gain"].low < found["gain"].value < found["gain"].high


def test_an_estimator_that_learns_in_order_tells_survivors_apart():
    blocks = made()
    said = estimated_logits(blocks)
    assert np.array_equal(said[:99], estimated_logits(made(99))) and not np.array_equal(said[0], said[-1])
    assert min(auc_by_position(blocks, said)) > 0.75 and max(auc_by_position(blocks, blocks.logits)) < 0.6
