"""The system on a device that is not the CPU (stand_in_device.py): the CPU's answers, and no more reads than a round needs.

The device lives in one process of its own, in which functions of this file are called; the tests compare what they return
there with what they return here, on the CPU.
"""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import stand_in_device
from dspark_lite import CustomGenerate, scheduling
from dspark_lite.course.extensions.block_verification import accept_block
from dspark_lite.course.measure.confidence import calibrate
from dspark_lite.course.measure.evaluation import evaluate
from dspark_lite.course.measure.lab import Lab, held_out
from dspark_lite.course.measure.step_time import profile
from dspark_lite.course.names import DOMAINS
from dspark_lite.decoding import generate, generate_together
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import SmallLM
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import EMBEDDED, load_drafter, load_target, save_draft
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.serving.engine import Engine, Request
from dspark_lite.training import train as training
from dspark_lite.training.cache import OnlineFeatures, build_cache
from dspark_lite.training.optimisers import trainable
from helpers import DRAFT, recipe_of
from stand_in_device import CARD, host_reads

pytestmark = [
    pytest.mark.slow(reason="every operation on the device is carried out in Python"),
    pytest.mark.skipif(
        not stand_in_device.AVAILABLE, reason="this PyTorch takes no device written in Python"
    ),
]


@pytest.fixture(scope="session")
def on_card():
    """Call a function of a module in the device's process; return what it returns there."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, stand_in_device.switch_on) as process:
        yield lambda function, *arguments: process.submit(function, CARD, *arguments).result()


# Decoding

VOCAB, GAMMA, NEW = 13, 4, 8  # NEW: tokens of an answer
TABLE = CostTable(range(1, 61), [1 / (1 + size / 8 + size % 3) for size in range(1, 61)])
POLICIES = {
    None: None,
    "fixed": scheduling.fixed(2),
    "threshold": scheduling.threshold(0.5),
    "algorithm 1": scheduling.algorithm1(TABLE),
    "lagged": scheduling.LaggedTopK(TABLE),
}
# policies that look at what the device has computed
READING = {
    "threshold",
    "algorithm 1",
    "lagged",
}
PROMPT = torch.randint(VOCAB, (1, 6), generator=torch.Generator().manual_seed(0))
NAMES = ["plain", *toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)[1]]
HEADS = [name for name in NAMES if name.startswith("dspark")]


@cache
def models(device):
    """A target and its drafters on a device, the same weights on each."""
    target, drafters = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
    small = SmallLM(Target(drafters["small_lm"].model.model.to(device)), GAMMA)
    moved = {
        name: drafter.to(device)
        for name, drafter in drafters.items()
        if isinstance(drafter, torch.nn.Module)
    }
    return Target(target.model.to(device)), {"plain": None, **drafters, "small_lm": small, **moved}


def told(answer, new=NEW):
    """What an answer's rounds did, without their seconds, and how many had room for a draft: only there a policy is asked."""
    written, drafting = 1, 0
    for r in answer.rounds:
        drafting += new - written > 1
        written += r.committed
    return (
        answer.token_ids,
        [(r.proposed, r.accepted, r.draft_tokens, r.tokens) for r in answer.rounds],
        drafting,
    )


def decode(device, name, temperature=0, rule=None, policy=None):
    """An answer of NEW tokens to the prompt, its random numbers the same on every device, and the host's reads."""
    target, drafters = models(device)
    with host_reads() as reads:
        answer = generate(
            target,
            drafters[name],
            PROMPT.to(device),
            max_new_tokens=NEW,
            stop_token_ids=(),
            rule=rule,
            temperature=temperature,
            policy=POLICIES[policy],
            generator=torch.Generator(device).manual_seed(3),
        )
    return told(answer), reads


@pytest.mark.parametrize(
    ("temperature", "rule"),
    [(0, None), (1.0, None), (1.0, accept_block)],
    ids=["greedy", "token rule", "block verification"],
)
@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_writes_the_cpus_tokens_and_reads_once_a_round(
    on_card, name, temperature, rule
):
    answer, reads = on_card(decode, name, temperature, rule)
    assert answer == decode("cpu", name, temperature, rule)[0]
    # its ids are checked; the first token; a lookup's copy
    of_prompt = 3 if name == "prompt_lookup" else 2
    assert len(reads) == of_prompt + len(answer[1]), reads


@pytest.mark.parametrize("policy", [name for name in POLICIES if name])
@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("name", HEADS)
def test_every_policy_writes_the_cpus_tokens_and_reads_once_more_at_most(
    on_card, name, temperature, policy
):
    answer, reads = on_card(decode, name, temperature, None, policy)
    assert answer == decode("cpu", name, temperature, None, policy)[0]
    assert len(reads) == 2 + len(answer[1]) + (policy in READING) * answer[2], reads


