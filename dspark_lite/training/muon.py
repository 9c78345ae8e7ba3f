"""Muon in the number format that a device multiplies fast (Jordan et al. 2024)."""

import torch


def orthogonalised(
    matrices: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float
) -> torch.Tensor:
    """Matrices [k, a, b] with their singular values brought near 1 by Newton-Schulz iterations, all at once."""
    a, b, c = coefficients
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT
    x = x / x.norm(dim=(1, 2), keepdim=True).clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x if wide else x.mT


class Muon(torch.optim.Muon):
    """torch's Muon, with the iterations in `dtype` and once for all matrices of a shape.

    torch iterates in bfloat16 always, a matrix at a time. A CPU without 16-bit arithmetic emulates it: there an update of
    the tiny target took longer than the pass that its gradient comes from.
    """

    def __init__(self, params, dtype: torch.dtype, **options):
        super().__init__(params, **options)
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure=None):
        """One update of every matrix that has a gradient; takes no closure."""
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[torch.Tensor]] = {}
            for parameter in group["params"]:
                if parameter.grad is not None:
                    by_shape.setdefault(parameter.shape, []).append(parameter)
            for (rows, columns), parameters in by_shape.items():
                directions = torch.stack(
                    [self._direction(parameter, group) for parameter in parameters]
                ).to(self.dtype)
                updates = orthogonalised(
                    directions, group["ns_coefficients"], group["ns_steps"], group["eps"]
                )
                rate = group["lr"] * max(1, rows / columns) ** 0.5  # torch's "original" adjustment
                for parameter, update in zip(parameters, updates):
                    parameter.mul_(1 - group["lr"] * group["weight_decay"]).add_(
                        update, alpha=-rate
                    )

    def _direction(self, parameter: torch.Tensor, group: dict) -> torch.Tensor:
        """The gradient with Nesterov's momentum, which is kept under torch's name."""
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        momentum = state["momentum_buffer"].lerp_(parameter.grad, 1 - group["momentum"])
        return parameter.grad.lerp(momentum, group["momentum"])
