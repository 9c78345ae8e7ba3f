"""Measuring what a target's pass costs by the requests that share it and the tokens that it verifies, for SGLang's additive table."""

import sys
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from dspark_lite.common.errors import RequestError
from dspark_lite.common.origin import Origin
from dspark_lite.common.timing import time_interleaved
from dspark_lite.scheduling.additive_costs import AdditiveCosts
from dspark_course.measure.step_costs import StepCosts
from .step_time import PROFILE_CONTEXT, PROFILE_REPEATS, check_context, profiled_tokens

PROFILE_REQUESTS = (1, 2, 4, 8, 16)  # requests in a step unless others are asked for
BLOCK_TOKENS = range(1, 9)  # tokens that each verifies: the anchor alone to a whole block of seven


@torch.inference_mode()
def profile_steps(target, requests=PROFILE_REQUESTS, tokens=BLOCK_TOKENS, *, context: int = PROFILE_CONTEXT,
                  repeats: int = PROFILE_REPEATS, text: torch.Tensor | None = None) -> tuple[StepCosts, dict]:
    """Seconds of passes that verify so many `tokens` of each of so many `requests`: (medians, milliseconds of every repeat by
    (requests, tokens of each)).

    Each request has `context` committed tokens, those of `text` (None: random ones); passes are timed in round-robin.
    Raises RequestError where the target has no position for the longest.
    """
    requests, tokens = sorted(set(requests)), sorted(set(tokens))
    if not requests or requests[0] < 1 or tokens[0] < 1:
        raise RequestError("a step has fewer than one request or token; name numbers from 1 up")
    check_context(context)
    if context + tokens[-1] > target.max_positions:
        raise RequestError(f"{context} context tokens and {tokens[-1]} more exceed the {target.max_positions} positions of this target; "
                           "ask for a shorter context")
    ids = profiled_tokens(target, (requests[-1], context + tokens[-1]), text)
    caches = {count: target.prefill(ids[:count, :context])[1] for count in requests}
    bar = tqdm(total=len(requests) * len(tokens) * (repeats + 1), desc="profile", unit="step", file=sys.stderr)

    def step(count, length):
        target.verify(ids[:count, context:context + length], caches[count])
        target.roll_back(caches[count], length)
        bar.update(1)

    with bar:
        spent = time_interleaved({(r, k): partial(step, r, k) for r in requests for k in tokens}, target.device, repeats)
    return StepCosts(requests, tokens, [[float(np.median(spent[r, k])) / 1e3 for k in tokens] for r in requests]), spent


def additive_fit(costs: StepCosts, origin: Origin | None = None) -> tuple[AdditiveCosts, float]:
    """SGLang's additive table nearest to steps measured at `origin`, and its largest relative error on them."""
    each, per_request = np.meshgrid(costs.requests, costs.tokens_per_request, indexing="ij")
    measured = each.ravel(), (each * per_request).ravel(), costs.step_seconds.ravel()
    table = AdditiveCosts.fit(*measured, origin)
    return table, float(np.abs(table.relative_errors(*measured)).max())
