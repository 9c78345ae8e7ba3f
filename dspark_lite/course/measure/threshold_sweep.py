"""A sweep of the static confidence threshold (Figure 5), from rollouts."""

import sys
from pathlib import Path

import numpy as np
from tqdm import tqdm

from ...common.errors import RequestError
from ...scheduling.calibration import check_confidence_head
from ...scheduling.policies import threshold
from ..estimates import bootstrap
from .evaluation import prompt_key, rollout_journal, rollout_with_room
from .journal import header
from .lab import Lab

SWEPT_THRESHOLDS = tuple(round(0.1 * step, 1) for step in range(10))


def sweep(
    lab: Lab,
    drafter,
    *,
    thresholds=SWEPT_THRESHOLDS,
    temperature: float = 1.0,
    path: Path | None = None,
) -> dict:
    """Return one row for each domain (or benchmark) of the lab's prompts and threshold: tokens
    `accepted` a step (bonus included) and drafts `rejected` a step, their sum `total`, and the
    acceptance rate, accepted over total as in Figure 5, with its interval over prompts.

    Prompts that leave the target no position for an answer are passed over. With a `path`, that of
    the JSON to be, finished answers are kept in a journal beside it, and the same call goes on
    where it was stopped. Raise RequestError for a drafter without a confidence head, or where no
    prompt has room.
    """
    check_confidence_head(drafter)
    journal, rows = rollout_journal(path, lab, drafter, temperature), []

    def counts_of(least: float, index: int, text: str) -> list[int] | None:
        """Return an answer's `step_counts`, None for a prompt that leaves no room."""
        answer = rollout_with_room(
            lab,
            drafter,
            text,
            index,
            temperature=temperature,
            policy=threshold(least),
            max_new_tokens=lab.max_new_tokens,
        )
        return None if answer is None else step_counts(answer.rounds)

    total = len(thresholds) * sum(map(len, lab.prompts.values()))
    with tqdm(total=total, desc="threshold sweep", unit="prompt", file=sys.stderr) as bar:
        for domain, texts in lab.prompts.items():
            for least in thresholds:
                keys = [prompt_key(least, domain, index, text) for index, text in enumerate(texts)]
                for index, (key, text) in enumerate(zip(keys, texts)):
                    if key not in journal:
                        journal.add(key, counts_of(least, index, text))
                    bar.update(1)
                counts = np.array([journal[key] for key in keys if journal[key]], dtype=int)
                rows.append({"domain": domain, "threshold": least, **summary(counts)})
    return {
        **header(lab),
        "drafter": drafter.name,
        "temperature": temperature,
        "max_new_tokens": lab.max_new_tokens,
        "prompts": {name: len(texts) for name, texts in lab.prompts.items()},
        "rows": rows,
    }


def step_counts(rounds) -> list[int]:
    """Return [accepted tokens, bonus included; rejected drafts; steps] of one answer, without
    rounds that its end cut short."""
    whole = [r for r in rounds if r.committed > r.accepted]
    return [
        sum(r.accepted + 1 for r in whole),
        sum(r.proposed - r.accepted for r in whole),
        len(whole),
    ]


def summary(counts: np.ndarray) -> dict:
    """Return means a step and the acceptance rate of `step_counts` [N, 3], the rate with its
    bootstrap interval."""
    if not counts.size or not counts[:, 2].sum():
        raise RequestError(
            "no prompt gave a whole step; take shorter prompts, more of them, or longer answers"
        )
    accepted, rejected, steps = counts.sum(0)
    rate = bootstrap(
        lambda groups: groups[0][..., 0].sum(-1) / groups[0][..., :2].sum((-2, -1)), [counts]
    )
    return {
        "accepted": float(accepted / steps),
        "rejected": float(rejected / steps),
        "total": float((accepted + rejected) / steps),
        "rate": rate.value,
        "low": rate.low,
        "high": rate.high,
    }


def sweep_lines(measured: dict) -> list[str]:
    """Return a sweep as lines for a reader."""
    lines = [
        f"{row['domain']:14} threshold {row['threshold']:.1f}: {row['accepted']:.2f} tokens accepted and {row['rejected']:.2f} "
        f"rejected per step, rate {row['rate']:.1%} [{row['low']:.1%}, {row['high']:.1%}]"
        for row in measured["rows"]
    ]
    return [
        *lines,
        f"{measured['drafter']} for {measured['target']} on {measured['device']}, temperature {measured['temperature']}",
    ]
