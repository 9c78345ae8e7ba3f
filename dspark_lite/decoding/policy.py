"""A policy as the corridor asks it: begun anew, asked for the lengths of a step, its answer checked."""

from collections.abc import Callable

import torch

from ..common.errors import RequestError
from .proposal import Proposal
from .protocols import Policy


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


def chosen_lengths(policy: Policy | None, proposal: Proposal) -> list[int]:
    """The verification length of each request that a policy (None: whole blocks) gives, on the host, which asks for them
    once; raises RequestError where they are none."""
    requests, drafted = proposal.tokens.shape
    if policy is None or not requests:
        return [drafted] * requests
    lengths = policy(proposal)
    if not isinstance(lengths, torch.Tensor):
        raise RequestError(f"the policy {_name(policy)} gave a {type(lengths).__name__}; a policy gives a tensor of lengths")
    if lengths.shape != (requests,) or lengths.dtype not in (torch.int32, torch.int64):
        raise RequestError(f"the policy {_name(policy)} gave {lengths.dtype} of shape {tuple(lengths.shape)}; a policy gives "
                           f"whole numbers, one for each of the {requests} requests")
    chosen = lengths.tolist()
    if min(chosen) < 0 or max(chosen) > drafted:
        raise RequestError(f"the policy {_name(policy)} gave verification lengths from {min(chosen)} to {max(chosen)}; in "
                           f"blocks of {drafted} drafts they lie between 0 and {drafted}")
    return chosen


def _name(policy) -> str:
    """What a policy is called in an error: the function that made it, or its class."""
    made = policy.choose if isinstance(policy, Memoryless) else policy
    return getattr(made, "__qualname__", type(made).__name__).partition(".<locals>")[0]
