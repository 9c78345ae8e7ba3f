"""`generate`: greedy text of every drafter is the target's own, and the rounds add up."""

import inspect
import math
from itertools import zip_longest

import pytest
import torch
from torch.overrides import TorchFunctionMode

from dspark_lite import scheduling
from dspark_lite.common.errors import RequestError
from dspark_lite.decoding import (
    Generation,
    Round,
    answer,
    generate,
    generate_together,
    stream,
    target as target_module,
)
from dspark_lite.decoding.proposal import Drafter, Proposal
from dspark_lite.decoding.row_store import RowStore
from dspark_lite.decoding.sampling import accept
from dspark_lite.decoding.target import Target, TargetOutput
from dspark_lite.drafters import SmallLM
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.serving.engine import Engine, Request
from helpers import BAD_LENGTHS

VOCAB, GAMMA = 13, 4
TARGET, DRAFTERS = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
TWIN = SmallLM(TARGET, GAMMA)  # the target as its own drafter: everything is accepted
PROMPTS = [
    torch.randint(VOCAB, (1, 3 + n), generator=torch.Generator().manual_seed(n)) for n in range(12)
]


def text(drafter, prompt, new=20, **options):
    """The generation of a drafter without stop tokens unless some are given."""
    return generate(
        TARGET, drafter, prompt, max_new_tokens=new, **{"stop_token_ids": (), **options}
    )


@pytest.fixture(scope="module")
def plain():
    """What the target writes by itself, a list of ids a prompt."""
    return [text(None, prompt).token_ids for prompt in PROMPTS]


def test_plain_text_is_the_argmax_of_every_prefix(plain):
    for prompt, tokens in zip(PROMPTS[:4], plain, strict=False):
        whole = torch.cat([prompt, torch.tensor([tokens])], 1)
        logits = TARGET.model(input_ids=whole).logits
        assert logits[0, prompt.shape[1] - 1 : -1].argmax(-1).tolist() == tokens
    assert len({tuple(tokens) for tokens in plain}) > len(PROMPTS) // 2


@pytest.mark.parametrize("name", DRAFTERS)
def test_greedy_text_equals_plain_decoding(plain, name):
    """For three prompts at least, and until drafts were accepted and refused: without both, equality says little."""
    accepted = set()
    for number, (prompt, tokens) in enumerate(zip(PROMPTS, plain)):
        if number >= 3 and 0 in accepted and max(accepted) > 0:
            return
        run = text(DRAFTERS[name], prompt)
        assert run.token_ids == tokens
        accepted |= {r.accepted for r in run.rounds}
    assert 0 in accepted and max(accepted) > 0


# covers 12 whole blocks
TABLE = CostTable(range(1, 61), [1 / (1 + size / 8 + size % 3) for size in range(1, 61)])
POLICIES = {
    "whole": None,
    "nothing": scheduling.fixed(0),
    "fixed": scheduling.fixed(2),
    "threshold": scheduling.threshold(0.5),
    "algorithm 1": scheduling.algorithm1(TABLE),
    "lagged": scheduling.LaggedTopK(TABLE),
    "retrospective": scheduling.retrospective(TABLE),
}


@pytest.mark.parametrize(
    "prompts",
    [
        2,
        pytest.param(
            len(PROMPTS),
            marks=pytest.mark.slow(
                reason="twelve prompts under each of seven policies, alone and side by side"
            ),
        ),
    ],
)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_greedy_text_is_the_same_under_every_policy_alone_and_side_by_side(plain, policy, prompts):
    together = generate_together(
        TARGET,
        DRAFTERS["dspark"],
        PROMPTS[:prompts],
        max_new_tokens=20,
        policy=policy,
        stop_token_ids=(),
    )
    alone = [text(DRAFTERS["dspark"], prompt, policy=policy) for prompt in PROMPTS[:prompts]]
    assert (
        [run.token_ids for run in together] == [run.token_ids for run in alone] == plain[:prompts]
    )


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_takes_part_in_a_shared_step(plain, name):
    runs = generate_together(
        TARGET,
        DRAFTERS[name],
        PROMPTS[:2],
        max_new_tokens=12,
        policy=scheduling.fixed(2),
        stop_token_ids=(),
    )
    assert [run.token_ids for run in runs] == [tokens[:12] for tokens in plain[:2]]
    assert max(r.proposed for run in runs for r in run.rounds) == min(2, DRAFTERS[name].gamma)


