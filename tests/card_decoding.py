"""On the stand-in device: decoding writes the CPU's tokens and reads once a round (tests/test_stand_in_device.py)."""

import pytest
import torch
from stand_in_device import CARD, host_reads

from dspark_lite import scheduling
from dspark_lite.decoding import generate, generate_together
from dspark_course.beyond.block_verification import accept_block
from dspark_lite.decoding.target import Target
from dspark_lite.drafters import SmallLM
from dspark_lite.losslessness.toys import toy_models
from dspark_course.beyond.acceptance_estimator import AcceptanceEstimator, WithEstimate
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.serving.engine import Engine, Request

VOCAB, GAMMA, NEW = 13, 4, 8  # NEW: tokens of an answer
TABLE = CostTable(range(1, 61), [1 / (1 + size / 8 + size % 3) for size in range(1, 61)])
POLICIES = {"fixed": scheduling.fixed(2), "threshold": scheduling.threshold(0.5),
            "algorithm 1": scheduling.algorithm1(TABLE), "lagged": scheduling.LaggedTopK(TABLE)}
READING = {"threshold", "algorithm 1", "lagged"}  # policies that look at what the device has computed
PROMPT = torch.randint(VOCAB, (1, 6), generator=torch.Generator().manual_seed(0))


def models(device):
    """A target and its drafters on a device, the same weights on each."""
    target, drafters = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
    small = SmallLM(Target(drafters["small_lm"].model.model.to(device)), GAMMA)
    moved = {name: drafter.to(device) for name, drafter in drafters.items() if isinstance(drafter, torch.nn.Module)}
    return Target(target.model.to(device)), {"plain": None, **drafters, "small_lm": small, **moved}


ON_CPU, ON_CARD = models("cpu"), models(CARD)
NAMES = list(ON_CPU[1])
HEADS = [name for name in NAMES if name.startswith("dspark")]


def text(place, device, name, **options):
    """An answer of NEW tokens to the prompt, its random numbers the same on both devices."""
    target, drafters = place
    return generate(target, drafters[name], PROMPT.to(device), max_new_tokens=NEW, stop_token_ids=(),
                    generator=torch.Generator(device).manual_seed(3), **options)


def rounds(answer):
    """What the rounds of an answer did, without their seconds."""
    return [(r.proposed, r.accepted, r.draft_tokens, r.tokens) for r in answer.rounds]


def drafting(answer, new=NEW):
    """How many rounds had room for a draft: where there is none the policy is not asked."""
    written, found = 1, 0
    for r in answer.rounds:
        found += new - written > 1
        written += r.committed
    return found


@pytest.mark.parametrize("rule", [None, accept_block], ids=["token rule", "block verification"])
@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("name", NAMES)
def test_every_drafter_writes_the_cpus_tokens_and_reads_once_a_round(name, temperature, rule):
    with host_reads() as reads:
        answer = text(ON_CARD, CARD, name, temperature=temperature, rule=rule)
    wanted = text(ON_CPU, "cpu", name, temperature=temperature, rule=rule)
    assert answer.token_ids == wanted.token_ids and rounds(answer) == rounds(wanted)
    of_prompt = 3 if name == "prompt_lookup" else 2  # its ids are checked; the first token; a lookup's copy
    assert len(reads) == of_prompt + len(answer.rounds), reads


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("name", HEADS)
def test_every_policy_writes_the_cpus_tokens_and_reads_once_more_at_most(name, temperature, policy):
    with host_reads() as reads:
        answer = text(ON_CARD, CARD, name, temperature=temperature, policy=POLICIES[policy])
    wanted = text(ON_CPU, "cpu", name, temperature=temperature, policy=POLICIES[policy])
    assert answer.token_ids == wanted.token_ids and rounds(answer) == rounds(wanted)
    assert len(reads) == 2 + len(answer.rounds) + (policy in READING) * drafting(answer), reads


def test_an_estimated_confidence_is_read_when_it_is_fitted_and_not_in_every_round():
    def estimated(place, device):
        drafter = WithEstimate(place[1]["dflash"], AcceptanceEstimator(GAMMA, refit=4))
        return text((place[0], {"estimated": drafter}), device, "estimated", temperature=1.0,
                    policy=scheduling.threshold(0.5))

    with host_reads() as reads:
        answer = estimated(ON_CARD, CARD)
    assert rounds(answer) == rounds(estimated(ON_CPU, "cpu"))
    assert len(reads) == 2 + len(answer.rounds) + drafting(answer) + len(answer.rounds) // 4, reads


@pytest.mark.parametrize("name", ["dspark", "prompt_lookup"])
def test_requests_that_share_steps_are_read_one_by_one_and_their_policy_once(name):
    def together(place, device):
        prompts = [PROMPT[:, :length].to(device) for length in (4, 5, 6)]
        return generate_together(place[0], place[1][name], prompts, max_new_tokens=8, stop_token_ids=(), policy=policy,
                                 temperature=1.0, generator=torch.Generator(device).manual_seed(3))

    policy = POLICIES["algorithm 1"] if name == "dspark" else None
    with host_reads() as reads:
        answers = together(ON_CARD, CARD)
    assert [one.token_ids for one in answers] == [one.token_ids for one in together(ON_CPU, "cpu")]
    of_policy = max(drafting(one, 8) for one in answers) if policy else 0
    of_prompts = 3 * (3 if name == "prompt_lookup" else 2)
    assert len(reads) == of_prompts + sum(len(one.rounds) for one in answers) + of_policy, reads


@pytest.mark.parametrize("policy", [None, "algorithm 1", "lagged"])
@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize("name", ["plain", "dspark", "dspark_rnn", "dflash", "eagle3", "mtp"])
def test_a_step_of_the_engine_reads_once_and_answers_as_on_the_cpu(name, temperature, policy):
    if policy and not name.startswith("dspark"):
        pytest.skip("a policy on confidence needs a confidence head")

    def serve(place, device):
        engine = Engine(place[0], place[1][name], policy=POLICIES.get(policy), slots=2, capacity=40,
                        temperature=temperature, stop_token_ids=())
        for number, length in enumerate((4, 6, 3)):
            engine.submit(Request(PROMPT[:, :length], 6 + number, seed=number))
        answers, counted = {}, []
        while not engine.idle:
            with host_reads() as reads:
                report = engine.step()
            answers |= {answer.id: answer.token_ids for answer in report.answers}
            played = report.requests > 0
            counted.append((len(reads), (report.admitted > 0) + played + (policy is not None and played)))
        return answers, counted

    answers, counted = serve(ON_CARD, CARD)
    assert answers == serve(ON_CPU, "cpu")[0] and len(answers) == 3
    assert all(read <= most for read, most in counted), counted
