"""The weights that a target and a drafter share, and the memory of both with their caches."""

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from ..common.errors import CheckpointError
from ..common.fingerprint import module_of

SHARED_TENSORS = ("embed_tokens.weight", "lm_head.weight")  # in a draft's names


def kv_bytes(config, item: int) -> int:
    """Return the bytes of a token's keys and values in all layers, with `item` bytes a number."""
    key_heads, size = key_heads_and_size(config)
    return 2 * config.num_hidden_layers * key_heads * size * item


def key_heads_and_size(config) -> tuple[int, int]:
    """Return the key heads of a layer and the size of a head. A family whose config names neither
    (GPT-2, Qwen2) divides its hidden size among its query heads."""
    heads = config.num_attention_heads
    key_heads = getattr(config, "num_key_value_heads", None)
    if not isinstance(key_heads, int) or key_heads < 1 or heads % key_heads:
        key_heads = heads
    size = getattr(config, "head_dim", None)
    return key_heads, size if isinstance(size, int) else config.hidden_size // heads


def target_weights(target) -> dict[str, torch.Tensor]:
    """Return a target's embedding and LM head by their names in a draft.

    Quantised weights and those that are offloaded are left out.
    """
    return {name: weight for name, weight in _tables(target).items() if not weight.is_meta}


def check_target_weights(target) -> None:
    """Raise CheckpointError unless a draft can be trained on a target's embedding and LM head."""
    shared = target_weights(target)
    for name in (name for name in SHARED_TENSORS if name not in shared):
        raise CheckpointError(
            f"the {name.removesuffix('.weight')} of {target.name} is quantised or offloaded, and a draft is trained on "
            "the target's own: load the target with plain weights in memory"
        )


def _tables(target) -> dict[str, torch.Tensor]:
    """Return a target's embedding and LM head as far as they are plain, on the meta device too."""
    modules = target.model.get_input_embeddings(), target.model.get_output_embeddings()
    weights = {
        name: getattr(module, "weight", None) for name, module in zip(SHARED_TENSORS, modules)
    }
    # A torchao weight is a subclass that calls itself floating point.
    return {
        name: weight.detach()
        for name, weight in weights.items()
        if weight is not None
        and weight.is_floating_point()
        and not is_traceable_wrapper_subclass(weight)
    }


def memory_bytes(target, drafter, tokens: int) -> dict[str, int]:
    """Return the bytes of a target, a drafter, and keys and values of `tokens` tokens.

    `drafter` may be None. Weights that both use count as the target's. The room that a growing
    cache keeps free is not counted. Models on the meta device give the bytes that they would take.
    """
    models = [module_of(model) for model in (target, drafter) if model is not None]
    # On the meta device every address is 0, so a tensor of the same name counts as shared.
    shared = {name: weight.data_ptr() for name, weight in _tables(target).items()}
    draft_weights = [
        value
        for model in models[1:]
        for name, value in model.named_parameters()
        if shared.get(name) != value.data_ptr()
    ]
    token_bytes = sum(
        kv_bytes(config, target.dtype.itemsize)
        for config in (target.config, *(model.config for model in models[1:]))
    )
    return {
        "target": sum(value.nbytes for value in (*models[0].parameters(), *models[0].buffers())),
        "drafter": sum(value.nbytes for value in draft_weights)
        + sum(value.nbytes for model in models[1:] for value in model.buffers()),
        "keys and values": token_bytes * tokens,
    }
