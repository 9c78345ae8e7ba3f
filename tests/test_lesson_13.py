"""Lesson 13: what its prose states of the deep world is what was measured there."""

import re

import numpy as np
import stated
from made_measurements import recorded_recipe

from dspark_lite.common import paper
from dspark_lite.common.names import DOMAINS
from dspark_course.making.recipes import load_recipe
from dspark_course.measure import trials
from dspark_course.measure.gates import NOTEBOOK, SMALL_LM_LENGTH, SMALL_LM_LENGTHS
from dspark_course.measure.studies import DEEP, DEEP_DEPTHS, DEEP_LENGTH_STUDY, DEEP_MTP, DEEP_PASSES, DEEP_TAPS, SHALLOW_ALIKE, TABLE_1
from dspark_course.replication import claims, deep_claims, ledger, our_results, quantities, recorded_confidence, recorded_serving, worlds


def test_the_first_comparison_in_the_deep_world_is_told_as_recorded():
    prose, first, found = stated.prose("13"), worlds.one_rate(), worlds.searched_rates()
    mean = {name: np.mean(list(row["accepted_length"].values())) for name, row in first["drafters"].items()}
    assert f"{first['steps']} updates, and one learning rate for all: {first['matrix_rate']:g}, of" in prose
    theirs = 100 * paper.macro_gain("Qwen3-4B", "dspark", "eagle3")
    assert f"{100 * (mean['dspark'] / mean['eagle3'] - 1):.0f} % ahead of Eagle3, near the paper's {theirs:.1f}" in prose
    best = {recipe: min(losses, key=losses.get) for recipe, losses in found.items()}
    assert [best[f"deep-{name}"] / first["matrix_rate"] for name in ("dspark", "dflash", "eagle3")] == [2, 2, 32]
    assert "DSpark and DFlash want twice the rate that they had, Eagle3 thirty-two times" in prose
    eagle3 = found["deep-eagle3"]
    assert f"at 0.02 its loss after 100 updates is {eagle3[0.02]:.2f}, at 0.64 it is {eagle3[0.64]:.2f}" in prose


def test_the_deep_world_is_told_as_measured():
    prose, deep, places = stated.prose("13"), worlds.WORLDS["deep"], our_results.PLACES.values()
    eagle3, dflash = (our_results.gains_over_seeds(deep["dspark"], deep[rival]) for rival in ("eagle3", "dflash"))
    shallow = 100 * our_results.gains(TABLE_1["dspark"], TABLE_1["eagle3"])["all"].value
    told = f"Eagle3 is ahead of DSpark again**: {100 * eagle3['all'].value:+.1f} % in the mean (in the shallow world {shallow:+.1f})."
    assert told in prose and eagle3["all"].high < 0 and "DSpark wins chat, and loses math and code." in prose
    assert eagle3["chat"].low > 0 > max(eagle3["math"].high, eagle3["code"].high)
    told = f"Over DFlash DSpark gains {100 * dflash['all'].value:+.1f} %, in every domain and with every seed, where the shallow world had a tie"
    assert told in prose
    tie = our_results.gains(TABLE_1["dspark"], TABLE_1["dflash"])["code"]
    assert tie.low < 0 < tie.high
    assert all(our_results.gains(*pair)[place].low > 0 for pair in zip(deep["dspark"], deep["dflash"]) for place in places)
    means = [[our_results.accepted_lengths(recipe)["all"].value for recipe in recipes] for recipes in deep.values()]
    apart = max(max(found) / min(found) - 1 for found in means)
    assert f"Trainings that differ in their seed alone are at most {100 * apart:.1f} % apart in the mean" in prose
    steps = {our_results.measured(recipe)["training"]["steps"] for recipes in deep.values() for recipe in recipes}
    assert steps == {1013} and "and half as long again: one pass over the answers, 1,013 updates" in prose


