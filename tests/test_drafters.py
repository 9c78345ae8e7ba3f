"""Drafters: what they remember is what was committed, what they draft follows the formulas, and their work stays flat."""

import inspect
import random

import pytest
import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.decoding.attention import attend
from dspark_lite.decoding.proposal import Context, Drafter, Policy, started
from dspark_lite.decoding.sampling import probabilities
from dspark_lite.drafters import PromptLookup, SmallLM
from dspark_lite.drafters.layers import ContextCache
from dspark_lite.drafters.dspark import SEQUENTIAL_HEADS, transition_biases
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
    return drafter.propose(state, anchor, gamma=gamma, temperature=temperature, generator=torch.Generator().manual_seed(seed))


def assert_same(first, second):
    """Equal tokens, and probabilities and confidence equal to rounding."""
    assert first.tokens.tolist() == second.tokens.tolist()
    torch.testing.assert_close(first.probs, second.probs, atol=1e-5, rtol=0)
    if first.confidence is not None:
        torch.testing.assert_close(first.confidence, second.confidence, atol=1e-5, rtol=0)


# The protocols -------------------------------------------------------------------------------------------------------


def parameters(kind, method):
    """Names and kinds of the parameters of a method, but for its own object."""
    return [(p.name, p.kind) for p in inspect.signature(getattr(kind, method)).parameters.values() if p.name != "self"]


@pytest.mark.parametrize("name", DRAFTERS)
def test_every_drafter_is_called_as_the_protocol_says(name):
    assert isinstance(DRAFTERS[name], Drafter) and not isinstance(TARGET, Drafter)
    for method in ("begin", "propose", "extend"):
        assert parameters(type(DRAFTERS[name]), method) == parameters(Drafter, method)


def test_contexts_and_policies_are_called_as_the_protocol_says():
    table = CostTable([1], [1.0])
    policies = [scheduling.fixed(1), scheduling.threshold(0.5), scheduling.algorithm1(table), scheduling.retrospective(table),
                scheduling.LaggedTopK(table), started(lambda proposal: torch.zeros(1, dtype=torch.long))]
    contexts = [ContextCache(1), drafter_slots(DRAFTERS["dspark"], 2, 8, torch.device("cpu")).drafting([0, 1], [1, 2])]
    assert all(isinstance(policy, Policy) for policy in policies) and isinstance(contexts[1], DraftView)
    for context in contexts:
        assert isinstance(context, Context)
        for method in ("positions", "mask", "append", "advance"):
            assert parameters(type(context), method) == parameters(Context, method)


# Attention -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [None, 1, 3])
def test_attention_is_lesson_04s_with_keys_shared_by_groups(rows):
    """With no mask, one row for all queries and one for each; and stacked by the caller it is the same."""
    queries, keys, values = torch.randn(2, 6, 3, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    mask = None if rows is None else (torch.rand(2, 1, rows, 5) < 0.5).index_fill(-1, torch.tensor([0]), True)
    wanted = torch.nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, scale=0.5, enable_gqa=True)
    torch.testing.assert_close(attend(queries, keys, values, mask, 0.5), wanted)
    if rows == 3:
        added = torch.zeros(2, 1, 9, 5).masked_fill(~mask.repeat(1, 1, 3, 1), -torch.inf)
        torch.testing.assert_close(attend(queries, keys, values, added, 0.5), wanted)
        assert not torch.allclose(attend(queries, keys, values, None, 0.5), wanted), "the mask hides nothing that matters"


# The context cache ---------------------------------------------------------------------------------------------------


def test_the_cache_grows_past_its_first_buffer():
    drafter, anchor = DRAFTERS["dspark"], torch.tensor([2])
    features = torch.randn(1, 150, 2 * TARGET.hidden_size)
    whole, grown = drafter.begin(None, features), drafter.begin(None, features[:, :60])
    for at in range(60, 150):
        drafter.extend(grown, None, features[:, at:at + 1])
    torch.testing.assert_close(drafter.block_hidden(grown, anchor), drafter.block_hidden(whole, anchor), atol=1e-5, rtol=0)


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
    step, cache = TARGET.prefill(text, drafter.taps)
    state = drafter.begin(text, step.features)
    for number in range(12):
        gamma = rng.choice([None, 1, min(3, drafter.gamma)])
        proposal_of(drafter, state, (anchor + 1) % VOCAB)  # a block that nobody verifies
        proposal = proposal_of(drafter, state, anchor, temperature, gamma, seed=number)
        assert_same(proposal, proposal_of(drafter, fresh_state(text, drafter), anchor, temperature, gamma, seed=number))
        proposal = proposal.cut(rng.randint(0, proposal.tokens.shape[1]))
        drafted = proposal.tokens.shape[1]
        accepted = rng.choice([0, drafted, rng.randint(0, drafted)])
        entering = torch.cat([anchor[:, None], proposal.tokens], 1)
        step = TARGET.verify(entering, cache, drafter.taps)
        TARGET.roll_back(cache, drafted - accepted)
        features = None if step.features is None else step.features[:, :accepted + 1]
        drafter.extend(state, entering[:, :accepted + 1], features)
        text = torch.cat([text, entering[:, :accepted + 1]], 1)
        anchor = torch.tensor([rng.randrange(VOCAB)])


# Draft length and batch ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DRAFTERS)
@pytest.mark.parametrize("wrong", [0, -1, 1])
def test_a_draft_length_outside_the_block_is_refused(name, wrong):
    drafter = DRAFTERS[name]
    gamma = wrong if wrong < 1 else drafter.gamma + wrong
    with pytest.raises(RequestError, match=f"gamma is {gamma}; this drafter drafts between 1 and {drafter.gamma}"):
        proposal_of(drafter, fresh_state(random_ids(5), drafter), torch.tensor([1]), gamma=gamma)


