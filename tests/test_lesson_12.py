"""Lesson 12: it ends with the ledger, and what its prose states is what was measured."""

import re

import notebooks
import numpy as np
import pytest
import stated

from dspark_lite.common import paper
from dspark_lite.common.names import DOMAINS
from dspark_course.making.recipes import load_recipe
from dspark_course.measure.studies import DEEP_HEADS, DEPTHS, HEADS, LENGTH_STUDY, LENGTHS, SHALLOW_ALIKE, TABLE_1
from dspark_course.replication import claims, deep_claims, experiments, ledger, our_results, quantities, worlds

TIES = [
    (r"go together \(correlation [\d.]+\) and the interval is (\d+) % narrower", r"measured +math (\d+)%, code [1-9]%, chat [1-9]%$"),
    (r"here on math, where their lengths go together \(correlation ([\d.]+)\)", r"^math  unpaired .*\n +correlation .*: ([\d.]+)$"),
    (r"On code and chat they hardly do \(([\d.]+) and [\d.]+\)", r"^code  unpaired .*\n +correlation .*: ([\d.]+)$"),
    (r"On code and chat they hardly do \([\d.]+ and ([\d.]+)\)", r"^chat  unpaired .*\n +correlation .*: ([\d.]+)$"),
    (r"it is made on chat \(\+([\d.]+) %\)", r"^chat  paired +\+([\d.]+)%"),
    (r"and hardly on code \(\+([\d.]+) %\)", r"^code  paired +\+([\d.]+)%"),
    (r"where it falls least in the paper: by ([\d.]+)\. DSpark falls by ([\d.]+) there", r"^chat  DFlash \+([\d.]+), DSpark \+([\d.]+)"),
    (r"On code DSpark even \*rises\*, by (\d\.\d+)", r"^code  DFlash \+[\d.]+, DSpark -([\d.]+)"),
    (r"gain over DFlash on code is ([\d.]+) % in place of ([\d.]+) %", r"^DSpark over DFlash on code: (?=.* as it is, \+([\d.]+)%)\+([\d.]+)%"),
    (r"Of DSpark's (\d+) refusals (\d+) had been in the name\. Told", r"^dspark  .* of (\d+) refusals (\d+) in the name"),
    (r"it has \d+ there and DFlash (\d+), so we took away", r"^dflash .* refusals (\d+) in the name"),
    (r"Told, it has (\d+) there and DFlash \d+, so we took away", r"^dspark, told the name .* refusals (\d+) in the name"),
    (r"two layers stay ([\d.]+) and [\d.]+ % short", r"3 of DFlash, math +-([\d.]+)%"),
    (r"two layers stay [\d.]+ and ([\d.]+) % short", r"3 of DFlash, code +-([\d.]+)%"),
    (r"at length 16 DSpark's rounds are ([\d.]+) % longer", r"^draft length 16: .*, \+([\d.]+)% time"),
    (r"at contexts of (\d+), (\d+) and (\d+) tokens", r"a round is longer by \+[\d.]+% at (\d+), \+[\d.]+% at (\d+), \+[\d.]+% at (\d+) tokens"),
    (r"The mended rates had said ([\d.]+)", r"^on code the rates imply .*, \+([\d.]+)% mended"),
    (r"if the name is guilty, DSpark's gain without this defect is about ([\d.]+) %", r"^on code the rates imply .*, \+([\d.]+)% mended"),
    (r"of its (\d+) refusals it could lose no more than those (\d+)", r"^dflash .* of (\d+) refusals (\d+) in the name"),
    (r"told the name, it is ([\d.]+) %\. So set code aside", r"^DSpark over DFlash on code: .* as it is, \+([\d.]+)%"),
    (r"On code DSpark's gain is then \+([\d.]+) %, with an interval above zero", r"^code  at 8 \+([\d.]+)% \[\+"),
    (r"where before it was \+([\d.]+) on the same 100 prompts, with an interval that holds zero", r"^DSpark over DFlash on code: \+([\d.]+)% \[-"),
    (r"at 1,024 tokens it is ([\d.]+) % here, too", r"\+([\d.]+)% at 1024 tokens"),
    (r"note 2's gain is ([\d.]+) %, note 11's lag is gone", r"^DSpark over DFlash on code: .* as it is, \+([\d.]+)%"),
]


@pytest.mark.parametrize(("sentence", "output"), TIES)
def test_what_the_lesson_states_is_what_it_prints(sentence, output):
    stated.tied("12", sentence, output)


