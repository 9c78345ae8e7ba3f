"""Traffic for a serving engine: what is asked, when it arrives, and two ways to drive an engine with it."""

import time
from collections.abc import Iterator
from itertools import islice

import torch

from ..common.errors import RequestError
from ..common.timing import clock
from .engine import Engine, Request, StepReport


def poisson(rate: float, count: int, generator: torch.Generator) -> list[float]:
    """Seconds at which `count` requests arrive, independently of one another, `rate` a second on average."""
    if not rate > 0:
        raise RequestError(f"the arrival rate is {rate} requests a second; it must be above 0")
    return torch.empty(count, dtype=torch.float64).exponential_(rate, generator=generator).cumsum(0).tolist()


def requests(prompts: dict[str, list[torch.Tensor]], generator: torch.Generator, *,
             shares: dict[str, float] | None = None, new_tokens: tuple[int, int] = (160, 160)) -> Iterator[Request]:
    """An endless stream of requests for prompts [1, n] by domain: a domain by its share (equal ones unless told), a
    random prompt of it, a longest answer between two bounds, a seed of its own."""
    domains = list(prompts if shares is None else shares)
    weights = torch.tensor([1.0 if shares is None else float(shares[domain]) for domain in domains])

    def integer(low, high):
        return int(torch.randint(low, high, (1,), generator=generator))

    while True:
        domain = domains[torch.multinomial(weights, 1, generator=generator).item()]
        ids = prompts[domain][integer(0, len(prompts[domain]))]
        yield Request(ids, integer(new_tokens[0], new_tokens[1] + 1), seed=integer(0, 2**31), domain=domain)


def closed_loop(engine: Engine, stream: Iterator[Request], concurrency: int) -> Iterator[StepReport]:
    """Steps of an engine that always has so many requests under way: each that ends is replaced at once."""
    while True:
        for request in islice(stream, concurrency - len(engine.running) - len(engine.waiting)):
            engine.submit(request)
        yield engine.step()


def open_loop(engine: Engine, stream: Iterator[Request], arrivals: list[float]) -> Iterator[StepReport]:
    """Steps of an engine whose requests arrive at these seconds from now, whatever it is doing; until all are answered.

    A request that finds the queue full is gone: its client was told.
    """
    started, waiting = clock(engine.target.device), list(reversed(arrivals))
    while waiting or not engine.idle:
        now = clock(engine.target.device) - started
        if engine.idle and waiting[-1] > now:
            time.sleep(waiting[-1] - now)
        while waiting and waiting[-1] <= clock(engine.target.device) - started:
            waiting.pop()
            if not engine.full:
                engine.submit(next(stream))
        yield engine.step()