def decode_together(device, name, policy):
    """As `decode`, of three prompts that share their steps."""
    target, drafters = models(device)
    prompts = [PROMPT[:, :length].to(device) for length in (4, 5, 6)]
    with host_reads() as reads:
        answers = generate_together(
            target,
            drafters[name],
            prompts,
            max_new_tokens=NEW,
            stop_token_ids=(),
            policy=POLICIES[policy],
            temperature=1.0,
            generator=torch.Generator(device).manual_seed(3),
        )
    return list(map(told, answers)), reads


def test_requests_that_share_a_pass_are_read_once_a_step_and_so_is_their_policy(on_card):
    answers, reads = on_card(decode_together, "dspark", "algorithm 1")
    assert answers == decode_together("cpu", "dspark", "algorithm 1")[0]
    steps, of_policy = (max(column) for column in zip(*((len(a[1]), a[2]) for a in answers)))
    # each prompt's ids are checked; whether the first tokens are finite, and these tokens
    assert len(reads) == 3 + 2 + steps + of_policy, reads


def test_a_lookup_that_drafts_row_by_row_reads_once_more_a_row(on_card):
    answers, reads = on_card(decode_together, "prompt_lookup", None)
    assert answers == decode_together("cpu", "prompt_lookup", None)[0]
    rounds = [len(answer[1]) for answer in answers]
    of_prompts = 3 + 3 + 2  # ids, the lookup's copies, the first tokens
    assert len(reads) <= of_prompts + max(rounds) + sum(rounds), reads


def serve(device, name, temperature, policy):
    """Answers of the engine by id, and [reads, most reads] of each step."""
    target, drafters = models(device)
    engine = Engine(
        target,
        drafters[name],
        policy=POLICIES[policy],
        slots=2,
        capacity=40,
        temperature=temperature,
        stop_token_ids=(),
    )
    for number, length in enumerate((4, 6, 3)):
        engine.submit(Request(PROMPT[:, :length], 6 + number, seed=number))
    answers, counted = {}, []
    while not engine.idle:
        with host_reads() as reads:
            report = engine.step()
        answers |= {answer.id: answer.token_ids for answer in report.answers}
        played = report.requests > 0
        counted.append(
            (len(reads), (report.admitted > 0) + played + (policy is not None and played))
        )
    return answers, counted


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        *((name, None) for name in ("plain", "dspark", "dspark_rnn", "dflash", "eagle3", "mtp")),
        *(
            (name, policy)
            for name in ("dspark", "dspark_rnn")
            for policy in ("algorithm 1", "lagged")
        ),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_step_of_the_engine_reads_once_and_answers_as_on_the_cpu(
    on_card, name, temperature, policy
):
    answers, counted = on_card(serve, name, temperature, policy)
    assert answers == serve("cpu", name, temperature, policy)[0] and len(answers) == 3
    assert all(read <= most for read, most in counted), counted


# Measuring, and transformers' own generate

TINY = [
    "tiny-dspark",
    "tiny-dspark-rnn",
    "tiny-dflash",
    "tiny-eagle3",
    "tiny-mtp",
    "tiny-small-lm",
    "prompt_lookup",
]


@cache
def lab_on(device):
    """A lab with two prompts a domain, whose answers are short."""
    prompts = {domain: [example.prompt for example in held_out(domain, 2)] for domain in DOMAINS}
    lab = Lab("tiny", load_target("tiny-target", device=device), prompts)
    lab.max_new_tokens = 16
    return lab


def evaluated(device):
    """The rows of every embedded drafter."""
    lab = lab_on(device)
    return evaluate(lab, TINY, {"code": lab.prompts["code"][:1]})["rows"]


def test_every_embedded_drafter_answers_as_on_the_cpu(on_card):
    rows = on_card(evaluated)
    assert rows == evaluated("cpu") and [row["drafter"] for row in rows] == TINY


def calibrated(device):
    """A calibration, and the rows of the drafter that it is attached to."""
    lab = lab_on(device)
    drafter = lab.drafter("dspark")
    sts, report = calibrate(lab, drafter)
    found = report["blocks"], list(sts.temperatures), sts.draft
    sts.attach(drafter)
    return found, evaluate(
        lab, {"calibrated": drafter}, {"math": lab.prompts["math"][:1]}, max_new_tokens=8
    )["rows"]


def test_a_calibration_is_that_of_the_cpu(on_card):
    assert on_card(calibrated) == calibrated("cpu")


def profiled(device):
    """Sizes and speeds of a cost table, and the sizes that times were spent on."""
    table, spent = profile(lab_on(device).target, [1, 3], context=16, repeats=1)
    return table.batch_tokens.tolist(), table.steps_per_second.tolist(), set(spent)


def test_a_profile_has_every_size(on_card):
    sizes, speeds, spent = on_card(profiled)
    assert sizes == [1, 3] and min(speeds) > 0 and spent == {1, 3}


