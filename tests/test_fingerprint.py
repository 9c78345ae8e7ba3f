"""A fingerprint tells models apart that differ in one number, and knows a model in every number format."""

import copy
import json

import pytest
import torch

from dspark_lite.common.errors import CheckpointError, RequestError
from dspark_lite.common.fingerprint import LANES, checksum, fingerprint
from dspark_lite.course.replication.confidence_results import stored_sts
from dspark_lite.course.replication.serving_results import MEASURED
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_lite.scheduling.calibration import STS
from dspark_lite.scheduling.cost_table import CostTable

TARGET, DRAFTERS = toy_models(seed=3, vocab_size=11, gamma=3)


@pytest.mark.parametrize(
    "shape", [(), (1,), (7,), (3, 5), (LANES, 1), (2, LANES), (4 * LANES + 3,), (130, 257)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.uint8])
def test_a_checksum_differs_after_a_change_of_one_number(dtype, shape):
    generator = torch.Generator().manual_seed(0)
    tensor = torch.randint(0, 100, shape, generator=generator).to(dtype)
    before, flat = checksum(tensor).item(), tensor.view(-1)
    for place in {0, len(flat) // 2, len(flat) - 1}:
        was = flat[place].item()
        flat[place] = 101
        assert checksum(tensor).item() != before
        flat[place] = was
    assert checksum(tensor).item() == before


def test_a_checksum_is_of_the_numbers_and_their_order():
    tensor = torch.randn(64, 96, generator=torch.Generator().manual_seed(0))
    ours = checksum(tensor).item()
    assert ours == checksum(tensor.t().contiguous().t()).item(), "not of the strides"
    assert ours == checksum(torch.cat([torch.zeros(1), tensor.flatten()])[1:]).item(), (
        "not of where it begins"
    )
    changed = [
        tensor.flip(0),
        tensor.flip(1),
        -tensor,
        tensor.roll(1, 0),
        tensor.t(),
        tensor[torch.randperm(64)],
    ]
    assert len({ours, *(checksum(one).item() for one in changed)}) == 7


@pytest.mark.parametrize(
    "name", ["target", *(name for name in DRAFTERS if name != "prompt_lookup")]
)
def test_every_tensor_counts_to_its_last_number(name):
    model = copy.deepcopy({"target": TARGET, **DRAFTERS}[name])
    module = (
        model
        if isinstance(model, torch.nn.Module)
        else model.model
        if name == "target"
        else model.model.model
    )
    before = fingerprint(model)
    for tensor in module.state_dict().values():
        last = tensor.view(-1)[-1:]
        was = last.clone()
        last += 0.25
        assert fingerprint(model) != before
        last.copy_(was)
    assert fingerprint(model) == before


def test_buffers_and_adapters_count():
    model = torch.nn.Sequential(torch.nn.Linear(3, 3))
    model[0].register_buffer("scalar", torch.ones(1))
    found = [fingerprint(model)]
    model[0].scalar.mul_(2)
    found.append(fingerprint(model))
    model[0].active_adapter, model[0].disable_adapters = ["a"], False
    found.append(fingerprint(model))
    model[0].active_adapter = ["b"]
    found.append(fingerprint(model))
    model[0].disable_adapters = True
    assert len({*found, fingerprint(model)}) == 5


def test_a_file_of_16_bit_weights_is_known_in_every_number_format_and_a_change_of_float32_is_seen():
    drafter = copy.deepcopy(DRAFTERS["dspark"]).bfloat16()
    ours = fingerprint(drafter)
    assert (
        ours
        == fingerprint(copy.deepcopy(drafter).float())
        == fingerprint(copy.deepcopy(drafter).half())
    )
    with torch.no_grad():
        other = copy.deepcopy(drafter).float()
        other.lm_head.weight[-1, -1] *= 1 + 2**-23
        assert fingerprint(other) != ours
        drafter.lm_head.weight[-1, -1] *= 1 + 2**-7
        assert fingerprint(drafter) != ours


def test_a_calibration_of_a_draft_is_refused_by_one_that_was_trained_on():
    drafter = copy.deepcopy(DRAFTERS["dspark"])
    sts = STS([1.0] * 3, draft=fingerprint(drafter))
    sts.attach(drafter)
    with torch.no_grad():
        drafter.markov_head.markov_w2.weight[1:] += 0.01
    with pytest.raises(RequestError, match="the calibration is for the draft with the fingerprint"):
        sts.attach(drafter)


def test_weights_that_are_not_in_memory_have_none():
    with pytest.raises(CheckpointError, match="weight is not in memory"):
        fingerprint(torch.nn.Linear(2, 2, device="meta"))


def test_what_is_stored_is_of_the_checkpoints_beside_it():
    """The calibration, the cost table and the serving measurement name the tiny models by their fingerprints."""
    target = load_target("tiny-target")
    marks = [
        fingerprint(target),
        *(fingerprint(load_drafter(name, target)) for name in ("tiny-mtp", "tiny-dspark")),
    ]
    table = CostTable.load(MEASURED.parent.parent / "confidence" / "tiny-target-sps.json")
    assert json.loads(MEASURED.read_text())["weights"] == marks
    assert [table.origin.fingerprint, stored_sts().draft] == [marks[0], marks[2]]
