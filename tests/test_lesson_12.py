"""Lesson 12: it ends with the ledger, and what its prose states is what was measured."""

import re

import notebooks
import numpy as np
import pytest
import stated

from dspark_lite.common import paper
from dspark_lite.common.names import DOMAINS
from dspark_course.making.recipes import load_recipe
from dspark_course.measure.gates import SMALL_LM_LENGTHS
from dspark_course.measure.studies import LENGTHS, TABLE_1
from dspark_course.replication import claims, ledger, our_results, quantities, recorded_serving, worlds

TIES = [
    (r"it is made on chat \(\+([\d.]+) %\)", r"^chat  paired +\+([\d.]+)%"),
    (r"and hardly on code \(\+([\d.]+) %\)", r"^code  paired +\+([\d.]+)%"),
    (r"On chat, ([\d.]+) against ([\d.]+), Eagle3 hardly falls", r"^chat  DFlash \+(?=[\d.]+, DSpark \+([\d.]+))([\d.]+)"),
    (r"On code DSpark even \*rises\*, by (\d\.\d+)", r"^code  DFlash \+[\d.]+, DSpark -([\d.]+)"),
    (r"gain over DFlash on code is ([\d.]+) % in place of ([\d.]+) %", r"^DSpark over DFlash on code: (?=.* as it is, \+([\d.]+)%)\+([\d.]+)%"),
    (r"Of its (\d+) refusals (\d+) had been in the name", r"^dspark  .* of (\d+) refusals (\d+) in the name"),
    (r"DFlash has (\d+) there", r"^dflash .* refusals (\d+) in the name"),
    (r"Told, DSpark has (\d+): we took away", r"^dspark, told the name .* refusals (\d+) in the name"),
    (r"two layers stay ([\d.]+) and [\d.]+ % short", r"3 of DFlash, math +-([\d.]+)%"),
    (r"two layers stay [\d.]+ and ([\d.]+) % short", r"3 of DFlash, code +-([\d.]+)%"),
    (r"tokens per second are ([\d.]+), [\d., ]+ and [\d.]+ % more", r"^draft length  4: .*paper \+([\d.]+)%"),
    (r"tokens per second are [\d., ]+ and ([\d.]+) % more", r"^draft length 16: .*paper \+([\d.]+)%"),
    (r"at length 16 its rounds are ([\d.]+) % longer", r"^draft length 16: .*, \+([\d.]+)% time"),
]


@pytest.mark.parametrize(("sentence", "output"), TIES)
def test_what_the_lesson_states_is_what_it_prints(sentence, output):
    stated.tied("12", sentence, output)


def test_the_headline_is_what_table_1_says():
    prose = stated.prose("12")
    longest = {place: max(TABLE_1, key=lambda name: our_results.accepted_lengths(TABLE_1[name])[key].value)
               for place, key in our_results.PLACES.items()}
    assert longest == {"math": "dspark", "code": "eagle3", "chat": "small_lm", "mean": "eagle3"}
    assert "**DSpark is first on math alone.** On code and in the mean Eagle3 accepts longest, on chat even the small LM" in prose
    over = {rival: our_results.gains(TABLE_1["dspark"], TABLE_1[rival])["all"].value for rival in ("eagle3", "dflash")}
    theirs = {rival: paper.macro_gain("Qwen3-4B", "dspark", rival) for rival in over}
    assert "on code and chat one layer, or a small LM, has its first draft accepted more than nine times in ten" in prose
    assert all(our_results.conditional_acceptance(TABLE_1[name], domain)[0].value > 0.9 for name in ("eagle3", "small_lm")
               for domain in ("code", "chat"))
    assert f"DSpark's mean gain is {100 * over['eagle3']:.1f} % where the paper has +{100 * theirs['eagle3']:.1f} %" in prose
    assert f"the mean gain of {100 * over['dflash']:.1f} % is close to the {100 * theirs['dflash']:.1f} on Qwen3-4B" in prose
    assert f"and {100 * min(paper.macro_gain(target, 'dspark', 'eagle3') for target in paper.TARGETS):+.1f} % where it has least" in prose


def test_every_block_drafter_with_l1_has_the_dent_and_dflash_has_not():
    assert "Every block drafter of ours that learned from 0.9 L1 and 0.1 cross-entropy has it" in stated.prose("12")
    for recipe in ("tiny-dspark", "tiny-dspark-1-layer", "tiny-dspark-2-layers", "tiny-dspark-gated", "tiny-dspark-rnn", "tiny-dflash"):
        rates = [found.value for found in our_results.conditional_acceptance(recipe, "code")]
        assert our_results.measured(recipe)["recipe"]["loss"]["l1"] == (0.0 if recipe == "tiny-dflash" else 0.9)
        dent = min(rates[2], rates[4]) - rates[3] > 0.05
        assert dent == (recipe != "tiny-dflash"), recipe


