"""Lesson 07: the recipes it trains by can be loaded; its checker of the loss looks at gradients."""

import pytest

from dspark_lite.common.names import PROFILES
from dspark_lite.exercises import lesson_07
from dspark_lite.training.losses import block_losses
from dspark_lite.training.recipes import load_recipe


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_a_recipe_for_its_own_target(profile):
    recipe = load_recipe(f"lesson-{profile}")
    assert recipe["target"] == PROFILES[profile]["target"]
    assert set(recipe["loss"]) >= {"cross_entropy", "l1", "confidence"} and all(recipe["loss"].values())


def detached_nowhere(*case):
    """The right value, with a label that moves the drafter."""
    return lesson_07.losing(label=lesson_07.confidence_label)(*case)


@pytest.mark.parametrize(("wrong", "said"), [
    (detached_nowhere, "the confidence's label moves the drafter"),
    (lambda *case: lesson_07.dspark_loss(*case).detach(), "nothing can be learned from it"),
    (lambda q, p, x, m, c, f: lesson_07.dspark_loss(q.detach(), p, x, m, c, f), "the drafter learns nothing"),
    (lambda q, p, x, m, c, f: lesson_07.dspark_loss(q, p, x, m, c.detach(), f), "the confidence head does not learn")])
def test_a_loss_is_judged_by_its_gradients_too(wrong, said, capsys):
    assert lesson_07.check_dspark_loss(wrong) is False
    assert said in capsys.readouterr().out


def test_the_exercises_loss_is_the_packages():
    logits, target_logits, tokens, counted, confidence, factors = lesson_07.LOSS_CASE
    theirs = block_losses(logits[None], target_logits[None], tokens[None], counted[None], confidence[None])
    assert lesson_07.dspark_loss(*lesson_07.LOSS_CASE).item() == pytest.approx(theirs.total(**factors).item(), rel=1e-5)
