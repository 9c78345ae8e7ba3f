"""Checkers of lesson 13: the lag that an engine needs, a loop that overlaps host and device, machines for a promise."""

import math

import numpy as np

from .checking import Exercise, Mistake, Step, Unfinished, as_function, checker
from .lesson_11 import throughput_at


def lag_needed(draft, verify, host, ahead):
    """How many steps old the confidences are that set a budget in time. A step drafts and then verifies, for so many milliseconds;
    its confidences are there after the draft, the host needs `host` to search, and a step's size is told `ahead` of its begin."""
    return math.ceil((draft + host + ahead) / (draft + verify))


TIMES = [
    (2.0, 6.0, 1.0, 0.0),
    (2.0, 6.0, 1.0, 8.0),
    (2.0, 6.0, 5.0, 2.0),
    (3.0, 5.0, 12.0, 4.0),
    (2.0, 6.0, 6.0, 0.0),
]
check_lag = Exercise(
    lag_needed,
    Step(
        TIMES,
        {
            "a lag is a whole number of steps, and rounded down the newest confidences would be there too late: round up.": (
                lambda draft, verify, host, ahead: math.floor(
                    (draft + host + ahead) / (draft + verify)
                ),
                lambda draft, verify, host, ahead: (draft + host + ahead) / (draft + verify),
            ),
            "that is one too many where the time fits exactly or with room: round up, without a further step.": lambda draft, verify, host, ahead: (
                1 + math.floor((draft + host + ahead) / (draft + verify))
            ),
            "confidences are not there when a step begins: its draft comes first.": lambda draft, verify, host, ahead: (
                math.ceil((host + ahead) / (draft + verify))
            ),
            "the host's search takes time, too.": lambda draft, verify, host, ahead: math.ceil(
                (draft + ahead) / (draft + verify)
            ),
            "the size must be told `ahead` of the step's begin; that is time that the search has not.": lambda draft, verify, host, ahead: (
                math.ceil((draft + host) / (draft + verify))
            ),
            "confidences need no verification: they are there after the draft.": lambda draft, verify, host, ahead: (
                math.ceil((draft + verify + host + ahead) / (draft + verify))
            ),
            "from one step's begin to the next a draft and a verification pass; divide by both.": lambda draft, verify, host, ahead: (
                math.ceil((draft + host + ahead) / verify)
            ),
        },
        "confidences of step s are there at s * (draft + verify) + draft; the host adds `host`; the search for step t must end `ahead` of "
        "t * (draft + verify).",
    ),
)


STEPS = 7


class Device:
    """A device that notes what it is asked to do: `start(budget)` begins a step and returns at once, `finish()` waits for it and
    returns its confidences."""

    def __init__(self):
        self.budgets, self.finished, self.busy, self.idle_work = [], 0, False, []

    def start(self, budget):
        """Begins the next step with this budget (None: whole blocks)."""
        if self.busy:
            raise Mistake(
                "a step was started while the one before still ran; there is one device, so finish that one first"
            )
        self.busy = True
        self.budgets.append(budget)

    def finish(self):
        """The confidences of the step that runs, when it has ended."""
        if not self.busy:
            raise Mistake("device.finish() waits for a step, and none was started")
        self.busy = False
        self.finished += 1
        return f"confidences {self.finished - 1}"

    def host(self, confidences):
        """The host's work, of which it is noted whether the device stood still meanwhile; returns a budget."""
        if not isinstance(confidences, str):
            raise Mistake(
                f"host was given {confidences!r}; it takes the confidences that device.finish() has returned"
            )
        self.idle_work.append(not self.busy)
        return int(confidences.split()[1])


def pipelined(device, host, steps):
    """Runs `steps` steps; the host works on a step's confidences while the next one runs."""
    budget, confidences = None, None
    for _ in range(steps):
        device.start(budget)
        if confidences is not None:
            budget = host(confidences)
        confidences = device.finish()


@checker
def check_pipeline(learners):
    """Checks a function like `pipelined` on a device that notes what it is asked to do."""
    device = Device()
    as_function(learners)(device, device.host, STEPS)
    if not device.budgets:
        raise Unfinished
    if device.busy or len(device.budgets) != STEPS:
        raise Mistake(
            f"{len(device.budgets)} steps were started and {device.finished} finished; {STEPS} were asked for, each of them both"
        )
    if not device.idle_work:
        raise Mistake(
            "the host has found no budget; give host(...) the confidences of each step but the last"
        )
    if any(device.idle_work[: STEPS - 1]):  # the last step's confidences need no work
        raise Mistake(
            "the device stands still while the host works: that is one after another. Start the next step first, and work on "
            "the confidences of the one before"
        )
    wanted = [None, None, *range(STEPS - 2)]
    if device.budgets != wanted:
        told = ", ".join(
            "whole" if budget is None else f"of step {budget}" for budget in device.budgets
        )
        raise Mistake(
            f"the budgets of the steps are {told}; step t takes what the host made of step t - 2, and the first two verify "
            "whole blocks (None)"
        )


def machines_for(curve, users, promise):
    """How many machines give so many users a promised speed, from the frontier [n, 2] of one, rows (speed of each user, throughput);
    inf where a single user of a machine does not get it."""
    served = throughput_at(curve, promise) / promise
    return math.inf if served < 1 else math.ceil(users / served)


ONE_MACHINE = np.array([[200.0, 200.0], [150.0, 300.0], [80.0, 640.0], [30.0, 720.0]])
PROMISES = [
    (ONE_MACHINE, 100, 80.0),
    (ONE_MACHINE, 25, 150.0),
    (ONE_MACHINE, 41, 80.0),
    (ONE_MACHINE, 10, 260.0),
    (ONE_MACHINE, 26, 100.0),
]
check_machines = Exercise(
    machines_for,
    Step(
        PROMISES,
        {
            "a part of a machine cannot be bought, and rounded down the last users have none: round up.": (
                lambda curve, users, promise: (
                    math.inf if promise > 200 else users * promise / throughput_at(curve, promise)
                ),
                lambda curve, users, promise: (
                    math.inf
                    if promise > 200
                    else math.floor(users * promise / throughput_at(curve, promise))
                ),
            ),
            "throughput_at gives 0 where not even a single user gets the promised speed, and then no number of machines helps: return np.inf.": (
                lambda curve, users, promise: math.ceil(
                    users * promise / throughput_at(curve, promise)
                ),
                lambda curve, users, promise: (
                    0
                    if promise > 200
                    else math.ceil(users * promise / throughput_at(curve, promise))
                ),
            ),
            (
                "that is what a machine gives under full load, when each user waits long; take "
                "its throughput at the promised speed."
            ): lambda curve, users, promise: (
                math.inf if promise > 200 else math.ceil(users * promise / curve[:, 1].max())
            ),
            "you rounded how many users one machine serves; round only the number of machines, up.": tuple(
                lambda curve, users, promise, whole=whole: (
                    math.inf
                    if promise > 200
                    else math.ceil(users / whole(throughput_at(curve, promise) / promise))
                )
                for whole in (math.floor, round)
            ),
            "that is how many users one machine serves; how many machines do all of them need?": lambda curve, users, promise: (
                throughput_at(curve, promise) / promise
            ),
        },
        "one machine serves throughput_at(curve, promise) / promise users; divide the users by that and round up.",
    ),
)
