"""The parts of every trained drafter: Qwen3's layers, and a cache of committed keys and values.

Shapes: B rows, T tokens, H hidden size, m key heads with q query heads each, d head
size.
"""

from ast import literal_eval
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from ..common.errors import CheckpointError
from ..decoding.attention import attend

if TYPE_CHECKING:
    from typing_extensions import Self

    from ..decoding.target import Target


@dataclass(frozen=True, kw_only=True)
class DraftConfig:
    """The fields of every trained draft, named as in a released config.json.

    models/draft_config.py reads them.
    """

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
    num_target_layers: int | None = None  # None: config.json does not give it
    attention_bias: bool = False
    qk_norm: bool = True  # Qwen3 norms queries and keys, Llama does not
    draft_vocab_size: int | None = None  # None: the draft has all of its target's ids
    # Parameters of scaled positions, as transformers names them. None: plain positions.
    rope_scaling: dict | None = None


def _checkpoints():
    """Return the module that reads and writes drafts, imported when it is needed: it knows every
    drafter, and no drafter needs it to draft."""
    return import_module("dspark_lite.models.checkpoints")


class Draft(nn.Module):
    """The base of every trained draft: config, embedding, and logits over the target's ids.

    A draft with a reduced vocabulary has U outputs; output i is the target's id `i + d2t[i]`.
    `logit_softcap` is set if the draft uses the LM head of a target with a soft cap,
    `embedding_scale` if it was trained with the scaled embedding of its target, `target_head` [V, H]
    while a draft with a reduced vocabulary is trained.
    """

    def __init__(self, config: DraftConfig):
        super().__init__()
        self.config, self.output_size = config, config.draft_vocab_size or config.vocab_size
        self.logit_softcap: float | None = None
        self.embedding_scale: torch.Tensor | None = None
        self.max_positions: int | None = None  # of the texts that it was trained for, if known
        self.target_head: torch.Tensor | None = None
        self.register_buffer(
            "d2t",
            torch.zeros(self.output_size, dtype=torch.long) if config.draft_vocab_size else None,
        )

    @classmethod
    def from_pretrained(cls, name: str | Path, target: "Target") -> "Self":
        """Load a draft of this class for `target`, by embedded name, folder or Hub id, as
        `load_drafter` does. Raise CheckpointError as it does, and for a draft of another class."""
        drafter = _checkpoints().load_drafter(name, target)
        if not isinstance(drafter, cls):
            raise CheckpointError(
                f"{name} is a {type(drafter).__name__}, not a {cls.__name__}; load it with load_drafter"
            )
        return drafter

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors to `folder`, in the form of the released drafts,
        in bfloat16."""
        _checkpoints().save_draft(Path(folder), self, self)

    def push_to_hub(
        self, name: str, *, private: bool | None = None, token: str | None = None
    ) -> str:
        """Upload the draft to the Hub as "org/name" and return its address. The repository is made
        if there is none. Raise CheckpointError if the Hub refuses."""
        with TemporaryDirectory() as folder:
            self.save_pretrained(folder)
            hub = import_module("dspark_lite.models.hub")
            return hub.upload(folder, name, private=private, token=token)

    @property
    def output_ids(self) -> torch.Tensor:
        """Return the target's ids [U] of the draft's outputs."""
        ids = torch.arange(self.output_size, device=self.lm_head.weight.device)
        return ids if self.d2t is None else ids + self.d2t

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the embeddings [..., H] of token ids [...]."""
        embedded = self.embed_tokens(ids)
        return embedded if self.embedding_scale is None else embedded * self.embedding_scale

    def rope(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return rotary cosines and sines [B, 1, T, d] of absolute positions [B, T]."""
        config = self.config
        if config.rope_scaling:
            return scaled_rotary(positions, config.head_dim, config.rope_theta, config.rope_scaling)
        return rotary(positions, config.head_dim, config.rope_theta)

    def capped(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits within the soft cap; without one, as they are."""
        if self.logit_softcap is None:
            return logits
        return self.logit_softcap * torch.tanh(logits / self.logit_softcap)

    def target_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return the target's logits [..., V] of its last hidden states [..., H], in training, where
        both have one LM head."""
        return (
            self.lm_head(hidden) if self.target_head is None else F.linear(hidden, self.target_head)
        )

    def over_target(self, logits: torch.Tensor) -> torch.Tensor:
        """Return logits [..., V] over the target's ids from the draft's logits [..., U].

        Other ids get -inf.
        """
        logits = self.capped(logits)
        if self.d2t is None:
            return logits
        return logits.new_full((*logits.shape[:-1], self.config.vocab_size), -torch.inf).index_copy(
            -1, self.output_ids, logits
        )


def rotary(
    positions: torch.Tensor, head_dim: int, theta: float, turned: float = 1.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines [B, 1, T, d] of absolute positions [B, T].

    Only the first share `turned` of the pairs rotates.
    """
    frequency = theta ** -(torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    frequency[int(turned * head_dim // 2) :] = 0
    angle = angles(positions, frequency)
    return angle.cos(), angle.sin()


def angles(positions: torch.Tensor, frequency: torch.Tensor) -> torch.Tensor:
    """Return the angles [B, 1, T, d] of positions [B, T] at the frequencies [d / 2] of pairs."""
    angle = positions[:, None, :, None].float() * frequency  # [B, 1, T, d/2]
    return torch.cat([angle, angle], -1)


def scaled_rotary(
    positions: torch.Tensor, head_dim: int, theta: float, scaling: dict
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines [B, 1, T, d] of absolute positions [B, T], scaled as in
    transformers."""
    fields = tuple(sorted((name, repr(value)) for name, value in scaling.items()))
    frequency, factor = _scaled_frequencies(head_dim, theta, fields, positions.device)
    angle = angles(positions, frequency)
    return factor * angle.cos(), factor * angle.sin()


@lru_cache(maxsize=16)
def _scaled_frequencies(
    head_dim: int, theta: float, fields: tuple[tuple[str, str], ...], device: torch.device
) -> tuple[torch.Tensor, float]:
    """Return the frequencies [d / 2] of scaled positions and the factor of cosines and sines."""
    from transformers import Qwen3Config
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    scaling = {name: literal_eval(value) for name, value in fields}
    longest = scaling.get("original_max_position_embeddings")
    config = Qwen3Config(
        head_dim=head_dim,
        rope_parameters={**scaling, "rope_theta": theta},
        **(
            {"max_position_embeddings": max(longest + 1, int(longest * scaling["factor"]))}
            if longest
            else {}
        ),
    )
    frequency, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, device)
    return frequency, factor


def rotate(x: torch.Tensor, rope: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Return x [B, heads, T, d] rotated by its positions."""
    cos, sin = rope
    left, right = x.chunk(2, -1)
    return x * cos.to(x.dtype) + torch.cat([-right, left], -1) * sin.to(x.dtype)


def block_sparse(device: torch.device) -> bool:
    """Return whether training and serving use FlexAttention: from compute capability 8.0 on.

    Its kernel may need more shared memory than a T4 has.
    """
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


class ContextCache:
    """A `Context`: the keys and values of committed tokens, with room for a block after them.

    Each layer has a buffer, which doubles when it is full, so that appending a token costs the same
    at any length. `append` writes after `length`. The next `append` overwrites the entries unless
    `advance` counts them. So a rejected block needs no roll-back.
    """

    def __init__(self, layers: int):
        self.keys = [None] * layers
        self.values = [None] * layers
        self.length = 0

    @property
    def pairs(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the buffers of every layer: keys and values, with the room after them."""
        return list(zip(self.keys, self.values))

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Return the absolute positions [B, T] of tokens [B, T, ...] after the context."""
        batch, tokens = entering.shape[:2]
        return torch.arange(self.length, self.length + tokens, device=entering.device).expand(
            batch, -1
        )

    def mask(self, tokens: int) -> None:
        """Return None: all rows are equally long, so every token sees every entry."""
        return None

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [B, m, T, d] after the context.

        Return all entries up to them, [B, m, S, d].
        """
        end = self.length + keys.shape[2]
        if self.keys[layer] is None or self.keys[layer].shape[2] < end:
            self.keys[layer] = self._grown(self.keys[layer], keys, end)
            self.values[layer] = self._grown(self.values[layer], values, end)
        self.keys[layer][:, :, self.length : end] = keys
        self.values[layer][:, :, self.length : end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, tokens: int) -> None:
        """Count `tokens` appended entries as context. A negative number drops the last entries."""
        self.length += tokens

    def _grown(self, old, like: torch.Tensor, needed: int) -> torch.Tensor:
        """Return a buffer for at least `needed` entries with the entries of `old`."""
        batch, heads, _, size = like.shape
        new = like.new_zeros(batch, heads, max(64, 2 * needed), size)
        if old is not None:
            new[:, :, : self.length] = old[:, :, : self.length]
        return new


class Attention(nn.Module):
    """Grouped-query attention with normed queries and keys, as in Qwen3.

    q query heads share each of m key heads. All have size d.
    """

    width = 1  # of the input, in hidden sizes

    def __init__(self, config):
        super().__init__()
        self.heads = config.num_attention_heads
        self.key_heads = config.num_key_value_heads
        self.size = config.head_dim
        inputs = self.width * config.hidden_size
        bias = config.attention_bias
        eps = config.rms_norm_eps
        self.q_proj = nn.Linear(inputs, self.heads * self.size, bias=bias)
        self.k_proj = nn.Linear(inputs, self.key_heads * self.size, bias=bias)
        self.v_proj = nn.Linear(inputs, self.key_heads * self.size, bias=bias)
        self.o_proj = nn.Linear(self.heads * self.size, config.hidden_size, bias=bias)
        self.q_norm, self.k_norm = (
            nn.RMSNorm(self.size, eps=eps) if config.qk_norm else nn.Identity() for _ in range(2)
        )
        self.scale = self.size**-0.5

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """Return x [B, T, heads * d] as [B, heads, T, d]."""
        return x.unflatten(-1, (-1, self.size)).transpose(1, 2)

    def queries(self, x: torch.Tensor, rope) -> torch.Tensor:
        """Return queries [B, m * q, T, d] of x [B, T, width * H]."""
        return rotate(self.q_norm(self.split(self.q_proj(x))), rope)

    def keys_values(self, x: torch.Tensor, rope) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values [B, m, T, d] of x [B, T, width * H]."""
        return rotate(self.k_norm(self.split(self.k_proj(x))), rope), self.split(self.v_proj(x))

    def forward(
        self, x: torch.Tensor, rope, keys: torch.Tensor, values: torch.Tensor, mask=None
    ) -> torch.Tensor:
        """Return the attention [B, T, H] of x [B, T, width * H] to keys and values [B, m, S, d]."""
        queries = self.queries(x, rope)  # [B, m * q, T, d]
        mixed = attend(queries, keys, values, mask, self.scale)  # [B, m * q, T, d]
        return self.o_proj(mixed.transpose(1, 2).flatten(2))  # [B, T, H]


class MLP(nn.Module):
    """Qwen3's gated feed-forward network."""

    activation = staticmethod(F.silu)

    def __init__(self, config):
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the network's output [B, T, H] for x [B, T, H]."""
        return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """One pre-norm transformer layer."""

    attention_class, mlp_class = Attention, MLP

    def __init__(self, config):
        super().__init__()
        self.self_attn = self.attention_class(config)
        self.mlp = self.mlp_class(config)
        self.input_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)
        self.post_attention_layernorm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def after_attention(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """Add the attention's output and the feed-forward network's to the stream x [..., H]."""
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x))
