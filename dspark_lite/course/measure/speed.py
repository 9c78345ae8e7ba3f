"""Decoding speed against plain decoding.

The clock of an answer, `decode_seconds`, starts when the target has read the prompt and the first
token is drawn. It covers the drafter's reading of the prompt and all rounds (decoding/rounds.py).
"""

import sys

import numpy as np
from tqdm import tqdm

from ...decoding import Generation
from ...decoding.sampling import check_temperature
from ..estimates import Estimate, paired, share_of_rows
from .evaluation import mean_accepted_length, tally
from .journal import header
from .lab import Lab, rollout


def bench(lab: Lab, drafters: list[str], *, prompts: int, temperature: float = 1.0) -> dict:
    """Return tokens per second in decoding alone, batch 1, and the ratio to plain decoding in the
    same run.

    Drafters take turns prompt by prompt, so that a slow moment of the machine meets all of them.
    `leads` holds how much faster the fastest drafter is than each other one, with its interval over
    prompts. Ctrl-C ends the measurement with the prompts that all drafters have answered, marked
    "interrupted"; before the first of them it interrupts.
    """
    check_temperature(temperature)
    loaded = {"plain": None, **{name: lab.drafter(name) for name in drafters}}
    rows, paces = [], {name: [] for name in loaded}
    runs, interrupted = _bench_runs(lab, loaded, prompts, temperature)
    for domain, answered in runs.items():
        for name, answers in answered.items():
            paces[name].append(committed_and_seconds(answers))
        speeds = {name: tokens_per_second(answers) for name, answers in answered.items()}
        rows += [
            {
                "drafter": name,
                "domain": domain,
                "tokens_per_second": speeds[name],
                "speedup": speeds[name] / speeds["plain"],
                "accepted_length": mean_accepted_length([tally(answers)]),
                **round_milliseconds(answers),
            }
            for name, answers in answered.items()
        ]
    macro = {
        name: float(np.mean([row["speedup"] for row in rows if row["drafter"] == name]))
        for name in loaded
    }
    fastest = max(macro, key=macro.get)
    leads = {
        name: vars(speed_lead(paces[fastest], answers))
        for name, answers in paces.items()
        if name != fastest
    }
    return {
        **header(lab),
        "temperature": temperature,
        "prompts": prompts,
        "rows": rows,
        "macro_speedup": macro,
        "leads": leads,
        **({"interrupted": True} if interrupted else {}),
    }


def _bench_runs(
    lab: Lab, loaded: dict, prompts: int, temperature: float
) -> tuple[dict[str, dict[str, list[Generation]]], bool]:
    """Return the answers of each drafter by domain, and whether Ctrl-C ended them early: then only
    prompts that all drafters have answered are in. Raise KeyboardInterrupt if there is none."""
    runs, total = {}, sum(len(texts[:prompts]) for texts in lab.prompts.values())
    try:
        with tqdm(total=len(loaded) * total, desc="bench", unit="prompt", file=sys.stderr) as bar:
            for domain, texts in lab.prompts.items():
                for drafter in loaded.values():
                    # the first run of a shape pays for memory
                    rollout(lab, drafter, texts[0], 0, temperature=temperature)
                for index, text in enumerate(texts[:prompts]):
                    answers = {}
                    for name, drafter in loaded.items():
                        answers[name] = rollout(lab, drafter, text, index, temperature=temperature)
                        bar.update(1)
                    for name, answer in answers.items():
                        runs.setdefault(domain, {}).setdefault(name, []).append(answer)
    except KeyboardInterrupt:
        if not runs:
            raise
        return runs, True
    return runs, False


def committed_and_seconds(generations: list[Generation]) -> np.ndarray:
    """Return tokens committed in rounds and `decode_seconds`, by answer: [N, 2]."""
    return np.array([[sum(r.committed for r in g.rounds), g.decode_seconds] for g in generations])


def tokens_per_second(generations: list[Generation]) -> float:
    """Return tokens committed in rounds over `decode_seconds`, of all answers together."""
    return float(share_of_rows(committed_and_seconds(generations)))


def round_milliseconds(generations: list[Generation]) -> dict[str, float]:
    """Return the mean milliseconds of a round up to verification, and from then on."""
    rounds = [r for g in generations for r in g.rounds]
    return {
        "draft_milliseconds": 1e3 * float(np.mean([r.draft_seconds for r in rounds])),
        "verify_milliseconds": 1e3 * float(np.mean([r.verify_seconds for r in rounds])),
    }


def speed_lead(ours: list[np.ndarray], theirs: list[np.ndarray]) -> Estimate:
    """Return how much faster one drafter is than another, as a fraction, averaged over domains; a
    domain is rows as `committed_and_seconds` gives."""
    return paired(
        lambda a, b: (
            np.mean([share_of_rows(x) / share_of_rows(y) for x, y in zip(a, b)], axis=0) - 1
        ),
        ours,
        theirs,
    )
