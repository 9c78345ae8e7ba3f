"""Checkers of lesson 00: accepted length and speed-up."""

from dspark_lite.decoding.rounds import Generation, Round
from .checking import Exercise, Step


def example_answers() -> list[Generation]:
    """Two answers of four rounds and of two; the end of the first cut its last round."""
    outcomes = [[(7, 5, 6), (7, 0, 1), (7, 7, 8), (7, 5, 3)], [(7, 1, 2), (7, 2, 3)]]  # proposed, accepted, committed
    rounds = [[Round(*outcome, [0] * outcome[0], [0] * outcome[2]) for outcome in answer] for answer in outcomes]
    return [Generation([0] * (1 + sum(r.committed for r in answer)), answer) for answer in rounds]


def accepted_length(answers):
    """The mean number of committed tokens per round, over the rounds of all answers."""
    rounds = _rounds(answers)
    return sum(r.committed for r in rounds) / len(rounds)


def _rounds(answers) -> list[Round]:
    """The rounds of all answers."""
    return [r for found in answers for r in found.rounds]


def _mean(of_round, choose=_rounds):
    """A wrong function: the mean over the chosen rounds of another number of each."""
    return lambda answers: sum(map(of_round, choose(answers))) / len(choose(answers))


def _share(of_round):
    """A wrong function: the sum of a number of each round over the drafts proposed."""
    return lambda answers: sum(map(of_round, _rounds(answers))) / sum(r.proposed for r in _rounds(answers))


check_accepted_length = Exercise(accepted_length, Step([(example_answers(),)], {
    "you averaged the accepted drafts; the token that the target adds counts too":
        _mean(lambda r: r.accepted),
    "you added one to every round's accepted drafts; the end of an answer cuts the last round short, so read "
    "`committed`":
        _mean(lambda r: r.accepted + 1),
    "you averaged the drafts that were proposed: these are guesses, not tokens of the answer":
        (_mean(lambda r: r.proposed), _mean(lambda r: r.proposed + 1)),
    "`committed` holds the target's own token already: neither add nor subtract one":
        (_mean(lambda r: r.committed + 1), _mean(lambda r: r.committed - 1)),
    "that is the mean of the answers' own means; let every round weigh the same, whichever answer it belongs to":
        lambda answers: sum(accepted_length([found]) for found in answers) / len(answers),
    "you took the rounds of one answer only; tau is over the rounds of all":
        (lambda answers: accepted_length(answers[:1]), lambda answers: accepted_length(answers[-1:])),
    "you left out last rounds; a round that was cut short counts like any other":
        (_mean(lambda r: r.committed, lambda answers: _rounds(answers)[:-1]),
         _mean(lambda r: r.committed, lambda answers: [r for found in answers for r in found.rounds[:-1]])),
    "the first token of an answer comes from the prompt's own pass and belongs to no round":
        lambda answers: sum(len(found.token_ids) for found in answers) / len(_rounds(answers)),
    "tau is no whole number: divide with `/`, not with `//`":
        lambda answers: sum(r.committed for r in _rounds(answers)) // len(_rounds(answers)),
    "do not round tau: return all its digits":
        (lambda answers: round(accepted_length(answers), 1), lambda answers: round(accepted_length(answers), 2)),
    "return one number over all answers, not one for each":
        lambda answers: [accepted_length([found]) for found in answers],
    "that is the share of drafts accepted; divide by the number of rounds, not by the drafts proposed":
        _share(lambda r: r.accepted),
    "you divided the committed tokens by the drafts proposed; divide by the number of rounds":
        _share(lambda r: r.committed),
    "you divided by the number of answers; divide by the number of rounds":
        lambda answers: sum(r.committed for r in _rounds(answers)) / len(answers),
    "that is the number of tokens; divide by the number of rounds":
        lambda answers: sum(r.committed for r in _rounds(answers)),
    "that is rounds per token; turn the fraction over":
        lambda answers: len(_rounds(answers)) / sum(r.committed for r in _rounds(answers)),
}, "this is not tau, the tokens that rounds added to the answers, per round"))


