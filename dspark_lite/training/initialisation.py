"""Random weights of the size that a width asks for: what a layer is given and what it gives then have the same scale."""

from torch import nn

RESIDUAL = ("o_proj", "down_proj")  # what adds to the residual stream
MARKOV_DEVIATION = 0.3


def initialise(model: nn.Module, layers: int) -> None:
    """Draws every weight anew with deviation 1/sqrt(inputs); those that add to the residual stream are divided by
    sqrt(2 * layers), so that the stream does not grow with depth.

    An embedding is drawn as the LM head that reads its rows. A sequential head begins without a say, since its second
    matrix is zero; the first is large enough for the second to have a gradient at once.
    """
    for name, module in model.named_modules():
        if not isinstance(module, (nn.Linear, nn.Embedding)):
            continue
        deviation = module.weight.shape[1] ** -0.5
        if name.rpartition(".")[2] in RESIDUAL:
            deviation /= (2 * layers) ** 0.5
        nn.init.normal_(module.weight, std=deviation)
        if getattr(module, "bias", None) is not None:
            nn.init.zeros_(module.bias)
    head = getattr(model, "markov_head", None)
    if head is not None:
        nn.init.normal_(head.markov_w1.weight, std=MARKOV_DEVIATION)
        nn.init.zeros_(head.markov_w2.weight)
