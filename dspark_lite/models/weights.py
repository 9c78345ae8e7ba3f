"""The weights of a target and a drafter: which they share, and what they and their caches take in memory."""

import torch

from ..common.fingerprint import network


def kv_bytes(config, item: int) -> int:
    """Bytes of one token's keys and values in every layer, each number of `item` bytes."""
    return 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim * item


def of_target(target) -> dict[str, torch.Tensor]:
    """The embedding and the LM head of a target, by the names of a draft's copies of them; without those that are quantised."""
    both = {
        "embed_tokens.weight": target.model.get_input_embeddings(),
        "lm_head.weight": target.model.get_output_embeddings(),
    }
    weights = {name: getattr(module, "weight", None) for name, module in both.items()}
    return {
        name: weight.detach()
        for name, weight in weights.items()
        if weight is not None and weight.is_floating_point()
    }


def held(target, drafter, tokens: int) -> dict[str, int]:
    """Bytes that a target and a drafter (None: none) hold beside each other, or would hold if they are on the meta device.

    They are the target's weights, the drafter's own (what it shares with the target is counted there), and keys and
    values of `tokens` tokens (not the room after them that a growing buffer may have).
    """
    models = [network(model) for model in (target, drafter) if model is not None]
    # 0, as the drafter's, on the meta device
    shared = {name: weight.data_ptr() for name, weight in of_target(target).items()}
    own = [
        (name, value)
        for model in models[1:]
        for name, value in model.named_parameters()
        if shared.get(name) != value.data_ptr()
    ]
    caches = sum(
        kv_bytes(config, target.dtype.itemsize)
        for config in (target.config, *(model.config for model in models[1:]))
    )
    return {
        "target": sum(value.nbytes for value in (*models[0].parameters(), *models[0].buffers())),
        "drafter": sum(value.nbytes for _, value in own)
        + sum(value.nbytes for model in models[1:] for value in model.buffers()),
        "keys and values": caches * tokens,
    }


def peak(device: torch.device) -> str:
    """The most memory that tensors have taken on a GPU since the process began, in words."""
    if device.type != "cuda":
        return "on a CPU nobody counts the peak"
    return f"{torch.cuda.max_memory_allocated(device) / 1e9:.2f} GB at the peak so far"
