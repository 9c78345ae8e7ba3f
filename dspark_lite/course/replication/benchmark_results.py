"""What the drafters accept, cost and gain, from the stored benchmark; `BEST`, the small LM at its
fastest length in each domain, is computed. `drafters` is README's table."""

import numpy as np

from ...common.files import ROOT
from ..formats import interval, markdown
from ..measure import clocks
from ..measure.studies import TABLE_1, TRAININGS
from ..names import DOMAINS, DRAFTER_LABELS
from ..result_files import read
from .experiment_results import conditional_acceptance, lengths_over_seeds

BENCHMARK = ROOT / "assets" / "measurements" / "bench.json"
BEST = "small_lm_best"


def benchmark_rows() -> dict[tuple[str, str], dict]:
    """Return the rows of the stored benchmark by drafter and domain, and those of BEST."""
    best = {(BEST, domain): row for domain, row in best_lengths().items()}
    return best | {(row["drafter"], row["domain"]): row for row in benchmark()["rows"]}


def best_lengths() -> dict[str, dict]:
    """Return the small LM's fastest draft length in each domain by lesson 03's formula: the length, tokens per round, times plain decoding.

    Acceptances are those of the stored experiment, times those of the recorded clocks.
    """
    times = clocks.recorded()
    draft, verify = times["draft"]["small_lm"], times["verify"]
    rows = {}
    for domain in DOMAINS:
        rates = [rate.value for rate in conditional_acceptance(TABLE_1["small_lm"], domain)]
        tau = dict(enumerate(1 + np.cumsum(np.cumprod(rates)), 1))  # by length
        speed = {k: tau[k] * verify[0] / (draft[k] + verify[k]) for k in draft}
        best = max(speed, key=speed.get)
        rows[domain] = {
            "length": best,
            "accepted_length": float(tau[best]),
            "speedup": float(speed[best]),
        }
    return rows


def benchmark() -> dict:
    """Return the benchmark that `python -m dspark_lite bench` wrote."""
    return read(
        BENCHMARK,
        "OMP_NUM_THREADS=1 python -m dspark_lite bench --json assets/measurements/bench.json",
    )


def drafters():
    """Return README's drafters as a markdown table: times as fast as plain decoding in the stored benchmark, and tokens per
    round over the trainings that the studies have."""
    found, overall = benchmark_rows(), benchmark()["macro_speedup"]
    names = sorted(set(overall) - {"plain"}, key=overall.get, reverse=True)
    rows = []
    for name in names:
        runs = TRAININGS.get(name, ())
        if runs:
            lengths = lengths_over_seeds(runs)
            cells = [interval(lengths[domain], "tokens") for domain in DOMAINS]
        else:
            cells = [f"{found[name, domain]['accepted_length']:.1f}" for domain in DOMAINS]
        rows.append([DRAFTER_LABELS[name], f"{overall[name]:.1f}", *cells, len(runs) or "none"])
    first, *others = DOMAINS
    head = [
        "drafter",
        "times as fast as plain decoding",
        f"tokens per round: {first}",
        *others,
        "trainings",
    ]
    measured = benchmark()
    note = (
        f"(Temperature {measured['temperature']:g}, the tiny models on {measured['device']}. Speed: the shipped checkpoints, mean over "
        f"{len(DOMAINS)} domains. Tokens per round: means over the trainings, with 95 % intervals over prompts and trainings.)"
    )
    claim = (
        f"**{overall['dspark']:.1f} times as fast with tiny models on {measured['device']}, and the text stays exactly the "
        "model's own.**"
    )
    return f"{claim}\n\n{markdown(head, rows)}\n\n{note}"


def by_domain(drafter: str, column: str):
    """Return a column of the stored benchmark [domains] for a drafter; nan where it was not measured."""
    return np.array([benchmark_rows()[drafter, domain].get(column, np.nan) for domain in DOMAINS])


def cost_in_passes(drafter: str, part: str):
    """Return the cost [domains] of `part` of a round, draft or verify, in plain passes of the target."""
    return by_domain(drafter, f"{part}_milliseconds") / by_domain("plain", "verify_milliseconds")
