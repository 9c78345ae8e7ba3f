"""What lesson 06 measures of an autoregressive drafter: the chance of each pass of its chains, and what its drafts cost."""

from types import SimpleNamespace

import torch
from pytest import approx

from dspark_lite.course.measure import chains
from dspark_lite.course.measure.draft_times import draft_times, verification_times
from dspark_lite.losslessness.toys import toy_models


def test_a_later_pass_is_compared_with_the_first_pass_of_the_chain_that_begins_at_its_slot():
    # chances of [B, K, gamma]: chain s of a text has 3 s, 3 s + 1, 3 s + 2
    found = torch.arange(24.0).reshape(2, 4, 3)
    given, own = chains.by_pass([found])
    # two chains of each text
    assert own == approx([(0 + 3 + 12 + 15) / 4, (1 + 4 + 13 + 16) / 4, (2 + 5 + 14 + 17) / 4])
    assert given == approx([(0 + 3 + 12 + 15) / 4, (3 + 6 + 15 + 18) / 4, (6 + 9 + 18 + 21) / 4])
    assert given[0] == own[0], "the first pass reads the target's feature in either"


def test_the_chance_of_the_first_pass_is_that_of_the_drafters_first_draft():
    target, toys = toy_models(seed=4, vocab_size=11)
    drafter = toys["eagle3"]
    ids = torch.randint(11, (1, 12), generator=torch.Generator().manual_seed(0))
    # as a trained one's, it is the target's
    drafter.lm_head.weight.data.copy_(target.model.get_output_embeddings().weight)
    found = chains.chances(target, drafter, ids, 3)
    assert (
        found.shape == (1, 12 - drafter.gamma - 3, drafter.gamma)
        and (0 < found).all()
        and (found <= 1).all()
    )
    read, _ = target.prefill(ids[:, :3], drafter.taps)
    proposal = drafter.propose(
        drafter.begin(ids[:, :3], read.features),
        ids[:, 3],
        temperature=1.0,
        generator=torch.Generator().manual_seed(1),
    )
    with_anchor, _ = target.prefill(ids[:, :4])
    p = torch.softmax(with_anchor.logits[0, -1].float(), -1)
    assert float(found[0, 0, 0]) == approx(
        float(torch.minimum(p, proposal.probs[0, 0]).sum()), abs=1e-5
    )


def test_a_draft_is_timed_at_each_length():
    target, toys = toy_models(seed=4, vocab_size=11)
    lab = SimpleNamespace(
        target=target,
        device=target.device,
        drafter=toys.__getitem__,
        generator=lambda: torch.Generator().manual_seed(0),
    )
    prompt = torch.tensor([[1, 2, 3]])
    drafted, plain, verifying = draft_times(lab, ["mtp", "eagle3"], prompt, 2)
    assert {name: list(found) for name, found in drafted.items()} == {
        name: list(range(1, toys[name].gamma + 1)) for name in drafted
    }
    assert (
        min(plain, verifying, *(spent for found in drafted.values() for spent in found.values()))
        > 0
    )
    assert list(verification_times(lab, prompt, 2)) == [0, 1, 2]
