"""Checkers of lesson 12: a paired resample, the verdict on a claim, and five verdicts made beforehand."""

import numpy as np
import torch

from ..checkers.checking import Comparison, Exercise, Mistake, Unfinished, finished
from ..checkers.random_cases import Cases, number


def length(tally):
    """Return the accepted length of a tally [N, 2] of committed tokens and rounds."""
    return tally[:, 0].sum() / tally[:, 1].sum()


def by_prompt(tally):
    """Return the mean over prompts of their accepted lengths."""
    return (tally[:, 0] / tally[:, 1]).mean()


def gain(ours, theirs):
    """Return how much longer ours accepts than theirs, as a fraction."""
    return length(ours) / length(theirs) - 1


def resampled_gain(ours, theirs, index):
    """Return the gain, a fraction, on the prompts `index`; both tallies are [N, 2]."""
    return gain(ours[index], theirs[index])


OURS = np.array([[40.0, 5.0], [30.0, 10.0], [9.0, 3.0]])
THEIRS = np.array([[36.0, 10.0], [30.0, 12.0], [9.0, 2.0]])


def tallies_case(generator):
    """Draw two drafters on two to eight prompts, and a resample of these."""
    prompts = number(generator, 2, 8)

    def tally():
        rounds = torch.randint(1, 30, (prompts,), generator=generator).double()
        more = torch.randint(0, 90, (prompts,), generator=generator)
        return torch.stack([rounds + more, rounds], 1).numpy()

    return tally(), tally(), torch.randint(prompts, (prompts,), generator=generator).numpy()


check_resampled_gain = Exercise(
    resampled_gain,
    Comparison(
        Cases([(OURS, THEIRS, np.array([0, 0, 2]))], tallies_case),
        {
            "both are read on the rows that `index` names, repeated ones as often as they stand there: that is what pairs them.": (
                lambda ours, theirs, index: gain(ours[index], theirs),
                lambda ours, theirs, index: gain(ours, theirs[index]),
                lambda ours, theirs, index: gain(ours, theirs),
            ),
            "each prompt was taken once; a prompt that `index` names twice counts twice.": lambda ours, theirs, index: (
                resampled_gain(ours, theirs, np.unique(index))
            ),
            "that is a difference in tokens per round; the gain is a ratio minus one.": lambda ours, theirs, index: (
                length(ours[index]) - length(theirs[index])
            ),
            "one is still to be taken off: a ratio of 1 is a gain of 0.": lambda ours, theirs, index: (
                length(ours[index]) / length(theirs[index])
            ),
            "those are tokens alone; the accepted length is tokens over rounds.": (
                lambda ours, theirs, index: ours[index, 0].sum() / theirs[index, 0].sum() - 1,
                lambda ours, theirs, index: ours[index, 0].sum() - theirs[index, 0].sum(),
            ),
            "those are rounds alone; the accepted length is tokens over rounds.": (
                lambda ours, theirs, index: ours[index, 1].sum() / theirs[index, 1].sum() - 1,
                lambda ours, theirs, index: theirs[index, 1].sum() / ours[index, 1].sum() - 1,
            ),
            "you added tokens and rounds; sum each column by itself, then divide.": (
                lambda ours, theirs, index: ours[index].sum() / theirs[index].sum() - 1
            ),
            "you averaged the accepted lengths of prompts; divide all tokens drawn by all their rounds.": (
                lambda ours, theirs, index: by_prompt(ours[index]) / by_prompt(theirs[index]) - 1,
                lambda ours, theirs, index: (
                    np.mean(
                        (ours[index, 0] / ours[index, 1]) / (theirs[index, 0] / theirs[index, 1])
                    )
                    - 1
                ),
            ),
            "you divided the difference by ours; the gain is over theirs, so divide by theirs.": lambda ours, theirs, index: (
                1 - length(theirs[index]) / length(ours[index])
            ),
            "those are percent; the answer is a fraction.": lambda ours, theirs, index: (
                100 * resampled_gain(ours, theirs, index)
            ),
            "the ratio is upside down: ours over theirs.": lambda ours, theirs, index: (
                resampled_gain(theirs, ours, index)
            ),
        },
        "both drafters are read on the prompts of `index`, and on no others. Try it on ours [[6, 1], [4, 2]], theirs [[4, 1], [6, 3]] and index "
        "[0, 0], as arrays: 6 tokens per round against 4, so 0.5 is right.",
    ),
)


REPLICATES, DOES_NOT_HOLD, UNDECIDED = VERDICTS = ("replicates", "does not hold", "we cannot tell")


def judged(holds, turned):
    """Return a verdict from whether the claim holds and whether it is turned round, both of the
    bounds [M, 2]."""
    return lambda bounds: (
        REPLICATES if holds(bounds) else DOES_NOT_HOLD if turned(bounds) else UNDECIDED
    )


def above(bounds):
    """Return whether all intervals lie above zero."""
    return bool((bounds[:, 0] > 0).all())


def below(bounds):
    """Return whether an interval lies below zero."""
    return bool((bounds[:, 1] < 0).any())


def straddles(bounds):
    """Return whether an interval holds zero."""
    return bool(((bounds[:, 0] <= 0) & (bounds[:, 1] >= 0)).any())


def verdict(bounds):
    """Return what becomes of a claim, by the ends [M, 2] of its intervals."""
    return judged(above, below)(bounds)


