"""What a round is made of, as the code around it sees it: a drafter, the context that it attends to, a policy."""

from typing import Protocol, runtime_checkable

import torch

from .proposal import Proposal


@runtime_checkable
class Drafter(Protocol):
    """Guesses what the target will write. Its state holds the committed text up to the anchor, the newest token, and
    nothing that was drafted: whatever is rejected leaves no trace."""

    name: str
    gamma: int  # drafts of a whole block
    taps: tuple[int, ...]  # the target's layers whose hidden states it reads

    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor | None) -> object:
        """The state after prompts [B, n], whose tapped hidden states are features [B, n, taps * H] (None without taps)."""

    def propose(self, state, anchor: torch.Tensor, *, gamma: int | None = None, temperature: float, generator) -> Proposal:
        """A block of `gamma` drafts (None: whole) after the anchor [B], each drawn from the distribution it comes with."""

    def extend(self, state, token_ids: torch.Tensor, features: torch.Tensor | None) -> None:
        """Takes in newly committed tokens [B, t] with the features [B, t, taps * H] that verification has just given."""


@runtime_checkable
class Context(Protocol):
    """Keys and values of the committed tokens in every layer: what the layers of a drafter attend to."""

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Absolute positions [B, T] of tokens that enter after the context, [B, T, ...]."""

    def mask(self, tokens: int) -> torch.Tensor | None:
        """Which of the context and of so many tokens after it may be seen, [B, 1, 1, S]; None: everything."""

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes keys and values [B, m, T, d] after the context and returns everything up to them, [B, m, S, d]."""

    def advance(self, tokens: int) -> None:
        """Counts so many appended tokens as context; the others are overwritten by what comes next."""


@runtime_checkable
class Policy(Protocol):
    """Chooses how much of each block is verified. The text stays exactly the target's if the choice about position k of a
    request looks at nothing that was drawn at k or later (paper, section 3.2.2 and Appendix A)."""

    def begin(self) -> None:
        """Forgets earlier steps: called before the first one of a generation or of an engine."""

    def __call__(self, proposal: Proposal) -> torch.Tensor:
        """Verification lengths [R], from 0 to the drafted length, of the blocks of all requests that share a step."""