def test_the_headline_is_what_table_1_says():
    prose = stated.prose("12")
    longest = {place: max(TABLE_1, key=lambda name: our_results.accepted_lengths(TABLE_1[name])[key].value)
               for place, key in our_results.PLACES.items()}
    assert longest == {"math": "dspark", "code": "eagle3", "chat": "small_lm", "mean": "eagle3"}
    assert "**DSpark is first on math alone.** In the mean Eagle3 accepts longest; on code Eagle3 and the small LM cannot be told apart," in prose
    rivals = our_results.gains(TABLE_1["eagle3"], TABLE_1["small_lm"])
    assert rivals["code"].low < 0 < rivals["code"].high and "on chat the small LM is first" in prose and rivals["chat"].high < 0 < rivals["all"].low
    behind = our_results.gains(TABLE_1["dspark"], TABLE_1["small_lm"])["all"]
    assert f"DSpark is behind the small LM in the mean, too ({100 * behind.value:.1f} %)" in prose and behind.high < 0
    assert "DFlash, in the paper ahead of Eagle3 on Qwen3-4B, is far below it here." in prose
    assert paper.macro_gain("Qwen3-4B", "dflash", "eagle3") > 0 and our_results.gains(TABLE_1["dflash"], TABLE_1["eagle3"])["all"].high < -0.15
    gains = {rival: our_results.gains(TABLE_1["dspark"], TABLE_1[rival])["all"] for rival in ("eagle3", "dflash")}
    over = {rival: gain.value for rival, gain in gains.items()}
    theirs = {rival: paper.macro_gain("Qwen3-4B", "dspark", rival) for rival in over}
    assert "on code and chat Eagle3's one layer, or a small LM, has its first draft accepted more than nine times in ten, so" in prose
    assert all(our_results.conditional_acceptance(TABLE_1[name], domain)[0].value > 0.9 for name in ("eagle3", "small_lm")
               for domain in ("code", "chat"))
    assert f"DSpark's mean gain is {100 * over['eagle3']:.1f} % where the paper has +{100 * theirs['eagle3']:.1f} %" in prose
    told = "DSpark's mean gain of {:.1f} % [{:.1f}, {:.1f}] is a little below the paper's range"
    assert told.format(*(100 * part for part in (gains["dflash"].value, gains["dflash"].low, gains["dflash"].high))) in prose
    assert 0 < min(paper.macro_gain(target, "dspark", "dflash") for target in paper.TARGETS) - gains["dflash"].high < 0.01
    assert f"and {100 * min(paper.macro_gain(target, 'dspark', 'eagle3') for target in paper.TARGETS):+.1f} % where it has least" in prose


def test_every_block_drafter_with_l1_has_the_dent_and_dflash_has_not():
    assert ("Every block drafter here that learned from 0.9 L1 and 0.1 cross-entropy has it, with two or three layers (with one at position 4)"
            in stated.prose("12"))
    cure = load_recipe(experiments.CURE)
    assert cure["config"]["markov_head_type"] == "vanilla" and cure["loss"]["cross_entropy_first"] > 0
    assert "Lesson 07's cure keeps the head, begins with cross-entropy, and has no dent." in stated.prose("12")
    for recipe in ("tiny-dspark", "tiny-dspark-1-layer", "tiny-dspark-2-layers", "tiny-dspark-gated", "tiny-dspark-rnn", "tiny-dflash"):
        rates = [found.value for found in our_results.conditional_acceptance(recipe, "code")]
        assert our_results.measured(recipe)["recipe"]["loss"]["l1"] == (0.0 if recipe == "tiny-dflash" else 0.9)
        dent = min(rates[2], rates[4]) - rates[3] > 0.05
        assert (min(rates[1:3]) - rates[0] > 0.03) == (recipe not in ("tiny-dflash", "tiny-dspark-1-layer")), "the dent at position 1"
        assert dent == (recipe != "tiny-dflash"), recipe


def test_the_notes_that_the_prose_groups_are_about_what_it_says():
    by_number = {number: says for says, number in ledger.noted().items()}
    about = {1: "DSpark accepts longer than Eagle3", 2: "DSpark accepts longer than DFlash", 4: "small language model", 5: "a DSpark of 2 layers",
             6: "the sequential head", 7: "the RNN head", 8: "under high load", 9: "DFlash's first draft",
             10: "Eagle3's conditional acceptance", 11: "DSpark's first draft", 12: "falls less than half", 13: "over-confident"}
    assert all(words in by_number[number] for number, words in about.items())
    assert "Here are four of the thirteen." in stated.prose("12") and len(by_number) == 13
    assert "nine places in which the paper contradicts itself" in stated.prose("12") and len(paper.numbers()["meta"]["discrepancies"]) == 9


