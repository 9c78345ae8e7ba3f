"""Hidden cases of lesson 08."""

import torch

NAMES = [
    f"layers.{layer}.{part}.weight"
    for layer in range(4)
    for part in ("q_proj", "k_proj", "mlp", "norm")
]


def shapes(generator) -> dict:
    """Return some of the names, with one of few shapes each."""
    drawn = torch.rand(len(NAMES), generator=generator).tolist()
    sizes = torch.randint(2, 4, (len(NAMES), 2), generator=generator).tolist()
    return {name: tuple(size) for name, chance, size in zip(NAMES, drawn, sizes) if chance < 0.7}


def check_place(generator):
    """Return what a module asks for and what a file has."""
    return [[(shapes(generator), shapes(generator)) for _ in range(20)]]


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
