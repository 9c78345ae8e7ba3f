"""Lesson 07: the recipes it trains by can be loaded, its checker of the loss looks at gradients, its prose says what it
prints, its figures show what they are given."""

import math

import pytest
import torch
import torch.nn.functional as F
from helpers import bars
from stated import between, caught, cells, printed, prose, tied

from dspark_lite.common.estimates import Estimate
from dspark_lite.common.names import PROFILES
from dspark_course.exercises import lesson_07
from dspark_course.figures import lesson_07 as figures
from dspark_course.replication import experiments
from dspark_course.measure import studies
from dspark_course.measure.lab import held_out, setup
from dspark_course.replication.our_results import accepted_lengths, counts_by_position, gains
from dspark_course.replication.our_results import measured as measured_recipe
from dspark_lite.training.drafts import new_draft
from dspark_lite.training.losses import block_losses
from dspark_course.world.corpus import VERBS
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


# What the lesson says is what it prints ---------------------------------------------------------------------------------

NUMBER = r"([+-]?\d+(?:\.\d+)?)"
FIRST = rf"{NUMBER} \["  # of a row of accepted lengths: math's, then the two others
OTHERS = rf"[\d.]+ \[\S+ \S+ +{NUMBER} \[\S+ \S+ +{NUMBER} \["


