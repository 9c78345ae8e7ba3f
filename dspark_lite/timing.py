"""How long pieces of work take on a device, side by side."""

import numpy as np
import torch

from .decoding import clock


def milliseconds(works: dict, device: torch.device, repeats: int = 20) -> dict:
    """Median milliseconds of each `work()` of {name: work}, the device's own work included.

    The works take turns, so that a busy moment of the machine meets all of them; the first turn is not counted.
    """
    found = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            started = clock(device)
            work()
            found[name].append(clock(device) - started)
    return {name: float(np.median(seconds[1:]) * 1e3) for name, seconds in found.items()}
