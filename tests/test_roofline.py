"""Predictions for the released models: bytes and operations counted by hand, launches counted, arithmetic exact; what fits."""

import pytest
import torch

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.course import paper, result_files
from dspark_lite.course.measure import roofline, shapes
from dspark_lite.course.measure.forced_rounds import ROUND_PARTS
from dspark_lite.course.measure.roofline import DEVICES, Device, Launches, Prediction, Work

V, H, INNER, HEADS, KEYS = 151936, 2560, 9728, 32 * 128, 8 * 128  # Qwen3-4B and its drafts
# attention, feed-forward network, norms of heads and layer
LAYER = 2 * H * HEADS + 2 * H * KEYS + 3 * H * INNER + 2 * 128 + 2 * H
TARGET = V * H + 36 * LAYER + H
DFLASH = 5 * LAYER + 5 * H * H + 2 * H  # without embedding and LM head
# without these and its projection: reads two vectors a token, norms two
EAGLE3 = LAYER + H * (HEADS + 2 * KEYS) + 2 * H
CONFIDENCE = H + 256 + 1


@pytest.fixture
def no_launches(monkeypatch):
    """Counts none, so that a prediction is bytes and operations alone."""
    monkeypatch.setattr(roofline, "launches", lambda drafter: dict.fromkeys(ROUND_PARTS, 0))


# Shapes and memory


@pytest.mark.parametrize(
    ("role", "parameters"),
    [
        ("target", TARGET),
        ("dspark", 2 * V * H + DFLASH + 2 * V * 256 + CONFIDENCE),
        ("dflash", 2 * V * H + DFLASH),
        ("eagle3", 2 * V * H + 5 * H * H + EAGLE3),
        ("small_lm", 596_049_920),
    ],
)
def test_parameters_are_those_counted_by_hand(role, parameters):
    assert shapes.parameter_count(shapes.module(role)) == parameters
    assert shapes.weight_bytes(role) == 2 * parameters


def test_the_reference_agrees_with_the_recipes_and_with_what_others_measured():
    from dspark_lite.course.data.recipes import load_recipe

    for name, recipe in (
        ("Qwen/Qwen3-4B", "qwen3-4b-dspark"),
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b-dspark"),
    ):
        config = result_files.reference("released_targets.json")[name]["config"]
        theirs = load_recipe(recipe).target_config
        assert {field: config[field] for field in theirs} == theirs
    # the header of the file, and nothing else
    assert shapes.file_bytes("target") - shapes.weight_bytes("target") == 45_856
    head = shapes.file_bytes("small_lm") - shapes.weight_bytes("small_lm")
    # the header: its file holds the LM head beside the embedding that it equals
    assert head - 2 * V * 1024 == 35_560


def test_a_draft_adds_less_than_1_3_gigabytes_to_its_target():
    """Acceptance: without its embedding and LM head, which it shares with the target."""
    assert shapes.memory("dspark")["drafter"] == shapes.weight_bytes("dspark") - 4 * V * H <= 1.3e9
    assert shapes.memory("dflash")["drafter"] < 1.3e9 and shapes.memory("eagle3")["drafter"] < 1.3e9
    # it shares nothing
    assert 0 <= shapes.memory("small_lm")["drafter"] - shapes.weight_bytes("small_lm") < 1000


def test_what_a_request_adds_is_counted():
    parts = shapes.memory("dspark", tokens=1000)
    # 16 bit, keys and values; the draft's buffer has room for twice
    assert parts["keys and values"] == 1000 * 2 * 2 * (36 * KEYS + 2 * 5 * KEYS)
    assert shapes.memory("small_lm", 1000)["keys and values"] == 1000 * 2 * 2 * (
        36 * KEYS + 28 * KEYS
    )
    hidden = 1000 * 2 * (H * (37 + 2 * 5) + 3 * INNER)
    assert parts["activations"] == hidden + 15 * V * 14
    assert (
        shapes.memory(None)["drafter"] == 0
        and shapes.memory(None)["activations"] < parts["activations"]
    )


@pytest.mark.parametrize("role", [None, "dspark", "dflash", "eagle3", "small_lm"])
def test_the_target_with_any_one_drafter_fits_a_t4_and_not_half_of_it(role):
    assert shapes.fits(role, shapes.T4) and not shapes.fits(role, shapes.T4 / 2)
    assert not shapes.fits(role, sum(shapes.memory(role).values()))  # CUDA needs room too


def test_an_unknown_role_is_told():
    with pytest.raises(
        DSparkLiteError,
        match="there is no 'mtp' in the released profile; its models are target, dspark",
    ):
        shapes.memory("mtp")


# Time


