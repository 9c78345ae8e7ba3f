"""Lesson 07: the recipes it trains by can be loaded, its checkers look at gradients, its figures show what they are given."""

import pytest
import torch
import torch.nn.functional as F

from dspark_lite.course.data.recipes import load_recipe
from dspark_lite.course.exercises import lesson_07
from dspark_lite.course.figures import lesson_07 as figures
from dspark_lite.course.measure.lab import held_out, held_out_prompts, setup
from dspark_lite.course.measure.whole_drafter import (
    batch_loss,
    lesson_answers,
    packed_mask,
    recorded,
    train,
)
from dspark_lite.course.names import PROFILES
from dspark_lite.course.world.prompts import prompt_ids
from dspark_lite.losslessness.toys import toy_models
from dspark_lite.training.blocks import TrainingBatch, block_losses, dense_mask, training_forward
from dspark_lite.training.drafts import new_draft
from helpers import bars, written
from tools.measure.lesson_answers import HELD_OUT, NEW_TOKENS, TRAINING


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_has_a_recipe_for_its_own_target(profile):
    recipe = load_recipe(f"lesson-{profile}")
    loss = recipe.loss
    assert recipe.target == PROFILES[profile]["target"]
    assert min(loss.cross_entropy, loss.l1, loss.confidence) > 0


def distance_detached(draft_logits, target_logits, labels, counted, confidence, factors):
    """The right value, written as a learner writes it, with .detach() where the distance is made."""
    log_q = torch.log_softmax(draft_logits, -1)
    l1 = (torch.softmax(target_logits, -1) - log_q.exp()).abs().sum(-1).detach()
    parts = {
        "cross_entropy": -log_q.gather(-1, labels[..., None])[..., 0],
        "l1": l1,
        "confidence": F.binary_cross_entropy_with_logits(confidence, 1 - l1 / 2, reduction="none"),
    }
    return sum(
        factors[name] * lesson_07.weighted_loss(part, counted) for name, part in parts.items()
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (
            lesson_07.loss_with(label=lesson_07.acceptance),
            "the confidence's label moves the drafter",
        ),
        (distance_detached, "its L1 term does not reach the drafter"),
        (
            lesson_07.loss_with(
                match=lambda *case: (
                    0.5 * lesson_07.target_loss(*case).detach() + 0.5 * lesson_07.target_loss(*case)
                )
            ),
            "its gradient is not",
        ),
        (lambda *case: lesson_07.dspark_loss(*case).detach(), "nothing can be learned from it"),
        (
            lambda q, p, x, m, c, f: lesson_07.dspark_loss(q, p, x, m, c.detach(), f),
            "its gradient is not",
        ),
    ],
)
def test_a_loss_is_judged_by_its_gradients_too(wrong, said, capsys):
    assert lesson_07.check_dspark_loss(wrong) is False
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("check", "wrong", "said"),
    [
        (
            lesson_07.check_acceptance,
            lambda p, q: torch.minimum(p, q).sum(-1, keepdim=True),
            "your answer has shape [2, 1, 1]; it must be [2, 1]",
        ),
        (
            lesson_07.check_head_loss,
            torch.no_grad()(lesson_07.losing_head()),
            "the loss has lost its gradient",
        ),
    ],
)
def test_a_right_value_in_the_wrong_form_is_refused(check, wrong, said, capsys):
    assert check(wrong) is False
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            lesson_07.loss_with(text=lambda *case: 2 * lesson_07.text_loss(*case)),
            "the cross-entropy is wrong",
        ),
        (
            lesson_07.loss_with(match=lambda *case: lesson_07.target_loss(*case).square()),
            "the L1 distance is wrong",
        ),
        (
            lesson_07.loss_with(read=lambda confidence: -confidence),
            "the confidence's loss is wrong",
        ),
        (lambda *case: 2 * lesson_07.dspark_loss(*case), "the cross-entropy is wrong"),
        (
            lambda *case: lesson_07.dspark_loss(*case).square(),
            "the cross-entropy is wrong",
        ),
    ],
)
def test_of_a_loss_that_nobody_foresaw_the_wrong_part_is_named(part, said, capsys):
    assert lesson_07.check_dspark_loss(part) is False
    assert said in capsys.readouterr().out


def test_the_exercises_loss_is_the_packages():
    logits, target_logits, tokens, counted, confidence, factors = lesson_07.LOSS_CASE
    theirs = block_losses(
        logits[None], target_logits[None], tokens[None], counted[None], confidence[None]
    )
    assert lesson_07.dspark_loss(*lesson_07.LOSS_CASE).item() == pytest.approx(
        theirs.total(**factors).item(), rel=1e-5
    )


