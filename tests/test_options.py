"""No option of drafters, policies, costs and calibration is without a test of its effect.

Most of these tests stand with what they test: test_drafters.py, test_scheduling.py, test_cost_table.py,
test_additive_costs.py, test_calibration.py. The options of `generate` have theirs in test_decoding.py, those of `Engine`
and `Request` in test_serving.py, those of `CustomGenerate` in test_custom_generate.py.
"""

import inspect

import numpy as np
import pytest
import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.common.origin import Origin
from dspark_lite.decoding import generate
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import PromptLookup, SmallLM
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling import LaggedTopK, fixed, threshold
from dspark_lite.scheduling.additive_costs import AdditiveCosts
from dspark_lite.scheduling.calibration import (
    BINS,
    GRID,
    STS,
    by_position,
    ece_floor,
    fit_sts,
)
from dspark_lite.scheduling.cost_table import CostTable

VOCAB, GAMMA = 11, 4
TARGET, DRAFTERS = toy_models(seed=3, vocab_size=VOCAB, gamma=GAMMA)
PROMPT, ANCHOR = torch.tensor([[1, 2, 3, 4, 5, 6, 1]]), torch.tensor([2])
ORIGIN = Origin("a device", "a target")


# Drafters


@pytest.fixture
def uncalibrated():
    """Leaves the drafters without temperatures."""
    yield
    for drafter in DRAFTERS.values():
        drafter.temperatures = None


def confidences(drafter, **options):
    """Confidence logits [g] of a greedy block."""
    state = drafter.begin(PROMPT, TARGET.prefill(PROMPT, drafter.taps)[0].features)
    return drafter.propose(
        state, ANCHOR, temperature=0, generator=None, **options
    ).confidence_logits[0]


TEMPERATURES = [2.0, 0.5, 4.0, 0.25]


@pytest.mark.parametrize("gamma", [None, 1, 2, 3, 4])
@pytest.mark.parametrize("name", ["dspark", "dspark_gated", "dspark_rnn"])
def test_a_block_is_calibrated_by_the_temperatures_of_its_own_positions(uncalibrated, name, gamma):
    """Also a short one; and a second calibration takes the place of the first."""
    drafter = DRAFTERS[name]
    raw = confidences(drafter, gamma=gamma)
    for temperatures in ([3.0] * GAMMA, TEMPERATURES):
        STS(temperatures).attach(drafter)
        fitted = raw / torch.tensor(temperatures)[: len(raw)]
        assert torch.equal(confidences(drafter, gamma=gamma), fitted)
    drafter.temperatures = None
    assert torch.equal(confidences(drafter, gamma=gamma), raw)


def test_a_policy_sees_calibrated_confidences_of_short_blocks_and_near_an_answers_end(uncalibrated):
    """The same text, so the same blocks: each logit over the temperature of its position."""
    drafter, seen = DRAFTERS["dspark"], []

    def policy(proposal):
        seen[-1].append(proposal.confidence_logits[0])
        return torch.ones(1, dtype=torch.long)

    for gamma in (None, 3):
        for temperatures in (None, TEMPERATURES):
            drafter.temperatures = temperatures and torch.tensor(temperatures)
            seen.append([])
            generate(
                TARGET,
                drafter,
                PROMPT,
                max_new_tokens=12,
                policy=policy,
                gamma=gamma,
                stop_token_ids=(),
            )
    for raw, found in (seen[:2], seen[2:]):
        assert len(raw) == len(found) and len({len(one) for one in raw}) > 1
        for one, other in zip(raw, found):
            torch.testing.assert_close(other, one / torch.tensor(TEMPERATURES)[: len(one)])


@pytest.mark.parametrize(
    "make",
    [lambda gamma: PromptLookup(VOCAB, gamma), lambda gamma: SmallLM(TARGET, gamma)],
    ids=["prompt_lookup", "small_lm"],
)
def test_a_drafter_of_the_hosts_making_drafts_its_gamma_and_seven_by_default(make):
    text = torch.arange(10).repeat(1, 2) % VOCAB
    for drafter, length in ((make(2), 2), (make(5), 5), (make(7), 7)):
        proposal = drafter.propose(
            drafter.begin(text), torch.tensor([0]), temperature=0, generator=None
        )
        assert drafter.gamma == proposal.tokens.shape[1] == length and proposal.probs.shape == (
            1,
            length,
            VOCAB,
        )
    assert PromptLookup(VOCAB).gamma == SmallLM(TARGET).gamma == 7


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "prompt_lookup"])
def test_the_temperature_of_a_draft_is_that_of_its_distribution(name):
    """Of the first draft, which no other draw shapes: its logits over the temperature."""
    drafter = DRAFTERS[name]

    def first(temperature):
        state = drafter.begin(PROMPT, TARGET.prefill(PROMPT, drafter.taps)[0].features)
        return drafter.propose(
            state, ANCHOR, temperature=temperature, generator=torch.Generator().manual_seed(0)
        ).probs[0, 0]

    for temperature in (0.5, 2.0):
        torch.testing.assert_close(
            first(temperature), (first(1.0).log() / temperature).softmax(-1), atol=1e-5, rtol=1e-4
        )
    assert torch.equal(first(0), torch.eye(VOCAB)[first(1.0).argmax()])


