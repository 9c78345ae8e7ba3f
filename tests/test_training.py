"""Training: what a block may see, what it is scored on, what it is trained on, and that a stop loses nothing."""

import dataclasses
import json
import math
import os
import random
import signal
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from unittest import mock

import matplotlib.pyplot as plt
import numpy
import pytest
import torch
import torch.nn.functional as F
from huggingface_hub.utils import (
    are_progress_bars_disabled,
    disable_progress_bars,
    enable_progress_bars,
)
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoTokenizer
from transformers.utils import logging

from dspark_lite.common.errors import CheckpointError, DSparkLiteError
from dspark_lite.course.data import answers, estimate, language_model, recipes
from dspark_lite.course.names import DOMAINS
from dspark_lite.course.world.examples import examples
from dspark_lite.course.world.tokenizer import SPECIAL_TOKENS, chat_ids, train_tokenizer
from dspark_lite.decoding import generate
from dspark_lite.drafters import DSpark
from dspark_lite.drafters.dspark import transition_biases
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.models.checkpoints import load_drafter, load_target
from dspark_lite.training import blocks, cache, devices, drafts, train as training
from dspark_lite.training.blocks import (
    TrainingBatch,
    block_losses,
    block_mask,
    block_targets,
    dense_mask,
    draw_anchors,
    packed_hidden,
    training_forward,
)
from dspark_lite.training.plan import Plan
from dspark_lite.training.recipe import LossWeights
from helpers import DRAFT, LANGUAGE_MODEL, recipe_of

VOCAB, GAMMA = 11, 3
TARGET, DRAFTERS = toy_models(seed=2, vocab_size=VOCAB, gamma=GAMMA)

# Anchors


def test_anchors_are_distinct_supervised_positions_before_a_supervised_one():
    supervised = torch.zeros(3, 20, dtype=torch.bool)
    supervised[0, 5:18] = True  # twelve anchors are possible, six are drawn
    supervised[1, [2, 3, 4, 9]] = True  # two are possible
    anchors, valid = draw_anchors(supervised, 6, torch.Generator().manual_seed(0))
    assert valid.sum(-1).tolist() == [6, 2, 0]
    assert anchors[1][valid[1]].tolist() == [2, 3]
    first = anchors[0].tolist()
    assert first == sorted(set(first)) and set(first) <= set(range(5, 17))
    drawn = [
        draw_anchors(supervised, 6, torch.Generator().manual_seed(seed))[0][0].tolist()
        for seed in range(30)
    ]
    assert drawn[0] == first and {at for row in drawn for at in row} == set(range(5, 17))


