"""Checkers of lesson 13: a search for a learning rate, a gain on redrawn trainings and prompts, the head's share of a gain, and a loss
judged on other turns than those that chose the rival."""

import numpy as np

from .checking import Exercise, Step
from .lesson_12 import length


def search(loss_at, rate):
    """The first rate, doubling from `rate`, whose double has no lower loss."""
    while loss_at(2 * rate) < loss_at(rate):
        rate *= 2
    return rate


def doublings(rate, most):
    """`rate` and its doubles, so many of them."""
    return [rate * 2**step for step in range(most)]


# Losses by rate: the second and the third fall again after they have risen, the third begins at its best, the first dents at 3.
# All end above where they began, so that a search which compares with the first loss comes to an end and is named.
CURVES = [{1: 5.0, 2: 4.0, 3: 4.5, 4: 3.5, 8: 3.6, 16: 4.0, 32: 5.0, 64: 7.0},
          {1: 5.0, 2: 4.0, 4: 3.5, 8: 3.1, 16: 3.2, 32: 2.9, 64: 7.0},
          {1: 3.0, 2: 3.5, 4: 2.8, 8: 4.0, 16: 4.0, 32: 4.0, 64: 7.0},
          {1: 6.0, 2: 5.0, 4: 4.0, 8: 3.0, 16: 2.0, 32: 2.5, 64: 7.0},
          {1: 5.0, 2: 4.0, 4: 4.0, 8: 3.0, 16: 3.5, 32: 4.0, 64: 7.0}]
CASES = [(lambda rate, curve=curve: float(np.interp(rate, list(curve), list(curve.values()))), 1) for curve in CURVES]
check_search = Exercise(search, Step(CASES, {
    "that is the rate that was one doubling too many: its loss is no lower. Return the one before it.":
        lambda loss_at, rate: 2 * search(loss_at, rate),
    "you compare each loss with that of the first rate; compare it with that of the rate before.":
        lambda loss_at, rate: next(tried for tried in doublings(rate, 20) if loss_at(2 * tried) >= loss_at(rate)),
    "you stopped after one doubling; go on for as long as the loss falls.":
        lambda loss_at, rate: 2 * rate if loss_at(2 * rate) < loss_at(rate) else rate,
    "that is the best of all rates that there are; each costs a training, so stop at the first doubling that does not lower the loss.":
        lambda loss_at, rate: min(doublings(rate, 6), key=loss_at),
    "a double with the same loss is no better; go on only while the loss falls.":
        lambda loss_at, rate: next(tried for tried in doublings(rate, 20) if loss_at(2 * tried) > loss_at(tried)),
    "that is the loss; return the rate.":
        lambda loss_at, rate: loss_at(search(loss_at, rate)),
    "you look for the highest loss; a lower one is better.":
        (lambda loss_at, rate: max(doublings(rate, 6), key=loss_at),
         lambda loss_at, rate: search(lambda tried: -loss_at(tried), rate)),
    "you add the first rate each time; double the last one, so that few trainings cross a wide range.":
        lambda loss_at, rate: next(step * rate for step in range(1, 40) if loss_at((step + 1) * rate) >= loss_at(step * rate)),
    "that is the first rate; go on to its double while the loss falls.":
        lambda loss_at, rate: rate,
}, "it is not the first rate, doubling from the one given, whose double has no lower loss."))


def of_seeds(tallies, seeds, index):
    """The mean accepted length of the trainings `seeds`, on the prompts `index`; tallies are [S, N, 2]."""
    return np.mean([length(tallies[seed][index]) for seed in seeds])


def redrawn_gain(ours, theirs, our_seeds, their_seeds, index):
    """The gain of ours over theirs on redrawn trainings and prompts."""
    return of_seeds(ours, our_seeds, index) / of_seeds(theirs, their_seeds, index) - 1


def pooled(tallies, seeds, index):
    """All tokens over all rounds of the trainings drawn."""
    return length(np.concatenate([tallies[seed][index] for seed in seeds]))


# Three trainings each of unlike quality, four prompts of unlike size.
OURS = np.array([[[40.0, 5.0], [30.0, 10.0], [9.0, 3.0], [70.0, 20.0]], [[42.0, 9.0], [33.0, 10.0], [8.0, 1.0], [66.0, 30.0]],
                 [[37.0, 8.0], [31.0, 7.0], [9.0, 2.0], [72.0, 15.0]]])
THEIRS = np.array([[[40.0, 10.0], [30.0, 12.0], [9.0, 2.0], [69.0, 21.0]], [[39.0, 12.0], [36.0, 9.0], [7.0, 3.0], [75.0, 25.0]],
                   [[45.0, 9.0], [28.0, 14.0], [9.0, 5.0], [60.0, 12.0]]])
