"""Checkers of lesson 12: the macro-average, a paired resample, conditional acceptance, what a gain is worth in time, and
the ledger's verdict."""

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
    "you divided by three: there are as many domains as `tallies` has keys.":
        over_domains(length, lambda lengths: sum(lengths) / 3),
    "that is the median over the domains, not the mean.":
        over_domains(length, np.median),
    "you divided rounds by tokens; it is tokens per round.":
        over_domains(lambda tally: 1 / length(tally)),
}, "it is not the mean over domains of (committed tokens / rounds)."))


def gain(ours, theirs):
    """How much longer ours accepts than theirs, as a fraction."""
    return length(ours) / length(theirs) - 1


def resampled_gain(ours, theirs, index):
    """The gain, a fraction, on the prompts `index`; both tallies are [N, 2]."""
    return gain(ours[index], theirs[index])


OURS = np.array([[40.0, 5.0], [30.0, 10.0], [9.0, 3.0]])
THEIRS = np.array([[40.0, 10.0], [30.0, 12.0], [9.0, 2.0]])
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
        lambda ours, theirs, index: by_prompt(ours[index]) / by_prompt(theirs[index]) - 1,
    "those are percent; the answer is a fraction.":
        lambda ours, theirs, index: 100 * resampled_gain(ours, theirs, index),
    "those are tokens alone; an accepted length is tokens over rounds.":
        lambda ours, theirs, index: ours[index][:, 0].sum() / theirs[index][:, 0].sum() - 1,
    "the ratio is upside down: ours over theirs.":
        lambda ours, theirs, index: resampled_gain(theirs, ours, index),
}, "it is not (our tokens per round) / (their tokens per round) - 1 on the prompts drawn."))


def shares(share):
    """An answer from `share(accepted, k)` for k = 1, ..., gamma."""
    return lambda accepted, gamma: np.array([share(accepted, k) for k in range(1, gamma + 1)])


def accepted_at(accepted, k):
    """Of the rounds that reached position k, the share that accepted it."""
    return (accepted >= k).sum() / (accepted >= k - 1).sum()


def conditional_acceptance(accepted, gamma):
    """By position [gamma], from the accepted drafts of each round [R]."""
    return shares(accepted_at)(accepted, gamma)


check_conditional_acceptance = Exercise(conditional_acceptance, Step([(np.array([0, 1, 1, 2, 3, 3, 3, 3]), gamma) for gamma in (3, 2)], {
    "that is the prefix survival, the share of all rounds that keep a draft at k. Conditional acceptance counts only the "
    "rounds that came as far as k.":
        shares(lambda accepted, k: (accepted >= k).mean()),
    "that is the share of rounds that end with exactly k accepted.":
        shares(lambda accepted, k: (accepted == k).mean()),
    "that is the share refused; acceptance is what is left.":
        shares(lambda accepted, k: 1 - accepted_at(accepted, k)),
    "you divided by the rounds that kept the draft at k; k was reached where the k - 1 before it were kept.":
        shares(lambda accepted, k: (accepted >= k).sum() / (accepted >= k).sum()),
    "positions are shifted by one: position k was reached where k - 1 drafts were accepted, and kept where k were.":
        (shares(lambda accepted, k: (accepted >= k - 1).sum() / (accepted >= max(k - 2, 0)).sum()),
         shares(lambda accepted, k: (accepted >= k + 1).sum() / (accepted >= k).sum())),
    "that is the share refused after position k was kept; count the rounds with at least k, and divide by those that reached k.":
        shares(lambda accepted, k: (accepted == k).sum() / (accepted >= k).sum()),
    "there is one rate for each position 1, ..., gamma, so gamma of them.":
        (lambda accepted, gamma: conditional_acceptance(accepted, gamma - 1),
         lambda accepted, gamma: conditional_acceptance(accepted, gamma + 1)),
}, "it is not, for each position k, (rounds with at least k accepted) / (rounds with at least k - 1 accepted)."))


def net_gain(gain, overhead):
    """How much faster tokens come, rounds committing `gain` more and taking `overhead` longer."""
    return (1 + gain) / (1 + overhead) - 1


check_net_gain = Exercise(net_gain, Step([(0.3, 0.25)], {
    "a difference of percents is right for small ones only: speed is tokens over time, so divide.":
        lambda gain, overhead: gain - overhead,
    "the ratio is upside down: time over tokens.":
        lambda gain, overhead: net_gain(overhead, gain),
    "both are fractions of what was there before: 1 + gain times the tokens in 1 + overhead times the time.":
        lambda gain, overhead: gain / overhead,
    "one is still to be taken off: a ratio of 1 is a gain of 0.":
        lambda gain, overhead: (1 + gain) / (1 + overhead),
    "a longer round makes it slower, not faster.":
        lambda gain, overhead: (1 + gain) * (1 + overhead) - 1,
    "time that is `overhead` longer divides: times (1 - overhead) is right for small ones only.":
        lambda gain, overhead: (1 + gain) * (1 - overhead) - 1,
    "the extra time slows all tokens, not the gained ones alone.":
        lambda gain, overhead: gain / (1 + overhead),
    "those are percent; the answer is a fraction.":
        lambda gain, overhead: 100 * net_gain(gain, overhead),
}, "it is not (1 + gain) / (1 + overhead) - 1."))


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
}, 'it is not "replicates" where all margins lie above zero, else "the other way round" where one lies below, else "we cannot tell".',
    read=place_among))
