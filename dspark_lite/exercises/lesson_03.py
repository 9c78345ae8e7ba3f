"""Checkers of lesson 03: what two caches forget, the expected accepted length, the best draft length."""

import sys

from .checking import Exercise, Mistake, Step
from .verifying import check_verify as check_verify
from .verifying import in_use as in_use

LONGEST = 16
SUMS = {"sum", "fsum", "cumsum"}


def forget(gamma, length, accepted):
    """Positions that the target's and the small LM's cache must forget."""
    return length - accepted, max(0, gamma - 1 - accepted)


check_forget = Exercise(forget, Step([(7, 7, 3), (7, 4, 4), (7, 7, 7), (7, 4, 0)], {
    "the target has read only the drafts that were verified, `length` of them, not all gamma":
        lambda g, n, a: (g - a, max(0, g - 1 - a)),
    "the small LM never read its own last draft; it has one position less to forget":
        lambda g, n, a: (n - a, g - a),
    "when all drafts were accepted the small LM has nothing to forget; the number must not fall below 0":
        lambda g, n, a: (n - a, g - 1 - a),
    "the small LM read its drafts whatever was verified; start from gamma, not from `length`":
        lambda g, n, a: (n - a, max(0, n - 1 - a)),
    "that leaves the first refused draft in the target's cache":
        lambda g, n, a: (max(0, n - a - 1), max(0, g - 1 - a)),
    "that forgets the last accepted draft (or the anchor) as well":
        lambda g, n, a: (n - a + 1, max(0, g - a)),
    "you forget what was accepted and keep what was refused; it is the other way round":
        lambda g, n, a: (a, a),
}, "return (drafts the target read - accepted, drafts the small LM read - accepted), neither below 0"))


def expected_tau(a, gamma):
    """Expected tokens per round if a draft after kept ones is kept with chance a."""
    return gamma + 1 if a == 1 else (1 - a ** (gamma + 1)) / (1 - a)


def instructions(function, *arguments) -> int:
    """How many byte-code instructions of Python `function` runs for these arguments, in itself and in what it calls."""
    count, before = 0, sys.gettrace()

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    sys.settrace(trace)
    try:
        function(*arguments)
    finally:
        sys.settrace(before)
    return count


def names_used(code) -> set[str]:
    """Global names and attributes that a code object and the functions written inside it use."""
    inner = [names_used(constant) for constant in code.co_consts if hasattr(constant, "co_names")]
    return set(code.co_names).union(*inner)


def closed_form(function):
    """Raises Mistake if `function(a, gamma)` works more for a longer block, or leaves it to a function that sums."""
    code = getattr(function, "__code__", None)
    summing = code is not None and SUMS & names_used(code)
    if summing or instructions(function, 0.5, 3) != instructions(function, 0.5, 30):
        raise Mistake("the numbers are right, but they come from a loop or a sum; "
                      "a geometric series has a closed form. Which terms are left of tau - a * tau?")


check_expected_tau = Exercise(
    expected_tau,
    Step([(0.8, 4), (0.5, 1), (0.3, 6), (0.0, 5)], {
        "the sum runs to a ** gamma, so the closed form has the exponent gamma + 1":
            lambda a, g: (1 - a**g) / (1 - a),
        "you counted the drafts only; the target adds a token to every round":
            lambda a, g: expected_tau(a, g) - 1,
        "a draft counts only if all before it were kept: its chance is a ** k, not a":
            lambda a, g: 1 + g * a,
        "that is the limit of an endless block":
            lambda a, g: 1 / (1 - a),
        "that is the chance that the whole block is kept, not a number of tokens":
            lambda a, g: a**g,
    }, "add up 1 + a + a ** 2 + ... + a ** gamma"),
    Step([(1.0, 3)], {
        "right for a < 1; at a = 1 the fraction is 0 / 0, but every draft is kept: return gamma + 1 there": (
            lambda a, g: (1 - a ** (g + 1)) / (1 - a),
            lambda a, g: 1 if a == 1 else (1 - a ** (g + 1)) / (1 - a),
        ),
    }, "right for a < 1; at a = 1 every draft is kept: return gamma + 1 there"),
    manner=closed_form)


def best(value, lowest=0):
    """The exercise's answer if gammas from `lowest` are compared by `value(a, c, gamma)`."""
    return lambda a, c: max(range(lowest, LONGEST + 1), key=lambda gamma: value(a, c, gamma))


def speedup(a, c, gamma):
    """Speed-up at this draft length; verifying costs a plain pass."""
    return expected_tau(a, gamma) / (gamma * c + 1)


def best_gamma(a, c):
    """The gamma from 0 to LONGEST with the largest speed-up."""
    return best(speedup)(a, c)


check_best_gamma = Exercise(best_gamma, Step([(0.9, 0.05), (0.8, 0.3), (0.3, 0.5), (0.6, 0.1)], {
    "gamma = 0 is allowed: where every draft costs more than it brings, do not speculate":
        best(speedup, 1),
    "you maximised tau; longer blocks always accept more, so divide by what they cost":
        best(lambda a, c, gamma: gamma),
    "a round also verifies: its cost is gamma * c + 1 plain passes":
        best(lambda a, c, gamma: expected_tau(a, gamma) / (gamma * c), 1),
    "you found the draft length with the smallest speed-up":
        best(lambda a, c, gamma: -speedup(a, c, gamma)),
    "that is the largest speed-up; return the gamma that reaches it":
        lambda a, c: max(speedup(a, c, gamma) for gamma in range(LONGEST + 1)),
    "one too few: is your list of speed-ups counted from gamma = 1?":
        lambda a, c: best(speedup, 1)(a, c) - 1,
    "one too many: is your list of speed-ups counted from gamma = 0?":
        lambda a, c: best_gamma(a, c) + 1,
}, f"try every gamma from 0 to {LONGEST} in tau / (gamma * c + 1) and return the best gamma"))
