"""What a round costs a batch as drafts grow longer, from the recorded measurement (Figure 4, right)."""

import numpy as np

from ..common.estimates import Estimate, bootstrap


def round_times(measured: dict, drafter: str, length: int) -> np.ndarray:
    """Milliseconds of a full round, target and drafter, by turn and context: [turns, contexts]."""
    def part(name):
        return [row["milliseconds"] for row in measured["rows"] if (row["part"], row["length"]) == (name, length)]

    return np.add(part("target"), part(drafter)).T


def full_round(times: np.ndarray) -> float:
    """Milliseconds of a full round from those by turn and context: the median turn, the mean over contexts."""
    return float(np.median(times, 0).mean())


def overhead(measured: dict, drafter: str, length: int) -> Estimate:
    """How much longer a full round of `drafter` takes than DFlash's, as a fraction.

    All took the same turns, so a resample draws the same turns for both.
    """
    both = np.stack([round_times(measured, name, length) for name in (drafter, "dflash")], 1)  # [turns, 2, contexts]
    return bootstrap(lambda groups: full_round(groups[0][:, 0]) / full_round(groups[0][:, 1]) - 1, [both])