def test_a_plain_step_on_a_t4_reads_all_weights_once(no_launches):
    keys_values = 256 * 2 * 2 * 36 * KEYS
    row = roofline.predict("T4")
    assert (
        row.bound
        == row.verify
        == row.plain
        == pytest.approx((2 * TARGET + keys_values) / 320e9 * 1e3)
    )
    assert row.draft == 0 and row.break_even == 1


@pytest.mark.parametrize(
    ("drafter", "weights"),
    [
        # Each weight once, the LM head too, and the sequential head's table at each of the seven positions.
        ("dspark", DFLASH + V * H + 7 * V * 256 + CONFIDENCE),
        ("dflash", DFLASH + V * H),
        ("eagle3", 5 * H * H + 7 * (EAGLE3 + V * H)),
        ("small_lm", 7 * 596_049_920),
    ],
)
def test_what_drafting_a_block_reads(no_launches, drafter, weights):
    passes = {"eagle3": 7, "small_lm": 7}.get(drafter, 1)
    read = 2 * weights + passes * shapes.keys_values(drafter, 256)
    assert roofline.draft_work(drafter, 256).bytes == read
    row = roofline.predict("A100", drafter)
    assert row.draft == pytest.approx(1e3 * read / 2039e9)


def test_arithmetic_is_the_floor_where_it_takes_longer_than_reading():
    device = Device("x", bandwidth=1e9, operations=1e12, memory=1)
    assert Work(2e6, 1e9, 0).bound(device) == 2.0 and Work(2e6, 5e9, 0).bound(device) == 5.0
    assert Work(2e6, 1e9, 300).milliseconds(device, launch=10) == 5.0
    verify = roofline.verify_work("dspark")
    assert (
        verify.operations == 2 * 8 * TARGET
        and roofline.verify_work("plain").operations == 2 * TARGET
    )


def test_a_round_is_compared_with_plain_steps():
    row = Prediction(
        "T4", "dspark", draft=10.0, verify=40.0, bound=30.0, plain=25.0, memory=10**10, fits=True
    )
    assert (row.round, row.break_even, row.tokens_per_second(4.0)) == (50.0, 2.0, 80.0)


def test_launches_are_counted_without_views_and_allocations():
    x = torch.ones(4, 4)
    with Launches() as counted:
        torch.empty(3)
        y = (x + x[:2].t().sum()).view(16)
        torch.cat([y, y])
        y.unsqueeze(0).expand(3, 16).detach()
    assert counted.total == 3


def test_launches_of_the_released_depth():
    """Every layer multiplies seven times and norms four times; a draft is 5 layers and a step a position, a small LM 28 a token."""
    verify = roofline.launches("plain")["verify"]
    assert 36 * 20 < verify < 36 * 100
    block, sequential, chain = (
        roofline.launches(name)["draft"] for name in ("dflash", "dspark", "small_lm")
    )
    assert roofline.launches("plain")["draft"] == 0 < block < sequential < verify / 4
    assert chain == pytest.approx(7 * 28 / 36 * verify, rel=0.1)


def test_the_table_says_that_it_predicts():
    lines = roofline.table(
        devices=("T4", "H200"), drafters=("plain", "small_lm", "dspark")
    ).splitlines()
    assert lines[0].startswith("| predicted for | drafter |") and len(lines) == 2 + 6
    dspark = [cell.strip() for cell in lines[4].split("|")[1:-1]]
    row, length = roofline.predict("T4", "dspark"), roofline.paper_lengths()["dspark"]
    assert dspark == [
        "T4",
        "DSpark",
        f"{row.draft:.1f}",
        f"{row.verify:.1f}",
        f"{row.bound:.1f}",
        f"{row.break_even:.2f}",
        f"{length:.2f}",
        f"{row.tokens_per_second(length):.0f}",
        f"{length / row.break_even:.2f}",
        f"{row.memory / 1e9:.1f}",
    ]
    # no accepted length of it is known
    assert "| small LM | " in lines[3] and lines[3].count("| - ") == 3


def test_the_papers_accepted_lengths_stand_in_where_none_are_given():
    lengths = roofline.paper_lengths()
    assert lengths["plain"] == 1 and lengths["dspark"] == pytest.approx(
        sum(paper.domain_means("Qwen3-4B", "dspark").values()) / 3
    )
    assert "small_lm" not in lengths


def test_what_does_not_fit_is_said(monkeypatch):
    monkeypatch.setitem(DEVICES, "small", Device("small", 1e9, 1e12, 9e9))
    assert ", does not fit |" in roofline.table(devices=("small",), drafters=("dspark",))


@pytest.mark.parametrize("asked", [("T5", "dspark"), ("T4", "mtp")])
def test_an_unknown_device_or_drafter_is_told(asked):
    with pytest.raises(
        DSparkLiteError, match="there is no prediction of .* devices T4, L4, A100, H200"
    ):
        roofline.predict(*asked)
