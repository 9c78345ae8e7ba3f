"""What was measured of the serving engine: assets/measurements/serving, written by scripts/serving.py; and whether the
model of the engine, given what its steps cost, foretells what its policies do.

A row holds the totals of turns of a few steps (measure/serving_load.py); a measure is a ratio of such totals, and its interval
a bootstrap over turns.
"""

from functools import cache

import numpy as np

from ..common.errors import DSparkLiteError
from ..common.estimates import Estimate, bootstrap
from ..common.files import ROOT
from ..common.recorded import read
from ..measure.serving_load import SCHEDULED, decoding_seconds, policy_of, step_costs
from ..scheduling.policies import fixed
from ..scheduling.step_costs import StepCosts
from ..serving.engine import STEP_PARTS, StepReport
from ..serving.simulator import EngineModel, Record, simulate
from . import recorded_confidence

MEASURED = ROOT / "assets" / "measurements" / "serving" / "engine.json"
VALIDATED = (1, 4, 16, 32, 64)  # concurrencies at which the model is compared with the engine


def serving_run() -> dict:
    """The measurement: device, turns of a row, and rows by part (serving_load.measure_load)."""
    return read(MEASURED, "make serving")


def rows(part: str, **wanted) -> list[dict]:
    """The rows of a part whose fields have the wanted values."""
    return [row for row in serving_run()[part] if all(row[name] == value for name, value in wanted.items())]


def row(part: str, **wanted) -> dict:
    """The one row of a part that has the wanted values."""
    found = rows(part, **wanted)
    if len(found) != 1:
        raise DSparkLiteError(f"the measurement has {len(found)} rows of {part} with {wanted}, not one")
    return found[0]


# Measures of a row: each is the ratio of two totals.


SERVING_MEASURES = {
    # Tokens a second: of rounds alone; first tokens and prompts' seconds counted in; of rounds, of each request.
    "throughput": lambda row: (row["committed"], decoding_seconds(row)),
    "whole_throughput": lambda row: (np.add(row["committed"], row["admitted"]),
                                     decoding_seconds(row) + row["prefill_seconds"]),
    "per_user": lambda row: (row["committed"], decoding_seconds(row) * row["concurrency"]),
    # Of a request and step: tokens verified, anchor included (Figure 8); tokens committed.
    "budget": lambda row: (row["verified"], row["requests"]),
    "accepted_length": lambda row: (row["committed"], row["requests"]),
    # The share of verified tokens that was rejected.
    "waste": lambda row: (np.subtract(row["proposed"], row["accepted"]), row["verified"]),
    # Of a step: seconds without prefill, and of each part.
    "step_seconds": lambda row: (decoding_seconds(row), row["steps"]),
    **{f"{part}_seconds": lambda row, part=part: (row[f"{part}_seconds"], row["steps"]) for part in STEP_PARTS},
}


def value(name: str, row: dict) -> float:
    """A measure of a row without its interval."""
    over, under = SERVING_MEASURES[name](row)
    return float(np.sum(over) / np.sum(under))


def with_interval(name: str, row: dict) -> Estimate:
    """A measure of a row and its interval over turns."""
    turns = np.stack(SERVING_MEASURES[name](row), 1)
    return bootstrap(lambda groups: groups[0][:, 0].sum() / groups[0][:, 1].sum(), [turns])


def gain(name: str, ours: dict, theirs: dict) -> Estimate:
    """A measure of one row over that of another of the same load; a resample takes the same turns of both."""
    turns = np.stack([*SERVING_MEASURES[name](ours), *SERVING_MEASURES[name](theirs)], 1)

    def ratio(groups):
        over, under, other_over, other_under = groups[0].sum(0)
        return over / under / (other_over / other_under)

    return bootstrap(ratio, [turns])


def best_fixed(concurrency: int) -> dict:
    """The row of the fixed length with the highest throughput at a load."""
    lengths = [row for row in rows("policies", concurrency=concurrency) if row["policy"].startswith("fixed")]
    return max(lengths, key=lambda row: value("throughput", row))


# What the model needs.


def engine_costs(drafter: str) -> StepCosts:
    """Seconds of a drafter's steps on average, prompts left out, by requests and verified tokens."""
    return step_costs(rows("costs", drafter=drafter), np.mean)


def prefill_costs(drafter: str) -> tuple[float, float]:
    """Seconds of a prefill pass, and of each prompt in it: least squares over the turns."""
    turns = np.concatenate([np.stack([row["prefills"], row["admitted"], row["prefill_seconds"]], 1)
                            for row in rows("costs", drafter=drafter)])
    fitted, *_ = np.linalg.lstsq(turns[:, :2], turns[:, 2], rcond=None)
    return float(fitted[0]), float(fitted[1])


def acceptance_rate(drafter: str) -> float:
    """The share of a drafter's verified tokens that was accepted while its costs were measured."""
    found = rows("costs", drafter=drafter)
    accepted, proposed = (sum(sum(row[part]) for row in found) for part in ("accepted", "proposed"))
    return accepted / proposed


