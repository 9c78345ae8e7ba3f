"""Results on the serving engine: assets/measurements/serving, written by tools/measure/serving.py; and the model of the engine with
the measured costs of its steps.

A row holds the totals of turns of a few steps; a measure is a ratio of such totals, and its interval a bootstrap over turns.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from ...common.errors import DSparkLiteError
from ...common.files import ROOT
from ...scheduling.policies import fixed
from ...serving.requests import STEP_PARTS
from .. import paper
from ..estimates import (
    PAPER,
    RESULTS,
    Estimate,
    Quantity,
    Sampled,
    bootstrap,
    paired,
    share_of_rows,
)
from ..measure.serving_load import decoding_seconds, policy_of, step_costs
from ..measure.simulator import EngineModel, ModelReport, Record, simulate
from ..measure.step_costs import StepCosts
from ..result_files import read
from . import confidence_results

MEASURED = ROOT / "assets" / "measurements" / "serving" / "engine.json"
# drafter, policy
WAYS = {
    "mtp": ("mtp", "all"),
    **{policy: ("dspark", policy) for policy in ("lagged", "algorithm1", "fixed 7")},
}
LIGHT, HEAVY = 1, 64  # requests under way at the ends of the measurement


def serving_run() -> dict:
    """Return the measurement: device, turns of a row, and rows by part."""
    return read(MEASURED, "make serving")


def rows(part: str, **wanted) -> list[dict]:
    """Return the rows of a part whose fields have the wanted values."""
    return [
        row
        for row in serving_run()[part]
        if all(row[name] == value for name, value in wanted.items())
    ]


def row(part: str, **wanted) -> dict:
    """Return the one row of a part that has the wanted values."""
    matching = rows(part, **wanted)
    if len(matching) != 1:
        raise DSparkLiteError(
            f"the measurement has {len(matching)} rows of {part} with {wanted}, not one"
        )
    return matching[0]


SERVING_MEASURES = {  # of a row: two totals whose ratio it is
    # Tokens a second: of rounds alone, and of each request.
    "throughput": lambda row: (row["committed"], decoding_seconds(row)),
    "per_user": lambda row: (row["committed"], decoding_seconds(row) * row["concurrency"]),
    # Of a request and step: tokens verified, anchor included (Figure 8); tokens committed.
    "budget": lambda row: (row["verified"], row["requests"]),
    "accepted_length": lambda row: (row["committed"], row["requests"]),
    # The share of verified tokens that was rejected.
    "waste": lambda row: (np.subtract(row["proposed"], row["accepted"]), row["verified"]),
    # Of a step: seconds without prefill, and of each part.
    "step_seconds": lambda row: (decoding_seconds(row), row["steps"]),
    **{
        f"{part}_seconds": lambda row, part=part: (row[f"{part}_seconds"], row["steps"])
        for part in STEP_PARTS
    },
}


def totals_by_turn(name: str, row: dict) -> np.ndarray:
    """Return the two totals of a measure of a row, by turn: [turns, 2]."""
    return np.stack(SERVING_MEASURES[name](row), 1)


def value(name: str, row: dict) -> float:
    """Return a measure of a row without its interval: the sum over turns of one total over that of the other."""
    return float(share_of_rows(totals_by_turn(name, row)))


def with_interval(name: str, row: dict) -> Estimate:
    """Return a measure of a row with its interval over turns."""
    return bootstrap(lambda groups: share_of_rows(groups[0]), [totals_by_turn(name, row)])


def gain(name: str, ours: dict, theirs: dict) -> Estimate:
    """Return a measure of one row over that of another of the same load; a resample takes the same turns of both."""
    turns = ([totals_by_turn(name, row)] for row in (ours, theirs))
    return paired(lambda ours, theirs: share_of_rows(ours[0]) / share_of_rows(theirs[0]), *turns)


@dataclass(frozen=True)
class Served(Sampled):
    """One of SERVING_MEASURES of a drafter under a policy at a load; Figure 8 has the lagged budget at LIGHT and HEAVY load."""

    measure: str
    drafter: str
    policy: str
    load: int

    def rows(self, source: str) -> dict:
        """Return the two totals of each turn, [turns, 2]; turns at the same load are drawn together."""
        if source == PAPER:
            fits = [
                model["verification_budget"]["fit"]["DSpark-5"]
                for model in paper.numbers()["figure8"]["models"].values()
            ]
            point = {LIGHT: 0, HEAVY: -1}[self.load]
            return {self.load: np.array([[np.mean([fit[point][1] for fit in fits]), 1.0]])}
        measured = row("policies", drafter=self.drafter, policy=self.policy, concurrency=self.load)
        return {self.load: totals_by_turn(self.measure, measured)}

    def values(self, drawn: dict) -> np.ndarray:
        """Return the measure [R]."""
        (totals,) = drawn[self]
        return share_of_rows(totals)


def engine_costs(drafter: str) -> StepCosts:
    """Return the mean seconds of a drafter's steps without prefill, by requests and verified tokens."""
    return step_costs(rows("costs", drafter=drafter), np.mean)


def prefill_costs(drafter: str) -> tuple[float, float]:
    """Return seconds of a prefill pass, and of each prompt in it: least squares over the turns."""
    turns = np.concatenate(
        [
            np.stack([row["prefills"], row["admitted"], row["prefill_seconds"]], 1)
            for row in rows("costs", drafter=drafter)
        ]
    )
    fitted, *_ = np.linalg.lstsq(turns[:, :2], turns[:, 2], rcond=None)
    return float(fitted[0]), float(fitted[1])