def test_the_notes_that_the_prose_groups_are_about_what_it_says():
    by_number = {number: says for says, number in ledger.noted().items()}
    about = {1: "DSpark accepts longer than Eagle3", 2: "DSpark accepts longer than DFlash", 4: "small language model", 5: "DFlash's first draft",
             6: "Eagle3's conditional acceptance", 7: "DSpark's first draft", 8: "falls less than half", 9: "a DSpark of 2 layers",
             10: "the sequential head", 11: "the RNN head", 12: "over-confident", 13: "under high load"}
    assert all(words in by_number[number] for number, words in about.items())
    assert "in nine places" in stated.prose("12") and len(paper.numbers()["meta"]["discrepancies"]) == 9


def test_no_failure_is_left_without_an_experiment_that_was_run():
    assert len(ledger.entries()) == len(claims.CLAIMS)
    assert not [entry.claim.says for entry in ledger.entries() if ledger.NO_EXPERIMENT in entry.why or "not run yet" in entry.why]


def test_the_ledger_is_the_last_figure():
    (source,) = notebooks.lesson_sources("12")
    cells = [cell.source for cell in notebooks.read_cells(source) if cell.cell_type == "code"]
    assert [cell for cell in cells if re.search(r"forest\(|Markdown\(", cell) and not re.search(r"table_1_gains|worlds\.", cell)] == [
        "from dspark_course.figures import ledger_forest\n\npicture = ledger_forest.forest()", "Markdown(ledger.notes())",
        "Markdown(ledger.contradictions())", "Markdown(ledger.settings_table())"]


def test_the_first_comparison_in_the_deep_world_is_told_as_recorded():
    prose, first, found = stated.prose("12"), worlds.one_rate(), worlds.searched_rates()
    mean = {name: np.mean(list(row["accepted_length"].values())) for name, row in first["drafters"].items()}
    assert f"{first['steps']} updates, and one rate of Muon ({first['matrix_rate']:g}) for all." in prose
    theirs = 100 * paper.macro_gain("Qwen3-4B", "dspark", "eagle3")
    assert f"{100 * (mean['dspark'] / mean['eagle3'] - 1):.0f} % ahead of Eagle3, near the paper's {theirs:.1f}" in prose
    best = {recipe: min(losses, key=losses.get) for recipe, losses in found.items()}
    assert [best[f"deep-{name}"] / first["matrix_rate"] for name in ("dspark", "dflash", "eagle3")] == [2, 2, 32]
    assert "DSpark and DFlash want twice the rate that they had, Eagle3 thirty-two times" in prose
    eagle3 = found["deep-eagle3"]
    assert f"at 0.02 its loss after 100 updates is {eagle3[0.02]:.2f}, at 0.64 it is {eagle3[0.64]:.2f}" in prose


def test_the_deep_world_is_told_as_measured():
    prose, deep, places = stated.prose("12"), worlds.WORLDS["deep"], our_results.PLACES.values()
    eagle3, dflash = (our_results.gains_over_seeds(deep["dspark"], deep[rival]) for rival in ("eagle3", "dflash"))
    shallow = 100 * our_results.gains(TABLE_1["dspark"], TABLE_1["eagle3"])["all"].value
    assert "**At rates of their own, Eagle3 is ahead of DSpark again.**" in prose and eagle3["all"].high < 0
    assert f"DSpark's mean gain is {100 * eagle3['all'].value:+.1f} % (in the shallow world {shallow:+.1f})" in prose
    assert "it wins chat, and loses math and code, so easy text is not the whole reason" in prose
    assert eagle3["chat"].low > 0 > max(eagle3["math"].high, eagle3["code"].high)
    assert f"Over DFlash DSpark gains {100 * dflash['all'].value:+.1f} %, in every domain and with every seed" in prose
    assert all(our_results.gains(*pair)[place].low > 0 for pair in zip(deep["dspark"], deep["dflash"]) for place in places)
    means = [[our_results.accepted_lengths(recipe)["all"].value for recipe in recipes] for recipes in deep.values()]
    assert "are at most 1.5 % apart in the mean" in prose and all(max(found) < 1.015 * min(found) for found in means)
    steps = {our_results.measured(recipe)["training"]["steps"] for recipes in deep.values() for recipe in recipes}
    assert steps == {1013} and "one pass over the answers (1,013 updates)" in prose
    over_eagle3 = 100 * our_results.gains_over_seeds(deep["dflash"], deep["eagle3"])["all"].value
    theirs = 100 * paper.macro_gain("Qwen3-4B", "dflash", "eagle3")
    assert f"which in the paper is {theirs:+.1f} % on Qwen3-4B, is {over_eagle3:+.1f} % here after one pass" in prose


