"""Hidden cases of lesson 03."""

import torch


def check_forget(generator):
    """Return blocks of one to sixteen, accepted to any place."""
    blocks = torch.randint(1, 17, (40,), generator=generator).tolist()
    return [[(gamma, int(torch.randint(gamma + 1, (), generator=generator))) for gamma in blocks]]
