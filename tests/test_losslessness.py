"""The whole decoder is exact: `generate` run for every outcome gives the target's own distribution, and errors show."""

import pytest
import torch
import torch.nn.functional as F

from dspark_lite import scheduling
from dspark_lite.common.errors import RequestError
from dspark_lite.decoding import generate, rounds
from dspark_lite.decoding.sampling import Verdict, accept, accepted_prefix_length, draw, residual
from dspark_lite.losslessness import (
    enumeration,
    marginal,
    output_distribution,
    total_variation,
    toys,
)
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, appendix_a

LENGTH = 4  # one token from the prompt's pass, a whole block of two, and its bonus
PROMPT = (0, 1, 1, 0)  # prompt lookup finds whole blocks to copy
TARGET, DRAFTERS = toys.toy_models()
WITH_CONFIDENCE = [
    name for name, drafter in DRAFTERS.items() if getattr(drafter, "confidence_head", None)
]


def distribution(drafter, policy=None, **options):
    """The distribution of LENGTH tokens after PROMPT; the target's own without a drafter."""
    return output_distribution(TARGET, drafter, policy, LENGTH, prompt=PROMPT, **options)


@pytest.fixture(scope="module")
def plain():
    """The target's own distribution."""
    return distribution(None)


def test_the_targets_own_distribution_is_spread_and_sums_to_one(plain):
    assert len(plain) == 2**LENGTH and sum(plain.values()) == pytest.approx(1)
    assert max(plain.values()) < 0.9


@pytest.mark.parametrize("policy", [None, scheduling.fixed(1), scheduling.threshold(0.5)])
def test_generate_is_exact_run_from_its_beginning_for_every_outcome(policy):
    """Elsewhere shared steps are enumerated, each from copies of what was before it."""
    target = ToyTarget([[0.7, 0.3], [0.4, 0.6]])
    drafter = ToyDrafter([[0.5, 0.5], [0.8, 0.2]], 0.9, [0.9, 0.1], gamma=2)

    def text(path):
        return tuple(
            generate(
                target,
                drafter,
                torch.tensor([[0]]),
                max_new_tokens=LENGTH,
                temperature=1.0,
                policy=policy,
                stop_token_ids=(),
                generator=path,
            ).token_ids
        )

    found = enumeration.summed(enumeration.outcomes(text))
    assert total_variation(found, output_distribution(target, None, None, LENGTH)) < 1e-6


WIDE = pytest.mark.slow(reason="every path of choices for each other drafter")


def drafters_and_policies(whole, cut):
    """Each drafter with whole blocks and with blocks cut to one draft; all but those that are named are slow."""
    return pytest.mark.parametrize(
        ("name", "policy"),
        [
            pytest.param(name, policy, marks=() if name in light else WIDE, id=f"{name}-{how}")
            for how, policy, light in (("all", None, whole), ("fixed", scheduling.fixed(1), cut))
            for name in DRAFTERS
        ],
    )


@drafters_and_policies(whole=DRAFTERS.keys() - {"dspark_gated", "dspark_rnn"}, cut=["dspark"])
def test_every_drafter_gives_the_targets_distribution(plain, name, policy):
    assert total_variation(distribution(DRAFTERS[name], policy), plain) < 1e-5


@drafters_and_policies(whole=["dspark", "prompt_lookup"], cut=["small_lm"])
def test_blocks_that_an_answers_end_cuts_are_lossless_too(plain, name, policy):
    """Whole answers: the last rounds have room for one draft, or for none."""
    assert (
        total_variation(distribution(DRAFTERS[name], policy, max_new_tokens=LENGTH), plain) < 1e-5
    )


class Remembering:
    """A policy that knows how many rounds there were, and what was drafted in the round before."""

    def begin(self):
        self.rounds = 0

    def __call__(self, proposal):
        self.rounds += 1
        assert self.rounds < LENGTH, "the rounds of other paths are remembered as well"
        return torch.tensor([1 + self.rounds % 2]).clamp(max=proposal.tokens.shape[1])


def test_a_policy_remembers_its_own_path_alone(plain):
    assert total_variation(distribution(DRAFTERS["dspark"], Remembering()), plain) < 1e-5


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "dspark" else WIDE) for name in WITH_CONFIDENCE]
)
def test_a_threshold_on_confidence_changes_nothing(plain, name):
    seen, lengths = [], set()

    def whole(proposal):
        seen.append(proposal.confidence)
        return torch.tensor([2])

    def cut(proposal):
        length = threshold(proposal)
        lengths.add(length.item())
        return length

    output_distribution(TARGET, DRAFTERS[name], whole, 2, prompt=PROMPT)
    threshold = scheduling.threshold(torch.cat(seen).median())
    assert total_variation(distribution(DRAFTERS[name], cut), plain) < 1e-5
    assert len(lengths) > 1, "the threshold treated all blocks alike, so nothing was tested"


def test_another_temperature_is_exact_too():
    wanted = distribution(None, temperature=0.5)
    found = distribution(DRAFTERS["dspark"], temperature=0.5)
    assert total_variation(found, wanted) < 1e-5


def test_the_retrospective_policy_is_lossy_as_in_appendix_a():
    target, drafter, speed = appendix_a()
    exact = output_distribution(target, drafter, None, 3)
    lossy = output_distribution(target, drafter, scheduling.retrospective(speed), 3)
    assert marginal(exact, 1) == pytest.approx({0: 0.7, 1: 0.3})
    assert marginal(lossy, 1) == pytest.approx({0: 0.85, 1: 0.15})


