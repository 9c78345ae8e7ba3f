"""What the web edition draws in place of the widgets of lessons 03, 09, 10 and 11: their numbers for all that a control
can be set to."""

import numpy as np
from ipywidgets import Dropdown
from scipy.special import expit

from dspark_lite.scheduling.calibration import STS, Observations
from dspark_lite.scheduling.cost_table import CostTable
from dspark_lite.scheduling.policies import LAG
from ..measure.confidence import replay
from ..replication.block_replay import stored_steps
from . import lesson_11
from .lesson_09 import SWEPT, token_milliseconds
from .widgets import slider

BOARD_REQUESTS, BOARD_STEPS, THRESHOLD = (1, 4, 8, 16, 24, 32, 48, 64), 12, 0.5
SERVED_STEPS = range(LAG, 10)
BOARD_LOAD = 24  # requests with which a drawing begins


def rounded(values, digits: int = 4) -> list:
    """Return nested lists of numbers with `digits` significant digits."""
    if np.ndim(values):
        return [rounded(value, digits) for value in values]
    return float(f"{float(values):.{digits}g}")


def threshold_costs(
    recorded: dict[str, Observations], sts: STS, table: CostTable, most_requests: int
) -> dict:
    """Return, by domain and scaling, for each threshold: tokens accepted and wasted per round, and milliseconds a token for 1,
    2, ... requests."""
    drawn = {}
    for domain, blocks in recorded.items():
        for scaling, temperatures in (("calibrated", sts.temperatures), ("raw", 1.0)):
            confidence = expit(blocks.logits / temperatures)
            accepted, wasted = zip(*(replay(blocks, confidence, least) for least in SWEPT))
            cost = [
                [token_milliseconds(table, requests, blocks, confidence, least) for least in SWEPT]
                for requests in range(1, most_requests + 1)
            ]
            drawn.setdefault(domain, {})[scaling] = {
                "accepted": rounded(accepted),
                "wasted": rounded(wasted),
                "cost": rounded(cost),
            }
    return {"thresholds": rounded(SWEPT), "blocks": drawn}


def board_steps(tables: dict[str, CostTable]) -> dict:
    """Return the scheduler board: confidences [steps, R, g] for a few numbers of requests, and of each table, and of the string
    below it, SPS by batch size from 0."""
    confidence = {
        requests: [
            rounded(proposal.confidence, 3)
            for proposal in stored_steps(requests, most=BOARD_STEPS)[0]
        ]
        for requests in BOARD_REQUESTS
    }
    speeds = {
        name: {
            way: rounded(costs.sps(1, range(costs.max_batch_tokens + 1)), 6)
            for way, costs in (("table", table), ("hull", table.lower_hull()))
        }
        for name, table in tables.items()
    }
    return {
        "confidence": confidence,
        "tables": speeds,
        "lag": LAG,
        "threshold": THRESHOLD,
        "controls": {
            "requests": Dropdown(description="requests", options=BOARD_REQUESTS, value=BOARD_LOAD),
            "step": slider("step of the record", LAG, LAG, BOARD_STEPS - 1),
        },
    }


def operating_points(
    measured: dict[str, np.ndarray], loads: list[int], policies: list[str], point, one_step
) -> dict:
    """Return the frontiers of MTP-1 and of each policy, measured and modelled at each of `loads`, `point(drafter, policy,
    load)`; and for each policy, load and step the requests' lengths and accepted drafts, `one_step(policy, load, step)`."""
    modelled = {
        name: rounded(
            [
                point(*(("mtp", "all") if name == "mtp" else ("dspark", name)), load)
                for load in loads
            ]
        )
        for name in ("mtp", *policies)
    }
    looks = {
        name: {key: lesson_11.style(name)[key] for key in ("label", "color", "marker")}
        for name in modelled
    }
    served, gamma, busiest = {}, 0, min(loads, key=lambda load: abs(load - BOARD_LOAD))
    for policy in policies:
        for load in loads:
            for step in SERVED_STEPS:
                lengths, accepted, alive = one_step(policy, load, step)
                order, gamma = np.lexsort((-alive.sum(1), -lengths)), alive.shape[1]
                committed_drafts = np.minimum(accepted, lengths)
                served.setdefault(policy, {}).setdefault(load, {})[step] = [
                    lengths[order].tolist(),
                    committed_drafts[order].tolist(),
                ]
    return {
        "measured": {name: rounded(measured[name]) for name in modelled},
        "modelled": modelled,
        "looks": looks,
        "loads": loads,
        "served": served,
        "gamma": gamma,
        "controls": {
            "load": Dropdown(description=lesson_11.UNDER_WAY, options=loads, value=busiest),
            "step": slider("step", SERVED_STEPS[1], SERVED_STEPS[0], SERVED_STEPS[-1]),
        },
    }


def measured_lengths(ours: dict[str, tuple[int, float, dict]]) -> dict:
    """Return measured drafters {label: (draft length, speed-up, style)} as lesson 03 draws them beside the formula."""
    return {
        "measured": [
            [label, length, rounded(speedup), look["color"], look["marker"]]
            for label, (length, speedup, look) in ours.items()
        ]
    }
