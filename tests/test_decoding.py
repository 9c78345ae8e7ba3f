"""`generate`: greedy text of every drafter is the target's own, and the rounds add up."""

import math
from itertools import zip_longest

import pytest
import torch
from helpers import BAD_LENGTHS
from torch.overrides import TorchFunctionMode

from dspark_lite import scheduling
from dspark_lite.common.errors import RequestError
from dspark_lite.decoding import Generation, generate, generate_together
from dspark_lite.decoding.target import Target
from dspark_lite.serving.engine import Engine
from dspark_lite.drafters import SmallLM
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling.cost_table import CostTable

VOCAB, GAMMA = 13, 4
TARGET, DRAFTERS = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
TWIN = SmallLM(TARGET, GAMMA)  # the target as its own drafter: everything is accepted
PROMPTS = [torch.randint(VOCAB, (1, 3 + n), generator=torch.Generator().manual_seed(n)) for n in range(12)]


def text(drafter, prompt, new=20, **options):
    """The generation of a drafter without stop tokens unless some are given."""
    return generate(TARGET, drafter, prompt, max_new_tokens=new, **{"stop_token_ids": (), **options})


@pytest.fixture(scope="module")
def plain():
    """What the target writes by itself, a list of ids a prompt."""
    return [text(None, prompt).token_ids for prompt in PROMPTS]


def test_plain_text_is_the_argmax_of_every_prefix(plain):
    for prompt, tokens in zip(PROMPTS[:4], plain, strict=False):
        whole = torch.cat([prompt, torch.tensor([tokens])], 1)
        logits = TARGET.model(input_ids=whole).logits
        assert logits[0, prompt.shape[1] - 1:-1].argmax(-1).tolist() == tokens
    assert len({tuple(tokens) for tokens in plain}) > len(PROMPTS) // 2


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_text_equals_plain_decoding(plain, name):
    runs = [text(DRAFTERS[name], prompt) for prompt in PROMPTS]
    assert [run.token_ids for run in runs] == plain
    accepted = {r.accepted for run in runs for r in run.rounds}
    assert 0 in accepted and max(accepted) > 0, "no rejection or no acceptance, so equality says little"


TABLE = CostTable(range(1, 61), [1 / (1 + size / 8 + size % 3) for size in range(1, 61)])  # covers 12 whole blocks
POLICIES = {"whole": None, "nothing": scheduling.fixed(0), "fixed": scheduling.fixed(2), "threshold": scheduling.threshold(0.5),
            "algorithm 1": scheduling.algorithm1(TABLE), "lagged": scheduling.LaggedTopK(TABLE), "retrospective": scheduling.retrospective(TABLE)}


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_greedy_text_is_the_same_under_every_policy_alone_and_side_by_side(plain, policy):
    together = generate_together(TARGET, DRAFTERS["dspark"], PROMPTS, max_new_tokens=20, policy=policy, stop_token_ids=())
    alone = [text(DRAFTERS["dspark"], prompt, policy=policy) for prompt in PROMPTS]
    assert [run.token_ids for run in together] == [run.token_ids for run in alone] == plain


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_takes_part_in_a_shared_step(plain, name):
    runs = generate_together(TARGET, DRAFTERS[name], PROMPTS[:3], max_new_tokens=20, policy=scheduling.fixed(2), stop_token_ids=())
    assert [run.token_ids for run in runs] == plain[:3]
    assert max(r.proposed for run in runs for r in run.rounds) == min(2, DRAFTERS[name].gamma)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_shared_step_of_one_request_is_a_round_of_generate(policy, temperature):
    """What is enumerated are shared steps (losslessness/enumeration.py), so this is a part of the proof."""
    for seed, prompt in enumerate(PROMPTS[:4]):
        (shared,), alone = (decode(TARGET, DRAFTERS["dspark"], given, max_new_tokens=20, temperature=temperature, policy=policy,
                                   stop_token_ids=(), generator=torch.Generator().manual_seed(seed))
                            for decode, given in ((generate_together, [prompt]), (generate, prompt)))
        assert shared.token_ids == alone.token_ids
        assert [(r.proposed, r.accepted, r.tokens) for r in shared.rounds] == [(r.proposed, r.accepted, r.tokens) for r in alone.rounds]


def rooms(run, new):
    """How many drafts could count in each round of an answer of `new` tokens at most."""
    return [new - 2 - sum(r.committed for r in run.rounds[:number]) for number in range(len(run.rounds))]


