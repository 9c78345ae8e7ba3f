"""Hidden cases of lesson 11."""

import numpy as np
import torch

from dspark_lite.course.exercises.small_engine import index_tensors


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


def check_throughput_at(generator):
    """Return frontiers of four to eight loads, asked within and above what they reach."""
    cases = []
    for size in torch.randint(4, 9, (20,), generator=generator).tolist():
        users = torch.arange(1, size + 1) * (1 + torch.rand((), generator=generator))
        speeds = 20 + 200 * torch.rand(size, generator=generator).sort(descending=True).values
        curve = torch.stack([speeds, speeds * users.cumsum(0)], 1).double().numpy()
        cases.append(
            (
                curve,
                float(
                    np.round(
                        curve[-1, 0]
                        + 1.2 * float(torch.rand((), generator=generator)) * np.ptp(curve[:, 0]),
                        2,
                    )
                ),
            )
        )
    return [cases]