DRAWN = (np.array([0, 0, 2]), np.array([1, 2, 2]), np.array([3, 0, 0, 1]))
check_redrawn_gain = Exercise(redrawn_gain, Step([(OURS, THEIRS, *DRAWN)], {
    "both drafters got our draw of trainings; their trainings are others, with a draw of their own.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(ours, theirs, our_seeds, our_seeds, index),
    "both drafters got their draw of trainings; ours are others, with a draw of their own.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(ours, theirs, their_seeds, their_seeds, index),
    "the two draws of trainings are swapped.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(ours, theirs, their_seeds, our_seeds, index),
    "the trainings were not redrawn: take those that `our_seeds` and `their_seeds` name, as often as they stand there.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(ours, theirs, range(len(ours)), range(len(theirs)), index),
    "the prompts were not redrawn: take those that `index` names, of every training.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(ours, theirs, our_seeds, their_seeds, slice(None)),
    "each training was taken once; one that was drawn twice counts twice.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(ours, theirs, np.unique(our_seeds), np.unique(their_seeds), index),
    "`ours[our_seeds, index]` pairs each training with one prompt; take all prompts of each training: `ours[our_seeds][:, index]`.":
        lambda ours, theirs, our_seeds, their_seeds, index: ours[our_seeds, index],
    "you pooled the tokens and rounds of all trainings, so one with many rounds, a bad one, weighs more; average their accepted lengths.":
        lambda ours, theirs, our_seeds, their_seeds, index: pooled(ours, our_seeds, index) / pooled(theirs, their_seeds, index) - 1,
    "you averaged gains of pairs of trainings; nothing pairs them. Average the lengths of each drafter, then compare.":
        lambda ours, theirs, our_seeds, their_seeds, index: np.mean([
            length(ours[mine][index]) / length(theirs[yours][index]) for mine, yours in zip(our_seeds, their_seeds)]) - 1,
    "you averaged the accepted lengths of prompts; of one training divide all tokens drawn by all their rounds.":
        lambda ours, theirs, our_seeds, their_seeds, index: np.mean(
            ours[our_seeds][:, index, 0] / ours[our_seeds][:, index, 1]) / np.mean(
            theirs[their_seeds][:, index, 0] / theirs[their_seeds][:, index, 1]) - 1,
    "that is a difference in tokens per round; the gain is a ratio minus one.":
        lambda ours, theirs, our_seeds, their_seeds, index: of_seeds(ours, our_seeds, index) - of_seeds(theirs, their_seeds, index),
    "one is still to be taken off: a ratio of 1 is a gain of 0.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(ours, theirs, our_seeds, their_seeds, index) + 1,
    "those are percent; the answer is a fraction.":
        lambda ours, theirs, our_seeds, their_seeds, index: 100 * redrawn_gain(ours, theirs, our_seeds, their_seeds, index),
    "the ratio is upside down: ours over theirs.":
        lambda ours, theirs, our_seeds, their_seeds, index: redrawn_gain(theirs, ours, their_seeds, our_seeds, index),
}, "it is not (mean accepted length of our trainings drawn) / (that of theirs) - 1, all on the prompts drawn."))


def head_share(neither, head, losses, both):
    """The head's share of the logarithmic gain from `neither` to `both`; all are tokens per round."""
    return (np.log(head / neither) + np.log(both / losses)) / 2 / np.log(both / neither)


check_head_share = Exercise(head_share, Step([(2.0, 2.6, 2.2, 3.2), (3.0, 3.1, 4.0, 4.4)], {
    "that is the head added first; it can be added last as well, from `losses` to `both`. Take the mean of the two.":
        lambda neither, head, losses, both: np.log(head / neither) / np.log(both / neither),
    "that is the head added last; it can be added first as well, from `neither` to `head`. Take the mean of the two.":
        lambda neither, head, losses, both: np.log(both / losses) / np.log(both / neither),
    "that is the losses' share; the head's is what is left.":
        lambda neither, head, losses, both: 1 - head_share(neither, head, losses, both),
    "that is the sum of the two ways to add the head; take their mean.":
        lambda neither, head, losses, both: 2 * head_share(neither, head, losses, both),
    "that is the head's gain and not yet its share: divide by the whole, the logarithm of `both / neither`.":
        lambda neither, head, losses, both: head_share(neither, head, losses, both) * np.log(both / neither),
    "gains multiply, so their shares do not add up; take logarithms.":
        lambda neither, head, losses, both: (head / neither - 1 + both / losses - 1) / 2 / (both / neither - 1),
    "those are tokens per round; a gain is a ratio, and the logarithms of ratios add.":
        lambda neither, head, losses, both: (head - neither + both - losses) / 2 / (both - neither),
    "you compared `both` with `head`, which is what the losses add; the head is added last between `losses` and `both`.":
        lambda neither, head, losses, both: (np.log(head / neither) + np.log(both / head)) / 2 / np.log(both / neither),
    "those are percent; the answer is a fraction.":
        lambda neither, head, losses, both: 100 * head_share(neither, head, losses, both),
}, "it is not the mean of log(head / neither) and log(both / losses), over log(both / neither)."))