def test_longer_training_is_told_as_measured():
    prose, found = stated.prose("12"), worlds.contrasts()
    two, four = (found[f"DSpark over Eagle3, {passes} passes"] for passes in (2, 4))
    one = our_results.gains(*(worlds.trainings(name)[1] for name in ("dspark", "eagle3")))
    assert "**By that rule training alone is not why the paper's lead is missing**, as far as one seed shows." in prose
    assert one["all"].value < two["all"].value > four["all"].value
    assert f"the gain rose from {100 * one['all'].value:.1f} to {100 * two['all'].value:+.1f} %" in prose and one["all"].high < 0 < two["all"].low
    shown = "no growth is seen, {:+.1f} % [{:+.1f}, {:+.1f}]".format(*(100 * part for part in (four["all"].value, four["all"].low, four["all"].high)))
    assert shown in prose and "DSpark is ahead on code, on chat and in the mean; on math the interval holds zero" in prose
    assert min(four[place].low for place in ("code", "chat", "all")) > 0 and four["math"].low < 0 < four["math"].high
    grew = {name: 100 * our_results.gains(found[4], found[2])["all"].value for name in ("dspark", "eagle3") for found in [worlds.trainings(name)]}
    assert f"DSpark's accepted length grew by {grew['dspark']:.1f} %, Eagle3's by {grew['eagle3']:.1f}, and both losses still fall" in prose
    alike = [np.mean([our_results.conditional_acceptance(worlds.trainings(name)[1], domain)[0].value for domain in DOMAINS]) for name in grew]
    assert "DSpark's four layers and Eagle3's one begin alike" in prose and abs(alike[0] - alike[1]) < 0.01
    for name in grew:
        losses = [our_results.measured(recipe)["training"]["held_out_losses"]["loss"] for recipe in worlds.trainings(name).values()]
        assert losses[0] > losses[1] > losses[2]
    first = {name: ["{:.2f}".format(our_results.conditional_acceptance(worlds.trainings(name)[4], domain)[0].value) for domain in DOMAINS]
             for name in grew}
    assert "{}, {} and {} for DSpark after four passes, {}, {} and {} for Eagle3".format(*first["dspark"], *first["eagle3"]) in prose
    assert all(our_results.measured(recipe)["recipe"]["epochs"] == passes for name in ("dspark", "eagle3")
               for passes, recipe in worlds.trainings(name).items())


def test_depth_and_heads_in_the_deep_world_are_told_as_measured():
    prose, found = stated.prose("12"), worlds.contrasts()
    two, one = (found[f"DSpark of {layers} over DFlash of 4 layers"] for layers in (2, 1))
    assert all(gain.low > 0 for gain in two.values()) and one["all"].high < 0
    assert f"by {100 * two['all'].value:+.1f} % in the mean and in every domain, as in Figure 3; one layer is not" in prose
    short, long = (found[f"RNN head over Markov head, draft length {length}"] for length in (8, 16))
    told = f"by {100 * short['all'].value:+.1f} % at draft length 8 and by {100 * long['all'].value:+.1f} % at 16"
    assert told in prose and min(short["all"].low, long["all"].low) > 0
    assert f"most on code ({100 * long['code'].value:+.1f} %)" in prose and max(long, key=lambda place: long[place].value) == "code"
    assert "in the deep world the claim of note 9 holds, and the RNN head of note 11 is ahead" in prose
    assert load_recipe("deep-dspark-rnn-length-16")["steps"] == load_recipe("deep-dspark-length-16")["steps"] == 400


def test_serving_in_the_deep_world_is_told_as_measured():
    prose, found = stated.prose("12"), worlds.over_best_fixed("deep")
    length, whole, _ = found[64]
    assert "**With 64 requests under way 7 drafts are too many in the deep world:**" in prose and whole.high < 0
    assert f"{length} are best, and 7 bring {-100 * whole.value:.1f} % less, no more than plain decoding" in prose
    assert worlds.throughputs("deep", 64)["fixed 7"][1].value < 1
    length, whole, _ = found[16]
    assert f"With 16 under way 7 lose {-100 * whole.value:.1f} % to {length} drafts, with 4 we cannot tell" in prose
    assert whole.high < 0 and found[4][1].low < 0 < found[4][1].high
    assert list(found) == [4, 16, 64] and all(scheduled.low < 0 < scheduled.high for *_, scheduled in found.values())
    assert "is level with it at 64, give or take 6 %; with 4 and 16 it is where 7 drafts are" in prose
    assert 0.055 < max(-found[64][2].low, found[64][2].high) < 0.06
    assert all(abs(found[load][2].value - found[load][1].value) < 0.01 for load in (4, 16))
    assert recorded_serving.serving_run("deep")["turns"] == 20 and "20 turns of four steps or more each" in prose