def test_longer_training_is_told_as_measured():
    prose, found = stated.prose("13"), worlds.leads("eagle3")
    one, two, four = (found[passes]["all"] for passes in (1, 2, 4))
    told = "ahead of Eagle3 by {:+.1f} % [{:+.1f}, {:+.1f}], and in the mean with each of the three seeds".format(
        *(100 * part for part in (two.value, two.low, two.high)))
    assert told in prose and two.low > 0 > one.high and len(DEEP_PASSES[2]["dspark"]) == len(DEEP_PASSES[2]["eagle3"]) == 3
    of_seeds = [our_results.gains(*pair) for pair in zip(DEEP_PASSES[2]["dspark"], DEEP_PASSES[2]["eagle3"])]
    assert all(gain["all"].low > 0 for gain in of_seeds)
    assert "The lead is made on chat; on math and code our prompts cannot tell." in prose
    assert all(gain["chat"].low > 0 for gain in of_seeds) and all(found[2][place].low < 0 < found[2][place].high for place in ("math", "code"))
    with_seed_1 = of_seeds[0]["all"].value
    stated.tied("13", r"ahead by (\+[\d.]+) % after two and by (\+[\d.]+) % after four",
                r"seed 1 alone, after 1, 2, 4 passes: \S+%, (\+[\d.]+)%, (\+[\d.]+)%$")
    added = worlds.added_by_passes("eagle3", "deep")[4]["all"].scaled(100)
    told = (f"{100 * with_seed_1:+.1f} % after two and by {100 * four.value:+.1f} % after four, "
            f"{added.value:.1f} points [{added.low:.1f}, {added.high:+.1f}].")
    assert told in prose and with_seed_1 > four.value and added.low < 0 < added.high
    stated.tied("13", r"after four, (-[\d.]+) points \[(-[\d.]+), (\+[\d.]+)\]",
                r"from 2 to 4 passes, DSpark over Eagle3: (-[\d.]+) points \[(-[\d.]+), (\+[\d.]+)\]")
    leads = [100 * paper.macro_gain(target, "dspark", "eagle3") for target in paper.TARGETS]
    assert f"below the least that the paper has, {min(leads):.1f} % (on Qwen3-4B it has {leads[0]:.1f})." in prose
    assert f"less than the least that the paper has, {min(leads):.1f} %." in prose
    assert max(two.high, four.high) < min(leads) / 100
    assert f"From {100 * one.value:.1f}" not in prose and f"One pass, {100 * one.value:.1f} %." in "".join(cell.source for cell in stated.cells("13"))


def test_the_shallow_world_trained_alike_is_told_as_measured():
    prose, places = stated.prose("13"), our_results.PLACES.values()
    alike = our_results.gains_over_seeds(SHALLOW_ALIKE["dspark"], SHALLOW_ALIKE["eagle3"])
    old = our_results.gains(TABLE_1["dspark"], TABLE_1["eagle3"])["all"].value
    one = worlds.leads("eagle3")[1]["all"].value
    assert f"a larger gain than the old one ({100 * old:.1f} %)" in prose and f"has a larger gain ({100 * one:.1f} % after one pass)" in prose
    assert f"and DSpark is {-100 * alike['all'].value:.1f} % behind: the training adds" in prose and alike["all"].high < 0
    (old_ours, old_theirs), (new_ours, new_theirs) = ([our_results.accepted_lengths(recipe)["all"].value for recipe in pair] for pair in (
        (TABLE_1["dspark"], TABLE_1["eagle3"]), (SHALLOW_ALIKE["dspark"][0], SHALLOW_ALIKE["eagle3"][0])))
    assert (f"DSpark {new_ours:.2f} tokens in place of {old_ours:.2f}, Eagle3 {new_theirs:.2f} in place of {old_theirs:.2f}" in prose
            and new_ours > old_ours and new_theirs > old_theirs)
    recipe, changed = recorded_recipe(TABLE_1["dspark"]), recorded_recipe(SHALLOW_ALIKE["dspark"][0])
    assert (recipe["epochs"], sum(recipe["data"]["prompts"].values()), recipe["loss"]["l1"]) == (3, 14_000, 0.9)
    assert "three passes over 14,000 answers, and for DSpark 0.9 L1 and 0.1 cross-entropy from the first update on" in prose
    assert "cross_entropy_first" in changed["loss"] and not {"matrix_rate", "cross_entropy_first"} & {*recipe, *recipe["loss"]}
    assert len({recorded_recipe(one)["learning_rate"] for one in list(TABLE_1.values())[2:]}) == 1, "one rate for Eagle3, DFlash and DSpark"
    assert "**In the mean neither is shown to be a cause, after one pass.**" in prose
    assert "DSpark is {:.1f} % behind Eagle3 in the shallow world and {:.1f} in the deep one".format(
        -100 * alike["all"].value, -100 * one) in prose
    added = worlds.training_and_world("eagle3")
    training, world = (added[cause] for cause in ("training", "world"))
    assert (f"the training adds {100 * training['all'].value:+.1f} points, the world {100 * world['all'].value:+.1f}, and both intervals hold zero"
            in prose) and all(found["all"].low < 0 < found["all"].high for found in added.values())
    assert "The new training adds {:+.1f} points on chat and {:+.1f} on code, and takes {:.1f} on math; in the mean they cancel.".format(
        *(100 * sign * training[place].value for place, sign in (("chat", 1), ("code", 1), ("math", -1)))) in prose
    assert min(training["chat"].low, training["code"].low) > 0 > training["math"].high
    assert f"adds {100 * world['chat'].value:+.1f} points on chat and takes {-100 * world['math'].value:.1f} on math" in prose
    told_apart = {place for place in places if world[place].low > 0 or world[place].high < 0}
    assert world["chat"].low > 0 > world["math"].high and told_apart == {"chat", "math"}


