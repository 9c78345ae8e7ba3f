"""Drafters: what they remember is what was committed, what they draft follows the formulas, and their work stays flat."""

import copy
import inspect
import random
import sys
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st

from dspark_lite.common.errors import RequestError
from dspark_lite.decoding.attention import attend
from dspark_lite.decoding.proposal import Context, Drafter, Policy, start_policy
from dspark_lite.decoding.sampling import probabilities
from dspark_lite.drafters import DSpark, PromptLookup, SmallLM, prompt_lookup
from dspark_lite.drafters.dspark import SEQUENTIAL_HEADS, transition_biases
from dspark_lite.drafters.layers import ContextCache
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.scheduling import policies as scheduling
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.serving.slots import DraftView, drafter_slots

VOCAB, GAMMA = 11, 4
TARGET, DRAFTERS = toy_models(seed=3, vocab_size=VOCAB, gamma=GAMMA)
BLOCK = ["dflash", "dspark", "dspark_gated", "dspark_rnn"]
SEQUENTIAL = BLOCK[1:]
MODELS = [*BLOCK, "small_lm", "eagle3", "mtp"]


def random_ids(length, batch=1, seed=0):
    """Token ids [batch, length]."""
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def features_of(ids, drafter):
    """The target's tapped hidden states of ids, None for a drafter that taps none."""
    return TARGET.prefill(ids, drafter.taps)[0].features


def fresh_state(ids, drafter):
    """The state of a drafter that reads ids at once."""
    return drafter.begin(ids, features_of(ids, drafter))


def proposal_of(drafter, state, anchor, temperature=1.0, gamma=None, seed=5):
    """A proposal drawn with a generator of its own."""
    return drafter.propose(
        state,
        anchor,
        gamma=gamma,
        temperature=temperature,
        generator=torch.Generator().manual_seed(seed),
    )


def assert_same(first, second):
    """Equal tokens, and probabilities and confidence equal to rounding."""
    assert first.tokens.tolist() == second.tokens.tolist()
    torch.testing.assert_close(first.probs, second.probs, atol=1e-5, rtol=0)
    if first.confidence is not None:
        torch.testing.assert_close(first.confidence, second.confidence, atol=1e-5, rtol=0)


# The protocols


def parameters(kind, method):
    """Names and kinds of the parameters of a method, but for its own object."""
    return [
        (p.name, p.kind)
        for p in inspect.signature(getattr(kind, method)).parameters.values()
        if p.name != "self"
    ]


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_is_called_as_the_protocol_says(name):
    assert isinstance(DRAFTERS[name], Drafter) and not isinstance(TARGET, Drafter)
    for method in ("begin", "propose", "extend"):
        assert parameters(type(DRAFTERS[name]), method) == parameters(Drafter, method)


def test_contexts_and_policies_are_called_as_the_protocol_says():
    table = CostTable([1], [1.0])
    policies = [
        scheduling.fixed(1),
        scheduling.threshold(0.5),
        scheduling.algorithm1(table),
        scheduling.retrospective(table),
        scheduling.LaggedTopK(table),
        start_policy(lambda proposal: torch.zeros(1, dtype=torch.long)),
    ]
    contexts = [
        ContextCache(1),
        drafter_slots(DRAFTERS["dspark"], 2, 8, torch.device("cpu")).draft_context([0, 1], [1, 2]),
    ]
    assert all(isinstance(policy, Policy) for policy in policies) and isinstance(
        contexts[1], DraftView
    )
    for context in contexts:
        assert isinstance(context, Context)
        for method in ("positions", "mask", "append", "advance"):
            assert parameters(type(context), method) == parameters(Context, method)


