"""What the config.json of every trained drafter says."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """The fields of a released draft's `config.json` that every trained drafter has (models/checkpoints.py reads them)."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    target_layer_ids: tuple[int, ...]
    num_target_layers: int
    attention_bias: bool = False
