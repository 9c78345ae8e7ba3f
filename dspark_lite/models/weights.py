"""The torch module in a target or a drafter: which weights it has, and what they and their caches take in memory."""

import hashlib

import torch
from torch import nn


def fingerprint(model) -> str | None:
    """A digest of the first numbers of every parameter of a target or drafter, which tells weights under the same name
    apart; None for a drafter without weights."""
    module = network(model)
    if module is None:
        return None
    digest = hashlib.sha256()
    for parameter in module.parameters():
        digest.update(parameter.detach().flatten()[:16].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def network(model) -> nn.Module | None:
    """The torch module in a target or a drafter; None in a drafter without weights."""
    while not isinstance(model, nn.Module) and hasattr(model, "model"):
        model = model.model  # a target holds its model, a small language model holds a target
    return model if isinstance(model, nn.Module) else None


def kv_bytes(config, item: int) -> int:
    """Bytes of one token's keys and values in every layer, each number of `item` bytes."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * item


def held(target, drafter, tokens: int) -> dict[str, int]:
    """Bytes that a target and a drafter (None: none) hold beside each other.

    They are the target's weights, the drafter's own (what it shares with the target is counted there), and keys and
    values of `tokens` tokens (not the room behind them that a growing buffer may have).
    """
    models = [target.model] if drafter is None else [target.model, network(drafter)]
    alone, together = _distinct_bytes(models[:1]), _distinct_bytes(models)
    caches = sum(kv_bytes(model.config, target.dtype.itemsize) for model in models)
    return {"target": alone, "drafter": together - alone, "keys and values": caches * tokens}


def _distinct_bytes(models: list[nn.Module]) -> int:
    """Bytes of all parameters and buffers, each once, however many modules share it."""
    tensors = [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]
    return sum({tensor.data_ptr(): tensor.nbytes for tensor in tensors}.values())


def peak(device: torch.device) -> str:
    """The most memory that tensors have taken on a GPU since the process began, in words."""
    if device.type != "cuda":
        return "on a CPU nobody counts the peak"
    return f"{torch.cuda.max_memory_allocated(device) / 1e9:.2f} GB at the peak so far"
