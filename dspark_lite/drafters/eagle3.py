"""Eagle3: one layer drafts token by token from the target's features, then from its own output (Li et al. 2025)."""

from dataclasses import dataclass

import torch
from torch import nn

from .autoregressive import Autoregressive
from .layers import Attention, DraftConfig, Layer


@dataclass(frozen=True, kw_only=True)
class Eagle3Config(DraftConfig):
    """Eagle3's own fields: the steps it is trained to unroll, how much less each weighs than the one before, and whether the
    residual stream begins with the normed feature."""

    ttt_length: int
    step_loss_decay: float = 0.8
    norm_before_residual: bool = False


class Eagle3Attention(Attention):
    """Attention that reads the next token's embedding beside the feature."""

    width = 2


class Eagle3Layer(Layer):
    """A layer with a norm for the embedding and one for the feature that its attention reads."""

    attention_class = Eagle3Attention

    def __init__(self, config: Eagle3Config):
        super().__init__(config)
        self.hidden_norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)


class Eagle3(Autoregressive):
    """The autoregressive rival of the paper's Table 1: a draft of `gamma` tokens takes `gamma` passes of its layer."""

    name = "eagle3"
    architecture, config_class = "Qwen3Eagle3Model", Eagle3Config

    def __init__(self, config: Eagle3Config):
        super().__init__(config, Eagle3Layer(config), config.ttt_length)
        self.fc = nn.Linear(
            len(config.target_layer_ids) * config.hidden_size, config.hidden_size, bias=False
        )

    def project(self, features: torch.Tensor) -> torch.Tensor:
        return self.fc(features)

    def enter(self, token_ids, hidden):
        layer = self.layers[0]
        normed = layer.hidden_norm(hidden)
        residual = normed if self.config.norm_before_residual else hidden
        return residual, torch.cat([layer.input_layernorm(self.embed(token_ids)), normed], -1)