@cache
def record() -> Record:
    """The recorded blocks of lesson 09, all domains, calibrated."""
    return Record.of(list(recorded_confidence.observations().values()), recorded_confidence.stored_sts())


def modelled(drafter: str, name: str, concurrency: int, requests: int | None = None,
             seed: int = 0) -> list[StepReport]:
    """Steps of the model of a row of "policies", all slots taken, from so many requests."""
    rng, costs, answers = np.random.default_rng(seed), engine_costs(drafter), record()
    if drafter == "mtp":
        answers = answers.drafting_one(acceptance_rate("mtp"), rng)
    chosen = fixed(0) if drafter == "plain" else policy_of(name, costs)
    model = EngineModel(answers, costs, chosen, slots=concurrency, prefill=prefill_costs(drafter))
    steps = simulate(model, np.zeros(requests or 200 + 10 * concurrency), rng)
    return [step for step in steps if step.requests == concurrency]


def validation() -> list[dict]:
    """Throughput of the engine and of its model, prompts left out and counted in, by load, drafter and policy."""
    found = []
    for row in serving_run()["policies"]:
        if row["concurrency"] not in VALIDATED or row["policy"] not in ("all", "fixed 7", *SCHEDULED):
            continue
        steps = modelled(row["drafter"], row["policy"], row["concurrency"])
        rounds, prefills = (sum(step.seconds[part] for step in steps) for part in ("round", "prefill"))
        committed, admitted = (sum(getattr(step, name) for step in steps) for name in ("committed", "admitted"))
        found.append({**{name: row[name] for name in ("concurrency", "drafter", "policy")},
                      "throughput": with_interval("throughput", row), "modelled": committed / rounds,
                      "whole_throughput": with_interval("whole_throughput", row),
                      "whole_modelled": (committed + admitted) / (rounds + prefills)})
    return found


# The frontier.


def frontier(drafter: str, policy: str) -> np.ndarray:
    """(tokens a second and user, tokens a second in all) at each concurrency, [n, 2] (Figure 7)."""
    found = sorted(rows("policies", drafter=drafter, policy=policy), key=lambda row: row["concurrency"])
    return np.array([[value(name, row) for name in ("per_user", "throughput")] for row in found])


def gain_at_matched_throughput(policy: str) -> list[tuple[float, float]]:
    """(MTP-1's throughput, how much faster each user is under `policy` with DSpark at that throughput, a fraction),
    where both reach it; between measured loads the frontier is straight."""
    ours, theirs = frontier("dspark", policy), frontier("mtp", "all")
    gains = np.array([speed_gain(ours, point) for point in theirs])
    within = ~np.isnan(gains)
    return list(zip(theirs[within, 1].tolist(), gains[within].tolist()))


def speed_gain(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How much faster each user is on the frontier `ours` [n, 2] at the throughput of the point `theirs` [2], as a
    fraction; nan where our frontier does not reach that throughput."""
    return _between(ours[:, 1], ours[:, 0], theirs[1]) / theirs[0] - 1


def throughput_gain(ours: np.ndarray, theirs: np.ndarray) -> float:
    """How much higher throughput is on the frontier `ours` [n, 2] at the speed per user of the point `theirs` [2], as a
    fraction; nan where our frontier does not reach that speed."""
    return _between(ours[:, 0], ours[:, 1], theirs[0]) / theirs[1] - 1


def _between(x: np.ndarray, y: np.ndarray, at: float) -> float:
    order = x.argsort()
    return float(np.interp(at, x[order], y[order], left=np.nan, right=np.nan))


def gain_over_mtp(gain, policy: str, concurrency: int) -> Estimate:
    """`gain` (speed_gain or throughput_gain) of DSpark's frontier under `policy` over MTP-1's point at `concurrency`.

    The interval is a bootstrap over turns; a resample takes, at each load, the same turns of both drafters. Raises
    DSparkLiteError where DSpark's frontier does not reach that point.
    """
    loads = sorted(row["concurrency"] for row in rows("policies", drafter="mtp", policy="all"))
    turns = [np.stack([part for drafter, name in (("dspark", policy), ("mtp", "all")) for part in
                       SERVING_MEASURES["throughput"](row("policies", drafter=drafter, policy=name, concurrency=load))], 1)
             for load in loads]

    def of_frontiers(groups):
        committed, seconds, other_committed, other_seconds = np.array([group.sum(0) for group in groups]).T
        ours, theirs = (np.stack([rate / loads, rate], 1) for rate in (committed / seconds, other_committed / other_seconds))
        return gain(ours, theirs[loads.index(concurrency)])

    found = bootstrap(of_frontiers, turns)
    if np.isnan(found.value):
        raise DSparkLiteError(f"DSpark's frontier under {policy} does not reach MTP-1's point at {concurrency} requests; "
                              "measure more loads")
    return found
