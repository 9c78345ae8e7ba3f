"""How long pieces of work take on a device, side by side."""

import time

import numpy as np
import torch


def clock(device: torch.device) -> float:
    """Seconds, after the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def time_interleaved(functions: dict, device: torch.device, repeats: int = 20) -> dict[object, list[float]]:
    """Times each of {name: function} `repeats` times in round-robin, so that a busy moment of the machine meets all of
    them; the first pass is warm-up. Returns milliseconds, the device's own work included."""
    milliseconds = {name: [] for name in functions}
    for _ in range(repeats + 1):
        for name, function in functions.items():
            started = clock(device)
            function()
            milliseconds[name].append((clock(device) - started) * 1e3)
    return {name: times[1:] for name, times in milliseconds.items()}


def milliseconds(functions: dict, device: torch.device, repeats: int = 20) -> dict:
    """Median milliseconds of each of {name: function} over `repeats` rounds of `time_interleaved`."""
    return {name: float(np.median(times)) for name, times in time_interleaved(functions, device, repeats).items()}


def fastest(work, device: torch.device) -> float:
    """Seconds of the fastest of ten calls, after one that warms up."""
    found = []
    for _ in range(11):
        started = clock(device)
        work()
        found.append(clock(device) - started)
    return min(found[1:])


def bytes_a_second(device: torch.device) -> float:
    """How fast this device reads its memory."""
    long = torch.zeros(2**28 if device.type == "cuda" else 2**24, device=device)
    return long.nbytes / fastest(long.sum, device)