def test_a_policy_sees_all_unfinished_requests_at_once():
    seen = []

    def policy(proposal):
        seen.append(len(proposal.tokens))
        return torch.arange(len(proposal.tokens)) % (GAMMA + 1)

    runs = generate_together(TARGET, DRAFTERS["dspark"], PROMPTS[:5], max_new_tokens=12, policy=policy, stop_token_ids=())
    assert seen[0] == 5 and seen == sorted(seen, reverse=True) and seen[-1] < 5
    steps = list(zip_longest(*(rooms(run, 12) for run in runs)))
    assert seen == [sum(room is not None for room in step) for step in steps if any(step)], "asked wherever something was drafted"


def test_a_drafter_that_is_always_right_commits_a_whole_block_and_the_bonus(plain):
    run = text(TWIN, PROMPTS[0], new=1 + 3 * (GAMMA + 1))
    assert [(r.proposed, r.accepted, r.committed) for r in run.rounds] == [(GAMMA, GAMMA, GAMMA + 1)] * 3
    assert run.accepted_length == GAMMA + 1


def test_policies_and_gamma_set_what_is_proposed():
    for options, proposed in (({"policy": scheduling.fixed(2)}, 2), ({"policy": scheduling.fixed(99)}, GAMMA), ({"gamma": 3}, 3),
                              ({"gamma": 3, "policy": scheduling.fixed(1)}, 1), ({"policy": scheduling.threshold(0.0)}, GAMMA),
                              ({"policy": scheduling.threshold(1.1)}, 0)):
        run = text(DRAFTERS["dspark"], PROMPTS[0], **options)
        assert [r.proposed for r in run.rounds] == [min(proposed, room) for room in rooms(run, 20)]
    assert {(r.proposed, r.committed) for r in text(None, PROMPTS[0]).rounds} == {(0, 1)}


@pytest.mark.parametrize("name", [None, *DRAFTERS])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_rounds_add_up_to_the_text(name, temperature):
    generator = torch.Generator().manual_seed(7)
    run = text(DRAFTERS.get(name), PROMPTS[1], temperature=temperature, generator=generator)
    assert run.token_ids[1:] == [token for r in run.rounds for token in r.tokens]
    for r in run.rounds:
        assert len(r.draft_tokens) == r.proposed and 0 <= r.accepted <= r.proposed
        assert r.tokens[:r.accepted] == r.draft_tokens[:r.accepted][:len(r.tokens)] and r.committed == len(r.tokens)
        assert r.draft_seconds >= 0 and r.verify_seconds > 0
    assert all(r.committed == r.accepted + 1 for r in run.rounds[:-1])
    assert run.accepted_length == pytest.approx((len(run.token_ids) - 1) / len(run.rounds))
    assert run.prefill_seconds > 0 and run.decode_seconds >= sum(r.draft_seconds + r.verify_seconds for r in run.rounds)


@pytest.mark.parametrize("name", DRAFTERS)
def test_nothing_is_drafted_or_verified_that_cannot_count(plain, name, monkeypatch):
    """Of 9 tokens a round gets the rest but one by drafts; the target never reads a position behind the last one."""
    drafter, drafted, read = DRAFTERS[name], [], []
    propose, verify = drafter.propose, TARGET.verify
    monkeypatch.setattr(drafter, "propose", lambda *given, **options: drafted.append(options["gamma"]) or propose(*given, **options))
    monkeypatch.setattr(TARGET, "verify", lambda ids, *rest: read.append(ids.shape[1]) or verify(ids, *rest))
    for prompt, tokens in zip(PROMPTS[:3], plain, strict=False):
        drafted.clear(), read.clear()
        run = text(drafter, prompt, new=9)
        left = rooms(run, 9)
        assert drafted == [min(drafter.gamma, room) for room in left if room]
        assert read == [1 + r.proposed for r in run.rounds] and all(r.proposed <= room for r, room in zip(run.rounds, left))
        assert run.token_ids == tokens[:9] and all(r.committed == r.accepted + 1 for r in run.rounds)


@pytest.mark.parametrize("drafter", [None, TWIN, DRAFTERS["dspark"]], ids=["plain", "twin", "dspark"])
def test_exactly_the_tokens_that_were_asked_for(plain, drafter):
    for new in range(1, 12):
        assert text(drafter, PROMPTS[2], new=new).token_ids == plain[2][:new]


