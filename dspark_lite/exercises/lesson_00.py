"""Checkers of lesson 00: accepted length and speed-up."""

from ..decoding import Round
from .checking import checker, finished, name_mistake


def example_rounds() -> list[Round]:
    """Four rounds of a finished answer; the last one was cut by the end of the answer."""
    outcomes = [(7, 5, 6), (7, 0, 1), (7, 7, 8), (7, 3, 2)]  # proposed, accepted, committed
    return [Round(*outcome, draft_tokens=[], tokens=[], draft_seconds=0.0, verify_seconds=0.0) for outcome in outcomes]


@checker
def check_accepted_length(function):
    """Checks `function(rounds)`, the mean number of committed tokens a round."""
    rounds = example_rounds()
    count = len(rounds)
    committed, accepted, proposed = (sum(getattr(r, name) for r in rounds)
                                     for name in ("committed", "accepted", "proposed"))
    name_mistake(finished(function(rounds)), committed / count, {
        "you averaged the accepted drafts; the token that the target adds counts too": accepted / count,
        "you added one to every round's accepted drafts; the end of an answer cuts the last round short, so read "
        "`committed`": accepted / count + 1,
        "that is the share of drafts accepted; divide by the number of rounds, not by the drafts proposed":
            accepted / proposed,
        "you divided the committed tokens by the drafts proposed; divide by the number of rounds": committed / proposed,
        "that is the number of tokens; divide by the number of rounds": committed,
        "that is rounds a token; turn the fraction over": count / committed,
    }, "this is not the mean of `r.committed` over the rounds")


@checker
def check_speedup(function):
    """Checks `function(tau, draft_seconds, verify_seconds, plain_seconds)`: how many times plain decoding's speed."""
    tau, draft, verify, plain = 4.0, 2.0, 6.0, 5.0
    name_mistake(finished(function(tau, draft, verify, plain)), tau * plain / (draft + verify), {
        "you left out the time of drafting; a round costs draft and verify": tau * plain / verify,
        "you left out the time of verifying; a round costs draft and verify": tau * plain / draft,
        "a round gives tau tokens, not one": plain / (draft + verify),
        "tau already counts the token that the target adds: do not add one": (tau + 1) * plain / (draft + verify),
        "tau counts the token that the target adds; all of tau is gained, not tau - 1":
            (tau - 1) * plain / (draft + verify),
        "that is the time of one token, L; the speed-up is plain decoding's time of one token over it":
            (draft + verify) / tau,
        "that is how many times slower; turn the fraction over": (draft + verify) / (tau * plain),
    }, "write the seconds of one token with plain decoding over L = (draft + verify) / tau")