def test_longer_training_in_both_worlds_is_told_as_measured():
    prose, here, there = stated.prose("13"), worlds.leads("eagle3", "shallow"), worlds.leads("eagle3")
    more, added = worlds.added_by_passes("eagle3", "shallow"), worlds.added_by_the_world("eagle3")
    told = "the second pass adds {:+.1f} points, the next two {:+.1f}, which our prompts cannot tell from none."
    assert told.format(*(100 * more[passes]["all"].value for passes in (2, 4))) in prose
    assert more[2]["all"].low > 0 and more[4]["all"].low < 0 < more[4]["all"].high
    behind = [-100 * here[passes]["all"].value for passes in (2, 4)]
    assert "DSpark stays {:.1f} % behind after two passes and {:.1f} after four, where in the deep world it is 2.8 % ahead.".format(*behind) in prose
    assert all(here[passes]["all"].high < 0 and f"{100 * there[passes]['all'].value:.1f}" == "2.8" for passes in (2, 4))
    two, four = (added[passes]["all"].scaled(100) for passes in (2, 4))
    assert (f"The world adds {two.value:+.1f} points [{two.low:+.1f}, {two.high:+.1f}] and "
            f"{four.value:+.1f} [{four.low:+.1f}, {four.high:+.1f}].") in prose and min(two.low, four.low) > 0
    by_domain = {domain: added[2][domain] for domain in DOMAINS}
    assert "the world adds most on chat, after one pass as after two ({:+.1f} and {:+.1f} points);".format(
        *(100 * added[passes]["chat"].value for passes in (1, 2))) in prose
    assert all(max(DOMAINS, key=lambda domain: added[passes][domain].value) == "chat" for passes in (1, 2))
    assert f"After one pass it took {-100 * added[1]['math'].value:.1f} on math, and the two cancelled." in prose
    assert added[1]["math"].high < 0 and by_domain["math"].low < 0 < by_domain["math"].high and added[1]["all"].low < 0 < added[1]["all"].high
    assert f"and adds {100 * by_domain['code'].value:+.1f} on code" in prose and by_domain["code"].low > 0
    assert "the deep world's math that hid it, where DSpark was still far behind" in prose and there[1]["math"].high < -0.1
    falls = {(world, name): 1 - losses[4] / losses[2] for world in worlds.PASSES for name in ("dspark", "eagle3")
             for losses in [worlds.held_out_loss_by_passes(name, world)]}
    told = "twice the passes lower its loss by {:.1f} %. DSpark, at {:.1f} %,"
    assert told.format(*(100 * falls["shallow", name] for name in ("eagle3", "dspark"))) in prose
    assert [case for case, fall in falls.items() if fall < 0.02] == [("shallow", "eagle3")]
    assert "Only the shallow world's Eagle3 is trained out." in prose
    assert f"{behind[0]:.1f} % behind in the shallow world, 2.8 % ahead in the deep one" in prose


def test_dflash_and_the_losses_after_two_passes_are_told_as_measured():
    prose, over = stated.prose("13"), worlds.leads("dflash")
    theirs = [100 * paper.macro_gain("Qwen3-4B", *pair) for pair in (("dspark", "dflash"), ("dflash", "eagle3"))]
    two, four = (100 * over[passes]["all"].value for passes in (2, 4))
    told = f"Over it DSpark's lead is {two:+.1f} % after two passes and {four:+.1f} % after four ("
    added = worlds.added_by_passes("dflash", "deep")[4]["all"].scaled(100)
    told += f"with the same seed {added.value:+.1f} points [{added.low:.1f}, {added.high:+.1f}])"
    assert told in prose and f"; the paper has {theirs[0]:.1f}." in prose
    assert added.low < 0 < added.high
    behind = our_results.gains(*(DEEP_PASSES[4][name][0] for name in ("dflash", "eagle3")))["all"].scaled(100)
    told = f"in the paper DFlash is {theirs[1]:.1f} % ahead, here it is {-behind.value:.1f} % behind after four passes "
    assert told + f"[{behind.low:.1f}, {behind.high:.1f}], by the third rule." in prose and behind.high < 0
    assert "**Nor do they bring the paper's order of DFlash and Eagle3**" in prose
    assert our_results.gains_over_seeds(*(DEEP_PASSES[2][name] for name in ("dflash", "eagle3")))["all"].high < 0
    assert "each further pass still lowers every loss on answers held out" in prose
    assert "two passes, with three seeds each" in prose and [len(recipes) for recipes in DEEP_PASSES[2].values()] == [3, 3, 3]
    for name in DEEP:
        losses = [our_results.measured(recipe)["training"]["held_out_losses"]["loss"] for recipe, *_ in worlds.trainings(name).values()]
        assert len(losses) > 1 and losses == sorted(losses, reverse=True)


