"""Lesson 07: the recipes it trains by can be loaded."""

import pytest

from dspark_lite.common.names import PROFILES
from dspark_lite.training.recipes import load_recipe


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_a_recipe_for_its_own_target(profile):
    recipe = load_recipe(f"lesson-{profile}")
    assert recipe["target"] == PROFILES[profile]["target"]
    assert set(recipe["loss"]) >= {"cross_entropy", "l1", "confidence"} and all(recipe["loss"].values())
