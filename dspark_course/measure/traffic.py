"""Traffic for a serving engine: what is asked, when it arrives, and a loop that keeps an engine busy with it."""

from collections.abc import Iterator
from itertools import islice

import torch

from dspark_lite.common.errors import RequestError
from dspark_lite.serving.engine import Engine, Request, StepReport


def poisson(rate: float, count: int, generator: torch.Generator) -> list[float]:
    """Seconds at which `count` requests arrive, independently of one another, `rate` a second on average."""
    if not rate > 0:
        raise RequestError(f"the arrival rate is {rate} requests a second; it must be above 0")
    return torch.empty(count, dtype=torch.float64).exponential_(rate, generator=generator).cumsum(0).tolist()


def requests(prompts: dict[str, list[torch.Tensor]], generator: torch.Generator, *,
             new_tokens: tuple[int, int]) -> Iterator[Request]:
    """An endless stream of requests for prompts [1, n] by domain: a random domain, a random prompt of it, a longest answer
    between two bounds, a seed of its own."""
    domains, weights = list(prompts), torch.ones(len(prompts))

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