def test_a_slot_counts_while_everything_up_to_its_token_is_supervised():
    ids, supervised = torch.arange(8)[None], torch.tensor([[0, 0, 1, 1, 1, 0, 1, 1]]).bool()
    anchors, valid = torch.tensor([[2, 3, 6, 0]]), torch.tensor([[True, True, True, False]])
    tokens, counted, before = block_targets(ids, supervised, anchors, valid, gamma=3)
    assert tokens[0, :2].tolist() == [[2, 3, 4, 5], [3, 4, 5, 6]] and tokens[0, 2, :2].tolist() == [
        6,
        7,
    ]
    # A hole in the supervision, the end of the text and an anchor that is none end the counting.
    assert counted[0].int().tolist() == [[1, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert before[0, 0].tolist() == [2, 3, 4] and before[0, 2, 0] == 6


def packed(drafter, ids, features, anchors):
    """Hidden states [B, K, g, H] of the blocks at `anchors`: the same with a mask and with attention written out."""
    anchor_ids = ids.gather(1, anchors)
    with torch.no_grad():
        masked = packed_hidden(
            drafter, features, anchor_ids, anchors, dense_mask(anchors, ids.shape[1], drafter.gamma)
        )
        torch.testing.assert_close(
            packed_hidden(drafter, features, anchor_ids, anchors, None), masked, atol=1e-5, rtol=0
        )
    return masked


@pytest.fixture(scope="module")
def text():
    """Two texts [2, 14], their features, and anchors [2, 3]."""
    ids = torch.randint(VOCAB, (2, 14), generator=torch.Generator().manual_seed(4))
    features = TARGET.prefill(ids, DRAFTERS["dspark"].taps)[0].features.clone()
    return ids, features, torch.tensor([[2, 5, 11], [1, 6, 7]])


@pytest.fixture(scope="module")
def two_layers():
    """A random DSpark of two layers."""
    torch.manual_seed(3)
    return DSpark(dataclasses.replace(DRAFTERS["dspark"].config, num_hidden_layers=2)).eval()


def test_a_packed_block_equals_drafting_behind_a_cache(text, two_layers):
    drafter = two_layers
    ids, features, anchors = text
    hidden = packed(drafter, ids, features, anchors)
    for row, block in [(row, block) for row in range(2) for block in range(3)]:
        at = anchors[row, block].item()
        state = drafter.begin(None, features[row : row + 1, :at])
        alone = drafter.block_hidden(state, ids[row : row + 1, at])
        torch.testing.assert_close(hidden[row, block], alone[0], atol=1e-5, rtol=0)


def test_a_block_sees_the_context_before_its_anchor_and_itself_only(text):
    ids, features, anchors = text
    drafter = DRAFTERS["dspark"]
    hidden = packed(drafter, ids, features, anchors)
    for block, at in enumerate(anchors[0].tolist()):
        for position in range(14):
            changed = features.clone()
            changed[0, position] += 1.0
            moved = (
                (packed(drafter, ids, changed, anchors)[0, block] - hidden[0, block]).abs().max()
            )
            assert (moved > 1e-4) == (position < at), (block, position)
        other_anchor = ids.clone()
        other_anchor[0, at] = (ids[0, at] + 1) % VOCAB
        moved = (
            (packed(drafter, other_anchor, features, anchors)[0] - hidden[0]).abs().amax((-1, -2))
        )
        assert (moved > 1e-4).tolist() == [other == block for other in range(3)]


@pytest.mark.parametrize("name", ["dflash", "dspark", "dspark_rnn"])
def test_the_training_pass_scores_what_drafting_would_draw_from(text, name):
    ids, features, anchors = text
    drafter, supervised = DRAFTERS[name], torch.ones_like(ids).bool()
    with torch.no_grad():
        logits, confidence, tokens, counted, before = training_forward(
            drafter,
            features,
            ids,
            supervised,
            anchors,
            torch.ones_like(anchors).bool(),
            block_mask(anchors, 14, GAMMA),
        )
        state = drafter.begin(None, features[:1, :5])
        hidden = drafter.block_hidden(state, ids[:1, 5])
        wanted = drafter.lm_head(hidden)
        if name != "dflash":
            wanted = wanted + transition_biases(drafter.markov_head, ids[:1, 5 : 5 + GAMMA], hidden)
            trusted = drafter.confidence_logits(hidden, ids[:1, 5 : 5 + GAMMA])
            torch.testing.assert_close(confidence[0, 1], trusted[0], atol=1e-5, rtol=0)
    torch.testing.assert_close(logits[0, 1], wanted[0], atol=1e-5, rtol=0)
    assert tokens[0, 1].tolist() == ids[0, 6 : 6 + GAMMA].tolist() and before[0, 1].tolist() == [
        5,
        6,
        7,
    ]
    # the last anchor stands two tokens before the end
    assert counted[0].sum(-1).tolist() == [
        3,
        3,
        2,
    ]


# Losses


def logits_of(probs):
    """Logits [1, 1, g, V] of probabilities [g, V], to be differentiated."""
    return torch.tensor(probs).clamp(min=1e-30).log()[None, None].requires_grad_()


def test_losses_of_a_block_by_hand():
    draft = logits_of([[0.5, 0.5, 0.0], [0.2, 0.2, 0.6]])
    target = logits_of([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]])
    found = block_losses(
        draft, target, torch.tensor([[[1, 2]]]), torch.ones(1, 1, 2).bool(), torch.zeros(1, 1, 2)
    )
    second = math.exp(-1 / 4)
    assert found.weight.item() == pytest.approx(1 + second)
    assert found.cross_entropy.item() == pytest.approx(-math.log(0.5) - second * math.log(0.6))
    assert found.l1.item() == pytest.approx(0.5)
    assert found.confidence.item() == pytest.approx((1 + second) * math.log(2))
    assert found.total(0.1, 0.9, 1.0).item() == pytest.approx(
        (0.1 * found.cross_entropy + 0.9 * found.l1 + found.confidence).item() / (1 + second)
    )


def test_confidence_is_trained_towards_the_chance_of_acceptance():
    """At the logit of sum min(p, q) its gradient vanishes, and it pulls at neither the draft nor the target."""
    draft, target = logits_of([[0.5, 0.5, 0.0]]), logits_of([[0.5, 0.2, 0.3]])
    confidence = torch.logit(torch.tensor([[[0.7]]])).requires_grad_()
    found = block_losses(
        draft, target, torch.tensor([[[0]]]), torch.ones(1, 1, 1).bool(), confidence
    )
    found.confidence.backward()
    assert confidence.grad.item() == pytest.approx(0, abs=1e-6)
    assert draft.grad is None or draft.grad.eq(0).all()


def test_uncounted_slots_do_not_matter():
    generator = torch.Generator().manual_seed(0)
    draft = torch.randn(2, 3, 4, 5, generator=generator)
    target = torch.randn(2, 3, 4, 5, generator=generator)
    tokens, confidence = torch.zeros(2, 3, 4, dtype=torch.long), torch.zeros(2, 3, 4)
    # beginnings of blocks, as block_targets has them
    counted = (torch.rand(2, 3, 4, generator=generator) < 0.7).long().cumprod(-1).bool()
    whole = block_losses(draft, target, tokens, counted, confidence)
    noise = torch.randn(2, 3, 4, 1, generator=generator) * ~counted[..., None]
    spoiled = block_losses(
        draft + noise * torch.arange(5),
        target - noise * torch.arange(5),
        tokens,
        counted,
        confidence + noise[..., 0],
    )
    for ours, theirs in zip(whole, spoiled, strict=True):
        assert ours.item() == pytest.approx(theirs.item())


@torch.no_grad()
def test_a_training_weighs_the_terms_by_the_recipes_factors_and_lets_positions_decay_with_the_draft_length_unless_it_says_how(
    text,
):
    ids, features, anchors = text
    last_hidden, _ = TARGET.last_hidden(ids, DRAFTERS["dspark"].taps)

    def loss(anchors, **weights):
        batch = TrainingBatch(
            ids,
            torch.ones(2, 14).bool(),
            features,
            last_hidden,
            anchors,
            torch.ones_like(anchors).bool(),
        )
        return blocks.block_loss(DRAFTERS["dspark"], batch, LossWeights(**weights), 1.0)

    factors = {"cross_entropy": 2.0, "l1": 3.0, "confidence": 5.0}
    numerator, weight, terms = loss(anchors, **factors)
    assert set(terms) == set(factors) and min(terms.values()) > 0 and weight > 1
    assert numerator.item() == pytest.approx(
        sum(factor * terms[name].item() for name, factor in factors.items())
    )
    direct, _, four = loss(anchors, **factors, acceptance=0.5)
    assert four["acceptance"] < 0 and direct.item() == pytest.approx(
        numerator.item() + 0.5 * four["acceptance"].item()
    )
    for given, decay in ((None, GAMMA), (4.0, 4.0)):
        _, weight, _ = loss(anchors[:, :1], position_decay=given)
        assert weight.item() == pytest.approx(2 * sum(math.exp(-k / decay) for k in range(GAMMA)))


# The tokenizer


@pytest.fixture(scope="module")
def tokenizer():
    """A small tokenizer."""
    return train_tokenizer(400, seed=1, per_domain=40)


def test_the_tokenizer_has_its_size_and_qwens_special_tokens(tokenizer):
    assert len(tokenizer) == 400
    assert tokenizer.convert_tokens_to_ids(SPECIAL_TOKENS) == list(range(395, 400))
    assert (tokenizer.eos_token, tokenizer.pad_token, tokenizer.padding_side) == (
        "<|im_end|>",
        "<|endoftext|>",
        "left",
    )
    again = train_tokenizer(400, seed=1, per_domain=40)
    assert again.get_vocab() == tokenizer.get_vocab()


def test_text_comes_back_as_it_was(tokenizer):
    texts = [
        example.prompt + "\n" + example.answer
        for domain in DOMAINS
        for example in examples(domain, 20, seed=9)
    ]
    for text in [*texts, "naïve – 你好 🙂\t\r\n  two  blanks ", ""]:
        assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text
    assert len(tokenizer("2026", add_special_tokens=False)["input_ids"]) == 4  # digits stand alone


def test_the_chat_template_is_qwens_with_thinking_off(tokenizer, tmp_path):
    ids = chat_ids(tokenizer, "Hi there")
    assert tokenizer.decode(ids) == (
        "<|im_start|>user\nHi there<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    )
    assert ids[0] == tokenizer.convert_tokens_to_ids("<|im_start|>")
    conversation = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert tokenizer.apply_chat_template(conversation, tokenize=False) == (
        "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nb<|im_end|>\n"
    )
    tokenizer.save_pretrained(tmp_path)
    assert chat_ids(AutoTokenizer.from_pretrained(tmp_path), "Hi there") == ids


# The optimisation loop


class Stop(Exception):
    """A run that is stopped."""


def stop_after(monkeypatch, module, name, calls):
    """Lets `module.name` work `calls` times and then stop the run; returns the list of calls made."""
    work, made = getattr(module, name), []

    def limited(*arguments, **options):
        if len(made) == calls:
            raise Stop
        made.append(name)
        return work(*arguments, **options)

    monkeypatch.setattr(module, name, limited)
    return made


class Regression:
    """A small problem for the loop: 12 steps, a batch a step, saves at every step unless told otherwise."""

    def __init__(self, folder, save_seconds=-1.0, **options):
        torch.manual_seed(3)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
        )
        self.model[2].bias.requires_grad_(False)
        self.folder, self.save_seconds = folder, save_seconds
        self.plan = Plan(**{"steps": 12, "learning_rate": 0.05, "weight_decay": 0.1, **options})

    def run(self, loss_of=None, stop_at=None):
        """The log of the run, with another loss if one is given; stops before the loss of step `stop_at`."""

        def batch_at(step):
            return torch.full((16,), step), torch.randn(
                16, 4, generator=torch.Generator().manual_seed(step)
            )

        with mock.patch.object(training, "SAVE_SECONDS", self.save_seconds):
            return training.optimise(
                self.model,
                batch_at,
                loss_of or partial(self.loss, stop_at),
                self.plan,
                self.folder,
                title="test",
            )

    def loss(self, stop_at, batch, progress, factor=1.0):
        step, inputs = batch
        if step[0] == stop_at:
            raise Stop
        loss = F.mse_loss(self.model(inputs).squeeze(-1), inputs.sum(-1), reduction="sum")
        if self.plan.precision == "float16" and step[0] == 3:
            # a gradient that overflows, which the scaler skips: its scale is halved
            factor = math.inf
        return factor * loss, torch.tensor(len(inputs)), {"loss": loss.detach()}


@pytest.mark.parametrize("options", [{}, {"matrix_rate": 0.02}, {"precision": "float16"}])
def test_a_stopped_training_resumes_to_the_very_same_model_and_log(tmp_path, monkeypatch, options):
    """Stopped in a step, between a log and its save, and in steps after the last save, which are repeated."""
    unstopped, stopped = Regression(tmp_path / "unstopped", **options), tmp_path / "stopped"
    wanted = unstopped.run()
    for at, seconds, saves in (
        (1, -1.0, 99),
        (4, -1.0, 99),
        (99, -1.0, 2),
        (9, 1e6, 99),
        (10, -1.0, 99),
    ):
        with monkeypatch.context() as patch, pytest.raises(Stop):
            stop_after(patch, training.Saves, "_write_progress", saves)
            Regression(stopped, seconds, **options).run(stop_at=at)
    run = Regression(stopped, **options)
    log = run.run()
    assert (
        log == wanted
        and [row["step"] for row in log] == list(range(12))
        and log[-1]["loss"] < log[0]["loss"]
    )
    assert (stopped / "log.jsonl").read_text() == (unstopped.folder / "log.jsonl").read_text()
    for ours, theirs in zip(run.model.parameters(), unstopped.model.parameters(), strict=True):
        assert ours.equal(theirs)
    saves = [folder / "progress.safetensors" for folder in (stopped, unstopped.folder)]
    (ours, said), (theirs, wanted) = (
        (load_file(path), safe_open(path, "pt").metadata()) for path in saves
    )
    assert (
        ours.keys() == theirs.keys()
        and all(ours[name].equal(theirs[name]) for name in ours)
        and said == wanted
    )
    scale = json.loads(said["scaler"]).get("scale")
    assert scale == (2**15 if options.get("precision") == "float16" else None), (
        "halved once, from 2^16"
    )


def test_a_training_saves_once_a_minute_and_at_its_end(tmp_path, monkeypatch):
    """With updates of 25 s a save is due at the third after the last one; the clock is ours."""
    run, seconds, saved = Regression(tmp_path, save_seconds=60.0, steps=8), [1000.0], []
    work = training.Saves._write_progress
    monkeypatch.setattr(training.time, "monotonic", lambda: seconds[0])
    monkeypatch.setattr(
        training.Saves,
        "_write_progress",
        lambda saves, step, finished: saved.append(step) or work(saves, step, finished),
    )

    def an_update(batch, progress):
        seconds[0] += 25
        return run.loss(None, batch, progress)

    run.run(an_update)
    assert saved == [3, 6, 8]


def test_a_damaged_or_foreign_save_is_told_and_one_of_something_else_forgotten(tmp_path, capsys):
    Regression(tmp_path / "one").run()
    path = tmp_path / "one" / "progress.safetensors"
    other = Regression(path.parent)
    other.model[0] = torch.nn.Linear(4, 9)
    with pytest.raises(CheckpointError, match="cannot be resumed from .*; delete its folder"):
        other.run()
    training.forget_others(tmp_path, "")
    assert path.exists() and capsys.readouterr().out == ""
    whole = path.read_bytes()
    training.forget_others(tmp_path, "another")
    assert (
        not path.exists()
        and not path.with_name("log.jsonl").exists()
        and "starts from the beginning" in capsys.readouterr().out
    )
    path.write_bytes(whole[:-50])
    training.forget_others(tmp_path, "another")
    with pytest.raises(
        CheckpointError, match="progress.safetensors cannot be resumed from .*; delete its folder"
    ) as caught:
        Regression(path.parent).run()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("speed", "asked", "taken"),
    [
        (0.01, "bfloat16", "float32"),
        (2.0, "bfloat16", "bfloat16"),
        (0.5, "float16", "float32"),
        (9.0, "float32", "float32"),
    ],
)
def test_sixteen_bits_are_taken_on_a_cpu_only_where_they_are_faster(
    monkeypatch, speed, asked, taken
):
    monkeypatch.setattr(
        devices,
        "operations_a_second",
        lambda device, dtype: 1.0 if dtype == torch.float32 else speed,
    )
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (8, 0))
    precision_on = devices.precision_on.__wrapped__  # which remembers nothing
    assert (
        precision_on(torch.device("cpu"), asked) == taken
        and precision_on(torch.device("cuda"), asked) == asked
    )


