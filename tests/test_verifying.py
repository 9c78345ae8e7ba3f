"""The capstone's checker: right verifiers pass, each known mistake is named with its total variation, in `generate` too."""

import random
import re

import pytest
import torch

from dspark_lite.course.own_decoder import verifying
from dspark_lite.course.own_decoder.verifying import (
    MISTAKES,
    OFFERED,
    WHICH_OFFERED,
    as_accept,
    check_verify,
    draw,
    toss,
    verify,
)
from dspark_lite.decoding.sampling import residual
from dspark_lite.losslessness import output_distribution, total_variation
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget

NAMED = {
    **{sentence: wrong for sentence, wrong in MISTAKES.items() if sentence != OFFERED},
    **WHICH_OFFERED,
    **verifying.LOST_RETURN,
}


def line_of(answer, capsys) -> str:
    """The one line with which the checker refuses."""
    assert check_verify(answer) is False
    (line,) = capsys.readouterr().out.splitlines()
    return line


def composed(p, q, drafts, generator):
    """Written in another way: the coins one by one, the last row of a padded q, tokens as a tensor."""
    kept = 0
    while kept < len(drafts) and toss(
        min(1.0, (p[kept] / q[kept])[drafts[kept]].item()), generator
    ):
        kept += 1
    owed = (p - torch.cat([q, torch.zeros_like(q[:1])]))[kept].clamp(min=0)
    return torch.tensor([*drafts[:kept], draw(owed / owed.sum(), generator)])


def from_the_back(p, q, drafts, generator):
    """Judges the last draft first: an error that a block of one does not show."""
    for k in reversed(range(len(drafts))):
        if toss(p[k, drafts[k]] / q[k, drafts[k]], generator):
            return [*drafts[: k + 1], draw(p[k + 1], generator)]
    return [draw(residual(p[0], q[0]), generator)]


def first_alone(p, q, drafts, generator):
    """Judges the first draft and draws the token after it from row 1: exact, and draft 2 is wasted."""
    if toss(p[0, drafts[0]] / q[0, drafts[0]], generator):
        return [drafts[0], draw(p[1], generator)]
    return [draw(residual(p[0], q[0]), generator)]


def third_by_the_second_row(p, q, drafts, generator):
    """Judges every draft after the first by row 1: right as long as there are two."""
    rows = [0, *[1] * (len(drafts) - 1)]
    return verify(torch.cat([p[rows], p[-1:]]), q[rows], drafts, generator)


def third_wasted(p, q, drafts, generator):
    """Judges two drafts at most: exact, and the third is wasted."""
    return verify(p[:3], q[:2], drafts[:2], generator)


@pytest.mark.parametrize("right", [verify, composed])
def test_a_right_verifier_passes(right, capsys):
    assert check_verify(right) is True
    assert capsys.readouterr().out == "Correct.\n"


@pytest.mark.parametrize("sentence", NAMED)
def test_a_known_mistake_is_named_with_its_distance(sentence, capsys):
    line = line_of(NAMED[sentence], capsys)
    distance = re.fullmatch(r"Not yet: your total variation is (0\.\d\d): (.*)", line)
    assert distance and float(distance[1]) > 0.05 and distance[2] == sentence


def test_the_distance_is_that_of_the_texts():
    found = verifying.texts(MISTAKES["nothing is ever refused"])[0]
    by_hand = {}  # two drafts from the drafter's table, then the bonus from the target's
    for first in range(3):
        for second in range(3):
            for third in range(3):
                by_hand[first, second, third] = float(
                    verifying.DRAFTER[0, first]
                    * verifying.DRAFTER[first, second]
                    * verifying.TARGET[second, third]
                )
    assert total_variation(found, by_hand) < 1e-6
    assert sum(verifying.target_texts().values()) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "coin",
    [
        lambda p, q, k, x: (p[k, x] / q[k, x]).round(decimals=2),
        lambda p, q, k, x: p[k, x] / (q[k, x] + 1e-3),
    ],
)
def test_a_small_distance_is_not_shown_as_none(coin, capsys):
    line = line_of(verifying.variant(coin=coin), capsys)
    assert re.search(
        r"total variation is 0\.00\d+\. So little comes from a number that is almost right", line
    )


def tossed_with(toss, draw=draw):
    """The rule with another coin or another draw of the replacement, which do not follow the path."""

    def rule(p, q, drafts, generator):
        for k, x in enumerate(drafts):
            if not toss(p[k, x] / q[k, x], generator):
                return [*drafts[:k], draw(residual(p[k], q[k]), generator)]
        return [*drafts, verifying.draw(p[len(drafts)], generator)]

    return rule