def test_the_gates_are_told_as_measured():
    prose, found = stated.prose("12"), {world: worlds.gates(world) for world in worlds.WORLDS}
    right = [100 * found["deep"][key]["value"] for key in (("answers that are right", "math"), ("answers that are right", "code"),
                                                           ("facts recalled", "chat"))]
    assert "({:.0f} and {:.0f} % of math and code, {:.0f} % of the facts)".format(*right) in prose
    uncertain = [100 * found[world]["tokens above 0.67 nat (reported)", "math"]["value"] for world in ("deep", "shallow")]
    assert "in math {:.0f} % of them are above 0.67 nat, as in the real world, where the shallow one has {:.0f} %".format(*uncertain) in prose
    assert f"in chat {100 * found['deep']['tokens above 0.67 nat (reported)', 'chat']['value']:.0f} %, far more" in prose
    deep, shallow = ([f"{found[world][SMALL_LM_LENGTHS, domain]['value']:.2f}" for domain in DOMAINS] for world in ("deep", "shallow"))
    assert "accepts {}, {} and {} tokens on math, code and chat in place of {}, {} and {}.".format(*deep, *shallow) in prose
    assert [found["deep"][SMALL_LM_LENGTHS, domain]["met"] for domain in DOMAINS] == [True, False, True]
    assert "On code that is still more than we asked for." in prose


def test_where_the_gain_stops_growing_with_the_draft():
    assert "In the paper it grows with every step; here on math and chat it stops at length 12." in stated.prose("12")
    for domain in DOMAINS:
        theirs = [quantities.paper_gain(domain, length) for length in LENGTHS]
        ours = [quantities.length_gain(domain, length).value for length in LENGTHS]
        assert theirs == sorted(theirs) and ours[:3] == sorted(ours[:3])
        assert (ours[3] > ours[2]) == (domain == "code"), domain


def test_dspark_falls_less_than_half_as_much_and_how_sure_that_is():
    assert "DSpark less than half as much; on math and chat the ledger's intervals leave that" in stated.prose("12")
    fall = {}
    for domain in DOMAINS:
        for name in ("dspark", "dflash"):
            rates = our_results.conditional_acceptance(TABLE_1[name], domain)
            fall[domain, name] = rates[0].value - rates[-1].value
        assert fall[domain, "dspark"] < fall[domain, "dflash"] / 2
    (entry,) = (entry for entry in ledger.entries() if "falls less than half" in entry.claim.says)
    assert {place for place, margin in entry.margins.items() if margin.low < 0 < margin.high} == {"math", "chat"}


def test_eagle3_hardly_falls_on_chat():
    first, *_, last = [found.value for found in our_results.conditional_acceptance(TABLE_1["eagle3"], "chat")]
    assert abs(first - last) < 0.03 and "Eagle3 hardly falls: there its lead is made late in the block" in stated.prose("12")
    leads = [ours.value - theirs.value for ours, theirs in zip(*(our_results.conditional_acceptance(TABLE_1[name], "chat")
                                                                 for name in ("eagle3", "dspark")))]
    assert leads[-1] > 5 * leads[0]


def test_the_losses_of_table_1_are_those_told():
    assert "DFlash learns from cross-entropy alone, DSpark and Eagle3 from 0.9 L1 and 0.1 cross-entropy" in stated.prose("12")
    for name, l1 in (("dflash", 0.0), ("dspark", 0.9), ("eagle3", 0.9)):
        assert our_results.measured(TABLE_1[name])["recipe"]["loss"]["l1"] == l1


def test_a_change_of_one_field_keeps_its_neighbours():
    base, change = load_recipe("lesson-tiny"), {"config": {"markov_rank": 4}}
    assert len(base["config"]["target_layer_ids"]) == 4 and "One tap in place of four" in stated.prose("12")
    (line,) = (line for cell in stated.cells("12") for line in cell.source.splitlines() if line.strip().startswith("changed = base |"))
    scope = {"base": base, "change": change}
    exec(line.strip(), scope)
    assert scope["changed"] == {**base, "config": {**base["config"], "markov_rank": 4}}
