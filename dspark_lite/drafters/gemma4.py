"""DSpark for Gemma 4: the same block drafter with Gemma's layers.

They differ from Qwen3's in six points: a scaled embedding, norms before and after both sublayers, a
scalar times each layer's output, attention with scale 1, values with a norm without weights (with
`attention_k_eq_v` values are the raw keys), and positions that rotate only a part of each head.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from .dspark import DSpark, DSparkConfig
from .layers import MLP, Attention, Layer, rotary, rotate


@dataclass(frozen=True, kw_only=True)
class Gemma4DSparkConfig(DSparkConfig):
    """The fields of a block draft for Gemma 4.

    `head_dim` and `num_key_value_heads` describe its full-attention layers.
    """

    partial_rotary_factor: float
    attention_k_eq_v: bool = False


class Gemma4Attention(Attention):
    """Grouped-query attention with normed queries, keys and values, and scale 1."""

    def __init__(self, config: Gemma4DSparkConfig):
        super().__init__(config)
        self.scale = 1.0
        self.v_norm = nn.RMSNorm(self.size, eps=config.rms_norm_eps, elementwise_affine=False)
        if config.attention_k_eq_v:
            self.v_proj = None

    def keys_values(self, x: torch.Tensor, rope) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [B, m, T, d] of x [B, T, H]."""
        raw = self.split(self.k_proj(x))
        values = raw if self.v_proj is None else self.split(self.v_proj(x))
        return rotate(self.k_norm(raw), rope), self.v_norm(values)


class Gemma4MLP(MLP):
    """The gated feed-forward network with GELU."""

    activation = staticmethod(lambda x: F.gelu(x, approximate="tanh"))


class Gemma4Layer(Layer):
    """One layer with norms before and after each sublayer, and a scalar times its output."""

    attention_class, mlp_class = Gemma4Attention, Gemma4MLP

    def __init__(self, config: Gemma4DSparkConfig):
        super().__init__(config)
        self.pre_feedforward_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_feedforward_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.register_buffer("layer_scalar", torch.ones(1))

    def after_attention(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """Add the attention's output and the feed-forward network's to x [..., H], and scale."""
        x = x + self.post_attention_layernorm(mixed)
        return (
            x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        ) * self.layer_scalar


class Gemma4DSpark(DSpark):
    """A block drafter for a Gemma 4 target."""

    architecture, config_class, layer_class = "Gemma4DSparkModel", Gemma4DSparkConfig, Gemma4Layer

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return token embeddings [..., H] times the root of H, rounded to their dtype."""
        weight = self.embed_tokens.weight
        return self.embed_tokens(ids) * torch.tensor(
            self.config.hidden_size**0.5, dtype=weight.dtype, device=weight.device
        )

    def rope(self, positions: torch.Tensor):
        """Return cosines and sines [B, 1, T, d].

        Only the first share of each head's pairs rotates.
        """
        return rotary(
            positions,
            self.config.head_dim,
            self.config.rope_theta,
            self.config.partial_rotary_factor,
        )
