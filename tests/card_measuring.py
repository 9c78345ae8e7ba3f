"""On the stand-in device: a lab's measurements, and transformers' own generate (tests/test_stand_in_device.py)."""

import pytest
import torch
from stand_in_device import CARD
from transformers import AutoModelForCausalLM

from dspark_course.measure.confidence import calibrate
from dspark_course.measure.evaluation import evaluate
from dspark_course.measure.lab import Lab, held_out
from dspark_course.measure.step_time import profile
from dspark_lite import CustomGenerate
from dspark_course.common.names import DOMAINS
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, load_target

NAMES = ["tiny-dspark", "tiny-dspark-rnn", "tiny-dflash", "tiny-eagle3", "tiny-mtp", "tiny-small-lm", "prompt_lookup"]


def lab_on(device):
    """A lab with two prompts a domain, whose answers are short."""
    prompts = {domain: [example.prompt for example in held_out(domain, 2)] for domain in DOMAINS}
    lab = Lab("tiny", load_target("tiny-target", device=device), prompts)
    lab.max_new_tokens = 24
    return lab


@pytest.fixture(scope="module")
def labs():
    """The same lab on the CPU and on the card."""
    return lab_on("cpu"), lab_on(CARD)


def test_every_embedded_drafter_answers_as_on_the_cpu(labs):
    prompts = {"code": labs[0].prompts["code"][:1]}
    on_cpu, on_card = (evaluate(lab, NAMES, prompts, max_new_tokens=16)["rows"] for lab in labs)
    assert on_card == on_cpu and [row["drafter"] for row in on_card] == NAMES


def test_a_calibration_is_that_of_the_cpu(labs):
    (sts, report), (wanted, wanted_report) = (calibrate(lab, lab.drafter("dspark")) for lab in reversed(labs))
    assert report["blocks"] == wanted_report["blocks"]
    assert sts.temperatures == wanted.temperatures and sts.draft == wanted.draft
    drafter = labs[1].drafter("dspark")
    sts.attach(drafter)
    answer = evaluate(labs[1], {"calibrated": drafter}, {"math": labs[1].prompts["math"][:1]}, max_new_tokens=8)
    assert answer["rows"][0]["committed"] != [0]


def test_a_profile_has_every_size(labs):
    table, spent = profile(labs[1].target, [1, 3], context=16, repeats=1)
    assert table.batch_tokens.tolist() == [1, 3] and (table.steps_per_second > 0).all() and set(spent) == {1, 3}


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["tiny-dspark", "prompt_lookup"])
def test_transformers_own_generate_writes_the_cpus_tokens(labs, name, sampled):
    answers = []
    for device in ("cpu", CARD):
        model = AutoModelForCausalLM.from_pretrained(EMBEDDED / "tiny-target", dtype=torch.float32, device_map=device)
        ids = labs[0].encode(labs[0].prompts["code"][0]).to(device)
        torch.manual_seed(5)
        answers.append(model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=sampled,
                                      custom_generate=CustomGenerate(name, model)))
    assert answers[1].device.type == CARD and answers[1].tolist() == answers[0].tolist()


def test_a_small_model_stays_where_its_target_is(labs):
    assert load_drafter("tiny-small-lm", labs[1].target).model.device.type == CARD
