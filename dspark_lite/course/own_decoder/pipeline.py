"""What is asked of a loop that overlaps host and device, which a reader writes in lesson 13."""

from ..checkers.checking import Mistake, Unfinished

RUNS = (7, 1, 2, 3, 12)  # how many steps are asked for


class Device:
    """A device that notes what it is asked to do: `start(budget)` begins a step and returns at once, `finish()` waits for it and
    returns its confidences."""

    def __init__(self):
        self.budgets, self.finished, self.busy, self.idle_work = [], 0, False, []

    def start(self, budget):
        """Begin the next step with this budget (None: whole blocks)."""
        if self.busy:
            raise Mistake(
                "a step was started while the one before still ran; there is one device, so finish that one first"
            )
        self.busy = True
        self.budgets.append(budget)

    def finish(self):
        """Return the confidences of the step that runs, when it has ended."""
        if not self.busy:
            raise Mistake("device.finish() waits for a step, and none was started")
        self.busy = False
        self.finished += 1
        return f"confidences {self.finished - 1}"

    def host(self, confidences):
        """Do the host's work and return a budget. Record whether the device stood still meanwhile."""
        if not isinstance(confidences, str):
            raise Mistake(
                f"host was given {confidences!r}; it takes the confidences that device.finish() has returned"
            )
        self.idle_work.append(not self.busy)
        return int(confidences.split()[1])


def judge_run(learners, steps: int) -> None:
    """Raise Mistake unless a function like `pipelined` runs `steps` steps as it should."""
    device = Device()
    learners(device, device.host, steps)
    if not device.budgets:
        raise Unfinished
    if device.busy or len(device.budgets) != steps:
        raise Mistake(
            f"{len(device.budgets)} steps were started and {device.finished} finished; {steps} were asked for, each of them both"
        )
    if not device.idle_work and steps > 1:
        raise Mistake(
            "the host has found no budget; give host(...) the confidences of each step but the last"
        )
    if any(device.idle_work[: steps - 1]):  # the last step's confidences need no work
        raise Mistake(
            "the device stands still while the host works: that is one after another. Start the next step first, and work on "
            "the confidences of the one before"
        )
    wanted = [None, None, *range(steps - 2)][:steps]
    if device.budgets != wanted:
        named = ", ".join(
            "whole" if budget is None else f"of step {budget}" for budget in device.budgets
        )
        raise Mistake(
            f"the budgets of the steps are {named}; step t takes what the host made of step t - 2, and the first two verify "
            "whole blocks (None)"
        )
