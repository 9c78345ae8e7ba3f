"""Case 13: a lag too short."""

from collections.abc import Callable
from typing import NamedTuple

from dspark_lite.course.exercises import lesson_13

from .recorded import Recorded, Rows


class Times(NamedTuple):
    """A loop of device and host, and their milliseconds for a step."""

    loop: Callable = lesson_13.pipelined
    device: float = 8.0
    host: float = 6.0
    kept: float = 4.0  # tokens of a round


def in_turn(device, host, steps):
    """Let the host work on a step's confidences before the next one starts."""
    budget = None
    for _ in range(steps):
        device.start(budget)
        budget = host(device.finish())


class Clocked:
    """A device whose steps, and a host whose searches, take the time that is given."""

    def __init__(self, times: Times):
        self.times, self.now, self.ends = times, 0.0, 0.0
        self.busy, self.worked = 0.0, 0.0

    def start(self, budget):
        self.ends = self.now + self.times.device
        self.busy += self.times.device

    def finish(self):
        self.now = max(self.now, self.ends)
        return "confidences"

    def host(self, confidences):
        self.now += self.times.host
        self.worked += self.times.host
        return "budget"


def times_measured(program: Times, steps: int = 200) -> dict[str, Rows]:
    """Run the loop by a clock that counts milliseconds."""
    clock = Clocked(program)
    program.loop(clock, clock.host, steps)
    return {
        "tokens a second": {"of a request": f"{1000 * steps * program.kept / clock.now:.0f}"},
        "tokens a round": {"mean": f"{program.kept:.1f}"},
        "the device alone": {"a step takes": f"{program.device:.0f} ms"},
        "the host alone": {"a search takes": f"{program.host:.0f} ms"},
        "at work": {
            "the device": f"{clock.busy / clock.now:.0%}",
            "the host": f"{clock.worked / clock.now:.0%}",
        },
    }


def case_13() -> Recorded:
    return Recorded(
        Times(),
        {
            "the host searches between two steps": Times(loop=in_turn),
            "the host has become slower than the device": Times(host=14.0),
            "a step of the device takes longer": Times(device=14.0),
            "the drafts have become worse": Times(kept=2.3),
        },
        times_measured,
    )