@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_a_shared_step_of_one_request_is_a_round_of_generate(policy, temperature):
    """What is enumerated are shared steps (losslessness/enumeration.py), so this is a part of the proof."""
    (shared,), alone = (
        decode(
            TARGET,
            DRAFTERS["dspark"],
            given,
            max_new_tokens=20,
            temperature=temperature,
            policy=policy,
            stop_token_ids=(),
            generator=torch.Generator().manual_seed(0),
        )
        for decode, given in ((generate_together, [PROMPTS[0]]), (generate, PROMPTS[0]))
    )
    assert shared.token_ids == alone.token_ids
    assert [(r.proposed, r.accepted, r.tokens) for r in shared.rounds] == [
        (r.proposed, r.accepted, r.tokens) for r in alone.rounds
    ]


@pytest.mark.parametrize("decode", [generate, generate_together])
def test_an_answer_without_a_length_is_pythons_own_sentence(decode):
    with pytest.raises(TypeError, match="max_new_tokens"):
        decode(TARGET, None, PROMPTS[0])


def rooms(run, new):
    """How many drafts could count in each round of an answer of `new` tokens at most."""
    return [
        new - 2 - sum(r.committed for r in run.rounds[:number]) for number in range(len(run.rounds))
    ]


def test_a_policy_sees_all_unfinished_requests_at_once():
    seen = []

    def policy(proposal):
        seen.append(len(proposal.tokens))
        return torch.arange(len(proposal.tokens)) % (GAMMA + 1)

    runs = generate_together(
        TARGET, DRAFTERS["dspark"], PROMPTS[:5], max_new_tokens=12, policy=policy, stop_token_ids=()
    )
    assert seen[0] == 5 and seen == sorted(seen, reverse=True) and seen[-1] < 5
    steps = list(zip_longest(*(rooms(run, 12) for run in runs)))
    assert seen == [sum(room is not None for room in step) for step in steps if any(step)], (
        "asked wherever something was drafted"
    )


def test_a_drafter_that_is_always_right_commits_a_whole_block_and_the_bonus(plain):
    run = text(TWIN, PROMPTS[0], new=1 + 3 * (GAMMA + 1))
    assert [(r.proposed, r.accepted, r.committed) for r in run.rounds] == [
        (GAMMA, GAMMA, GAMMA + 1)
    ] * 3
    assert run.accepted_length == GAMMA + 1


def test_policies_and_gamma_set_what_is_proposed():
    for options, proposed in (
        ({"policy": scheduling.fixed(2)}, 2),
        ({"policy": scheduling.fixed(99)}, GAMMA),
        ({"gamma": 3}, 3),
        ({"gamma": 3, "policy": scheduling.fixed(1)}, 1),
        ({"policy": scheduling.threshold(0.0)}, GAMMA),
        ({"policy": scheduling.threshold(1.1)}, 0),
    ):
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
        assert r.tokens[: r.accepted] == r.draft_tokens[: r.accepted][
            : len(r.tokens)
        ] and r.committed == len(r.tokens)
        assert r.draft_seconds >= 0 and r.verify_seconds > 0
    assert all(r.committed == r.accepted + 1 for r in run.rounds[:-1])
    assert run.accepted_length == pytest.approx((len(run.token_ids) - 1) / len(run.rounds))
    assert run.prefill_seconds > 0 and run.decode_seconds >= sum(
        r.draft_seconds + r.verify_seconds for r in run.rounds
    )


