"""Checkers of lesson 03: what two caches forget, the expected accepted length, the best draft length."""

from .checking import Mistake, checker, finished, name_mistake

FORGET_CASES = [(7, 7, 3), (7, 4, 4), (7, 7, 7), (7, 4, 0)]  # gamma, verification length, accepted
TAU_CASES = [(0.8, 4), (0.5, 1), (0.3, 6), (0.0, 5)]  # acceptance, gamma
GAMMA_CASES = [(0.9, 0.05), (0.8, 0.3), (0.3, 0.5), (0.6, 0.1)]  # acceptance, cost ratio
LONGEST = 16


def _over(cases, function) -> list:
    """The answers of `function` to all cases."""
    return [finished(function(*case)) for case in cases]


@checker
def check_forget(function):
    """Checks `function(gamma, length, accepted)`: positions that the target's and the small LM's cache must forget."""
    name_mistake(_over(FORGET_CASES, function), _over(FORGET_CASES, lambda g, n, a: (n - a, max(0, g - 1 - a))), {
        "the target has read only the drafts that were verified, `length` of them, not all gamma":
            _over(FORGET_CASES, lambda g, n, a: (g - a, max(0, g - 1 - a))),
        "the small LM never read its own last draft; it has one position less to forget":
            _over(FORGET_CASES, lambda g, n, a: (n - a, g - a)),
        "when all drafts were accepted the small LM has nothing to forget; the number must not fall below 0":
            _over(FORGET_CASES, lambda g, n, a: (n - a, g - 1 - a)),
        "the small LM read its drafts whatever was verified; start from gamma, not from `length`":
            _over(FORGET_CASES, lambda g, n, a: (n - a, max(0, n - 1 - a))),
        "that leaves the first refused draft in the target's cache":
            _over(FORGET_CASES, lambda g, n, a: (max(0, n - a - 1), max(0, g - 1 - a))),
        "that forgets the last accepted draft (or the anchor) as well":
            _over(FORGET_CASES, lambda g, n, a: (n - a + 1, max(0, g - a))),
        "you forget what was accepted and keep what was refused; it is the other way round":
            _over(FORGET_CASES, lambda g, n, a: (a, a)),
    }, "return (drafts the target read - accepted, drafts the small LM read - accepted), neither below 0")


@checker
def check_expected_tau(function):
    """Checks `function(a, gamma)`: expected tokens a round if a draft behind kept ones is kept with chance a."""
    def truth(a, g):
        return (1 - a ** (g + 1)) / (1 - a)

    name_mistake(_over(TAU_CASES, function), _over(TAU_CASES, truth), {
        "the sum runs to a ** gamma, so the closed form has the exponent gamma + 1":
            _over(TAU_CASES, lambda a, g: (1 - a**g) / (1 - a)),
        "you counted the drafts only; the target adds a token to every round":
            _over(TAU_CASES, lambda a, g: truth(a, g) - 1),
        "a draft counts only if all before it were kept: its chance is a ** k, not a":
            _over(TAU_CASES, lambda a, g: 1 + g * a),
        "that is the limit of an endless block": _over(TAU_CASES, lambda a, g: 1 / (1 - a)),
        "that is the chance that the whole block is kept, not a number of tokens": _over(TAU_CASES, lambda a, g: a**g),
    }, "add up 1 + a + a ** 2 + ... + a ** gamma")
    try:
        certain = function(1.0, 3)
    except ZeroDivisionError:
        certain = None
    if certain != 4:
        raise Mistake("right for a < 1; at a = 1 the fraction is 0 / 0, but every draft is kept: return gamma + 1 "
                      "there")


@checker
def check_best_gamma(function):
    """Checks `function(a, c)`: the gamma from 0 to LONGEST with the largest speed-up; verifying costs a plain pass."""
    def tau(a, g):
        return (1 - a ** (g + 1)) / (1 - a)

    def best(value, lowest=0):
        return lambda a, c: max(range(lowest, LONGEST + 1), key=lambda g: value(a, c, g))

    def speedup(a, c, g):
        return tau(a, g) / (g * c + 1)

    name_mistake(_over(GAMMA_CASES, function), _over(GAMMA_CASES, best(speedup)), {
        "gamma = 0 is allowed: where every draft costs more than it brings, do not speculate":
            _over(GAMMA_CASES, best(speedup, 1)),
        "you maximised tau; longer blocks always accept more, so divide by what they cost":
            _over(GAMMA_CASES, lambda a, c: LONGEST),
        "a round also verifies: its cost is gamma * c + 1 plain passes":
            _over(GAMMA_CASES, best(lambda a, c, g: tau(a, g) / (g * c), 1)),
        "you found the draft length with the smallest speed-up":
            _over(GAMMA_CASES, best(lambda a, c, g: -speedup(a, c, g))),
        "that is the largest speed-up; return the gamma that reaches it":
            _over(GAMMA_CASES, lambda a, c: max(speedup(a, c, g) for g in range(LONGEST + 1))),
        "one too few: is your list of speed-ups counted from gamma = 1?":
            _over(GAMMA_CASES, lambda a, c: best(speedup, 1)(a, c) - 1),
        "one too many: is your list of speed-ups counted from gamma = 0?":
            _over(GAMMA_CASES, lambda a, c: best(speedup)(a, c) + 1),
    }, f"try every gamma from 0 to {LONGEST} in tau / (gamma * c + 1) and return the best gamma")
