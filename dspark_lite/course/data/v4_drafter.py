"""The draft that is shipped with DeepSeek-V4, in miniature: experts, manifold-constrained hyper-connections and a sliding window in a DSpark.

The paper names the parts (section 5.1): three mixture-of-experts layers (Dai et al. 2024) with mHC (Xie et al. 2026), a window of 128,
blocks of 5, a Markov head, a confidence head under STS. It does not name sizes, and a few choices here are ours: how many experts and
streams there are, that the window counts from the anchor, and that nothing balances the experts. Shapes: B rows, T tokens, H hidden
size, n streams, E experts.
"""

from dataclasses import dataclass, replace

import torch
from torch import nn

from dspark_lite.drafters.layers import MLP, ContextCache, Layer
from dspark_lite.drafters.dspark import DSpark, DSparkConfig
from dspark_lite.training.blocks import visible


@dataclass(frozen=True, kw_only=True)
class V4Config(DSparkConfig):
    """A DSpark's fields, and the parts of V4: `experts` of which `active` work for a token besides a shared one (0: a dense network),
    residual `streams` (1: none but the usual), context tokens before the anchor that a layer sees (None: all)."""

    experts: int = 8
    active: int = 2
    streams: int = 4
    window: int | None = 128


class Experts(nn.Module):
    """A mixture of experts: for each token the `active` experts that its router likes best, weighed by how much, and a shared one. Each is
    as wide as leaves the active weights as many as a dense network has."""

    def __init__(self, config: V4Config):
        super().__init__()
        narrow = replace(config, intermediate_size=config.intermediate_size // (config.active + 1))
        self.active, self.router = (
            config.active,
            nn.Linear(config.hidden_size, config.experts, bias=False),
        )
        self.experts, self.shared = (
            nn.ModuleList(MLP(narrow) for _ in range(config.experts)),
            MLP(narrow),
        )

    def route(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights that sum to one, and the experts they are for, [N, active] each, of tokens x [N, H]."""
        scores, chosen = self.router(x).softmax(-1).topk(self.active, -1)
        return scores / scores.sum(-1, keepdim=True), chosen

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, T, H] -> [B, T, H]."""
        flat = x.flatten(0, -2)  # [N, H]
        weights, chosen = self.route(flat)
        out = self.shared(flat)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(
                as_tuple=True
            )  # who asked for this expert, and as which choice
            out = out.index_add(
                0, token, weights[token, place, None].to(out.dtype) * expert(flat[token])
            )
        return out.view_as(x)


def sinkhorn(logits: torch.Tensor, rounds: int = 20) -> torch.Tensor:
    """A doubly stochastic matrix [..., n, n] of logits [..., n, n]: rows and columns are made to sum to one in turn (Sinkhorn, Knopp 1967)."""
    matrix = torch.softmax(logits, -1)
    for _ in range(rounds):
        matrix = matrix / matrix.sum(-2, keepdim=True)
        matrix = matrix / matrix.sum(-1, keepdim=True)
    return matrix


class HyperConnection(nn.Module):
    """How a layer reads from n residual streams and writes to them: x -> mix x + post F(pre x). `pre` and `post` [n] are positive, `mix` [n, n]
    is doubly stochastic, so that no stream grows or fades however deep the network is. All depend on the streams, and begin as the usual
    residual: the mean is read, each stream keeps itself, and all get what the layer adds."""

    def __init__(self, streams: int, hidden: int, eps: float):
        super().__init__()
        self.streams, self.norm = streams, nn.RMSNorm(streams * hidden, eps=eps)
        self.proj = nn.Linear(streams * hidden, streams * (streams + 2), bias=False)
        read = torch.full((streams,), 1 / streams).logit()
        self.start = nn.Parameter(
            torch.cat([read, torch.zeros(streams), 4.0 * torch.eye(streams).flatten()])
        )

    def coefficients(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """pre [..., n], post [..., n] and mix [..., n, n] of streams x [..., n * H]."""
        pre, post, mix = (self.proj(self.norm(x)) + self.start).split(
            [self.streams, self.streams, self.streams**2], -1
        )
        return pre.sigmoid(), 2 * post.sigmoid(), sinkhorn(mix.unflatten(-1, (self.streams, -1)))

    def read(self, x: torch.Tensor) -> torch.Tensor:
        """What a layer sees, [..., H], of streams x [..., n * H]."""
        pre, _, _ = self.coefficients(x)
        return (pre[..., None] * x.unflatten(-1, (self.streams, -1))).sum(-2)

    def write(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """The streams [..., n * H] after a layer that has made `out` [..., H] of x."""
        _, post, mix = self.coefficients(x)
        return (
            mix @ x.unflatten(-1, (self.streams, -1)) + post[..., None] * out[..., None, :]
        ).flatten(-2)


class NormedRead(nn.Module):
    """What takes the place of a layer's first norm: reads the streams [..., n * H], and norms what was read."""

    def __init__(self, config: V4Config):
        super().__init__()
        self.connection = HyperConnection(config.streams, config.hidden_size, config.rms_norm_eps)
        self.norm = nn.RMSNorm(config.hidden_size, eps=config.rms_norm_eps)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., n * H] -> [..., H]."""
        return self.norm(self.connection.read(x))


class V4Layer(Layer):
    """A layer between hyper-connections, with experts for its feed-forward network; the parts that a config leaves out are the usual."""

    def __init__(self, config: V4Config):
        super().__init__(config)
        if config.experts:
            self.mlp = Experts(config)
        self.streams = config.streams
        if config.streams > 1:
            self.input_layernorm, self.post_attention_layernorm = (
                NormedRead(config),
                NormedRead(config),
            )

    def after_attention(self, x: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        if self.streams == 1:
            return super().after_attention(x, mixed)
        x = self.input_layernorm.connection.write(x, mixed)
        return self.post_attention_layernorm.connection.write(
            x, self.mlp(self.post_attention_layernorm(x))
        )


class MeanNorm(nn.Module):
    """The final norm, of the mean of the streams."""

    def __init__(self, streams: int, norm: nn.RMSNorm):
        super().__init__()
        self.streams, self.norm = streams, norm

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., n * H] -> [..., H]."""
        return self.norm(x.unflatten(-1, (self.streams, -1)).mean(-2))


class WindowCache(ContextCache):
    """A ContextCache that holds the last `window` committed tokens and forgets the others, so its size and its cost stay as they are
    however long the context is. `begun` tokens are forgotten."""

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
                pairs[:] = [held[:, :, surplus : self.length].clone() for held in pairs]
            self.begun, self.length = self.begun + surplus, self.window


class V4Draft(DSpark):
    """DSpark with the parts of V4."""

    layer_class, config_class = V4Layer, V4Config

    def __init__(self, config: V4Config):
        super().__init__(config)
        if config.streams > 1:
            self.norm = MeanNorm(config.streams, self.norm)

    def embed(self, ids: torch.Tensor) -> torch.Tensor:
        """Embeddings [..., n * H]: all streams begin with the same."""
        embedded = super().embed(ids)
        return torch.cat([embedded] * self.config.streams, -1)

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor) -> ContextCache:
        if self.config.window is None:
            return super().begin(prompt_ids, features)
        cache = WindowCache(len(self.layers), self.config.window)
        self.extend_context(cache, features)
        return cache

    def packed_hidden(
        self, features: torch.Tensor, anchor_ids: torch.Tensor, anchors: torch.Tensor, mask
    ) -> torch.Tensor:
        if self.config.window is not None:
            mask = window_mask(
                anchors, features.shape[1], self.config.block_size, self.config.window
            )
        return super().packed_hidden(features, anchor_ids, anchors, mask)


def window_mask(anchors: torch.Tensor, length: int, gamma: int, window: int) -> torch.Tensor:
    """`dense_mask` of training/blocks.py, [B, 1, K * g, n + K * g], without the context that lies more than `window` before an anchor."""
    slots = anchors.shape[1] * gamma
    rows, queries, keys = (
        torch.arange(size, device=anchors.device) for size in (len(anchors), slots, length + slots)
    )
    rows, queries = rows[:, None, None, None], queries[:, None]
    near = (keys >= length) | (keys >= anchors[rows, queries // gamma] - window)
    return visible(anchors, length, gamma)(rows, None, queries, keys) & near


def drafter_sizes(drafter: V4Draft) -> tuple[int, int]:
    """Numbers of a drafter that are its own, embedding and LM head left out: all of them, and those that work for a token."""
    own = {
        name: value.numel()
        for name, value in drafter.named_parameters()
        if not name.startswith(("embed_tokens", "lm_head"))
    }
    idle = sum(count for name, count in own.items() if ".experts." in name)
    share = drafter.config.active / drafter.config.experts if drafter.config.experts else 1.0
    return sum(own.values()), round(sum(own.values()) - (1 - share) * idle)
