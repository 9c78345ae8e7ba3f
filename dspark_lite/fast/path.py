"""Put a target and a drafter on the fast path, once, and again after either has changed."""

from functools import singledispatch

import torch

from ..common.errors import RequestError
from ..common.fingerprint import module_of
from ..decoding.proposal import Drafter, draft_length
from ..decoding.target import Target
from ..drafters.autoregressive import Autoregressive
from ..drafters.dspark import DSpark
from ..drafters.prompt_lookup import PromptLookup
from ..drafters.small_lm import SmallLM
from .accept import FastAccept
from .drafter import FastDrafter, StaticChainState, StaticDraftContext
from .model_snapshot import snapshot
from .passes import compile_backend
from .target import FastTarget


def fast_path(
    target: Target, drafter: Drafter | None, gamma: int | None = None, backend: str | None = None
) -> tuple[FastTarget, Drafter | None, FastAccept]:
    """Return the target, the drafter (None without one) and the accept rule of the fast path.

    `generate(..., prepare=fast_path)` calls this before each answer. `backend` is one of
    torch.compile's, or None for the best one here. The result is stored with the target and the
    drafter, so that nothing is compiled twice, and is made anew after either has changed
    (model_snapshot.py). Raise RequestError if the target or the drafter has no fast path.
    """
    if not isinstance(target, Target):
        raise RequestError(f"a {type(target).__name__} has no fast path; decode without it")
    if target.device.type not in ("cpu", "cuda"):
        raise RequestError(
            f"the target is on {target.device.type}; the fast path runs on a CPU or with CUDA: decode without it"
        )
    length = draft_length(gamma, drafter.gamma) if drafter else 0
    backend = compile_backend(target.device) if backend is None else backend
    backends = torch.compiler.list_backends(exclude_tags=())
    if backend not in backends:
        raise RequestError(
            f"the fast path's backend is {backend!r}; it must be None or one of torch.compile: {', '.join(backends)}"
        )
    for owner in (target, drafter) if drafter else (target,):
        _forget_if_changed(owner)
    prepared_drafter, taps = None, ()
    if drafter:
        taps, prepared = drafter.taps, drafter.prepared
        prepared_drafter = _stored(
            prepared, (length, backend), fast_drafter, drafter, length, backend
        )
    slots, sizes = length + 1, (length, target.vocab_size, target.device)
    return (
        _stored(target.prepared, (slots, taps, backend), FastTarget, target, slots, backend),
        prepared_drafter,
        _stored(target.prepared, (length, backend), FastAccept, *sizes, backend),
    )


@singledispatch
def fast_drafter(drafter, gamma: int, backend: str) -> Drafter:
    """Return a drafter on the fast path, with blocks of `gamma` drafts.

    Register a function for a drafter of your own. Raise RequestError for a drafter without one.
    """
    raise RequestError(f"a {type(drafter).__name__} has no fast path; decode without it")


@fast_drafter.register
def _(drafter: DSpark, gamma: int, backend: str) -> Drafter:
    return FastDrafter(drafter, StaticDraftContext, gamma, backend)


@fast_drafter.register
def _(drafter: Autoregressive, gamma: int, backend: str) -> Drafter:
    return FastDrafter(drafter, StaticChainState, gamma, backend)


@fast_drafter.register
def _(drafter: SmallLM, gamma: int, backend: str) -> Drafter:
    # A pass reads two tokens after a block that was accepted whole, otherwise one.
    return SmallLM(FastTarget(drafter.model, 2, backend), drafter.gamma, drafter.added)


@fast_drafter.register
def _(drafter: PromptLookup, gamma: int, backend: str) -> Drafter:
    return drafter  # it has no pass to compile


def _forget_if_changed(owner: Target | Drafter) -> None:
    """Forget what was prepared for a target or a drafter that has changed since."""
    model = module_of(owner)
    present = None if model is None else snapshot(model, owner.name)
    if vars(owner).get("prepared_for", ()) != present:
        owner.prepared, owner.prepared_for = {}, present


def _stored(prepared: dict, key: tuple, make, *arguments):
    """Return `prepared[key]`. If there is none, store what `make(*arguments)` returns."""
    if key not in prepared:
        prepared[key] = make(*arguments)
    return prepared[key]
