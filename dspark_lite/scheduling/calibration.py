"""Measure and calibrate confidence: reliability, ECE, AUC and Brier of prefix survival,
sequential temperature scaling.

Everything is about survival, the product of a block's confidences up to a position (paper, section
3.2.1), against what became of the block: a prefix of k drafts survived where at least k were
accepted. Observations come from rollouts in which whole blocks were verified.
"""

import json
from dataclasses import asdict, dataclass, field
from numbers import Real
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import expit

from ..common.errors import RequestError
from ..common.files import load_fields, write_text
from ..common.fingerprint import fingerprint

BINS = 15
GRID = np.logspace(-1, 1, 41, dtype=np.float32)  # temperatures tried unless others are asked for
STALE = 0.01  # ECE that a fresh fit would gain before a stored one counts as stale


class Observations(NamedTuple):
    """Blocks that were verified whole: raw `logits` [N, g] of the confidence head, `accepted`
    drafts [N], and the prompt each came from, `prompts` [N] (for intervals over prompts)."""

    logits: np.ndarray
    accepted: np.ndarray
    prompts: np.ndarray


class Bin(NamedTuple):
    """Predictions of about the same size: their mean, the share that came true, how many they are."""

    predicted: float
    observed: float
    count: int


def check_confidence_head(drafter) -> None:
    """Raise RequestError for a drafter without a confidence head."""
    if getattr(drafter, "confidence_head", None) is None:
        raise RequestError(
            f"{drafter.name} has no confidence head, so there is nothing to calibrate; use a DSpark drafter"
        )


def survivals(logits, temperatures=None) -> np.ndarray:
    """Return the predicted survival [N, g] of prefixes from confidence logits [N, g], float64;
    temperatures [g], 1 where None."""
    logits = np.asarray(logits, dtype=np.float64)
    return expit(
        logits if temperatures is None else logits / np.asarray(temperatures, dtype=np.float64)
    ).cumprod(1)


def survived(accepted, gamma: int) -> np.ndarray:
    """Return whether each prefix of 1 to gamma drafts was accepted, [N, gamma], from accepted
    counts [N]."""
    return np.asarray(accepted)[:, None] > np.arange(gamma)


def reliability(predicted, observed, bins: int = BINS) -> list[Bin | None]:
    """Return the calibration curve: predictions [N] in bins of equal width on [0, 1]; None for an
    empty bin."""
    predicted = np.asarray(predicted, dtype=np.float64)
    observed = np.asarray(observed, dtype=np.float64)
    place = np.minimum((predicted * bins).astype(int), bins - 1)
    count, predicted_sum, observed_sum = (
        np.bincount(place, weights, bins) for weights in (None, predicted, observed)
    )
    return [
        Bin(float(p / n), float(o / n), int(n)) if n else None
        for p, o, n in zip(predicted_sum, observed_sum, count)
    ]


def ece(predicted, observed, bins: int = BINS) -> float:
    """Return expected calibration error: the mean gap between prediction and outcome, bins weighted
    by their counts."""
    filled = [bin for bin in reliability(predicted, observed, bins) if bin]
    return sum(abs(bin.predicted - bin.observed) * bin.count for bin in filled) / len(predicted)


def ece_floor(predicted, bins: int = BINS, *, draws: int = 100, seed: int = 0) -> float:
    """Return the mean ECE of a perfectly calibrated forecast on N samples (finite-sample bias), for
    predictions [N]."""
    rng, predicted = np.random.default_rng(seed), np.asarray(predicted, dtype=np.float64)
    return float(
        np.mean(
            [ece(predicted, rng.random(len(predicted)) < predicted, bins) for _ in range(draws)]
        )
    )


def auc(predicted, observed) -> float:
    """Return the chance that a survivor was given a higher prediction than one that fell (area
    under the ROC curve); nan where all survived or all fell."""
    from scipy.stats import mannwhitneyu  # slow to import, and needed here only

    predicted, observed = np.asarray(predicted), np.asarray(observed, dtype=bool)
    up, down = predicted[observed], predicted[~observed]
    return (
        float(mannwhitneyu(up, down, method="asymptotic").statistic / (len(up) * len(down)))
        if len(up) and len(down)
        else float("nan")
    )


def brier(predicted, observed) -> float:
    """Return the mean squared difference between prediction and outcome."""
    return float(np.mean((np.asarray(predicted) - np.asarray(observed)) ** 2))


def by_position(logits, accepted, temperatures=None, bins: int = BINS) -> dict[str, list[float]]:
    """Return {"ece", "auc", "brier"} of prefix survival at each position."""
    check_observations(logits, accepted)
    predicted = survivals(logits, temperatures).T
    observed = survived(accepted, len(predicted)).T
    measures = {"ece": lambda p, o: ece(p, o, bins), "auc": auc, "brier": brier}
    return {
        name: [measure(p, o) for p, o in zip(predicted, observed)]
        for name, measure in measures.items()
    }


