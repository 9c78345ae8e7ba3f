"""Block verification: lossless for any target and draft by visiting every outcome, and never shorter than the token rule."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from dspark_lite import scheduling
from dspark_lite.course.extensions import block_verification
from dspark_lite.course.extensions.block_verification import (
    accept_block,
    longest_kept,
    prefix_weights,
)
from dspark_lite.decoding import generate
from dspark_lite.decoding.sampling import accept, draw, probabilities, residual
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.enumeration import outcomes
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, toy_models

VOCAB, GAMMA = 3, 2
WEIGHTS = st.lists(st.integers(0, 5), min_size=VOCAB, max_size=VOCAB).filter(any)
examples = settings(max_examples=20, derandomize=True)
TARGET, DRAFTERS = toy_models()


def rows(weights):
    """Distributions [1, k, V] of k lists of weights."""
    return F.normalize(torch.tensor([weights], dtype=torch.float32), p=1, dim=-1)


TARGETS = st.lists(WEIGHTS, min_size=GAMMA + 1, max_size=GAMMA + 1).map(rows)
DRAFTS = st.lists(WEIGHTS, min_size=GAMMA, max_size=GAMMA).map(rows)


def played(rule, target, draft, lengths=None):
    """What a rule makes of a block: the exact distribution [V, V, V] of the three tokens from the anchor on, those after the
    round being the target's, and the mean number of accepted drafts."""

    def one_round(path):
        tokens = draw(draft, path)
        verdict = rule(target, draft, tokens, lengths, path)
        return tokens[0, : verdict.accepted].tolist() + verdict.next_token.tolist()

    total, accepted = torch.zeros(VOCAB, VOCAB, VOCAB, dtype=torch.double), 0.0
    for tokens, probability in outcomes(one_round):
        accepted += probability * (len(tokens) - 1)
        rest = torch.tensor(probability, dtype=torch.double)
        for position in range(len(tokens), GAMMA + 1):
            rest = rest.unsqueeze(-1) * target[0, position].double()
        total[tuple(tokens)] += rest
    return total, accepted


@examples
@given(TARGETS, DRAFTS, st.sampled_from([None, 0, 1, 2]))
def test_it_is_lossless_for_any_target_and_draft_and_accepts_no_less(target, draft, length):
    lengths = None if length is None else torch.tensor([length])
    found, accepted = played(accept_block, target, draft, lengths)
    torch.testing.assert_close(
        found, torch.einsum("a,b,c->abc", *target[0].double()), atol=1e-6, rtol=0
    )
    assert accepted >= played(accept, target, draft, lengths)[1] - 1e-6


def test_it_accepts_more_where_an_early_surplus_pays_for_a_later_lack():
    """The target likes the first draft more than the drafter does; the token rule forgets that by the second."""
    target, draft = rows([[8, 1, 1], [5, 4, 1], [1, 1, 1]]), rows([[4, 5, 1], [8, 1, 1]])
    longer, shorter = played(accept_block, target, draft)[1], played(accept, target, draft)[1]
    assert longer > shorter + 0.02
    assert played(accept_block, target, draft, torch.tensor([1]))[1] == pytest.approx(
        played(accept, target, draft, torch.tensor([1]))[1], abs=1e-6
    )


def test_weights_and_the_longest_prefix_by_hand():
    target, draft = rows([[2, 2, 0], [1, 3, 0], [1, 1, 1]]), rows([[1, 3, 0], [2, 2, 0]])
    weights = prefix_weights(target, draft, torch.tensor([[1, 1]]))
    # 2/4 over 3/4, then times 3/4 over 2/4
    torch.testing.assert_close(weights, torch.tensor([[1, 2 / 3, 1.0]]))
    torch.testing.assert_close(
        longest_kept(torch.tensor([[1.0, 0.5, 0.25]])), torch.tensor([[0.375, 0.375, 0.25]])
    )


