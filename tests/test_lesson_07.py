"""Lesson 07: the recipes it trains by can be loaded, its checkers look at gradients, its figures show what they are given."""

import pytest
import torch
import torch.nn.functional as F
from helpers import bars

from dspark_lite.common.estimates import Estimate
from dspark_lite.common.names import PROFILES
from dspark_course.exercises import lesson_07
from dspark_course.figures import lesson_07 as figures
from dspark_course.replication import experiments
from dspark_course.measure.lab import held_out, setup
from dspark_course.replication.our_results import measured as measured_recipe
from dspark_lite.training.drafts import new_draft
from dspark_lite.training.losses import block_losses
from dspark_course.making.recipes import load_recipe


@pytest.mark.parametrize("profile", [name for name in PROFILES if name != "deep"])
def test_every_profile_has_a_recipe_for_its_own_target(profile):
    recipe = load_recipe(f"lesson-{profile}")
    assert recipe["target"] == PROFILES[profile]["target"]
    assert set(recipe["loss"]) >= {"cross_entropy", "l1", "confidence"} and all(recipe["loss"].values())


def detached_nowhere(*case):
    """The right value, with a label that moves the drafter."""
    return lesson_07.losing(label=lesson_07.confidence_label)(*case)


def distance_detached(draft_logits, target_logits, tokens, counted, confidence, factors):
    """The right value, written as a learner writes it, with .detach() where the distance is made."""
    log_q = torch.log_softmax(draft_logits, -1)
    l1 = (torch.softmax(target_logits, -1) - log_q.exp()).abs().sum(-1).detach()
    parts = {"cross_entropy": -log_q.gather(-1, tokens[..., None])[..., 0], "l1": l1,
             "confidence": F.binary_cross_entropy_with_logits(confidence, 1 - l1 / 2, reduction="none")}
    return sum(factors[name] * lesson_07.weighted_loss(part, counted) for name, part in parts.items())


@pytest.mark.parametrize(("wrong", "said"), [
    (detached_nowhere, "the confidence's label moves the drafter"),
    (distance_detached, "its L1 term does not reach the drafter"),
    (lesson_07.losing(text=lambda *case: lesson_07.text_loss(*case).detach()), "its cross-entropy does not reach the drafter"),
    (lesson_07.losing(match=lambda *case: 0.5 * lesson_07.target_loss(*case).detach() + 0.5 * lesson_07.target_loss(*case)),
     "its gradient is not"),
    (lambda *case: lesson_07.dspark_loss(*case).detach(), "nothing can be learned from it"),
    (lambda q, p, x, m, c, f: lesson_07.dspark_loss(q.detach(), p, x, m, c, f), "the drafter learns nothing"),
    (lambda q, p, x, m, c, f: lesson_07.dspark_loss(q, p, x, m, c.detach(), f), "the confidence head does not learn")])
def test_a_loss_is_judged_by_its_gradients_too(wrong, said, capsys):
    assert lesson_07.check_dspark_loss(wrong) is False
    assert said in capsys.readouterr().out


@pytest.mark.parametrize(("check", "wrong", "said"), [
    (lesson_07.check_possible_anchors, lambda s: s.logical_and_(lesson_07.following(s)), "your function changes `supervised` itself"),
    (lesson_07.check_label, torch.minimum, "your answer has shape [2, 1, 3]; it must be [2, 1]"),
    (lesson_07.check_label, lambda p, q: torch.minimum(p, q).sum(), "your answer has shape []; it must be [2, 1]"),
    (lesson_07.check_label, lambda p, q: torch.minimum(p, q).sum(1), "your answer has shape [2, 3]; it must be [2, 1]"),
    (lesson_07.check_weighted_loss, lambda losses, counted: losses * counted, "shape [3, 7]; the loss is one number"),
    (lesson_07.check_weighted_loss, lambda *case: lesson_07.weighted_loss(*case).detach(), "it has lost its gradient")])
def test_a_right_value_in_the_wrong_form_is_refused(check, wrong, said, capsys):
    assert check(wrong) is False
    assert said in capsys.readouterr().out


def test_the_exercises_loss_is_the_packages():
    logits, target_logits, tokens, counted, confidence, factors = lesson_07.LOSS_CASE
    theirs = block_losses(logits[None], target_logits[None], tokens[None], counted[None], confidence[None])
    assert lesson_07.dspark_loss(*lesson_07.LOSS_CASE).item() == pytest.approx(theirs.total(**factors).item(), rel=1e-5)


# Figures ----------------------------------------------------------------------------------------------------------------


def test_the_weights_that_are_nearer_to_what_a_position_adds_are_named(closing):
    weights = {"the code's": [1.0, 0.6, 0.2], "the paper's": [1.0, 0.8, 0.4]}
    (axes,) = figures.position_weight_figure(weights, [1.0, 0.7, 0.5], [1.0, 0.6, 0.1]).axes
    assert axes.get_title() == "the code's weights are nearer to what a position adds"
    assert [text.get_text() for text in axes.texts] == ["what it adds", "the code's weights", "the paper's weights", "rounds that reach it"]
    assert list(axes.lines[-1].get_ydata()) == [1.0, 0.6, 0.1]


def test_changes_after_an_anchor_that_move_its_block_are_counted(closing):
    axes = figures.who_notices(torch.tensor([[1.0, 1.0], [0.5, 2.0], [0.5, 0.0]]), [3, 4, 5], [4, 5]).axes[0]
    assert axes.get_title() == "2 of 3 changes from an anchor on move its block"