def test_the_claims_in_the_deep_world_are_counted_and_grouped_as_judged():
    prose = stated.prose("13")
    judged = {entry.claim.says: (entry.verdict, deep_claims.deep_margins(entry.claim.says)) for entry in ledger.entries()}
    deep = {says: (here, ledger.verdict(margins), margins) for says, (here, margins) in judged.items() if margins}
    holds = [says for says, (_, there, _) in deep.items() if there == ledger.REPLICATES]
    assert "19 claims of lesson 12's ledger can be tested in the deep world." in prose
    assert "nine claims, where in the shallow world it was ten" in prose
    here, there = (ledger.verdict_counts(margins) for margins in (
        [entry.margins for entry in ledger.entries() if entry.claim.says in deep], [margins for *_, margins in deep.values()]))
    assert here == "10 replicate, 4 come out the other way round, 5 cannot be told"
    assert there == "9 replicate, 2 come out the other way round, 8 cannot be told"
    assert "two come out the other way round, where it was four. Of the other eight it cannot tell." in prose
    assert "Three hold here that failed in lesson 12:" in prose
    alike = our_results.gains_over_seeds(SHALLOW_ALIKE["dspark"], SHALLOW_ALIKE["dflash"])
    assert "trained alike, it holds in the shallow one, too" in prose and all(gain.low > 0 for gain in alike.values())
    firsts = {domain: [our_results.conditional_acceptance(SHALLOW_ALIKE[name][0], domain)[0].value for name in ("dflash", "eagle3")]
              for domain in ("math", "chat")}
    assert "It did not hold in the shallow world trained alike for one pass." in prose and all(a < b for a, b in firsts.values())
    changed = [says for says, (here, there, _) in deep.items() if here != there]
    gained, lost = [says for says in changed if says in holds], [says for says in changed if says not in holds]
    assert (len(deep), len(holds), len(gained), len(lost)) == (19, 9, 3, 4) and "Four that held are lost. One is refuted:" in prose
    assert {says.split(" accept")[0] for says in gained} == {"DSpark", "a DSpark of 2 layers", "DFlash's first draft is"}
    words = "calibration error", "longest on math", "at the same speed", "at the same throughput"
    assert all(any(word in says for says in lost) for word in words)
    assert "The two claims on MTP-1 (*strict* and *moderate* are 4 and 16 requests under way) have a section below." in prose
    assert claims.LOADS == {"moderate": 16, "strict": 4}
    assert "Of three we cannot tell." in prose and [ledger.turned_round(deep[says][2]) for says in lost].count(True) == 1
    (code_first,) = (deep[says][2] for says in lost if "longest on math" in says)
    assert "code is accepted longer than math" in prose and code_first["math over code"].high < 0
    first = [our_results.conditional_acceptance(DEEP_PASSES[2][name][0], "code")[0].value for name in ("eagle3", "dflash")]
    assert "Eagle3 is ahead here, {:.2f} to {:.2f};".format(*first) in prose and first[0] > first[1]
    theirs = {domain: [paper.conditional_acceptance(name, domain)[0] for name in ("dflash", "eagle3")] for domain in DOMAINS}
    assert "in its Figure 2 DFlash is, {:.2f} to {:.2f}.)".format(*theirs["code"]) in prose and all(a > b for a, b in theirs.values())


def test_heads_and_taps_in_the_deep_world_are_told_as_measured():
    prose, found = stated.prose("13"), worlds.contrasts()
    short, long = (found[f"RNN head over Markov head, draft length {length}"] for length in (8, 16))
    told = f"it is ahead by {100 * short['all'].value:+.1f} % at draft length 8 and by {100 * long['all'].value:+.1f} % at 16."
    assert told in prose and min(short["all"].low, long["all"].low) > 0
    e = found["RNN head over Markov head, draft length 8, two passes"]["all"]
    told = f"After the second pass {100 * e.value:+.1f} % [{100 * e.low:+.1f}, {100 * e.high:+.1f}] are left at 8, told on code alone."
    assert told in prose and 0 < e.low and e.high < short["all"].low and "By the rule it is better here" in prose
    second = found["RNN head over Markov head, draft length 8, two passes"]
    assert [domain for domain in DOMAINS if second[domain].low > 0] == ["code"]
    assert recorded_recipe("deep-dspark-rnn")["matrix_rate"] == recorded_recipe("deep-dspark")["matrix_rate"]
    assert recorded_recipe("deep-dspark-rnn-length-16")["steps"] == recorded_recipe("deep-dspark-length-16")["steps"] == 400
    taps = found["DSpark that reads four layers over one that reads the last of the four"]
    e = taps["all"]
    told = f"**Four taps are worth {100 * e.value:+.1f} %** [{100 * e.low:+.1f}, {100 * e.high:+.1f}]: one keeps most of"
    assert told in prose and all(gain.low > 0 for gain in taps.values())
    once = found["DSpark that reads four layers over one that reads them in its first layer alone"]
    e = once["all"]
    told = f"**Reading in every layer is worth {100 * e.value:+.1f} %** [{100 * e.low:+.1f}, {100 * e.high:+.1f}]."
    assert told in prose and all(gain.low > taps["all"].high for gain in once.values())
    little = our_results.gains(DEEP_TAPS["them in its first layer alone"], DEEP_DEPTHS[1])["all"].scaled(100)
    assert f"hardly longer than a DSpark of one: by {little.value:+.1f} % [{little.low:+.1f}, {little.high:+.1f}]." in prose and little.high < 3
    assert f"Three more taps bring {100 * taps['all'].value:.1f} %, reading them in every layer {100 * e.value:.1f} % (one pass, one seed)." in prose


