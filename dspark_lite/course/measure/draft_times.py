"""The time of drafts of one to gamma tokens, beside a pass of the target (lesson 06)."""

from functools import partial

import torch

from ...common.timing import time_interleaved
from .lab import Lab


@torch.inference_mode()
def draft_times(
    lab: Lab, names: list[str], prompt_ids: torch.Tensor, gamma: int, repeats: int = 12
) -> tuple[dict[str, dict[int, float]], float, float]:
    """Return milliseconds of a draft by drafter and tokens drafted, of a plain pass, and of a
    verification of `gamma` drafts.

    Each draft comes right after a verification, as in a round. All works of a drafter take turns,
    and the least of `repeats` times counts.
    """
    drafted, plain, verifying = {}, [], []
    for name in names:
        # holds no drafter while the next loads
        timed = time_interleaved(
            _timed_functions(lab, lab.drafter(name), prompt_ids, gamma), lab.device, repeats=repeats
        )
        least = {work: min(times) for work, times in timed.items()}
        drafted[name] = {count: spent for (work, count), spent in least.items() if work == "draft"}
        plain += [spent for (work, _), spent in least.items() if work == "plain"]
        verifying += [spent for (work, _), spent in least.items() if work == "verify"]
    return drafted, min(plain), min(verifying)


@torch.inference_mode()
def verification_times(
    lab: Lab, prompt_ids: torch.Tensor, gamma: int, repeats: int = 12
) -> dict[int, float]:
    """Return the least milliseconds of a pass over an anchor and 0 to gamma drafts, by drafts; 0 is
    a plain pass."""
    _, cache = lab.target.prefill(prompt_ids)
    works = {
        count: partial(_verify, lab.target, cache, prompt_ids[:, -1], count)
        for count in range(gamma + 1)
    }
    timed = time_interleaved(works, lab.device, repeats)
    return {count: min(times) for count, times in timed.items()}


def _verify(target, cache, anchor: torch.Tensor, count: int) -> None:
    """Verify `count` drafts after an anchor [1]; the pass is taken back, so that it can be
    repeated."""
    target.verify(torch.cat([anchor[:, None], anchor.new_zeros(1, count)], 1), cache)
    target.roll_back(cache, count + 1)


def _timed_functions(lab: Lab, drafter, prompt_ids: torch.Tensor, gamma: int) -> dict:
    """Return the timed functions of one drafter, by name and drafts; each rolls the target's pass
    back, so that it can be repeated."""
    read, cache = lab.target.prefill(prompt_ids, drafter.taps)
    state, anchor = drafter.begin(prompt_ids, read.features), prompt_ids[:, -1]
    verify = partial(_verify, lab.target, cache, anchor)
    works = {("plain", 0): partial(verify, 0)}
    for count in range(1, drafter.gamma + 1):
        works["verify", count] = partial(verify, gamma)
        works["draft", count] = partial(
            drafter.propose, state, anchor, gamma=count, temperature=1.0, generator=lab.generator()
        )
    return works