@pytest.mark.parametrize(("sentence", "output"), [
    (rf"about as much as it expects \({NUMBER} against {NUMBER}\)", rf"^its own, temperature 1 surprise {NUMBER}, entropy {NUMBER}"),
    (rf"surprise it less \({NUMBER} against {NUMBER}\)", rf"^its own, greedy +surprise {NUMBER}, entropy {NUMBER}"),
    (rf"The gap \({NUMBER} against {NUMBER}\)", rf"^another author's +surprise {NUMBER}, entropy {NUMBER}"),
    (rf"The cache takes {NUMBER} TB\. \(That this agrees with the published {NUMBER} TB",
     rf"(?=.*: {NUMBER} TB in \S+ shards)^target cache .*\n.*\n +published: {NUMBER} TB"),
    (rf"the {NUMBER} tokens of a sample", rf"^target cache .* samples x {NUMBER} tokens"),
    (rf"by a total variation of {NUMBER} %, which", rf"^cached in 16 bits: .* p by a total variation of {NUMBER}%"),
    (rf"hardly more than hidden states \({NUMBER} times as much\)", rf"^this lab .*, {NUMBER} times as much"),
    (rf"times as much\), for Qwen3-4B {NUMBER} times\.", rf"^Qwen3-4B .*, {NUMBER} times as much"),
    (rf"still has the highest L1 of the lab's three, {NUMBER}:", rf"^tiny-dflash +name: .*L1 {NUMBER}"),
    (rf"but it ends at {NUMBER}, the cure's L1", rf"^diagnosis-5-full-length +name: .*L1 {NUMBER}"),
    (rf"on math, code and chat, in place of {NUMBER}, {NUMBER} and {NUMBER} \(a CPU", rf"^yours +{FIRST}\S+ \S+ +{FIRST}\S+ \S+ +{FIRST}"),
    (rf"where they are {NUMBER}, {NUMBER} and {NUMBER} without a leak",
     rf"^yours +{FIRST}\S+ \S+ +{FIRST}\S+ \S+ +{FIRST}"),
    (rf"Over all slots the L1 ended at \S+ in place of {NUMBER}\.", rf"^l1 .* {NUMBER} in the last"),
    (rf"the seventh position is reached in {NUMBER} of the rounds", rf"^rounds that reach it .* {NUMBER}$"),
    (rf"and adds only {NUMBER} of what the first adds", rf"^what it adds .* {NUMBER}$"),
    (rf"the code's {NUMBER} is too much", rf"^the code's .* {NUMBER}$"),
    (rf"the paper's {NUMBER} far more so", rf"^the paper's .* {NUMBER}$"),
    (rf"On 200 prompts the lab's DSpark \(`tiny-dspark`\) commits {NUMBER} on math", rf"^tiny-dspark, 200 prompts +{FIRST}"),
    (rf"alone brings code from {NUMBER} to \S+ tokens per round and chat from {NUMBER} to", rf"^DFlash +{OTHERS}"),
    (rf"alone brings code from \S+ to {NUMBER} tokens per round and chat from \S+ to {NUMBER}, on", rf"^DFlash and the head +{OTHERS}"),
    (rf"gains nothing \({NUMBER} and", rf"^DFlash +{FIRST}"),
    (rf"gains nothing \(\S+ and {NUMBER}\)", rf"^DFlash and the head +{FIRST}"),
    (rf"the lab's DSpark commits there \({NUMBER}\)", rf"^the lab's DSpark +\S+ \S+ \S+ +{FIRST}"),
    (rf"leads DFlash on math by {NUMBER} against", rf"^tiny-dspark, 200 prompts +{FIRST}"),
    (rf"leads DFlash on math by \S+ against {NUMBER}, and", rf"^tiny-dflash, 200 prompts +{FIRST}"),
    (rf"and on code by only {NUMBER} against", rf"^tiny-dspark, 200 prompts +\S+ \S+ \S+ +{FIRST}"),
    (rf"and on code by only \S+ against {NUMBER}\.", rf"^tiny-dflash, 200 prompts +\S+ \S+ \S+ +{FIRST}"),
    (rf"accepted with chance {NUMBER} in the mean", rf"^dflash +the first token of the name is accepted with chance {NUMBER} "),
    (rf"in the mean of the {NUMBER} answers", rf"in {NUMBER} answers\)$"),
    (rf"\(above: slot 1 of {NUMBER} answers\)", rf"in {NUMBER} answers\)$"),
    (rf"accepted with chance {NUMBER}, where the lab's DSpark has", rf"^diagnosis-5-full-length +name: first {NUMBER}, "),
    (rf"where the lab's DSpark has {NUMBER}\*\*", rf"^tiny-dspark +name: first {NUMBER}, "),
    (rf"\*\* and DFlash {NUMBER}\.", rf"^tiny-dflash +name: first {NUMBER}, "),
    (rf"L1 loss falls from {NUMBER} to", rf"^tiny-dspark +name: .*L1 {NUMBER}"),
    (rf"L1 loss falls from \S+ to {NUMBER}\.", rf"^diagnosis-5-full-length +name: .*L1 {NUMBER}"),
    (rf"Muon with its rates most, from {NUMBER} to", rf"^diagnosis-2\S+ +name: .*L1 {NUMBER}"),
    (rf"Muon with its rates most, from \S+ to {NUMBER}\.", rf"^diagnosis-3-muon +name: .*L1 {NUMBER}"),
    (rf"They copy the second, {NUMBER}, and", rf"^diagnosis-4-all-anchors +name: .* second {NUMBER} "),
    (rf"and still guess the first, {NUMBER}\.", rf"^diagnosis-4-all-anchors +name: first {NUMBER}, "),
    (rf"brings the name nothing when it is added \({NUMBER}\)", rf"^diagnosis-2\S+ +name: first {NUMBER}, "),
    (rf"draws among them: {NUMBER}, little", rf"^dspark +the first token of the name is accepted with chance {NUMBER} "),
    (rf"One seed loses {NUMBER} %, with an interval below zero", rf"^direct-acceptance-seed-1 .*\n.*\n +the fourth loss brings -{NUMBER}%"),
    (rf"the other's {NUMBER} % may be chance", rf"^direct-acceptance-seed-2 .*\n.*\n +the fourth loss brings -{NUMBER}%"),
])
def test_what_the_lesson_says_it_prints(sentence, output):
    tied("07", sentence, output)


STEPS = rf"{NUMBER} in the first \d+ steps, +{NUMBER} in the highest \d+, +{NUMBER} in the last"