@dataclass(frozen=True)
class STS:
    """Sequential temperature scaling: one temperature a position, the ECE of survival before and
    after the fit, and the fingerprint of the draft whose confidence head it is for (empty:
    unknown).

    Raise RequestError for temperatures that are not positive numbers.
    """

    temperatures: list[float]
    ece_before: list[float] = field(default_factory=list)
    ece_after: list[float] = field(default_factory=list)
    dataset: str = ""
    num_samples: int = 0
    draft: str = ""

    def __post_init__(self):
        if not (
            np.iterable(self.temperatures)
            and len(self.temperatures)
            and all(isinstance(t, Real) and 0 < t < np.inf for t in self.temperatures)
        ):
            raise RequestError(
                f"the temperatures are {self.temperatures}; a calibration needs a list of them, one positive number a position"
            )

    def check_draft(self, drafter) -> None:
        """Raise RequestError for a drafter of another gamma, for another draft, and for one without
        a confidence head."""
        check_confidence_head(drafter)
        if len(self.temperatures) != drafter.gamma:
            raise RequestError(
                f"the calibration is for blocks of {len(self.temperatures)} drafts, and {drafter.name} drafts "
                f"{drafter.gamma}; fit one on its own rollouts"
            )
        if self.draft and self.draft != (own := fingerprint(drafter)):
            raise RequestError(
                f"the calibration is for the draft with the fingerprint {self.draft}, and {drafter.name} has "
                f"{own}; fit one on its own rollouts (python -m dspark_lite calibrate)"
            )

    def attach(self, drafter) -> None:
        """Have the drafter divide its confidence logits by these temperatures. Raise RequestError
        as `check_draft` does."""
        self.check_draft(drafter)
        drafter.temperatures = torch.tensor(
            self.temperatures, dtype=torch.float32, device=drafter.lm_head.weight.device
        )

    def save(self, path: Path | str) -> None:
        """Write the file that SGLang reads with --speculative-dspark-confidence-sts-path; the field
        "draft" is ours."""
        write_text(Path(path), json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, path: Path | str) -> "STS":
        """Read SGLang's file. Raise CheckpointError for one that is missing, broken or lacks a
        field ("draft" may)."""
        return load_fields(
            cls, path, "temperatures", "dataset", "num_samples", "ece_before", "ece_after", draft=""
        )


def check_observations(logits, accepted) -> None:
    """Raise RequestError unless logits [N, g] are finite and accepted [N] are counts from 0 to g, N
    at least 1."""
    logits, accepted = np.asarray(logits), np.asarray(accepted)
    if logits.ndim != 2 or not logits.size or accepted.shape != logits.shape[:1]:
        raise RequestError(
            f"logits have shape {logits.shape} and accepted {accepted.shape}; they must be [N, gamma] and "
            "[N], with at least one block"
        )
    if not np.isfinite(logits).all():
        raise RequestError(
            "a confidence logit is not a finite number; drop that block, or find out why the drafter gave it"
        )
    if accepted.min() < 0 or accepted.max() > logits.shape[1]:
        raise RequestError(
            f"accepted counts go from {accepted.min()} to {accepted.max()}; in blocks of {logits.shape[1]} "
            f"they lie between 0 and {logits.shape[1]}"
        )


def fit_sts(
    logits, accepted, *, grid=None, bins: int = BINS, dataset: str = "", draft: str = ""
) -> STS:
    """Fit the temperatures by sequential temperature scaling (section 3.2.1). Position by position,
    with the earlier temperatures fixed, choose the one of `grid` whose predicted survival has the
    least ECE; of several, the earliest.

    logits [N, gamma] of the confidence head, accepted [N] counts of accepted drafts. Raise
    RequestError for input of other shapes, values that are not finite, counts beyond the block, and
    a grid that is empty or has a temperature of 0 or less.
    """
    check_observations(logits, accepted)
    grid = GRID if grid is None else np.asarray(grid)
    if not grid.size or not (grid > 0).all():
        raise RequestError(f"the grid is {grid.tolist()}; it needs temperatures above 0")
    logits = np.asarray(logits, dtype=np.float64)
    observed = survived(accepted, logits.shape[1])
    before = survivals(logits)
    alive, temperatures, after = np.ones(len(logits)), [], []
    for k in range(logits.shape[1]):
        tried = [alive * expit(logits[:, k] / float(temperature)) for temperature in grid]
        errors = [ece(predicted, observed[:, k], bins) for predicted in tried]
        best = int(np.argmin(errors))
        alive = tried[best]
        temperatures.append(float(grid[best]))
        after.append(errors[best])
    return STS(
        temperatures,
        [ece(before[:, k], observed[:, k], bins) for k in range(logits.shape[1])],
        after,
        dataset,
        len(logits),
        draft,
    )


class CalibrationCheck(NamedTuple):
    """How a stored calibration does on fresh rollouts: mean ECE over positions `raw`, `stored`, and
    of a `fresh` fit."""

    raw: float
    stored: float
    fresh: float

    @property
    def fits(self) -> bool:
        """Return whether a fresh fit would gain no more than one percentage point of ECE."""
        return self.stored <= self.fresh + STALE


def check_calibration(sts: STS, logits, accepted) -> CalibrationCheck:
    """Return whether a stored calibration still fits these observations. Raise RequestError for
    another gamma."""
    check_observations(logits, accepted)
    gamma = np.asarray(logits).shape[1]
    if len(sts.temperatures) != gamma:
        raise RequestError(
            f"the calibration is for blocks of {len(sts.temperatures)} drafts, and these have {gamma}; fit a "
            "new one"
        )
    fresh = fit_sts(logits, accepted)
    stored = by_position(logits, accepted, sts.temperatures)["ece"]
    return CalibrationCheck(
        float(np.mean(fresh.ece_before)), float(np.mean(stored)), float(np.mean(fresh.ece_after))
    )
