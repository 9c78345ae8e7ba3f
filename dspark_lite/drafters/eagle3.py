"""Eagle3 (Li et al. 2025): a layer drafts from the target's features, then from its own output."""

from dataclasses import dataclass

import torch
from torch import nn

from .autoregressive import Autoregressive
from .layers import Attention, DraftConfig, Layer


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(DraftConfig):
    """The fields of an Eagle3 draft.

    `ttt_length` is the number of passes that training unrolls, `step_loss_decay` the weight of a
    pass relative to the pass before it. With `norm_before_residual` the residual stream starts from
    the normed feature.
    """

    ttt_length: int
    step_loss_decay: float = 0.8
    norm_before_residual: bool = False


class Eagle3Attention(Attention):
    """Attention over the embedding of the next token and the feature, side by side."""

    width = 2


class Eagle3Layer(Layer):
    """A layer that norms the embedding and the feature before its attention reads them."""

    attention_class = Eagle3Attention

    def __init__(self, config: Eagle3Config):
        super().__init__(config)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class Eagle3(Autoregressive):
    """The autoregressive rival of the paper's Table 1: `gamma` tokens take `gamma` passes."""

    name = "eagle3"
    architecture, config_class = "Qwen3Eagle3Model", Eagle3Config

    def __init__(self, config: Eagle3Config):
        super().__init__(config, Eagle3Layer(config), config.ttt_length)
        self.fc = nn.Linear(
            len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False
        )

    def project(self, features: torch.Tensor) -> torch.Tensor:
        return self.fc(features)

    def layer_input(self, token_ids, hidden):
        layer = self.layers[0]
        normed = layer.hidden_norm(hidden)
        residual = normed if self.config.norm_before_residual else hidden
        return residual, torch.cat([layer.input_layernorm(self.embed(token_ids)), normed], -1)