def generated(device, name, sampled):
    """Tokens of transformers' generate with a drafter, and the type of the device that they are on."""
    model = AutoModelForCausalLM.from_pretrained(
        EMBEDDED / "tiny-target", dtype=torch.float32, device_map=device
    )
    lab = lab_on("cpu")
    ids = lab.encode(lab.prompts["code"][0]).to(device)
    torch.manual_seed(5)
    answer = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=16,
        do_sample=sampled,
        custom_generate=CustomGenerate(name, model),
    )
    return answer.tolist(), answer.device.type


@pytest.mark.parametrize("sampled", [False, True], ids=["greedy", "sampled"])
@pytest.mark.parametrize("name", ["tiny-dspark", "prompt_lookup"])
def test_transformers_own_generate_writes_the_cpus_tokens(on_card, name, sampled):
    assert on_card(generated, name, sampled) == (generated("cpu", name, sampled)[0], CARD)


# Training

ROWS = [
    (torch.randint(VOCAB, (length,), generator=torch.Generator().manual_seed(length)).tolist(), 3)
    for length in (12, 9, 14, 10)
]
BLOCK = {**DRAFT["config"], "mask_token_id": VOCAB - 1}
CONFIGS = {
    "dspark": BLOCK,
    "dspark, gated": {**BLOCK, "markov_head_type": "gated"},
    "dspark, rnn": {**BLOCK, "markov_head_type": "rnn"},
    "dflash": {**BLOCK, "markov_rank": 0, "enable_confidence_head": False},
    "eagle3": {
        "drafter": "eagle3",
        "num_hidden_layers": 1,
        "target_layer_ids": [0, 1],
        "ttt_length": 3,
    },
    "mtp": {"drafter": "mtp", "num_hidden_layers": 1, "target_layer_ids": [2]},
}


def train(device, name, precision, folder):
    """Two updates of a drafter by AdamW and by Muon: its log, its trained tensors, and how many tokens its save drafts."""
    recipe = recipe_of(
        {
            "name": "mini",
            "kind": "draft",
            "seed": 1,
            "epochs": 1,
            "batch": 2,
            "learning_rate": 0.01,
            "matrix_rate": 0.01,
            "precision": precision,
            "config": CONFIGS[name],
            "loss": DRAFT["loss"],
        }
    )
    target = Target(toy_models(seed=2, vocab_size=VOCAB)[0].model.to(device))
    features = OnlineFeatures(target, ROWS, recipe.config.target_layer_ids)
    with patch.object(training, "precision_on", lambda device, asked: asked):
        drafter = training.train_draft(recipe, target, features, folder)
    tensors = trainable(drafter)
    assert {parameter.device.type for parameter in drafter.parameters()} == {device}
    assert {parameter.dtype for parameter in tensors.values()} == {torch.float32}
    save_draft(folder / "draft", drafter, target)
    prompt = torch.tensor([ROWS[0][0]], device=device)
    saved = load_drafter(str(folder / "draft"), target)
    answer = generate(target, saved, prompt, max_new_tokens=6, stop_token_ids=())
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return (
        log,
        {key: tensor.detach().cpu().numpy() for key, tensor in tensors.items()},
        len(answer.token_ids),
    )


@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", CONFIGS)
def test_updates_are_those_of_the_cpu_to_the_precision_of_their_products(
    on_card, name, precision, tmp_path
):
    log, tensors, drafted = on_card(train, name, precision, tmp_path / "card")
    wanted_log, wanted, _ = train("cpu", name, precision, tmp_path / "cpu")
    assert len(log) == len(wanted_log) == 2 and drafted == 6
    for found, right in zip(log, wanted_log):
        assert found == pytest.approx(right, rel=0.02, abs=0.02)
    assert tensors.keys() == wanted.keys()
    for key, value in tensors.items():
        np.testing.assert_allclose(value, wanted[key], atol=0.03, rtol=0.05)


def test_a_stopped_training_goes_on_with_what_it_saved(on_card, tmp_path):
    # the second reads its save
    once, again = (on_card(train, "dspark", "float16", tmp_path / "training") for _ in range(2))
    assert len(again[0]) == 2
    for key, value in once[1].items():
        assert np.array_equal(value, again[1][key])


def cached(device, folder):
    """What a batch of the target cache holds."""
    target = Target(toy_models(seed=2, vocab_size=VOCAB)[0].model.to(device))
    batch = build_cache(target, ROWS, (0, 1), folder).batch([0, 2], device)
    return [tensor.cpu().numpy() for tensor in batch]


def test_the_target_cache_holds_what_the_cpu_computes(on_card, tmp_path):
    for found, right in zip(
        on_card(cached, tmp_path / "card"), cached("cpu", tmp_path / "cpu"), strict=True
    ):
        assert np.array_equal(found, right)
