"""Checkers of lesson 00: accepted length and speed-up."""

from ..decoding.rounds import Round
from .checking import Exercise, Step


def example_rounds() -> list[Round]:
    """Four rounds of a finished answer; the last one was cut by the end of the answer."""
    outcomes = [(7, 5, 6), (7, 0, 1), (7, 7, 8), (7, 3, 2)]  # proposed, accepted, committed
    return [Round(*outcome, draft_tokens=[], tokens=[], draft_seconds=0.0, verify_seconds=0.0) for outcome in outcomes]


def accepted_length(rounds):
    """The mean number of committed tokens per round."""
    return sum(r.committed for r in rounds) / len(rounds)


check_accepted_length = Exercise(accepted_length, Step([(example_rounds(),)], {
    "you averaged the accepted drafts; the token that the target adds counts too":
        lambda rounds: sum(r.accepted for r in rounds) / len(rounds),
    "you added one to every round's accepted drafts; the end of an answer cuts the last round short, so read "
    "`committed`":
        lambda rounds: sum(r.accepted + 1 for r in rounds) / len(rounds),
    "that is the share of drafts accepted; divide by the number of rounds, not by the drafts proposed":
        lambda rounds: sum(r.accepted for r in rounds) / sum(r.proposed for r in rounds),
    "you divided the committed tokens by the drafts proposed; divide by the number of rounds":
        lambda rounds: sum(r.committed for r in rounds) / sum(r.proposed for r in rounds),
    "that is the number of tokens; divide by the number of rounds":
        lambda rounds: sum(r.committed for r in rounds),
    "that is rounds per token; turn the fraction over":
        lambda rounds: len(rounds) / sum(r.committed for r in rounds),
}, "this is not the mean of `r.committed` over the rounds"))


def speedup(tau, draft, verify, plain):
    """How many times as fast as plain decoding speculation is."""
    return tau * plain / (draft + verify)


check_speedup = Exercise(speedup, Step([(4.0, 2.0, 6.0, 5.0)], {
    "you left out the time of drafting; a round costs draft and verify":
        lambda tau, draft, verify, plain: tau * plain / verify,
    "you left out the time of verifying; a round costs draft and verify":
        lambda tau, draft, verify, plain: tau * plain / draft,
    "a round gives tau tokens, not one":
        lambda tau, draft, verify, plain: plain / (draft + verify),
    "tau already counts the token that the target adds: do not add one":
        lambda tau, draft, verify, plain: (tau + 1) * plain / (draft + verify),
    "tau counts the token that the target adds; all of tau is gained, not tau - 1":
        lambda tau, draft, verify, plain: (tau - 1) * plain / (draft + verify),
    "that is the time of one token, L; the speed-up is plain decoding's time of one token over it":
        lambda tau, draft, verify, plain: (draft + verify) / tau,
    "that is how many times slower; turn the fraction over":
        lambda tau, draft, verify, plain: (draft + verify) / (tau * plain),
}, "write the seconds of one token with plain decoding over L = (draft + verify) / tau"))