def test_a_missing_name_shows_positions_and_chances(closing):
    rates = [Estimate(0.9, 0.8, 1.0), Estimate(0.8, 0.7, 0.9)]
    curve, chances = figures.missing_name({"dspark": rates, "dflash": rates}, ["get", "make"],
                                          {"target": [0.1, 0.9], "dspark": [0.5, 0.5]}).axes
    assert chances.get_title() == "after `def` the target writes 'make'" and bars(chances) == [[0.1, 0.9], [0.5, 0.5]]
    assert [text.get_text() for text in curve.texts] == ["DSpark", "DFlash"]


def test_pulls_are_read_at_the_guess(closing):
    (axes,) = figures.pull_figure([0.1, 0.5, 0.9], {"one": ([0.9, 0.5, 0.1], "C0")}, 0.5).axes
    assert [text.get_text() for text in axes.texts] == ["one: 0.50"] and axes.get_title().startswith("at a guess among 2")


def measured(name, first, log=True):
    """A drafter as diagnosis.json records it."""
    return {"drafter": name, "name_acceptance": [first, 0.5], "held_out_losses": {"l1": 0.25}, "position_acceptance": [first, 0.9],
            "loss_curve": {"step": [1.0, 2.0], "l1": [2.0, 0.5]} if log else {}}


def test_the_ladders_title_begins_with_the_first_drafter(closing):
    drafters = [measured("tiny-dspark", 0.15), measured("diagnosis-1-width", 0.1), measured("diagnosis-3-muon", 0.9)]
    assert figures.copied_names(drafters, "CPU").axes[0].get_title(loc="left") == "the first token of the name: from 0.15 to 0.90"


def test_the_ladder_of_changes_says_what_they_brought(closing):
    (axes,) = figures.copied_names([measured("tiny-dspark", 0.15), measured("diagnosis-3-muon", 0.9)], "CPU").axes
    assert axes.get_title(loc="left") == "the first token of the name: from 0.15 to 0.90"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["the lab's DSpark", "3  + Muon moves the matrices"]
    assert list(axes.lines[0].get_xdata()) == [0.15, 0.9] and list(axes.lines[1].get_xdata()) == [0.5, 0.5]
    assert [text.get_text() for text in axes.texts][:3] == ["0.250", "0.250", "L1 loss"]


def test_drafters_without_a_log_have_no_loss_curve(closing):
    position, loss = figures.after_def([measured("tiny-dflash", 0.9, log=False), measured("diagnosis-0-shipped", 0.15)]).axes
    assert [list(line.get_ydata()) for line in position.lines] == [[0.9, 0.9], [0.15, 0.9]]
    assert [list(line.get_ydata()) for line in loss.lines] == [[0.25, 0.25], [2.0, 0.5]]


def test_the_end_of_cross_entropys_time_is_marked_where_it_is_given(closing):
    loss = figures.after_def([measured("diagnosis-0-shipped", 0.15)], 0.4).axes[1]
    assert list(loss.lines[-1].get_xdata()) == [0.4, 0.4]


def test_predictions_are_counted_beside_the_slots_where_they_are_given(closing):
    mask = torch.ones(4, 9, dtype=torch.bool)
    assert figures.packing_picture(mask, [1, 3], 5).axes[0].get_title().startswith("4 slots in one pass")
    axes = figures.packing_picture(mask, [1, 3], 5, 3).axes[0]
    assert axes.get_title().startswith("3 predictions by 4 slots in one pass") and list(axes.lines[-1].get_xdata()) == [1, 3]


def test_another_runs_losses_are_laid_over_the_first(closing):
    log = [{"step": step, "l1": 2.0 - 0.1 * step, "confidence": 0.5} for step in range(10)]
    one, _ = figures.loss_curves(log, {"no confidence": [{"step": 0, "l1": 1.5}, {"step": 1, "l1": 1.0}]}).axes
    assert one.get_title() == "L1: from 2.00 to 1.10" and list(one.lines[-1].get_ydata()) == [1.5, 1.0]
    assert [text.get_text() for text in one.get_legend().get_texts()] == ["each step", "mean of 1", "no confidence"]


def test_the_diagnosis_has_what_its_figures_ask_for(closing):
    drafters = experiments.diagnosis()["drafters"]
    assert figures.copied_names(drafters, "CPU") and figures.after_def(drafters[:4])


def test_an_untrained_drafter_says_the_anchor_and_then_what_stands_in_no_text():
    lab = setup("tiny")
    texts = [(lab.encode(example.prompt)[0].tolist(), lab.tokenizer(example.answer)["input_ids"])
             for domain in lab.prompts for example in held_out(domain, 100)]
    written = torch.tensor(sorted({token for prompt, answer in texts for token in prompt + answer}))
    drafter, ids = new_draft(load_recipe("lesson-tiny"), lab.target), torch.tensor([texts[0][0]])
    with torch.no_grad():
        state = drafter.begin(ids[:, :-1], lab.target.prefill(ids[:, :-1], drafter.taps)[0].features)
        chances = torch.softmax(drafter.lm_head(drafter.block_hidden(state, ids[:, -1]))[0], -1)
    assert chances[0, ids[0, -1]] > 0.9 and chances[1:, written].sum(-1).max() < 0.1


def test_the_fourth_loss_alone_is_added():
    for seed in (1, 2):
        three, four = (measured_recipe(f"{losses}-seed-{seed}")["recipe"] for losses in ("three-losses", "direct-acceptance"))
        assert four == {**three, "name": four["name"], "loss": {**three["loss"], "acceptance": 0.5}}
