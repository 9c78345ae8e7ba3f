"""How long a training may take, over all its runs: first the target answers, then the drafter learns."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from ..common.errors import DSparkLiteError
from ..common.files import write_json

ANSWERING = 0.4  # share of the time after which no more answers are begun


class Allowance:
    """The seconds that a training may spend; what earlier runs have spent of them is kept in the file `path`.

    `clock` tells seconds. Raises DSparkLiteError for less than no time.
    """

    def __init__(self, path: Path, seconds: float, clock: Callable[[], float] = time.monotonic):
        if seconds <= 0:
            raise DSparkLiteError(f"--minutes is {seconds / 60:g}; a training needs some time, 5 minutes for the tiny target, an evening on a T4")
        self.path, self.seconds, self.clock, self.started = path, seconds, clock, clock()
        self.before = json.loads(path.read_text())["seconds"] if path.exists() else 0.0

    def spent(self) -> float:
        """Share of the time that is spent, 1 at most."""
        return min(1.0, (self.before + self.clock() - self.started) / self.seconds)

    def answering(self) -> bool:
        """Whether there is time to begin more answers."""
        return self.spent() < ANSWERING

    def learned(self) -> float:
        """Share of the time for updates that is spent; answers that were ready early leave more of it."""
        return max(0.0, self.spent() - ANSWERING) / (1 - ANSWERING)

    def keep(self) -> None:
        """Writes down what is spent, for the run after a stop."""
        write_json(self.path, {"seconds": self.before + self.clock() - self.started})