def test_longer_drafts_are_told_as_measured():
    prose, there = stated.prose("13"), {"study": DEEP_LENGTH_STUDY}
    here = {domain: 100 * quantities.length_gain(domain, 8).value for domain in DOMAINS}
    theirs = {(domain, length): 100 * quantities.paper_gain(domain, length) for domain in DOMAINS for length in (8, 16)}
    assert "but at 8 it is {:+.1f} % on math, {:+.1f} on code and {:+.1f} on chat, where the paper has {:.0f}, {:.0f} and {:.0f}.".format(
        *here.values(), *(theirs[domain, 8] for domain in DOMAINS)) in prose
    leads = [quantities.length_gain(domain, 8, **there) for domain in DOMAINS]
    math, code, chat = (100 * lead.value for lead in leads)
    assert f"At 8 the lead is {math:+.1f} % on math and {chat:+.1f} on chat, nearer to the paper's than in the shallow world" in prose
    assert f"on code it is {code:+.1f}, which is no nearer." in prose
    nearer = {domain for domain, lead in zip(DOMAINS, leads) if abs(100 * lead.value - theirs[domain, 8]) < abs(here[domain] - theirs[domain, 8])}
    assert nearer == {"math", "chat"}
    growths = [quantities.gain_growth((domain,), 8, 16, **there) for domain in DOMAINS]
    assert "**The claim holds, in every domain.**" in prose
    assert min(found.low for found in (*leads, *growths, *(quantities.length_gain(domain, 16, **there) for domain in DOMAINS))) > 0
    lengths = {(domain, length): our_results.accepted_lengths(DEEP_LENGTH_STUDY["dflash", length])[domain].value
               for domain in DOMAINS for length in (8, 16)}
    growth = paper.by_draft_length("dflash", "math")
    assert "it accepts {:.2f} tokens at both lengths, where the paper's still gains {:.0f} %.".format(
        lengths["math", 16], 100 * (growth[16] / growth[8] - 1)) in prose
    assert f"{lengths['math', 8]:.2f}" == f"{lengths['math', 16]:.2f}"
    assert "brings DFlash next to nothing" in prose and all(lengths[domain, 16] / lengths[domain, 8] < 1.05 for domain in DOMAINS)


def test_head_and_losses_are_told_as_measured():
    prose, found = stated.prose("13"), worlds.head_and_losses()
    head_ce, head, losses, losses_head = found.values()
    told = "with the same losses DSpark still accepts {:+.1f} % [{:+.1f}, {:+.1f}] longer".format(
        *(100 * part for part in (head["all"].value, head["all"].low, head["all"].high)))
    assert told in prose
    assert "**Both bring something of their own, and the head a little more than half.** By the rule the head does" in prose
    assert all(gain.low > 0 for by_place in found.values() for gain in by_place.values())
    share, low, high = map(int, stated.caught(r"^Which share of this gain is the head's.*\n.*\n +measured +(\d+)% \[(\d+)%, (\d+)%\]",
                                              stated.printed("13"), "the output"))
    assert 50 < low < share < high < 65
    assert "Neither needs the other: each brings no less where it is alone." in prose
    assert all(alone["all"].value >= beside["all"].value for alone, beside in ((head_ce, head), (losses, losses_head)))
    assert "The head brings most on chat" in prose and "where the losses bring most, we cannot tell." in prose
    assert all(gain["chat"].low > max(gain[domain].high for domain in ("math", "code")) for gain in (head_ce, head))
    assert all(gain["code"].low < max(gain[domain].high for domain in ("math", "chat")) for gain in (losses, losses_head))


