"""Hidden cases of lesson 08."""

import torch


def check_is_tie(generator):
    """Return three of six logits near the top, any two of them asked about."""
    cases = []
    for _ in range(60):
        logits = torch.cat(
            [10 - 0.2 * torch.rand(3, generator=generator), 5 * torch.rand(3, generator=generator)]
        )
        one, other = torch.randperm(6, generator=generator)[:2].tolist()
        cases.append((logits, one, other, 0.1))
    return [cases]


def check_first_difference(generator):
    """Return traces of six tensors, from any place on different, or nowhere."""
    cases = []
    for _ in range(20):
        ours = {f"tensor {n}": torch.randn(3, generator=generator) for n in range(6)}
        first = int(torch.randint(7, (), generator=generator))
        theirs = {
            name: tensor + (n >= first) * torch.randn(3, generator=generator)
            for n, (name, tensor) in enumerate(ours.items())
        }
        cases.append((ours, theirs, 1e-4))
    return [cases]
