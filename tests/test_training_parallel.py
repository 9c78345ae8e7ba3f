"""Training on two processes is training on one; a training that is killed loses nothing; float16."""

import dataclasses
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from safetensors.torch import load_file, save_file

from dspark_lite.course.data import recipes
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.training import blocks, optimisers, train as training
from dspark_lite.training.blocks import (
    TrainingBatch,
    dense_mask,
    draw_anchors,
    packed_hidden,
    sparse_mask,
)
from dspark_lite.training.devices import processes
from dspark_lite.training.plan import Plan
from dspark_lite.training.recipe import LossWeights
from dspark_lite.training.train import LossModule
from helpers import DRAFT, LANGUAGE_MODEL

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}


class Problem:
    """A toy block drafter and six batches of five, three or one rows."""

    plan = Plan(steps=6, learning_rate=0.01)

    def __init__(self):
        target, drafters = toy_models(seed=2, vocab_size=11, gamma=3)
        self.drafter = drafters["dspark"].requires_grad_(True)
        self.drafter.embed_tokens.requires_grad_(False)
        self.drafter.lm_head.requires_grad_(False)
        self.batches = [
            self.batch(target, rows, seed) for seed, rows in enumerate([5, 3, 1, 4, 5, 1])
        ]

    def batch(self, target, rows, seed):
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(11, (rows, 14), generator=generator)
        last_hidden, features = target.last_hidden(ids, self.drafter.taps)
        supervised = torch.rand(rows, 14, generator=generator) < 0.9
        anchors, valid = draw_anchors(supervised, 4, generator)
        return TrainingBatch(
            ids, supervised, features.detach(), last_hidden.detach(), anchors, valid
        )

    def loss_of(self, batch, progress):
        return blocks.block_loss(self.drafter, TrainingBatch(*batch), LossWeights(), 1.0)

    def gradients(self):
        """The recorded losses and the gradients of the first batch, which an optimiser that does nothing leaves."""
        accelerator = processes()
        (idle,) = optimisers.make_optimisers(self.drafter, 0.0)
        loss_module, idle = accelerator.prepare(LossModule(self.drafter, self.loss_of), idle)
        idle.zero_grad = lambda **_: None
        record = training.update(
            accelerator,
            loss_module,
            [idle],
            torch.amp.GradScaler("cpu", enabled=False),
            self.batches[0],
            1.0,
        )
        return record, {
            name: parameter.grad for name, parameter in optimisers.trainable(self.drafter).items()
        }

    def train(self, folder, stop_at=None):
        """The log of a training; stops before step `stop_at`."""

        def batch_at(step):
            if step == stop_at:
                raise KeyboardInterrupt
            return self.batches[step]

        with mock.patch.object(training, "SAVE_SECONDS", -1.0):
            return training.optimise(
                self.drafter, batch_at, self.loss_of, self.plan, folder, title="toy"
            )


def work(folder):
    """What each of two processes does."""
    record, gradients = Problem().gradients()
    try:
        Problem().train(folder / "run", stop_at=4)
    except KeyboardInterrupt:
        pass
    problem = Problem()
    log = problem.train(folder / "run")
    if processes().is_main_process:
        (folder / "found.json").write_text(json.dumps({"record": record, "log": log}))
        save_file(gradients, folder / "gradients.safetensors")
        save_file(problem.drafter.state_dict(), folder / "drafter.safetensors")
    torch.distributed.destroy_process_group()
    # all is written; on a busy machine gloo's threads now and then abort a process that ends the ordinary way
    os._exit(0)