@pytest.mark.parametrize(("sentence", "output", "bands"), [
    ("An L1 of about 0.5 at the end", rf"^l1 +{STEPS}", [(1.5, 2.0), (1.5, 2.0), (0.45, 0.55)]),
    ("Cross-entropy begins above a uniform guess", rf"^cross_entropy +{STEPS}", [(7.0, 15.0), (7.0, 15.0), (0.5, 2.0)]),
    ("Then it rises, because a label between 0 and 1", rf"^confidence +{STEPS}", [(0.0, 0.3), (0.4, 0.6), (0.2, 0.38)]),
    ("a round commits only the target's own token", rf"^math +{NUMBER} tokens per round", [(1.0, 1.005)]),
    ("the steps alone would take a lifetime", r"the cache, (\d+),\d+ d for 25,400 steps", [(25, 400)]),
    ("above the whole interval of the five", rf"^the lab's DSpark +\S+ \[\S+ {NUMBER}\]", [(5.0, 6.45)]),
    ("which eight verbs this world's functions begin with", rf"^the eight verbs have {NUMBER} of DSpark's probability", [(0.9, 1.0)]),
    ("pulls a third as hard", rf"DSpark's loss pulls {NUMBER} times as hard", [(0.32, 0.34)])])
def test_what_the_lesson_says_in_words_lies_within_its_bounds(sentence, output, bands):
    between("07", sentence, output, *bands)


def test_a_uniform_guess_has_the_cross_entropy_that_the_lesson_names():
    size, nats = caught(rf"a uniform guess \(\$\\ln {NUMBER} = {NUMBER}\$\)", prose("07"), "the prose")
    assert int(size) == load_recipe("tiny-target")["config"]["vocab_size"] and round(math.log(int(size)), 1) == float(nats)


def test_the_labs_drafter_is_larger_and_has_read_more():
    yours, lab = (load_recipe(name) for name in ("lesson-tiny", "tiny-dspark"))
    assert "three layers to your one, and it has read thirty times as many answers" in prose("07")
    assert (lab["config"]["num_hidden_layers"], yours["config"]["num_hidden_layers"]) == (3, 1)
    assert round(sum(lab["data"]["prompts"].values()) / sum(yours["data"]["prompts"].values()), -1) == 30
    assert any("which reads a thirtieth of the answers" in cell.source for cell in cells("07"))


def adds(counts):
    """What a position adds to the accepted length, of what the first adds, for accepted and reached rounds [g, 2]."""
    alpha = counts[:, 0] / counts[:, 1]
    chances = [math.prod(alpha[:k + 1]) for k in range(len(alpha))]
    worth = [sum(chances[k:]) / alpha[k] for k in range(len(alpha))]
    return [value / worth[0] for value in worth]


def test_the_codes_weights_are_nearer_to_what_a_position_adds_the_papers_to_how_often_it_is_reached():
    row = rf"{' '.join([NUMBER] * 7)}$"
    said = ("rounds that reach it", "what it adds", "the code's", "the paper's")
    reached, added, code, paper = ([float(number) for number in caught(rf"^{name} +{row}", printed("07"), "the output")] for name in said)
    assert "The paper's weights are nearer to how often a position is reached, the code's to what it adds" in prose("07")
    assert "on 200 per domain it is the same" in prose("07")
    counts = sum(counts_by_position("tiny-dspark", domain).sum(0) for domain in ("math", "code", "chat"))
    for k in range(1, 7):
        assert abs(paper[k] - reached[k]) < abs(code[k] - reached[k]) and abs(code[k] - added[k]) < abs(paper[k] - added[k])
        assert abs(code[k] - adds(counts)[k]) < abs(paper[k] - adds(counts)[k])
        assert abs(paper[k] - counts[k, 1] / counts[0, 1]) < abs(code[k] - counts[k, 1] / counts[0, 1])


