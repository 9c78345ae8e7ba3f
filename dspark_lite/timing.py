"""How long pieces of work take on a device, side by side."""

import numpy as np
import torch

from .decoding import clock


def turns(works: dict, device: torch.device, repeats: int = 20) -> dict[object, list[float]]:
    """Milliseconds of each `work()` of {name: work} in each of `repeats` turns, the device's own work included.

    The works take turns, so that a busy moment of the machine meets all of them; one more before them is not counted.
    """
    found = {name: [] for name in works}
    for _ in range(repeats + 1):
        for name, work in works.items():
            started = clock(device)
            work()
            found[name].append((clock(device) - started) * 1e3)
    return {name: spent[1:] for name, spent in found.items()}


def milliseconds(works: dict, device: torch.device, repeats: int = 20) -> dict:
    """Median milliseconds of each `work()` of {name: work} over `repeats` turns."""
    return {name: float(np.median(spent)) for name, spent in turns(works, device, repeats).items()}