def launch(*arguments):
    """Runs python with these arguments in two processes that accelerate takes for one training, as it launches them."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    shared = {
        **ENVIRONMENT,
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "ACCELERATE_USE_CPU": "true",
    }
    running = [
        subprocess.Popen(
            [sys.executable, *map(str, arguments)],
            text=True,
            cwd=ROOT,
            env={**shared, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in "01"
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(outputs)


@pytest.fixture(scope="module")
def two_processes(tmp_path_factory):
    """The folder in which two processes have left their results."""
    folder = tmp_path_factory.mktemp("two")
    launch(
        "-c",
        "import sys, pathlib, test_training_parallel as t; t.work(pathlib.Path(sys.argv[1]))",
        folder,
    )
    return folder


def relative(ours, theirs):
    return ((ours - theirs).norm() / theirs.norm().clamp(min=1e-12)).item()


@pytest.mark.slow(reason="two processes, each of which imports torch")
def test_two_processes_have_the_loss_and_the_gradients_of_one(two_processes):
    record, gradients = Problem().gradients()
    found = json.loads((two_processes / "found.json").read_text())
    assert found["record"] == pytest.approx(record, abs=1e-5) and len(record) == 3
    theirs = load_file(two_processes / "gradients.safetensors")
    assert theirs.keys() == gradients.keys() and all(
        value.norm() > 0 for value in gradients.values()
    )
    assert max(relative(theirs[key], gradients[key]) for key in gradients) < 1e-4


@pytest.mark.slow(reason="two processes, each of which imports torch")
def test_two_processes_stopped_and_resumed_end_where_one_does(two_processes, tmp_path):
    problem = Problem()
    log = problem.train(tmp_path)
    found = json.loads((two_processes / "found.json").read_text())["log"]
    for ours, theirs in zip(log, found, strict=True):
        assert theirs == pytest.approx(ours, abs=2e-5)  # written with five decimals
    written = load_file(two_processes / "drafter.safetensors")
    saved = load_file(two_processes / "run" / "progress.safetensors")
    for key, value in problem.drafter.state_dict().items():
        torch.testing.assert_close(written[key], value, atol=1e-4, rtol=1e-4)
        assert f"model.{key}" not in saved or saved[f"model.{key}"].equal(written[key])


@pytest.mark.parametrize("number", range(6))
def test_the_shares_of_two_processes_make_the_update_of_one(monkeypatch, number):
    """In this process: batches of 5, 3, 1 and 4 rows, so that shares differ in size and one has no rows at all."""
    # it follows the averaging
    monkeypatch.setattr(torch.nn.utils, "clip_grad_norm_", lambda *given: torch.tensor(1.0))

    def share(index, count, reduce):
        """The record of one of `count` processes and the gradients that it would bring to the average."""
        problem = Problem()
        (idle,) = optimisers.make_optimisers(problem.drafter, 0.0)
        idle.zero_grad = lambda **_: None
        accelerator = SimpleNamespace(process_index=index, num_processes=count, reduce=reduce)
        record = training.update(
            accelerator,
            LossModule(problem.drafter, problem.loss_of),
            [idle],
            torch.amp.GradScaler("cpu", enabled=False),
            problem.batches[number],
            1.0,
        )
        return record, {
            name: parameter.grad
            for name, parameter in optimisers.trainable(problem.drafter).items()
        }

    sums = []
    for index in range(2):
        share(index, 2, lambda values, how: sums.append(values) or values)
    (record, ours), (same, others) = (
        share(index, 2, lambda values, how: sum(sums)) for index in range(2)
    )
    wanted, gradients = share(0, 1, lambda values, how: values)
    assert record == same == pytest.approx(wanted, abs=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close((ours[name] + others[name]) / 2, gradient, atol=1e-5, rtol=1e-4)


def test_one_process_keeps_its_gradients_bit_for_bit():
    """Accelerate changes nothing where nothing was launched."""
    problem, plain = Problem(), Problem()
    _, gradients = problem.gradients()
    numerator, weight, _ = plain.loss_of(plain.batches[0], 0.0)
    (numerator / weight).backward()
    torch.nn.utils.clip_grad_norm_(optimisers.trainable(plain.drafter).values(), 1.0)
    for name, parameter in optimisers.trainable(plain.drafter).items():
        assert gradients[name].equal(parameter.grad), name


# The training command


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    """A folder with a trained target, and a recipe of a drafter for it that takes a while."""
    folder = tmp_path_factory.mktemp("mini")
    (folder / "mini.json").write_text(json.dumps(LANGUAGE_MODEL))
    (folder / "draft.json").write_text(
        json.dumps({**DRAFT, "epochs": 30, "target": str(folder / "mini")})
    )
    train(folder / "mini.json", folder / "mini", folder / "build")
    train(folder / "draft.json", folder / "draft", folder / "build")
    return folder


def train(recipe, out, build, save_seconds=60.0):
    """The training command on a CPU, with its folders and the time between saves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "SAVE_SECONDS", save_seconds)
        patch.setattr("os.cpu_count", lambda: 1)  # examples are drawn by this process
        recipes.train(str(recipe), device="cpu", out=out, build=build)


COMMAND = "import sys, pathlib, test_training_parallel as t; t.train(*map(pathlib.Path, sys.argv[1:4]), -1.0)"


@pytest.mark.slow(reason="a process that is killed; test_training.py stops one by an exception")
def test_a_training_killed_at_a_random_step_ends_bit_equal_to_one_that_was_not(mini, tmp_path):
    log, out, build = tmp_path / "build/draft/log.jsonl", tmp_path / "out", tmp_path / "build"
    at = random.SystemRandom().randint(1, 100)
    with subprocess.Popen(
        [sys.executable, "-c", COMMAND, mini / "draft.json", out, build],
        cwd=ROOT,
        env=ENVIRONMENT,
        stderr=subprocess.DEVNULL,
    ) as running:
        while running.poll() is None and (
            not log.exists() or len(log.read_text().splitlines()) < at
        ):
            time.sleep(0.001)
        running.send_signal(signal.SIGKILL)
    assert running.returncode == -signal.SIGKILL and not out.exists()
    train(mini / "draft.json", out, build)
    for name in ("model.safetensors", "config.json"):
        assert (out / name).read_bytes() == (mini / "draft" / name).read_bytes(), (
            f"killed at step {at}"
        )
    assert log.read_text() == (mini / "build/draft/log.jsonl").read_text()