# Attention


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_three_query_heads_share_each_key_head(rows):
    """Without a mask, with a row for all queries, and with a row for each, also as numbers to add."""
    queries = torch.randn(2, 6, 3, 8)
    keys = torch.randn(2, 2, 5, 8)
    values = torch.randn(2, 2, 5, 8)
    mask = (
        None
        if rows is None
        else (torch.rand(2, 1, rows, 5) < 0.5).index_fill(-1, torch.tensor([0]), True)
    )
    scores = 0.5 * queries @ keys.repeat_interleave(3, 1).mT
    hidden = scores if mask is None else scores.masked_fill(~mask, -torch.inf)
    wanted = hidden.softmax(-1) @ values.repeat_interleave(3, 1)
    torch.testing.assert_close(attend(queries, keys, values, mask, 0.5), wanted)
    if rows == 3:
        added = torch.zeros(2, 1, 3, 5).masked_fill(~mask, -torch.inf)
        torch.testing.assert_close(attend(queries, keys, values, added, 0.5), wanted)
        assert not torch.allclose(attend(queries, keys, values, None, 0.5), wanted), (
            "the mask hides nothing that matters"
        )


# The context cache


def test_the_cache_grows_past_its_first_buffer():
    drafter, anchor = DRAFTERS["dspark"], torch.tensor([2])
    features = torch.randn(1, 150, 2 * TARGET.hidden_size)
    whole, grown = drafter.begin(None, features), drafter.begin(None, features[:, :60])
    for at in range(60, 150):
        drafter.extend(grown, None, features[:, at : at + 1])
    torch.testing.assert_close(
        drafter.block_hidden(grown, anchor), drafter.block_hidden(whole, anchor), atol=1e-5, rtol=0
    )


def test_the_block_depends_on_context_and_anchor():
    drafter, ids, anchor = DRAFTERS["dflash"], random_ids(6), torch.tensor([2])
    hidden = drafter.block_hidden(fresh_state(ids, drafter), anchor)
    other_context = drafter.block_hidden(fresh_state(ids.roll(1, -1), drafter), anchor)
    other_anchor = drafter.block_hidden(fresh_state(ids, drafter), torch.tensor([3]))
    for other in (other_context, other_anchor):
        assert ((hidden - other).abs().amax(-1) > 1e-3).all()


@pytest.mark.parametrize("name", [*MODELS, "prompt_lookup"])
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_the_state_knows_the_committed_text_and_nothing_else(name, temperature):
    """Whatever was drafted, cut and rejected before, the next proposal is that of a drafter which starts afresh."""
    drafter, rng = DRAFTERS[name], random.Random(1)
    text, anchor = random_ids(7, seed=1), torch.tensor([4])
    output, cache = TARGET.prefill(text, drafter.taps)
    state = drafter.begin(text, output.features)
    for number in range(8):
        gamma = rng.choice([None, 1, min(3, drafter.gamma)])
        proposal_of(drafter, state, (anchor + 1) % VOCAB)  # a block that nobody verifies
        proposal = proposal_of(drafter, state, anchor, temperature, gamma, seed=number)
        assert_same(
            proposal,
            proposal_of(
                drafter, fresh_state(text, drafter), anchor, temperature, gamma, seed=number
            ),
        )
        proposal = proposal.cut(rng.randint(0, proposal.tokens.shape[1]))
        drafted = proposal.tokens.shape[1]
        accepted = rng.choice([0, drafted, rng.randint(0, drafted)])
        entering = torch.cat([anchor[:, None], proposal.tokens], 1)
        output = TARGET.verify(entering, cache, drafter.taps)
        TARGET.roll_back(cache, drafted - accepted)
        features = None if output.features is None else output.features[:, : accepted + 1]
        drafter.extend(state, entering[:, : accepted + 1], features)
        text = torch.cat([text, entering[:, : accepted + 1]], 1)
        anchor = torch.tensor([rng.randrange(VOCAB)])