@pytest.mark.parametrize("name", DRAFTERS)
def test_nothing_is_drafted_or_verified_that_cannot_count(plain, name, monkeypatch):
    """Of 9 tokens a round gets the rest but one by drafts; the target never reads a position behind the last one."""
    drafter, drafted, read = DRAFTERS[name], [], []
    propose, verify = drafter.propose, TARGET.verify
    monkeypatch.setattr(
        drafter,
        "propose",
        lambda *given, **options: drafted.append(options["gamma"]) or propose(*given, **options),
    )
    monkeypatch.setattr(
        TARGET, "verify", lambda ids, *rest: read.append(ids.shape[1]) or verify(ids, *rest)
    )
    for prompt, tokens in zip(PROMPTS[:3], plain, strict=False):
        drafted.clear()
        read.clear()
        run = text(drafter, prompt, new=9)
        left = rooms(run, 9)
        assert drafted == [min(drafter.gamma, room) for room in left if room]
        assert read == [1 + r.proposed for r in run.rounds] and all(
            r.proposed <= room for r, room in zip(run.rounds, left)
        )
        assert run.token_ids == tokens[:9] and all(
            r.committed == r.accepted + 1 for r in run.rounds
        )


@pytest.mark.parametrize(
    "drafter", [None, TWIN, DRAFTERS["dspark"]], ids=["plain", "twin", "dspark"]
)
def test_exactly_the_tokens_that_were_asked_for(plain, drafter):
    for new in range(1, 12):
        assert text(drafter, PROMPTS[2], new=new).token_ids == plain[2][:new]


def test_no_round_is_needed_for_one_token():
    run = text(DRAFTERS["dspark"], PROMPTS[0], new=1)
    assert (
        run.rounds == []
        and math.isnan(run.accepted_length)
        and math.isnan(Generation().accepted_length)
    )