def test_the_learning_rate_warms_up_and_comes_down():
    plan = Plan(steps=100, learning_rate=2.0)
    rates = [plan.learning_rate * plan.rate(step, plan.progress(step)) for step in range(100)]
    assert rates[:4] == [0.5, 1.0, 1.5, 2.0] and max(rates) == 2.0
    assert rates[4:] == sorted(rates[4:], reverse=True) and rates[99] == pytest.approx(0.04)


def test_what_a_plan_leaves_out():
    """Warm-up over 4 % of the updates, an end at 2 % of the peak, no decay of weights, float32, a save a minute, all of the time."""
    plan = Plan(steps=101, learning_rate=1.0)
    rates = [plan.rate(step, plan.progress(step)) for step in (0, 3, 4, 100)]
    assert rates == pytest.approx([1 / 4.04, 4 / 4.04, 1.0, 0.02]) and plan.rate(
        52, 0.52
    ) == pytest.approx(0.51)
    assert (plan.matrix_rate, plan.precision, plan.time_share) == (None, "float32", (0, 1))
    assert plan.time_over() == 0 and training.SAVE_SECONDS == 60


def test_constant_rates_of_several_passes_fall_over_the_last_updates():
    trunk = Plan(steps=200, learning_rate=2.0, progress_updates=100, cooldown_updates=0)
    assert [trunk.rate(step, trunk.progress(step)) for step in (0, 3, 50, 199)] == [0.25, 1, 1, 1]
    assert [trunk.progress(step) for step in (0, 99, 150)] == [0, 1, 1]
    branch = Plan(steps=210, learning_rate=2.0, progress_updates=100, cooldown_updates=10)
    rates = [branch.rate(step, branch.progress(step)) for step in range(210)]
    assert rates[:200] == [trunk.rate(step, trunk.progress(step)) for step in range(200)]
    assert rates[199:] == pytest.approx([1 - k / 11 for k in range(11)])


