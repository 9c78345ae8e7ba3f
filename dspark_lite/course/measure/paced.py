"""A device that only waits: the steps of an engine, replayed at the pace of other hardware."""

import time
from dataclasses import replace

from dspark_lite.decoding.proposal import Proposal
from dspark_lite.serving.requests import STEP_PARTS, StepReport


class PacedEngine:
    """Steps through `reports` as if a device took `seconds`, by part, for each; what a processor
    does meanwhile is real. Takes an engine's place in serving/pipeline.py. The policy sees
    `proposals` in turn."""

    def __init__(
        self,
        target,
        reports: list[StepReport],
        seconds: dict[str, float],
        proposals: list[Proposal],
    ):
        self.target, self.seconds = target, {**dict.fromkeys(STEP_PARTS, 0.0), **seconds}
        self._left, self._proposals, self._policy = list(reports), list(proposals), None

    @property
    def idle(self) -> bool:
        """Return whether all steps are replayed."""
        return not self._left

    def set_policy(self, policy) -> None:
        """Schedule by this policy."""
        self._policy = policy

    def step(self) -> StepReport:
        """Wait as long as a step takes, and report the next one."""
        ended = time.perf_counter() + sum(self.seconds.values())
        self._policy(self._proposals[len(self._left) % len(self._proposals)])
        time.sleep(max(0.0, ended - time.perf_counter()))
        return replace(self._left.pop(0), seconds=self.seconds)
