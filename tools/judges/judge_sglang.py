"""SGLang as a judge: its own readers and fitters, taken from its wheel piece by piece, beside ours.

The wheel is downloaded without what it depends on, and nothing of it is installed: files are loaded by their paths, and of
those that import the engine only the functions asked for.
"""

import __future__
import ast
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
from tools.judges.questions import rows_of

PARTS = "sglang/srt/speculative/dspark_components"
FILES = (
    f"{PARTS}/dspark_sps.py",
    f"{PARTS}/dspark_sts.py",
    f"{PARTS}/dspark_planner.py",
    "sglang/benchmark/dspark_sts_fit.py",
)
PLANNER = (
    "DSparkScheduleConfig",
    "VerifyBudgetDecision",
    "compute_verify_token_budget",
    "_lookup_sps_tensor",
    "_additive_step_time_tensor",
)
PINNED = "0.5.23"
CASES = 300  # random steps of the budget


def fetch(folder, newest):
    """Downloads the wheel and msgspec, its structures' library, to a folder and returns (version, folder of files)."""
    environments.pip(
        sys.executable,
        "download",
        "--no-deps",
        "sglang" if newest else f"sglang=={PINNED}",
        "-d",
        folder / "wheel",
    )
    environments.pip(
        sys.executable, "install", "--upgrade", "--target", folder / "library", "msgspec"
    )
    wheel = max((folder / "wheel").glob("sglang-*.whl"), key=lambda path: path.stat().st_mtime)
    with zipfile.ZipFile(wheel) as held:
        for file in FILES:
            held.extract(file, folder / "files")
    return wheel.name.split("-")[1], folder / "files"


def judge(folder, newest=False):
    """The lines of this judge."""
    version, files = fetch(folder, newest)
    with patch.object(sys, "path", [str(folder / "library"), *sys.path]), patch.dict(sys.modules):
        sps, planner, fitter, sts = parts(files)
        additive = both_additive(sps, folder)
        lines = {
            "cost table, SPS at every size": read_table(sps),
            "additive cost table, seconds of every step": read_additive(*additive),
            "calibration file, temperatures": read_sts(sts),
            "temperatures fitted to our recorded blocks": fitted(fitter),
            "verification budget of random steps, cost table": budgets(
                planner, sps.load_sps_table_from_path(COST_TABLE), stored_cost_table()
            ),
            "verification budget of random steps, additive table": budgets(planner, *additive),
        }
    return rows_of("SGLang", version, lines)


def parts(files):
    """Their modules of cost tables, of budgets, of the calibration's fit, and of its file."""
    for name in (
        "sglang",
        "sglang.srt",
        "sglang.srt.speculative",
        "sglang.srt.speculative.dspark_components",
    ):
        sys.modules[name] = types.ModuleType(name)
        sys.modules[name].__path__ = []
    dotted = PARTS.replace("/", ".")
    sps, sts = (
        by_path(f"{dotted}.{name}", files / PARTS / f"{name}.py")
        for name in ("dspark_sps", "dspark_sts")
    )
    fitter = by_path("dspark_sts_fit", files / "sglang/benchmark/dspark_sts_fit.py")
    import msgspec

    known = {"torch": torch, "msgspec": msgspec, "Optional": Optional, "Union": Union, **vars(sps)}
    return sps, definitions(files / PARTS / "dspark_planner.py", PLANNER, known), fitter, sts


def by_path(name, path):
    """A module loaded from a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def definitions(path, names, known):
    """Only the named functions and classes of a file, as attributes; they see one another and what is `known`."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if getattr(node, "name", None) in names]
    module = types.ModuleType(path.stem)
    sys.modules[path.stem] = module
    vars(module).update({name: value for name, value in known.items() if not name.startswith("__")})
    exec(
        compile(
            tree, str(path), "exec", flags=__future__.annotations.compiler_flag, dont_inherit=True
        ),
        vars(module),
    )
    missing = set(names) - vars(module).keys()
    if missing:
        raise ValueError(f"{path.name} has no {', '.join(sorted(missing))} any more")
    return module


def read_table(sps):
    """Look-ups of our stored cost table at every size it covers, a truth a size."""
    read, table = sps.load_sps_table_from_path(COST_TABLE), stored_cost_table()
    return [
        read.lookup(size) == table.sps(1, size) for size in range(1, table.max_batch_tokens + 1)
    ]


def both_additive(sps, folder):
    """The engine's recorded steps as an additive table: as they read our file, and as we have it."""
    table, _ = additive_fit(engine_costs("dspark"))
    table.save(folder / "additive.json")
    return sps.load_sps_table_from_path(folder / "additive.json"), table


def read_additive(read, table):
    """Seconds of every step of up to 64 requests whose blocks are of one length, a truth a step."""
    return [
        abs(
            read.step_time(num_reqs=requests, budget=requests * drafts)
            - table.seconds(requests, requests * (1 + drafts))
        )
        < 1e-12
        for requests in range(1, 65)
        for drafts in range(8)
    ]


def read_sts(sts):
    """The stored temperatures, a truth a position."""
    ours = stored_sts().temperatures
    return [
        theirs == own
        for theirs, own in zip(
            sts.load_sts_calibration_from_path(STS_FILE).temperatures, ours, strict=True
        )
    ]


def fitted(fitter):
    """Temperatures that both fit to the recorded blocks of each domain, a truth a position and domain."""
    agreed = []
    for held in observations().values():
        ours = fit_sts(held.logits, held.accepted).temperatures
        survived = torch.arange(held.logits.shape[1]) < torch.from_numpy(held.accepted)[:, None]
        theirs = fitter.fit_sts_temperatures(
            logits=torch.from_numpy(held.logits),
            prefix_mask=survived,
            grid=fitter.default_temperature_grid(),
        )
        agreed += [
            abs(own / other - 1) < 1e-5
            for own, other in zip(ours, theirs["temperatures"], strict=True)
        ]
    return agreed


def budgets(planner, read, table, gamma=7, most=8):
    """How many drafts a step may verify: their planner's choice and our optimum without an early stop, a truth a case."""
    generator, agreed = torch.Generator().manual_seed(0), []
    for case in range(CASES):
        requests = 1 + case % most
        survival = torch.rand(requests, gamma, generator=generator).pow(0.5).cumprod(1)
        theirs = planner.compute_verify_token_budget(
            history_survival_probs=survival,
            sps_table=read,
            cfg=planner.DSparkScheduleConfig(gamma=gamma),
        )
        agreed.append(theirs.budget == int(global_optimum(survival, table).sum()))
    return agreed
