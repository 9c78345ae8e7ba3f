"""Lesson 06: the checkers know right from wrong."""

import lesson_cells
import pytest
import torch

from dspark_lite.exercises import lesson_06


def test_solutions_pass(capsys):
    assert lesson_cells.run("06", "solution", exercises=lesson_06, torch=torch) == 3
    assert capsys.readouterr().out == 3 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("06", "exercise", exercises=lesson_06, torch=torch) == 3
    assert capsys.readouterr().out.count("Not done yet") == 3


def at_least(accepted, k):
    """How many rounds accepted k drafts or more."""
    return sum(a >= k for a in accepted)


def before(accepted, k):
    """How many rounds reached position k."""
    return at_least(accepted, k - 1)


def shares(kept, reached):
    """A conditional acceptance from two counts of (accepted, k)."""
    return lambda accepted, gamma: [kept(accepted, k) / max(1, reached(accepted, k)) for k in range(1, gamma + 1)]


WRONG = {
    lesson_06.check_pairs: {
        lambda ids, features: (ids, features): "beside its own token, which it already knows; pair it with the token after it",
        lambda ids, features: (ids[:-1], features[:-1]): "one pair is missing",
        lambda ids, features: (ids[:-1], features[1:]): "the token before it",
        lambda ids, features: (ids[2:], features[:-2]): "two places on",
        lambda ids, features: (ids.roll(-1), features): "the last feature got the first token",
        lambda ids, features: (ids[1:], features): "4 tokens and 5 features",
        lambda ids, features: (ids[1:], 2 * features[:-1]): "are not (token i + 1, feature i)",
    },
    lesson_06.check_after_round: {
        lambda cached, gamma, accepted: (cached + gamma, accepted + 1): "refused drafts stay in sight",
        lambda cached, gamma, accepted: (cached + gamma, 0): "nothing is rolled back",
        lambda cached, gamma, accepted: (cached + accepted, 1): "you kept the entries of accepted drafts. Their",
        lambda cached, gamma, accepted: (cached + accepted + 1, 0): "entered nothing: the cache would drift",
        lambda cached, gamma, accepted: (cached, accepted): "the anchor is forgotten",
        lambda cached, gamma, accepted: (cached, accepted + 2): "the new anchor",
        lambda cached, gamma, accepted: (cached, gamma + 1): "only accepted tokens",
        lambda cached, gamma, accepted: (0, cached + accepted): "keep what was committed before",
    },
    lesson_06.check_conditional: {
        shares(at_least, lambda accepted, k: len(accepted)): "divided by all rounds. That",
        shares(before, lambda accepted, k: len(accepted)): "came to the position",
        shares(lambda accepted, k: at_least(accepted, k + 1), at_least): "off by one",
        shares(lambda accepted, k: accepted.count(k - 1), before): "refused at k",
        shares(lambda accepted, k: accepted.count(k), before): "exactly k",
        shares(at_least, lambda accepted, k: at_least(accepted, 1)): "the first position's count",
    },
}
CASES = [(check, answer, name) for check, wrong in WRONG.items() for answer, name in wrong.items()]


@pytest.mark.parametrize(("check", "answer", "name"), CASES, ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out


def test_keeping_the_first_passs_entry_is_right_too(capsys):
    assert lesson_06.check_after_round(lambda cached, gamma, accepted: (cached + 1, accepted))
    assert capsys.readouterr().out == "Correct.\n"
