"""Measure the time of functions on a device, and compare it."""

import random
import time

import torch


def clock(device: torch.device) -> float:
    """Return the time in seconds, after the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


class Moment:
    """A moment on the host, and on a GPU also a moment in the device's work.

    The host does not wait for it.
    """

    def __init__(self, device: torch.device):
        self.event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self.event:
            self.event.record(torch.cuda.current_stream(device))
        self.host = time.perf_counter()

    def device_seconds_since(self, earlier: "Moment") -> float:
        """Return the device's seconds from `earlier` to this moment.

        On a GPU both must have passed.
        """
        return (
            earlier.event.elapsed_time(self.event) / 1e3 if self.event else self.host - earlier.host
        )


class WallSeconds:
    """A context that measures its seconds, with the device's work, as `total`."""

    def __init__(self, device: torch.device):
        self.device, self.total = device, 0.0

    def __enter__(self) -> "WallSeconds":
        self.started = clock(self.device)
        return self

    def __exit__(self, *error) -> None:
        self.total = clock(self.device) - self.started


def wall_seconds(function, device: torch.device) -> float:
    """Return the seconds of `function()`, with the device's work."""
    with WallSeconds(device) as spent:
        function()
    return spent.total


def time_interleaved(
    functions: dict, device: torch.device, repeats: int = 20, *, shuffled: bool = False
) -> dict[object, list[float]]:
    """Time each of {name: function} `repeats` times in round-robin. Return {name: milliseconds}.

    A busy moment of the machine slows all functions alike. The first pass is warm-up. With
    `shuffled` each pass has another order, so that a regular disturbance does not always hit the
    same function. Times include the device's work.
    """
    order, dice, passes = list(functions), random.Random(0), []
    for _ in range(repeats + 1):
        passes.append({name: 1e3 * wall_seconds(functions[name], device) for name in order})
        if shuffled:
            dice.shuffle(order)
    return {name: [times[name] for times in passes[1:]] for name in functions}


def least_milliseconds(functions: dict, device: torch.device, repeats: int = 20) -> dict:
    """Return the shortest milliseconds of each of {name: function}, from shuffled passes.

    Other work on the machine can only lengthen a time.
    """
    return {
        name: min(times)
        for name, times in time_interleaved(functions, device, repeats, shuffled=True).items()
    }


def fastest(function, device: torch.device) -> float:
    """Return the seconds of the fastest of ten calls, after a warm-up call."""
    return min([wall_seconds(function, device) for _ in range(11)][1:])


def bytes_a_second(device: torch.device) -> float:
    """Return the bytes a second at which a device reads its memory."""
    numbers = torch.zeros(2**28 if device.type == "cuda" else 2**24, device=device)
    return numbers.nbytes / fastest(numbers.sum, device)
