"""The paper's numbers, to lay beside ours: assets/reference/paper_numbers.json, as printed or read off its figures."""

import numpy as np

from ..common.errors import DSparkLiteError
from .result_files import reference

LABELS = {"dspark": "DSpark", "dflash": "DFlash", "eagle3": "Eagle3"}  # our name: the paper's
# our name: that of Figure 4
STUDY = {
    "dspark": "DSpark_markov",
    "dspark_rnn": "DSpark_rnn",
    "dflash": "DFlash",
}
TARGETS = ("Qwen3-4B", "Qwen3-8B", "Qwen3-14B", "Gemma4-12B")


def numbers() -> dict:
    """Return everything in paper_numbers.json, by figure and table."""
    return reference("paper_numbers.json")


def table1(target: str, drafter: str) -> dict[str, float]:
    """Return accepted length of each benchmark (Table 1: temperature 1, block size 7, bonus token included).

    `target` is one of TARGETS, `drafter` one of LABELS. Raise DSparkLiteError for another.
    """
    if target not in TARGETS or drafter not in LABELS:
        raise DSparkLiteError(
            f"Table 1 has no {drafter!r} on {target!r}; its targets are {', '.join(TARGETS)}, its "
            f"drafters {', '.join(LABELS)}"
        )
    return numbers()["table1"]["values"][target][LABELS[drafter]]


def domain_means(target: str, drafter: str) -> dict[str, float]:
    """Return accepted length of each domain, the mean of its three benchmarks of Table 1."""
    return _domain_means(table1(target, drafter))


def _domain_means(values: dict[str, float]) -> dict[str, float]:
    """Return means over the benchmarks of each domain."""
    domains = numbers()["table1"]["domains"]
    return {
        domain: float(np.mean([values[name] for name in names]))
        for domain, names in domains.items()
    }


def macro_gain(target: str, ours: str, theirs: str) -> float:
    """Return how much longer `ours` accepts than `theirs` in the mean over Table 1's benchmarks, as a fraction."""
    return float(
        np.mean(list(table1(target, ours).values()))
        / np.mean(list(table1(target, theirs).values()))
        - 1
    )


def conditional_acceptance(drafter: str, domain: str) -> list[float]:
    """Return conditional acceptance by position (Figure 2: Qwen3-4B, the mean over a domain's benchmarks)."""
    return numbers()["figure2"]["values"][domain][LABELS[drafter]]


def by_depth(drafter: str, layers: int) -> dict[str, float]:
    """Return accepted length of each domain at a drafter's depth (Figure 3: DSpark with 1, 2, 5 layers, DFlash with 5)."""
    return _domain_means(numbers()["figure3"]["values"][f"{LABELS[drafter]}_{layers}L"])


def by_draft_length(drafter: str, domain: str) -> dict[int, float]:
    """Return accepted length by draft length, the anchor counted (Figure 4, left); `drafter` is one of STUDY."""
    study = numbers()["figure4"]
    return dict(
        zip(study["x"]["values"], study["accepted_length"]["values"][domain][STUDY[drafter]])
    )


def overhead(drafter: str) -> dict[int, float]:
    """Return how much longer a full round takes than DFlash's, as a fraction, by draft length (Figure 4, right)."""
    study = numbers()["figure4"]
    return dict(
        zip(
            study["x"]["values"],
            np.divide(study["latency"]["derived_overhead_pct"][STUDY[drafter]], 100),
        )
    )


def claim(name: str):
    """Return the value of a claim of the text, in the paper's unit. Raise DSparkLiteError where there is none."""
    return _named(name)["value"]


def claim_values(name: str) -> list[float]:
    """Return the numbers of a claim of the text in one list, percents as fractions."""
    return (np.ravel(claim(name)) / (100 if _named(name).get("units") == "percent" else 1)).tolist()


def _named(name: str) -> dict:
    for claim in numbers()["text_claims"]:
        if claim["claim"] == name:
            return claim
    raise DSparkLiteError(
        f"the paper's numbers hold no claim {name!r}; see text_claims in paper_numbers.json"
    )


def discrepancy(words: str) -> str:
    """Return the place where the paper contradicts itself that these words of its description name."""
    (text,) = [text for text in numbers()["meta"]["discrepancies"] if words in text]
    return text


def threshold_sweep(domain: str) -> dict[str, np.ndarray]:
    """Return Figure 5, by "threshold": tokens "accepted" a step (bonus included), drafts "rejected" a step, and the acceptance
    "rate", accepted over both, as a fraction."""
    figure = numbers()["figure5"]
    points = figure["values"][domain]
    return {
        "threshold": np.array(figure["x"]["values"]),
        "accepted": np.array(points["accepted"]),
        "rejected": np.array(points["rejected"]),
        "rate": np.array(points["acceptance_rate_pct"]) / 100,
    }


def calibration(position: int) -> dict:
    """Return Figure 6 at draft position 1, 3, 5 or 7: "before" and "after" as {"predicted", "observed"} by bin (before also the
    "count" of each), "ece_before" and "ece_after" as fractions, and "auc", as printed."""
    position_values = numbers()["figure6"]["positions"][str(position)]
    columns = {"before": ("predicted", "observed", "count"), "after": ("predicted", "observed")}
    curves = {
        when: {name: np.array(position_values[when][name]) for name in names}
        for when, names in columns.items()
    }
    return {
        **curves,
        **{f"ece_{when}": position_values["ece_pct"][when] / 100 for when in curves},
        "auc": position_values["auc"],
    }