def throughput(totals):
    """Tokens per second over all turns; totals [..., T, 2]."""
    tokens, seconds = np.moveaxis(totals.sum(-2), -1, 0)
    return tokens / seconds


def loss_to_best(fixed, other, choosing, judging):
    """What `other` loses, on the turns `judging`, to the length that is best on the turns `choosing`: a fraction."""
    best = throughput(fixed[:, choosing]).argmax()
    return 1 - throughput(other[judging]) / throughput(fixed[best, judging])


# Four turns of seven lengths: the third length is best on the first two, the fifth on the last two; turns are unlike in time.
TURNS = np.array([[[90.0, 10.0], [40.0, 5.0], [100.0, 11.0], [70.0, 8.0]], [[95.0, 10.0], [44.0, 5.0], [99.0, 11.0], [69.0, 8.0]],
                  [[130.0, 10.0], [70.0, 5.0], [100.0, 12.0], [72.0, 9.0]], [[100.0, 10.0], [50.0, 6.0], [120.0, 11.0], [80.0, 8.0]],
                  [[105.0, 10.0], [52.0, 5.0], [150.0, 11.0], [99.0, 8.0]], [[102.0, 11.0], [51.0, 5.0], [118.0, 11.0], [81.0, 9.0]],
                  [[101.0, 10.0], [66.0, 6.0], [119.0, 12.0], [80.0, 7.0]]])
OTHER = np.array([[104.0, 11.0], [61.0, 6.0], [112.0, 12.0], [93.0, 9.0]])  # what is none of the lengths, as a scheduler
FIRST, LAST = np.array([0, 1]), np.array([2, 3])


def by_mean_of_turns(totals):
    """The mean of the turns' own tokens per second."""
    return (totals[..., 0] / totals[..., 1]).mean(-1)


check_loss_to_best = Exercise(loss_to_best, Step([(TURNS, OTHER, FIRST, LAST), (TURNS, TURNS[6], LAST, FIRST)], {
    "the turns that choose also judge; judge on the turns `judging`.":
        lambda fixed, other, choosing, judging: loss_to_best(fixed, other, choosing, choosing),
    "the best length was chosen on the turns that judge; choose it on the turns `choosing`.":
        lambda fixed, other, choosing, judging: loss_to_best(fixed, other, judging, judging),
    "`choosing` and `judging` are swapped.":
        lambda fixed, other, choosing, judging: loss_to_best(fixed, other, judging, choosing),
    "all turns choose and judge; take those that are named.":
        lambda fixed, other, choosing, judging: loss_to_best(fixed, other, slice(None), slice(None)),
    "the throughput of `other` on the turns `judging` is compared with that of the best on the turns `choosing`; compare on the same turns.":
        lambda fixed, other, choosing, judging: 1 - throughput(other[judging]) / throughput(fixed[:, choosing]).max(),
    "the throughput of `other` was taken on the turns `choosing`; judge both on the turns `judging`.":
        lambda fixed, other, choosing, judging: 1 - throughput(other[choosing]) / throughput(
            fixed[throughput(fixed[:, choosing]).argmax(), judging]),
    "you judged 7 drafts; `other` may be something else, and is handed in.":
        lambda fixed, other, choosing, judging: loss_to_best(fixed, fixed[6], choosing, judging),
    "that is the gain of `other`; what it loses is the same number with the other sign.":
        lambda fixed, other, choosing, judging: -loss_to_best(fixed, other, choosing, judging),
    "that is how much faster the best length is; what `other` loses is 1 less its throughput over the best one's.":
        lambda fixed, other, choosing, judging: 1 / (1 - loss_to_best(fixed, other, choosing, judging)) - 1,
    "that is the ratio of the two throughputs; the loss is 1 less that.":
        lambda fixed, other, choosing, judging: 1 - loss_to_best(fixed, other, choosing, judging),
    "those are tokens per second; divide by the best length's.":
        lambda fixed, other, choosing, judging: throughput(
            fixed[throughput(fixed[:, choosing]).argmax(), judging]) - throughput(other[judging]),
    "throughput is all tokens over all seconds of the turns; the mean of the turns' own rates lets a short turn weigh as much as a long one.":
        lambda fixed, other, choosing, judging: 1 - by_mean_of_turns(other[judging]) / by_mean_of_turns(
            fixed[by_mean_of_turns(fixed[:, choosing]).argmax(), judging]),
    "that compares tokens and leaves out the seconds.":
        lambda fixed, other, choosing, judging: 1 - other[judging, 0].sum() / fixed[fixed[:, choosing, 0].sum(1).argmax(), judging, 0].sum(),
    "those are percent; the answer is a fraction.":
        lambda fixed, other, choosing, judging: 100 * loss_to_best(fixed, other, choosing, judging),
}, "it is not 1 - (throughput of `other`) / (that of the length chosen), both on the turns `judging`."))
