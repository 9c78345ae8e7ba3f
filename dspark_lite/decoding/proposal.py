"""A drafted block, and the protocols around it: drafter, context, policy."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Protocol, runtime_checkable

import torch
from torch.nn.utils.rnn import pad_sequence

from ..common.errors import RequestError


@dataclass
class Proposal:
    """A drafted block: `tokens` [B, g], the float32 distribution `probs` [B, g, V] each was drawn
    from, and the float32 `confidence_logits` [B, g] of a confidence head (None without one).

    Once the block is scheduled, `lengths` holds the number of drafts of each row to verify.
    """

    tokens: torch.Tensor
    probs: torch.Tensor
    confidence_logits: torch.Tensor | None = None
    lengths: list[int] | None = None

    @property
    def confidence(self) -> torch.Tensor | None:
        """Return the probability [B, g] that a token survives given that its predecessors did; None
        without a confidence head."""
        return None if self.confidence_logits is None else torch.sigmoid(self.confidence_logits)

    def cut(self, length: int) -> "Proposal":
        """Return the first `length` positions; the block itself if it has at most `length` drafts."""
        if length >= self.tokens.shape[1]:
            return self
        logits = None if self.confidence_logits is None else self.confidence_logits[:, :length]
        return Proposal(self.tokens[:, :length], self.probs[:, :length], logits)

    def within(self, room: list[int]) -> "Proposal":
        """Return the block without drafts that cannot count, where row b has room for `room[b]` of
        them. It is cut to the largest room; in rows with less, the confidence logit behind the
        room is -inf."""
        longest, logits = max(room), self.confidence_logits
        if logits is not None and min(room) < min(longest, self.tokens.shape[1]):
            position = torch.arange(self.tokens.shape[1], device=logits.device)
            behind = position >= torch.tensor(room, device=logits.device)[:, None]
            logits = logits.masked_fill(behind, -torch.inf)
        return Proposal(self.tokens, self.probs, logits).cut(longest)

    def scheduled(self, chosen: list[int], room: list[int]) -> "Proposal":
        """Return the block cut to the longest of its rows' verification lengths: what was `chosen`
        for a row, within its `room` and its block."""
        lengths = [min(length, space, self.tokens.shape[1]) for length, space in zip(chosen, room)]
        return replace(self.cut(max(lengths)), lengths=lengths)


def stack_proposals(proposals: list[Proposal]) -> Proposal:
    """Stack the blocks [1, g] of several requests into one proposal [R, g], for a policy that
    decides about all of them. A single proposal is returned as it is.

    Shorter blocks are padded; a padded position has confidence logit -inf. An empty block may lack
    confidence logits.
    """
    if len(proposals) == 1:
        return proposals[0]

    def stack(parts, padding=0.0):
        return pad_sequence([part[0] for part in parts], batch_first=True, padding_value=padding)

    logits = None
    if any(block.confidence_logits is not None for block in proposals):
        logits = stack(
            [
                block.probs.new_empty(1, 0)
                if block.confidence_logits is None
                else block.confidence_logits
                for block in proposals
            ],
            -torch.inf,
        )
    return Proposal(
        stack([block.tokens for block in proposals]),
        stack([block.probs for block in proposals]),
        logits,
    )


def draft_length(gamma: int | None, longest: int) -> int:
    """Return the draft length: `gamma`, or `longest` for None. Raise RequestError if it is not from 1
    to `longest`."""
    if gamma is None:
        return longest
    if not isinstance(gamma, Integral) or not 1 <= gamma <= longest:
        raise RequestError(
            f"gamma is {gamma!r}; this drafter drafts between 1 and {longest} tokens a block"
        )
    return gamma


class Drafter(ABC):
    """Guesses what the target will write.

    A drafter's state covers the committed text before the anchor, the newest token. Drafts that it
    still holds are dropped or overwritten before anything reads them.
    """

    name: str
    gamma: int  # drafts of a whole block
    taps: tuple[int, ...]  # the layers of the target whose hidden states it reads

    @abstractmethod
    def begin(self, prompt_ids: torch.Tensor, features: torch.Tensor | None) -> object:
        """Return the state after prompts [B, n] whose tapped hidden states are features
        [B, n, taps * H] (None without taps)."""

    @abstractmethod
    def propose(
        self,
        state,
        anchor: torch.Tensor,
        *,
        gamma: int | None = None,
        temperature: float,
        generator,
    ) -> Proposal:
        """Draft `gamma` tokens (None: a whole block) after the anchor [B], each drawn from the
        distribution beside it."""

    @abstractmethod
    def extend(self, state, token_ids: torch.Tensor, features: torch.Tensor | None) -> None:
        """Add newly committed tokens [B, t] to the state, with the features [B, t, taps * H] that
        verification gave."""

    def row_store(self, rows: int, device: torch.device):
        """Return an empty state for rows of different lengths (decoding/rows.py), or None if the
        drafter drafts for one row after the other."""
        return None

    def see_committed(self, state, tokens: list[list[int]]) -> None:  # noqa: B027
        """Take the tokens of the last `extend` and the anchor after them as lists on the host, one
        for each row. Does nothing by default."""


@runtime_checkable
class Context(Protocol):
    """The keys and values of the committed tokens in every layer; a drafter attends to them."""

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Return the absolute positions [B, T] of tokens [B, T, ...] that enter after the context."""

    def mask(self, tokens: int) -> torch.Tensor | None:
        """Return the mask [B, 1, 1, S] over the context and `tokens` entries after it; None if all
        are visible."""

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write keys and values [B, m, T, d] after the context. Return all entries up to them,
        [B, m, S, d]."""

    def advance(self, tokens: int) -> None:
        """Count `tokens` appended entries as context. The next `append` overwrites the others."""


@runtime_checkable
class Policy(Protocol):
    """Chooses how much of each block is verified.

    The output distribution stays exactly the target's if the choice about position k of a request
    depends on no token drawn at k or later (paper, section 3.2.2 and Appendix A).

    A policy that remembers earlier steps keeps them in an attribute `memory`. It replaces this value
    and never changes it in place. If a step that several requests share fails, `play_round`
    (lockstep.py) restores the value from before it: a repeated step makes the same draws and must
    not find them in the memory.
    """

    def begin(self) -> None:
        """Forget earlier steps. Called before the first step of a generation or an engine."""

    def __call__(self, proposal: Proposal) -> torch.Tensor:
        """Return the verification lengths [R] of the requests that share a step, from 0 to a whole
        block. Near the end of an answer a block may be shorter; lengths beyond it are cut."""


class Memoryless:
    """A policy made of a function of the proposal."""

    def __init__(self, choose: Callable[[Proposal], torch.Tensor]):
        self.choose = choose

    def begin(self) -> None:
        """Do nothing: there is no memory."""

    def __call__(self, proposal: Proposal) -> torch.Tensor:
        """Return the function's lengths [R]."""
        return self.choose(proposal)


