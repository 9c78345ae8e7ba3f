"""How long a piece of work takes on a device."""

import numpy as np
import torch

from .decoding import clock


def milliseconds(work, device: torch.device, repeats: int = 20) -> float:
    """Median milliseconds of `work()`, the device's own work included; one call beforehand is not counted."""
    work()
    found = []
    for _ in range(repeats):
        started = clock(device)
        work()
        found.append(clock(device) - started)
    return float(np.median(found) * 1e3)