def test_confidences_of_a_16_bit_drafter_are_float32():
    target, drafters = toy_models(seed=3, vocab_size=VOCAB, gamma=GAMMA)
    half, drafter = Target(target.model.bfloat16()), drafters["dspark"].bfloat16()
    output, _ = half.prefill(PROMPT, drafter.taps)
    state = drafter.begin(PROMPT, output.features)
    proposal = drafter.propose(state, ANCHOR, temperature=1.0, generator=None)
    assert proposal.confidence_logits.dtype == proposal.probs.dtype == torch.float32


# Costs


def test_buckets_may_be_given_in_any_order():
    table = CostTable(range(1, 9), [1 / (1 + size) for size in range(1, 9)])
    for sizes in ((2, 5, 8), (8, 5, 2), (5, 8, 2)):
        assert table.in_buckets(sizes).sps(1, range(1, 9)).tolist() == [
            table.sps(1, size) for size in (2, 2, 5, 5, 5, 8, 8, 8)
        ]


def test_additive_costs_keep_their_origin_and_steps_may_come_in_any_order(tmp_path):
    steps = [
        (r, r * (1 + k), 0.01 + 0.002 * r + 0.001 * r * k) for r in (1, 2, 4) for k in (0, 1, 3)
    ]
    fits = [AdditiveCosts.fit(*zip(*order), origin=ORIGIN) for order in (steps, steps[::-1])]
    for found in fits:
        assert found.bs_probes.tolist() == [1, 2, 4]
        assert found.m_probes.tolist() == sorted({tokens for _, tokens, _ in steps})
        assert (
            found.origin == ORIGIN
            and found.max_batch_tokens == found.most_tokens(4) == 16
            and found.most_tokens(5) == 0
        )
        assert [found.seconds(r, m) for r, m, _ in steps] == pytest.approx(
            [seconds for *_, seconds in steps]
        )
    fits[0].save(tmp_path / "costs.json")
    assert AdditiveCosts.load(tmp_path / "costs.json").origin == ORIGIN
    assert AdditiveCosts(0.1, [1], [0.0], [1], [0.0]).origin is None


# Calibration


def observed(count=600, seed=0):
    """Confidence logits [N, 3] that are twice too far from zero, and accepted counts [N]."""
    rng = np.random.default_rng(seed)
    true = rng.normal(1.0, 1.2, (count, 3))
    return 2 * true, (rng.random((count, 3)) < 1 / (1 + np.exp(-true))).cumprod(1).sum(1)


def test_a_fit_takes_a_temperature_of_its_grid_whatever_the_grids_order():
    logits, accepted = observed(20_000)
    for grid in ([0.5, 1.0, 2.0, 4.0], [4.0, 0.5, 2.0, 1.0], [2.0]):
        assert fit_sts(logits, accepted, grid=grid).temperatures == [2.0] * 3
    assert fit_sts(logits, accepted, grid=[8.0]).temperatures == [8.0] * 3
    assert fit_sts(logits, accepted) == fit_sts(logits, accepted, grid=GRID, bins=BINS)


def test_where_several_temperatures_do_as_well_the_first_of_the_grid_is_taken():
    """Confidence 1/2 at every temperature."""
    assert [
        fit_sts(np.zeros((4, 1)), [0, 1, 0, 1], grid=grid).temperatures
        for grid in ([3.0, 1.0], [1.0, 3.0])
    ] == [[3.0], [1.0]]


@pytest.mark.parametrize("grid", [[], [0.0, 1.0], [-1.0]])
def test_a_grid_without_temperatures_is_refused(grid):
    with pytest.raises(RequestError, match="temperatures above 0"):
        fit_sts(*observed(), grid=grid)


def test_measures_are_taken_at_the_temperatures_that_are_given():
    logits, accepted = observed()
    found, at_them = (
        by_position(*given)
        for given in ((logits, accepted, [2.0, 0.5, 1.0]), (logits / [2.0, 0.5, 1.0], accepted))
    )
    assert found == at_them != by_position(logits, accepted)


# Completeness

# The options that have a test, here or in the files above.
TESTED = {
    fixed: {"length"},
    threshold: {"least"},
    LaggedTopK: {"cost_table", "lag"},
    PromptLookup: {"vocab_size", "gamma", "longest"},
    SmallLM: {"model", "gamma", "added"},
    fit_sts: {"logits", "accepted", "grid", "bins", "dataset", "draft"},
    ece_floor: {"predicted", "bins", "draws", "seed"},
    by_position: {"logits", "accepted", "temperatures", "bins"},
    CostTable: {"batch_tokens", "steps_per_second", "max_batch_tokens", "origin"},
    AdditiveCosts: {
        "bias_seconds",
        "bs_probes",
        "alpha_seconds",
        "m_probes",
        "theta_seconds",
        "origin",
    },
}


@pytest.mark.parametrize("made", TESTED, ids=lambda made: made.__name__)
def test_no_option_is_without_a_test(made):
    assert set(inspect.signature(made).parameters) == TESTED[made]
