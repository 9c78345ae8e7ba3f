"""Zero-overhead scheduling (paper, section 5.2): while the device runs a step, the host works on
the one before.

A step's size must be known before the step begins, and then its confidences do not exist yet. So
its budget comes from the confidences of two steps before, which the host has read and searched
while the step in between was running. Which drafts fill the budget is decided within the step, by
its own confidences. Here the device is a second thread; PyTorch's kernels let the first one work
meanwhile.
"""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import NamedTuple

import torch

from ..common.timing import clock
from ..decoding.proposal import Proposal
from ..scheduling.policies import Costs, confidence_of, global_optimum, survival, top_k
from .engine import Engine
from .requests import STEP_PARTS, StepReport


class StepEvent(NamedTuple):
    """A piece of work in a lane ("device", "host"), the step that it belongs to, and when it began
    and ended in seconds."""

    lane: str
    part: str
    step: int
    began: float
    ended: float


class PlannedTopK:
    """`LaggedTopK` in two halves, equal to it while the same requests run. `plan` searches a budget,
    when the host finds time; the call spends the `budget` that it was given (None: whole blocks)
    and keeps the survivals [R, g] of its step in `survivals`."""

    def __init__(self, cost_table: Costs):
        self.cost_table = cost_table
        self.begin()

    def begin(self) -> None:
        """Forget budget and survivals."""
        self.budget: int | None = None
        self.survivals: torch.Tensor | None = None

    def plan(self, survivals: torch.Tensor) -> int:
        """Return the number of drafts to verify in a step whose requests survive as these did, [R, g]:
        the global optimum, without an early stop."""
        return int(global_optimum(survivals, self.cost_table).sum())

    def __call__(self, proposal: Proposal) -> torch.Tensor:
        self.survivals = survival(confidence_of(proposal)).cpu()
        return top_k(self.survivals, self.survivals.numel() if self.budget is None else self.budget)


def serve(
    engine: Engine,
    cost_table: Costs,
    deliver: Callable[[StepReport], object],
    *,
    overlapped: bool = True,
) -> list[StepEvent]:
    """Step the engine until it is idle and return what was done when.

    `deliver(report)` is the host's other work with what a step wrote: turning it into text, looking
    for stop strings, sending it off. It must not touch the engine, which may be running a step.
    With `overlapped`, `deliver` and the budget search run during the next step, otherwise after it.
    The results are the same. An error in `deliver` ends the serving after the step under way, whose
    report is not delivered.
    """
    policy, budget, before, events = PlannedTopK(cost_table), None, None, []
    engine.set_policy(policy)

    def note(lane, part, step, began):
        events.append(StepEvent(lane, part, step, began, now := time.perf_counter()))
        return now

    def step(number):
        began = clock(engine.target.device)
        report = engine.step()
        for part in STEP_PARTS:
            ended = began + report.seconds[part]
            events.append(StepEvent("device", part, number, began, ended))
            began = ended
        return report

    with ThreadPoolExecutor(1, "device") as device:
        number = 0
        while not engine.idle:
            policy.budget, policy.survivals = budget, None
            running = device.submit(step, number)
            if not overlapped:
                wait([running])
            if before is not None:
                # From step `number - 1`. Its budget is for step `number + 1`.
                report, survivals = before
                began = time.perf_counter()
                budget = None if survivals is None else policy.plan(survivals)
                began = note("host", "plan", number - 1, began)
                deliver(report)
                note("host", "deliver", number - 1, began)
            before = running.result(), policy.survivals
            number += 1
        if before is not None:
            deliver(before[0])
    return events
