"""The draft that DeepSeek ships with V4, in miniature: experts, manifold-constrained
hyper-connections and a sliding window in a DSpark.

The paper names the parts (section 5.1): three mixture-of-experts layers (Dai et al. 2024) with mHC
(Xie et al. 2026), a window of 128, blocks of 5, a Markov head, a confidence head under STS. It
names no sizes, and some choices are ours: the numbers of experts and streams, a window that counts
from the anchor, and no term that balances the experts. Shapes: B rows, T tokens, H hidden size, n
streams, E experts.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from ...drafters.dspark import DSpark, DSparkConfig
from ...drafters.layers import MLP, ContextCache, Layer
from ...training.blocks import block_visibility


@dataclass(frozen=True, kw_only=True)
class V4Config(DSparkConfig):
    """The fields of a DSpark, and the parts of V4."""

    experts: int = 8  # besides a shared one; 0: a dense network
    active: int = 2  # experts that work for a token
    streams: int = 4  # of the residual; 1: the usual one
    window: int | None = 128  # context tokens before the anchor that a layer sees; None: all


class Experts(nn.Module):
    """A mixture of experts. A token passes through the `active` experts with the highest scores,
    weighted by them, and through a shared one.

    An expert is as wide as to make the active weights as many as those of a dense network.
    """

    def __init__(self, config: V4Config):
        super().__init__()
        narrow = replace(config, intermediate_size=config.intermediate_size // (config.active + 1))
        self.active = config.active
        self.router = nn.Linear(config.hidden_size, config.experts, bias=False)
        self.experts = nn.ModuleList(MLP(narrow) for _ in range(config.experts))
        self.shared = MLP(narrow)

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights that sum to one, and their experts, both [N, active], of tokens x [N,
        H]."""
        scores, chosen = self.router(x).softmax(-1).topk(self.active, -1)
        return scores / scores.sum(-1, keepdim=True), chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the network's output [B, T, H] of x [B, T, H]."""
        flat = x.flatten(0, -2)  # [N, H]
        weights, chosen = self.route(flat)
        out = self.shared(flat)
        for number, expert in enumerate(self.experts):
            # The tokens of this expert, and the rank of the expert among a token's choices.
            token, place = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(
                0, token, weights[token, place, None].to(out.dtype) * expert(flat[token])
            )
        return out.view_as(x)


def sinkhorn(logits: torch.Tensor, rounds: int = 20) -> torch.Tensor:
    """Return a doubly stochastic matrix [..., n, n] of logits [..., n, n].

    Each round makes the columns sum to one, then the rows (Sinkhorn, Knopp 1967).
    """
    matrix = torch.softmax(logits, -1)
    for _ in range(rounds):
        matrix = matrix / matrix.sum(-2, keepdim=True)
        matrix = matrix / matrix.sum(-1, keepdim=True)
    return matrix