def test_the_same_confidences_are_harmless_behind_a_threshold():
    target, drafter, _ = appendix_a()
    assert marginal(
        output_distribution(target, drafter, scheduling.threshold(0.5), 3), 1
    ) == pytest.approx({0: 0.7, 1: 0.3})


# Verifiers with one planted error each; arguments as of `accept`.


def always_accepts(target_probs, draft_probs, draft_tokens, lengths, generator):
    return accept(
        draft_probs_of(draft_probs, target_probs), draft_probs, draft_tokens, lengths, generator
    )


def draft_probs_of(draft_probs, target_probs):
    """The draft's distributions in the target's place, the bonus row kept."""
    return torch.cat([draft_probs, target_probs[:, -1:]], 1)


def swaps_the_ratio(target_probs, draft_probs, draft_tokens, lengths, generator):
    at = draft_tokens.unsqueeze(-1)
    target_of_token = target_probs[:, :-1].gather(-1, at).squeeze(-1)
    keep = (draft_probs.gather(-1, at).squeeze(-1) / target_of_token).clamp(max=1)
    return finish(keep, target_probs, draft_probs, residual, generator)


def corrects_from_the_target(target_probs, draft_probs, draft_tokens, lengths, generator):
    return finish(
        right_ratio(target_probs, draft_probs, draft_tokens),
        target_probs,
        draft_probs,
        lambda p, q: p,
        generator,
    )


def swaps_the_residual(target_probs, draft_probs, draft_tokens, lengths, generator):
    keep = right_ratio(target_probs, draft_probs, draft_tokens)
    return finish(keep, target_probs, draft_probs, lambda p, q: residual(q, p), generator)


def takes_the_bonus_from_the_first_row(target_probs, draft_probs, draft_tokens, lengths, generator):
    wrong = torch.cat([target_probs[:, :-1], target_probs[:, :1]], 1)
    return accept(wrong, draft_probs, draft_tokens, lengths, generator)


def forgets_the_residual_of_a_cut_block(
    target_probs, draft_probs, draft_tokens, lengths, generator
):
    """Takes the residual where nothing was rejected: the last drafted row instead of none."""
    verdict_of = right_ratio(target_probs, draft_probs, draft_tokens)
    accepted = accepted_prefix_length(verdict_of, generator)
    padded = torch.cat([draft_probs, draft_probs[:, -1:]], 1)
    row = torch.arange(len(accepted))
    return Verdict(
        accepted, draw(residual(target_probs[row, accepted], padded[row, accepted]), generator)
    )


def right_ratio(target_probs, draft_probs, draft_tokens):
    """min(1, p / q) of every drafted token."""
    at = draft_tokens.unsqueeze(-1)
    return (
        (target_probs[:, :-1].gather(-1, at) / draft_probs.gather(-1, at)).squeeze(-1).clamp(max=1)
    )


def finish(keep, target_probs, draft_probs, correction, generator):
    """The rest of `accept` with another correction."""
    accepted = accepted_prefix_length(keep, generator)
    row = torch.arange(len(accepted))
    rejected = (accepted < keep.shape[1])[:, None]
    p, q = target_probs[row, accepted], F.pad(draft_probs, (0, 0, 0, 1))[row, accepted]
    return Verdict(accepted, draw(torch.where(rejected, correction(p, q), p), generator))


ERRORS = [
    always_accepts,
    swaps_the_ratio,
    corrects_from_the_target,
    swaps_the_residual,
    takes_the_bonus_from_the_first_row,
    forgets_the_residual_of_a_cut_block,
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
def test_a_planted_error_of_the_verifier_is_lossy(error):
    target = ToyTarget([[0.7, 0.3], [0.4, 0.6]])
    drafter = ToyDrafter([[0.5, 0.5], [0.8, 0.2]], 0.5, [0.5, 0.5], gamma=2)
    exact = output_distribution(target, None, None, 4)
    assert total_variation(output_distribution(target, drafter, None, 4), exact) < 1e-6
    assert total_variation(output_distribution(target, drafter, None, 4, rule=error), exact) > 0.01


@pytest.mark.parametrize("name", ["small_lm", "prompt_lookup", "dspark"])
def test_a_wrong_bonus_behind_a_whole_block_is_lossy(plain, name, monkeypatch):
    monkeypatch.setattr(rounds, "accept", takes_the_bonus_from_the_first_row)
    assert total_variation(distribution(DRAFTERS[name]), plain) > 1e-3


def test_rejected_tokens_left_in_the_targets_cache_are_lossy(plain, monkeypatch):
    monkeypatch.setattr(TARGET, "roll_back", lambda cache, dropped: None)
    assert total_variation(distribution(DRAFTERS["dspark"]), plain) > 0.01


def test_a_drafter_that_forgets_to_extend_is_slow_but_exact(plain, monkeypatch):
    monkeypatch.setattr(DRAFTERS["dspark"], "extend", lambda state, token_ids, features: None)
    assert total_variation(distribution(DRAFTERS["dspark"]), plain) < 1e-5


def test_too_many_paths_are_refused(monkeypatch):
    monkeypatch.setattr(enumeration, "MAX_PATHS", 5)
    with pytest.raises(RequestError, match="more than 5 paths"):
        output_distribution(TARGET, None, None, LENGTH)


def test_total_variation_and_marginal():
    first, second = {(0, 1): 0.5, (1, 1): 0.5}, {(0, 1): 0.25, (0, 0): 0.75}
    assert total_variation(first, second) == 0.75 and total_variation(first, first) == 0
    assert marginal(second, 1) == {1: 0.25, 0: 0.75}
