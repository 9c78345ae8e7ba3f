"""Results on the tiny profile's confidences: assets/measurements/confidence, written by tools/measure/confidence.py."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...common.files import ROOT
from ...scheduling.calibration import STS, Observations, auc, ece, survivals, survived
from ...scheduling.cost_table import CostTable
from .. import paper
from ..estimates import PAPER, RESULTS, Estimate, Quantity, interval_of
from ..result_files import read

CONFIDENCE_FOLDER = ROOT / "assets" / "measurements" / "confidence"
STS_FILE = CONFIDENCE_FOLDER / "tiny-dspark-sts.json"
COST_TABLE = CONFIDENCE_FOLDER / "tiny-target-sps.json"
CALIBRATION = CONFIDENCE_FOLDER / "calibration.json"
SWEEP = CONFIDENCE_FOLDER / "threshold_sweep.json"
STEPS = CONFIDENCE_FOLDER / "tiny-target-steps.json"
WRITTEN_BY = "make confidence"
# of a position
MEASURES = (
    "ece",
    "ece calibrated",
    "ece gain",
    "auc",
    "auc above chance",
    "excess",
)
SUMMARIES = (min, max, np.mean)  # over positions


def excess(predicted: np.ndarray, observed: np.ndarray) -> float:
    """Return how much more survival a confidence promises than there is, on average: above zero it is over-confident."""
    return float(np.mean(predicted) - np.mean(observed))


def forecasts(raw: np.ndarray, calibrated: np.ndarray, observed: np.ndarray) -> dict[str, float]:
    """Return the measures of a position, from survival [N] as predicted raw and calibrated, and as observed."""
    before, after, area = ece(raw, observed), ece(calibrated, observed), auc(raw, observed)
    return _measures(before, after, area, excess(raw, observed))


def paper_forecasts(position: int) -> dict[str, float]:
    """Return the measures of a position in Figure 6."""
    published = paper.calibration(position)
    predicted, observed, count = (
        published["before"][name] for name in ("predicted", "observed", "count")
    )
    promised = float(np.average(predicted - observed, weights=count))
    return _measures(published["ece_before"], published["ece_after"], published["auc"], promised)


def _measures(before: float, after: float, area: float, promised: float) -> dict[str, float]:
    values = (before, after, before - after, area, area - 0.5, promised)
    return dict(zip(MEASURES, values, strict=True))


def calibration_run() -> dict:
    """Return the calibration report: device, rows by domain and position, mean ECE, observations (`observations` reads them)."""
    return read(CALIBRATION, WRITTEN_BY)


def observations() -> dict[str, Observations]:
    """Return the stored blocks of each domain, from prompts that the calibration was not fitted on."""
    return read_observations(calibration_run())


def read_observations(report: dict) -> dict[str, Observations]:
    """Return the observations of a calibration report."""
    return {
        domain: Observations(
            *(np.array(fields[name]) for name in ("logits", "accepted", "prompts"))
        )
        for domain, fields in report["observations"].items()
    }


def threshold_sweep() -> dict:
    """Return the stored threshold sweep: device, rows by domain and threshold."""
    return read(SWEEP, WRITTEN_BY)


def stored_sts() -> STS:
    """Return the calibration of the tiny DSpark."""
    return STS.load(STS_FILE)


def stored_cost_table() -> CostTable:
    """Return SPS(B) of the tiny target on the device that `steps` names."""
    return CostTable.load(COST_TABLE)


def steps() -> dict:
    """Return the cost table's single measurements: device, context, milliseconds of every repeat by batch size."""
    return read(STEPS, WRITTEN_BY)


@dataclass(frozen=True)
class Rate(Quantity):
    """The share of verified tokens that were accepted at a confidence threshold, bonus included (Figure 5).

    The interval is the stored one.
    """

    domain: str
    threshold: float

    def estimate(self, source: str = RESULTS) -> Estimate:
        """Return the rate with its interval."""
        if source == PAPER:
            sweep = paper.threshold_sweep(self.domain)
            return Estimate.exactly(sweep["rate"][list(sweep["threshold"]).index(self.threshold)])
        row = next(
            row
            for row in threshold_sweep()["rows"]
            if (row["domain"], row["threshold"]) == (self.domain, self.threshold)
        )
        return Estimate(row["rate"], row["low"], row["high"])


@dataclass(frozen=True)
class Rise(Quantity):
    """How much a confidence threshold of 0.9 raises a domain's acceptance rate.

    Both ends were measured apart, so the interval is the widest that their intervals leave.
    """

    domain: str

    def estimate(self, source: str = RESULTS) -> Estimate:
        """Return the rise with its interval."""
        low, high = (Rate(self.domain, threshold).estimate(source) for threshold in (0, 0.9))
        return Estimate(high.value - low.value, high.low - low.high, high.high - low.low)


@dataclass(frozen=True)
class Forecast(Quantity):
    """One of SUMMARIES over the positions of one of MEASURES; Figure 6 has four positions."""

    measure: str
    summary: Callable

    def estimate(self, source: str = RESULTS) -> Estimate:
        """Return the summary with its interval over prompts."""
        if source == PAPER:
            positions = map(paper_forecasts, (1, 3, 5, 7))
            return Estimate.exactly(self.summary([numbers[self.measure] for numbers in positions]))
        return all_summaries()[self.measure, self.summary]


@cache
def all_summaries() -> dict[tuple[str, Callable], Estimate]:
    """Return each of SUMMARIES of each measure, from the same resamples."""
    fitted = stored_sts().temperatures
    keys = [(measure, summary) for measure in MEASURES for summary in SUMMARIES]

    def summaries(logits, accepted):
        raw, calibrated = (survivals(logits, temperatures).T for temperatures in (None, fitted))
        observed = survived(accepted, len(raw)).T
        positions = [forecasts(*position) for position in zip(raw, calibrated, observed)]
        return [summary([values[measure] for values in positions]) for measure, summary in keys]

    return dict(zip(keys, _over_prompts(summaries)))


def _over_prompts(statistics) -> list[Estimate]:
    """Return statistics of (logits, accepted) of all stored blocks; a resample draws prompts and takes all their blocks.

    ECE is biased upward under resampling; we recentre the bootstrap interval on the point estimate (symmetric,
    approximate).
    """
    prompts = [
        (observed.logits[of_prompt], observed.accepted[of_prompt])
        for observed in observations().values()
        for of_prompt in (observed.prompts == prompt for prompt in np.unique(observed.prompts))
    ]

    def of_chosen(groups):
        return np.array(
            [
                statistics(*map(np.concatenate, zip(*(prompts[index] for index in chosen))))
                for chosen in groups[0]
            ]
        )

    everyone = np.arange(len(prompts))
    values = of_chosen([everyone[None]])[0]
    low, high = interval_of(of_chosen, [everyone], resamples=100)
    return [
        Estimate(float(value), float(value - half), float(value + half))
        for value, half in zip(values, (high - low) / 2)
    ]
