"""The length of a training, the rates of its updates, and the time that it may take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..common.errors import DSparkLiteError
from ..common.files import load_fields, write_json

ANSWER_TIME_SHARE = 0.4  # share of a bounded time after which no further answers are begun
WARM_UP = 0.04  # share of the progress in which the rates rise
FINAL_SHARE = 0.02  # of the peak rates, at the end of the cosine


@dataclass(frozen=True)
class Plan:
    """The length of a training and its rates."""

    steps: int  # updates, unless the time is over sooner
    learning_rate: float  # AdamW's, at its peak
    # Muon's for the layers' matrices, at its peak. None: AdamW moves them, too.
    matrix_rate: float | None = None
    weight_decay: float = 0.0
    # The last updates, in which constant rates fall linearly to 0. None: rates follow a cosine.
    cooldown_updates: int | None = None
    # Updates from progress 0 to 1, in a training of several passes. None: all.
    progress_updates: int | None = None
    precision: str = "float32"  # of the matrix products; with float16 the loss is scaled
    allowance: Allowance | None = None  # None: the time has no bound
    micro_batch: int | None = None  # rows whose gradients are computed at once; None: all
    # Start and end of these updates, as shares of the allowed time.
    time_share: tuple[float, float] = (0.0, 1.0)

    def time_over(self) -> float:
        """Return the share of these updates' time that is over; 0 if it has no bound."""
        return 0.0 if self.allowance is None else self.allowance.spent(*self.time_share)

    def progress(self, step: int) -> float:
        """Return the progress at update `step` (from 0): 0 at the first, 1 at the last, counted in
        updates or in time.

        The larger one counts. Rates and losses follow the progress, so both reach their ends when
        time cuts a training short.
        """
        return min(
            1.0, max(step / max(1, (self.progress_updates or self.steps) - 1), self.time_over())
        )

    def rate(self, step: int, progress: float) -> float:
        """Return an update's share of the peak rates: linear warm-up, then a cosine, or constant
        with a linear end."""
        span = self.progress_updates or self.steps
        warm = (progress * (span - 1) + 1) / max(1.0, WARM_UP * span)
        if warm <= 1:
            return warm
        if self.cooldown_updates is not None:
            return min(1.0, (self.steps - step) / (self.cooldown_updates + 1))
        fallen = max(0.0, (progress - WARM_UP) / (1 - WARM_UP))
        return FINAL_SHARE + (1 - FINAL_SHARE) * (1 + math.cos(math.pi * fallen)) / 2


class Allowance:
    """The seconds that all runs of a training may take together.

    The file `path` keeps those of earlier runs under the `identity` of the training; another
    training has its whole time. `clock` returns seconds. Raise DSparkLiteError for a time that is
    not above 0 or not finite, CheckpointError if the file is damaged.
    """

    def __init__(
        self,
        path: Path,
        seconds: float,
        identity: str = "",
        clock: Callable[[], float] = time.monotonic,
    ):
        if not 0 < seconds < math.inf:
            raise DSparkLiteError(
                f"--minutes is {seconds / 60:g}; a training needs some time and an end, "
                "5 minutes for the tiny target, an evening on a T4"
            )
        self.path, self.seconds, self.identity = path, seconds, identity
        self.clock, self.started = clock, clock()
        self.before = 0.0
        if path.exists():
            self.before = load_fields(self._earlier, path, "seconds", identity=None)

    def _earlier(self, seconds: float, identity: str | None) -> float:
        """Return the seconds of earlier runs of this training."""
        return float(seconds) if identity == self.identity else 0.0

    def spent(self, start: float = 0.0, end: float = 1.0) -> float:
        """Return the share, from 0 to 1, that is over of the time between its shares `start` and
        `end`."""
        over = (self.before + self.clock() - self.started) / self.seconds
        return min(1.0, max(0.0, (over - start) / (end - start)))

    def keep(self) -> None:
        """Write the seconds of all runs so far, for the next run."""
        write_json(
            self.path,
            {"seconds": self.before + self.clock() - self.started, "identity": self.identity},
        )
