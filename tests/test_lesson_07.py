"""Lesson 07: the checkers know right from wrong, and the recipes it trains by can be loaded."""

import lesson_cells
import pytest
import torch

from dspark_lite.exercises import lesson_07
from dspark_lite.lab import PROFILES
from dspark_lite.training.recipes import load_recipe


def test_solutions_pass(capsys):
    assert lesson_cells.run("07", "solution", exercises=lesson_07) == 4
    assert capsys.readouterr().out == 4 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("07", "exercise", exercises=lesson_07) == 4
    assert capsys.readouterr().out.count("Not done yet") == 4


def following(supervised):
    """Whether the next position is supervised."""
    return torch.nn.functional.pad(supervised[:, 1:], (0, 1))


def seen(context, slots):
    """A mask predicate of what is seen of the context and of the slots, each a function of indices and blocks."""
    def sees(anchors, length, gamma, query, key):
        anchor, block, owner = anchors[query // gamma], query // gamma, (key - length) // gamma
        inside = slots(block, owner, query % gamma, (key - length) % gamma)
        return torch.where(key < length, context(key, anchor), inside)

    return sees


def own(block, owner, slot, other):
    """Whether a key is of the query's block."""
    return owner == block


def label(of_distance):
    """A confidence label that is a function of the L1 distance."""
    return lambda p, q: of_distance((p - q).abs().sum(-1))


def loss(weigh, divide=None):
    """A weighted loss with the weights weigh(position, counted) divided by the sum of divide(weights, counted)."""
    def weighted(losses, counted):
        weights = weigh(torch.arange(7), counted) * torch.ones(3, 7)
        return (losses * weights).sum() / (divide(weights, counted) if divide else weights).sum()

    return weighted


def decayed(position, counted):
    """The right weights."""
    return torch.exp(-position / 4) * counted


def by_block(losses, counted):
    """Every block averaged by itself; an empty one is left out."""
    weights = decayed(torch.arange(7), counted)
    return ((losses * weights).sum(-1)[:2] / weights.sum(-1)[:2]).mean()


WRONG = {
    lesson_07.check_possible_anchors: {
        lambda s: s: "nothing supervised behind it",
        lambda s: s & torch.nn.functional.pad(s[:, :-1], (1, 0)): "the token before the anchor",
        lambda s: following(s): "the anchor itself must be supervised",
        lambda s: s & s.roll(-1, 1): "torch.roll wraps around",
        lambda s: s | following(s): "one of the two is not enough",
        lambda s: torch.arange(s.shape[1]).expand_as(s) < s.shape[1] - 1: "all positions but the last",
        lambda s: torch.zeros_like(s): "an anchor is a supervised position whose successor",
    },
    lesson_07.check_sees: {
        seen(lambda key, anchor: key <= anchor, own): "has not read the anchor yet",
        seen(lambda key, anchor: torch.ones_like(key + anchor).bool(), own): "learn to copy",
        seen(lambda key, anchor: key < anchor, lambda *ids: torch.ones_like(ids[0] + ids[1]).bool()): "of all blocks",
        seen(lambda key, anchor: key < anchor, lambda b, o, s, t: (o == b) & (t <= s)): "causal inside the block",
        seen(lambda key, anchor: key < anchor, lambda b, o, *rest: (o == b) & False): "no slot sees a block",
        seen(lambda key, anchor: (key < anchor) & False, own): "the context is hidden",
        lambda a, n, g, query, key: (key < a[query // g]) | (key // g == query // g): "compared whole key indices",
        lambda a, n, g, query, key: (key < a[query // g]).float() + ((key - n) // g == query // g): "must be boolean",
    },
    lesson_07.check_label: {
        label(lambda distance: 1 - distance / 4): "this is 1 - TV / 2",
        label(lambda distance: 1 - distance): "this is 1 - L1;",
        label(lambda distance: distance / 2): "the chance of a refusal",
        label(lambda distance: distance): "the L1 distance itself",
        lambda p, q: torch.maximum(p, q).sum(-1): "sum of max(p, q)",
        lambda p, q: (p * q).sum(-1): "two independent draws",
        lambda p, q: 1 - (p - q).abs().mean(-1) / 2: "not a mean",
    },
    lesson_07.check_weighted_loss: {
        loss(decayed, lambda weights, counted: counted): "how many slots count",
        loss(decayed, lambda weights, counted: torch.ones(3, 7)): "number of all slots",
        loss(lambda position, counted: torch.exp(-position / 4)): "have no label",
        loss(decayed, lambda weights, counted: torch.exp(-torch.arange(7) / 4).expand(3, -1)): "in the divisor",
        by_block: "each block is averaged by itself",
        loss(lambda position, counted: torch.exp(-position / 7) * counted): "the decay is 7",
        loss(lambda position, counted: counted): "weighs the same",
        loss(lambda position, counted: torch.exp(position / 4) * counted): "grow with the position",
        loss(decayed, lambda weights, counted: torch.ones(1)): "this is the numerator",
    },
}
CASES = [(check, answer, name) for check, wrong in WRONG.items() for answer, name in wrong.items()]


@pytest.mark.parametrize(("check", "answer", "name"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_a_recipe_for_its_own_target(profile):
    recipe = load_recipe(f"lesson-{profile}")
    assert recipe["target"] == PROFILES[profile]["target"]
    assert set(recipe["loss"]) == {"cross_entropy", "l1", "confidence"} and all(recipe["loss"].values())
