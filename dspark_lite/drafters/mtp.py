"""MTP: DeepSeek-V3's module for one more token (DeepSeek-AI 2024, section 2.2), or for several."""

from dataclasses import dataclass

import torch
from torch import nn

from .autoregressive import Autoregressive
from .layers import DraftConfig, Layer


@dataclass(frozen=True, kw_only=True)
class MTPConfig(DraftConfig):
    """The fields of an MTP draft.

    `ttt_length` is the number of drafts of a round (the paper's MTP-3 has 3), and of the passes that
    training unrolls; `step_loss_decay` is the weight of a pass relative to the pass before it.
    """

    ttt_length: int = 1
    step_loss_decay: float = 0.8


class MTP(Autoregressive):
    """A drafter of `ttt_length` tokens a round: h' = M [norm(h_i); norm(E[x_{i+1}])], then one layer.

    It uses the target's LM head and taps the last layer, after the target's final norm:
    transformers returns this hidden state. A further draft reads the module's own output, normed,
    instead of that hidden state.
    """

    name = "mtp"
    architecture, config_class = "Qwen3MTPModel", MTPConfig

    def __init__(self, config: MTPConfig):
        super().__init__(config, Layer(config), config.ttt_length)
        self.hnorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.enorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.eh_proj = nn.Linear(2 * config.hidden_size, config.hidden_size, bias=False)

    def project(self, features: torch.Tensor) -> torch.Tensor:
        return features

    def fed_back(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.norm(hidden)

    def layer_input(self, token_ids, hidden):
        joined = self.eh_proj(
            torch.cat([self.hnorm(hidden), self.enorm(self.embed(token_ids))], -1)
        )
        return joined, self.layers[0].input_layernorm(joined)