BOUNDS = [
    np.array(bounds)
    for bounds in (
        [[0.1, 0.3], [0.2, 0.5]],
        [[0.1, 0.3], [-0.1, 0.6]],
        [[0.1, 0.3], [-0.5, -0.1]],
        [[-0.3, 0.2], [-0.5, -0.1]],
        [[-0.4, 0.1]],
        [[0.0, 0.4], [0.1, 0.2]],
        [[-0.1, 0.0]],
        [[-0.4, -0.1]],
        [[-0.9, -0.1], [-0.2, 0.5], [0.3, 0.6]],
    )
]


def bounds_case(generator):
    """Return one to four intervals, many of which end at zero."""
    count = number(generator, 1, 4)
    middles = torch.randint(-4, 7, (count,), generator=generator).double() / 4
    halves = torch.randint(0, 5, (count,), generator=generator).double() / 4
    return (torch.stack([middles - halves, middles + halves], 1).numpy(),)


def known_verdict(answer):
    """Return the place of a verdict among the three."""
    if isinstance(answer, str) and answer in VERDICTS:
        return VERDICTS.index(answer)
    named = ", ".join(f"'{verdict}'" for verdict in VERDICTS)
    shown = repr(answer) if isinstance(answer, str) else f"a {type(answer).__name__}"
    raise Mistake(f"{shown} is none of the three verdicts; they are {named}.")


check_verdict = Exercise(
    verdict,
    Comparison(
        Cases([(bounds,) for bounds in BOUNDS], bounds_case),
        {
            "a claim holds where *all* of its intervals lie above zero; one that does is not enough.": judged(
                lambda bounds: (bounds[:, 0] > 0).any(), below
            ),
            "you judge by the middle of an interval; above or below zero means all of it, so its lower or its upper end.": judged(
                lambda bounds: (bounds.mean(1) > 0).all(), lambda bounds: (bounds.mean(1) < 0).any()
            ),
            "an interval that holds zero does not stop you: where another one lies below zero, the claim does not hold.": lambda bounds: (
                REPLICATES if above(bounds) else UNDECIDED if straddles(bounds) else DOES_NOT_HOLD
            ),
            "you judge by the upper end; above zero means the whole interval, so its lower end.": judged(
                lambda bounds: (bounds[:, 1] > 0).all(), below
            ),
            "an interval that touches zero holds it: nothing but more than zero is above.": judged(
                lambda bounds: (bounds[:, 0] >= 0).all(), below
            ),
            "an interval that ends at zero holds it: nothing but less than zero is below.": judged(
                above, lambda bounds: (bounds[:, 1] <= 0).any()
            ),
            "one interval below zero is enough for a claim not to hold; not all of them have to be.": judged(
                above, lambda bounds: (bounds[:, 1] < 0).all()
            ),
            "an interval lies below zero if all of it does, so look at its upper end; the lower end alone says little.": judged(
                above, lambda bounds: (bounds[:, 0] < 0).any()
            ),
            "there are three verdicts: where no interval lies below zero and not all lie above, we cannot tell.": judged(
                above, lambda bounds: not above(bounds)
            ),
            "where a whole interval lies below zero the claim does not hold; that we can tell.": judged(
                above, lambda bounds: False
            ),
        },
        'try it on [[0.1, 0.2], [-0.1, 0.2]], an array: the second interval holds zero and none lies below, so "we cannot tell" is right.',
        read=known_verdict,
    ),
)


CLAIMS = range(1, 6)  # the numbers of the five claims
BELIEFS = {  # (claim, wrong verdict): what whoever says so believes
    (1, DOES_NOT_HOLD): "you expect a small target to undo the paper's main effect.",
    (1, UNDECIDED): "you expect an effect that drowns in noise; this one is 30 % and more.",
    (2, DOES_NOT_HOLD): "you take a small lead for none.",
    (2, UNDECIDED): "you take a small lead for an unsure one; what counts is whether its interval "
    "reaches zero.",
    (3, REPLICATES): "you take the order of the domains for a trait of the drafter; it is one of "
    "the texts.",
    (3, UNDECIDED): "you expect a near tie; our code is far easier to guess than our math.",
    (4, REPLICATES): "you expect more layers to win, whatever else differs.",
    (4, UNDECIDED): "you wait for both intervals to lie below zero; one is enough.",
    (5, REPLICATES): "you expect a draft that sees its own tokens to improve along every block.",
    (5, DOES_NOT_HOLD): "you take 'not shown' for 'refuted'; the interval holds zero.",
}


def score(forecast, found) -> int:
    """Print the reader's verdict on each of the five claims beside what was found, and what a wrong
    one believes; return how many are right. Both are {1: verdict, ..., 5: verdict}."""
    try:
        if not isinstance(forecast, dict):
            raise Mistake("a forecast is a dictionary, {1: verdict, ..., 5: verdict}.")
        mine = {claim: finished(forecast.get(claim)) for claim in CLAIMS}
        for verdict in mine.values():
            known_verdict(verdict)
    except Unfinished:
        print("Not done yet: fill in a verdict for each of the five claims, then run on.")
        return 0
    except Mistake as mistake:
        print(f"Not yet: {mistake}")
        return 0
    for claim, verdict in mine.items():
        reply = f"You said {verdict!r}: {BELIEFS.get((claim, verdict), '')}"
        print(f"{claim}  {found[claim]}. {'As you said.' if verdict == found[claim] else reply}")
    right = sum(found[claim] == verdict for claim, verdict in mine.items())
    print(f"{right} of {len(CLAIMS)} right.")
    return right
