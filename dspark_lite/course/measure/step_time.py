"""The time of a target's pass: SPS(B), the cost table of its tokens, or SGLang's additive table of
requests and tokens."""

import sys
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from ...common.errors import RequestError
from ...common.origin import Origin
from ...common.timing import time_interleaved
from ...scheduling.additive_costs import AdditiveCosts
from ...scheduling.cost_table import CostTable
from .step_costs import StepCosts

PROFILE_SIZES = (*range(1, 65), *range(72, 257, 8))  # sizes measured unless others are asked for
# requests in a step of the additive table unless others are asked for
PROFILE_REQUESTS = (
    1,
    2,
    4,
    8,
    16,
)
BLOCK_TOKENS = range(1, 9)  # tokens that each verifies: the anchor alone to a whole block of seven
PROFILE_CONTEXT = 256  # committed tokens that a profiled pass looks back at
PROFILE_REPEATS = 15


def profile(
    target,
    sizes=PROFILE_SIZES,
    *,
    context: int = PROFILE_CONTEXT,
    repeats: int = PROFILE_REPEATS,
    text: torch.Tensor | None = None,
) -> tuple[CostTable, dict]:
    """Return SPS(B) of `target` for B in `sizes`, one request: (table of medians, milliseconds of
    every repeat by size), as `timed_passes` has them."""
    spent = {
        size: times
        for (_, size), times in timed_passes(target, (1,), sizes, context, repeats, text).items()
    }
    return CostTable(
        list(spent),
        [1e3 / float(np.median(times)) for times in spent.values()],
        origin=Origin.of(target),
    ), spent


def profile_steps(
    target,
    requests=PROFILE_REQUESTS,
    tokens=BLOCK_TOKENS,
    *,
    context: int = PROFILE_CONTEXT,
    repeats: int = PROFILE_REPEATS,
    text: torch.Tensor | None = None,
) -> tuple[StepCosts, dict]:
    """Return the times of passes that verify `tokens` of each of `requests`: (median seconds,
    milliseconds of every repeat by (requests, tokens of each)), as `timed_passes` has them."""
    spent = timed_passes(target, requests, tokens, context, repeats, text)
    requests, tokens = (list(dict.fromkeys(each)) for each in zip(*spent))
    return StepCosts(
        requests, tokens, [[float(np.median(spent[r, k])) / 1e3 for k in tokens] for r in requests]
    ), spent


@torch.inference_mode()
def timed_passes(
    target, requests, tokens, context: int, repeats: int, text: torch.Tensor | None
) -> dict[tuple[int, int], list[float]]:
    """Return the milliseconds of every repeat of passes that verify `tokens` of each of `requests`,
    by (requests, tokens), in rising order.

    A pass comes after `context` committed tokens of each request and is rolled back; passes are
    timed in round-robin, so that a busy moment of the machine meets all of them. The tokens are
    those of `text` [n], over and over (None: random ones). Raise RequestError where the target has
    no position for the longest.
    """
    requests, tokens = sorted(set(requests)), sorted(set(tokens))
    if not (requests and tokens) or min(requests[0], tokens[0]) < 1:
        raise RequestError(
            "a step of fewer than one request or token is asked for; a step carries at least one token, so name numbers from 1 up"
        )
    if context < 1:
        raise RequestError(
            f"the context has {context} tokens; a step goes on with a text of at least one"
        )
    if context + tokens[-1] > target.max_positions:
        raise RequestError(
            f"{context} context tokens and {tokens[-1]} more exceed the {target.max_positions} positions of this target; "
            "ask for fewer"
        )
    ids = profiled_tokens(target, (requests[-1], context + tokens[-1]), text)
    caches = {count: target.prefill(ids[:count, :context])[1] for count in requests}
    bar = tqdm(
        total=len(requests) * len(tokens) * (repeats + 1),
        desc="profile",
        unit="step",
        file=sys.stderr,
    )

    def step(count, length):
        target.verify(ids[:count, context : context + length], caches[count])
        target.roll_back(caches[count], length)
        bar.update(1)

    with bar:
        return time_interleaved(
            {(r, k): partial(step, r, k) for r in requests for k in tokens}, target.device, repeats
        )


def profiled_tokens(target, shape: tuple[int, int], text: torch.Tensor | None) -> torch.Tensor:
    """Return token ids of this shape for a profile: those of `text` [n] over and over, or random
    ones where it is None."""
    if text is not None:
        return text.to(target.device)[
            torch.arange(shape[0] * shape[1], device=target.device) % len(text)
        ].view(shape)
    generator = torch.Generator(target.device).manual_seed(0)
    return torch.randint(target.vocab_size, shape, generator=generator, device=target.device)


def additive_fit(costs: StepCosts, origin: Origin | None = None) -> tuple[AdditiveCosts, float]:
    """Return SGLang's additive table nearest to steps measured at `origin`, and its largest
    relative error on them."""
    each, per_request = np.meshgrid(costs.requests, costs.tokens_per_request, indexing="ij")
    measured = each.ravel(), (each * per_request).ravel(), costs.step_seconds.ravel()
    table = AdditiveCosts.fit(*measured, origin)
    return table, float(np.abs(table.relative_errors(*measured)).max())
