"""Checkers of lesson 03: what two caches forget, and what the small LM has still to read."""

import torch

from ...decoding.sampling import residual
from ..checkers.checking import Comparison, Exercise
from ..checkers.random_cases import Cases, number, numbers
from ..own_decoder.keep import kept_source, own_file
from ..own_decoder.my_dspark import forget
from ..own_decoder.verifying import draw, judge_verify, toss, verify as course_verify


def kept_verify():
    """Return the `verify` of the reader's file if it is there and right, else None."""
    names = {"torch": torch, "toss": toss, "draw": draw, "residual": residual}
    try:
        exec(kept_source("verify") or "", names)  # its own toss and draw take no path of `outcomes`
        judge_verify(names["verify"])
    except Exception:  # none, or changed since a checker passed it
        return None
    return names["verify"]


def verify_in_use():
    """Return the `verify` kept in lesson 02 if it is right, else the course's, in the form that the
    loop needs.

    A right one may return a tensor or change `drafts` in place; the loop gets a list and keeps its
    drafts.
    """
    kept = kept_verify()
    print(f"The verify in {own_file().name} decides." if kept else "The course's verify decides.")
    chosen = kept or course_verify
    return lambda p, q, drafts, generator: [
        int(token) for token in chosen(p, q, list(drafts), generator)
    ]


def verified_block(generator):
    """Return a block of one to sixteen drafts, and how many of them are accepted."""
    gamma = number(generator, 1, 16)
    return gamma, number(generator, 0, gamma)


check_forget = Exercise(
    forget,
    Comparison(
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
        "write down what each cache has read, and strike out what does not stay",
        names=("gamma", "accepted"),
    ),
)


def still_unread(drafts, tokens):
    """Return the tokens that a round commits and the small LM has not read."""
    return tokens[-2:] if is_whole(drafts, tokens) else tokens[-1:]


def is_whole(drafts, tokens):
    """Return whether all drafts were accepted."""
    return len(tokens) > len(drafts)


def ended_round(generator):
    """Return the drafts of a round, one to eight, and the tokens that it commits."""
    drafts = numbers(generator, number(generator, 1, 8), 0, 99)
    accepted = number(generator, 0, len(drafts))
    return drafts, [*drafts[:accepted], number(generator, 100, 199)]


check_still_unread = Exercise(
    still_unread,
    Comparison(
        Cases(
            [
                ([1, 2, 3], [1, 4]),
                ([1, 2, 3], [1, 2, 3, 4]),
                ([1, 2, 3], [4]),
                ([5], [5, 6]),
                ([1, 2, 3], [1, 2, 4]),
                ([1, 2, 1], [1, 9]),  # the last draft's number stands there, but not the last draft
            ],
            ended_round,
        ),
        {
            "right after a refusal; after a whole block the small LM has its own last draft still to read, too.": lambda drafts, tokens: (
                tokens[-1:]
            ),
            "the small LM has read the accepted drafts, all but its own last one; leave them out.": lambda drafts, tokens: (
                tokens
            ),
            "after a refusal the last draft is not committed; then the target's token alone is left.": lambda drafts, tokens: [
                drafts[-1],
                tokens[-1],
            ],
            "right after a whole block; after a refusal the token before the last is an accepted draft, which was read.": lambda drafts, tokens: (
                tokens[-2:]
            ),
            "the order is the text's: after a whole block the last draft, then the target's token.": lambda drafts, tokens: (
                [tokens[-1], drafts[-1]] if is_whole(drafts, tokens) else tokens[-1:]
            ),
            "the target's own token is unread, too: the small LM never reads it before the next round.": lambda drafts, tokens: (
                drafts[-1:] if is_whole(drafts, tokens) else []
            ),
            "these are the refused drafts; nobody reads them again.": lambda drafts, tokens: drafts[
                len(tokens) - 1 :
            ],
        },
        "it is the target's token, a list of one, and before it the last draft where the whole block was accepted.",
        names=("drafts", "tokens"),
    ),
)
