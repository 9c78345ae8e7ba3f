"""Checkers of lesson 12: the macro-average, a paired resample, what a suspected cause is worth, and the ledger's verdict."""

import numpy as np

from .checking import Exercise, Step


def length(tally):
    """The accepted length of a tally [N, 2] of committed tokens and rounds."""
    return tally[:, 0].sum() / tally[:, 1].sum()


def over_domains(value, combine=np.mean):
    """An answer that combines `value(tally)` over the domains."""
    return lambda tallies: combine([value(tally) for tally in tallies.values()])


def pooled(tallies):
    """All prompts of all domains."""
    return np.concatenate(list(tallies.values()))


def by_prompt(tally):
    """The mean over prompts of their accepted lengths."""
    return (tally[:, 0] / tally[:, 1]).mean()


def macro_average(tallies):
    """The accepted length over domains, from {domain: [N, 2] committed tokens and rounds}."""
    return over_domains(length)(tallies)


# Four domains of different sizes, prompts of different lengths: every other way to average gives another number.
TALLIES = {"math": np.array([[60.0, 10.0], [7.0, 1.0]]), "code": np.array([[45.0, 9.0], [8.0, 5.0]]),
           "chat": np.array([[60.0, 30.0], [12.0, 4.0], [3.0, 3.0]]), "news": np.array([[20.0, 13.0]])}
check_macro_average = Exercise(macro_average, Step([(TALLIES,)], {
    "you pooled the rounds of all domains, so the one with the most rounds decides; average the domains, each with the "
    "same weight.":
        lambda tallies: length(pooled(tallies)),
    "you averaged the accepted lengths of prompts, so a prompt of one round weighs as much as one of thirty; within a "
    "domain divide all its tokens by all its rounds.":
        over_domains(by_prompt),
    "you averaged over the prompts of all domains.":
        lambda tallies: by_prompt(pooled(tallies)),
    "the bonus is missing: committed tokens include the one that the target adds, and so does the accepted length.":
        over_domains(lambda tally: length(tally) - 1),
    "that is the sum over the domains; divide by how many there are.":
        over_domains(length, sum),
    "you divided by three: there are as many domains as `by_domain` has keys.":
        over_domains(length, lambda lengths: sum(lengths) / 3),
    "that is the median over the domains, not the mean.":
        over_domains(length, np.median),
    "you divided rounds by tokens; it is tokens per round.":
        over_domains(lambda tally: 1 / length(tally)),
    "that is the harmonic mean over the domains, not the mean.":
        over_domains(length, lambda lengths: len(lengths) / sum(1 / one for one in lengths)),
}, 'try it on {"math": [[8, 2]], "chat": [[2, 1], [2, 1]]}, as arrays: the domains have 4 and 2 tokens per round, so 3.0 is right.'))


def gain(ours, theirs):
    """How much longer ours accepts than theirs, as a fraction."""
    return length(ours) / length(theirs) - 1


def resampled_gain(ours, theirs, index):
    """The gain, a fraction, on the prompts `index`; both tallies are [N, 2]."""
    return gain(ours[index], theirs[index])


