"""One training on one or several processes (accelerate): `accelerate launch -m dspark_lite train RECIPE`.

Data parallel by default. A drafter too large for one GPU is sharded by FSDP, which is a matter of accelerate's config:
`accelerate launch --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy NO_WRAP -m dspark_lite train RECIPE`.
NO_WRAP, because the packed pass uses parts of a layer outside its forward. Saves and checkpoints hold whole parameters
either way.
"""

from datetime import timedelta

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor

WAIT = timedelta(days=30)  # the main process writes answers and cache alone, the others wait


def processes() -> Accelerator:
    """The processes of this training: those of `accelerate launch`, or this one alone, which stays on its device."""
    return Accelerator(device_placement=False, kwargs_handlers=[InitProcessGroupKwargs(timeout=WAIT)])


def training_device(device: str | None) -> torch.device:
    """The device asked for, else a GPU where there is one; each launched process has its own."""
    accelerator = processes()
    if accelerator.num_processes > 1:
        return accelerator.device
    return torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))


class Objective(nn.Module):
    """The model and its loss as one module, so that DDP and FSDP see the whole forward pass."""

    def __init__(self, model: nn.Module, loss_of):
        super().__init__()
        self.model, self.loss_of = model, loss_of

    def forward(self, *batch: torch.Tensor):
        return self.loss_of(batch)


def own_rows(accelerator: Accelerator, batch: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """This process's rows of a batch: every `num_processes`-th one."""
    return tuple(tensor[accelerator.process_index::accelerator.num_processes] for tensor in batch)


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that FSDP may have sharded, gathered; every process has to call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def sharded_like(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The reverse of `whole`: this process's part of a tensor, where `like` is sharded and has its shape."""
    if isinstance(like, DTensor) and tensor.shape == like.shape:
        return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements)
    return tensor


def gather(model: nn.Module) -> None:
    """Turns parameters that FSDP has sharded back into plain ones, so that the model can be used and written."""
    plain: dict[int, nn.Parameter] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if isinstance(parameter, DTensor):
                if id(parameter) not in plain:
                    plain[id(parameter)] = nn.Parameter(parameter.detach().full_tensor(), parameter.requires_grad)
                module.register_parameter(name, plain[id(parameter)])
