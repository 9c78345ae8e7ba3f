"""Lesson 12: it ends with the ledger, and what its prose states is what was measured."""

import re

import notebooks
import numpy as np
import pytest
import stated

from dspark_lite.common import paper
from dspark_lite.common.names import DOMAINS
from dspark_course.making.recipes import load_recipe
from dspark_course.measure.studies import LENGTHS, TABLE_1
from dspark_course.replication import claims, ledger, our_results, quantities, worlds

TIES = [
    (r"its first draft is right on code (\d+) times in a hundred, in the deep one \d+", r"^shallow Eagle3 .*code 0\.(\d+) then"),
    (r"in the deep one (\d+) times, and on chat (\d+)\.", r"^deep    Eagle3 .*code 0\.(\d+) then [\d.]+, chat 0\.(\d+)"),
    (r"it is made on chat \(\+([\d.]+) %\)", r"^chat  paired +\+([\d.]+)%"),
    (r"and hardly on code \(\+([\d.]+) %\)", r"^code  paired +\+([\d.]+)%"),
    (r"On chat that is plain to see: ([\d.]+) against ([\d.]+)\.", r"^chat  DFlash \+(?=[\d.]+, DSpark \+([\d.]+))([\d.]+)"),
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
    points = {}
    for domain in DOMAINS:
        ours, rival = ([found.value for found in our_results.conditional_acceptance(deep[name], domain)] for name in ("dspark", "eagle3"))
        points[domain] = 100 * (ours[0] - rival[0]), 100 * (np.mean(ours[1:]) - np.mean(rival[1:]))
    (math_first, math_later), (code_first, code_later), (chat_first, chat_later) = points.values()
    assert chat_first > 2 * chat_later
    assert "on math and code it is about 5 points there, and more after" in prose
    assert 4 < math_first < 6 < math_later and 4 < code_first < 6 < code_later
    assert "its accepted lengths are below the paper's, the shallow one's above" in prose
    for world, sign in (("deep", -1), ("shallow", 1)):
        for name, recipe in worlds.WORLDS[world].items():
            lengths, theirs = our_results.accepted_lengths(recipe), paper.domain_means("Qwen3-4B", name)
            assert all(sign * (lengths[domain].value - theirs[domain]) > 0 for domain in DOMAINS)
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
    assert f"in chat {100 * found['deep']['tokens above 0.67 nat (reported)', 'chat']['value']:.0f} %, far more" in prose


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