def test_the_drafter_is_given_what_was_committed_with_its_features(monkeypatch):
    drafter, given = DRAFTERS["dspark"], []
    begin, extend = drafter.begin, drafter.extend
    monkeypatch.setattr(
        drafter,
        "begin",
        lambda ids, features: given.append((ids, features)) or begin(ids, features),
    )
    monkeypatch.setattr(
        drafter,
        "extend",
        lambda state, ids, features: given.append((ids, features)) or extend(state, ids, features),
    )
    run = text(drafter, PROMPTS[0], temperature=1.0, generator=torch.Generator().manual_seed(3))
    assert len(given) == 1 + len(run.rounds) and len({ids.shape[1] for ids, _ in given[1:]}) > 1
    ids, features = (torch.cat(part, 1) for part in zip(*given, strict=True))
    # the last token is the next anchor: its features are not there yet
    known = PROMPTS[0][0].tolist() + run.token_ids[:-1]
    assert ids[0, : len(known)].tolist() == known
    torch.testing.assert_close(
        features, TARGET.prefill(ids, drafter.taps)[0].features, atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("joined", [[0, 1, 2], [2, 0, 1], [1, 2], [2, 1]], ids=str)
def test_a_pass_gets_the_entries_of_its_rows_in_their_order(joined):
    """Also if all rows join it in another order."""
    store = RowStore(layers=1, rows=3, device=torch.device("cpu"))
    prompts = torch.arange(24.0).view(3, 1, 4, 2)  # a key head, four tokens each
    store.begin_pass(4)
    store.append(0, prompts, -prompts)
    store.lengths, store.joined = [4, 3, 2], joined
    added = torch.tensor(joined).view(-1, 1, 1, 1) + torch.full((1, 1, 1, 2), 100.0)
    starts = store.begin_pass(1)[:, 0].tolist()
    assert starts == [store.lengths[row] for row in joined]
    keys, values = store.append(0, added, -added)
    for place, row in enumerate(joined):
        kept = prompts[row, :, : starts[place]]
        expected = torch.cat([kept, added[place]], 1)
        assert torch.equal(keys[place, :, : starts[place] + 1], expected)
        assert torch.equal(values[place, :, : starts[place] + 1], -expected)


@pytest.mark.parametrize("taps", [(-1, 1), (2,), (TARGET.num_layers - 1,)])
@pytest.mark.parametrize("work", ["prefill", "last_hidden"])
def test_a_pass_stores_the_tapped_layers_alone_and_the_same_numbers(monkeypatch, taps, work):
    stored = []
    base = TARGET.model.model
    forward = base.forward
    monkeypatch.setattr(
        base,
        "forward",
        lambda *given, **options: stored.append(forward(*given, **options)) or stored[-1],
    )

    def features():
        output = getattr(TARGET, work)(PROMPTS[0], taps)
        return output[0].features if work == "prefill" else output[1]

    selected = features()
    states = stored.pop().hidden_states
    if target_module._selection:
        assert {at for at, state in enumerate(states) if state is not None} == {
            tap + 1 for tap in taps
        }
    monkeypatch.setattr(target_module, "_selection", None)
    assert torch.equal(selected, features())
    assert all(state is not None for state in stored.pop().hidden_states)


# Stop tokens


def cut_at(rounds, tokens):
    """(accepted, tokens) of rounds of which the first so many tokens stand in the answer."""
    found = []
    for r in rounds:
        if tokens > 0:
            found.append((min(r.accepted, tokens), r.tokens[:tokens]))
        tokens -= r.committed
    return found


@pytest.mark.parametrize(
    "prompts",
    [
        1,
        pytest.param(
            6, marks=pytest.mark.slow(reason="each token of six texts, for each of ten drafters")
        ),
    ],
)
@pytest.mark.parametrize(
    "drafter", [None, TWIN, *DRAFTERS.values()], ids=["plain", "twin", *DRAFTERS]
)
def test_a_stop_token_ends_the_text_wherever_it_stands(plain, drafter, prompts):
    """The rounds are those of the text that goes on, up to the end: no draft behind it counts as accepted."""
    for prompt, tokens in zip(PROMPTS[:prompts], plain, strict=False):
        whole = text(drafter, prompt)
        for stop in sorted(set(tokens))[:: 1 if prompts > 1 else 2]:
            wanted = tokens[: tokens.index(stop) + 1]
            run = text(drafter, prompt, stop_token_ids=(VOCAB + 5, stop))
            assert run.token_ids == wanted
            assert [(r.accepted, r.tokens) for r in run.rounds] == cut_at(
                whole.rounds, len(wanted) - 1
            )
            assert all(r.committed == len(r.tokens) for r in run.rounds)


# Where the answer ends within blocks of four that are all accepted, and the accepted drafts and committed tokens of its rounds.
ENDS = {
    "in the prompt's own pass": (0, []),
    "a first draft": (1, [(1, 1)]),
    "a draft in the middle": (2, [(2, 2)]),
    "a last draft": (GAMMA, [(GAMMA, GAMMA)]),
    "the bonus": (GAMMA + 1, [(GAMMA, GAMMA + 1)]),
    "a draft of the next block": (GAMMA + 3, [(GAMMA, GAMMA + 1), (2, 2)]),
}


@pytest.mark.parametrize(
    "by",
    [
        "a stop token",
        "the later of two stop tokens",
        "the earlier of two stop tokens",
        "its length",
    ],
)
@pytest.mark.parametrize(("at", "rounds"), ENDS.values(), ids=ENDS)
def test_no_draft_behind_the_end_of_an_answer_counts(at, rounds, by, monkeypatch):
    """The text counts up from 0: each token stands in it once."""
    monkeypatch.setattr(
        TARGET,
        "read",
        lambda ids, cache, *_, logits_to_keep=0, **options: TargetOutput(
            torch.eye(VOCAB)[(ids + 1) % VOCAB][:, -logits_to_keep:] * 9, None
        ),
    )
    monkeypatch.setattr(TARGET, "roll_back", lambda cache, dropped: None)
    options = {
        "a stop token": {"stop_token_ids": (at,)},
        "the later of two stop tokens": {"stop_token_ids": (VOCAB, at)},
        "the earlier of two stop tokens": {"stop_token_ids": (VOCAB - 1, at)},
        "its length": {"new": at + 1},
    }[by]
    run = text(Counting(), torch.tensor([[VOCAB - 1]]), **options)
    assert run.token_ids == list(range(at + 1))
    if by == "its length":  # a block is drafted no longer than counts
        assert [r.committed for r in run.rounds] == [committed for _, committed in rounds]
        assert all(r.accepted == r.proposed == r.committed - 1 for r in run.rounds)
    else:
        assert [(r.accepted, r.committed) for r in run.rounds] == rounds
        assert all(r.proposed == len(r.draft_tokens) == GAMMA for r in run.rounds)


class Counting(Drafter):
    """A drafter that counts on from the anchor."""

    name, gamma, taps = "counting", GAMMA, ()

    def begin(self, prompt_ids, features):
        """No state."""

    def extend(self, state, token_ids, features):
        """No state."""

    def propose(self, state, anchor, *, gamma=None, temperature, generator):
        tokens = (anchor[:, None] + torch.arange(1, 1 + (gamma or self.gamma))) % VOCAB
        return Proposal(tokens, torch.eye(VOCAB)[tokens])


def test_the_rounds_of_an_answer_know_no_draft_behind_its_end_however_they_were_made():
    """Also those that were read from a journal, which may be an older one."""
    assert [Round(*counts).accepted for counts in ((7, 5, 3), (7, 5, 5), (7, 5, 6), (7, 0, 0))] == [
        3,
        5,
        5,
        0,
    ]


# What a generation config calls its ends, how `Target` tells them, and after how many tokens of the first text they end it.
DEFAULT_ENDS = {
    "none": lambda tokens: (None, (), 5),
    "one": lambda tokens: (tokens[2], (tokens[2],), tokens.index(tokens[2]) + 1),
    "only the second comes": lambda tokens: (
        [99, tokens[2]],
        (99, tokens[2]),
        tokens.index(tokens[2]) + 1,
    ),
    "the second comes first": lambda tokens: (
        [tokens[4], tokens[1]],
        (tokens[4], tokens[1]),
        1 + min(tokens.index(tokens[4]), tokens.index(tokens[1])),
    ),
    "three": lambda tokens: ([98, 99, tokens[0]], (98, 99, tokens[0]), 1),
}


@pytest.mark.parametrize("ends", DEFAULT_ENDS.values(), ids=DEFAULT_ENDS)
def test_stop_tokens_default_to_all_of_the_targets(plain, monkeypatch, ends):
    eos_token_id, told, count = ends(plain[0])
    monkeypatch.setattr(TARGET.model.generation_config, "eos_token_id", eos_token_id)
    assert TARGET.stop_token_ids == told
    for drafter in (None, DRAFTERS["dspark"]):
        assert generate(TARGET, drafter, PROMPTS[0], max_new_tokens=5).token_ids == plain[0][:count]
    engine = Engine(TARGET, DRAFTERS["dspark"], slots=1, capacity=40)
    engine.submit(Request(PROMPTS[0], 5))
    (answer,) = [answer for _ in range(6) for answer in engine.step().answers]
    assert answer.token_ids == plain[0][:count]
    for given in ([99], [], ()):  # an empty list says that no token ends an answer
        answer = generate(TARGET, None, PROMPTS[0], max_new_tokens=5, stop_token_ids=given)
        assert answer.token_ids == plain[0][:5], "ids that are given replace the target's"


# Options


def verifying_one(target_probs, draft_probs, draft_tokens, lengths, generator):
    """A rule that keeps no draft."""
    return accept(
        target_probs,
        draft_probs,
        draft_tokens,
        torch.zeros(len(draft_tokens), dtype=torch.long),
        generator,
    )


# Another value of each option of `generate`, and what it does to the rounds of an answer.
OPTIONS = {
    "max_new_tokens": (7, lambda run: len(run.token_ids) == 7),
    "temperature": (3.0, lambda run: len(run.token_ids) == 20),
    "policy": (scheduling.fixed(1), lambda run: {r.proposed for r in run.rounds} <= {0, 1}),
    "stop_token_ids": ((VOCAB, 4), lambda run: run.token_ids.index(4) == len(run.token_ids) - 1),
    "generator": (9, lambda run: len(run.token_ids) == 20),
    "gamma": (2, lambda run: max(r.proposed for r in run.rounds) == 2),
    "rule": (
        verifying_one,
        lambda run: (
            {r.accepted for r in run.rounds} == {0} and max(r.proposed for r in run.rounds) == GAMMA
        ),
    ),
}


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_does_what_it_says_and_streams_and_shared_steps_take_it_as_generate_does(
    option,
):
    """The default before and after: nothing that was asked for once stays."""
    value, holds = OPTIONS[option]

    def answer(decode, prompts, **given):
        options = {
            "max_new_tokens": 20,
            "temperature": 1.0,
            "stop_token_ids": (),
            "generator": 5,
        } | given
        return decode(
            TARGET,
            DRAFTERS["dspark"],
            prompts,
            **options | {"generator": torch.Generator().manual_seed(options["generator"])},
        )

    def rounds(run):
        return run.token_ids, [(r.proposed, r.accepted, r.tokens) for r in run.rounds]

    before, asked, after = (
        answer(generate, PROMPTS[1], **given) for given in ({}, {option: value}, {})
    )
    assert rounds(before) == rounds(after) != rounds(asked) and holds(asked)
    (together,) = answer(generate_together, [PROMPTS[1]], **{option: value})
    assert rounds(together) == rounds(asked)
    assert list(answer(stream, PROMPTS[1], **{option: value})) == [
        asked.token_ids[:1],
        *(r.tokens for r in asked.rounds),
    ]


def test_no_option_of_generate_is_left_out():
    """`prepare` is tests/test_fast.py's."""
    assert set(inspect.signature(generate).parameters) == {
        "target",
        "drafter",
        "input_ids",
        *OPTIONS,
        "prepare",
    }


# Sampling


@pytest.mark.parametrize("name", [None, *DRAFTERS])
def test_a_sampled_text_repeats_with_its_seed(name):
    first, again, other = (
        text(
            DRAFTERS.get(name),
            PROMPTS[3],
            12,
            temperature=1.0,
            generator=torch.Generator().manual_seed(seed),
        ).token_ids
        for seed in (1, 1, 2)
    )
    assert first == again != other


# The host


class HostQuestions(TorchFunctionMode):
    """Counts the calls that make the host wait for a value."""

    ASKING = (
        "tolist",
        "item",
        "__int__",
        "__float__",
        "__bool__",
        "__index__",
        "numpy",
        "cpu",
        "nonzero",
        "__contains__",
    )

    def __init__(self):
        super().__init__()
        self.asked = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if getattr(function, "__name__", "") in self.ASKING:
            self.asked.append(function.__name__)
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    ("name", "policy", "questions"),
    [
        (None, None, 1),
        ("dspark", None, 1),
        ("dspark_rnn", None, 1),
        ("dflash", None, 1),
        ("small_lm", None, 1),
        ("prompt_lookup", None, 1),
        ("dspark", scheduling.threshold(0.5), 2),
    ],
)
def test_the_host_is_asked_once_a_round_and_once_more_by_a_policy(name, policy, questions):
    with HostQuestions() as host:
        run = text(DRAFTERS.get(name), PROMPTS[0], policy=policy)
    of_policies = (questions - 1) * sum(room > 0 for room in rooms(run, 20))
    # its ids are checked; the first token; a lookup's copy
    of_prompt = 3 if name == "prompt_lookup" else 2
    assert len(host.asked) == of_prompt + len(run.rounds) + of_policies, host.asked