@pytest.mark.parametrize(
    "rule",
    [
        tossed_with(lambda chance, _: random.random() < chance),
        tossed_with(lambda chance, _: torch.rand(1) < chance),
        tossed_with(toss, lambda probs, _: torch.multinomial(probs, 1).item()),
    ],
)
def test_what_is_drawn_outside_the_path_is_noticed(rule, capsys):
    torch.manual_seed(0)
    random.seed(0)
    assert "something is drawn at random without `generator`" in line_of(rule, capsys)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (
            verifying.without_bonus,
            "a round commits 1.70 tokens on average where 2.17 are possible: after a whole block one more",
        ),
        (
            first_alone,
            "a round commits 1.70 tokens on average where 2.17 are possible: you never judge draft 2",
        ),
        (
            lambda p, q, drafts, generator: [draw(p[0], generator)],
            "1.00 tokens on average where 2.17 are possible: keep a draft",
        ),
        (lambda p, q, drafts, generator: [*drafts, 0], "nothing was decided with `generator`"),
        (
            lambda p, q, drafts, generator: [torch.multinomial(p[0], 1).item()],
            "nothing was decided with `generator`",
        ),
        (
            lambda p, q, drafts, generator: [torch.multinomial(p[0], 1, generator=generator)],
            "toss coins with toss(chance, generator)",
        ),
        (
            lambda p, q, drafts, generator: [draw(p[len(drafts)] - 0 * q[len(drafts)], generator)],
            "you read a row or a draft that does not exist",
        ),
        (lambda p, q, drafts, generator: 5, "return the list of tokens"),
        (
            lambda p, q, drafts, generator: [],
            "you returned an empty list; a round commits at least one token",
        ),
        (lambda p, q, drafts, generator: ["a"], "the list holds token ids"),
        (
            lambda p, q, drafts, generator: [*drafts, draw(p[2], generator), 0],
            "4 tokens from a block of 2",
        ),
        (
            lambda p, q, drafts, generator: [draw(p[0] ** 2 / (p[0] ** 2).sum(), generator)],
            "Take one draft alone first",
        ),
        (from_the_back, "With a block of one draft it is exact, so the error is in the block"),
        (
            verifying.variant(bonus=lambda p, q: p[2]),
            "right for a block of two drafts, wrong for a block of one",
        ),
        (third_by_the_second_row, "right for a block of two drafts, wrong for a block of three"),
        (third_wasted, "right for a block of two drafts, wrong for a block of three"),
        (3, "takes the function itself, not a value of type int"),
        (None, "Not done yet"),
        (lambda *_: None, "Not done yet"),
        (lambda *_: ..., "Not done yet"),
    ],
)
def test_what_else_may_be_wrong_ends_in_a_sentence(answer, said, capsys):
    line = line_of(answer, capsys)
    assert said in line and "raised" not in line


def test_a_coin_takes_one_chance(capsys):
    line = line_of(tossed_with(lambda chance, generator: toss(torch.ones(3), generator)), capsys)
    assert "toss takes the chance of one draft, not 3 numbers" in line


def test_a_coin_takes_any_chance():
    generator = torch.Generator().manual_seed(0)
    assert toss(1.7, generator) and not toss(-0.2, generator)
    heads = sum(toss(torch.tensor(0.25), generator) for _ in range(2000))
    assert abs(heads - 500) < 6 * (2000 * 0.25 * 0.75) ** 0.5


@pytest.mark.parametrize(
    ("rule", "exact"),
    [(verify, True), (composed, True), (MISTAKES["nothing is ever refused"], False)],
)
def test_generate_runs_a_learners_verifier(rule, exact):
    target = ToyTarget([[0.7, 0.3], [0.4, 0.6]])
    drafter = ToyDrafter(
        [[0.45, 0.55], [0.8, 0.2]], first_confidence=0.5, confidence=[0.5, 0.5], gamma=2
    )
    found = output_distribution(target, drafter, None, length=3, rule=as_accept(rule))
    distance = total_variation(found, output_distribution(target, None, None, length=3))
    assert (distance < verifying.EXACT) is exact


def test_the_cells_below_run_either_way(capsys):
    assert (
        verifying.in_use(composed, True) is composed and verifying.in_use(composed, False) is verify
    )
    assert capsys.readouterr().out.count("\n") == 2
