"""Lesson 12: it ends with the ledger, and what its prose states is what was measured."""

import re

import notebooks
import pytest
import stated

from dspark_lite.common import paper
from dspark_course.measure.studies import TABLE_1
from dspark_course.replication import claims, ledger, our_results, worlds

TIES = [
    (r"single layer is right on code (\d+) times in a hundred, in the deep one \d+", r"^shallow Eagle3 .*code 0\.(\d+)"),
    (r"in the deep one (\d+) times, and on chat (\d+)\.", r"^deep    Eagle3 .*code 0\.(\d+), chat 0\.(\d+)"),
    (r"it is made on chat \(\+([\d.]+) %\)", r"^chat  paired +\+([\d.]+)%"),
    (r"and hardly on code \(\+([\d.]+) %\)", r"^code  paired +\+([\d.]+)%"),
    (r"On chat that is plain to see: ([\d.]+) against ([\d.]+)\.", r"^chat  DFlash \+(?=[\d.]+, DSpark \+([\d.]+))([\d.]+)"),
    (r"On code DSpark even \*rises\*, by (\d\.\d+)", r"^code  DFlash \+[\d.]+, DSpark -([\d.]+)"),
    (r"gain over DFlash on code is ([\d.]+) % in place of ([\d.]+) %", r"^DSpark over DFlash on code: (?=.* as it is, \+([\d.]+)%)\+([\d.]+)%"),
    (r"Of its (\d+) refusals (\d+) had been in the name", r"^dspark  .* of (\d+) refusals (\d+) in the name"),
    (r"DFlash has (\d+) there", r"^dflash .* refusals (\d+) in the name"),
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
    assert f"DSpark's mean gain is {100 * over['eagle3']:.1f} % where the paper has +{100 * theirs['eagle3']:.1f} %" in prose
    assert f"the mean gain of {100 * over['dflash']:.1f} % is close to the paper's {100 * theirs['dflash']:.1f}" in prose


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


def test_the_deep_world_is_told_as_measured():
    prose, deep = stated.prose("12"), worlds.WORLDS["deep"]
    gains = [our_results.gains(deep["dspark"], deep[rival]) for rival in ("eagle3", "dflash")]
    assert all(gain[place].low > 0 for gain in gains for place in our_results.PLACES.values())
    over = {rival: 100 * our_results.gains(deep["dspark"], deep[rival])["all"].value for rival in ("eagle3", "dflash")}
    assert f"**In the deep world DSpark is first in every domain.** Over Eagle3 its mean gain is {over['eagle3']:+.1f} %" in prose
    assert f"So DSpark's gain over DFlash, {over['dflash']:+.1f} %, is larger than the paper's" in prose
    theirs, ours = paper.macro_gain("Qwen3-4B", "dflash", "eagle3"), our_results.gains(deep["dflash"], deep["eagle3"])["all"].value
    assert f"which in the paper is {100 * theirs:+.1f} %, is {100 * ours:+.1f} % here" in prose
    assert all(our_results.measured(recipe)["training"]["steps"] == 700 for recipe in deep.values()) and "for the same 700 updates" in prose


def test_the_gates_are_told_as_measured():
    prose, found = stated.prose("12"), {world: worlds.gates(world) for world in worlds.WORLDS}
    right = [100 * found["deep"][key]["value"] for key in (("answers that are right", "math"), ("answers that are right", "code"),
                                                           ("facts recalled", "chat"))]
    assert "({:.0f} and {:.0f} % of math and code, {:.0f} % of the facts)".format(*right) in prose
    uncertain = [100 * found[world]["tokens above 0.67 nat (reported)", "math"]["value"] for world in ("deep", "shallow")]
    assert "in math {:.0f} % of them are above 0.67 nat, as in the real world, where the shallow one has {:.0f} %".format(*uncertain) in prose