def test_the_optimisers_have_the_plans_rates_and_a_loss_that_takes_it_the_progress_as_a_number(
    tmp_path, monkeypatch
):
    run, rates, seen = Regression(tmp_path, matrix_rate=0.02), [], []
    work = training.update
    monkeypatch.setattr(
        training,
        "update",
        lambda accelerator, loss_module, optimisers, *rest: (
            rates.append([group["lr"] for one in optimisers for group in one.param_groups])
            or work(accelerator, loss_module, optimisers, *rest)
        ),
    )
    run.run(lambda batch, progress: seen.append(progress) or run.loss(None, batch, progress))
    assert rates == [
        [peak * run.plan.rate(step, run.plan.progress(step)) for peak in (0.05, 0.02)]
        for step in range(12)
    ]
    assert seen == [step / 11 for step in range(12)]


@pytest.mark.parametrize(
    ("precision", "factor", "clipped"),
    [("float32", 1000, True), ("float16", 1000, True), ("float32", 1e-3, False)],
)
def test_a_large_gradient_is_clipped_to_length_one_without_the_scale_of_its_loss(
    tmp_path, precision, factor, clipped
):
    """After one step Adam's first moment is a tenth of the gradient."""
    run = Regression(tmp_path, steps=1, precision=precision)
    run.run(lambda batch, progress: run.loss(None, batch, progress, factor))
    saved = load_file(tmp_path / "progress.safetensors")
    moments = [
        moment.flatten() for name, moment in saved.items() if name.startswith("optimiser.exp_avg.")
    ]
    length = torch.cat(moments).norm().item()
    assert len(moments) == 3 and (
        length == pytest.approx(0.1, rel=1e-3) if clipped else 0 < length < 0.01
    )
    squares = sum(
        moment.sum().item()
        for name, moment in saved.items()
        if name.startswith("optimiser.exp_avg_sq.")
    )
    assert squares == pytest.approx(0.02 * (length / 0.1) ** 2, rel=1e-3), (
        "AdamW's second moment forgets by 0.98"
    )


def test_muons_momentum_has_a_twentieth_of_a_gradient_and_the_same_clipping(tmp_path):
    run = Regression(tmp_path, steps=1, matrix_rate=0.02)
    run.run(lambda batch, progress: run.loss(None, batch, progress, 1000))
    saved = load_file(tmp_path / "progress.safetensors")
    share = {"momentum_buffer": 0.05, "exp_avg": 0.1}
    gradient = [
        moment.flatten() / share[name.split(".")[1]]
        for name, moment in saved.items()
        if name.split(".")[1] in share
    ]
    assert torch.cat(gradient).norm().item() == pytest.approx(1, rel=1e-3)
    assert {name for name in saved if "momentum_buffer" in name} == {
        "optimiser.momentum_buffer.0.weight"
    }


@pytest.mark.parametrize("matrix_rate", [None, 0.02])
@pytest.mark.parametrize("decay", [{}, {"weight_decay": 0.25}])
def test_without_a_gradient_weights_decay_by_the_rate_times_the_plans_decay_and_by_default_not_at_all(
    tmp_path, matrix_rate, decay
):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4)
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    def loss_of(batch, progress):
        nothing = 0 * (model.weight.sum() + model.bias.sum())
        return nothing, torch.tensor(1.0), {"loss": nothing}

    training.optimise(
        model,
        lambda step: (torch.ones(1),),
        loss_of,
        Plan(1, 0.1, matrix_rate, **decay),
        tmp_path,
        title="test",
    )
    rates = {"weight": matrix_rate or 0.1, "bias": 0.1}
    for name, parameter in model.named_parameters():
        kept = 1 - rates[name] * decay.get("weight_decay", 0)
        torch.testing.assert_close(parameter.detach(), before[name] * kept, rtol=1e-6, atol=0)


@pytest.mark.parametrize(
    ("precision", "spoiled"),
    [("float32", "loss"), ("float32", "gradient"), ("float16", "loss"), ("float16", "gradient")],
)
def test_a_training_stops_where_its_loss_is_no_number_and_the_last_save_stays(
    tmp_path, precision, spoiled
):
    """A scaled loss whose gradient overflows is the scaler's to skip."""
    run = Regression(tmp_path, precision=precision)

    def loss_of(batch, progress):
        numerator, weight, record = run.loss(None, batch, progress)
        factor = math.inf if batch[0][0] == 5 else 1.0
        return (
            numerator * factor,
            weight,
            {"loss": record["loss"] * factor if spoiled == "loss" else record["loss"]},
        )

    if (precision, spoiled) == ("float16", "gradient"):
        assert len(run.run(loss_of)) == 12
    else:
        with pytest.raises(DSparkLiteError, match=f"step 5, .*{spoiled} .*smaller learning_rate"):
            run.run(loss_of)
        assert [row["step"] for row in training.read_log(tmp_path / "log.jsonl")] == list(range(5))
    assert all(
        value.isfinite().all()
        for value in [
            *run.model.parameters(),
            *load_file(tmp_path / "progress.safetensors").values(),
        ]
    )


