"""SGLang reads our cost tables and calibration, fits temperatures and chooses budgets, by its own
functions.

Its wheel is downloaded without what it depends on and is not installed: files are loaded by their
paths, and of those that import the engine only the functions asked for.
"""

import importlib.util
import sys
import types
import zipfile
from typing import Optional, Union
from unittest.mock import patch

import torch

from dspark_lite.course.measure.step_time import additive_fit
from dspark_lite.course.replication.confidence_results import (
    COST_TABLE,
    STS_FILE,
    observations,
    stored_cost_table,
    stored_sts,
)
from dspark_lite.course.replication.serving_results import engine_costs
from dspark_lite.scheduling.calibration import fit_sts
from dspark_lite.scheduling.policies import global_optimum
from tools.judges import environments
from tools.judges.questions import SCRATCH, rows_of

SGLANG = "0.5.23"
PARTS = "sglang/srt/speculative/dspark_components"
FITTER = "sglang/benchmark/dspark_sts_fit.py"
FILES = (*(f"{PARTS}/dspark_{name}.py" for name in ("sps", "sts", "planner")), FITTER)
PLANNER = (
    "DSparkScheduleConfig",
    "VerifyBudgetDecision",
    "compute_verify_token_budget",
    "_lookup_sps_tensor",
    "_additive_step_time_tensor",
)
CASES = 300  # random steps of the budget


def ask(lab, options, folder=SCRATCH / "sglang"):
    """Return the rows of this judge."""
    version, files = fetch(folder, options.newest)
    with patch.object(sys, "path", [str(folder / "library"), *sys.path]), patch.dict(sys.modules):
        sps, sts, planner, fitter = parts(files)
        table, _ = additive_fit(engine_costs("dspark"))  # the engine's recorded steps
        table.save(folder / "additive.json")
        read = sps.load_sps_table_from_path
        additive = read(folder / "additive.json"), table
        lines = {
            "cost table, SPS at every size": same_speeds(read(COST_TABLE), stored_cost_table()),
            "additive cost table, seconds of every step": same_seconds(*additive),
            "calibration file, temperatures": same_temperatures(sts),
            "temperatures fitted to our recorded blocks": same_fits(fitter),
            "verification budget of random steps, cost table": same_budgets(
                planner, read(COST_TABLE), stored_cost_table()
            ),
            "verification budget of random steps, additive table": same_budgets(planner, *additive),
        }
    return rows_of("SGLang", version, lines)


def fetch(folder, newest):
    """Download the wheel, and msgspec, which defines its structures; return (version, folder of
    files)."""
    package = "sglang" if newest else f"sglang=={SGLANG}"
    environments.pip(sys.executable, "download", "--no-deps", package, "-d", folder / "wheel")
    target = ("--upgrade", "--target", folder / "library")
    environments.pip(sys.executable, "install", *target, "msgspec")
    wheel = max((folder / "wheel").glob("sglang-*.whl"), key=lambda path: path.stat().st_mtime)
    with zipfile.ZipFile(wheel) as held:
        for file in FILES:
            held.extract(file, folder / "files")
    return wheel.name.split("-")[1], folder / "files"


def parts(files):
    """Return their modules of cost tables, of the calibration's file, of budgets, and of the
    calibration's fit."""
    dotted = PARTS.replace("/", ".")
    words = dotted.split(".")
    for depth in range(1, len(words) + 1):
        package = types.ModuleType(".".join(words[:depth]))
        package.__path__ = []
        sys.modules[package.__name__] = package
    sps, sts = (
        by_path(f"{dotted}.dspark_{name}", files / PARTS / f"dspark_{name}.py")
        for name in ("sps", "sts")
    )
    import msgspec

    known = {"torch": torch, "msgspec": msgspec, "Optional": Optional, "Union": Union, **vars(sps)}
    planner = environments.definitions(files / PARTS / "dspark_planner.py", PLANNER, known)
    return sps, sts, planner, by_path("dspark_sts_fit", files / FITTER)


def by_path(name, path):
    """Return a module loaded from a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def same_speeds(read, table):
    """Return for every size of our stored cost table whether the speed is ours."""
    sizes = range(1, table.max_batch_tokens + 1)
    return [read.lookup(size) == table.sps(1, size) for size in sizes]


def same_seconds(read, table):
    """Return for every step of up to 64 requests with blocks of one length whether its seconds are
    ours."""
    return [
        abs(
            read.step_time(num_reqs=requests, budget=requests * drafts)
            - table.seconds(requests, requests * (1 + drafts))
        )
        < 1e-12
        for requests in range(1, 65)
        for drafts in range(8)
    ]


def same_temperatures(sts):
    """Return for every position whether the stored temperature is ours."""
    theirs = sts.load_sts_calibration_from_path(STS_FILE).temperatures
    return [a == b for a, b in zip(theirs, stored_sts().temperatures, strict=True)]


def same_fits(fitter):
    """Return for every position and domain whether both fit the same temperature to the recorded
    blocks."""
    agreed = []
    for held in observations().values():
        ours = fit_sts(held.logits, held.accepted).temperatures
        survived = torch.arange(held.logits.shape[1]) < torch.from_numpy(held.accepted)[:, None]
        theirs = fitter.fit_sts_temperatures(
            logits=torch.from_numpy(held.logits),
            prefix_mask=survived,
            grid=fitter.default_temperature_grid(),
        )["temperatures"]
        agreed += [abs(a / b - 1) < 1e-5 for a, b in zip(ours, theirs, strict=True)]
    return agreed


def same_budgets(planner, read, table, gamma=7, most=8):
    """Return for random steps whether their planner verifies as many drafts as our optimum without
    an early stop."""
    generator, agreed = torch.Generator().manual_seed(0), []
    settings = planner.DSparkScheduleConfig(gamma=gamma)
    for case in range(CASES):
        shape = 1 + case % most, gamma
        survival = torch.rand(shape, generator=generator).pow(0.5).cumprod(1)
        theirs = planner.compute_verify_token_budget(
            history_survival_probs=survival, sps_table=read, cfg=settings
        )
        agreed.append(theirs.budget == int(global_optimum(survival, table).sum()))
    return agreed
