"""Direct acceptance: minus the expected accepted drafts, only where a recipe asks for it."""

import pytest
import torch

from dspark_lite.training.blocks import block_losses, loss_factors, position_weights
from dspark_lite.training.recipe import LossWeights

GENERATOR = torch.Generator().manual_seed(0)


def acceptance_loss(draft: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return block_losses(
        draft, target, torch.zeros_like(mask, dtype=torch.long), mask, None
    ).acceptance


def test_expected_accepted_drafts_by_hand():
    """Of chances 0.8, 0.5 and 0.5, the third of which does not count: 0.8 + 0.4, times the block's weight."""
    chances, mask = torch.tensor([0.8, 0.5, 0.5]), torch.tensor([[[True, True, False]]])
    target = torch.full((1, 1, 3, 2), 0.5).log()
    draft = torch.stack([chances - 0.5, 1.5 - chances], -1)[
        None, None
    ].log()  # shares min(p, q) of these chances with the target
    assert (
        acceptance_loss(draft, target, mask) / position_weights(3)[:2].sum()
    ).item() == pytest.approx(-(0.8 + 0.4))


def test_a_draft_like_the_target_reaches_the_whole_block():
    logits = torch.randn(2, 3, 4, 7, generator=GENERATOR)
    mask = torch.ones(2, 3, 4, dtype=torch.bool)
    weight = position_weights(4).sum() * 6
    assert (acceptance_loss(logits, logits, mask) / weight).item() == pytest.approx(-4.0)
    far = torch.full_like(logits, -30).index_fill(-1, torch.tensor([0]), 30)
    near = torch.full_like(logits, -30).index_fill(-1, torch.tensor([1]), 30)
    assert (acceptance_loss(far, near, mask) / weight).item() == pytest.approx(0, abs=1e-5)


def test_its_gradient_raises_acceptance_and_is_larger_at_the_beginning():
    target = torch.randn(1, 1, 4, 7, generator=GENERATOR)
    draft = torch.zeros(1, 1, 4, 7, requires_grad=True)
    mask = torch.ones(1, 1, 4, dtype=torch.bool)
    before = acceptance_loss(draft, target, mask)
    before.backward()
    assert acceptance_loss(draft.detach() - 0.5 * draft.grad, target, mask) < before
    assert draft.grad[0, 0, 0].norm() > draft.grad[0, 0, 3].norm() > 0


def test_positions_that_do_not_count_change_nothing():
    draft, target = (torch.randn(1, 2, 4, 7, generator=GENERATOR) for _ in range(2))
    mask = torch.tensor([[[True, True, False, False], [False] * 4]])
    other = torch.where(mask[..., None], draft, torch.randn(1, 2, 4, 7, generator=GENERATOR))
    assert (
        torch.equal(acceptance_loss(draft, target, mask), acceptance_loss(other, target, mask))
        and acceptance_loss(draft, target, mask) < 0
    )


def test_it_comes_in_with_the_final_losses():
    factors = {"cross_entropy": 0.1, "l1": 0.9, "confidence": 1.0, "acceptance": 0.5}
    assert loss_factors(LossWeights(**factors), 1.0) == factors
    assert loss_factors(LossWeights(**factors, cross_entropy_first=0.3), 0.1)["acceptance"] == 0.0
