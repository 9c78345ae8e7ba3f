"""Decoding speed against plain decoding, what a round's draft work costs as the context grows, and the scheduler's speed."""

import sys
from functools import partial

import numpy as np
import torch
from tqdm import tqdm

from dspark_lite.common.timing import milliseconds
from dspark_lite.decoding.sampling import check_temperature
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.scheduling.policies import literal_schedule, schedule
from .evaluation import mean_accepted_length, rollout, rollouts, round_milliseconds, tally, tokens_per_second
from .journal import header
from .lab import Lab


def bench(lab: Lab, drafters: list[str], *, prompts: int, temperature: float = 1.0) -> dict:
    """Tokens per second in decoding alone, batch 1, and the ratio to plain decoding in the same run.

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
                      "accepted_length": mean_accepted_length([tally(found)]), **round_milliseconds(found)}
                     for name, found in runs.items()]
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


def bench_scheduler(requests=(16, 64, 256, 1024), gamma: int = 7) -> list[dict]:
    """Milliseconds of `schedule` and of the literal loop on one thread, and their ratio, by number of requests.

    Blocks are random, and the table makes nearly every token worth its place, so that the loop runs to its end. Raises
    RuntimeError where the two disagree.
    """
    threads, generator, rows = torch.get_num_threads(), torch.Generator().manual_seed(0), []
    torch.set_num_threads(1)
    try:
        for count in tqdm(requests, desc="scheduler", unit="size", file=sys.stderr):
            survival = (0.8 + 0.2 * torch.rand(count, gamma, generator=generator)).cumprod(1)
            table = CostTable([1, count * (gamma + 1)], [2.0, 1.0])
            if not torch.equal(schedule(survival, table), literal_schedule(survival, table)):
                raise RuntimeError(f"the vectorised scheduler and the literal one disagree on {count} requests")
            loop = milliseconds({"loop": partial(literal_schedule, survival, table)}, survival.device, repeats=3)["loop"]
            fast = milliseconds({"fast": partial(schedule, survival, table)}, survival.device, repeats=100)["fast"]
            rows.append({"requests": count, "gamma": gamma, "milliseconds": fast, "loop_milliseconds": loop, "ratio": loop / fast})
    finally:
        torch.set_num_threads(threads)
    return rows
