"""Calibration that lives: temperatures that are checked against the newest verdicts, and fitted anew where they no longer fit."""

from collections import deque

import numpy as np

from ...common.errors import RequestError
from ...scheduling.calibration import STS, check_calibration, fit_sts


class OnlineSTS:
    """Sequential temperature scaling over a `window` of the newest blocks: once it is full, the temperatures are checked after `every`
    further blocks, and where a fresh fit would do better (calibration.check_calibration) it takes their place as `sts`.

    Blocks must be verified whole, and chosen by lot: a service takes one in a few for it. Those that a scheduler itself verified
    whole are blocks that were trusted, and a head that trusts too little would never hear of it. Raise RequestError for a
    window that is not at least `every` blocks long.
    """

    def __init__(self, sts: STS, *, window: int = 1000, every: int = 200):
        if not 1 <= every <= window:
            raise RequestError(
                f"a window of {window} blocks cannot be checked every {every}; the window must be the longer one"
            )
        self.sts, self.every, self.refits = sts, every, 0
        self._logits, self._accepted = deque(maxlen=window), deque(maxlen=window)
        self._fresh = 0  # blocks since the last check

    def observe(self, logits, accepted) -> bool:
        """Record blocks, raw logits [N, g] and accepted drafts [N], in their order. Return whether
        the temperatures have changed."""
        before = self.refits
        for row, count in zip(np.asarray(logits), np.asarray(accepted)):
            self._logits.append(row)
            self._accepted.append(count)
            self._fresh += 1
            if self._fresh >= self.every and len(self._accepted) == self._accepted.maxlen:
                newest, self._fresh = (np.stack(self._logits), np.array(self._accepted)), 0
                if not check_calibration(self.sts, *newest).fits:
                    self.sts = fit_sts(*newest, dataset=self.sts.dataset, draft=self.sts.draft)
                    self.refits += 1
        return self.refits > before
