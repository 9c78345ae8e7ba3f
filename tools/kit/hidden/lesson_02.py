"""Hidden cases of lesson 02."""

import torch


def distributions(generator, *shape: int) -> torch.Tensor:
    """Return distributions [..., V] without a zero."""
    values = 0.05 + torch.rand(shape, generator=generator)
    return values / values.sum(-1, keepdim=True)


def pairs(generator):
    """Return twenty pairs of distributions over three to nine tokens."""
    sizes = torch.randint(3, 10, (20,), generator=generator).tolist()
    return [tuple(distributions(generator, 2, size)) for size in sizes]


def check_keep(generator):
    """Return pairs of distributions."""
    return [pairs(generator)]


def check_residual(generator):
    """Return pairs of distributions."""
    return [pairs(generator)]


def check_next_distribution(generator):
    """Return whole blocks first, then refusals at any place."""
    whole, refused = [], []
    for _ in range(12):
        gamma, size = torch.randint(2, 7, (2,), generator=generator).tolist()
        p, q = distributions(generator, gamma + 1, size), distributions(generator, gamma, size)
        whole.append((p, q, gamma))
        refused.append((p, q, int(torch.randint(gamma, (), generator=generator))))
    return [whole, refused]
