"""Checkers of lesson 03: what two caches forget, `verify` from memory, the end of a round."""

from typing import NamedTuple

import torch

from .checking import Exercise, Mistake, Step, as_function, checker, finished
from .my_dspark import forget
from .random_cases import Cases, number, numbers
from .verifying import check_verify as check_verify
from .verifying import in_use as decides
from .verifying import verify


def in_use(learners, done: bool):
    """The learner's `verify` if it is right, else the reference, in the form that the loop needs.

    A right one may return a tensor or change `drafts` in place; the loop gets a list and keeps its drafts.
    """
    chosen = decides(learners, done)
    return lambda p, q, drafts, generator: [
        int(token) for token in chosen(p, q, list(drafts), generator)
    ]


def verified_block(generator):
    """A block of one to sixteen drafts, and how many of them are accepted."""
    gamma = number(generator, 1, 16)
    return gamma, number(generator, 0, gamma)


check_forget = Exercise(
    forget,
    Step(
        Cases([(7, 3), (7, 7), (7, 0), (5, 1), (7, 6)], verified_block),
        {
            "the small LM never read its own last draft; it has one position less to forget": lambda g, a: (
                g - a,
                g - a,
            ),
            "when all drafts were accepted the small LM has nothing to forget; the number must not fall below 0": lambda g, a: (
                g - a,
                g - 1 - a,
            ),
            "that leaves the first refused draft in the target's cache": lambda g, a: (
                max(0, g - a - 1),
                max(0, g - 1 - a),
            ),
            "that forgets the last accepted draft (or the anchor) as well": lambda g, a: (
                g - a + 1,
                max(0, g - a),
            ),
            "you forget what was accepted and keep what was refused; it is the other way round": lambda g, a: (
                a,
                a,
            ),
            "that is what stays, the anchor included; return what goes": (
                lambda g, a: (a + 1, a + 1),
                lambda g, a: (a + 1, min(a + 1, g)),
            ),
            "the two numbers are right and stand in the other order; the target's comes first": lambda g, a: (
                max(0, g - 1 - a),
                g - a,
            ),
            "right for gamma = 7 only; write `gamma` in place of a number": lambda g, a: (
                7 - a,
                max(0, 6 - a),
            ),
            "the token that the target adds has been read by nobody; there is nothing of it to forget": lambda g, a: (
                g - a + 1,
                max(0, g - 1 - a),
            ),
            "that is one number; return two, the target's and the small LM's": (
                lambda g, a: g - a,
                lambda g, a: max(0, g - 1 - a),
            ),
        },
        "for gamma = 7, accepted = 3 write down what each cache has read, and strike out what does not stay",
    ),
)


def settle(models, caches, p, q, drafts, generator):
    """Ends a round of the drafts: the tokens that it commits, and those that the small LM has still to read."""
    tokens = verify(p, q, drafts, generator)
    gamma, accepted = len(drafts), len(tokens) - 1
    for model, cache, dropped in zip(models, caches, forget(gamma, accepted)):
        model.roll_back(cache, dropped)
    return tokens, drafts[-1:] * (accepted == gamma) + tokens[-1:]


BEFORE, ANCHOR = [90, 91], 92  # a text and its last token
VOCABULARY = 8  # of the tokens in a block
CHANGED = " (on the way your function, or the `verify` that it calls, changed `drafts`: then len(drafts) is no longer gamma)"


class Played(NamedTuple):
    """A round: its drafts, how many of them the target accepts, and the target's own next token."""

    drafts: list[int]
    accepted: int
    own: int


def round_case(generator) -> Played:
    """A round of one to six drafts, some of them the same token."""
    drafts = numbers(generator, number(generator, 1, 6), 0, VOCABULARY - 1)
    accepted = number(generator, 0, len(drafts))
    refused = drafts[accepted] if accepted < len(drafts) else 0
    return Played(drafts, accepted, (refused + number(generator, 1, VOCABULARY - 1)) % VOCABULARY)