def test_dspark_is_first_refused_at_every_name_and_dflash_at_one_of_five():
    assert ("In all five answers DSpark is first refused at the function's name, which stands in the prompt: at both its tokens in four, "
            "at the second alone in one." in prose("07") and "fails at such a name once" in prose("07"))
    answers = r"\n((?:   .*\n){5})"
    dspark, dflash = (caught(f"^{name}{answers}", printed("07"), "the output")[0].splitlines() for name in ("the lab's DSpark", "DFlash"))
    verbs = {f"·{verb}" for verb in VERBS}
    put, theirs = ([[pair.split(" → ")[1] for pair in line.strip().split(",  ")] for line in lines] for lines in (dspark, dflash))
    both = [tokens[0] in verbs and tokens[1].startswith("_") for tokens in put]
    assert sum(both) == 4 and put[both.index(False)][0].startswith("_")
    assert sum(token in verbs or token.startswith("_") for tokens in theirs for token in tokens) == 1


def test_the_worlds_functions_begin_with_eight_verbs():
    assert len(VERBS) == 8


def test_the_mean_that_hid_the_name_is_the_stored_experiments():
    (said,) = caught(rf"A mean accepted length of {NUMBER} on code", prose("07"), "the prose")
    assert float(said) == round(accepted_lengths("tiny-dspark")["code"].value, 2)


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


def test_a_short_training_brings_about_half_and_how_much_is_the_machines():
    between("07", r"brings about half of what the lab's drafter has", rf"yours commits {NUMBER}% of what the lab's does", (38, 60))
    between("07", r"accepted lengths of 2 to 5\.", rf"^yours +{FIRST}\S+ \S+ +{FIRST}\S+ \S+ +{FIRST}", *[(2, 5)] * 3)


def test_pulls_are_read_at_the_guess(closing):
    (axes,) = figures.pull_figure([0.1, 0.5, 0.9], {"one": ([0.9, 0.5, 0.1], "C0")}, 0.5).axes
    assert [text.get_text() for text in axes.texts] == ["one: 0.50"] and axes.get_title().startswith("at a guess among 2")


def measured(name, first, log=True):
    """A drafter as scripts/diagnosis.py records it."""
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