def speedup(tau, draft, verify, plain):
    """How many times as fast as plain decoding speculation is."""
    return tau * plain / (draft + verify)


check_speedup = Exercise(speedup, Step([(4.0, 2.0, 6.0, 5.0), (3.0, 7.0, 4.0, 6.0), (1.5, 4.0, 6.0, 5.0)], {
    "speculation can also lose: leave a result below 1 as it is":
        lambda tau, draft, verify, plain: max(1.0, speedup(tau, draft, verify, plain)),
    "do not round the result: return all its digits":
        (lambda tau, draft, verify, plain: round(speedup(tau, draft, verify, plain), 1),
         lambda tau, draft, verify, plain: round(speedup(tau, draft, verify, plain), 2)),
    "the drafter and the target work one after the other: add their times, the longer one is not enough":
        lambda tau, draft, verify, plain: tau * plain / max(draft, verify),
    "you left out the time of drafting; a round costs draft and verify":
        lambda tau, draft, verify, plain: tau * plain / verify,
    "you left out the time of verifying; a round costs draft and verify":
        lambda tau, draft, verify, plain: tau * plain / draft,
    "`draft_seconds` is the time of the whole block, not of one draft":
        (lambda tau, draft, verify, plain: tau * plain / (tau * draft + verify),
         lambda tau, draft, verify, plain: tau * plain / (7 * draft + verify)),
    "one verification checks the whole block, so it is paid once per round, not once per token":
        lambda tau, draft, verify, plain: tau * plain / (draft + tau * verify),
    "a round has no plain pass besides: it costs draft and verify":
        lambda tau, draft, verify, plain: tau * plain / (draft + verify + plain),
    "verifying has a time of its own, `verify_seconds`: it reads more tokens than a plain pass":
        lambda tau, draft, verify, plain: tau * plain / (draft + plain),
    "a round gives tau tokens, not one":
        lambda tau, draft, verify, plain: plain / (draft + verify),
    "a round gives tau tokens: multiply by tau, do not divide":
        lambda tau, draft, verify, plain: plain / (draft + verify) / tau,
    "tau already counts the token that the target adds: do not add one":
        lambda tau, draft, verify, plain: (tau + 1) * plain / (draft + verify),
    "tau counts the token that the target adds; all of tau is gained, not tau - 1":
        lambda tau, draft, verify, plain: (tau - 1) * plain / (draft + verify),
    "how many times as fast is asked for, not how much faster: 1 means no gain":
        (lambda tau, draft, verify, plain: tau * plain / (draft + verify) - 1,
         lambda tau, draft, verify, plain: 100 * (tau * plain / (draft + verify) - 1)),
    "that is the time saved per token; divide the two times":
        lambda tau, draft, verify, plain: plain - (draft + verify) / tau,
    "that is the time saved per round; divide the two times":
        lambda tau, draft, verify, plain: tau * plain - (draft + verify),
    "that is tokens per second with speculation; divide it by plain decoding's, one token per `plain_seconds`":
        lambda tau, draft, verify, plain: tau / (draft + verify),
    "that is a round in plain passes; it brings tau tokens, for which plain decoding needs tau passes":
        lambda tau, draft, verify, plain: (draft + verify) / plain,
    "tau alone is the gain only if a round takes as long as a plain pass; it takes draft and verify":
        lambda tau, draft, verify, plain: tau,
    "put the sum of draft and verify into brackets: `/` binds more closely than `+`":
        lambda tau, draft, verify, plain: tau * plain / draft + verify,
    "that is the time of one token; the speed-up is plain decoding's time of one token over it":
        lambda tau, draft, verify, plain: (draft + verify) / tau,
    "that is how many times slower; turn the fraction over":
        lambda tau, draft, verify, plain: (draft + verify) / (tau * plain),
}, "write the seconds of one token with plain decoding over those with speculation"))