OURS = np.array([[40.0, 5.0], [30.0, 10.0], [9.0, 3.0]])
THEIRS = np.array([[36.0, 10.0], [30.0, 12.0], [9.0, 2.0]])
check_resampled_gain = Exercise(resampled_gain, Step([(OURS, THEIRS, np.array([0, 0, 2]))], {
    "their prompts were not redrawn: the same index belongs to both, that is what pairs them.":
        lambda ours, theirs, index: gain(ours[index], theirs),
    "our prompts were not redrawn: the same index belongs to both, that is what pairs them.":
        lambda ours, theirs, index: gain(ours, theirs[index]),
    "nothing was redrawn: take the rows that `index` names, repeated ones as often as they stand there.":
        lambda ours, theirs, index: gain(ours, theirs),
    "each prompt was taken once; a prompt that `index` names twice counts twice.":
        lambda ours, theirs, index: resampled_gain(ours, theirs, np.unique(index)),
    "that is a difference in tokens per round; the gain is a ratio minus one.":
        lambda ours, theirs, index: length(ours[index]) - length(theirs[index]),
    "one is still to be taken off: a ratio of 1 is a gain of 0.":
        lambda ours, theirs, index: length(ours[index]) / length(theirs[index]),
    "you averaged the accepted lengths of prompts; divide all tokens drawn by all their rounds.":
        (lambda ours, theirs, index: by_prompt(ours[index]) / by_prompt(theirs[index]) - 1,
         lambda ours, theirs, index: np.mean((ours[index, 0] / ours[index, 1]) / (theirs[index, 0] / theirs[index, 1])) - 1),
    "you divided the difference by ours; the gain is over theirs, so divide by theirs.":
        lambda ours, theirs, index: 1 - length(theirs[index]) / length(ours[index]),
    "those are percent; the answer is a fraction.":
        lambda ours, theirs, index: 100 * resampled_gain(ours, theirs, index),
    "those are tokens alone; an accepted length is tokens over rounds.":
        lambda ours, theirs, index: ours[index][:, 0].sum() / theirs[index][:, 0].sum() - 1,
    "the ratio is upside down: ours over theirs.":
        lambda ours, theirs, index: resampled_gain(theirs, ours, index),
    "each drafter's tokens go with its own rounds; you divided them by the other's.":
        lambda ours, theirs, index: (ours[index][:, 0].sum() / theirs[index][:, 1].sum()) / (theirs[index][:, 0].sum() / ours[index][:, 1].sum()) - 1,
}, "both drafters are read on the prompts of `index`, and on no others. Try it on ours [[6, 1], [4, 2]], theirs [[4, 1], [6, 3]] and index "
   "[0, 0], as arrays: 6 tokens per round against 4, so 0.5 is right."))


def implied(rates):
    """The accepted length that conditional acceptance [gamma] implies, the bonus included."""
    return 1 + np.cumprod(rates).sum()


def exchanged(rates, other, positions, counted_from=1):
    """The rates [gamma] with those at `positions` taken from the other's."""
    rates, places = np.array(rates), np.array(positions) - counted_from
    rates[places] = np.array(other)[places]
    return rates


def repaired(rates, other, positions):
    """The accepted length that the rates [gamma] imply once those at `positions` (1 is the first) are the other's."""
    return implied(exchanged(rates, other, positions))


check_repaired = Exercise(repaired, Step([(np.array([0.5, 0.9, 0.6, 0.8]), np.array([0.8, 0.7, 0.9, 0.4]), positions)
                                      for positions in ([1, 3], [2])], {
    "positions count from 1, places in an array from 0: position 1 stands at place 0.":
        lambda rates, other, positions: implied(exchanged(rates, other, positions, counted_from=0)),
    "nothing was repaired: put the other's rates at the named positions.":
        lambda rates, other, positions: implied(rates),
    "you took all of the other's rates; only those at the named positions.":
        lambda rates, other, positions: implied(other),
    "you took the other's rates and put ours at the named positions; it is the other way round.":
        lambda rates, other, positions: repaired(other, rates, positions),
    "you repaired the first of the positions alone.":
        lambda rates, other, positions: repaired(rates, other, positions[:1]),
    "you made the drafts there certain; this suspect is worth no more than the other's rates, so take those.":
        lambda rates, other, positions: repaired(rates, np.ones(len(rates)), positions),
    "the target's own token is missing: a round commits one more than it accepts.":
        lambda rates, other, positions: repaired(rates, other, positions) - 1,
    "a draft is kept only if all before it are, so multiply along the block and add up the products; you added up the rates.":
        (lambda rates, other, positions: 1 + exchanged(rates, other, positions).sum(),
         lambda rates, other, positions: exchanged(rates, other, positions).sum()),
    "that is the chance that the whole block is kept; add up the products of all prefixes.":
        (lambda rates, other, positions: np.prod(exchanged(rates, other, positions)),
         lambda rates, other, positions: 1 + np.prod(exchanged(rates, other, positions))),
    "those are the rates; what accepted length do they imply?":
        lambda rates, other, positions: exchanged(rates, other, positions),
    "that is a gain; return the accepted length.":
        lambda rates, other, positions: repaired(rates, other, positions) / implied(rates) - 1,
}, "try it on the rates [0.5, 0.5], the other's [1.0, 0.5] (arrays) and positions [1]: the rates become [1.0, 0.5], so 2.5 is right."))


