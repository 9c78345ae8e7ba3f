"""What a round costs a batch as drafts grow longer (Figure 4, right): one verification, the parallel pass, the sequential loop."""

import sys
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from .lab import Lab
from .measurements import header
from .miniature import LENGTH_STUDY, LENGTHS
from .timing import milliseconds
from .training.drafts import new_draft
from .training.recipes import load_recipe

BATCH = 32  # requests; the paper: 128
CONTEXTS = (256, 512, 1024)  # tokens; the paper: 512 to 4096
REPEATS = 12


@torch.inference_mode()
def round_latency(lab: Lab, batch: int = BATCH, contexts=CONTEXTS) -> dict:
    """Median milliseconds of the target's and the drafter's part of a round, by drafter, draft length and context.

    Weights and contexts are random: only shapes matter here. All drafters and lengths take turns in one run.
    """
    rows = []
    for context in tqdm(contexts, desc="round latency", unit="context", file=sys.stderr):
        generator = lab.generator()
        ids = torch.randint(lab.target.vocab_size, (batch, context), generator=generator, device=lab.device)
        _, cache = lab.target.prefill(ids)
        works = {("target", length): partial(_verify, lab.target, cache, ids[:, :length]) for length in LENGTHS}
        for study, recipe in LENGTH_STUDY.items():
            drafter = new_draft(load_recipe(recipe), lab.target).eval()
            features = torch.randn(batch, context, len(drafter.taps) * lab.target.hidden_size, generator=generator,
                                   device=lab.device, dtype=lab.target.dtype)
            works[study] = partial(drafter.propose, drafter.begin(ids, features), ids[:, 0], temperature=1.0,
                                   generator=generator)
        for (part, length), found in milliseconds(works, lab.device, REPEATS).items():
            rows.append({"part": part, "length": length, "context": context, "milliseconds": found})
    return {**header(lab), "batch": batch, "rows": rows}


def _verify(target, cache, token_ids: torch.Tensor) -> None:
    """One verification of a block behind the cache, which is left as it was."""
    target.verify(token_ids, cache)
    target.roll_back(cache, token_ids.shape[1])


def full_round(measured: dict, drafter: str) -> dict[int, float]:
    """Milliseconds of a full round by draft length: target and drafter, the mean over contexts."""
    by_part = {}
    for row in measured["rows"]:
        by_part.setdefault((row["part"], row["length"]), []).append(row["milliseconds"])
    return {length: float(np.mean(by_part["target", length]) + np.mean(by_part[drafter, length])) for length in LENGTHS}
