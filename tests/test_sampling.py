"""The accept rule: exact for any target and draft by visiting every outcome, and by frequency for the real generator."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from dspark_lite.common.errors import RequestError
from dspark_lite.decoding import generate
from dspark_lite.decoding.sampling import (
    accept,
    accepted_prefix_length,
    check_temperature,
    draw,
    probabilities,
    residual,
)
from dspark_lite.losslessness.enumeration import ChoicePath
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.serving.engine import Engine, Request

VOCAB, GAMMA = 3, 2
# Weights of 0 make tokens that only one of the two models can produce.
WEIGHTS = st.lists(st.integers(0, 5), min_size=VOCAB, max_size=VOCAB).filter(any)


def rows(weights):
    """Distributions [1, k, V] of k lists of weights."""
    return F.normalize(torch.tensor([weights], dtype=torch.float32), p=1, dim=-1)


TARGETS = st.lists(WEIGHTS, min_size=GAMMA + 1, max_size=GAMMA + 1).map(rows)
DRAFTS = st.lists(WEIGHTS, min_size=GAMMA, max_size=GAMMA).map(rows)
examples = settings(max_examples=25, derandomize=True)


def outcomes(run):
    """Every outcome of `run(path)` with its probability, a list of pairs."""
    found, waiting = [], [[]]
    while waiting:
        path = ChoicePath(waiting.pop())
        found.append((run(path), path.probability))
        waiting += path.open
    return found


def committed_distribution(target, draft, lengths=None):
    """Exact distribution [V, V, V] of the three tokens from the anchor on: block, correction or bonus, then the target."""

    def one_round(path):
        tokens = draw(draft, path)
        verdict = accept(target, draft, tokens, lengths, path)
        return tokens[0, : verdict.accepted].tolist() + verdict.next_token.tolist()

    total = torch.zeros(VOCAB, VOCAB, VOCAB, dtype=torch.double)
    for tokens, probability in outcomes(one_round):
        rest = torch.tensor(probability, dtype=torch.double)
        for position in range(len(tokens), GAMMA + 1):
            rest = rest.unsqueeze(-1) * target[0, position].double()
        total[tuple(tokens)] += rest
    return total


@examples
@given(TARGETS, DRAFTS, st.sampled_from([None, 0, 1, 2]))
def test_accept_is_lossless_for_any_target_and_draft(target, draft, length):
    lengths = None if length is None else torch.tensor([length])
    wanted = torch.einsum("a,b,c->abc", *target[0].double())
    torch.testing.assert_close(
        committed_distribution(target, draft, lengths), wanted, atol=1e-6, rtol=0
    )


@examples
@given(TARGETS, DRAFTS, st.integers(0, GAMMA))
def test_no_more_than_the_length_is_accepted(target, draft, length):
    tokens = draft.argmax(-1)
    found = outcomes(
        lambda path: accept(target, draft, tokens, torch.tensor([length]), path).accepted.item()
    )
    assert max(accepted for accepted, _ in found) <= length
    assert sum(probability for _, probability in found) == pytest.approx(1, abs=1e-6)


@examples
@given(TARGETS, DRAFTS)
def test_rows_of_a_batch_are_decided_independently(target, draft):
    tokens, lengths = draft.argmax(-1), torch.tensor([2, 1])

    def verdicts(row):
        found = {}
        for outcome, probability in outcomes(lambda path: decide(path, row)):
            found[outcome] = found.get(outcome, 0.0) + probability
        return found

    def decide(path, row):
        verdict = accept(
            target.expand(len(row), -1, -1),
            draft.expand(len(row), -1, -1),
            tokens.expand(len(row), -1),
            lengths[row],
            path,
        )
        return tuple(zip(verdict.accepted.tolist(), verdict.next_token.tolist(), strict=True))

    first, second, both = verdicts([0]), verdicts([1]), verdicts([0, 1])
    wanted = {a + b: p * q for a, p in first.items() for b, q in second.items()}
    assert both == pytest.approx({pair: both.get(pair, 0.0) for pair in wanted}, abs=1e-6)
    assert both == pytest.approx({pair: wanted[pair] for pair in both}, abs=1e-6)


@examples
@given(
    st.lists(st.integers(0, VOCAB - 1), min_size=GAMMA + 1, max_size=GAMMA + 1),
    st.lists(st.integers(0, VOCAB - 1), min_size=GAMMA, max_size=GAMMA),
)
def test_at_temperature_zero_the_matching_prefix_is_kept_and_the_argmax_follows(wanted, drafted):
    target, tokens = F.one_hot(torch.tensor([wanted]), VOCAB).float(), torch.tensor([drafted])
    verdict = accept(target, F.one_hot(tokens, VOCAB).float(), tokens, None, None)
    matching = next((k for k in range(GAMMA) if wanted[k] != drafted[k]), GAMMA)
    assert (verdict.accepted.item(), verdict.next_token.item()) == (matching, wanted[matching])


def test_frequencies_of_the_real_generator():
    """200,000 rows in one call: first committed token follows p, and the first draft is accepted with 1 - TV(p, q)."""
    count, generator = 200_000, torch.Generator().manual_seed(0)
    target = rows([[5, 3, 2], [1, 1, 8], [2, 2, 6]]).expand(count, -1, -1)
    draft = rows([[2, 2, 6], [4, 4, 2]]).expand(count, -1, -1)
    tokens = draw(draft, generator)
    verdict = accept(target, draft, tokens, None, generator)
    first = torch.where(verdict.accepted > 0, tokens[:, 0], verdict.next_token)
    # more than 5 sigma
    torch.testing.assert_close(first.bincount() / count, target[0, 0], atol=0.006, rtol=0)
    assert (verdict.accepted > 0).float().mean().item() == pytest.approx(0.6, abs=0.006)
    bonus = verdict.next_token[verdict.accepted == GAMMA]
    torch.testing.assert_close(bonus.bincount() / len(bonus), target[0, 2], atol=0.01, rtol=0)


@examples
@given(TARGETS, DRAFTS)
def test_residual_is_what_the_target_still_owes(target, draft):
    target = target[:, :GAMMA]
    owed = residual(target, draft)
    torch.testing.assert_close(owed.sum(-1), torch.ones(1, GAMMA))
    assert (owed >= 0).all()
    differs = (target != draft).any(-1, keepdim=True).expand_as(owed)
    assert (owed[differs & (draft >= target)] == 0).all()
    # p is the share that the draft covers plus the rest of the mass spread as the residual.
    share = torch.minimum(target, draft)
    torch.testing.assert_close(share + (1 - share.sum(-1, keepdim=True)) * owed, target)


def test_residual_of_equal_distributions_is_the_target():
    same = rows([[1, 2, 3]])
    assert residual(same, same).equal(same)


@examples
@given(st.lists(st.floats(-8, 8), min_size=4, max_size=4), st.sampled_from([0.3, 1.0, 2.5]))
def test_probabilities_are_a_float32_softmax_at_the_temperature(logits, temperature):
    logits = torch.tensor([logits])
    powers = (logits.double() / temperature).exp()
    torch.testing.assert_close(probabilities(logits, temperature), (powers / powers.sum()).float())
    assert probabilities(logits.half(), temperature).dtype == torch.float32


def test_probabilities_at_temperature_zero_are_one_hot():
    assert probabilities(torch.tensor([[0.1, 0.3, 0.2]]), 0).tolist() == [[0.0, 1.0, 0.0]]


def test_draw_repeats_with_its_generator_and_keeps_the_shape():
    probs = rows([[1, 1, 1]] * 50).view(5, 10, VOCAB)
    first, again, other = (draw(probs, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert first.shape == (5, 10) and first.equal(again) and not first.equal(other)
    assert draw(rows([[0, 1, 0]] * 20), None).eq(1).all()


def test_the_accepted_prefix_ends_at_the_first_failure():
    keep = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]])
    assert accepted_prefix_length(keep, None).tolist() == [1, 3, 0]


@pytest.mark.parametrize("temperature", [-0.1, float("nan")])
def test_a_temperature_below_zero_is_refused(temperature):
    with pytest.raises(RequestError, match="must be 0"):
        check_temperature(temperature)


@pytest.mark.parametrize("temperature", [1e-37, 1e-38, 1e-40, 1e-320])
def test_a_temperature_that_overflows_is_greedy(temperature):
    logits = torch.tensor([[-3.0, 1.0, 0.5], [40.0, 7.0, 39.9]])
    assert torch.equal(probabilities(logits, temperature), probabilities(logits, 0.0))
    target, drafters = toy_models(vocab_size=5)
    prompt = torch.tensor([[0, 1, 3]])
    greedy = generate(target, None, prompt, max_new_tokens=8).token_ids
    for drafter in (None, drafters["dspark"], drafters["small_lm"]):
        assert (
            generate(target, drafter, prompt, max_new_tokens=8, temperature=temperature).token_ids
            == greedy
        )
    engine = Engine(target, drafters["dspark"], temperature=temperature, capacity=64)
    engine.submit(Request(prompt, 8))
    answers = []
    while not engine.idle:
        answers += engine.step().answers
    assert answers[0].token_ids == greedy
