"""Decoding speed against plain decoding, and what a round's draft work costs as the context grows."""

import sys
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from .evaluation import mean_accepted_length, rollout, rollouts, tally, tokens_per_second
from .lab import Lab
from .measurements import header
from .sampling import check_temperature
from .timing import milliseconds


def bench(lab: Lab, drafters: list[str], *, prompts: int, temperature: float = 1.0) -> dict:
    """Tokens a second in decoding alone, batch 1, and the ratio to plain decoding in the same run.

    Drafters take turns prompt by prompt, so that a slow moment of the machine meets all of them.
    """
    check_temperature(temperature)
    held = {"plain": None, **{name: lab.drafter(name) for name in drafters}}
    rows = []
    with tqdm(total=len(held) * len(lab.prompts) * prompts, desc="bench", unit="prompt", file=sys.stderr) as bar:
        for domain, texts in lab.prompts.items():
            runs = {name: [] for name in held}
            for drafter in held.values():
                rollouts(lab, drafter, texts[:1], temperature=temperature)  # the first run of a shape pays for memory
            for index, text in enumerate(texts[:prompts]):
                for name, drafter in held.items():
                    runs[name].append(rollout(lab, drafter, text, index, temperature=temperature))
                    bar.update(1)
            speeds = {name: tokens_per_second(found) for name, found in runs.items()}
            rows += [{"drafter": name, "domain": domain, "tokens_per_second": speeds[name],
                      "speedup": speeds[name] / speeds["plain"],
                      "accepted_length": mean_accepted_length([tally(found)])} for name, found in runs.items()]
    macro = {name: float(np.mean([row["speedup"] for row in rows if row["drafter"] == name])) for name in held}
    times = {name: draft_time(lab, held[name]) for name in drafters if held[name].taps}
    return {**header(lab), "temperature": temperature, "prompts": prompts, "rows": rows, "macro_speedup": macro,
            "draft_milliseconds_by_context": times}


@torch.inference_mode()
def draft_time(lab: Lab, drafter, contexts=(100, 1500), repeats: int = 40) -> dict[str, float]:
    """Median milliseconds of one round's draft work (propose, then extend by four tokens) after contexts of several
    lengths, which take turns and grow by the four tokens of each round."""
    width, generator = len(drafter.taps) * lab.target.hidden_size, lab.generator()

    def one_round(state, anchor, committed, features):
        drafter.propose(state, anchor, temperature=1.0, generator=generator)
        drafter.extend(state, committed, features)

    works = {}
    for context in contexts:
        features = torch.randn(1, context, width, device=lab.device, dtype=lab.target.dtype, generator=generator)
        ids = torch.zeros(1, context, dtype=torch.long, device=lab.device)
        works[str(context)] = partial(one_round, drafter.begin(ids, features), ids[:, 0], ids[:, :4], features[:, :4])
    return milliseconds(works, lab.device, repeats)
