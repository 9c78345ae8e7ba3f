"""A folder of measurements in the format of tools/measure/experiments.py, drawn by chance from known acceptance rates."""

import shutil

import numpy as np
import pytest

from dspark_lite.common.files import write_json
from dspark_lite.course import estimates, result_files
from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.measure import round_latency, studies
from dspark_lite.course.measure.evaluation import _row
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.replication import (
    acceptance_over_seeds,
    confidence_results,
    experiment_results,
    ledger,
)
from dspark_lite.serving.requests import STEP_PARTS
from dspark_lite.training.recipe import without_nones

PROMPTS, ROUNDS, TURNS = 30, 6, 8
HEADER = {
    "device": "a made device",
    "versions": {},
    "commit": None,
    "seed": 0,
    "profile": "tiny",
    "target": "tiny-target",
}
RATES = {"dflash": 0.7, "eagle3": 0.75, "mtp": 0.5, "small_lm": 0.5}  # others: 0.85


def rate(run: str) -> float:
    """The acceptance rate at every position."""
    return next((value for name, value in RATES.items() if name.replace("_", "-") in run), 0.85)


def rounds(rng, gamma: int, acceptance: float) -> list[list[int]]:
    """[proposed, accepted, committed] of the rounds of a prompt."""
    accepted = [int((rng.random(gamma) < acceptance).cumprod().sum()) for _ in range(ROUNDS)]
    return [[gamma, count, count + 1] for count in accepted]


def measurement(run: str, acceptance: float, seed: int = 0) -> dict:
    """What tools/measure/experiments.py writes of a run."""
    rng, recipe = np.random.default_rng(seed), load_recipe(*studies.RUNS[run])
    gamma = 1 if "mtp" in run else getattr(recipe.config, "block_size", None) or 7
    rows = [
        _row(run, domain, [rounds(rng, gamma, acceptance) for _ in range(PROMPTS)], gamma)
        for domain in DOMAINS
    ]
    return {**HEADER, "temperature": 1.0, "recipe": without_nones(recipe), "rows": rows}


def latency(extra: dict[str, float], seed: int = 0) -> dict:
    """What round_latency.round_latency gives: the target takes 90 ms, a drafter 10 ms and `extra`; some turns are slow."""
    slow = np.random.default_rng(seed).uniform(1, 1.5, TURNS)
    parts = {
        "target": 90.0,
        **{name: 10.0 + extra.get(name, 0.0) for name in ("dflash", "dspark", "dspark_rnn")},
    }
    rows = [
        {"part": part, "length": length, "context": context, "milliseconds": (time * slow).tolist()}
        for part, time in parts.items()
        for length in studies.LENGTHS
        for context in round_latency.LATENCY_CONTEXTS
    ]
    return {**HEADER, "batch": 2, "rows": rows}


def write_all(folder) -> None:
    """Every measurement of tools/measure/experiments.py that figures and ledger read."""
    for seed, run in enumerate(studies.RUNS):
        write_json(folder / f"{run}.json", measurement(run, rate(run), seed))
    write_json(folder / f"{studies.LATENCY}.json", latency({"dspark": 1.0, "dspark_rnn": 2.0}))
    for measured in (confidence_results.CALIBRATION, confidence_results.SWEEP):
        shutil.copy(measured, folder)


def read_from(folder, monkeypatch) -> None:
    """Makes the package read `folder` in place of assets/measurements/experiments and confidence, with fewer resamples."""
    monkeypatch.setattr(experiment_results, "MEASUREMENTS", folder)
    for name in ("CALIBRATION", "SWEEP"):
        monkeypatch.setattr(
            confidence_results, name, folder / getattr(confidence_results, name).name
        )
    monkeypatch.setattr(estimates, "RESAMPLES", 100)
    forget()


def forget() -> None:
    """Empties what was kept of the measurements read so far."""
    for kept in (
        result_files.read,
        experiment_results.accepted_lengths,
        experiment_results.gains,
        experiment_results.gains_over_seeds,
        experiment_results.conditional_acceptance,
        acceptance_over_seeds.acceptances,
        acceptance_over_seeds.lead,
        acceptance_over_seeds.rise,
        ledger.entries,
        confidence_results.all_summaries,
    ):
        kept.cache_clear()


@pytest.fixture(scope="session")
def all_made(tmp_path_factory):
    """A folder with every measurement, to copy from."""
    folder = tmp_path_factory.mktemp("made")
    write_all(folder)
    return folder


@pytest.fixture
def made(all_made, tmp_path, monkeypatch):
    """A folder of made measurements that the package reads."""
    folder = shutil.copytree(all_made, tmp_path / "experiments")
    read_from(folder, monkeypatch)
    yield folder
    forget()


def served_row(drafter, policy, concurrency, committed, verified):
    """Three equal turns of one second and ten requests' steps each; prompts cost nothing."""
    seconds = {f"{part}_seconds": [1.0 if part == "verify" else 0.0] * 3 for part in STEP_PARTS}
    return {
        "drafter": drafter,
        "policy": policy,
        "concurrency": concurrency,
        "committed": [committed] * 3,
        "verified": [verified] * 3,
        "requests": [10] * 3,
        **seconds,
    }