def test_half_of_the_cure_is_below_where_our_dspark_ended_and_the_other_half_halves_it():
    by_name = {drafter["drafter"]: drafter for drafter in experiments.diagnosis()["drafters"]}
    curve = by_name["diagnosis-5-full-length"]["loss_curve"]["l1"]
    middle = curve[len(curve) // 2]
    assert curve[-1] < middle / 2 < middle < by_name["tiny-dspark"]["held_out_losses"]["l1"]
    (said,) = caught(rf"but it ends at {NUMBER}, the cure's L1", prose("07"), "the prose")
    assert said == f"{curve[-1]:.3f}" and "highest L1 of the lab's three" in prose("07")
    assert max(("tiny-dspark", "tiny-dspark-rnn", "tiny-dflash"), key=lambda name: by_name[name]["held_out_losses"]["l1"]) == "tiny-dflash"


def test_who_pulls_harder_is_as_the_lesson_says():
    def dspark(q):
        return 0.9 * 2 * q * (1 - q) + 0.1 * (1 - q)

    ratio, half, guess = caught(rf"pulls {NUMBER} times as hard as a guess among eight \({NUMBER} against {NUMBER}\)", prose("07"), "the prose")
    (other,) = caught(rf"the guess that pulls {NUMBER} times as hard", prose("07"), "the prose")
    assert (half, guess) == (f"{dspark(1 / 2):.2f}", f"{dspark(1 / 8):.2f}")
    assert float(ratio) == pytest.approx(dspark(1 / 2) / dspark(1 / 8), abs=0.051)
    assert float(other) == pytest.approx((1 - 1 / 8) / (1 - 1 / 2), abs=0.051)


def test_the_cure_has_the_answers_and_anchors_of_the_labs_drafter():
    cure, lab = load_recipe("diagnosis-5-full-length"), load_recipe("tiny-dspark")
    assert (cure["config"], cure["epochs"]) == (lab["config"], lab["epochs"])
    assert cure["data"] == {**lab["data"], "held_out": 150}
    assert "150 more answers are set aside for judging" in prose("07")


def answers_of(recipe):
    """How many answers a recipe asks for, and how many batches of them an epoch has."""
    count = sum(recipe["data"]["prompts"].values())
    return count, math.ceil((count - recipe["data"].get("held_out", 0)) / recipe["batch"])


def test_the_table_of_recipes_has_their_answers_updates_and_anchors():
    for row, recipe in (("the lab's DSpark", "tiny-dspark"), ("**the cure**, `diagnosis-5`", "diagnosis-5-full-length")):
        found = load_recipe(recipe)
        count, batches = answers_of(found)
        said = f"| {row} | {count - found['data'].get('held_out', 0):,}/{found['epochs'] * batches:,} |"
        assert said in prose("07") and found["config"]["num_anchors"] == 24


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


def test_no_step_copies_the_name_and_muon_helps_most():
    by_name = {drafter["drafter"]: drafter for drafter in experiments.diagnosis()["drafters"]}
    ladder = [drafter for name, drafter in by_name.items() if name[:11] in {f"diagnosis-{step}" for step in range(5)} and "rnn" not in name]
    falls = [before["held_out_losses"]["l1"] - after["held_out_losses"]["l1"] for before, after in zip(ladder, ladder[1:])]
    assert len(ladder) == 5 and min(falls) > 0 and falls.index(max(falls)) == 2
    assert all(drafter["name_acceptance"][0] < 0.25 for drafter in ladder)
    assert all(by_name[f"diagnosis-5-full-length{head}"]["name_acceptance"][0] > 0.9 for head in ("", "-rnn"))


def test_the_cure_commits_more_than_the_labs_drafter_in_every_domain():
    by_name = {drafter["drafter"]: drafter["accepted_length"] for drafter in experiments.diagnosis()["drafters"]}
    assert "In every domain the cure commits more tokens per round than the lab's DSpark" in prose("07")
    assert all(length > by_name["tiny-dspark"][domain] for domain, length in by_name["diagnosis-5-full-length"].items())


def test_the_fourth_loss_helps_no_seed():
    rises = caught(rf"the cross-entropy rises by more than 10 %, and L1 by {NUMBER} and {NUMBER}, about as much as it differs between the "
                   "seeds or less", prose("07"), "the prose")
    ends = [gains(f"direct-acceptance-seed-{seed}", f"three-losses-seed-{seed}")["all"] for seed in (1, 2)]
    assert ends[0].high < 0 and ends[1].low < 0 < ends[1].high
    held_out = {recipe: measured_recipe(recipe)["training"]["held_out_losses"] for recipe in studies.DIRECT_ACCEPTANCE}
    between_seeds = abs(held_out["three-losses-seed-1"]["l1"] - held_out["three-losses-seed-2"]["l1"])
    for seed, rise in zip((1, 2), rises):
        without, with_it = held_out[f"three-losses-seed-{seed}"], held_out[f"direct-acceptance-seed-{seed}"]
        assert with_it["cross_entropy"] > 1.1 * without["cross_entropy"]
        assert round(with_it["l1"] - without["l1"], 3) == float(rise) < 1.2 * between_seeds


def test_the_fourth_loss_is_added_to_the_third_steps_recipe():
    (steps,) = caught(rf"Step 3's recipe \({NUMBER} updates\) was trained with it and without, with two seeds each", prose("07"), "the prose")
    assert {measured_recipe(recipe)["training"]["steps"] for recipe in studies.DIRECT_ACCEPTANCE} == {int(steps)}
    for seed in (1, 2):
        three, four = (measured_recipe(f"{losses}-seed-{seed}")["recipe"] for losses in ("three-losses", "direct-acceptance"))
        assert four == {**three, "name": four["name"], "loss": {**three["loss"], "acceptance": 0.5}}