REPLICATES, OTHER_WAY, UNDECIDED = VERDICTS = ("replicates", "the other way round", "we cannot tell")


def place_among(answer):
    """The verdict's place among the three; -1 for another word."""
    return VERDICTS.index(answer) if answer in VERDICTS else -1


def judged(holds, turned):
    """A verdict from whether the claim holds and whether it is turned round, both of the bounds [M, 2]."""
    return lambda bounds: REPLICATES if holds(bounds) else OTHER_WAY if turned(bounds) else UNDECIDED


def above(bounds):
    """Whether all margins lie above zero."""
    return bool((bounds[:, 0] > 0).all())


def below(bounds):
    """Whether a margin lies below zero."""
    return bool((bounds[:, 1] < 0).any())


def straddles(bounds):
    """Whether an interval holds zero."""
    return bool(((bounds[:, 0] <= 0) & (bounds[:, 1] >= 0)).any())


def verdict(bounds):
    """What becomes of a claim, by the bounds [M, 2] of its margins' intervals."""
    return judged(above, below)(bounds)


BOUNDS = [np.array(bounds) for bounds in (
    [[0.1, 0.3], [0.2, 0.5]], [[0.1, 0.3], [-0.1, 0.6]], [[0.1, 0.3], [-0.5, -0.1]], [[-0.3, 0.2], [-0.5, -0.1]], [[-0.4, 0.1]],
    [[0.0, 0.4], [0.1, 0.2]], [[-0.1, 0.0]], [[-0.4, -0.1]], [[-0.9, -0.1], [-0.2, 0.5], [0.3, 0.6]])]
check_verdict = Exercise(verdict, Step([(bounds,) for bounds in BOUNDS], {
    "a claim holds where *all* of its margins lie above zero; one that does not is enough to refute it.":
        judged(lambda bounds: (bounds[:, 0] > 0).any(), below),
    "you judge by the middle of an interval; above zero means the whole interval, so its lower end.":
        judged(lambda bounds: (bounds.mean(1) > 0).all(), below),
    "you judge by the middle of an interval; above or below zero means all of it, so its lower or its upper end.":
        judged(lambda bounds: (bounds.mean(1) > 0).all(), lambda bounds: (bounds.mean(1) < 0).any()),
    "you judge by the upper end of a single margin; a claim holds where the lower ends of *all* its margins lie above zero.":
        judged(lambda bounds: (bounds[:, 1] > 0).any(), below),
    "an interval that holds zero does not stop you: where another margin lies below zero, the claim is the other way round.":
        lambda bounds: REPLICATES if above(bounds) else UNDECIDED if straddles(bounds) else OTHER_WAY,
    "you judge by the upper end; above zero means the whole interval, so its lower end.":
        judged(lambda bounds: (bounds[:, 1] > 0).all(), below),
    "an interval that touches zero holds it: nothing but more than zero is above.":
        judged(lambda bounds: (bounds[:, 0] >= 0).all(), below),
    "an interval that ends at zero holds it: nothing but less than zero is below.":
        judged(above, lambda bounds: (bounds[:, 1] <= 0).any()),
    "one margin below zero turns a claim round; not all of them have to be.":
        judged(above, lambda bounds: (bounds[:, 1] < 0).all()),
    "a margin is the other way round where its whole interval lies below zero, so its upper end; the lower end alone says little.":
        judged(above, lambda bounds: (bounds[:, 0] < 0).any()),
    "there are three verdicts: where no margin lies below zero and not all lie above, we cannot tell.":
        judged(above, lambda bounds: not above(bounds)),
    "where a whole interval lies below zero the claim is the other way round; that we can tell.":
        judged(above, lambda bounds: False),
}, 'try it on [[0.1, 0.2], [-0.1, 0.2]], an array: the second interval holds zero and none lies below, so "we cannot tell" is right.',
    read=place_among))
