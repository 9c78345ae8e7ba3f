"""Two machines and more: this CPU, GPUs by their roofline, the paper's; published steps beside the
model; recorded rounds replayed on each (assets/measurements/machines, written by
tools/measure/machines.py)."""

from dataclasses import replace
from functools import cache

import numpy as np

from ...common.errors import DSparkLiteError
from ...common.files import ROOT
from ...scheduling.calibration import STS, Observations
from ..estimates import Estimate
from ..measure import machines as model
from ..measure.machines import (
    GPUS,
    NO_HOST,
    VLLM,
    Host,
    Machine,
    PassTime,
    Records,
    Replayed,
    StepTime,
)
from ..measure.simulator import Record
from ..result_files import read, reference
from . import confidence_results, serving_results
from .drift import WRONG_HEADS

FOLDER = ROOT / "assets" / "measurements" / "machines"
MTP_ROUNDS, REPLAYED = FOLDER / "mtp_rounds.json", FOLDER / "replayed.json"
WRITTEN_BY = "make machines"
RECORDED_BY = "make machines ARGS=--record"
PROMPTS = 32  # a domain: the first of those that the calibration was not fitted on
CPU, V4_FLASH = "this CPU", "DeepSeek-V4-Flash, at most"


@cache
def machines() -> dict[str, Machine]:
    """Return all machines by name: measured, modelled, derived."""
    modelled = (
        this_cpu(),
        *(model.gpu(name) for name in ("T4", "H100", "H200")),
        model.gpu("H100", host=NO_HOST),
        model.paper_machine(),
    )
    return {machine.name: machine for machine in modelled}


def this_cpu() -> Machine:
    """Return the machine of assets/measurements/serving/engine.json: the three numbers nearest to
    its steps, drafting included."""
    return Machine(
        CPU,
        "measured",
        "the engine's steps at 1 to 64 requests (make serving); beyond, the line goes on",
        {way: StepTime(cpu_fit(way)[0]) for way in ("plain", "mtp", "dspark")},
    )


def cpu_scatter() -> dict[str, float]:
    """Return of DSpark's measured steps on this CPU how far the three numbers are from them in the
    median and at most, and how far a turn is from the mean of its kind (standard deviation), all
    as fractions."""
    errors = np.abs(cpu_fit("dspark")[1])
    turns = [
        np.divide(*serving_results.totals_by_turn("step_seconds", row).T)
        for row in serving_results.rows("costs", drafter="dspark")
    ]
    return {
        "median": float(np.median(errors)),
        "most": float(errors.max()),
        "turns": float(np.median([seconds.std() / seconds.mean() for seconds in turns])),
    }


def cpu_fit(way: str) -> tuple[PassTime, np.ndarray]:
    """Return the three numbers of the engine's measured steps on this CPU, and the relative errors [n]: of "plain" decoding, "mtp" or
    "dspark"."""
    costs = serving_results.engine_costs(way)
    requests, each = np.meshgrid(costs.requests, costs.tokens_per_request, indexing="ij")
    return model.fit_pass(requests.ravel(), (requests * each).ravel(), costs.step_seconds.ravel())


def published_steps(host: Host = VLLM) -> list[dict]:
    """Return published steps beside the model's: run, requests, milliseconds of both, and model
    over published."""
    rows = []
    for run in reference("published_steps.json")["runs"]:
        line = model.target_pass(GPUS[run["gpu"]], run["shape"], run["context"], host)
        for requests, published in zip(run["requests"], run["milliseconds"]):
            modelled = 1e3 * line.seconds(requests, requests)
            rows.append(
                {
                    "run": run["name"],
                    "requests": requests,
                    "published": published,
                    "modelled": modelled,
                    "ratio": modelled / published,
                }
            )
    return rows


