"""Which weights a target or a drafter has: the torch module in it, and a digest that tells it from others of its name."""

import hashlib

from torch import nn


def network(model) -> nn.Module | None:
    """The torch module in a target or a drafter; None in a drafter without weights."""
    while not isinstance(model, nn.Module) and hasattr(model, "model"):
        model = model.model  # a target holds its model, a small language model holds a target
    return model if isinstance(model, nn.Module) else None


def fingerprint(model) -> str | None:
    """A digest of the first numbers of every parameter of a target or drafter, which tells weights under the same name
    apart; None for a drafter without weights. A file of 16-bit weights gives the same one in every number format."""
    module = network(model)
    if module is None:
        return None
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().flatten()[:16].half().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]
