"""Checkers of lesson 13: a loop that overlaps host and device, machines for a promise."""

import math

import numpy as np

from ..checkers.checking import Comparison, Exercise, as_function, checker
from ..checkers.random_cases import Cases, number
from ..own_decoder.pipeline import RUNS, judge_run
from .lesson_11 import frontier_case, throughput_at


def pipelined(device, host, steps):
    """Run `steps` steps; the host works on a step's confidences while the next one runs."""
    budget, confidences = None, None
    for _ in range(steps):
        device.start(budget)
        if confidences is not None:
            budget = host(confidences)
        confidences = device.finish()


@checker
def check_pipeline(learners):
    """Check a function like `pipelined` on a device that notes what it is asked to do, in runs long
    and short."""
    as_function(learners)
    for steps in RUNS:
        judge_run(learners, steps)


def machines_for(curve, users, promise):
    """Return how many machines give `users` users the speed `promise`, from the frontier [n, 2] of
    one machine, rows (speed of each user, throughput); inf where a single user does not get it."""
    served = throughput_at(curve, promise) / promise
    return math.inf if served < 1 else math.ceil(users / served)


ONE_MACHINE = np.array([[200.0, 200.0], [150.0, 300.0], [80.0, 640.0], [30.0, 720.0]])
PROMISES = [
    (ONE_MACHINE, 100, 80.0),
    (ONE_MACHINE, 25, 150.0),
    (ONE_MACHINE, 41, 80.0),
    (ONE_MACHINE, 10, 260.0),
    (ONE_MACHINE, 26, 100.0),
    (ONE_MACHINE, 80, 80.0),  # ten machines, just full
    (ONE_MACHINE, 5000, 80.0),
]


def promise_case(generator):
    """Return users of a frontier and what they are promised; often they fill some machines exactly."""
    curve, promise = frontier_case(generator)
    return curve, 12 * number(generator, 1, 8) + number(generator, 0, 1), promise


def buying(count, none=math.inf):
    """Return machines by `count(users, served, curve, promise)`, and `none` where a machine does
    not keep the promise to a single user."""

    def machines(curve, users, promise):
        served = throughput_at(curve, promise) / promise
        return count(users, served, curve, promise) if served else none

    return machines


check_machines = Exercise(
    machines_for,
    Comparison(
        Cases(PROMISES, promise_case),
        {
            "a part of a machine cannot be bought, and rounded down the last users have none: round up.": (
                buying(lambda users, served, curve, promise: users / served),
                buying(lambda users, served, curve, promise: math.floor(users / served)),
                buying(lambda users, served, curve, promise: round(users / served)),
            ),
            "throughput_at gives 0 where not even a single user gets the promised speed, and then no number of machines helps: return np.inf.": (
                *(
                    lambda curve, users, promise, whole=whole: whole(
                        users * promise / throughput_at(curve, promise)
                    )
                    for whole in (math.ceil, math.floor, round, float)
                ),
                buying(
                    lambda users, served, curve, promise: math.ceil(users / served),
                    none=0,
                ),
            ),
            (
                "that is what a machine gives under full load, when each user waits long; take "
                "its throughput at the promised speed."
            ): buying(
                lambda users, served, curve, promise: math.ceil(users * promise / curve[:, 1].max())
            ),
            "throughput is that of all users together: divide it by `promise`, so many users share it.": (
                *(
                    buying(
                        lambda users, served, curve, promise, whole=whole: whole(
                            users / (served * promise)
                        )
                    )
                    for whole in (math.ceil, math.floor, round, float)
                ),
                lambda curve, users, promise: math.ceil(users / throughput_at(curve, promise)),
            ),
            "you rounded how many users one machine serves; round only the number of machines, up.": tuple(
                buying(
                    lambda users, served, curve, promise, whole=whole: math.ceil(
                        users / whole(served)
                    )
                )
                for whole in (math.floor, round)
            ),
            "round up, and no further: where the users fill the machines exactly, one more is too many.": buying(
                lambda users, served, curve, promise: math.floor(users / served) + 1
            ),
            "that is how many users one machine serves; how many machines do all of them need?": buying(
                lambda users, served, curve, promise: served, none=0.0
            ),
        },
        "one machine serves throughput_at(curve, promise) / promise users; divide the users by that and round up.",
    ),
)
