"""Checkers of lesson 12: the macro-average, a paired resample, conditional acceptance, and what a gain is worth in
time."""

import numpy as np

from .checking import checker, finished, name_mistake


def _length(tally: np.ndarray) -> float:
    return tally[:, 0].sum() / tally[:, 1].sum()


@checker
def check_macro_average(macro_average):
    """`macro_average(tallies)`: the accepted length over domains, from {domain: [N, 2] committed tokens and rounds}."""
    # Domains of different sizes, prompts of different lengths, so that every other way to average gives another number.
    tallies = {"math": np.array([[60.0, 10.0], [7.0, 1.0]]), "chat": np.array([[60.0, 30.0], [12.0, 4.0], [3.0, 3.0]])}
    pooled = np.concatenate(list(tallies.values()))
    name_mistake(finished(macro_average(tallies)), np.mean([_length(tally) for tally in tallies.values()]), {
        "you pooled the rounds of all domains, so the one with the most rounds decides; average the domains, each with "
        "the same weight.": _length(pooled),
        "you averaged the accepted lengths of prompts, so a prompt of one round weighs as much as one of thirty; within "
        "a domain divide all its tokens by all its rounds.":
            np.mean([(tally[:, 0] / tally[:, 1]).mean() for tally in tallies.values()]),
        "you averaged over the prompts of all domains.": (pooled[:, 0] / pooled[:, 1]).mean(),
        "the bonus is missing: committed tokens include the one that the target adds, and so does the accepted length.":
            np.mean([_length(tally) - 1 for tally in tallies.values()]),
        "that is the sum over the domains; divide by how many there are.":
            np.sum([_length(tally) for tally in tallies.values()]),
        "you divided rounds by tokens; it is tokens a round.":
            np.mean([1 / _length(tally) for tally in tallies.values()]),
    }, "it is not the mean over domains of (committed tokens / rounds).")


@checker
def check_resampled_gain(resampled_gain):
    """`resampled_gain(ours, theirs, index)`: the gain, a fraction, on the prompts `index`; both tallies are [N, 2]."""
    ours, theirs = np.array([[40.0, 5.0], [30.0, 10.0], [9.0, 3.0]]), np.array([[40.0, 10.0], [30.0, 12.0], [9.0, 2.0]])
    index = np.array([0, 0, 2])
    right = _length(ours[index]) / _length(theirs[index]) - 1
    name_mistake(finished(resampled_gain(ours, theirs, index)), right, {
        "their prompts were not redrawn: the same index belongs to both, that is what pairs them.":
            _length(ours[index]) / _length(theirs) - 1,
        "our prompts were not redrawn: the same index belongs to both, that is what pairs them.":
            _length(ours) / _length(theirs[index]) - 1,
        "nothing was redrawn: take the rows that `index` names, repeated ones as often as they stand there.":
            _length(ours) / _length(theirs) - 1,
        "each prompt was taken once; a prompt that `index` names twice counts twice.":
            _length(ours[np.unique(index)]) / _length(theirs[np.unique(index)]) - 1,
        "that is a difference in tokens a round; the gain is a ratio minus one.":
            _length(ours[index]) - _length(theirs[index]),
        "one is still to be taken off: a ratio of 1 is a gain of 0.": right + 1,
        "the ratio is upside down: ours over theirs.": _length(theirs[index]) / _length(ours[index]) - 1,
    }, "it is not (our tokens a round) / (their tokens a round) - 1 on the prompts drawn.")


@checker
def check_conditional_acceptance(conditional_acceptance):
    """`conditional_acceptance(accepted, gamma)`: by position [gamma], from the accepted drafts of each round [R]."""
    accepted, gamma = np.array([0, 1, 1, 2, 3, 3, 3, 3]), 3
    kept = np.array([(accepted >= k).sum() for k in range(1, gamma + 1)])
    reached = np.array([(accepted >= k - 1).sum() for k in range(1, gamma + 1)])
    name_mistake(finished(conditional_acceptance(accepted, gamma)), kept / reached, {
        "that is the prefix survival, the share of all rounds that keep a draft at k. Conditional acceptance counts "
        "only the rounds that came as far as k.": kept / len(accepted),
        "that is the share of rounds that end with exactly k accepted.":
            np.array([(accepted == k).mean() for k in range(1, gamma + 1)]),
        "that is the share refused; acceptance is what is left.": 1 - kept / reached,
        "you divided by the rounds that kept the draft at k; k was reached where the k - 1 before it were kept.":
            kept / kept,
        "positions are shifted by one: position k was reached where k - 1 drafts were accepted, and kept where k were.":
            np.array([(accepted >= k).mean() / (accepted >= max(k - 1, 0)).mean() for k in range(gamma)]),
    }, "it is not, for each position k, (rounds with at least k accepted) / (rounds with at least k - 1 accepted).")


@checker
def check_net_gain(net_gain):
    """`net_gain(gain, overhead)`: how much faster tokens come, rounds committing `gain` more and taking `overhead` longer."""
    gain, overhead = 0.3, 0.25
    name_mistake(finished(net_gain(gain, overhead)), (1 + gain) / (1 + overhead) - 1, {
        "a difference of percents is right for small ones only: speed is tokens over time, so divide.": gain - overhead,
        "the ratio is upside down: time over tokens.": (1 + overhead) / (1 + gain) - 1,
        "both are fractions of what was there before: 1 + gain times the tokens in 1 + overhead times the time.":
            gain / overhead,
        "one is still to be taken off: a ratio of 1 is a gain of 0.": (1 + gain) / (1 + overhead),
        "a longer round makes it slower, not faster.": (1 + gain) * (1 + overhead) - 1,
    }, "it is not (1 + gain) / (1 + overhead) - 1.")