def test_half_a_line_of_a_log_is_left_out_and_a_line_that_is_no_record_named(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text('{"step": 0}\n{"st')
    assert training.read_log(path) == [{"step": 0}]
    path.write_text('{"step": 0}\n{"st\n')
    with pytest.raises(CheckpointError, match="log.jsonl has a line that is no record"):
        training.read_log(path)


# Recipes


@pytest.fixture(scope="module")
def mini(tmp_path_factory):
    """A folder with a language model and a drafter for it, trained without a stop by assets/recipes/`name`.json."""
    folder = tmp_path_factory.mktemp("mini")
    (folder / "mini.json").write_text(json.dumps(LANGUAGE_MODEL))
    (folder / "mini-draft.json").write_text(json.dumps({**DRAFT, "target": str(folder / "mini")}))
    with pytest.MonkeyPatch.context() as patch:
        small_pieces(patch)
        for name in ("mini", "mini-draft"):
            train(folder, name, folder / name, folder / "build")
    return folder


def small_pieces(patch):
    """Saves at every step, five answers and four sequences at a time, so that a short run has many places to stop; one process."""
    patch.setattr(training, "SAVE_SECONDS", -1.0)
    patch.setattr(answers, "CHUNK", 5)
    patch.setattr(cache, "SHARD", 4)
    patch.setattr("os.cpu_count", lambda: 1)


def train(folder, name, out, build):
    """The training command's work on a recipe of `folder`."""
    return recipes.train(str(folder / f"{name}.json"), device="cpu", out=out, build=build)


def assert_same_files(first, second):
    assert sorted(path.name for path in first.iterdir()) == sorted(
        path.name for path in second.iterdir()
    )
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name


def test_a_language_model_recipe_gives_a_target_with_its_tokenizer(mini):
    target = load_target(str(mini / "mini"))
    assert (target.vocab_size, target.num_layers, len(target.tokenizer)) == (400, 3, 399)
    assert target.stop_token_ids == (target.tokenizer.eos_token_id,)
    first, second = (
        [json.loads(line) for line in log.read_text().splitlines()] for log in logs(mini / "build")
    )
    assert (len(first), len(second)) == (6, 2) and second[-1]["loss"] < first[0]["loss"]


def test_a_language_model_trains_on_from_its_initial_checkpoint(mini, tmp_path):
    held = str(mini / "mini")
    recipe = {
        "name": "more",
        "extends": held + ".json",
        "initial": held,
        "tokenizer_of": held,
        "phases": [],
    }
    (tmp_path / "more.json").write_text(json.dumps(recipe))
    train(tmp_path, "more", tmp_path / "out", tmp_path / "build")
    assert (tmp_path / "out" / "model.safetensors").read_bytes() == (
        mini / "mini" / "model.safetensors"
    ).read_bytes()


def test_a_draft_recipe_gives_a_drafter_that_shares_the_targets_embedding(mini):
    target = load_target(str(mini / "mini"))
    drafter = load_drafter(str(mini / "mini-draft"), target)
    shared = target.model.get_input_embeddings().weight.data_ptr()
    assert drafter.embed_tokens.weight.data_ptr() == drafter.lm_head.weight.data_ptr() == shared
    assert drafter.markov_head.markov_w2.weight.abs().max() > 0  # it starts at zero
    assert json.loads((mini / "mini-draft" / "config.json").read_text())["num_anchors"] == 4
    prompt = torch.tensor([chat_ids(target.tokenizer, "Hi")])
    plain, drafted = (
        generate(target, d, prompt, max_new_tokens=20).token_ids for d in (None, drafter)
    )
    assert plain == drafted


def process_state():
    """What belongs to the whole process, by name: settings, generators and what is switched on."""
    return {
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "path": list(sys.path),
        "warnings": list(warnings.filters),
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "figures": dict(plt.rcParams),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "numbers": (
            torch.get_default_dtype(),
            torch.get_float32_matmul_precision(),
            torch.are_deterministic_algorithms_enabled(),
        ),
        "gradients": (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            torch.is_anomaly_enabled(),
        ),
        "draws": (torch.get_rng_state().tolist(), str(numpy.random.get_state()), random.getstate()),
        "words": (
            logging.get_verbosity(),
            logging.is_progress_bar_enabled(),
            are_progress_bars_disabled(),
        ),
    }


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("bars", [True, False])
def test_a_training_leaves_its_process_as_it_found_it_also_where_it_is_stopped(
    mini, tmp_path, monkeypatch, stopped, bars
):
    """Answers, cache, updates and what is loaded for them; a process whose own settings are others than ours."""
    small_pieces(monkeypatch)
    random.seed(3)
    numpy.random.seed(3)
    torch.manual_seed(3)
    if not bars:
        disable_progress_bars()
    try:
        for name in ("mini", "mini-draft"):
            before = process_state()
            with monkeypatch.context() as patch, pytest.raises(Stop) if stopped else nullcontext():
                stop_after(patch, training, "update", 1 if stopped else 99)
                train(mini, name, tmp_path / name, tmp_path / "build")
            after = process_state()
            assert [key for key in before if before[key] != after[key]] == []
    finally:
        enable_progress_bars()


def test_a_measured_speed_a_new_draft_and_answers_draw_nothing_from_the_callers_generator(mini):
    target = load_target(str(mini / "mini"))
    begun = torch.get_rng_state()
    devices.operations_a_second(torch.device("cpu"), torch.float32)
    drafts.new_draft(recipe_of(DRAFT, target="mini"), target)
    one, again, other = (
        answers.write_answers(target, [[1, 2], [3]], 1.0, 8, seed) for seed in (1, 1, 2)
    )
    assert torch.get_rng_state().equal(begun) and one == again != other


def logs(build):
    """The logs of the language model's two phases."""
    return [build / "mini" / f"phase_{number}" / "log.jsonl" for number in (1, 2)]


def test_a_language_model_recipe_stopped_in_both_phases_resumes_to_the_same_files(
    mini, tmp_path, monkeypatch
):
    small_pieces(monkeypatch)
    for calls in (2, 5):  # the second stop comes after the first step of the second phase
        with monkeypatch.context() as patch, pytest.raises(Stop):
            stop_after(patch, language_model, "pad", calls)
            train(mini, "mini", tmp_path / "out", tmp_path / "build")
    assert not (tmp_path / "out").exists()
    made = stop_after(monkeypatch, language_model, "pad", 99)
    train(mini, "mini", tmp_path / "out", tmp_path / "build")
    assert len(made) == 1
    assert_same_files(tmp_path / "out", mini / "mini")
    for ours, theirs in zip(logs(tmp_path / "build"), logs(mini / "build"), strict=True):
        assert ours.read_text() == theirs.read_text()


def test_a_draft_recipe_stopped_at_every_stage_resumes_to_the_same_files(
    mini, tmp_path, monkeypatch
):
    small_pieces(monkeypatch)
    stages = [
        (answers, "write_answers", 1),
        (cache, "write_tensors", 2),
        (blocks, "block_losses", 3),
    ]
    for module, name, calls in stages:
        with monkeypatch.context() as patch, pytest.raises(Stop):
            stop_after(patch, module, name, calls)
            train(mini, "mini-draft", tmp_path / "out", tmp_path / "build")
    assert not (tmp_path / "out").exists()
    counts = [stop_after(monkeypatch, module, name, 99) for module, name, _ in stages]
    train(mini, "mini-draft", tmp_path / "out", tmp_path / "build")
    # answers and cache are there, five of eight steps are left
    assert [len(made) for made in counts] == [
        0,
        0,
        8 - 3,
    ]
    assert_same_files(tmp_path / "out", mini / "mini-draft")
    assert (tmp_path / "build/mini-draft/log.jsonl").read_text() == (
        mini / "build/mini-draft/log.jsonl"
    ).read_text()


def test_answers_are_the_targets_own_and_resume_where_they_stopped(mini, tmp_path, monkeypatch):
    small_pieces(monkeypatch)
    target, data = load_target(str(mini / "mini")), recipe_of(DRAFT).data
    work, seeds = answers.write_answers, []
    monkeypatch.setattr(
        answers,
        "write_answers",
        lambda *given, **options: seeds.append(given[-1]) or work(*given, **options),
    )
    whole = answers.answered_rows(target, data, tmp_path / "whole.jsonl")
    assert len(whole) == 14 and len(seeds) == len(set(seeds)) == 3  # every chunk has its own
    allowed = {
        tuple(chat_ids(target.tokenizer, example.prompt))
        for d, n in data.prompts.items()
        for example in examples(d, n, 7)
    }
    assert {tuple(ids[:length]) for ids, length in whole} <= allowed
    path = tmp_path / "half.jsonl"
    for kept in (5, 7):  # after a chunk, and within one
        path.write_text(
            "".join((tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)[:kept])
        )
        assert answers.answered_rows(target, data, path) == whole


def test_answers_are_drawn_as_the_data_says(mini, tmp_path):
    """Each way to leave one candidate alone gives the greedy answers."""
    target = load_target(str(mini / "mini"))
    data = recipe_of(DRAFT, data={"prompts": {"math": 2, "chat": 2}}).data

    def rows(**changes):
        return answers.answered_rows(
            target, replace(data, **changes), tmp_path / f"{changes}.jsonl"
        )

    greedy, drawn = rows(temperature=0.0), rows()
    for changes in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}):
        assert rows(**changes) == greedy != drawn, changes
    short = rows(temperature=0.0, max_new_tokens=3)
    assert [(ids[: length + 3], length) for ids, length in greedy] == short