def test_greedy_blocks_are_judged_as_by_the_token_rule():
    generator = torch.Generator().manual_seed(0)
    target, draft = (
        probabilities(torch.randn(200, length, VOCAB, generator=generator), 0)
        for length in (GAMMA + 1, GAMMA)
    )
    tokens = draft.argmax(-1)
    block, token = (rule(target, draft, tokens, None, generator) for rule in (accept_block, accept))
    assert torch.equal(block.accepted, token.accepted) and torch.equal(
        block.next_token, token.next_token
    )
    assert set(token.accepted.tolist()) == {0, 1, 2}


def test_rows_of_a_batch_have_their_own_lengths():
    generator = torch.Generator().manual_seed(0)
    target = torch.rand(300, GAMMA + 1, VOCAB, generator=generator).softmax(-1)
    draft = torch.rand(300, GAMMA, VOCAB, generator=generator).softmax(-1)
    lengths = torch.arange(300) % (GAMMA + 1)
    verdict = accept_block(target, draft, draw(draft, generator), lengths, generator)
    assert (verdict.accepted <= lengths).all() and verdict.accepted.unique().tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("gamma", "length"),
    [(2, 4), pytest.param(3, 5, marks=pytest.mark.slow(reason="every outcome of five tokens"))],
)
@pytest.mark.parametrize(
    "policy",
    [None, scheduling.fixed(1), scheduling.threshold(0.5)],
    ids=["whole", "fixed", "confidence"],
)
def test_the_whole_decoder_stays_exact(policy, gamma, length):
    """With a cut by confidence the length of a block depends on its own earlier draws."""
    target = ToyTarget([[0.7, 0.3], [0.4, 0.6]])
    drafter = ToyDrafter([[0.5, 0.5], [0.8, 0.2]], 0.9, [0.9, 0.1], gamma=gamma)
    exact = output_distribution(target, None, None, length)
    found = output_distribution(target, drafter, policy, length, rule=accept_block)
    assert total_variation(found, exact) < 1e-6


@pytest.mark.parametrize("name", ["dspark", "eagle3"])
def test_real_drafters_stay_exact(name):
    exact = output_distribution(TARGET, None, None, 4, prompt=(0, 1))
    found = output_distribution(TARGET, DRAFTERS[name], None, 4, prompt=(0, 1), rule=accept_block)
    assert total_variation(found, exact) < 1e-5


def unweighted(target_probs, draft_probs):
    """The residual without the prefix's weight."""
    return residual(target_probs / target_probs.sum(-1, keepdim=True), draft_probs)


def first_failure_ends(kept):
    """The token rule's end: the first coin that does not come up."""
    alive = kept.cumprod(1)
    return alive - F.pad(alive[:, 1:], (0, 1))


def never_lacking(target_probs, draft_probs, draft_tokens):
    """Weights that are all one."""
    return torch.ones(len(draft_tokens), draft_tokens.shape[1] + 1)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("residual", unweighted),
        ("longest_kept", first_failure_ends),
        ("prefix_weights", never_lacking),
    ],
)
def test_a_planted_error_is_lossy(name, error, monkeypatch):
    target, draft = rows([[8, 1, 1], [0, 1, 1], [1, 1, 1]]), rows([[4, 5, 1], [16, 3, 1]])
    torch.testing.assert_close(
        played(accept_block, target, draft)[0],
        torch.einsum("a,b,c->abc", *target[0].double()),
        atol=1e-6,
        rtol=0,
    )
    monkeypatch.setattr(block_verification, name, error)
    found, _ = played(accept_block, target, draft)
    assert (found - torch.einsum("a,b,c->abc", *target[0].double())).abs().sum() / 2 > 1e-3


def test_generate_takes_the_rule():
    asked = []

    def noting(*arguments):
        asked.append(arguments[2].shape[1])
        return accept_block(*arguments)

    options = {"max_new_tokens": 12, "stop_token_ids": ()}
    prompt = torch.tensor([[0, 1, 1]])
    assert (
        generate(TARGET, DRAFTERS["dspark"], prompt, rule=noting, **options).token_ids
        == generate(TARGET, None, prompt, **options).token_ids
    )
    assert set(asked) == {DRAFTERS["dspark"].gamma, 1, 0}, (
        "whole blocks, but where the answer's end is near"
    )