def test_calibration_in_the_deep_world_is_told_as_measured():
    prose = stated.prose("13")
    errors = [100 * recorded_confidence.over_positions("ece", np.mean, calibrated, "deep").value for calibrated in (False, True)]
    assert "the ECE is {:.2f} % before it and {:.2f} % after".format(*errors) in prose
    assert "over-confident head had {} to {} %".format(*paper.claim("ECE before calibration, range")) in prose


def test_what_seven_drafts_lose_is_told_as_measured():
    prose, (length, whole, _) = stated.prose("13"), worlds.over_best_fixed("deep")[64]
    assert length == 4 and f"Most came with four drafts, and 7 bring {-100 * whole.value:.1f} % less, no more than plain decoding." in prose
    assert whole.high < 0 and worlds.throughputs("deep", 64)["fixed 7"][1].value < 1
    assert {recorded_serving.serving_run(server)["turns"] for server in ("deep", "deep-two-passes")} == {20}
    assert "Each way of serving got 20 turns of some steps, in rotation" in prose
    printed = r"^deep world, (\w+) pass\w*, +(\d+) under way: 7 drafts lose ([-\d.]+)% by the same turns, ([-\d.]+)% ± ([\d.]+)% by others$"
    found = {(passes, int(load)): tuple(map(float, rest)) for passes, load, *rest in re.findall(printed, stated.printed("13"), re.M)}
    by_same, by_others, error = found["one", 64]
    assert by_same == round(-100 * whole.value, 1) and f"A quarter of the loss is gone: {by_others} % are left." in prose
    assert 0.2 < 1 - by_others / by_same < 0.3
    assert "with 64 under way we cannot quite tell the loss from none" in prose and 0 < error - by_others < 0.5
    _, by_others, error = found["one", 16]
    assert f"with 16 we can ({by_others} % ± {error})" in prose and by_others > error
    assert "After two passes, with a better drafter, no loss can be shown at any load." in prose and len(found) == 6
    assert all(loss < error for (passes, _), (_, loss, error) in found.items() if passes == "two")


def test_the_scheduler_and_the_engine_are_told_as_measured():
    prose, (_, _, scheduled) = stated.prose("13"), worlds.over_best_fixed("deep-two-passes")[16]
    assert f"it falls behind it by {-100 * scheduled.value:.1f} %, with the whole interval:" in prose and scheduled.high < 0
    line = (r"^deep world, (\w+ pass\w*), +(\d+) under way: Algorithm 1 over the best length ([-+][\d.]+)% ± ([\d.]+)% by other turns; "
            r"verifying takes ([-+][\d.]+)% longer; without that ([-+][\d.]+)%$")
    cases = {(passes, int(load)): tuple(map(float, rest)) for passes, load, *rest in re.findall(line, stated.printed("13"), re.M)}
    over, error, _, without = cases["two passes", 16]
    assert len(cases) == 6 and f"By other turns it is {-over:.1f} % behind, ± {error}: **in no case can we tell Algorithm 1 from" in prose
    assert all(abs(lead) < error for lead, error, *_ in cases.values()) and without - over > -over / 2
    longer_by = [found for _, _, found, _ in cases.values() if found > 0]
    assert "In five of six cases a ragged step takes 7 to 13 % longer to verify" in prose
    assert (len(longer_by), round(min(longer_by)), round(max(longer_by))) == (5, 7, 13)
    assert "without that the estimates would be level with the best length or above it" in prose
    assert all(without > -0.5 for case, (*_, without) in cases.items() if case != ("two passes", 4))
    told = "(In the sixth, with 4 under way after two passes, the engine's layout explains nothing.)"
    assert told in prose and cases["two passes", 4][-1] <= cases["two passes", 4][0]


def test_what_the_model_says_of_other_costs_is_told_as_printed():
    prose, number = stated.prose("13"), r"([-+][\d.]+)%"
    costs = "as measured", "no step", "no step, tokens x 2"
    line = rf"^({'|'.join(costs)}) +(\d+) under way: best length (\d), 7 over it +{number}, Algorithm 1 over it +{number}$"
    found = re.findall(line, stated.printed("13"), re.M)
    by_costs = {said: [row[1:] for row in found if row[0] == said] for said in costs}
    assert [[int(load) for load, *_ in rows] for rows in by_costs.values()] == [[4, 16, 64]] * 3
    level, *ahead = (float(scheduled) for *_, scheduled in by_costs["as measured"])
    assert abs(level) < 0.5 and "ahead with 16 and 64, by {} and {} %.".format(*ahead) in prose
    served = worlds.over_best_fixed("deep-two-passes")
    assert {best for _, best, *_ in by_costs["as measured"]} == {"7"} and [served[load][0] for load in (16, 64)] == [6, 5]
    assert "(In the model 7 are best; the table above has 6 and 5, but cannot tell them from 7." in prose
    assert all(served[load][1].low < 0 < served[load][1].high for load in (16, 64))
    assert "Algorithm 1 is ahead by 8 % everywhere" in prose and {round(float(scheduled)) for *_, scheduled in by_costs["no step"]} == {8}
    assert "7 drafts lose only 1 % there" in prose and {round(float(seven)) for _, _, seven, _ in by_costs["no step"]} == {-1}
    assert "4 are best and 7 lose 5 to 6 %." in prose and {best for _, best, *_ in by_costs["no step, tokens x 2"]} == {"4"}
    assert {round(float(seven)) for _, _, seven, _ in by_costs["no step, tokens x 2"]} == {-5, -6}
    request, token = map(float, stated.caught(r"^a request ([\d.]+) ms, a verified token ([\d.]+) ms$", stated.printed("13"), "the output"))
    assert "costs nearly seven times as much" in prose and 6.5 < request / token < 7


