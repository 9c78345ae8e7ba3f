"""Hidden cases of lesson 10."""

import torch

from dspark_lite.scheduling.cost_table import CostTable


def speeds(generator, tokens: int) -> list[float]:
    """Return falling steps per second of 1 to `tokens` tokens, jagged."""
    return (
        (1 / (1 + torch.rand(tokens, generator=generator, dtype=torch.float64)).cumsum(0))
        .mul(100)
        .tolist()
    )


def check_theta(generator):
    """Return some survivals, some requests, a table that is just long enough."""
    cases = []
    for _ in range(20):
        requests, admitted = (int(torch.randint(low, 6, (), generator=generator)) for low in (1, 0))
        survivals = torch.rand(admitted, generator=generator).tolist()
        cases.append((survivals, requests, CostTable(range(1, 12), speeds(generator, 11))))
    return [cases]


class Speeds:
    """Steps per second by tokens; an empty batch has none."""

    def __init__(self, generator, tokens: int):
        self.speeds = [0.0, *speeds(generator, tokens)]

    def __call__(self, batch) -> float:
        return self.speeds[int(batch)]


def blocks(generator, requests: int, gamma: int) -> torch.Tensor:
    """Return survivals [R, gamma]."""
    return (0.3 + 0.7 * torch.rand(requests, gamma, generator=generator)).cumprod(1)


def check_algorithm_1(generator):
    """Return one to five requests with blocks of one to six drafts."""
    cases = []
    for _ in range(40):
        requests, gamma = (int(torch.randint(1, high, (), generator=generator)) for high in (6, 7))
        cases.append(
            (blocks(generator, requests, gamma), Speeds(generator, requests * (gamma + 1)))
        )
    return [cases]


def check_lagged(generator):
    """Return three or four requests, old and current survivals drawn apart."""
    cases = []
    for _ in range(20):
        requests, gamma = (int(torch.randint(2, 5, (), generator=generator)) for _ in range(2))
        table = CostTable(
            range(1, requests * (gamma + 1) + 1), speeds(generator, requests * (gamma + 1))
        )
        cases.append(
            (blocks(generator, requests, gamma), blocks(generator, requests, gamma), table)
        )
    return [cases]


def check_least_survival(generator):
    """Return machines, and steps of one to 300 requests with blocks of up to seven drafts."""
    cases = []
    for _ in range(20):
        prices = torch.rand(3, generator=generator, dtype=torch.float64).tolist()
        requests = int(torch.randint(1, 301, (), generator=generator))
        tokens = int(torch.randint(requests, 8 * requests + 1, (), generator=generator))
        cases.append((*prices, requests, tokens, (requests + tokens) / 2))
    return [cases]