def row(begins):
    """The line of the lesson's table of causes whose first cell begins so."""
    prose = next(cell.source for cell in stated.cells("12") if cell.cell_type == "markdown" and "| note | suspected cause |" in cell.source)
    return next(line for line in prose.splitlines() if line.startswith(f"| {begins}"))


def test_every_note_has_its_row_among_the_causes():
    cell = next(cell.source for cell in stated.cells("12") if cell.cell_type == "markdown" and "| note | suspected cause |" in cell.source)
    named = {int(number) for line in cell.splitlines() if line.startswith("| ") for number in re.findall(r"\d+", line.split("|")[1])}
    assert "the one that cannot be tested here, note 3" in stated.prose("12") and named | {3} == set(ledger.noted().values())


def test_what_the_deep_world_does_to_the_notes_is_as_judged_there():
    by_number = {number: says for says, number in ledger.noted().items()}
    margins = {number: found for number, says in by_number.items() if (found := deep_claims.deep_margins(says))}
    holds = {number for number, found in margins.items() if ledger.verdict(found) == ledger.REPLICATES}
    assert "the claims hold in the deep world" in row("2, 5, 9") and {2, 5, 9} <= holds and not {1, 10, 11, 12} & holds
    assert "in the deep world each claim is left open by one domain" in row("10, 12; 11 on chat")
    assert all(sum(margin.low <= 0 for margin in margins[number].values()) == 1 for number in (10, 11, 12))
    one, two, _ = (lead["all"] for lead in worlds.leads("eagle3").values())
    alike = our_results.gains_over_seeds(SHALLOW_ALIKE["dspark"], SHALLOW_ALIKE["eagle3"])["all"]
    assert ("neither another training here nor the deep world turns the order in the mean, a second pass there does" in row("1, the mean")
            and max(one.high, alike.high) < 0 < two.low)


def test_the_causes_of_single_notes_are_as_measured():
    prose = stated.prose("12")
    behind = our_results.gains(HEADS["dspark_rnn"], HEADS["dspark"])
    assert "here it is behind, most on chat (after lesson 07's cure it is ahead)" in prose and behind["all"].high < 0
    assert min(DOMAINS, key=lambda domain: behind[domain].value) == "chat"
    anew = {found["drafter"]: np.mean(list(found["accepted_length"].values())) for found in experiments.diagnosis()["drafters"]}
    assert "after lesson 07's cure, and in the deep world, the RNN head is ahead" in row("7")
    assert anew[f"{experiments.CURE}-rnn"] > anew[experiments.CURE]
    assert all(our_results.gains(heads["dspark_rnn"], heads["dspark"])["all"].low > 0 for heads in DEEP_HEADS.values())
    assert "in greedy decoding it is over-confident at every position" in row("13") and "at every position, by" in experiments.greedy_excess()
    assert "answers that leave a head little choice" in row("5 on math")
    entropy = experiments.answer_entropy()
    assert min(entropy, key=entropy.get) == "math"
    before, after = (experiments.told_gain(name, "eagle3").value for name in ("dspark", experiments.WITH_NAME))
    assert "most of note 1's, too" in row("2; 1 and 11 on code") and after > before / 2 and before < 0


def test_what_the_interval_says_of_the_name():
    assert "and the interval holds that and not 2.5. Had it held 2.5 and not 11.5" in stated.prose("12")
    told = experiments.told_gain(experiments.WITH_NAME, "dflash")
    assert 0.025 < told.low < 0.115 < told.high


