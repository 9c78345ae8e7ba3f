"""What moves the weights: AdamW, and Muon for the matrices inside the layers where a recipe asks for it."""

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType

from ..common.errors import DSparkLiteError

MUON_MOMENTUM = 0.95
VOCABULARY = ("embed_tokens", "lm_head", "markov_w1", "markov_w2")  # tables with a row a token: AdamW's, as vectors are


def trainable(model) -> dict[str, torch.nn.Parameter]:
    """The parameters that the optimisers move, by name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def is_layer_matrix(name: str, parameter: torch.Tensor) -> bool:
    """Whether Muon is meant for this parameter: a matrix between hidden states, no vector and no vocabulary's table."""
    return parameter.ndim == 2 and min(parameter.shape) > 1 and not any(table in name for table in VOCABULARY)


def make_optimisers(model, learning_rate: float, matrix_rate: float | None, weight_decay: float) -> list[torch.optim.Optimizer]:
    """AdamW at `learning_rate`, for everything or, with a `matrix_rate`, beside Muon at that rate for the layers' matrices
    (Jordan et al. 2024). Every group holds its highest rate as "peak"."""
    named = trainable(model)
    matrices = [p for name, p in named.items() if matrix_rate is not None and is_layer_matrix(name, p)]
    chosen = set(map(id, matrices))
    others = [p for p in named.values() if id(p) not in chosen]
    optimisers = [torch.optim.AdamW(others, lr=learning_rate, betas=(0.9, 0.98), weight_decay=weight_decay)] if others else []
    if matrices:
        optimisers.append(torch.optim.Muon(matrices, lr=matrix_rate, momentum=MUON_MOMENTUM, weight_decay=weight_decay))
    for optimiser in optimisers:
        for group in optimiser.param_groups:
            group["peak"] = group["lr"]
    return optimisers


def check_sharding(accelerator: Accelerator, matrix_rate: float | None) -> None:
    """Raises DSparkLiteError where parameters are sharded and Muon, which needs whole matrices, is asked for."""
    if matrix_rate is not None and accelerator.distributed_type == DistributedType.FSDP:
        raise DSparkLiteError("Muon needs whole matrices and FSDP shards them; launch without --use_fsdp, or take matrix_rate out of "
                              "the recipe")