def test_the_server_beside_mtp_is_told_as_measured():
    prose, beside = stated.prose("13"), recorded_serving.BESIDE_MTP
    budgets, over = recorded_serving.budgets_by_load(beside)["lagged"], recorded_serving.throughput_over_mtp(beside)["lagged"]
    assert f"from {budgets[1].value:.2f} tokens to {budgets[64].value:.2f}." in prose and quantities.budget_drop(beside).low > 0
    assert "**after one pass the lead over MTP-1 is gone on a busy server**" in prose
    over_plain = [worlds.throughputs(server, 64)["algorithm1"][1].value for server in ("deep-two-passes", "deep")]
    assert "Algorithm 1 has {:.2f} times plain decoding's throughput after two passes, and {:.2f} times after one.".format(*over_plain) in prose
    length = recorded_serving.value("accepted_length", recorded_serving.by_load(*recorded_serving.WAYS["mtp"], beside)[64])
    might_be = over[64].value * over_plain[0] / over_plain[1] * length / 2
    assert f"2 tokens per step in place of {length:.2f}." in prose
    assert "So we expected {:.2f} · {:.2f} / {:.2f} · {:.2f} / 2 = {:.2f} times".format(over[64].value, *over_plain, length, might_be) in prose
    told = f"with 4 under way DSpark has {over[4].value:.2f} times its throughput, with 16 the same, with 64 {over[64].value:.2f} times."
    assert told in prose and over[4].low > 1 > over[64].high and over[16].low < 1 < over[16].high
    gains = {load: [recorded_serving.gain_over_mtp(gain, "lagged", load, beside)
                    for gain in (recorded_serving.speed_gain, recorded_serving.throughput_gain)] for load in (4, 16)}
    assert "hold here with 4 under way and not with 16." in prose
    assert all(found.low > 0 for found in gains[4]) and all(found.low < 0 < found.high for found in gains[16])
    ours, theirs = ([recorded_serving.value(part, recorded_serving.by_load(*recorded_serving.WAYS[name], beside)[64])
                     for part in ("accepted_length", "step_seconds", "verify_seconds", "draft_seconds")] for name in ("lagged", "mtp"))
    more, longer = ours[0] / theirs[0], ours[1] / theirs[1]
    assert f"DSpark commits {more:.1f} times as much per step, and its step takes {longer:.1f} times as long." in prose
    told = "Of the {:.0f} ms more, {:.0f} go into verifying".format(*(1e3 * (a - b) for a, b in zip(ours[1:3], theirs[1:3])))
    assert told in prose and f"The other {1e3 * (ours[3] - theirs[3]):.0f} go into drafting" in prose
    stated.tied("13", r"if DSpark drafted in MTP-1's time, it would be ahead, by (\d+) %",
                r"if DSpark drafted in MTP-1's time: .* ms, 1\.(\d+) times")
    assert round(over[16].value, 1) == 1
    loss = quantities.static_loss(beside)
    assert f"one draft out of DSpark's block brings even less than seven, by {-100 * loss.value:.0f} %" in prose and loss.high < 0
    assert our_results.measured(DEEP_MTP[1])["training"]["steps"] == our_results.measured(DEEP["dspark"][0])["training"]["steps"]
    shallow = recorded_serving.throughput_over_mtp()["lagged"]
    assert "from about twice MTP-1's with few under way to hardly more with 64 (lesson 11)" in prose
    assert 1.8 < shallow[1].value < 2.2 and 1 < shallow[64].value < 1.1


