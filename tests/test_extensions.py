"""What block verification gains: both rules on the same blocks."""

from functools import partial

import numpy as np
import pytest
import torch

from dspark_lite.course.extensions.block_verification import accept_block
from dspark_lite.course.measure.confidence import observe
from dspark_lite.course.measure.extensions import Blocks, block_gain, expected_by_rule, watch
from dspark_lite.decoding.sampling import accept
from dspark_lite.losslessness.enumeration import outcomes


def test_expectations_are_those_of_the_rules_own_coins():
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        target, draft = (
            torch.randn(1, length, 4, generator=generator).softmax(-1) for length in (4, 3)
        )
        block = target, draft, torch.randint(4, (1, 3), generator=generator)
        played = [
            sum(
                probability * verdict.accepted.item()
                for verdict, probability in outcomes(partial(rule, *block, None))
            )
            for rule in (accept, accept_block)
        ]
        assert expected_by_rule(*block) == pytest.approx(tuple(played), abs=1e-6)


def test_the_blocks_watched_are_those_that_a_calibration_observes(short_lab):
    drafter, texts = short_lab.drafter("dspark"), short_lab.prompts["math"][:3]
    watched, observed = watch(short_lab, drafter, texts), observe(short_lab, drafter, texts)
    assert np.array_equal(watched.prompts, observed.prompts)
    assert np.corrcoef(watched.token, observed.accepted)[0, 1] > 0.5, "not the same blocks"
    assert watched.token.mean() == pytest.approx(observed.accepted.mean(), abs=1)


def test_a_gain_is_the_share_of_committed_tokens_with_its_interval():
    token = np.random.default_rng(0).random(2000) * 3
    blocks = Blocks(token, token + 0.5, np.arange(2000) // 10)
    found = block_gain(blocks)
    mean = token.mean() + 1
    assert found["token"].value == pytest.approx(mean) and found["block"].value == pytest.approx(
        mean + 0.5
    )
    assert (
        found["gain"].value == pytest.approx(0.5 / mean)
        and found["gain"].low < found["gain"].value < found["gain"].high
    )