def start_policy(policy: Policy | Callable[[Proposal], torch.Tensor] | None) -> Policy | None:
    """Return the policy, ready for its first step. A function becomes a policy; None (whole blocks)
    stays None."""
    if policy is None:
        return None
    policy = policy if isinstance(policy, Policy) else Memoryless(policy)
    policy.begin()
    return policy


def chosen_lengths(
    policy: Policy | None, proposal: Proposal, block_size: int | None = None
) -> list[int]:
    """Return each request's verification length by a policy (None: all that was drafted).

    The host waits for the policy once. Without drafts the policy is not called. Raise RequestError
    for lengths that are not whole numbers from 0 to `block_size` (None: to the drafted length,
    which is shorter near the end of an answer).
    """
    requests, drafted = proposal.tokens.shape
    if policy is None or not requests or not drafted:
        return [drafted] * requests
    most = drafted if block_size is None else block_size
    lengths = policy(proposal)
    if not isinstance(lengths, torch.Tensor):
        raise RequestError(
            f"the policy {_name(policy)} gave a {type(lengths).__name__}; a policy gives a tensor of "
            "lengths"
        )
    if lengths.shape != (requests,) or lengths.dtype not in (torch.int32, torch.int64):
        raise RequestError(
            f"the policy {_name(policy)} gave {lengths.dtype} of shape {tuple(lengths.shape)}; a policy "
            f"gives whole numbers, one for each of the {requests} requests"
        )
    chosen = lengths.tolist()
    if min(chosen) < 0 or max(chosen) > most:
        raise RequestError(
            f"the policy {_name(policy)} gave verification lengths from {min(chosen)} to {max(chosen)}; "
            f"in blocks of {most} drafts they lie between 0 and {most}"
        )
    return chosen


def _name(policy) -> str:
    """Return the name of a policy for an error: the function that made it, or its class."""
    source = policy.choose if isinstance(policy, Memoryless) else policy
    return getattr(source, "__qualname__", type(source).__name__).partition(".<locals>")[0]