PIECES = {
    "one by one": [1, 1, 1],
    "several": [3, 2, 4],
    "past the block": [GAMMA + 4, 1],
    "nothing new": [2, 0, 1],
    "at once": [4],
}


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
@pytest.mark.parametrize("name", DRAFTERS)
def test_a_text_that_came_in_pieces_is_drafted_like_one_that_was_read_at_once(name, pieces):
    """However often `extend` is called in a row: after no proposal, after one of which nothing was accepted, and after two,
    of which the last was accepted whole and more came with it."""
    drafter, generator = DRAFTERS[name], torch.Generator().manual_seed(len(pieces))
    for proposals in range(3):
        text, anchor, rest = (
            torch.randint(5, (3, length), generator=generator) for length in (6, 1, sum(pieces))
        )
        state, accepted = fresh_state(text, drafter), anchor[:, :0]
        for number in range(proposals):
            proposal = proposal_of(
                drafter, state, anchor[:, 0], gamma=min(3, drafter.gamma), seed=number
            )
            accepted = proposal.tokens[:, : 4 * number]
        whole, at = torch.cat([text, anchor, accepted, rest], 1), text.shape[1]
        features = features_of(whole, drafter)
        judged = 1 + accepted.shape[1]
        for length in [judged, *pieces] if proposals == 1 else [judged + pieces[0], *pieces[1:]]:
            drafter.extend(
                state,
                whole[:, at : at + length],
                None if features is None else features[:, at : at + length],
            )
            at += length
        assert at == whole.shape[1]
        next_anchor = text[:, 0]  # it came before: prompt lookup finds something to copy
        wanted = proposal_of(drafter, fresh_state(whole, drafter), next_anchor)
        assert wanted.tokens.shape[1] > 0
        assert_same(proposal_of(drafter, state, next_anchor), wanted)


# Draft length and batch


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("wrong", [0, -1, 1])
def test_a_draft_length_outside_the_block_is_refused(name, wrong):
    drafter = DRAFTERS[name]
    gamma = wrong if wrong < 1 else drafter.gamma + wrong
    with pytest.raises(
        RequestError, match=f"gamma is {gamma}; this drafter drafts between 1 and {drafter.gamma}"
    ):
        proposal_of(drafter, fresh_state(random_ids(5), drafter), torch.tensor([1]), gamma=gamma)


# which drafts one token
@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "mtp"])
def test_a_shorter_draft_is_the_beginning_of_the_whole_one(name):
    drafter, ids, anchor = DRAFTERS[name], torch.tensor([[1, 2, 3, 4, 5, 6, 1]]), torch.tensor([2])
    whole = proposal_of(drafter, fresh_state(ids, drafter), anchor, temperature=0)
    short = proposal_of(drafter, fresh_state(ids, drafter), anchor, temperature=0, gamma=2)
    assert whole.tokens.shape == (1, GAMMA) and short.tokens.shape == (1, 2)
    assert_same(short, whole.cut(2))


@pytest.mark.parametrize("name", DRAFTERS)
def test_a_batch_of_two_is_two_rows(name):
    drafter, ids, anchor = DRAFTERS[name], random_ids(8, batch=2, seed=2), torch.tensor([2, 5])
    both = proposal_of(drafter, fresh_state(ids, drafter), anchor, temperature=0)
    for row in (slice(0, 1), slice(1, 2)):
        alone = proposal_of(drafter, fresh_state(ids[row], drafter), anchor[row], temperature=0)
        logits = None if both.confidence_logits is None else both.confidence_logits[row]
        assert_same(
            type(both)(both.tokens[row], both.probs[row], logits), alone.cut(both.tokens.shape[1])
        )


# Heads


def expected_biases(kind, head, previous, hidden):
    """The transition biases [g, V] of one block, from the formulas of the paper, a position at a time."""
    w1, w2 = head.markov_w1.weight, head.markov_w2.weight
    state, found = torch.zeros(w1.shape[1]), []
    for token, h in zip(previous, hidden, strict=True):
        x = w1[token]
        if kind == "gated":
            x = torch.sigmoid(head.gate_proj.weight @ torch.cat([h, x]) + head.gate_proj.bias) * x
        if kind == "rnn":
            joint = head.joint_proj.weight @ torch.cat([state, x, h]) + head.joint_proj.bias
            gate = joint[: len(x)]
            candidate = joint[len(x) : 2 * len(x)]
            output = joint[2 * len(x) :]
            state = torch.sigmoid(gate) * state + (1 - torch.sigmoid(gate)) * torch.tanh(candidate)
            x = torch.tanh(output)
        found.append(w2 @ x)
    return torch.stack(found)


