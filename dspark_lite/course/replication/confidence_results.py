"""What was measured of the tiny profile's confidences: assets/measurements/confidence, written by tools/measure/confidence.py."""

from functools import cache

import numpy as np

from dspark_lite.course.estimates import Estimate, interval_of
from dspark_lite.common.files import ROOT
from dspark_lite.course.result_files import read
from dspark_lite.scheduling.calibration import STS, Observations, auc, ece, survivals, survived
from dspark_lite.scheduling.cost_table import CostTable

CONFIDENCE_FOLDER = ROOT / "assets" / "measurements" / "confidence"
STS_FILE, COST_TABLE = (
    CONFIDENCE_FOLDER / "tiny-dspark-sts.json",
    CONFIDENCE_FOLDER / "tiny-target-sps.json",
)
CALIBRATION, SWEEP = (
    CONFIDENCE_FOLDER / "calibration.json",
    CONFIDENCE_FOLDER / "threshold_sweep.json",
)
STEPS = CONFIDENCE_FOLDER / "tiny-target-steps.json"
WRITTEN_BY = "make confidence"


def excess(predicted: np.ndarray, observed: np.ndarray) -> float:
    """How much more survival a confidence promises than there is, on average: above zero it is over-confident."""
    return float(np.mean(predicted) - np.mean(observed))


FORECAST_MEASURES = {"ece": ece, "auc": auc, "excess": excess}
SUMMARIES = (min, max, np.mean)  # over positions


def calibration_run() -> dict:
    """The calibration report: device, rows by domain and position, mean ECE, observations (`observations` reads them)."""
    return read(CALIBRATION, WRITTEN_BY)


def observations() -> dict[str, Observations]:
    """Recorded blocks of each domain, from prompts that the calibration was not fitted on."""
    return read_observations(calibration_run())


def read_observations(report: dict) -> dict[str, Observations]:
    """The observations that a calibration report keeps."""
    return {
        domain: Observations(*(np.array(found[name]) for name in ("logits", "accepted", "prompts")))
        for domain, found in report["observations"].items()
    }


def threshold_sweep() -> dict:
    """The recorded threshold sweep: device, rows by domain and threshold."""
    return read(SWEEP, WRITTEN_BY)


def stored_sts() -> STS:
    """The calibration of the tiny DSpark."""
    return STS.load(STS_FILE)


def stored_cost_table() -> CostTable:
    """SPS(B) of the tiny target on the device that `steps` names."""
    return CostTable.load(COST_TABLE)


def steps() -> dict:
    """The cost table's single measurements: device, context, milliseconds of every repeat by batch size."""
    return read(STEPS, WRITTEN_BY)


def rate(domain: str, least: float) -> Estimate:
    """The share of verified tokens that were accepted at a threshold, bonus included (Figure 5)."""
    row = next(
        row
        for row in threshold_sweep()["rows"]
        if (row["domain"], row["threshold"]) == (domain, least)
    )
    return Estimate(row["rate"], row["low"], row["high"])


def over_positions(measure: str, summary, calibrated: bool = False) -> Estimate:
    """One of SUMMARIES over the positions of one of FORECAST_MEASURES, with its interval over prompts."""
    return all_summaries(measure, calibrated)[summary]


@cache
def all_summaries(measure: str, calibrated: bool) -> dict:
    """Each of SUMMARIES, from the same resamples."""
    temperatures = stored_sts().temperatures if calibrated else None

    def summaries(*blocks):
        values = _by_position(measure, temperatures, *blocks)
        return [summary(values) for summary in SUMMARIES]

    return dict(zip(SUMMARIES, _over_prompts(summaries)))


@cache
def gain_in_ece() -> Estimate:
    """How much lower the mean ECE is after the calibration, on prompts that it was not fitted on."""
    fitted = stored_sts().temperatures
    (gain,) = _over_prompts(
        lambda *blocks: [
            np.mean(_by_position("ece", None, *blocks))
            - np.mean(_by_position("ece", fitted, *blocks))
        ]
    )
    return gain


def _by_position(measure: str, temperatures, logits, accepted) -> list[float]:
    predicted = survivals(logits, temperatures).T
    return [
        FORECAST_MEASURES[measure](p, o)
        for p, o in zip(predicted, survived(accepted, len(predicted)).T)
    ]


def _over_prompts(statistics) -> list[Estimate]:
    """Statistics of (logits, accepted) of all recorded blocks; a resample draws prompts and takes all their blocks.

    ECE is biased upward under resampling; we recentre the bootstrap interval on the point estimate (symmetric,
    approximate).
    """
    prompts = [
        (found.logits[own], found.accepted[own])
        for found in observations().values()
        for own in (found.prompts == prompt for prompt in np.unique(found.prompts))
    ]

    def of_chosen(groups):
        return np.array(
            [
                statistics(*map(np.concatenate, zip(*(prompts[index] for index in chosen))))
                for chosen in groups[0]
            ]
        )

    everyone = np.arange(len(prompts))
    values, (low, high) = (
        of_chosen([everyone[None]])[0],
        interval_of(of_chosen, [everyone], resamples=100),
    )
    return [
        Estimate(float(value), float(value - half), float(value + half))
        for value, half in zip(values, (high - low) / 2)
    ]