def test_eagle3s_lead_on_chat_is_made_after_the_first_draft():
    found = stated.caught(r"^on chat DSpark's rates imply ([\d.]+), with Eagle3's at position 1 ([\d.]+), with Eagle3's at 2 to 4 ([\d.]+), "
                          r"with Eagle3's at 5 to 7 ([\d.]+); Eagle3's own ([\d.]+)$", stated.printed("12"), "the output")
    assert any(f"By the rates Eagle3 accepts {found[4]} on chat, DSpark {found[0]}." in cell.source for cell in stated.cells("12"))
    assert "So the easy first draft is not why Eagle3 leads there. It leads in the rest of the block" in stated.prose("12")
    as_it_is, first, middle, last, _ = map(float, found)
    assert first - as_it_is < (min(middle, last) - as_it_is) / 3
    assert "the RNN head reads them all and, as trained here, is further behind Eagle3." in stated.prose("12")
    markov, rnn = (our_results.gains(HEADS[head], TABLE_1["eagle3"])["chat"].value for head in ("dspark", "dspark_rnn"))
    assert "as trained here it is further behind" in row("1 on chat") and rnn < markov < 0


def test_the_first_rounds_show_the_name_drafted_and_copied():
    rounds = re.findall(r"^(?:DSpark|DFlash), anchor (\S+): drafts (.*)  keeps (\d), then (\S+)", stated.printed("12"), re.M)
    assert "DSpark drafts another verb at position 4" in stated.prose("12")
    (anchor, first, kept, verb), (inside, second, kept_then, noun), (_, copied, *_), _ = rounds
    assert "The anchor of the first block is a code fence" in stated.prose("12") and (anchor, inside) == ("```", verb)
    name = verb.strip("·") + noun
    assert f"function {name} " in stated.printed("12") and (kept, kept_then) == ("3", "0")
    assert first.split()[3] != verb and second.split()[0] != noun and copied.split()[3:5] == [verb, noun]


def test_eagle3_is_closest_on_the_target_that_is_named():
    said = stated.caught(r"On (\S+): there DSpark is ahead of it by ([\d.]+) % on math, ([\d.]+) % on code and ([\d.]+) % on chat",
                         stated.prose("12"), "the prose")
    leads = {}
    for target in paper.TARGETS:
        ours, theirs = (paper.domain_means(target, name) for name in ("dspark", "eagle3"))
        leads[target] = [100 * (ours[domain] / theirs[domain] - 1) for domain in DOMAINS]
    closest = said[0]
    assert all(leads[closest][place] == min(lead[place] for lead in leads.values()) for place in range(3))
    assert said[1:] == tuple(f"{lead:.1f}" for lead in leads[closest])


def test_how_many_claims_are_counted():
    counts = {outcome: sum(entry.verdict == outcome for entry in ledger.entries()) for outcome in (ledger.REPLICATES, ledger.UNTESTABLE)}
    tested = len(ledger.entries()) - counts[ledger.UNTESTABLE]
    assert f"So {counts[ledger.REPLICATES]} of the {tested} that can be tested." in stated.prose("12")
    assert ledger.verdict_counts([entry.margins for entry in ledger.entries() if entry.verdict != ledger.UNTESTABLE]) == (
        "11 replicate, 7 come out the other way round, 5 cannot be told")
    assert "Of the twelve that do not, seven come out the other way round, and of five we cannot tell." in stated.prose("12")
    assert "11 of 23 claims replicate." in stated.prose("12")
    assert "others take up to nine margins" in stated.prose("12") and max(len(entry.margins or {}) for entry in ledger.entries()) == 9
    asked = f"The ledger has {len(ledger.entries())} claims, one of which cannot be tested here"
    assert counts[ledger.UNTESTABLE] == 1 and any(asked in cell.source for cell in stated.cells("12"))


def test_no_failure_is_left_without_an_experiment_that_was_run():
    assert len(ledger.entries()) == len(claims.CLAIMS)
    assert not [entry.claim.says for entry in ledger.entries() if ledger.NO_EXPERIMENT in entry.why or "not run yet" in entry.why]


def test_the_ledger_is_the_last_figure():
    (source,) = notebooks.lesson_sources("12")
    cells = [cell.source for cell in notebooks.read_cells(source) if cell.cell_type == "code"]
    assert [cell for cell in cells if re.search(r"forest\(|Markdown\(", cell) and not re.search(r"table_1_gains|worlds\.", cell)] == [
        "from dspark_course.figures import ledger_forest\n\npicture = ledger_forest.forest()", "Markdown(ledger.notes(1, 5, 9, 11))"]


