"""Hidden cases of lesson 13."""

import numpy as np
import torch


def check_machines(generator):
    """Return frontiers whose speeds fall while throughput rises; promises that one machine keeps
    and some that none does."""
    cases = []
    for _ in range(20):
        steps = torch.randint(10, 60, (2, 4), generator=generator).double()
        curve = torch.stack([400 - steps[0].cumsum(0), 400 + 4 * steps[1].cumsum(0)], 1).numpy()
        inside = float(torch.rand((), generator=generator))
        promise = (
            round(curve[-1, 0] + inside * (curve[0, 0] - curve[-1, 0]), 3)
            if inside < 0.8
            else float(curve[0, 0] + 500)
        )
        cases.append(
            (np.array(curve), int(torch.randint(1, 500, (), generator=generator)), promise)
        )
    return [cases]