@pytest.mark.slow(reason="two processes, each of which imports torch and trains")
def test_the_training_command_on_two_processes_writes_answers_and_cache_once(mini, tmp_path):
    out, build = tmp_path / "out", tmp_path / "build"
    launch("-c", COMMAND, mini / "draft.json", out, build)
    answers = [
        next(folder.glob("data-*/answers.jsonl")).read_text() for folder in (build, mini / "build")
    ]
    assert answers[0] == answers[1]
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (out, mini / "draft"))
    for name in theirs:  # 120 updates of Adam, kept in 16 bit
        torch.testing.assert_close(ours[name].float(), theirs[name].float(), atol=0.02, rtol=0.05)
    logs = [
        [json.loads(line) for line in (folder / "draft/log.jsonl").read_text().splitlines()]
        for folder in (build, mini / "build")
    ]
    assert len(logs[0]) == len(logs[1]) == 120
    assert logs[0][0] == pytest.approx(logs[1][0], abs=2e-5) and logs[0][-1] == pytest.approx(
        logs[1][-1], abs=2e-3
    )


# Masks and number formats


def test_flex_attention_behind_the_sparse_mask_is_sdpa_behind_the_dense_one(monkeypatch):
    """Forward and gradients of the packed pass; more slots than a tile of the sparse mask has, anchors at both ends.

    On a CPU torch refuses the gradients of FlexAttention, although its uncompiled form has them: that is patched.
    """
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    found = []
    for mask_of in (dense_mask, sparse_mask):
        problem = Problem()
        features = torch.randn(
            2, 150, problem.batches[0][2].shape[-1], generator=torch.Generator().manual_seed(0)
        )
        anchors = torch.tensor([[0, 7, 131, 149], [1, 2, 128, 140]]).repeat_interleave(16, 1)
        tokens = anchors % 11
        hidden = packed_hidden(
            problem.drafter, features.requires_grad_(), tokens, anchors, mask_of(anchors, 150, 3)
        )
        (hidden * torch.linspace(-1, 1, hidden.numel()).view_as(hidden)).sum().backward()
        found.append(
            (
                hidden,
                features.grad,
                {
                    name: p.grad
                    for name, p in problem.drafter.named_parameters()
                    if p.grad is not None
                },
            )
        )
    (hidden, gradient, gradients), (sparse_hidden, sparse_gradient, sparse_gradients) = found
    torch.testing.assert_close(sparse_hidden, hidden, atol=1e-5, rtol=1e-5)
    assert relative(sparse_gradient, gradient) < 1e-5
    assert gradients.keys() == sparse_gradients.keys() and len(gradients) > 10
    assert max(relative(sparse_gradients[name], gradients[name]) for name in gradients) < 1e-5


def test_the_sparse_mask_says_what_the_dense_one_says():
    anchors = torch.stack([torch.arange(64) * 4, torch.arange(64) * 2 + 1])
    dense, sparse = dense_mask(anchors, 300, 3), sparse_mask(anchors, 300, 3)
    rows, slots, keys = (torch.arange(size) for size in (2, dense.shape[2], dense.shape[3]))
    assert sparse.mask_mod(rows[:, None, None, None], None, slots[:, None], keys).equal(dense)
    tiles = torch.nn.functional.pad(
        dense.float(), (0, -dense.shape[3] % 128, 0, -dense.shape[2] % 128)
    )
    seen = tiles.unflatten(-1, (-1, 128)).unflatten(-3, (-1, 128)).amax((-1, -3))
    assert (sparse.to_dense() > 0).equal(seen > 0) and not seen.all()


def test_float16_scales_its_loss_and_resumes_to_the_very_same_model(tmp_path):
    """A scale that overflows is halved, and the halved one is kept in the save."""

    class Half(Problem):
        plan = dataclasses.replace(Problem.plan, precision="float16")

        def loss_of(self, batch, progress):
            with torch.autocast("cpu", torch.float16):
                return super().loss_of(batch, progress)

    whole_run = Half()
    log = whole_run.train(tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        Half().train(tmp_path / "stopped", stop_at=3)
    resumed = Half()
    assert resumed.train(tmp_path / "stopped") == log
    starts = Problem().drafter.state_dict()
    for name, value in whole_run.drafter.state_dict().items():
        assert resumed.drafter.state_dict()[name].equal(value), name
        assert value.isfinite().all() and (
            "embed" in name or "lm_head" in name or not value.equal(starts[name])
        ), name
    assert log[0] == pytest.approx(Problem().train(tmp_path / "plain")[0], abs=0.02)