def test_answers_in_a_batch_equal_answers_alone_whatever_the_targets_generation_config_asks_for(
    mini,
):
    target = load_target(str(mini / "mini"))
    prompts = [
        chat_ids(target.tokenizer, text)
        for text in ("Hi", "How can I sleep better as a student?", "Write a function.")
    ]
    config = target.model.generation_config
    config.eos_token_id = stop = generate(
        target, None, torch.tensor([prompts[1]]), max_new_tokens=12
    ).token_ids[3]
    alone = [
        generate(target, None, torch.tensor([prompt]), max_new_tokens=12).token_ids
        for prompt in prompts
    ]
    greedy, sampled = (
        answers.write_answers(target, prompts, temperature, 12, seed=0)
        for temperature in (0.0, 1.0)
    )
    assert greedy == alone != sampled and greedy[1][-1] == stop and len(greedy[1]) <= 4
    config.update(
        repetition_penalty=1.6,
        no_repeat_ngram_size=2,
        bad_words_ids=[[greedy[0][0]]],
        min_p=0.9,
        min_new_tokens=10,
    )
    assert [
        answers.write_answers(target, prompts, temperature, 12, seed=0)
        for temperature in (0.0, 1.0)
    ] == [greedy, sampled]
    assert target.model.generation_config.repetition_penalty == 1.6


def test_rows_of_a_language_model_end_with_the_stop_token_and_weigh_the_prompt_less(tokenizer):
    rows, again, other = (
        language_model.corpus_rows(tokenizer, {"math": 5, "chat": 5}, seed, processes=1)
        for seed in (1, 1, 2)
    )
    first, again, other = (
        [(ids.tolist(), length) for ids, length in found] for found in (rows, again, other)
    )
    assert first == again != other
    for ids, length in rows:
        assert ids[-1] == tokenizer.eos_token_id and 0 < length < len(ids)
    ids, weight = language_model.pad([([5, 6, 7], 2), ([8, 9, 1, 2], 1)], "cpu")
    assert ids.tolist() == [[5, 6, 7, 0], [8, 9, 1, 2]]
    light = language_model.PROMPT_WEIGHT
    assert weight.tolist() == [pytest.approx([light, light, 1, 0]), pytest.approx([light, 1, 1, 1])]


@pytest.mark.parametrize(
    "pool",
    [
        ThreadPoolExecutor,
        pytest.param(
            ProcessPoolExecutor,
            marks=pytest.mark.slow(reason="two processes, each of which imports torch"),
        ),
    ],
)
def test_rows_are_the_same_by_one_process_and_by_several_and_no_piece_is_another(
    tokenizer, monkeypatch, pool
):
    asked, threads = [], pool is ThreadPoolExecutor
    monkeypatch.setattr(
        language_model,
        "ProcessPoolExecutor",
        lambda count, context: (
            asked.append(count) or (pool(count) if threads else pool(count, context))
        ),
    )
    monkeypatch.setattr(language_model, "PIECE", 4)
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    counts = {"chat": 10, "math": 3}
    one, two, by_all = (
        [
            (ids.tolist(), length)
            for ids, length in language_model.corpus_rows(tokenizer, counts, 1, processes=count)
        ]
        for count in (1, 2, None if threads else 1)
    )
    assert one == two == by_all
    assert len({tuple(ids) for ids, _ in one}) == 13
    assert asked == ([2, 4] if threads else [2]), "a process for each piece, where there are cores"
    alone = [
        [
            tuple(ids)
            for ids, _ in language_model.corpus_rows(tokenizer, {name: count}, 1, processes=1)
        ]
        for name, count in counts.items()
    ]
    drawn = [tuple(ids) for ids, _ in one]
    assert sorted(drawn) == sorted(alone[0] + alone[1]) and drawn not in (
        alone[0] + alone[1],
        alone[1] + alone[0],
    ), "domains are mixed"