@cache
def records() -> Records:
    """Return the recorded blocks of the same prompts: DSpark's, recorded to judge its confidences
    (lesson 09), and MTP-1's."""
    sts, observed = confidence_results.stored_sts(), confidence_results.observations()
    ours = {name: _first(seen) for name, seen in observed.items()}
    theirs = {name: _first(mtp_observations()[name]) for name in ours}
    if any(
        not np.array_equal(*(np.unique(seen[name].prompts) for seen in (ours, theirs)))
        for name in ours
    ):
        raise DSparkLiteError(
            f"the rounds of DSpark and MTP-1 come from different prompts; run `{RECORDED_BY}`"
        )
    identity, raw = STS([1.0]), STS([1.0] * len(sts.temperatures))
    mtp = Record.of(list(theirs.values()), identity)
    return Records(
        Record.of(list(ours.values()), sts),
        Record.of(list(ours.values()), raw),
        Record(mtp.gamma, None, mtp.accepted, mtp.tokens, mtp.first, mtp.blocks),
        np.concatenate([[name] * len(np.unique(seen.prompts)) for name, seen in ours.items()]),
    )


def _first(seen: Observations) -> Observations:
    first = seen.prompts < PROMPTS
    return Observations(*(values[first] for values in seen))


def mtp_observations() -> dict[str, Observations]:
    """Return MTP-1's recorded rounds of each domain; it has no confidence head, so all logits are
    0."""
    observed = {}
    for domain, answers in read(MTP_ROUNDS, RECORDED_BY)["accepted"].items():
        accepted = [np.array([int(mark) for mark in answer]) for answer in answers]
        prompts = np.repeat(np.arange(len(accepted)), [len(rounds) for rounds in accepted])
        accepted = np.concatenate(accepted)
        observed[domain] = Observations(np.zeros((len(accepted), 1)), accepted, prompts)
    return observed


def replay_all(loads=model.LOADS) -> list[dict]:
    """Return rows of every policy on every machine at each load that fits it, with the gain over
    plain decoding, MTP-1, whole blocks, and the fixed length that is best at that load, chosen
    afterwards: a minute."""
    rows = []
    for machine in machines().values():
        known = [policy for policy in model.POLICIES if model.way_of(policy) in machine.steps]
        for load in model.held_loads(machine, loads):
            replayed_steps = {policy: _played(machine, policy, load) for policy in known}
            rows += [
                {"machine": machine.name, **row} for row in _compared(replayed_steps, load).values()
            ]
    return rows


def _compared(found: dict[str, Replayed], load: int) -> dict[str, dict]:
    def rate(policy):
        tokens, seconds = found[policy].shares.sum(0)
        return tokens / seconds

    lengths = [policy for policy in found if policy.startswith("fixed")]
    against = {"plain": "plain", "mtp": "mtp", "whole": lengths[-1], "best": max(lengths, key=rate)}
    against = {name: policy for name, policy in against.items() if policy in found}
    rows = model.compare(found, load, records().domains, against)
    return {policy: {**row, "best_fixed": against["best"]} for policy, row in rows.items()}


def _played(machine: Machine, policy: str, load: int) -> Replayed:
    """Return a replay. Where each step verifies the same number of tokens, only its seconds differ
    between machines."""
    step = machine.step(model.way_of(policy))
    if policy.split()[0] not in ("plain", "mtp", "fixed"):
        return model.play(step, policy, load, records())
    replayed_steps = _played_at_one_second(policy, load)
    seconds = step.seconds(load, load * (1 + replayed_steps.drafts))
    return replayed_steps._replace(shares=replayed_steps.shares * [1.0, seconds])


@cache
def _played_at_one_second(policy: str, load: int) -> Replayed:
    return model.play(StepTime(PassTime(1.0, 0.0, 0.0)), policy, load, records())


# Wrong heads: confidences that a scheduler believes too much or too little.
HEADS = ("as calibrated", "4 times as sure", "2 nats too sure", "2 nats too doubtful")
RAW_HEAD = "not calibrated"
HEAD_MACHINES, HEAD_LOADS = (V4_FLASH, "H100"), (128, 256)


