"""MTP-1: DeepSeek-V3's module for one more token, on the target's last hidden state (DeepSeek-AI 2024, section 2.2)."""

import torch
from torch import nn

from .autoregressive import Autoregressive
from .layers import DraftConfig, Layer


class MTP(Autoregressive):
    """Drafts one token per round: h' = M [norm(h_i); norm(E[x_{i+1}])], one layer, the target's LM head.

    It taps the last layer, whose hidden state transformers returns after the target's final norm.
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

    def enter(self, token_ids, hidden):
        joined = self.eh_proj(
            torch.cat([self.hnorm(hidden), self.enorm(self.embed(token_ids))], -1)
        )
        return joined, self.layers[0].input_layernorm(joined)