def test_batches_hold_every_row_once_and_rows_of_similar_length_and_another_seed_brings_others_together():
    lengths = [1 + n % 400 for n in range(1600)]
    batches, again, other = (
        training.by_length(list(range(1600)), 4, seed, lengths.__getitem__) for seed in (3, 3, 4)
    )
    assert (
        batches == again
        and sorted(row for batch in batches for row in batch) == list(range(1600))
        and {*map(len, batches)} == {4}
    )
    by_batch = [[lengths[row] for row in batch] for batch in batches]
    assert sum(max(alike) - min(alike) for alike in by_batch) / 400 < 10, (
        "of random batches it is 240"
    )
    # Also not within the 64 batches whose rows are sorted together.
    for size, apart in ((64, 100), (400, 40)):
        first, second = (
            sum(map(sum, half)) / (2 * size)
            for half in (by_batch[: size // 2], by_batch[size // 2 : size])
        )
        assert abs(first - second) < apart, (
            "no trend from short to long: within a group in order they differ by 200"
        )
    few = [training.by_length(list(range(40)), 4, seed, lambda row: row) for seed in (1, 2)]
    for ours, theirs in ((batches, other), few):
        assert len({*map(frozenset, ours)} & {*map(frozenset, theirs)}) < len(ours) / 10


SMALL = {key: value for key, value in DRAFT.items() if key != "name"} | {"target": "tiny-target"}


def test_a_recipe_is_laid_over_the_one_it_extends_and_is_called_as_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr("dspark_lite.course.data.recipes.RECIPES", tmp_path)
    (tmp_path / "base.json").write_text(json.dumps(SMALL))
    (tmp_path / "thin-0.5.json").write_text(
        '{"name": "base", "extends": "base", "config": {"markov_rank": 2}}'
    )
    thin = recipe_of(SMALL, name="thin-0.5", config={"markov_rank": 2})
    assert recipes.load_recipe("thin-0.5") == thin
    assert recipes.load_recipe(str(tmp_path / "thin-0.5.json")) == thin
    own = tmp_path / "own" / "base.json"  # another file of the same name
    own.parent.mkdir()
    own.write_text('{"extends": "base", "seed": 5}')
    assert recipes.load_recipe(str(own)) == recipe_of(SMALL, name="base", seed=5)
    with pytest.raises(DSparkLiteError, match="there is no file absent.jsonl"):
        recipes.load_recipe("base", {"data.dataset": "absent.jsonl", "data.prompts": 9})
    (tmp_path / "base.json").write_text('{"extends": "thin-0.5"}')
    with pytest.raises(DSparkLiteError, match="extends"):
        recipes.load_recipe("thin-0.5")


def test_what_is_set_on_the_command_line_makes_a_recipe_with_a_name_of_its_own():
    changes = recipes.read_changes(
        ["seed=2", "loss.l1=0.5", "config.target_layer_ids=[1,7]", "initial=some/folder"]
    )
    assert changes == {
        "seed": 2,
        "loss.l1": 0.5,
        "config.target_layer_ids": [1, 7],
        "initial": "some/folder",
    }
    made, base = recipes.load_recipe("tiny-dspark", changes), recipes.load_recipe("tiny-dspark")
    assert (
        made.name
        == "tiny-dspark+seed=2+loss.l1=0.5+config.target_layer_ids=_1,7_+initial=some_folder"
    )
    assert (
        made.loss == replace(base.loss, l1=0.5)
        and made.config.target_layer_ids == (1, 7)
        and made.initial == "some/folder"
    )
    assert "/" not in made.name and recipes.load_recipe("tiny-dspark") == base
    with pytest.raises(DSparkLiteError, match="--set seed has no value; write FIELD=VALUE"):
        recipes.read_changes(["seed"])


@pytest.mark.parametrize(
    ("name", "change", "sentence"),
    [
        *(
            ("tiny-dspark", *case)
            for case in [
                (
                    {"bacth": 3},
                    "tiny-dspark.json has a field 'bacth' that is not known; its fields are .*batch",
                ),
                ({"loss.l1": "much"}, "loss: l1 is 'much'; it must be a number"),
                (
                    {"config.block_size": 0},
                    "config: block_size is 0; it must be a whole number of at least 1",
                ),
                (
                    {"config.target_layer_ids": [1, "a"]},
                    "target_layer_ids is 'a'; it must be a whole number",
                ),
                (
                    {"config.enable_confidence_head": 1},
                    "enable_confidence_head is 1; it must be true or false",
                ),
                (
                    {"data.prompts": {"math": 2.5}},
                    "data: prompts: math is 2.5; it must be a whole number",
                ),
                ({"data.held_out": -1}, "held_out is -1; it must be a whole number of at least 0"),
                (
                    {"learning_rate": -0.1},
                    "learning_rate is -0.1; it must be a number of at least 0",
                ),
                ({"learning_rate": math.inf}, "learning_rate is inf"),
                ({"learning_rate": 1e38}, "at most 1e30"),
                ({"data.temperature": math.nan}, "temperature is nan"),
                (
                    {"loss.position_decay": math.nan},
                    "position_decay is nan; it must be a number above 0",
                ),
                ({"patience": math.nan}, "patience is nan"),
                ({"loss.position_decay": 0}, "position_decay is 0"),
                ({"loss.cross_entropy_first": math.nan}, "cross_entropy_first is nan"),
                *(
                    (
                        {"data.top_p": value},
                        f"top_p is {value}; it must be a number above 0, at most 1",
                    )
                    for value in (0, 2)
                ),
                *(
                    (
                        {place: 2**63},
                        "seed is 9223372036854775808; it must be a whole number from 0 to",
                    )
                    for place in ("seed", "data.seed")
                ),
                (
                    {"data.prompts": {"math": -1}},
                    "prompts: math is -1; it must be a whole number of at least 0",
                ),
                ({"data.prompts": 0}, "prompts is 0"),
                (
                    {"data.prompts": 5},
                    "prompts is 5; without a .dataset. it must be an object .*math, code, chat",
                ),
                ({"data.prompts": {"maths": 5}}, "prompts is {'maths': 5}; .*math, code, chat"),
                ({"data.prompts": {"math": 5}, "data.held_out": 5}, "held_out is 5 of 5 prompts"),
                ({"data.prompts": {"math": 0}, "data.held_out": 0}, "held_out is 0 of 0 prompts"),
                ({"data.dataset": "a/b"}, "a/b is read by a number of"),
                ({"data": 3}, "data is 3; it must be an object with the fields prompts"),
                ({"data": None}, "has no field 'data'"),
                ({"target": None}, "has no field 'target'"),
                ({"epochs": True}, "epochs is True; it must be a whole number"),
                ({"seed": None}, "seed is None; it must be a whole number"),
                (
                    {"precision": "float8"},
                    "precision is 'float8'; it must be one of 'float32', 'bfloat16', 'float16'",
                ),
                (
                    {"kind": "drafter"},
                    "kind is 'drafter'; it must be one of 'language_model', 'draft'",
                ),
                ({"seed.more": 1}, "has no inner fields in 'seed'"),
            ]
        ),
        ("tiny-target", {"phases": 2}, "phases is 2; it must be a list"),
        (
            "tiny-target",
            {"phases": [{"examples": {"math": 1}}]},
            "phases has no field 'learning_rate'",
        ),
        (
            "tiny-target",
            {"phases": [{"examples": {"maths": 1}, "learning_rate": 1}]},
            "examples is 'maths'; it must be one of 'math'",
        ),
        ("qwen3-4b-dspark", {"data.max_length": 512}, "a .max_length. above max_new_tokens"),
        ("tiny-target", {"config.layers": 2}, "config has a field 'layers'"),
        ("{", {}, "mine.json is not JSON"),
        ("[]", {}, "mine.json holds a list; a recipe is an object"),
    ],
)
def test_a_recipe_that_does_not_fit_is_one_sentence_that_names_the_field(
    tmp_path, name, change, sentence
):
    if name in "{[]":  # what a file says
        (tmp_path / "mine.json").write_text(name)
        name = str(tmp_path / "mine.json")
    with pytest.raises(DSparkLiteError, match=sentence) as caught:
        recipes.load_recipe(name, change)
    assert "\n" not in str(caught.value) and Path(name).stem in str(caught.value)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"config.target_layer_ids": [0, 99]}, "the drafter taps layer 99"),
        ({"config.mask_token_id": 5000}, "mask token is 5000"),
        ({"cached_layer_ids": [0, 99]}, "taps layer 99"),
        ({"initial": "nowhere"}, "no checkpoint 'nowhere'"),
        ({"initial": "tiny-dflash"}, "only the block size may differ"),
        ({"trained": "heads"}, "backbone of an .initial. draft"),
    ],
)
def test_a_draft_that_its_target_could_not_have_is_refused_before_answers_are_written(
    tmp_path, monkeypatch, change, sentence
):
    monkeypatch.setattr(answers, "write_answers", None)
    with pytest.raises(DSparkLiteError, match=sentence):
        recipes.train(
            "tiny-dspark",
            changes=change,
            device="cpu",
            out=tmp_path / "out",
            build=tmp_path / "build",
        )


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("tiny-dspark", "Qwen3ForCausalLM"),
        ("tiny-eagle3", "Qwen3DSparkModel"),
        ("tiny-target", "Qwen3DSparkModel"),
    ],
)
def test_a_checkpoint_of_another_architecture_is_not_trained_over(
    tmp_path, monkeypatch, name, theirs
):
    for step in ("_train_draft", "_train_language_model"):
        monkeypatch.setattr(recipes, step, None)
    (tmp_path / "config.json").write_text(json.dumps({"architectures": [theirs]}))
    with pytest.raises(
        DSparkLiteError, match=f"holds a checkpoint of .*{theirs}.*; give --out another folder"
    ):
        recipes.train(name, device="cpu", out=tmp_path, build=tmp_path / "build")
    assert not (tmp_path / "build").exists()


OWN = {"target": "some/model", "data.dataset": "some/set"}


