"""A policy chooses how much of each block is verified: it begins anew, gives lengths, and these are checked."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import torch

from ..common.errors import RequestError
from .proposal import Proposal


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


def chosen_lengths(policy: Policy | None, proposal: Proposal, block: int | None = None) -> list[int]:
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
        raise RequestError(f"the policy {_name(policy)} gave a {type(lengths).__name__}; a policy gives a tensor of "
                           "lengths")
    if lengths.shape != (requests,) or lengths.dtype not in (torch.int32, torch.int64):
        raise RequestError(f"the policy {_name(policy)} gave {lengths.dtype} of shape {tuple(lengths.shape)}; a policy "
                           f"gives whole numbers, one for each of the {requests} requests")
    chosen = lengths.tolist()
    if min(chosen) < 0 or max(chosen) > most:
        raise RequestError(f"the policy {_name(policy)} gave verification lengths from {min(chosen)} to {max(chosen)}; "
                           f"in blocks of {most} drafts they lie between 0 and {most}")
    return chosen


def _name(policy) -> str:
    """What a policy is called in an error: the function that made it, or its class."""
    made = policy.choose if isinstance(policy, Memoryless) else policy
    return getattr(made, "__qualname__", type(made).__name__).partition(".<locals>")[0]