def acceptance_rate(drafter: str) -> float:
    """Return the share of a drafter's verified tokens that were accepted in the measurement of its costs."""
    matching = rows("costs", drafter=drafter)
    accepted, proposed = (
        sum(sum(row[part]) for row in matching) for part in ("accepted", "proposed")
    )
    return accepted / proposed


@cache
def record() -> Record:
    """Return the stored blocks of lesson 09's calibration, all domains, calibrated."""
    return Record.of(
        list(confidence_results.observations().values()), confidence_results.stored_sts()
    )


def modelled(
    drafter: str, name: str, concurrency: int, requests: int | None = None
) -> list[ModelReport]:
    """Return steps of the model of a row of "policies", all slots taken, from `requests` requests."""
    rng, costs, answers = np.random.default_rng(0), engine_costs(drafter), record()
    if drafter == "mtp":
        answers = answers.drafting_one(acceptance_rate("mtp"), rng)
    chosen = fixed(0) if drafter == "plain" else policy_of(name, costs)
    model = EngineModel(answers, costs, chosen, slots=concurrency, prefill=prefill_costs(drafter))
    return full_steps(model, concurrency, requests or 200 + 10 * concurrency, rng)


def full_steps(
    model: EngineModel, concurrency: int, requests: int, rng: np.random.Generator
) -> list[ModelReport]:
    """Return steps of a closed loop of the model with all slots taken, until `requests` of them are answered."""
    return [
        step for step in simulate(model, np.zeros(requests), rng) if step.requests == concurrency
    ]


def frontier(drafter: str, policy: str) -> np.ndarray:
    """Return (tokens a second and user, tokens a second in all) at each concurrency, [n, 2] (Figure 7)."""
    return np.array(
        [
            [value(name, row) for name in ("per_user", "throughput")]
            for row in by_load(drafter, policy).values()
        ]
    )


def by_load(drafter: str, policy: str) -> dict[int, dict]:
    """Return the rows of a drafter under a policy by concurrency, rising."""
    matching = rows("policies", drafter=drafter, policy=policy)
    return {row["concurrency"]: row for row in sorted(matching, key=lambda row: row["concurrency"])}


def budgets_by_load() -> dict[str, dict[int, Estimate]]:
    """Return tokens verified per request, by way of serving and concurrency (Figure 8)."""
    return {
        name: {load: with_interval("budget", row) for load, row in by_load(*way).items()}
        for name, way in WAYS.items()
    }


def throughput_over_mtp() -> dict[str, dict[int, Estimate]]:
    """Return DSpark's throughput over MTP-1's at the same concurrency, by policy (Figure 8)."""
    base = by_load(*WAYS["mtp"])
    return {
        name: {load: gain("throughput", row, base[load]) for load, row in by_load(*way).items()}
        for name, way in WAYS.items()
        if name != "mtp"
    }


def frontiers() -> dict[str, np.ndarray]:
    """Return the frontier [n, 2] of plain decoding and of each way of serving (Figure 7)."""
    return {name: frontier(*way) for name, way in (("plain", ("plain", "all")), *WAYS.items())}


def speed_gain(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return how much faster each user is on the frontier `ours` [n, 2] at the throughput of the point `theirs` [2], as a
    fraction; nan where our frontier does not reach that throughput."""
    return _between(ours[:, 1], ours[:, 0], theirs[1]) / theirs[0] - 1


def throughput_gain(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return how much higher throughput is on the frontier `ours` [n, 2] at the speed per user of the point `theirs` [2], as a
    fraction; nan where our frontier does not reach that speed."""
    return _between(ours[:, 0], ours[:, 1], theirs[0]) / theirs[1] - 1


def _between(x: np.ndarray, y: np.ndarray, at: float) -> float:
    order = x.argsort()
    return float(np.interp(at, x[order], y[order], left=np.nan, right=np.nan))


@dataclass(frozen=True)
class FrontierGain(Quantity):
    """`gain` (speed_gain or throughput_gain) of DSpark's frontier under `policy` over MTP-1's point at `concurrency`."""

    gain: Callable[[np.ndarray, np.ndarray], float]
    policy: str
    concurrency: int

    def estimate(self, source: str = RESULTS) -> Estimate:
        """Return the gain with its interval over turns; a resample takes, at each load, the same turns of both drafters.

        Raise DSparkLiteError where DSpark's frontier does not reach that point.
        """
        loads = list(by_load("mtp", "all"))
        turns = (
            [
                totals_by_turn(
                    "throughput", row("policies", drafter=drafter, policy=policy, concurrency=load)
                )
                for load in loads
            ]
            for drafter, policy in (("dspark", self.policy), ("mtp", "all"))
        )

        def gains(*both):
            # [R, loads]
            rates = (np.stack(list(map(share_of_rows, groups)), -1) for groups in both)
            frontiers = (np.stack([total / np.array(loads), total], -1) for total in rates)
            point = loads.index(self.concurrency)
            return np.array([self.gain(ours, theirs[point]) for ours, theirs in zip(*frontiers)])

        difference = paired(gains, *turns)
        if np.isnan(difference.value):
            raise DSparkLiteError(
                f"DSpark's frontier under {self.policy} does not reach MTP-1's point at "
                f"{self.concurrency} requests; measure more loads"
            )
        return difference