def replay_wrong_heads(names=HEAD_MACHINES, loads=HEAD_LOADS) -> list[dict]:
    """Return rows of Algorithm 1 with each of HEADS, and with confidences that are not calibrated,
    on machines at loads, with the gain over whole blocks and over the calibrated head:
    half a minute."""
    ours, rows = records(), []
    forecasts = {head: with_logits(ours, *WRONG_HEADS[head]) for head in HEADS}
    forecasts[RAW_HEAD] = ours._replace(dspark=ours.raw)
    for name in names:
        machine = machines()[name]
        for load in loads:
            rows_by_head = {
                head: model.play(machine.step("dspark"), "algorithm1", load, record)
                for head, record in forecasts.items()
            }
            rows_by_head["whole"] = _played(machine, f"fixed {ours.dspark.gamma}", load)
            against = {"whole": "whole", "calibrated": HEADS[0]}
            compared = model.compare(rows_by_head, load, ours.domains, against)
            rows += [
                {"machine": name, **compared[head], "policy": "algorithm1", "head": head}
                for head in forecasts
            ]
    return rows


def with_logits(ours: Records, times: float, plus: float) -> Records:
    """Return records whose calibrated confidence logits are multiplied, and moved up."""
    changed = replace(ours.dspark, logits=ours.dspark.logits * times + plus)
    return ours._replace(dspark=changed)


def replayed(part: str = "rows") -> list[dict]:
    """Return the stored rows of `replay_all` or, of the part "wrong_heads", of
    `replay_wrong_heads`; their gains are Estimates."""
    return [
        {
            **row,
            "tokens_per_second": Estimate(**row["tokens_per_second"]),
            "per_user": Estimate(**row["per_user"]),
            "gains": {name: Estimate(**gain) for name, gain in row["gains"].items()},
        }
        for row in read(REPLAYED, WRITTEN_BY)[part]
    ]


def gains_by_head(machine: str, load: int) -> dict[str, dict[str, Estimate]]:
    """Return {head: {"whole", "calibrated": stored gain over whole blocks, over the calibrated head}}
    of a machine at a load; empty where none was replayed."""
    return {
        row["head"]: row["gains"]
        for row in replayed("wrong_heads")
        if (row["machine"], row["load"]) == (machine, load)
    }


def replayed_row(machine: str, policy: str, load: int) -> dict:
    """Return the stored row of a policy on a machine at a load. Raise DSparkLiteError where there
    is none."""
    for row in replayed():
        if (row["machine"], row["policy"], row["load"]) == (machine, policy, load):
            return row
    raise DSparkLiteError(f"{policy!r} was not replayed on {machine} with {load} requests")


def frontier(machine: str, policy: str) -> np.ndarray:
    """Return stored (tokens a second and user, tokens a second in all) of a policy on a machine by rising load, [n, 2] (Figure 7)."""
    matching = [row for row in replayed() if (row["machine"], row["policy"]) == (machine, policy)]
    return np.array([[row["per_user"].value, row["tokens_per_second"].value] for row in matching])


def engine_seconds(slots: int, name: str = "H100") -> dict:
    """Return the seconds of a step of a small engine, {way: function of its requests and tokens}, each of whose `slots` stands for
    an equal share of 256 requests on a modelled GPU: the GPU's seconds over the requests that a slot stands for, so that tokens
    over seconds are the GPU's.

    Ways are "plain" decoding, DSpark with device and host "in turn", and with a host that works "meanwhile": then the longer of
    the two counts, as if all of the host's work could be hidden.
    """
    copies = model.LOADS[-1] // slots
    served, bare = machines()[name], machines()[f"{name}, no host"]

    def shared(machine: Machine, way: str):
        return lambda requests, tokens: (
            machine.step(way).seconds(copies * requests, copies * tokens) / copies
        )

    in_turn, device = shared(served, "dspark"), shared(bare, "dspark")
    return {
        "plain": shared(served, "plain"),
        "in turn": in_turn,
        "meanwhile": lambda *step: max(device(*step), in_turn(*step) - device(*step)),
    }
