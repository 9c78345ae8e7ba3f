"""How long pieces of work take on a device, side by side."""

import random
import time

import numpy as np
import torch


def clock(device: torch.device) -> float:
    """Seconds, after the device has finished what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Moment:
    """A moment of the host, and on a GPU one in the device's work, which the host does not wait for."""

    def __init__(self, device: torch.device):
        self.event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self.event:
            self.event.record()
        self.host = time.perf_counter()

    def device_seconds_since(self, earlier: "Moment") -> float:
        """Seconds of the device from one moment to this one; on a GPU both must have passed."""
        return (
            earlier.event.elapsed_time(self.event) / 1e3 if self.event else self.host - earlier.host
        )


class WallSeconds:
    """A context that knows afterwards, as its `total`, how many seconds passed inside, the device's own work included."""

    def __init__(self, device: torch.device):
        self.device, self.total = device, 0.0

    def __enter__(self) -> "WallSeconds":
        self.started = clock(self.device)
        return self

    def __exit__(self, *error) -> None:
        self.total = clock(self.device) - self.started


def wall_seconds(function, device: torch.device) -> float:
    """Seconds of `function()`, the device's own work included."""
    with WallSeconds(device) as spent:
        function()
    return spent.total


def time_interleaved(
    functions: dict, device: torch.device, repeats: int = 20, *, shuffled: bool = False
) -> dict[object, list[float]]:
    """Times each of {name: function} `repeats` times in round-robin, so that a busy moment of the machine meets all of
    them; the first pass is warm-up. With `shuffled` each pass has another order, so that what comes and goes regularly does
    not always meet the same one. Return milliseconds, the device's own work included."""
    order, dice, passes = list(functions), random.Random(0), []
    for _ in range(repeats + 1):
        passes.append({name: 1e3 * wall_seconds(functions[name], device) for name in order})
        if shuffled:
            dice.shuffle(order)
    return {name: [one[name] for one in passes[1:]] for name in functions}


def milliseconds(functions: dict, device: torch.device, repeats: int = 20) -> dict:
    """Median milliseconds of each of {name: function} over `repeats` rounds of `time_interleaved`."""
    return {
        name: float(np.median(times))
        for name, times in time_interleaved(functions, device, repeats).items()
    }


def least_milliseconds(functions: dict, device: torch.device, repeats: int = 20) -> dict:
    """Shortest milliseconds of each of {name: function} over `repeats` rounds of `time_interleaved`, shuffled: other work on
    the machine can only lengthen a time."""
    return {
        name: min(times)
        for name, times in time_interleaved(functions, device, repeats, shuffled=True).items()
    }


def fastest(function, device: torch.device) -> float:
    """Seconds of the fastest of ten calls, after one that warms up."""
    return min([wall_seconds(function, device) for _ in range(11)][1:])


def bytes_a_second(device: torch.device) -> float:
    """How fast this device reads its memory."""
    long = torch.zeros(2**28 if device.type == "cuda" else 2**24, device=device)
    return long.nbytes / fastest(long.sum, device)
