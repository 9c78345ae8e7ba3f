"""A service in change: traffic that drifts, a head that turns out wrong, and the cost of either, from replays of stored blocks."""

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...scheduling.calibration import STS, Observations, by_position, fit_sts
from ...scheduling.policies import algorithm1, fixed
from ..estimates import Estimate
from ..extensions.online_sts import OnlineSTS
from ..measure.simulator import EngineModel
from . import serving_results

EVERY = 200  # blocks between two points of a series, and between two checks
WRONG_HEADS = {  # changes of calibrated logits: (times, plus)
    "as calibrated": (1.0, 0.0),
    "4 times as sure": (4.0, 0.0),
    "2 nats too sure": (1.0, 2.0),
    "half as sure": (0.5, 0.0),
    "1 nat too doubtful": (1.0, -1.0),
    "2 nats too doubtful": (1.0, -2.0),
    "3 nats too doubtful": (1.0, -3.0),
}


class Phase(NamedTuple):
    """`blocks` blocks of one domain's traffic, with the stored logits times `times`."""

    domain: str
    times: float
    blocks: int


class Point(NamedTuple):
    """The last EVERY blocks up to block `at`, of a `phase`: tokens per round, and the mean ECE on
    held-out blocks of the phase's traffic of the `stored` calibration, of the `online` one, and of a
    `fresh` fit to that traffic."""

    at: int
    phase: int
    accepted_length: float
    stored: float
    online: float
    fresh: float


@dataclass
class Drift:
    """The points of a series, and the blocks at which the temperatures changed."""

    points: list[Point] = field(default_factory=list)
    refits: list[int] = field(default_factory=list)

    def after(self, phase: int, blocks: int) -> tuple[float, float, float]:
        """Return the ECE `stored`, `online` and `fresh`, `blocks` blocks after a phase began."""
        begin = next(point.at for point in self.points if point.phase == phase) - EVERY
        (point,) = [point for point in self.points if point.at == begin + blocks]
        return point.stored, point.online, point.fresh


def mean_ece(logits, accepted, temperatures) -> float:
    """Return ECE of survival, the mean over positions."""
    return float(np.mean(by_position(logits, accepted, temperatures)["ece"]))


def halves(found: Observations) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return logits and accepted drafts of every second prompt, and of the others."""
    second = np.isin(found.prompts, np.unique(found.prompts)[1::2])
    return [(found.logits[half], found.accepted[half]) for half in (~second, second)]


def drift(
    observations: dict[str, Observations],
    sts: STS,
    phases: list[Phase],
    *,
    window: int = 1000,
    seed: int = 0,
) -> Drift:
    """Play traffic past a calibration: draw blocks from one half of a domain's prompts, measure ECE on the other half."""
    rng = np.random.default_rng(seed)
    online = OnlineSTS(sts, window=window, every=EVERY)
    drift_series = Drift()
    seen = 0
    for number, (domain, times, blocks) in enumerate(phases):
        (logits, accepted), (judged, outcome) = halves(observations[domain])
        fresh = fit_sts(times * logits, accepted)
        still, best = (mean_ece(times * judged, outcome, fit.temperatures) for fit in (sts, fresh))
        for _ in range(blocks // EVERY):
            rows, seen = rng.integers(len(accepted), size=EVERY), seen + EVERY
            if online.observe(times * logits[rows], accepted[rows]):
                drift_series.refits.append(seen)
            now = mean_ece(times * judged, outcome, online.sts.temperatures)
            length = 1 + accepted[rows].mean()
            drift_series.points.append(Point(seen, number, length, still, now, best))
    return drift_series


def throughput_by_head(
    load: int, paid: str = "measured", *, seeds: int = 4, requests: int = 400
) -> dict[str, Estimate]:
    """Return the throughput of Algorithm 1 over that of whole blocks for each of WRONG_HEADS, in the model of the serving engine.

    `load` requests are under way. A step takes its `paid` time: as "measured", or by the convex curve "fitted" to that, which
    Algorithm 1 decides by either way. An estimate is the mean over seeds, of the same traffic for both, with the lowest and the
    highest of them.
    """
    record, costs = serving_results.record(), serving_results.engine_costs("dspark")
    steps_take = {"measured": costs, "fitted": costs.convex_fit()}[paid]

    def speed(policy, blocks, seed) -> float:
        model = EngineModel(blocks, steps_take, policy, slots=load)
        steps = serving_results.full_steps(model, load, requests, np.random.default_rng(seed))
        return sum(step.committed for step in steps) / sum(step.seconds["round"] for step in steps)

    whole = [speed(fixed(record.gamma), record, seed) for seed in range(seeds)]
    by_head = {}
    for name, (times, plus) in WRONG_HEADS.items():
        wrong = replace(record, logits=record.logits * times + plus)
        ratios = [
            speed(algorithm1(costs.convex_fit()), wrong, seed) / whole[seed]
            for seed in range(seeds)
        ]
        by_head[name] = Estimate(float(np.mean(ratios)), min(ratios), max(ratios))
    return by_head