# With 2 of 3 accepted the small LM has nothing to forget and yet has read all that stays.
ROUNDS = Cases([Played([1, 2, 3], accepted, 4) for accepted in (1, 3, 0, 2)], round_case)


class Tape:
    """A model whose cache is the list of tokens that it has read."""

    def __init__(self, name: str):
        self.name = name

    def roll_back(self, cache: list[int], dropped: int) -> None:
        """Forgets the last `dropped` tokens; raises Mistake where there are not so many."""
        if not 0 <= dropped <= len(cache):
            raise Mistake(
                f"the {self.name}'s cache holds {len(cache)} positions and cannot forget {dropped} of them"
            )
        del cache[len(cache) - dropped :]


def one_hot(tokens: list[int]) -> torch.Tensor:
    """Distributions [k, V] that are sure of these k tokens."""
    return torch.nn.functional.one_hot(torch.tensor(tokens), VOCABULARY).float()


def judged_by(played: Played) -> tuple[torch.Tensor, torch.Tensor]:
    """Distributions p [g+1, V] and q [g, V] with which the rule cannot but play this round."""
    drafts, accepted, own = played
    p = one_hot(drafts[:accepted] + [own] * (len(drafts) + 1 - accepted))
    q = one_hot(drafts)
    if accepted < len(drafts):  # both share a token that is owed nothing, so that q matters
        free = {*range(VOCABULARY)} - {own, drafts[accepted]}
        p[accepted, min(free)] = q[accepted, min(free)] = 1.0
        p[accepted], q[accepted] = p[accepted] / 2, q[accepted] / 2
    return p, q


def settled(learners, played: Played, drafts: list[int]):
    """What a function like `settle` returns of a round and leaves in two tapes."""
    models, caches = (
        (Tape("target"), Tape("small LM")),
        ([*BEFORE, ANCHOR, *drafts], [*BEFORE, ANCHOR, *drafts[:-1]]),
    )
    return finished(learners(models, caches, *judged_by(played), drafts, None)), caches


@checker
def check_settle(learners):
    """Checks a function like `settle` by what it leaves in two caches that can be read."""
    as_function(learners)
    for played in ROUNDS:
        judge_settled(learners, played)


def judge_settled(learners, played: Played) -> None:
    """Raises Mistake unless a function like `settle` ends this round rightly."""
    drafts = list(played.drafts)
    try:
        returned, caches = settled(learners, played, drafts)
        if not isinstance(returned, (tuple, list)) or [type(part) for part in returned] != [
            list,
            list,
        ]:
            raise Mistake(
                "return two lists: the tokens that the round commits, and those that the small LM has still to read"
            )
        judge_round(played, *returned, *caches)
    except Mistake as mistake:
        changed = CHANGED if drafts != played.drafts else ""
        raise Mistake(f"{mistake}{changed}") from None


def judge_round(
    played: Played,
    tokens: list[int],
    unread: list[int],
    cache: list[int],
    small_cache: list[int],
) -> None:
    """Raises Mistake unless the round commits the right tokens, each cache holds what stays and nothing else, and `unread`
    is what the small LM's lacks."""
    drafts, accepted, own = played
    where = f"with {accepted} of {len(drafts)} drafts accepted "
    if tokens != [*drafts[:accepted], own]:
        raise Mistake(f"{where}the first list is not what verify(p, q, drafts, generator) returns")
    for name, found, read in (("target", cache, drafts), ("small LM", small_cache, drafts[:-1])):
        surplus = len(found) - len([*BEFORE, ANCHOR, *read[:accepted]])
        if surplus > 0:
            raise Mistake(
                f"{where}the {name}'s cache still holds refused drafts, {surplus} too many"
            )
        if surplus < 0:
            raise Mistake(
                f"{where}the {name}'s cache has forgotten {-surplus} too many; accepted drafts and the anchor stay"
            )
    whole = accepted == len(drafts)
    if unread != [*drafts[-1:] * whole, own]:
        lacking = (
            "its own last draft, which it never read, and then the target's token"
            if whole
            else "the target's own token and nothing else"
        )
        raise Mistake(f"{where}the small LM has still to read {lacking}")
