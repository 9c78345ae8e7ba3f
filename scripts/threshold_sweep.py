"""A static confidence threshold, swept (Figure 5): what it saves and what it costs, from rollouts."""

import sys

import numpy as np
from tqdm import tqdm

from dspark_lite.common.estimates import bootstrap
from dspark_lite.measure.evaluation import rollout
from dspark_lite.measure.journal import header
from dspark_lite.measure.lab import Lab
from dspark_lite.scheduling.policies import threshold

THRESHOLDS = tuple(round(0.1 * step, 1) for step in range(10))


def sweep(lab: Lab, drafter, *, thresholds=THRESHOLDS, temperature: float = 1.0) -> dict:
    """One row a domain and threshold: tokens `accepted` a step (bonus included) and drafts `rejected` a step, their sum
    `total`, and the acceptance rate, accepted over total as in Figure 5, with its interval over prompts."""
    rows = []
    with tqdm(total=len(thresholds) * sum(map(len, lab.prompts.values())), desc="threshold sweep", unit="prompt",
              file=sys.stderr) as bar:
        for domain, texts in lab.prompts.items():
            for least in thresholds:
                counts = []
                for index, text in enumerate(texts):
                    answer = rollout(lab, drafter, text, index, temperature=temperature, policy=threshold(least))
                    counts.append(step_counts(answer.rounds))
                    bar.update(1)
                rows.append({"domain": domain, "threshold": least, **summary(np.array(counts))})
    return {**header(lab), "temperature": temperature, "prompts": {name: len(texts) for name, texts in lab.prompts.items()},
            "rows": rows}


def step_counts(rounds) -> list[int]:
    """[accepted tokens, bonus included; rejected drafts; steps] of one answer, rounds cut short by its end left out."""
    whole = [r for r in rounds if r.committed > r.accepted]
    return [sum(r.accepted + 1 for r in whole), sum(r.proposed - r.accepted for r in whole), len(whole)]


def summary(counts: np.ndarray) -> dict:
    """Means a step and the acceptance rate of `step_counts` [N, 3], the rate with its bootstrap interval."""
    accepted, rejected, steps = counts.sum(0)
    rate = bootstrap(lambda groups: groups[0][:, 0].sum() / groups[0][:, :2].sum(), [counts])
    return {"accepted": float(accepted / steps), "rejected": float(rejected / steps),
            "total": float((accepted + rejected) / steps), "rate": rate.value, "low": rate.low, "high": rate.high}