def test_the_solutions_compute_on_the_labs_device():
    """A tensor on the device `meta` takes no part in a computation with one on the CPU."""
    case = [part.to("meta") for part in lesson_07.LOSS_CASE[:-1]]
    head = [part.to("meta") for part in lesson_07.HEAD_BATCH]
    found = [
        lesson_07.dspark_loss(*case, lesson_07.FACTORS),
        lesson_07.head_loss(
            lambda batch: head,
            lambda previous: torch.zeros(*previous.shape, 5, device="meta"),
            None,
        ),
    ]
    assert all(loss.device.type == "meta" and loss.shape == () for loss in found)


# The training of a whole drafter


def test_the_exercises_mask_is_the_packages():
    anchors = torch.tensor([[1, 3, 4], [0, 2, 6]])
    assert torch.equal(packed_mask(lesson_07.sees, anchors, 7, 3), dense_mask(anchors, 7, 3))


@pytest.mark.parametrize("shift", [0, 1])
def test_the_loss_of_a_batch_is_the_packages(shift):
    """With a shift the labels, and where the target's distribution stands, are those of one place earlier."""
    target, drafters = toy_models(vocab_size=11, gamma=4)
    drafter = drafters["dspark"]
    ids = torch.randint(11, (2, 9), generator=torch.Generator().manual_seed(0))
    features = target.prefill(ids, drafter.taps)[0].features
    last_hidden = target.model.model(ids).last_hidden_state
    batch = TrainingBatch(
        ids,
        torch.arange(9).expand(2, 9) >= 2,
        features,
        last_hidden,
        torch.tensor([[2, 4, 7], [3, 5, 0]]),
        torch.tensor([[True, True, True], [True, True, False]]),
    )
    found = batch_loss(
        drafter, batch, lesson_07.sees, lesson_07.dspark_loss, lesson_07.FACTORS, shift
    )
    blocks = training_forward(
        drafter,
        features,
        ids,
        batch.supervised,
        batch.anchors,
        batch.valid,
        dense_mask(batch.anchors, 9, 4),
    )
    row, place = torch.arange(2)[:, None, None], blocks.target_position - shift
    tokens, wanted = ids[row, place + 1], drafter.lm_head(last_hidden[row, place])
    assert torch.equal(tokens, blocks.tokens) is (shift == 0)
    theirs = block_losses(
        blocks.logits, wanted, tokens, blocks.loss_mask, blocks.confidence_logits
    ).total(**lesson_07.FACTORS)
    assert found.item() == pytest.approx(theirs.item(), rel=1e-5)


def test_a_training_takes_a_step_of_adamw_for_each_batch_at_its_own_rate():
    rates, batches = [0.1, 0.02, 0.3], torch.tensor([[1.0, 0.5], [-0.5, 1.0], [0.3, -0.7]])
    ours, theirs = (torch.nn.Parameter(torch.tensor([0.7, -0.4])) for _ in range(2))
    optimiser, expected = torch.optim.AdamW([theirs]), []
    for rate, batch in zip(rates, batches):
        optimiser.param_groups[0]["lr"] = rate
        expected.append((theirs - batch).square().sum())
        theirs.grad = torch.autograd.grad(expected[-1], theirs)[0]
        optimiser.step()
    found = train(
        [ours],
        lambda step: batches[step],
        lambda batch: (ours - batch).square().sum(),
        3,
        rates.__getitem__,
    )
    assert torch.equal(ours, theirs) and found == [loss.item() for loss in expected]