@pytest.mark.parametrize("kind", SEQUENTIAL_HEADS)
@torch.no_grad()
def test_transition_biases_follow_the_formulas_for_a_whole_batch_of_blocks(kind):
    head = SEQUENTIAL_HEADS[kind](VOCAB, 3, 5)
    previous, hidden = random_ids(4, batch=6).view(2, 3, 4), torch.randn(2, 3, 4, 5)
    found = transition_biases(head, previous, hidden)
    assert found.shape == (2, 3, 4, VOCAB)
    for row in range(2):
        for block in range(3):
            wanted = expected_biases(kind, head, previous[row, block], hidden[row, block])
            torch.testing.assert_close(found[row, block], wanted)


@pytest.mark.parametrize("name", SEQUENTIAL)
def test_a_block_is_drawn_from_base_logits_plus_the_bias_of_the_token_before(name):
    drafter, anchor = DRAFTERS[name], torch.tensor([2])
    state = fresh_state(random_ids(6), drafter)
    proposal = proposal_of(drafter, state, anchor, temperature=0.8)
    hidden = drafter.block_hidden(state, anchor)
    before = torch.cat([anchor[:, None], proposal.tokens[:, :-1]], 1)
    logits = drafter.lm_head(hidden) + transition_biases(drafter.markov_head, before, hidden)
    torch.testing.assert_close(proposal.probs, probabilities(logits, 0.8), atol=1e-5, rtol=0)
    embedded = drafter.markov_head.markov_w1(before)
    confidence = torch.sigmoid(
        drafter.confidence_head.proj(torch.cat([hidden, embedded], -1))
    ).squeeze(-1)
    torch.testing.assert_close(proposal.confidence, confidence, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", DRAFTERS)
def test_drafted_tokens_come_from_the_distributions_claimed(name):
    drafter, ids, anchor = DRAFTERS[name], torch.tensor([[1, 2, 3, 4, 5, 6, 1]]), torch.tensor([2])
    cold = proposal_of(drafter, fresh_state(ids, drafter), anchor, temperature=0)
    assert cold.tokens.equal(cold.probs.argmax(-1)) and cold.probs.sum(-1).eq(1).all()
    warm = proposal_of(drafter, fresh_state(ids.repeat(400, 1), drafter), anchor.repeat(400))
    assert (
        warm.probs.gather(-1, warm.tokens.unsqueeze(-1)) > 0
    ).all() and warm.probs.dtype == torch.float32
    first = warm.tokens[:, 0].bincount(minlength=VOCAB) / 400
    torch.testing.assert_close(first, warm.probs[0, 0], atol=0.1, rtol=0)


@pytest.mark.parametrize("name", [*BLOCK, "eagle3", "mtp"])
def test_a_drafter_in_16_bits_tells_probabilities_and_confidence_in_float32(name):
    drafter, ids = copy.deepcopy(DRAFTERS[name]).bfloat16(), random_ids(6)
    state = drafter.begin(ids, features_of(ids, drafter).bfloat16())
    proposal = proposal_of(drafter, state, torch.tensor([2]))
    assert proposal.probs.dtype == torch.float32
    torch.testing.assert_close(proposal.probs.sum(-1), torch.ones(1, drafter.gamma))
    assert (proposal.confidence_logits is None) == (name not in SEQUENTIAL)
    if name in SEQUENTIAL:
        assert proposal.confidence_logits.dtype == torch.float32


def made_with(**fields):
    """The toy DSpark with other fields of its config, and its own weights where they fit."""
    like = DRAFTERS["dspark"]
    drafter = DSpark(replace(like.config, **fields)).requires_grad_(False).eval()
    own = drafter.state_dict()
    kept = {
        name: tensor
        for name, tensor in like.state_dict().items()
        if name in own and own[name].shape == tensor.shape
    }
    drafter.load_state_dict(kept, strict=False)
    return drafter


def test_each_field_of_a_block_drafts_config_does_what_it_says():
    ids, anchor, like = random_ids(6), torch.tensor([2]), DRAFTERS["dspark"]
    state = fresh_state(ids, like)
    hidden, embedded = like.block_hidden(state, anchor), like.markov_head.markov_w1

    filling = made_with(sample_from_anchor=False)  # the anchor's slot predicts nothing
    assert (filling.gamma, like.gamma) == (GAMMA - 1, GAMMA)
    torch.testing.assert_close(
        filling.block_hidden(fresh_state(ids, filling), anchor), hidden[:, 1:]
    )

    shorter = made_with(block_size=2)
    assert shorter.gamma == 2 and proposal_of(
        shorter, fresh_state(ids, shorter), anchor
    ).tokens.shape == (1, 2)

    masked = made_with(mask_token_id=3)
    assert masked.block_ids(anchor).tolist() == [[2, 3, 3, 3]] and like.block_ids(
        anchor
    ).tolist() == [[2, *[VOCAB - 1] * 3]]

    plain = made_with(markov_rank=0, enable_confidence_head=False)
    assert (plain.name, plain.markov_head, plain.confidence_head) == ("dflash", None, None)

    # reads the hidden state and not the token before
    alone = made_with(confidence_head_with_markov=False)
    proposal = proposal_of(alone, fresh_state(ids, alone), anchor)
    torch.testing.assert_close(
        proposal.confidence_logits, alone.confidence_head.proj(hidden).squeeze(-1)
    )
    beside = like.confidence_logits(hidden, torch.tensor([[2, 1, 1, 1]]))
    torch.testing.assert_close(
        beside,
        like.confidence_head.proj(
            torch.cat([hidden, embedded(torch.tensor([[2, 1, 1, 1]]))], -1)
        ).squeeze(-1),
    )

    for fields in (
        {"rope_theta": 10.0},
        {"rms_norm_eps": 1.0},
        {"qk_norm": False},
        {"target_layer_ids": (1, 2)},
    ):
        other = made_with(**fields)
        assert (other.block_hidden(fresh_state(ids, other), anchor) - hidden).abs().max() > 1e-3, (
            fields
        )
    assert (
        made_with(attention_bias=True).layers[0].self_attn.q_proj.bias is not None
        and like.layers[0].self_attn.q_proj.bias is None
    )


def test_dflash_draws_every_position_by_itself():
    drafter, anchor = DRAFTERS["dflash"], torch.tensor([2])
    state = fresh_state(random_ids(6), drafter)
    proposal = proposal_of(drafter, state, anchor)
    wanted = probabilities(drafter.lm_head(drafter.block_hidden(state, anchor)), 1.0)
    torch.testing.assert_close(proposal.probs, wanted)
    assert proposal.confidence is None and drafter.name == "dflash"


# Prompt lookup and the small LM


@pytest.mark.parametrize(
    ("text", "anchor", "draft"),
    [
        ([1, 2, 3, 4, 5, 1, 2], 3, [4, 5, 1, 2]),  # the trigram 1 2 3 came before
        # only the unigram matches; the latest one counts, and the text ends
        (
            [1, 2, 9, 2, 8],
            2,
            [8, 2],
        ),
        ([1, 2, 5, 3, 2, 6, 1], 2, [5, 3, 2, 6]),  # the bigram 1 2 beats the later unigram 2
        ([7, 7, 7], 7, [7]),
        ([1, 2, 3], 4, []),  # nothing like it before: no draft
        ([], 4, []),
    ],
)
def test_prompt_lookup_copies_what_followed_the_longest_latest_match(text, anchor, draft):
    drafter = PromptLookup(VOCAB, gamma=4)
    proposal = proposal_of(
        drafter, drafter.begin(torch.tensor([text], dtype=torch.long)), torch.tensor([anchor])
    )
    assert proposal.tokens.tolist() == [draft]
    assert proposal.probs.shape == (1, len(draft), VOCAB)
    assert proposal.probs.sum(-1).tolist() == [[1.0] * len(draft)]
    assert proposal.probs.argmax(-1).tolist() == [draft]


def scanned(text, length, longest):
    """The draft by its definition: look for the longest ending, from the latest place to the first."""
    for size in range(min(longest, len(text) - 1), 0, -1):
        for start in range(len(text) - size - 1, -1, -1):
            if text[start : start + size] == text[-size:]:
                return text[start + size : start + size + length]
    return []


TOKEN = st.integers(0, 2)
COLUMNS = st.lists(st.tuples(TOKEN, TOKEN), min_size=1, max_size=5)  # a token for each of two texts


@given(
    COLUMNS,
    st.booleans(),
    st.lists(st.tuples(COLUMNS, st.booleans(), st.booleans()), max_size=8),
    st.integers(1, 4),
)
def test_prompt_lookup_drafts_what_a_scan_of_each_text_finds(prompt, first_noted, rounds, longest):
    """Rounds in any order: with and without a proposal, with and without a note of what was committed."""
    drafter = PromptLookup(3, gamma=4, longest=longest)
    *begun, anchor = prompt
    texts = [[column[row] for column in begun] for row in range(2)]
    state, noted = drafter.begin(torch.tensor(texts, dtype=torch.long).view(2, -1)), first_noted
    if noted:
        drafter.see_committed(state, [[token] for token in anchor])
    for columns, with_proposal, with_note in rounds:
        if with_proposal:
            if not noted:  # else the host has said which token the anchor is
                # a block that nobody verifies
                proposal_of(drafter, state, (torch.tensor(anchor) + 1) % 3)
            drafts = [scanned([*text, token], 4, longest) for text, token in zip(texts, anchor)]
            shortest = min(map(len, drafts))
            assert proposal_of(drafter, state, torch.tensor(anchor)).tokens.tolist() == [
                draft[:shortest] for draft in drafts
            ]
        entering = [anchor, *columns[:-1]]
        drafter.extend(state, torch.tensor(entering).t())
        for row, text in enumerate(texts):
            text.extend(column[row] for column in entering)
        anchor, noted = columns[-1], with_note
        if noted:
            drafter.see_committed(
                state, [[column[row] for column in [*entering, anchor]] for row in range(2)]
            )
    for text in texts:
        assert drafter.continuation(text, 4) == scanned(text, 4, longest)


def lines_run(work):
    """How many lines of prompt_lookup.py run during `work()`."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == prompt_lookup.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.parametrize("noted", [False, True])
def test_a_round_of_prompt_lookup_does_as_much_work_in_a_long_text_as_in_a_short_one(noted):
    """No n-gram of the text comes twice; the anchor is its first token, so a scan would go back to the beginning."""

    def round_of(length):
        drafter = PromptLookup(4000, gamma=4)
        state, anchor = drafter.begin(torch.arange(length)[None]), torch.tensor([0])
        proposal_of(drafter, state, anchor)  # which reads the prompt
        drafts = []

        def one_round():
            drafter.extend(state, torch.tensor([[0, 3999]]))
            if noted:
                drafter.see_committed(state, [[0, 3999, 0]])
            drafts.extend(proposal_of(drafter, state, anchor).tokens[0].tolist())

        return lines_run(one_round), drafts

    (short, _), (long, drafts) = round_of(20), round_of(2000)
    assert drafts == [3999, 0], "the latest place at which 0 stood before"
    assert short == long > 0


def test_the_shortest_copy_of_a_batch_sets_the_length():
    drafter = PromptLookup(VOCAB, gamma=4)
    proposal = proposal_of(
        drafter, drafter.begin(torch.tensor([[1, 2, 3, 1], [5, 6, 7, 8]])), torch.tensor([2, 8])
    )
    assert proposal.tokens.tolist() == [[3], [8]]


@pytest.mark.parametrize(
    ("options", "draft"),
    [
        # what followed 2 9 3, the longest of three; a block has seven drafts
        (
            {},
            [8, 9, 3, 6, 3, 5, 1],
        ),
        ({"gamma": 2}, [8, 9]),
        ({"longest": 4}, [7, 2, 9, 3, 8, 9, 3]),
        ({"longest": 2, "gamma": 3}, [6, 3, 5]),
        ({"longest": 1, "gamma": 3}, [5, 1, 2]),
    ],
)
def test_prompt_lookups_options(options, draft):
    drafter = PromptLookup(VOCAB, **options)
    text = torch.tensor([[1, 2, 9, 3, 7, 2, 9, 3, 8, 9, 3, 6, 3, 5, 1, 2, 9]])
    assert proposal_of(drafter, drafter.begin(text), torch.tensor([3])).tokens.tolist() == [draft]


def test_the_small_models_options():
    """Seven drafts unless told; ids that the target has besides are never drafted."""
    model, ids, anchor = DRAFTERS["small_lm"].model, random_ids(6), torch.tensor([3])
    for temperature in (0, 1.0):
        plain, padded = (
            proposal_of(drafter, fresh_state(ids, drafter), anchor, temperature)
            for drafter in (SmallLM(model), SmallLM(model, added=2))
        )
        assert plain.probs.shape == (1, 7, VOCAB) and padded.probs.shape == (1, 7, VOCAB + 2)
        assert (padded.probs[..., VOCAB:] == 0).all() and padded.probs[:, 0, :VOCAB].equal(
            plain.probs[:, 0]
        )


def test_the_small_model_drafts_what_it_would_write_itself():
    drafter, ids, anchor = SmallLM(TARGET, GAMMA), random_ids(6), torch.tensor([[3]])
    proposal = proposal_of(drafter, fresh_state(ids, drafter), anchor[0], temperature=0)
    text = torch.cat([ids, anchor], 1)
    for position in range(GAMMA):
        logits = TARGET.prefill(text)[0].logits[:, -1]
        assert proposal.tokens[0, position] == logits.argmax()
        text = torch.cat([text, logits.argmax(-1, keepdim=True)], 1)


# Work


def tokens_through(module, work):
    """How many tokens `module` is given while `work()` runs."""
    seen = []
    hook = module.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape[1]))
    work()
    hook.remove()
    return sum(seen)


@pytest.mark.parametrize("context", [10, 50])
def test_a_round_of_a_block_drafter_projects_the_new_tokens_and_the_block_only(context):
    drafter, attention = DRAFTERS["dspark"], DRAFTERS["dspark"].layers[0].self_attn
    features = torch.randn(1, context + 3, 2 * TARGET.hidden_size)
    for module, tokens in (
        (attention.k_proj, 3 + GAMMA),
        (drafter.fc, 3),
        (attention.q_proj, GAMMA),
    ):
        state = drafter.begin(None, features[:, :context])

        def one_round(state=state):
            drafter.extend(state, None, features[:, context:])
            drafter.propose(state, torch.tensor([2]), temperature=0, generator=None)

        assert tokens_through(module, one_round) == tokens


@pytest.mark.parametrize("context", [10, 40])
def test_a_round_of_the_small_model_reads_the_unread_tokens_and_its_own_drafts_only(context):
    drafter, ids, anchor = DRAFTERS["small_lm"], random_ids(context), torch.tensor([2])
    state = fresh_state(ids, drafter)
    proposal = proposal_of(drafter, state, anchor)

    def one_round():
        drafter.extend(state, torch.cat([anchor[:, None], proposal.tokens], 1))
        proposal_of(drafter, state, anchor)

    # After a wholly accepted block: its last token, the anchor, and all drafts but the last.
    assert tokens_through(drafter.model.model.model.layers[0], one_round) == 1 + 1 + GAMMA - 1
