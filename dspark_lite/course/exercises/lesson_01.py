"""Checkers of lesson 01: the time of a pass on a GPU, by its data sheet, and the speed-up of a round."""

from ..checkers.checking import Comparison, Exercise
from ..checkers.random_cases import Cases, between, number


def pass_seconds(k, weights, bytes_per_weight, bandwidth, operations):
    """Return the least time of a pass over k positions: weights are read once, and multiplied once
    per position."""
    return max(weights * bytes_per_weight / bandwidth, 2 * k * weights / operations)


def reading(weights, width, bandwidth):
    """Return the time that reading the weights takes."""
    return weights * width / bandwidth


# At the first two a pass waits for weights, at the others it multiplies, at the last even for one token: no two mistakes agree.
DATA_SHEETS = [
    (1, 7e9, 2, 5e11, 3e14),
    (8, 4e9, 1, 3e12, 9e14),
    (900, 4e9, 2, 3e12, 9e14),
    (3, 4e9, 0.5, 9e12, 9e12),
]


def data_sheet(generator):
    """Return a GPU that nobody sells, on one side of the ridge or the other."""
    width = [0.5, 1, 2][number(generator, 0, 2)]
    ranges = ((1, 2000), (1e8, 1e11), (1e11, 1e13), (1e13, 1e15))
    k, weights, bandwidth, operations = (between(generator, *ends) for ends in ranges)
    return int(k), weights, width, bandwidth, operations


# In milliseconds, because `same` compares to five places.
check_pass_seconds = Exercise(
    pass_seconds,
    Comparison(
        Cases(DATA_SHEETS, data_sheet),
        {
            "reading and multiplying overlap: the pass takes as long as the longer of the two, not as both together": lambda k, n, b, r, o: (
                reading(n, b, r) + 2 * k * n / o
            ),
            "the pass ends when both are done: take the longer of the two times, not the shorter": lambda k, n, b, r, o: (
                min(reading(n, b, r), 2 * k * n / o)
            ),
            "the weights are read once per pass, however many positions there are; only the multiplying grows with k": lambda k, n, b, r, o: (
                max(k * reading(n, b, r), 2 * k * n / o)
            ),
            "each position multiplies every weight: the multiplying grows with k": lambda k, n, b, r, o: (
                max(reading(n, b, r), 2 * n / o)
            ),
            "a multiplication and an addition for each weight are two operations": lambda k, n, b, r, o: (
                max(reading(n, b, r), k * n / o)
            ),
            "the two speeds have changed places: bytes are read at `bandwidth`, operations are done at `operations` per second": (
                lambda k, n, b, r, o: max(n * b / o, 2 * k * n / r)
            ),
            "a weight has `bytes_per_weight` bytes: so many times as much is read": lambda k, n, b, r, o: (
                max(n / r, 2 * k * n / o)
            ),
            "operations are counted per weight, not per byte": lambda k, n, b, r, o: max(
                reading(n, b, r), 2 * k * n * b / o
            ),
            "that is the reading alone; from some k on the multiplying takes longer": lambda k, n, b, r, o: (
                reading(n, b, r)
            ),
            "that is the multiplying alone; the weights have to be read first": lambda k, n, b, r, o: (
                2 * k * n / o
            ),
            "a time is an amount over a speed: bytes over bandwidth, operations over operations per second": (
                lambda k, n, b, r, o: max(r / (n * b), o / (2 * k * n)),
                lambda k, n, b, r, o: min(r / (n * b), o / (2 * k * n)),
            ),
            "return seconds; the cell below turns them into milliseconds": lambda k, n, b, r, o: (
                1e3 * pass_seconds(k, n, b, r, o)
            ),
        },
        "two times: the bytes of the weights over the bandwidth, and two operations per weight and position over the GPU's operations per second; "
        "the longer one counts",
        read=lambda seconds: 1e3 * seconds,
    ),
)


def speedup(tau, draft, verify, plain):
    """Return how many times as fast as plain decoding speculation is."""
    return tau * plain / (draft + verify)


def timed_round(generator):
    """Return a round that gains, or one that loses."""
    return tuple(between(generator, *ends) for ends in ((1, 8), (0.5, 9), (3, 12), (3, 9)))


check_speedup = Exercise(
    speedup,
    Comparison(
        Cases(
            [(4.0, 2.0, 6.0, 5.0), (3.0, 7.0, 4.0, 6.0), (1.5, 4.0, 6.0, 5.0)],
            timed_round,
        ),
        {
            "the drafter and the target work one after the other: add their times, the longer one is not enough": lambda tau, draft, verify, plain: (
                tau * plain / max(draft, verify)
            ),
            "you left out the time of drafting; a round costs draft and verify": lambda tau, draft, verify, plain: (
                tau * plain / verify
            ),
            "you left out the time of verifying; a round costs draft and verify": lambda tau, draft, verify, plain: (
                tau * plain / draft
            ),
            "`draft_seconds` is the time of the whole block, not of one draft": (
                lambda tau, draft, verify, plain: tau * plain / (tau * draft + verify),
                lambda tau, draft, verify, plain: tau * plain / (7 * draft + verify),
            ),
            "a round gives tau tokens: multiply by tau, do not divide": lambda tau, draft, verify, plain: (
                plain / (draft + verify) / tau
            ),
            "tau already counts the token that the target adds: do not add one": lambda tau, draft, verify, plain: (
                (tau + 1) * plain / (draft + verify)
            ),
            "tau counts the token that the target adds; all of tau is gained, not tau - 1": lambda tau, draft, verify, plain: (
                (tau - 1) * plain / (draft + verify)
            ),
            "put the sum of draft and verify into brackets: `/` binds more closely than `+`": lambda tau, draft, verify, plain: (
                tau * plain / draft + verify
            ),
            "that is the time of one token; the speed-up is plain decoding's time of one token over it": lambda tau, draft, verify, plain: (
                (draft + verify) / tau
            ),
            "that is how many times slower; turn the fraction over": lambda tau, draft, verify, plain: (
                (draft + verify) / (tau * plain)
            ),
            "tau is missing: in the time of a round plain decoding writes (draft + verify) / plain tokens, speculation tau": (
                lambda tau, draft, verify, plain: plain / (draft + verify),
                lambda tau, draft, verify, plain: (draft + verify) / plain,
            ),
            "plain decoding is missing: that is tokens per unit of time, the speed-up compares two of them": lambda tau, draft, verify, plain: (
                tau / (draft + verify)
            ),
            "that is the gain; 1 means no gain here, so do not take 1 off": lambda tau, draft, verify, plain: (
                tau * plain / (draft + verify) - 1
            ),
        },
        "write the seconds of one token with plain decoding over those with speculation",
    ),
)
