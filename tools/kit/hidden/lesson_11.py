"""Hidden cases of lesson 11."""

import torch

from dspark_lite.course.own_decoder.small_engine import index_tensors


def check_indices(generator):
    """Return seven tokens, as the checker wants them, of two to five requests that start
    anywhere."""
    cases = []
    for _ in range(20):
        requests = int(torch.randint(2, 6, (), generator=generator))
        counts = 1 + torch.bincount(
            torch.randint(requests, (7 - requests,), generator=generator), minlength=requests
        )
        cases.append((torch.randint(0, 50, (requests,), generator=generator), counts))
    return [cases]


def check_mask(generator):
    """Return steps of two to four requests over a cache in which some keys are nobody's."""
    cases = []
    for _ in range(20):
        requests = int(torch.randint(2, 5, (), generator=generator))
        starts, counts = torch.randint(1, 5, (2, requests), generator=generator)
        cached, token = (
            index_tensors(torch.zeros_like(starts), starts),
            index_tensors(starts, counts),
        )
        owner = torch.where(torch.rand(len(cached[0]), generator=generator) < 0.2, -1, cached[0])
        cases.append((*token, torch.cat([owner, token[0]]), torch.cat([cached[1], token[1]])))
    return [cases]


def check_stops_paying(generator):
    """Return machines whose requests cost from nothing to ten tokens, and drafts of every chance."""
    drawn = torch.rand((30, 5), generator=generator, dtype=torch.float64)
    low, high = torch.tensor([1, 0, 0.1, 2, 0.05]), torch.tensor([40, 1, 1.1, 6, 0.9])
    return [[tuple(row) for row in (low + (high - low) * drawn).tolist()]]
