"""Results of a lab's models, beside the stored ones of the tiny models: calibration, cost table, a small serving load and accepted
lengths of the target and drafter that the lab has.

Each is measured once, with a lesson's few prompts, and stored in a folder by target and device under
assets/measurements/own (DSPARK_MEASUREMENTS names another one); `python -m tools.measure.confidence --own` writes larger ones in
their place. A file of other weights or other versions is measured again.
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ...common.files import WORK, read_object, write_json
from ...common.fingerprint import fingerprint
from ...common.origin import TIMED_LIBRARIES, Origin, folder_name
from ...scheduling.calibration import STS, Observations
from ...scheduling.cost_table import CostTable
from ...scheduling.policies import algorithm1, fixed
from ...serving.engine import Engine
from ..estimates import Estimate, bootstrap
from ..measure.confidence import calibrate
from ..measure.evaluation import evaluate, mean_accepted_length, row_tally
from ..measure.journal import header
from ..measure.lab import Lab
from ..measure.serving_load import closed_loop, requests
from ..measure.step_time import PROFILE_CONTEXT, profile
from .confidence_results import calibration_run, read_observations

LAB_PROMPTS = (
    4  # of a domain, to fit a calibration, and as many to test it; an answer takes seconds on a T4
)
# tokens of the profiled steps: eight requests' whole blocks
LAB_SIZES = (
    *range(1, 17),
    *range(18, 33, 2),
    *range(36, 65, 4),
)
LAB_LOADS = (1, 4, 8)  # requests under way
# steps of a load that are counted, and those before them that are not
LOAD_STEPS = 12
LOAD_WARM_UP = 4
LOAD_TOKENS = 96  # of an answer under load


@dataclass(frozen=True)
class LabConfidence:
    """Calibration and cost table of a lab's drafter and target; `label` names the target and the device."""

    label: str
    report: dict
    sts: STS
    table: CostTable

    @property
    def observations(self) -> dict[str, Observations]:
        """Return the blocks of each domain, from prompts that the calibration was not fitted on."""
        return read_observations(self.report)


def has_stored_results(lab: Lab) -> bool:
    """Return whether the stored measurements are of this lab's target."""
    return calibration_run()["target"] == lab.target.name


def lab_folder(lab: Lab) -> Path:
    """Return the folder of a lab's results: one for its target on its device."""
    root = os.environ.get("DSPARK_MEASUREMENTS")
    parent = Path(root) if root else WORK / "assets" / "measurements" / "own"
    return parent / folder_name(f"{lab.target.name.split('/')[-1]} {lab.device_name}")


def cached(path: Path, lab: Lab, drafter, measure, anew: bool = False) -> dict:
    """Return the file at `path` if these weights wrote it on this device; else, or if `anew`, measure, write and return it."""
    origin = Origin.of(lab.target)
    made_of = {
        "device": origin.device,
        "dtype": origin.dtype,
        "target": origin.fingerprint,
        "draft": fingerprint(drafter),
        **{name: origin.versions[name] for name in TIMED_LIBRARIES},
    }
    if anew or not path.exists() or read_object(path).get("made_of") != made_of:
        write_json(path, {**measure(), "made_of": made_of})
    return read_object(path)


def measure_confidence(
    lab: Lab, drafter, *, prompts: int = LAB_PROMPTS, sizes=LAB_SIZES, anew: bool = False
) -> LabConfidence | None:
    """Return calibration and cost table of a lab's models; None where the stored ones are of these models.

    `prompts` of each domain or benchmark fit the calibration, and as many test it; `anew` measures again.
    Raise RequestError for a drafter without a confidence head.
    """
    if has_stored_results(lab):
        return None
    folder = lab_folder(lab)
    report = cached(
        folder / "calibration.json",
        lab,
        drafter,
        lambda: _calibrated(with_prompts(lab, 2 * prompts), drafter),
        anew,
    )
    steps = cached(folder / "steps.json", lab, drafter, lambda: _profiled(lab, sizes), anew)
    sts = STS(**report["sts"])
    table = CostTable(
        *(steps[name] for name in ("sample_batch_tokens", "sample_steps_per_sec")),
        origin=Origin.of(lab.target),
    )
    sts.save(folder / "sts.json")
    table.save(folder / "sps.json")
    return LabConfidence(f"{lab.target.name} on {lab.device_name}", report, sts, table)