def test_the_server_beside_mtp_after_two_passes_is_told_as_measured():
    prose, servers = stated.prose("13"), (recorded_serving.BESIDE_MTP, recorded_serving.BESIDE_MTP_TWO_PASSES)
    over = recorded_serving.throughput_over_mtp(servers[1])
    busy, whole = over["lagged"][64], over["fixed 7"][64]
    assert "**After two passes the lead is back, and small**" in prose and 1 < busy.low and busy.high < 1.1
    assert f"DSpark has {busy.value:.2f} times MTP-1's throughput [{busy.low:.2f}, {busy.high:.2f}]," in prose
    assert f"with 16 {over['lagged'][16].value:.2f} times." in prose and over["lagged"][16].low > 1
    assert f"and back after two, by {100 * (busy.value - 1):.0f} %" in prose
    assert f"with all 7 drafts verified it is {whole.value:.2f} [{whole.low:.2f}, {whole.high:.2f}]." in prose
    gain = recorded_serving.gain("throughput", *(recorded_serving.by_load(*recorded_serving.WAYS[policy], servers[1])[64]
                                                 for policy in ("lagged", "fixed 7")))
    assert gain.low < 1 < gain.high and "What the scheduler adds there we cannot tell" in prose
    one, two = ([recorded_serving.value("accepted_length", recorded_serving.by_load(*recorded_serving.WAYS[name], server)[64])
                 for name in ("lagged", "mtp")] for server in servers)
    assert f"It commits {two[0]:.2f} tokens per request and step in place of {one[0]:.2f}, where MTP-1 had little left to gain." in prose
    assert 0 < two[1] - one[1] < 0.1 and {row["concurrency"] for row in recorded_serving.serving_run(servers[1])["policies"]} == {4, 16, 64}


def test_the_gates_are_told_as_measured():
    prose, found = stated.prose("13"), {world: worlds.gates(world) for world in worlds.WORLDS}
    right = [100 * found["deep"][key]["value"] for key in (("answers that are right", "math"), ("answers that are right", "code"),
                                                           ("facts recalled", "chat"))]
    assert "{:.0f} and {:.0f} % of math and code, {:.0f} % of the facts".format(*right) in prose
    uncertain = [100 * found[world]["tokens above 0.67 nat (reported)", "math"]["value"] for world in ("deep", "shallow")]
    told = "In math {:.0f} % of them have an entropy above 0.67 nat, as in the real world, where the shallow one has {:.0f} %."
    assert told.format(*uncertain) in prose
    assert f"(In chat it is {100 * found['deep']['tokens above 0.67 nat (reported)', 'chat']['value']:.0f} %;" in prose
    deep, shallow = ([f"{found[world][SMALL_LM_LENGTHS, domain]['value']:.2f}" for domain in DOMAINS] for world in ("deep", "shallow"))
    assert "accepts {}, {} and {} tokens on math, code and chat, in place of {}, {} and {}.".format(*deep, *shallow) in prose
    assert [found["deep"][SMALL_LM_LENGTHS, domain]["met"] for domain in DOMAINS] == [True, False, True]


def test_a_change_of_one_field_keeps_its_neighbours(tmp_path):
    base = load_recipe(trials.RECIPE)
    assert any(f'load_recipe("{trials.RECIPE}")' in cell.source for cell in stated.cells("13"))
    assert len(base["config"]["target_layer_ids"]) == 4 and "One tap in place of four" in stated.prose("13")
    changed = load_recipe(str(trials.write_trial("changed", {"config": {"markov_rank": 4}, "seed": 2}, tmp_path)))
    assert changed == {**base, "name": "changed", "config": {**base["config"], "markov_rank": 4}, "seed": 2}


def test_what_is_to_be_won_on_code_is_computed_from_the_gates():
    lengths = [worlds.gates(world)[SMALL_LM_LENGTHS, "code"]["value"] for world in ("shallow", "deep")] + [NOTEBOOK["code"]]
    told = [part for length in lengths for part in (f"{100 * ((SMALL_LM_LENGTH + 1) / round(length, 2) - 1):.0f}", f"{length:.2f}")]
    assert "by {} % in the shallow world (5 / {} = 1.12), by {} % in the deep one (5 / {}) and by {} % in the real one (5 / {}).".format(*told) \
        in stated.prose("13")


def test_the_bounds_that_are_missed_are_counted():
    counts = []
    for world in ("deep", "shallow"):
        bounded = [row for row in worlds.gates(world).values() if (row["at_least"], row["at_most"]) != (None, None)]
        counts += [sum(not row["met"] for row in bounded), len(bounded)]
    assert "The deep world misses {} of {} bounds, the shallow one {} of {}".format(*counts) in stated.prose("13")
    depth = [worlds.gates(world)["first position of DSpark at full depth less that of one layer", "all"]["value"] for world in ("shallow", "deep")]
    assert "by {:.2f} in the shallow world (three layers) and by {:.2f} in the deep one (four)".format(*depth) in stated.prose("13")
