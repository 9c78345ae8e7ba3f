"""MTP-1: DeepSeek-V3's module for one more token (DeepSeek-AI 2024, section 2.2)."""

import torch
from torch import nn

from .autoregressive import Autoregressive
from .layers import DraftConfig, Layer


class MTP(Autoregressive):
    """A drafter of one token a round: h' = M [norm(h_i); norm(E[x_{i+1}])], then one layer.

    It uses the target's LM head and taps the last layer, after the target's final norm:
    transformers returns this hidden state.
    """

    name = "mtp"
    architecture, config_class = "Qwen3MTPModel", DraftConfig

    def __init__(self, config: DraftConfig):
        super().__init__(config, Layer(config), gamma=1)
        self.hnorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.enorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def project(self, features: torch.Tensor) -> torch.Tensor:
        return features

    def layer_input(self, token_ids, hidden):
        joined = self.eh_proj(
            torch.cat([self.hnorm(hidden), self.enorm(self.embed(token_ids))], -1)
        )
        return joined, self.layers[0].input_layernorm(joined)
