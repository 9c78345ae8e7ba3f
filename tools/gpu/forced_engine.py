"""The slot engine with an outcome that is forced: what its steps cost at each load where the weights are random.

As in forced_rounds.py all the work of a step is done, and then as many drafts of each request are accepted as a pattern says.
"""

import itertools
import sys

import torch
from tqdm import tqdm

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.decoding.sampling import Verdict, accept
from dspark_lite.scheduling.policies import fixed
from dspark_lite.serving.engine import Engine
from dspark_lite.serving.requests import STEP_PARTS, Request

ENGINE_LOADS = tuple(2**n for n in range(9))  # requests under way: 1 to 256
WARM_STEPS = 3  # that are not counted: the first of a shape pays for memory, and for compiling


class ForcedSteps:
    """An accept rule for a step's requests: it judges their blocks, and then each accepts what `pattern` says, one number
    after the other, over and over, at most what is verified of it."""

    def __init__(self, pattern: list[int]):
        self.pattern = itertools.cycle(pattern)

    def __call__(self, target_probs, draft_probs, draft_tokens, lengths, generator) -> Verdict:
        verdict = accept(target_probs, draft_probs, draft_tokens, lengths, generator)
        forced = torch.tensor(
            [next(self.pattern) for _ in draft_tokens], device=draft_tokens.device
        )  # [R]
        return verdict._replace(
            accepted=forced.clamp(max=draft_tokens.shape[1] if lengths is None else lengths)
        )


def measure_engine(
    target,
    drafters: dict,
    pattern: list[int],
    *,
    loads=ENGINE_LOADS,
    prompt: int = 256,
    steps: int = 16,
) -> list[dict]:
    """Rows of steps at each load: of plain decoding ("plain", a drafter of None) and of every other drafter, its whole blocks and
    the anchors alone verified.

    All requests have prompts of `prompt` random tokens and run from the first counted step to the last. A row has seconds by
    STEP_PARTS of a step on average, tokens verified and committed a step, tokens a second, and bytes at the peak (None on a
    CPU); a load that the memory does not hold has a `reason`, and larger ones are not tried.
    """
    rows = []
    with tqdm(total=len(drafters) * len(loads), desc="engine", unit="load", file=sys.stderr) as bar:
        for name, drafter in drafters.items():
            for load in loads:
                try:
                    rows += [
                        {
                            "drafter": name,
                            "concurrency": load,
                            **_load_steps(target, drafter, pattern, length, load, prompt, steps),
                        }
                        for length in ((0, drafter.gamma) if drafter else (0,))
                    ]
                except (torch.OutOfMemoryError, DSparkLiteError) as error:
                    rows.append(
                        {"drafter": name, "concurrency": load, "reason": str(error).splitlines()[0]}
                    )
                    break
                bar.update(1)
    return rows


def _load_steps(
    target, drafter, pattern: list[int], length: int, load: int, prompt: int, count: int
) -> dict:
    """What `count` steps of so many requests give when `length` drafts of each are verified."""
    device, gamma = target.device, drafter.gamma if drafter else 0
    new = (WARM_STEPS + count) * (length + 1) + 2
    engine = Engine(
        target,
        drafter,
        policy=fixed(length),
        slots=load,
        capacity=prompt + new + gamma + 1,
        temperature=1.0,
        stop_token_ids=(),
        rule=ForcedSteps(pattern),
    )
    generator = torch.Generator(device).manual_seed(0)
    for seed in range(load):
        engine.submit(
            Request(
                torch.randint(target.vocab_size, (1, prompt), generator=generator, device=device),
                new,
                seed,
            )
        )
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    taken = [engine.step() for _ in range(WARM_STEPS + count)]
    seconds = {
        part: sum(step.seconds[part] for step in taken[WARM_STEPS:]) / count
        for part in STEP_PARTS
        if part != "prefill"
    }
    verified, committed = (
        sum(getattr(step, name) for step in taken[WARM_STEPS:]) / count
        for name in ("verified", "committed")
    )
    return {
        "length": length,
        "prefill_seconds": taken[0].seconds["prefill"],
        "seconds": seconds,
        "verified": verified,
        "committed": committed,
        "tokens_per_second": committed / sum(seconds.values()),
        "peak_bytes": torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None,
    }
