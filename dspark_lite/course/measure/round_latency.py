"""The time of a batch's round by draft length (Figure 4, right): one verification, the parallel
pass, the sequential loop."""

import sys
from dataclasses import replace
from functools import partial

import torch
from tqdm import tqdm

from ...common.timing import time_interleaved
from ...training.drafts import new_draft
from ..data.recipes import load_recipe
from .journal import header
from .lab import Lab
from .studies import LENGTH_STUDY, LENGTHS, RUNS

LATENCY_BATCH = 32  # requests; the paper: 128
LATENCY_CONTEXTS = (256, 512, 1024)  # tokens; the paper: 512 to 4096
LATENCY_TURNS = 12


@torch.inference_mode()
def round_latency(lab: Lab, batch: int = LATENCY_BATCH, contexts=LATENCY_CONTEXTS) -> dict:
    """Return milliseconds of the target's and the drafter's part of a round, by drafter, draft
    length and context: one a turn.

    Contexts are random, drafters as their training begins: only shapes matter here. All drafters
    and lengths take turns in one run.
    """
    rows = []
    for context in tqdm(contexts, desc="round latency", unit="context", file=sys.stderr):
        generator = lab.generator()
        ids = torch.randint(
            lab.target.vocab_size, (batch, context), generator=generator, device=lab.device
        )
        _, cache = lab.target.prefill(ids)
        works = {
            ("target", length): partial(_verify, lab.target, cache, ids[:, :length])
            for length in LENGTHS
        }
        for study, name in LENGTH_STUDY.items():
            drafter = new_draft(replace(load_recipe(*RUNS[name]), initial=None), lab.target).eval()
            features = torch.randn(
                batch,
                context,
                len(drafter.taps) * lab.target.hidden_size,
                generator=generator,
                device=lab.device,
                dtype=lab.target.dtype,
            )
            works[study] = partial(
                drafter.propose,
                drafter.begin(ids, features),
                ids[:, 0],
                temperature=1.0,
                generator=generator,
            )
        for (part, length), spent in time_interleaved(works, lab.device, LATENCY_TURNS).items():
            rows.append({"part": part, "length": length, "context": context, "milliseconds": spent})
    return {**header(lab), "batch": batch, "rows": rows}


def _verify(target, cache, token_ids: torch.Tensor) -> None:
    """Verify a block behind the cache once, and roll it back."""
    target.verify(token_ids, cache)
    target.roll_back(cache, token_ids.shape[1])