def test_the_recorded_training_is_its_recipes():
    run, recipe = recorded(), load_recipe("lesson-tiny")
    assert (run["recipe"], run["target"], run["answers"]) == (
        recipe.name,
        recipe.target,
        recipe.data.count,
    )
    updates = recipe.epochs * -(-run["answers"] // recipe.batch)
    losses = run["losses"]
    assert {name: len(found) for name, found in losses.items()} == {
        "right labels": updates,
        "stopped early": updates // 5,
        "off by one": updates // 5,
    }
    assert losses["stopped early"] == losses["right labels"][: updates // 5]
    assert run["accepted_length"].keys() == {*losses, "the lab's DSpark"}
    assert run["device"] and run["versions"]["torch"] and run["commit"]


# Figures


def test_each_slot_has_its_label_one_place_on():
    said = written(figures.slots_picture())
    assert [word for word in said if word in [*"ABCDE"]] == [*"ABCDE"]
    assert ["1: anchor", "2: mask", "3: mask"] == [word for word in said if word[1:2] == ":"]
    assert ["after …C", "after …D", "after …E"] == [
        word for word in said if word.startswith("after")
    ]


def test_weights_stand_beside_what_a_position_adds():
    weights = {"the code's": [1.0, 0.6, 0.2], "the paper's": [1.0, 0.8, 0.4]}
    (axes,) = figures.position_weight_figure(weights, [1.0, 0.7, 0.5], [1.0, 0.6, 0.1]).axes
    assert [text.get_text() for text in axes.texts] == [
        "what it adds",
        "the code's weights",
        "the paper's weights",
        "rounds that reach it",
    ]
    assert list(axes.lines[-1].get_ydata()) == [1.0, 0.6, 0.1]


def test_the_recorded_answers_are_to_the_lessons_prompts(tiny_lab, tmp_path):
    changes = {"data.prompts": dict.fromkeys(tiny_lab.prompts, TRAINING)}
    data = load_recipe("lesson-tiny", changes).data
    held = {domain: held_out_prompts(domain, HELD_OUT) for domain in tiny_lab.prompts}
    asked = [tiny_lab.encode(text)[0].tolist() for texts in held.values() for text in texts]
    wanted = prompt_ids(tiny_lab.target.tokenizer, data), asked
    for answers, prompts in zip(lesson_answers(tiny_lab, data, held, tmp_path), wanted):
        assert [ids[:length] for ids, length in answers] == prompts
        assert all(length < len(ids) <= length + NEW_TOKENS for ids, length in answers)


def test_pulls_are_read_at_the_guess():
    (axes,) = figures.pull_figure([0.1, 0.5, 0.9], {"one": ([0.9, 0.5, 0.1], "C0")}, 0.5).axes
    assert [text.get_text() for text in axes.texts] == [
        "one: 0.500"
    ] and axes.get_title().startswith("at a guess among 2")


def test_predictions_are_counted_beside_the_slots():
    mask = torch.ones(4, 9, dtype=torch.bool)
    axes = figures.packing_picture(mask, [1, 3], 5, 2, 3).axes[0]
    assert axes.get_title().startswith("3 predictions by 4 slots in one pass")
    assert list(axes.lines[-1].get_xdata()) == [1, 3]
    (border,) = (line for line in axes.lines if line.get_linestyle() == ":")
    assert border.get_xdata()[0] == 1.5  # before the answer's first place


def test_a_loss_curve_says_where_its_means_begin_and_end():
    log = [{"step": step, "l1": 2.0 - 0.1 * step} for step in range(10)]
    (axes,) = figures.loss_curves(log).axes
    assert axes.get_title() == "L1: from 2.00 to 1.10"


def test_two_trainings_are_compared_by_what_is_left_of_their_loss_and_by_what_is_accepted():
    curves = {
        "right labels": [4.0] * 10 + [3.0] * 10 + [0.0] * 10,
        "stopped early": [4.0] * 10 + [3.0] * 10,
        "off by one": [4.0] * 10 + [1.0] * 10,
    }
    lengths = {"right labels": 1.5, "stopped early": 1.2, "off by one": 1.0}
    (axes,) = figures.loss_comparison(curves, lengths, "a made device").axes
    assert [word for word in axes.get_title().split() if "%" in word] == ["75%,", "25%"]
    assert written(axes.figure) == [
        "right labels, 30 steps:\n1.50 tokens per round",
        "right labels, 20 steps:\n1.20 tokens per round",
        "off by one, 20 steps:\n1.00 tokens per round",
        "measured on a made device",
    ]


def test_lengths_stand_beside_one_another():
    (axes,) = figures.lengths_figure(
        {"a": {"math": 1.0, "chat": 2.0}, "b": {"math": 3.0, "chat": 4.0}}, "a made device"
    ).axes
    assert bars(axes) == [[1.0, 2.0], [3.0, 4.0]]


def test_an_untrained_drafter_says_the_anchor_and_then_what_stands_in_no_text():
    lab = setup("tiny", prompts=1)
    texts = [
        (lab.encode(example.prompt)[0].tolist(), lab.tokenizer(example.answer)["input_ids"])
        for domain in lab.prompts
        for example in held_out(domain, 25)
    ]
    written = torch.tensor(sorted({token for prompt, answer in texts for token in prompt + answer}))
    drafter, ids = new_draft(load_recipe("lesson-tiny"), lab.target), torch.tensor([texts[0][0]])
    with torch.no_grad():
        state = drafter.begin(
            ids[:, :-1], lab.target.prefill(ids[:, :-1], drafter.taps)[0].features
        )
        chances = torch.softmax(drafter.lm_head(drafter.block_hidden(state, ids[:, -1]))[0], -1)
    assert chances[0, ids[0, -1]] > 0.9 and chances[1:, written].sum(-1).max() < 0.1