# Errors


@pytest.mark.parametrize(
    ("ids", "options", "sentence"),
    [
        (torch.zeros(2, 3, dtype=torch.long), {}, r"shape \(2, 3\); generate takes one request"),
        (torch.zeros(3, dtype=torch.long), {}, r"shape \(3,\); generate takes one request"),
        (torch.zeros(1, 0, dtype=torch.long), {}, "the prompt is empty"),
        (
            torch.zeros(1, 45, dtype=torch.long),
            {},
            "the prompt has 45 tokens; with 20 new ones .* at most 44",
        ),
        (PROMPTS[0], {"new": 0}, "max_new_tokens is 0"),
        (PROMPTS[0], {"new": 2.5}, "max_new_tokens is 2.5; it must be a whole number"),
        (PROMPTS[0], {"stop_token_ids": 5}, "stop_token_ids is 5; give a list of token ids"),
        (PROMPTS[0], {"stop_token_ids": ["a"]}, r"stop_token_ids is \['a'\]; give a list"),
        (
            torch.tensor([[3, VOCAB]]),
            {},
            "holds torch.int64 from 3 to 13; the token ids of this target are whole numbers from 0 to 12",
        ),
        (torch.tensor([[3.0]]), {}, "holds torch.float32 from 3.0 to 3.0"),
        ([[1, 2]], {}, "input_ids is a list; generate takes a tensor"),
        (PROMPTS[0], {"gamma": 0}, "gamma is 0"),
        (PROMPTS[0], {"gamma": 2.0}, "gamma is 2.0"),
        (PROMPTS[0], {"gamma": "2"}, "gamma is '2'"),
        (PROMPTS[0], {"gamma": GAMMA + 1, "new": 1}, f"gamma is {GAMMA + 1}"),
        (PROMPTS[0], {"temperature": -1.0}, "the temperature is -1.0"),
        (PROMPTS[0], {"temperature": float("inf")}, "the temperature is inf"),
        (PROMPTS[0], {"temperature": "1"}, "the temperature is '1'"),
        (PROMPTS[0], {"gamma": GAMMA + 1}, f"gamma is {GAMMA + 1}"),
    ],
)
def test_a_request_that_cannot_be_decoded_is_refused(ids, options, sentence):
    with pytest.raises(RequestError, match=sentence):
        text(DRAFTERS["dspark"], ids, **options)


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ((TARGET.model, None), "the target is a Qwen3ForCausalLM; give what load_target returned"),
        ((TARGET, "dspark"), "the drafter is a str; give what load_drafter returned"),
        (
            (TARGET, toy_models(vocab_size=VOCAB + 1, gamma=GAMMA)[1]["dspark"]),
            "14 tokens; this target has .* 13 tokens",
        ),
        (
            (Target(toy_models(vocab_size=VOCAB)[0].model.bfloat16()), DRAFTERS["dspark"]),
            "torch.float32 .*; this target has torch.bfloat16",
        ),
    ],
)
def test_models_that_do_not_belong_together_are_refused(models, sentence):
    for begin in (lambda: generate(*models, PROMPTS[0], max_new_tokens=4), lambda: Engine(*models)):
        with pytest.raises(RequestError, match=sentence):
            begin()