def test_no_round_is_needed_for_one_token():
    run = text(DRAFTERS["dspark"], PROMPTS[0], new=1)
    assert run.rounds == [] and math.isnan(run.accepted_length) and math.isnan(Generation().accepted_length)


def test_the_drafter_is_given_what_was_committed_with_its_features(monkeypatch):
    drafter, given = DRAFTERS["dspark"], []
    begin, extend = drafter.begin, drafter.extend
    monkeypatch.setattr(drafter, "begin", lambda ids, features: given.append((ids, features)) or begin(ids, features))
    monkeypatch.setattr(drafter, "extend", lambda state, ids, features: given.append((ids, features)) or extend(state, ids, features))
    run = text(drafter, PROMPTS[0], temperature=1.0, generator=torch.Generator().manual_seed(3))
    assert len(given) == 1 + len(run.rounds) and len({ids.shape[1] for ids, _ in given[1:]}) > 1
    ids, features = (torch.cat(part, 1) for part in zip(*given, strict=True))
    known = PROMPTS[0][0].tolist() + run.token_ids[:-1]  # the last token is the next anchor: its features are not there yet
    assert ids[0, :len(known)].tolist() == known
    torch.testing.assert_close(features, TARGET.prefill(ids, drafter.taps)[0].features, atol=1e-4, rtol=1e-4)


# Stop tokens ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("drafter", [None, TWIN, *DRAFTERS.values()], ids=["plain", "twin", *DRAFTERS])
def test_a_stop_token_ends_the_text_wherever_it_stands(plain, drafter):
    for prompt, tokens in zip(PROMPTS[:6], plain, strict=False):
        for stop in set(tokens):
            wanted = tokens[:tokens.index(stop) + 1]
            run = text(drafter, prompt, stop_token_ids=(stop, VOCAB + 5))
            assert run.token_ids == wanted
            assert sum(r.committed for r in run.rounds) == len(wanted) - 1


def test_a_stop_token_inside_the_accepted_prefix_drops_what_stands_behind_it(plain):
    tokens = next(tokens for tokens in plain if tokens.index(tokens[2]) == 2)
    run = text(TWIN, PROMPTS[plain.index(tokens)], stop_token_ids=(tokens[2],))
    assert run.token_ids == tokens[:3]
    assert [(r.accepted, r.committed, r.tokens) for r in run.rounds] == [(GAMMA, 2, tokens[1:3])]


def test_a_stop_token_as_first_token_needs_no_round(plain):
    run = text(DRAFTERS["dspark"], PROMPTS[0], stop_token_ids=(plain[0][0],))
    assert run.token_ids == plain[0][:1] and run.rounds == []


def test_stop_tokens_default_to_the_targets(plain, monkeypatch):
    monkeypatch.setattr(TARGET.model.generation_config, "eos_token_id", [plain[0][0], 99])
    assert generate(TARGET, None, PROMPTS[0], max_new_tokens=5).token_ids == plain[0][:1]


# Sampling ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [None, *DRAFTERS])
def test_a_sampled_text_repeats_with_its_seed(name):
    first, again, other = (text(DRAFTERS.get(name), PROMPTS[3], temperature=1.0, generator=torch.Generator().manual_seed(seed)).token_ids
                           for seed in (1, 1, 2))
    assert first == again != other


# The host ------------------------------------------------------------------------------------------------------------


class HostQuestions(TorchFunctionMode):
    """Counts the calls that make the host wait for a value."""

    ASKING = ("tolist", "item", "__int__", "__float__", "__bool__", "__index__", "numpy", "cpu", "nonzero", "__contains__")

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in self.ASKING:
            self.asked.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "policy", "questions"), [
    (None, None, 1), ("dspark", None, 1), ("dspark_rnn", None, 1), ("dflash", None, 1), ("small_lm", None, 1),
    ("prompt_lookup", None, 1), ("dspark", scheduling.threshold(0.5), 2)])
def test_the_host_is_asked_once_a_round_and_once_more_by_a_policy(name, policy, questions):
    with HostQuestions() as host:
        run = text(DRAFTERS.get(name), PROMPTS[0], policy=policy)
    of_policies = (questions - 1) * sum(room > 0 for room in rooms(run, 20))
    of_prompt = 3 if name == "prompt_lookup" else 2  # its ids are checked; the first token; a lookup's copy
    assert len(host.asked) == of_prompt + len(run.rounds) + of_policies, host.asked