@pytest.mark.parametrize("name", [name for name in DRAFTERS if name != "mtp"])  # which drafts one token
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
        assert_same(type(both)(both.tokens[row], both.probs[row], logits), alone.cut(both.tokens.shape[1]))


# Heads ---------------------------------------------------------------------------------------------------------------


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
            gate, candidate, output = joint[:len(x)], joint[len(x):2 * len(x)], joint[2 * len(x):]
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
    confidence = torch.sigmoid(drafter.confidence_head.proj(torch.cat([hidden, embedded], -1))).squeeze(-1)
    torch.testing.assert_close(proposal.confidence, confidence, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", DRAFTERS)
def test_drafted_tokens_come_from_the_distributions_claimed(name):
    drafter, ids, anchor = DRAFTERS[name], torch.tensor([[1, 2, 3, 4, 5, 6, 1]]), torch.tensor([2])
    cold = proposal_of(drafter, fresh_state(ids, drafter), anchor, temperature=0)
    assert cold.tokens.equal(cold.probs.argmax(-1)) and cold.probs.sum(-1).eq(1).all()
    warm = [proposal_of(drafter, fresh_state(ids, drafter), anchor, seed=seed) for seed in range(100)]
    assert all((p.probs.gather(-1, p.tokens.unsqueeze(-1)) > 0).all() and p.probs.dtype == torch.float32 for p in warm)
    first = torch.stack([p.tokens[0, 0] for p in warm]).bincount(minlength=VOCAB) / len(warm)
    torch.testing.assert_close(first, warm[0].probs[0, 0], atol=0.2, rtol=0)


def test_dflash_draws_every_position_by_itself():
    drafter, anchor = DRAFTERS["dflash"], torch.tensor([2])
    state = fresh_state(random_ids(6), drafter)
    proposal = proposal_of(drafter, state, anchor)
    wanted = probabilities(drafter.lm_head(drafter.block_hidden(state, anchor)), 1.0)
    torch.testing.assert_close(proposal.probs, wanted)
    assert proposal.confidence is None and drafter.name == "dflash"


# Prompt lookup and the small LM --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "anchor", "draft"), [
    ([1, 2, 3, 4, 5, 1, 2], 3, [4, 5, 1, 2]),  # the trigram 1 2 3 came before
    ([1, 2, 9, 2, 8], 2, [8, 2]),  # only the unigram matches; the latest one counts, and the text ends
    ([1, 2, 5, 3, 2, 6, 1], 2, [5, 3, 2, 6]),  # the bigram 1 2 beats the later unigram 2
    ([7, 7, 7], 7, [7]),
    ([1, 2, 3], 4, []),  # nothing like it before: no draft
    ([], 4, []),
])
def test_prompt_lookup_copies_what_followed_the_longest_latest_match(text, anchor, draft):
    drafter = PromptLookup(VOCAB, gamma=4)
    proposal = proposal_of(drafter, drafter.begin(torch.tensor([text], dtype=torch.long)), torch.tensor([anchor]))
    assert proposal.tokens.tolist() == [draft]
    assert proposal.probs.shape == (1, len(draft), VOCAB)
    assert proposal.probs.sum(-1).tolist() == [[1.0] * len(draft)]
    assert proposal.probs.argmax(-1).tolist() == [draft]


def test_what_the_host_notes_drafts_as_what_is_read():
    """Rounds in which the host says what was committed, or does not, in any order."""
    drafter, tokens = PromptLookup(VOCAB, gamma=4), [1, 2, 3, 1, 2, 3, 4, 1, 2, 3, 1, 2, 4, 1]
    read, noted = (drafter.begin(torch.tensor([[1, 2]])) for _ in range(2))
    drafter.note(noted, [[3]])
    for turn, end in enumerate(range(3, len(tokens))):
        anchor = torch.tensor(tokens[end - 1:end])
        blocks = [proposal_of(drafter, state, anchor).tokens.tolist() for state in (read, noted)]
        assert blocks == [[drafter.continuation(tokens[:end], 4)]] * 2
        for state in (read, noted):
            drafter.extend(state, anchor[None])
        if turn % 3 < 2:
            drafter.note(noted, [tokens[end - 1:end + 1]])


def test_the_shortest_copy_of_a_batch_sets_the_length():
    drafter = PromptLookup(VOCAB, gamma=4)
    proposal = proposal_of(drafter, drafter.begin(torch.tensor([[1, 2, 3, 1], [5, 6, 7, 8]])), torch.tensor([2, 8]))
    assert proposal.tokens.tolist() == [[3], [8]]


def test_the_small_model_drafts_what_it_would_write_itself():
    drafter, ids, anchor = SmallLM(TARGET, GAMMA), random_ids(6), torch.tensor([[3]])
    proposal = proposal_of(drafter, fresh_state(ids, drafter), anchor[0], temperature=0)
    text = torch.cat([ids, anchor], 1)
    for position in range(GAMMA):
        logits = TARGET.prefill(text)[0].logits[:, -1]
        assert proposal.tokens[0, position] == logits.argmax()
        text = torch.cat([text, logits.argmax(-1, keepdim=True)], 1)


# Work ----------------------------------------------------------------------------------------------------------------


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
    for module, tokens in ((attention.k_proj, 3 + GAMMA), (drafter.fc, 3), (attention.q_proj, GAMMA)):
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