def test_the_longest_prompt_is_decoded(plain):
    ids = torch.zeros(1, 44, dtype=torch.long)
    assert text(DRAFTERS["dspark"], ids).token_ids == text(None, ids).token_ids


@pytest.mark.parametrize(
    "policy", [scheduling.threshold(0.5), scheduling.retrospective(CostTable([1], [1.0], 5))]
)
def test_a_policy_on_confidence_needs_a_confidence_head(policy):
    with pytest.raises(RequestError, match="needs a confidence head"):
        text(DRAFTERS["dflash"], PROMPTS[0], policy=policy)


@pytest.mark.parametrize("bad", BAD_LENGTHS)
def test_lengths_that_are_none_are_refused(bad):
    policy, sentence = BAD_LENGTHS[bad]
    with pytest.raises(RequestError, match=sentence) as error:
        generate_together(
            TARGET,
            DRAFTERS["dspark"],
            PROMPTS[:4],
            max_new_tokens=20,
            policy=policy,
            stop_token_ids=(),
        )
    assert "<lambda>" in str(error.value) and "\n" not in str(error.value)


def test_policies_refuse_what_makes_no_sense():
    with pytest.raises(RequestError, match="verification length is -1"):
        scheduling.fixed(-1)


@pytest.mark.parametrize(("part", "drafting"), [("read", 0.0), ("propose", 1.0)])
def test_drafting_seconds_are_those_of_all_requests_and_free_of_verification(
    monkeypatch, part, drafting
):
    """On a clock that runs only while the target verifies, or only while the drafter drafts."""
    target, drafters = toy_models(seed=1, vocab_size=VOCAB, gamma=GAMMA)
    owner = target if part == "read" else drafters["dspark"]
    seconds, honest = [0.0], getattr(owner, part)

    class PartsClock:
        def __init__(self, device):
            self.host = seconds[0]

        def device_seconds_since(self, earlier):
            return self.host - earlier.host

    def work(*given, **options):
        seconds[0] += 1.0
        return honest(*given, **options)

    monkeypatch.setattr(owner, part, work)
    monkeypatch.setattr(answer, "Moment", PartsClock)
    answers = generate_together(
        target, drafters["dspark"], PROMPTS[:3], max_new_tokens=6, stop_token_ids=()
    )
    assert [answer.rounds[0].draft_seconds for answer in answers] == [drafting] * 3