def test_where_the_gain_stops_growing_with_the_draft():
    assert ("In the paper it grows with every step; here on math and chat we see it grow no more after length 12, which our prompts cannot tell "
            "from a little growth.") in stated.prose("12")
    assert all(growth.low < 0 < growth.high for domain in ("math", "chat") for growth in [quantities.gain_growth((domain,), 12, 16)])
    for domain in DOMAINS:
        theirs = [quantities.paper_gain(domain, length) for length in LENGTHS]
        ours = [quantities.length_gain(domain, length).value for length in LENGTHS]
        assert theirs == sorted(theirs) and ours[:3] == sorted(ours[:3])
        assert (ours[3] > ours[2]) == (domain == "code"), domain


def test_whether_the_gain_grows_from_12_to_16_is_left_open():
    growth = quantities.gain_growth(DOMAINS, 12, 16)
    lengths = paper.claim("latency context lengths")
    assert f"The paper's contexts are {min(lengths)} to {max(lengths):,} tokens" in stated.prose("12")
    assert "From 12 to 16 the interval of the gain's growth holds zero" in stated.prose("12") and growth.low < 0 < growth.high


def test_dspark_falls_less_than_half_as_much_and_how_sure_that_is():
    assert ("there, which is less than half, and so it is on math. But for both domains the ledger (below) has an interval that holds zero: we "
            "cannot tell") in stated.prose("12")
    fall = {}
    for domain in DOMAINS:
        for name in ("dspark", "dflash"):
            rates = our_results.conditional_acceptance(TABLE_1[name], domain)
            fall[domain, name] = rates[0].value - rates[-1].value
        assert fall[domain, "dspark"] < fall[domain, "dflash"] / 2
    assert "and most on chat, where it falls least in the paper" in stated.prose("12")
    theirs = {domain: (rates := paper.conditional_acceptance("dflash", domain))[0] - rates[-1] for domain in DOMAINS}
    assert max(DOMAINS, key=lambda domain: fall[domain, "dflash"]) == min(theirs, key=theirs.get) == "chat"
    (entry,) = (entry for entry in ledger.entries() if "falls less than half" in entry.claim.says)
    assert {place for place, margin in entry.margins.items() if margin.low < 0 < margin.high} == {"math", "chat"}


def test_eagle3_hardly_falls_on_chat():
    first, *_, last = [found.value for found in our_results.conditional_acceptance(TABLE_1["eagle3"], "chat")]
    assert abs(first - last) < 0.03
    assert "It leads in the rest of the block, where its line in Figure 2 hardly falls." in stated.prose("12")
    leads = [ours.value - theirs.value for ours, theirs in zip(*(our_results.conditional_acceptance(TABLE_1[name], "chat")
                                                                 for name in ("eagle3", "dspark")))]
    assert leads[-1] > 5 * leads[0]


def test_the_losses_of_table_1_are_those_told():
    assert "DFlash learns from cross-entropy alone, DSpark and Eagle3 from 0.9 L1 and 0.1 cross-entropy" in stated.prose("12")
    for name, l1 in (("dflash", 0.0), ("dspark", 0.9), ("eagle3", 0.9)):
        assert our_results.measured(TABLE_1[name])["recipe"]["loss"]["l1"] == l1


def test_how_exactly_the_papers_figure_was_read():
    assert "exact to about five decimals in Figure 2" in stated.prose("12") and paper.numbers()["figure2"]["digitisation_error"] == 1e-5


def test_head_and_layer_beside_the_papers_are_told_as_measured():
    prose = stated.prose("12")
    head, layer = our_results.gains(TABLE_1["dspark"], TABLE_1["dflash"]), our_results.gains(DEPTHS[3], DEPTHS[2])
    theirs = {domain: (paper.by_depth("dspark", 5)[domain] / paper.by_depth("dflash", 5)[domain] - 1,
                       paper.by_depth("dspark", 5)[domain] / paper.by_depth("dspark", 2)[domain] - 1) for domain in DOMAINS}
    assert "head and loss bring less than half of what they bring in the paper, and our third layer more than three there" in prose
    assert head["math"].value < theirs["math"][0] / 2 and layer["math"].value > theirs["math"][1]
    assert "Lesson 13 parts them, in another world: there the head brings a little more than half." in prose and "Math and chat fit:" in prose
    assert "little choice and little gain, much choice and much gain" in prose and head["math"].value < head["chat"].value
    assert {our_results.measured(recipe)["prompts"][domain] for recipe in LENGTH_STUDY.values() for domain in DOMAINS} == {100}
    rates = [0.93, *paper.conditional_acceptance("dspark", "math")[1:]]
    assert "with 0.93 the sum would be about 5.7" in prose and round(1 + np.cumprod(rates).sum(), 1) == 5.7