@pytest.mark.parametrize("name", sorted(path.stem for path in recipes.RECIPES.glob("*.json")))
def test_every_recipe_is_one_and_those_for_4b_have_the_released_shapes(name):
    # `own` is a recipe for the target that the command names
    recipe = recipes.load_recipe(name, OWN if name == "own" else {})
    assert recipe.name.partition("+")[0] == name
    if name.startswith("qwen3-4b-"):
        config = recipe.config
        assert (config.target_layer_ids, config.block_size, config.num_hidden_layers) == (
            (1, 9, 17, 25, 33),
            7,
            5,
        )


STORED = {
    "kind": "draft",
    "target": "tiny-target",
    "seed": 1,
    "epochs": 2,
    "batch": 4,
    "learning_rate": 1,
    "precision": "float32",
    "data": {
        "prompts": {"math": 5, "code": 5},
        "seed": 7,
        "max_new_tokens": 12,
        "temperature": 1,
    },
    "config": {
        "num_hidden_layers": 1,
        "target_layer_ids": [0, 1],
        "block_size": 3,
        "mask_token_id": 399,
    },
    "loss": {"l1": 0.8},
}


def test_stored_trainings_and_answers_are_those_of_their_recipe(tmp_path):
    """The digests of a save and of a folder of answers as earlier versions wrote them. A field
    that is null or has its default leaves the recipe's as it is; answers are named by the file."""

    def digests(**changes):
        (tmp_path / "old.json").write_text(json.dumps({**STORED, **changes}))
        recipe = recipes.load_recipe(str(tmp_path / "old.json"))
        return recipe.digest, recipe.data.digest

    stored = digests()
    assert stored == ("cd7e2b768fa56dad", "5bb853bc")
    assert digests(initial=None, loss={"l1": 0.8, "confidence": 1.0}) == stored
    assert digests(data={**STORED["data"], "top_k": 0}) == (stored[0], "dae26099")
    recipe, data = digests(data={**STORED["data"], "seed": 8})
    assert recipe != stored[0] and data != stored[1]
    assert digests(loss={"l1": 0.9})[0] != stored[0]


def test_a_changed_recipe_under_the_same_name_is_trained_anew_and_embedded_checkpoints_are_safe(
    mini, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(recipes, "CHECKPOINTS", tmp_path / "embedded")
    monkeypatch.setattr(recipes, "BUILD", tmp_path / "build")
    path, fields = tmp_path / "mine.json", {**SMALL, "target": str(mini / "mini")}
    path.write_text(json.dumps({**fields, "name": "tiny-dspark"}))
    out = recipes.train(str(path), device="cpu")
    assert out == tmp_path / "embedded" / "mine" and capsys.readouterr().out == ""
    first = (out / "model.safetensors").read_bytes()
    assert (
        recipes.train(str(path), device="cpu") == out
        and (out / "model.safetensors").read_bytes() == first
    )
    path.write_text(json.dumps({**fields, "seed": 9}))
    with pytest.raises(
        DSparkLiteError, match="holds a checkpoint, and not of this recipe trained here; give --out"
    ):
        recipes.train(str(path), device="cpu")
    assert (out / "model.safetensors").read_bytes() == first
    recipes.train(str(path), device="cpu", out=out)
    assert (
        "mine: the saves in" in capsys.readouterr().out
        and (out / "model.safetensors").read_bytes() != first
    )
    elsewhere = {"changes": {"seed": 5}, "build": tmp_path / "other build"}
    own = recipes.train(str(path), device="cpu", **elsewhere)
    assert recipes.train(str(path), device="cpu", **elsewhere) == own
    other = recipes.train(str(path), device="cpu", changes={"seed": 4})
    assert other.name == "mine+seed=4" and (tmp_path / "build" / "mine+seed=4").is_dir()
    (tmp_path / "unnamed.json").write_text(
        json.dumps({"extends": "tiny-dspark", "loss": {"acceptance": 0.5}})
    )
    assert (
        recipes.checkpoint_folder(recipes.load_recipe(str(tmp_path / "unnamed.json"))).name
        == "unnamed"
    )


def test_a_training_begins_from_another_block_size():
    lab_target = load_target("tiny-target")
    recipe = recipes.load_recipe("tiny-dspark", {"initial": "tiny-dspark", "config.block_size": 3})
    drafter, initial = drafts.new_draft(recipe, lab_target), load_drafter("tiny-dspark", lab_target)
    assert (drafter.gamma, initial.gamma) == (3, 7)
    assert all(
        torch.equal(value, initial.state_dict()[name])
        for name, value in drafter.state_dict().items()
    )
    assert drafter.fc.weight.requires_grad and not drafter.lm_head.weight.requires_grad


def test_heads_are_trained_alone_on_a_backbone_that_stays_as_it_is(mini, tmp_path):
    """From a draft without heads: its own numbers are kept, the new heads learn, and the result is an ordinary DSpark."""
    config = {**DRAFT["config"], "markov_rank": 0, "enable_confidence_head": False}
    bare = {
        **DRAFT,
        "name": "bare",
        "target": str(mini / "mini"),
        "config": config,
        "loss": {"cross_entropy": 1.0, "l1": 0.0, "confidence": 0.0},
    }
    heads = {
        **DRAFT,
        "name": "heads",
        "target": str(mini / "mini"),
        "initial": str(tmp_path / "bare"),
        "trained": "heads",
    }
    for recipe in (bare, heads):
        (tmp_path / f"{recipe['name']}.json").write_text(json.dumps(recipe))
        train(tmp_path, recipe["name"], tmp_path / recipe["name"], tmp_path / "build")
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("bare", "heads"))
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert all(
        name.split(".")[0] in drafts.TRAINED_HEADS for name in set(after) - set(before)
    ) and len(after) > len(before)
    assert any(after[name].abs().max() > 0 for name in after if "markov_w2" in name), (
        "it begins at zero and has learned"
    )
    assert (
        load_drafter(str(tmp_path / "heads"), load_target(str(mini / "mini"))).confidence_head
        is not None
    )


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"trained": "heads"}, "train .heads. on the backbone of an .initial. draft"),
        (
            {"trained": "backbone", "initial": "tiny-dflash"},
            "trained is 'backbone'; it must be 'heads'",
        ),
        (
            {
                "trained": "heads",
                "initial": "tiny-dflash",
                "config.markov_rank": 0,
                "config.enable_confidence_head": False,
            },
            "its draft has none",
        ),
        ({"initial": "tiny-dflash"}, "only the block size may differ"),
    ],
)
def test_heads_that_cannot_be_trained_alone_are_refused(change, sentence):
    with pytest.raises(DSparkLiteError, match=sentence):
        drafts.new_draft(recipes.load_recipe("tiny-dspark", change), load_target("tiny-target"))


def test_heads_for_the_released_backbone_fit_a_t4():
    """Heads of 2 x 151,936 x 256 weights; backbone and target in 16 bit."""
    recipe = recipes.load_recipe("qwen3-4b-heads")
    config = estimate.target_config(recipe)
    found = estimate.cost(recipe, config)
    assert found.trained == 2 * 151_936 * 256
    weights = 16 * found.trained + 2 * (found.frozen + found.target)
    assert weights + recipe.batch * found.activations < 15e9
