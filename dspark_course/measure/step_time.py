"""Measuring SPS(B), the cost table of a target."""

import sys
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from dspark_lite.common.errors import RequestError
from dspark_lite.common.origin import Origin
from dspark_lite.common.timing import time_interleaved
from dspark_lite.scheduling.cost_table import CostTable

PROFILE_SIZES = (*range(1, 65), *range(72, 257, 8))  # sizes measured unless others are asked for
PROFILE_CONTEXT = 256  # committed tokens that a profiled pass looks back at
PROFILE_REPEATS = 15


@torch.inference_mode()
def profile(target, sizes=PROFILE_SIZES, *, context: int = PROFILE_CONTEXT, repeats: int = PROFILE_REPEATS,
            text: torch.Tensor | None = None) -> tuple[CostTable, dict]:
    """Measures SPS(B) of `target` for B in `sizes`: (table of medians, milliseconds of every repeat by size).

    One pass carries B tokens after `context` committed ones and is rolled back; sizes are timed in round-robin, so that a
    busy moment of the machine meets all of them. The tokens are those of `text` [n], over and over (None: random ones).
    Raises RequestError where the target has no position for the largest size.
    """
    sizes = sorted(set(sizes))
    if not sizes or sizes[0] < 1:
        raise RequestError("a batch size is below 1; a step carries at least one token")
    check_context(context)
    if context + sizes[-1] > target.max_positions:
        raise RequestError(f"{context} context tokens and a batch of {sizes[-1]} exceed the {target.max_positions} "
                           "positions of this target; ask for smaller batches")
    ids = profiled_tokens(target, (1, context + sizes[-1]), text)
    _, cache = target.prefill(ids[:, :context])

    def step(size):
        target.verify(ids[:, context:context + size], cache)
        target.roll_back(cache, size)

    bar = tqdm(total=len(sizes) * (repeats + 1), desc="profile", unit="step", file=sys.stderr)

    def counted(size):
        step(size)
        bar.update(1)

    with bar:
        spent = time_interleaved({size: partial(counted, size) for size in sizes}, target.device, repeats)
    return CostTable(sizes, [1e3 / float(np.median(spent[size])) for size in sizes], origin=Origin.of(target)), spent


def check_context(context: int) -> None:
    """Raises RequestError for a context of no token: a step goes on with something."""
    if context < 1:
        raise RequestError(f"the context has {context} tokens; a step goes on with a text of at least one")


def profiled_tokens(target, shape: tuple[int, int], text: torch.Tensor | None) -> torch.Tensor:
    """Token ids of this shape for a profile: those of `text` [n] over and over, or random ones where it is None."""
    if text is not None:
        return text.to(target.device)[torch.arange(shape[0] * shape[1], device=target.device) % len(text)].view(shape)
    generator = torch.Generator(target.device).manual_seed(0)
    return torch.randint(target.vocab_size, shape, generator=generator, device=target.device)