def with_prompts(lab: Lab, count: int) -> Lab:
    """Return the same lab with the first `count` prompts of each domain."""
    few = replace(lab, prompts={domain: texts[:count] for domain, texts in lab.prompts.items()})
    few.max_new_tokens = lab.max_new_tokens
    return few


def _calibrated(lab: Lab, drafter) -> dict:
    sts, report = calibrate(lab, drafter)
    return report | {"sts": vars(sts)}


def _profiled(lab: Lab, sizes) -> dict:
    table, spent = profile(lab.target, sizes, repeats=5)
    return {
        **header(lab),
        "context": PROFILE_CONTEXT,
        "milliseconds": spent,
        "sample_batch_tokens": table.batch_tokens.tolist(),
        "sample_steps_per_sec": table.steps_per_second.tolist(),
    }


def measure_lab_load(
    lab: Lab, drafter, table: CostTable, *, loads=LAB_LOADS, steps: int = LOAD_STEPS
) -> dict | None:
    """Return a small closed loop at each of `loads`: plain decoding, whole blocks, and Algorithm 1 by the convex view of `table`;
    None where the stored loads are of these models.

    A row has `tokens_per_second` of rounds without prefill, `verified` tokens per request and step, anchor included, and
    `accepted_length`, the tokens that a request commits per step.
    """
    if has_stored_results(lab):
        return None
    ways = {
        "plain": (None, None),
        "fixed": (drafter, fixed(drafter.gamma)),
        "algorithm1": (drafter, algorithm1(table.lower_hull())),
    }

    def measure() -> dict:
        rows = [
            {"policy": name, "concurrency": load, **_loop(lab, *way, load, steps)}
            for load in loads
            for name, way in ways.items()
        ]
        return {
            **header(lab),
            "drafter": drafter.name,
            "temperature": 1.0,
            "steps": steps,
            "rows": rows,
        }

    return cached(lab_folder(lab) / "serving.json", lab, drafter, measure)


def _loop(lab: Lab, drafter, policy, load: int, steps: int) -> dict:
    """Return the measures of a closed loop of `load` requests under a policy."""
    prompts = {
        domain: [lab.encode(text) for text in texts] for domain, texts in lab.prompts.items()
    }
    longest = max(ids.shape[1] for some in prompts.values() for ids in some)
    gamma = drafter.gamma if drafter else 0
    engine = Engine(
        lab.target,
        drafter,
        policy=policy,
        slots=load,
        capacity=longest + LOAD_TOKENS + gamma + 1,
        temperature=1.0,
    )
    stream = requests(
        prompts, torch.Generator().manual_seed(lab.seed), new_tokens=(LOAD_TOKENS // 2, LOAD_TOKENS)
    )
    loop = closed_loop(engine, stream, load)
    taken = [next(loop) for _ in range(LOAD_WARM_UP + steps)][LOAD_WARM_UP:]
    spent = sum(
        seconds for step in taken for part, seconds in step.seconds.items() if part != "prefill"
    )
    served, committed, verified = (
        sum(getattr(step, name) for step in taken) for name in ("requests", "committed", "verified")
    )
    return {
        "tokens_per_second": committed / spent,
        "verified": verified / served,
        "accepted_length": committed / served,
    }


def measure_lengths(
    lab: Lab, name: str = "dspark", *, prompts: int = LAB_PROMPTS
) -> dict[str, Estimate] | None:
    """Return the accepted length by domain of a drafter of the lab, from `prompts` of each; None where the stored ones are of
    these models."""
    if has_stored_results(lab):
        return None
    few, drafter = with_prompts(lab, prompts), lab.drafter(name)
    rows = cached(
        lab_folder(lab) / f"evaluate-{name}.json",
        lab,
        drafter,
        lambda: evaluate(few, {name: drafter}, few.prompts),
    )
    return {
        row["domain"]: bootstrap(mean_accepted_length, [row_tally(row)]) for row in rows["rows"]
    }
