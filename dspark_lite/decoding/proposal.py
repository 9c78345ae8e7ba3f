"""A drafted block, what drafts it and what it attends to, and the policy that says how much of it is verified."""

from collections.abc import Callable
from abc import ABC, abstractmethod
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
        """The probability [B, g] that a token survives given that its predecessors did; None
        without a confidence head."""
        return None if self.confidence_logits is None else torch.sigmoid(self.confidence_logits)

    def cut(self, length: int) -> "Proposal":
        """Return the first `length` positions; the block itself if it is no longer."""
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
    """The blocks [1, g] of several requests as one proposal [R, g], for a policy that decides about all of them; a
    single proposal as it is.

    Shorter blocks are padded; a padded position has confidence logit -inf. An empty block needs no confidence for that.
    """
    if len(proposals) == 1:
        return proposals[0]

    def stack(parts, padding=0.0):
        return pad_sequence([part[0] for part in parts], batch_first=True, padding_value=padding)

    logits = None
    if any(one.confidence_logits is not None for one in proposals):
        logits = stack(
            [
                one.probs.new_empty(1, 0)
                if one.confidence_logits is None
                else one.confidence_logits
                for one in proposals
            ],
            -torch.inf,
        )
    return Proposal(
        stack([one.tokens for one in proposals]), stack([one.probs for one in proposals]), logits
    )


def draft_length(gamma: int | None, longest: int) -> int:
    """The draft length to use: `longest` unless `gamma` asks for fewer; raises RequestError beyond the block."""
    if gamma is None:
        return longest
    if not isinstance(gamma, Integral) or not 1 <= gamma <= longest:
        raise RequestError(
            f"gamma is {gamma!r}; this drafter drafts between 1 and {longest} tokens a block"
        )
    return gamma


class Drafter(ABC):
    """Guesses what the target will write.

    A drafter's state covers the committed text up to the anchor, the newest token. It holds nothing
    that was only drafted, so a rejected draft leaves no trace.
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

    def note(self, state, tokens: list[list[int]]) -> None:  # noqa: B027
        """Take the tokens of the last `extend` and the anchor after them as lists on the host, one
        for each row. Does nothing by default."""

    def learn(self, state, verified: int, accepted: int) -> None:  # noqa: B027
        """Take the result of a round: how many drafts were verified and how many accepted. Called
        before `extend`; does nothing by default."""


@runtime_checkable
class Context(Protocol):
    """Keys and values of the committed tokens in every layer: what the layers of a drafter attend to."""

    def positions(self, entering: torch.Tensor) -> torch.Tensor:
        """Absolute positions [B, T] of tokens that enter after the context, [B, T, ...]."""

    def mask(self, tokens: int) -> torch.Tensor | None:
        """Which of the context and of so many tokens after it may be seen, [B, 1, 1, S]; None: everything."""

    def append(
        self, layer: int, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Writes keys and values [B, m, T, d] after the context and returns everything up to them, [B, m, S, d]."""

    def advance(self, tokens: int) -> None:
        """Counts so many appended tokens as context; the others are overwritten by what comes next."""


@runtime_checkable
class Policy(Protocol):
    """Chooses how much of each block is verified. The text stays exactly the target's if the choice about position k of
    a request looks at nothing that was drawn at k or later (paper, section 3.2.2 and Appendix A)."""

    def begin(self) -> None:
        """Forgets earlier steps: called before the first one of a generation or of an engine."""

    def __call__(self, proposal: Proposal) -> torch.Tensor:
        """Verification lengths [R], from 0 to a block's, of all requests that share a step; of a block that was drafted
        shorter, near an answer's end, no more is verified than there is."""


class Memoryless:
    """The policy of a function of the step's proposal alone: it has nothing to forget."""

    def __init__(self, choose: Callable[[Proposal], torch.Tensor]):
        self.choose = choose

    def begin(self) -> None:
        """No-op: nothing is remembered."""

    def __call__(self, proposal: Proposal) -> torch.Tensor:
        """The function's lengths [R]."""
        return self.choose(proposal)


def started(policy: Policy | Callable[[Proposal], torch.Tensor] | None) -> Policy | None:
    """The policy at its first step; a plain function becomes a policy, None (whole blocks) stays."""
    if policy is None:
        return None
    policy = policy if isinstance(policy, Policy) else Memoryless(policy)
    policy.begin()
    return policy


def chosen_lengths(
    policy: Policy | None, proposal: Proposal, block: int | None = None
) -> list[int]:
    """The verification length of each request that a policy (None: all that was drafted) gives, on the host, which
    waits for them once; where nothing was drafted the policy is not called. Raises RequestError for lengths that are
    not whole numbers from 0 to `block` (None: to the drafted length; a block is drafted shorter where the answer's end
    is near)."""
    requests, drafted = proposal.tokens.shape
    if policy is None or not requests or not drafted:
        return [drafted] * requests
    most = drafted if block is None else block
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
    """What a policy is called in an error: the function that made it, or its class."""
    made = policy.choose if isinstance(policy, Memoryless) else policy
    return getattr(made, "__qualname__", type(made).__name__).partition(".<locals>")[0]