class HyperConnection(nn.Module):
    """The connection of a layer with n residual streams: x -> mix x + post F(pre x).

    `pre` and `post` [n] are positive, `mix` [n, n] is doubly stochastic, so no stream grows or
    fades with depth. All depend on the streams. At first they are the usual residual: the layer
    reads the mean, each stream keeps itself, and each gets the layer's output.
    """

    def __init__(self, streams: int, hidden: int, eps: float):
        super().__init__()
        self.streams, self.norm = streams, nn.RMSNorm(streams * hidden, eps=eps)
        self.proj = nn.Linear(streams * hidden, streams * (streams + 2), bias=False)
        read = torch.full((streams,), 1 / streams).logit()
        self.start = nn.Parameter(
            torch.cat([read, torch.zeros(streams), 4.0 * torch.eye(streams).flatten()])
        )

    def coefficients(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return pre [..., n], post [..., n] and mix [..., n, n] of streams x [..., n * H]."""
        pre, post, mix = (self.proj(self.norm(x)) + self.start).split(
            [self.streams, self.streams, self.streams**2], -1
        )
        return pre.sigmoid(), 2 * post.sigmoid(), sinkhorn(mix.unflatten(-1, (self.streams, -1)))

    def read(self, x: torch.Tensor) -> torch.Tensor:
        """Return a layer's input [..., H] from streams x [..., n * H]."""
        pre, _, _ = self.coefficients(x)
        return (pre[..., None] * x.unflatten(-1, (self.streams, -1))).sum(-2)

    def write(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return the streams [..., n * H] after a layer whose output on x is `out` [..., H]."""
        _, post, mix = self.coefficients(x)
        return (
            mix @ x.unflatten(-1, (self.streams, -1)) + post[..., None] * out[..., None, :]
        ).flatten(-2)


class NormedRead(nn.Module):
    """A layer's first norm behind a hyper-connection: it reads the streams, then norms."""

    def __init__(self, config: V4Config):
        super().__init__()
        self.connection = HyperConnection(config.streams, config.hidden_size, config.rms_norm_eps)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normed input [..., H] of streams x [..., n * H]."""
        return self.norm(self.connection.read(x))


class V4Layer(Layer):
    """A layer with hyper-connections and experts. A part that the config leaves out is the usual
    one."""

    def __init__(self, config: V4Config):
        super().__init__(config)
        if config.experts:
            self.mlp = Experts(config)
        self.streams = config.streams
        if config.streams > 1:
            self.input_layernorm = NormedRead(config)
            self.post_attention_layernorm = NormedRead(config)

    def after_attention(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        if self.streams == 1:
            return super().after_attention(x, mixed)
        x = self.input_layernorm.connection.write(x, mixed)
        return self.post_attention_layernorm.connection.write(
            x, self.mlp(self.post_attention_layernorm(x))
        )


class MeanNorm(nn.Module):
    """The final norm, on the mean of the streams."""

    def __init__(self, streams: int, norm: nn.RMSNorm):
        super().__init__()
        self.streams, self.norm = streams, norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normed mean [..., H] of streams x [..., n * H]."""
        return self.norm(x.unflatten(-1, (self.streams, -1)).mean(-2))


class WindowCache(ContextCache):
    """A ContextCache of the last `window` committed tokens: size and cost do not grow with the
    context.

    `begun` counts the tokens that it has dropped.
    """

    def __init__(self, layers: int, window: int):
        super().__init__(layers)
        self.window, self.begun = window, 0

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        return super().positions(entering) + self.begun

    def advance(self, tokens: int) -> None:
        super().advance(tokens)
        surplus = max(0, self.length - self.window)
        if surplus:
            for pairs in (self.keys, self.values):
                pairs[:] = [part[:, :, surplus : self.length].clone() for part in pairs]
            self.begun, self.length = self.begun + surplus, self.window


class V4Draft(DSpark):
    """A DSpark with the parts of V4."""

    layer_class, config_class = V4Layer, V4Config

    def __init__(self, config: V4Config):
        super().__init__(config)
        if config.streams > 1:
            self.norm = MeanNorm(config.streams, self.norm)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Return embeddings [..., n * H]: all streams start with the same."""
        embedded = super().embed(ids)
        return torch.cat([embedded] * self.config.streams, -1)

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor) -> ContextCache:
        if self.config.window is None:
            return super().begin(prompt_ids, features)
        cache = WindowCache(len(self.layers), self.config.window)
        self.extend_context(cache, features)
        return cache

    def training_mask(self, anchors: torch.Tensor, length: int) -> torch.Tensor | None:
        if self.config.window is None:
            return None
        return window_mask(anchors, length, self.config.block_size, self.config.window)


def window_mask(anchors: torch.Tensor, length: int, gamma: int, window: int) -> torch.Tensor:
    """Return `dense_mask` (training/blocks.py) [B, 1, K * g, n + K * g] without context that is
    more than `window` before an anchor."""
    slots = anchors.shape[1] * gamma
    rows, queries, keys = (
        torch.arange(size, device=anchors.device) for size in (len(anchors), slots, length + slots)
    )
    rows, queries = rows[:, None, None, None], queries[:, None]
    near = (keys >= length) | (keys >= anchors[rows, queries // gamma] - window)
    return block_visibility(anchors, length, gamma)(rows, None, queries, keys) & near


def drafter_sizes(drafter: V4Draft) -> tuple[int, int]:
    """Return the number of a drafter's own weights, without embedding and LM head, and of those
    that work for a token."""
    own = {
        name: value.numel()
        for name, value in drafter.named_parameters()
        if not name.startswith(("embed_tokens", "lm_head"))
    }
    idle = sum(count for name, count in own.items() if ".experts." in name)
    share = drafter.config.active / drafter.config.experts if drafter.config.experts else 1.0
    return sum(own.values()), round(sum(own.values()) - (1 - share) * idle)
