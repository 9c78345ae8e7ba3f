"""What was measured of the tiny profile's confidences: assets/measurements/confidence, written by scripts/confidence.py."""

import json

import numpy as np

from .calibration import STS, Observations
from .checkpoints import ROOT
from .cost_table import CostTable

CONFIDENCE = ROOT / "assets" / "measurements" / "confidence"
STS_FILE, COST_TABLE = CONFIDENCE / "tiny-dspark-sts.json", CONFIDENCE / "tiny-target-sps.json"
STEPS = CONFIDENCE / "tiny-target-steps.json"


def report() -> dict:
    """The calibration report: device, rows by domain and position, mean ECE, observations (`observations` reads them)."""
    return json.loads((CONFIDENCE / "calibration.json").read_text())


def observations() -> dict[str, Observations]:
    """Recorded blocks of each domain, from prompts that the calibration was not fitted on."""
    return {domain: Observations(*(np.array(found[name]) for name in ("logits", "accepted", "prompts")))
            for domain, found in report()["observations"].items()}


def threshold_sweep() -> dict:
    """The recorded threshold sweep: device, rows by domain and threshold."""
    return json.loads((CONFIDENCE / "threshold_sweep.json").read_text())


def stored_sts() -> STS:
    """The calibration of the tiny DSpark."""
    return STS.load(STS_FILE)


def stored_cost_table() -> CostTable:
    """SPS(B) of the tiny target on the device that `steps` names."""
    return CostTable.load(COST_TABLE)


def steps() -> dict:
    """The cost table's single measurements: device, context, milliseconds of every repeat by batch size."""
    return json.loads(STEPS.read_text())
