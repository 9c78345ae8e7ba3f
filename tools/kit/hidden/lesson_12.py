"""Hidden cases of lesson 12."""

import numpy as np
import torch


def tallies(generator, prompts: int) -> np.ndarray:
    """Return tokens and rounds of each prompt, [N, 2]."""
    rounds = torch.randint(1, 30, (prompts,), generator=generator)
    return (
        torch.stack([rounds + torch.randint(0, 90, (prompts,), generator=generator), rounds], 1)
        .double()
        .numpy()
    )


def check_resampled_gain(generator):
    """Return other drafters on three to eight prompts, some of them drawn twice."""
    cases = []
    for _ in range(20):
        prompts = int(torch.randint(3, 9, (), generator=generator))
        cases.append(
            (
                tallies(generator, prompts),
                tallies(generator, prompts),
                torch.randint(prompts, (prompts,), generator=generator).numpy(),
            )
        )
    return [cases]


def check_verdict(generator):
    """Return one to four margins each, many of them near zero."""
    cases = []
    for _ in range(60):
        middles = torch.randn(
            int(torch.randint(1, 5, (), generator=generator)), generator=generator
        ).round(decimals=1)
        halves = torch.rand(len(middles), generator=generator).round(decimals=1)
        cases.append((torch.stack([middles - halves, middles + halves], 1).double().numpy(),))
    return [cases]
