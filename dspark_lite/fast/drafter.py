"""A trained drafter on the fast path, and its state in static storage."""

import torch

from ..common.errors import RequestError
from ..decoding.proposal import Drafter, Proposal, draft_length
from ..decoding.sampling import Randomness, RandomSource
from ..drafters.autoregressive import ChainState
from ..drafters.layers import ContextCache
from .passes import CompiledPass, PreparedNoise, column_major
from .static_context import StaticContext

KEPT_TEMPERATURES = 4  # a drafter keeps a compiled pass for each of the last temperatures


class StaticDraftContext(StaticContext):
    """A ContextCache in static storage, for the fast path."""

    def __init__(self, cache: ContextCache):
        super().__init__(cache.pairs)
        self.context = self

    def load(self, cache: ContextCache) -> None:
        """Copy the entries of `cache` into this storage."""
        self.take_over(cache.pairs, cache.length)


class StaticChainState(ChainState):
    """A ChainState in static storage, for the fast path.

    `commit` counts tokens after their verification.
    """

    def __init__(self, state: ChainState):
        super().__init__(StaticDraftContext(state.cache), state.waiting.clone())
        self.context, self.begin_pass = self.cache, self.cache.begin_pass

    def load(self, state: ChainState) -> None:
        """Copy `state` into this storage."""
        self.cache.load(state.cache)
        self.waiting.copy_(state.waiting)

    def take_pairs(
        self, token_ids: torch.Tensor, features: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return all tokens [1, t] and the feature before each, [1, t, H]. `commit` counts them."""
        self.hidden = torch.cat([self.waiting, features], 1)
        return token_ids, self.hidden[:, :-1]

    def commit(self, tokens: int) -> None:
        """Count the first `tokens` entries. The feature of the last of them waits."""
        self.waiting.copy_(self.hidden[:, tokens : tokens + 1])
        self.cache.commit(tokens)


class FastDrafter(Drafter):
    """A trained drafter in fixed shapes, with blocks of `gamma` drafts.

    `make_static(state)` returns a copy of a drafter's state in static storage. The copy has a
    `context`, `load(state)` to copy another state into it, and a StaticContext's `begin_pass` and
    `commit`.

    The first `begin` sets the storage that compiled passes read: `state`, `anchor` [1], `token_ids`
    [1, slots], `features` [1, slots, taps * H]; and `extending`, the pass that fills the state.
    `drafting` has a pass for each of the last KEPT_TEMPERATURES temperatures.
    """

    def __init__(self, drafter, make_static, gamma: int, backend: str):
        self.drafter, self.backend = column_major(drafter), backend
        self.make_static = make_static
        self.name, self.gamma, self.taps = drafter.name, gamma, drafter.taps
        self.slots, self.state, self.drafting = drafter.gamma + 1, None, {}

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor):
        """Return the state after prompts [1, n]. It overwrites the last text's state."""
        state, device = self.drafter.begin(prompt_ids, features), prompt_ids.device
        if self.state is None:
            self.state = self.make_static(state)
            self.anchor, self.token_ids = (
                torch.zeros(shape, dtype=torch.long, device=device)
                for shape in ((1,), (1, self.slots))
            )
            self.features = features.new_zeros(1, self.slots, features.shape[2])
            self.extending = CompiledPass(self._extend, self.state.context, self.backend, device)
        self.state.load(state)
        return self.state

    @torch.inference_mode()
    def propose(
        self,
        state,
        anchor: torch.Tensor,
        *,
        gamma: int | None = None,
        temperature: float,
        generator: Randomness,
    ) -> Proposal:
        """Draft a block after `anchor` [1], with the draws that the drafter itself would make.

        A shorter block, near an answer's end, is cut from a whole one, so nothing new is compiled.
        """
        if isinstance(generator, RandomSource):
            raise RequestError(
                f"the generator is a {type(generator).__name__}; the fast path draws from a torch.Generator or, with None, from "
                "torch's own"
            )
        self.anchor.copy_(anchor)
        limit = state.begin_pass(self.slots)
        if temperature not in self.drafting:
            if len(self.drafting) == KEPT_TEMPERATURES:
                del self.drafting[next(iter(self.drafting))]
            self.drafting[temperature] = Drafting(self, temperature, anchor.device)
        return self.drafting[temperature](limit, draft_length(gamma, self.gamma), generator)

    @torch.inference_mode()
    def extend(self, state, token_ids: torch.Tensor, features: torch.Tensor) -> None:
        """Add newly committed tokens [1, t] and their features [1, t, taps * H]. The other slots
        are padding."""
        count = token_ids.shape[1]
        self.token_ids[:, :count], self.features[:, :count] = token_ids, features
        hidden = self.extending(state.begin_pass(self.slots))
        if hidden is not None:
            state.hidden = hidden  # set here, because a replayed pass runs no Python
        state.commit(count)

    def _extend(self) -> torch.Tensor | None:
        self.drafter.extend(self.state, self.token_ids, self.features)
        return getattr(self.state, "hidden", None)


class Drafting:
    """A FastDrafter's pass that drafts whole blocks at one temperature."""

    def __init__(self, fast: FastDrafter, temperature: float, device: torch.device):
        self.fast, self.temperature, self.noise = fast, temperature, PreparedNoise()
        self._propose()  # the trial pass that records its random numbers
        self.run = CompiledPass(self._propose, fast.state.context, fast.backend, device)

    def __call__(self, limit: int, length: int, generator) -> Proposal:
        self.noise.refill(generator, length)
        parts = self.run(limit)
        # Copied, because the next round overwrites the originals.
        return Proposal(*(part if part is None else part[:, :length].clone() for part in parts))

    def _propose(self):
        self.noise.next = 0
        block = self.fast.drafter.propose(
            self.fast.state,
            self.fast.anchor,
            gamma=self.fast.gamma,
            temperature=self.temperature,
            generator=self.noise,
        )
        return block.tokens, block.probs, block.confidence_logits
