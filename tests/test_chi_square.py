"""On the real vocabulary: rounds of the package leave the target's probabilities as they are, a planted error does not."""

import pytest
import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.course.measure.chi_square import (
    after_anchor,
    chi_square,
    next_token_counts,
    pooled_cells,
    up_to_a_fork,
)
from dspark_lite.decoding.sampling import Verdict, accept, draw
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, toy_models

OTHERS = ("dflash", "eagle3", "mtp", "small_lm", "prompt_lookup")
FALSE_ALARM, TEMPERATURE = 1e-3, 1.0
WIDE = pytest.mark.slow(reason="plays thousands of rounds")


@pytest.fixture(scope="module")
def lab(tiny_lab):
    """The shared lab."""
    return tiny_lab


@pytest.fixture(scope="module")
def prompt_ids(lab):
    """The prompt and the beginning of an answer [1, n]; at least three tokens can come after the anchor."""
    found = up_to_a_fork(lab.target, lab.drafter("dspark"), lab.encode(lab.prompts["chat"][0]))
    _, probs = after_anchor(lab.target, found, TEMPERATURE)
    assert probs.max() < 0.7 and (probs > 0.01).sum() >= 3
    return found


def test_a_fork_is_where_the_drafter_errs_and_not_where_both_hesitate():
    after = {
        0: [0.0, 1.0, 0.0, 0.0],
        1: [0.25, 0.2, 0.3, 0.25],
        2: [0.2, 0.0, 0.0, 0.8],
        3: [0.0, 0.0, 0.0, 1.0],
    }
    target = ToyTarget(list(after.values()))
    # agrees after 1
    drafter = ToyDrafter(
        list((after | {2: [0.8, 0.0, 0.0, 0.2]}).values()), 0.5, [0.5] * 4, gamma=1
    )
    # the anchor is 2
    assert up_to_a_fork(target, drafter, torch.tensor([[0]]), max_new_tokens=3).tolist() == [[0, 1]]


def corrects_from_the_target(target_probs, draft_probs, draft_tokens, lengths, generator):
    """A planted error: after a refusal it draws from p instead of the residual."""
    accepted = accept(target_probs, draft_probs, draft_tokens, lengths, generator).accepted
    return Verdict(accepted, draw(target_probs[torch.arange(len(accepted)), accepted], generator))


def swaps_p_and_q(target_probs, draft_probs, draft_tokens, lengths, generator):
    """A planted error: q / p instead of p / q, and the residual the other way round."""
    swapped = torch.cat([draft_probs, target_probs[:, -1:]], 1)
    return accept(swapped, target_probs[:, :-1], draft_tokens, lengths, generator)


def p_value(lab, name, prompt_ids, draws, rule=accept, gamma=1):
    """The chi-square test of `draws` rounds with a drafter and a verifier; blocks of one draft cost least."""
    counts = next_token_counts(
        lab.target,
        lab.drafter(name),
        prompt_ids,
        draws,
        TEMPERATURE,
        lab.generator(),
        gamma=gamma,
        accept=rule,
    )
    assert counts.sum() == draws
    _, probs = after_anchor(lab.target, prompt_ids, TEMPERATURE)
    return chi_square(counts, probs)


@pytest.mark.parametrize(
    ("name", "draws"),
    [
        ("dspark", 1000),
        pytest.param("dspark", 20_000, marks=WIDE),
        *(pytest.param(name, 4000, marks=WIDE) for name in OTHERS),
    ],
)
def test_exact_rounds_are_not_rejected(lab, prompt_ids, name, draws):
    assert p_value(lab, name, prompt_ids, draws) > FALSE_ALARM


@pytest.mark.parametrize("draws", [300, pytest.param(2000, marks=WIDE)])
def test_exact_rounds_of_whole_blocks_are_not_rejected(lab, prompt_ids, draws):
    assert p_value(lab, "dspark", prompt_ids, draws, gamma=None) > FALSE_ALARM


@pytest.mark.parametrize(
    ("error", "draws"),
    [(swaps_p_and_q, 1000), pytest.param(corrects_from_the_target, 6000, marks=WIDE)],
)
def test_a_planted_error_is_rejected(lab, prompt_ids, error, draws):
    assert p_value(lab, "dspark", prompt_ids, draws, error) < FALSE_ALARM


@pytest.mark.parametrize("name", ["dspark", "small_lm"])
def test_every_batch_of_rounds_starts_from_the_same_place(lab, prompt_ids, name, monkeypatch):
    """Were anything left in a cache, the target's rows of a later batch would differ from the first one's."""
    seen = []

    def spy(target_probs, *rest):
        seen.append(target_probs[0, 0])
        return accept(target_probs, *rest)

    monkeypatch.setattr("dspark_lite.course.measure.chi_square.MAX_ROWS", 4)
    next_token_counts(
        lab.target, lab.drafter(name), prompt_ids, 10, TEMPERATURE, lab.generator(), accept=spy
    )
    assert len(seen) == 3
    _, wanted = after_anchor(lab.target, prompt_ids, TEMPERATURE)
    assert all(torch.allclose(row, wanted, atol=1e-5) for row in seen)


def test_a_block_that_many_rows_have_drafted_is_read_once_and_one_pass_of_the_drafter_serves_all(
    monkeypatch,
):
    target, drafters = toy_models(seed=4, vocab_size=5, gamma=4)
    ids, read, verify, drafted = torch.tensor([[3, 1, 4]]), [], target.verify, []
    drafters["dspark"].norm.register_forward_hook(lambda *given: drafted.append(1))
    monkeypatch.setattr(
        target, "verify", lambda blocks, *rest: read.append(len(blocks)) or verify(blocks, *rest)
    )
    counts = next_token_counts(
        target,
        drafters["dspark"],
        ids,
        2000,
        TEMPERATURE,
        torch.Generator().manual_seed(0),
        gamma=1,
    )
    assert counts.sum() == 2000 and max(read) <= 5 and len(drafted) == 1
    assert chi_square(counts, after_anchor(target, ids, TEMPERATURE)[1]) > FALSE_ALARM


def test_false_alarms_are_as_rare_as_promised():
    probs = torch.tensor([0.5, 0.3, 0.15, 0.05])
    generator = torch.Generator().manual_seed(1)
    draws = torch.multinomial(probs.expand(1000, -1), 200, replacement=True, generator=generator)
    values = [chi_square(row.bincount(minlength=4), probs) for row in draws]
    assert sum(value < 0.05 for value in values) == pytest.approx(50, abs=25)


@pytest.mark.parametrize(
    ("counts", "probs", "pooled"),
    [
        ([2, 60, 30, 4, 4], [0.02, 0.6, 0.3, 0.04, 0.04], [60, 30, 10]),
        ([60, 38, 2], [0.6, 0.38, 0.02], [60, 40]),
    ],
    ids=["a cell of their own", "a pool that expects few joins the last cell"],
)
def test_cells_that_expect_few_draws_are_pooled(counts, probs, pooled):
    observed, expected = pooled_cells(torch.tensor(counts), torch.tensor(probs))
    assert observed.tolist() == pooled and expected.tolist() == pytest.approx(pooled)


def test_a_token_that_cannot_come_is_counted_against_the_decoder():
    assert chi_square(torch.tensor([500, 450, 50]), torch.tensor([0.5, 0.5, 0.0])) < FALSE_ALARM


def test_one_cell_is_no_test():
    with pytest.raises(RequestError, match="more draws"):
        chi_square(torch.tensor([100, 0]), torch.tensor([0.999, 0.001]))