# Errors --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ids", "options", "sentence"), [
    (torch.zeros(2, 3, dtype=torch.long), {}, r"shape \(2, 3\); generate takes one request"),
    (torch.zeros(3, dtype=torch.long), {}, r"shape \(3,\); generate takes one request"),
    (torch.zeros(1, 0, dtype=torch.long), {}, "the prompt is empty"),
    (torch.zeros(1, 45, dtype=torch.long), {}, "the prompt has 45 tokens; with 20 new ones .* at most 44"),
    (PROMPTS[0], {"new": 0}, "max_new_tokens is 0"),
    (PROMPTS[0], {"new": 2.5}, "max_new_tokens is 2.5; it must be a whole number"),
    (PROMPTS[0], {"stop_token_ids": 5}, "stop_token_ids is 5; give a list of token ids"),
    (PROMPTS[0], {"stop_token_ids": ["a"]}, r"stop_token_ids is \['a'\]; give a list"),
    (torch.tensor([[3, VOCAB]]), {}, "holds torch.int64 from 3 to 13; the token ids of this target are whole numbers from 0 to 12"),
    (torch.tensor([[3.0]]), {}, "holds torch.float32 from 3.0 to 3.0"),
    ([[1, 2]], {}, "input_ids is a list; generate takes a tensor"),
    (PROMPTS[0], {"gamma": 0}, "gamma is 0"), (PROMPTS[0], {"gamma": 2.0}, "gamma is 2.0"), (PROMPTS[0], {"gamma": "2"}, "gamma is '2'"),
    (PROMPTS[0], {"gamma": GAMMA + 1, "new": 1}, f"gamma is {GAMMA + 1}"),
    (PROMPTS[0], {"temperature": -1.0}, "the temperature is -1.0"), (PROMPTS[0], {"temperature": "1"}, "the temperature is '1'"),
    (PROMPTS[0], {"gamma": GAMMA + 1}, f"gamma is {GAMMA + 1}"),
])
def test_a_request_that_cannot_be_decoded_is_refused(ids, options, sentence):
    with pytest.raises(RequestError, match=sentence):
        text(DRAFTERS["dspark"], ids, **options)


@pytest.mark.parametrize(("models", "sentence"), [
    ((TARGET.model, None), "the target is a Qwen3ForCausalLM; give what load_target returned"),
    ((TARGET, "dspark"), "the drafter is a str; give what load_drafter returned"),
    ((TARGET, toy_models(vocab_size=VOCAB + 1, gamma=GAMMA)[1]["dspark"]), "one of torch.float32 on cpu with 14 tokens, the target .* 13 tokens"),
    ((Target(toy_models(vocab_size=VOCAB)[0].model.bfloat16()), DRAFTERS["dspark"]), "one of torch.float32 .*, the target one of torch.bfloat16")])
def test_models_that_do_not_belong_together_are_refused(models, sentence):
    for begin in (lambda: generate(*models, PROMPTS[0], max_new_tokens=4), lambda: Engine(*models)):
        with pytest.raises(RequestError, match=sentence):
            begin()


def test_the_longest_prompt_is_decoded(plain):
    ids = torch.zeros(1, 44, dtype=torch.long)
    assert text(DRAFTERS["dspark"], ids).token_ids == text(None, ids).token_ids


@pytest.mark.parametrize("policy", [scheduling.threshold(0.5), scheduling.retrospective(CostTable([1], [1.0], 5))])
def test_a_policy_on_confidence_needs_a_confidence_head(policy):
    with pytest.raises(RequestError, match="needs a confidence head"):
        text(DRAFTERS["dflash"], PROMPTS[0], policy=policy)


@pytest.mark.parametrize("bad", BAD_LENGTHS)
def test_lengths_that_are_none_are_refused(bad):
    policy, sentence = BAD_LENGTHS[bad]
    with pytest.raises(RequestError, match=sentence) as error:
        generate_together(TARGET, DRAFTERS["dspark"], PROMPTS[:4], max_new_tokens=20, policy=policy, stop_token_ids=())
    assert "<lambda>" in str(error.value) and "\n" not in str(error.value)


def test_policies_refuse_what_makes_no_sense():
    with pytest.raises(RequestError, match="verification length is -1"):
        scheduling.fixed(-1)
