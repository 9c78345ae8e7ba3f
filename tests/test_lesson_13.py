"""Lesson 13: what its prose states of the deep world is what was measured there."""

import numpy as np
import stated

from dspark_lite.common import paper
from dspark_lite.common.names import DOMAINS
from dspark_course.making.recipes import load_recipe
from dspark_course.measure.gates import NOTEBOOK, SMALL_LM_LENGTH, SMALL_LM_LENGTHS
from dspark_course.measure.studies import DEEP, DEEP_DEPTHS, DEEP_PASSES, DEEP_TAPS, SHALLOW_ALIKE, TABLE_1
from dspark_course.replication import deep_claims, ledger, our_results, recorded_confidence, recorded_serving, worlds


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
    told = "ahead of Eagle3 by {:+.1f} % [{:+.1f}, {:+.1f}] over all three seeds".format(*(100 * part for part in (two.value, two.low, two.high)))
    assert told in prose and two.low > 0 > one.high and len(DEEP_PASSES[2]["dspark"]) == len(DEEP_PASSES[2]["eagle3"]) == 3
    of_seeds = [our_results.gains(*pair) for pair in zip(DEEP_PASSES[2]["dspark"], DEEP_PASSES[2]["eagle3"])]
    assert "and in the mean with each of them" in prose and all(gain["all"].low > 0 for gain in of_seeds)
    assert "On chat DSpark is ahead with every seed, on math and code our prompts cannot tell." in prose
    assert all(gain["chat"].low > 0 for gain in of_seeds) and all(found[2][place].low < 0 < found[2][place].high for place in ("math", "code"))
    with_seed_1 = of_seeds[0]["all"].value
    assert f"{100 * with_seed_1:+.1f} % with two and {100 * four.value:+.1f} % with four" in prose and with_seed_1 > four.value
    leads = [100 * paper.macro_gain(target, "dspark", "eagle3") for target in paper.TARGETS]
    assert f"The paper has {leads[0]:.1f} % on Qwen3-4B; our gain stays below even its smallest, {min(leads):.1f}." in prose
    assert max(two.high, four.high) < min(leads) / 100
    assert f"From {100 * one.value:.1f}" not in prose and f"One pass, {100 * one.value:.1f} %." in "".join(cell.source for cell in stated.cells("13"))


def test_the_shallow_world_trained_alike_is_told_as_measured():
    prose, places = stated.prose("13"), our_results.PLACES.values()
    alike = our_results.gains_over_seeds(SHALLOW_ALIKE["dspark"], SHALLOW_ALIKE["eagle3"])
    old = our_results.gains(TABLE_1["dspark"], TABLE_1["eagle3"])["all"].value
    one = worlds.leads("eagle3")[1]["all"].value
    assert f"was with the old training ({100 * old:.1f} %)" in prose and f"after one pass in the deep world ({100 * one:.1f} %)" in prose
    told = "DSpark is {:.1f} % behind Eagle3, where it had been {:.1f} behind and in the deep world is {:.1f}:"
    assert told.format(*(-100 * gain for gain in (alike["all"].value, old, one))) in prose and alike["all"].high < 0
    assert "DSpark is {:.1f} % behind Eagle3 in the shallow world and {:.1f} in the deep one".format(
        -100 * alike["all"].value, -100 * one) in prose
    added = worlds.training_and_world("eagle3")
    training, world = (added[cause] for cause in ("training", "world"))
    assert (f"the training adds {100 * training['all'].value:+.1f} points, the world {100 * world['all'].value:+.1f}, and both intervals hold zero"
            in prose) and all(found["all"].low < 0 < found["all"].high for found in added.values())
    longer = [our_results.accepted_lengths(SHALLOW_ALIKE[name][0])["all"].value / our_results.accepted_lengths(TABLE_1[name])["all"].value - 1
              for name in ("dspark", "eagle3")]
    assert "DSpark accepts {:.1f} % longer than it did, Eagle3 {:.1f} %".format(*(100 * gain for gain in longer)) in prose
    assert f"adds {100 * world['chat'].value:+.1f} points on chat and takes {-100 * world['math'].value:.1f} on math" in prose
    over_dflash = worlds.training_and_world("dflash")["world"]["chat"]
    assert f"(Over DFlash the deep world takes {-100 * over_dflash.value:.1f} points on chat;" in prose and over_dflash.high < 0
    told_apart = {place for place in places if world[place].low > 0 or world[place].high < 0}
    assert world["chat"].low > 0 > world["math"].high and told_apart == {"chat", "math"}


def test_dflash_and_the_losses_after_two_passes_are_told_as_measured():
    prose, over = stated.prose("13"), worlds.leads("dflash")
    assert f"Over DFlash the lead grows from {100 * over[1]['all'].value:+.1f} to {100 * over[2]['all'].value:+.1f} % with the second" in prose
    theirs = [100 * paper.macro_gain("Qwen3-4B", *pair) for pair in (("dspark", "dflash"), ("dflash", "eagle3"))]
    assert "The paper has {:.1f} on Qwen3-4B, and DFlash ahead of Eagle3, by {:.1f};".format(*theirs) in prose
    stated.tied("13", r"here DFlash stays behind Eagle3, by ([\d.]+) % after two passes", r"^DFlash over Eagle3 after 2 passes, mean -([\d.]+)%")
    assert "with each further pass every loss on answers held out still falls" in prose
    assert "with the second pass, three seeds of each" in prose and [len(DEEP_PASSES[2][name]) for name in ("dspark", "dflash")] == [3, 3]
    for name in DEEP:
        losses = [our_results.measured(recipe)["training"]["held_out_losses"]["loss"] for recipe, *_ in worlds.trainings(name).values()]
        assert len(losses) > 1 and losses == sorted(losses, reverse=True)


def test_the_claims_in_the_deep_world_are_counted_and_grouped_as_judged():
    prose = stated.prose("13")
    judged = {entry.claim.says: (entry.verdict, deep_claims.deep_margins(entry.claim.says)) for entry in ledger.entries()}
    deep = {says: (here, ledger.verdict(margins), margins) for says, (here, margins) in judged.items() if margins}
    holds = [says for says, (_, there, _) in deep.items() if there == ledger.REPLICATES]
    assert "Half of these 14 claims replicate in the deep world, among them three that fail in the shallow one." in prose
    assert (len(deep), len(holds), sum(deep[says][0] != ledger.REPLICATES for says in holds)) == (14, 7, 3)
    assert any(says.startswith("DFlash's first draft is accepted more often than Eagle3's") for says in holds)
    assert any(says.startswith("a DSpark of 2 layers") for says in holds)
    turned = [says for says in deep if says not in holds and any(margin.high < 0 for margin in deep[says][2].values())]
    undecided = {says[:12]: [place for place, margin in deep[says][2].items() if margin.low <= 0] for says in deep if says not in [*holds, *turned]}
    assert "Two are of calibration." in prose and [says[:16] for says in list(undecided)] and (
        undecided.pop("the raw conf"), undecided.pop("sequential t")) == (["least excess"], [""])
    assert [says[:25] for says in turned] == ["DSpark's accepted length is longest"[:25]]
    assert "four fail because the interval of one domain, or of two, holds zero" in prose
    assert undecided == {"DSpark accep": ["math", "code"], "Eagle3's con": ["chat"], "DSpark's fir": ["math"], "from positio": ["chat"]}
    first = [our_results.conditional_acceptance(DEEP_PASSES[2][name][0], "code")[0].value for name in ("eagle3", "dflash")]
    assert "(On code Eagle3 is ahead, {:.2f} to {:.2f};".format(*first) in prose and first[0] > first[1]
    theirs = {domain: [paper.conditional_acceptance(name, domain)[0] for name in ("dflash", "eagle3")] for domain in DOMAINS}
    assert "has DFlash ahead there, too, {:.2f} to {:.2f}.)".format(*theirs["code"]) in prose and all(a > b for a, b in theirs.values())
    (rise,) = deep_claims.deep_margins("Eagle3's conditional acceptance rises along the block on chat").values()
    assert "Eagle3's rise on chat, which is none." in prose and rise.value < 0


def test_where_eagle3_begins():
    prose = stated.prose("13")
    ours = our_results.conditional_acceptance(DEEP_PASSES[2]["eagle3"][0], "chat")[0].value
    assert f"(Eagle3 begins at {ours:.2f} there, the paper's at {paper.conditional_acceptance('eagle3', 'chat')[0]:.2f}, so" in prose


def test_heads_and_taps_in_the_deep_world_are_told_as_measured():
    prose, found = stated.prose("13"), worlds.contrasts()
    short, long = (found[f"RNN head over Markov head, draft length {length}"] for length in (8, 16))
    told = f"by {100 * short['all'].value:+.1f} % at draft length 8 and by {100 * long['all'].value:+.1f} % at 16"
    assert told in prose and min(short["all"].low, long["all"].low) > 0
    assert f"most on code ({100 * long['code'].value:+.1f} %)" in prose and max(long, key=lambda place: long[place].value) == "code"
    e = found["RNN head over Markov head, draft length 8, two passes"]["all"]
    told = f"After two passes its lead at 8 is {100 * e.value:+.1f} % [{100 * e.low:+.1f}, {100 * e.high:+.1f}]: by the rule it is better here"
    assert told in prose and 0 < e.low and e.high < short["all"].low
    assert load_recipe("deep-dspark-rnn-length-16")["steps"] == load_recipe("deep-dspark-length-16")["steps"] == 400
    taps = found["DSpark that reads four layers over one that reads the last of the four"]
    e = taps["all"]
    told = f"accepts {100 * e.value:+.1f} % [{100 * e.low:+.1f}, {100 * e.high:+.1f}] longer than the one"
    assert told in prose and "and longer in every domain" in prose and all(gain.low > 0 for gain in taps.values())
    once = found["DSpark that reads four layers over one that reads them in its first layer alone"]
    e = once["all"]
    told = (f"is worth far more**: {100 * e.value:+.1f} % [{100 * e.low:+.1f}, {100 * e.high:+.1f}], "
            f"most on math ({100 * once['math'].value:+.1f} %), least on chat ({100 * once['chat'].value:+.1f} %)")
    assert told in prose and all(gain.low > taps["all"].high for gain in once.values())
    assert max(once, key=lambda place: once[place].value) == "math" and min(once, key=lambda place: once[place].value) == "chat"
    lengths = [our_results.accepted_lengths(recipe)["all"].value for recipe in (DEEP_TAPS["them in its first layer alone"], DEEP_DEPTHS[1])]
    assert "hardly longer than a DSpark of one layer ({:.2f} tokens per round against {:.2f})".format(*lengths) in prose
    assert 0 < lengths[0] / lengths[1] - 1 < 0.02
    second = our_results.gains_over_seeds(DEEP_PASSES[2]["dspark"], DEEP["dspark"])["all"].value
    assert (f"Three more taps bring {100 * taps['all'].value:.1f} %, reading them in every layer {100 * e.value:.1f} %, "
            f"a second pass DSpark {100 * second:.0f} %") in prose


def test_head_and_losses_are_told_as_measured():
    prose, found = stated.prose("13"), worlds.head_and_losses()
    head_ce, head, losses, losses_head = found.values()
    told = "with the same losses DSpark still accepts {:+.1f} % [{:+.1f}, {:+.1f}] longer".format(
        *(100 * part for part in (head["all"].value, head["all"].low, head["all"].high)))
    assert told in prose
    told = "they alone bring a DFlash {:+.1f} % [{:+.1f}, {:+.1f}].".format(
        *(100 * part for part in (losses["all"].value, losses["all"].low, losses["all"].high)))
    assert told in prose
    assert "**Both bring something of their own.** By the rule the head does" in prose
    assert all(gain.low > 0 for by_place in found.values() for gain in by_place.values())
    both = worlds.leads("dflash")[1]["all"].value
    assert f"Of the {100 * both:.1f} % half or a little more is the head's" in prose
    shares = [np.log1p(gain["all"].value) / np.log1p(both) for gain in (head_ce, head)]
    assert all(0.5 < share < 0.65 for share in shares)
    assert "each brings no less where the other is missing" in prose
    assert all(alone["all"].value >= beside["all"].value for alone, beside in ((head_ce, head), (losses, losses_head)))
    told = f"The head brings most on chat ({100 * head['chat'].value:+.1f} %), the losses most on code ({100 * losses['code'].value:+.1f} %)"
    assert told in prose and [max(DOMAINS, key=lambda domain: gain[domain].value) for gain in found.values()] == ["chat", "chat", "code", "code"]


def test_calibration_in_both_worlds_is_told_as_measured():
    prose = stated.prose("13")
    errors = {world: [100 * recorded_confidence.over_positions("ece", np.mean, calibrated, world).value for calibrated in (False, True)]
              for world in worlds.WORLDS}
    assert "its ECE is {:.2f} % before scaling and {:.2f} % after".format(*errors["deep"]) in prose
    assert "scaling does lower it, from {:.2f} to {:.2f} %.".format(*errors["shallow"]) in prose and recorded_confidence.gain_in_ece().low > 0
    assert "with an ECE of {} to {} %".format(*paper.claim("ECE before calibration, range")) in prose
    prompts = {domain: len(set(found.prompts.tolist())) for domain, found in recorded_confidence.observations("deep").items()}
    assert "60 of each domain to fit temperatures on, 60 others to judge by" in prose and set(prompts.values()) == {60}
    assert recorded_confidence.threshold_sweep("deep")["prompts"] == dict.fromkeys(prompts, 20) and "20 for each threshold" in prose


def test_serving_in_the_deep_world_is_told_as_measured():
    prose, found = stated.prose("13"), worlds.over_best_fixed("deep")
    length, whole, _ = found[64]
    assert "**After one pass 7 drafts are too many with 64 requests under way:**" in prose and whole.high < 0
    assert f"{length} are best, and 7 bring {-100 * whole.value:.1f} % less, no more than plain decoding" in prose
    assert worlds.throughputs("deep", 64)["fixed 7"][1].value < 1
    length, whole, _ = found[16]
    assert f"With 16 under way 7 lose {-100 * whole.value:.1f} % to {length} drafts, with 4 we cannot tell" in prose
    assert whole.high < 0 and found[4][1].low < 0 < found[4][1].high
    assert recorded_serving.serving_run("deep")["turns"] == 20 and "20 turns of four steps or more each" in prose


def test_the_server_of_two_passes_is_told_as_measured():
    prose, found = stated.prose("13"), worlds.over_best_fixed("deep-two-passes")
    assert recorded_serving.serving_run("deep-two-passes")["turns"] == 20
    length, whole, scheduled = found[64]
    assert f"with 64 under way {length} drafts are best, and 7 bring {-100 * whole.value:.1f} % less, an interval that holds zero" in prose
    assert whole.low < 0 < whole.high and f"a loss of up to {-100 * whole.low:.1f} % is not excluded" in prose
    after_one = worlds.over_best_fixed("deep")[64][1]
    assert "and the two intervals overlap, so the change may be noise" in prose and after_one.low < whole.low < after_one.high < whole.high
    best = [worlds.throughputs(server, 64)[f"fixed {worlds.over_best_fixed(server)[64][0]}"][1].value for server in ("deep-two-passes", "deep")]
    assert "brings {:.2f} times the throughput of plain decoding, the one of one pass {:.2f} times".format(*best) in prose
    level = worlds.over_best_fixed("deep")[64][2], scheduled
    assert "is level with that one, for either drafter, give or take {:.0f} and {:.0f} %".format(
        *(100 * max(-e.low, e.high) for e in level)) in prose and all(e.low < 0 < e.high for e in level)
    lengths = [best for best, *_ in found.values()]
    assert "With 4, 16 and 64 under way {}, {} and {} drafts are best: shorter under load".format(*lengths) in prose
    assert list(found) == [4, 16, 64] and lengths == sorted(lengths, reverse=True) and all(gain.high >= 0 for _, gain, _ in found.values())
    _, _, scheduled = found[16]
    assert f"With 16 under way and two passes it is {-100 * scheduled.value:.1f} % below, with the whole interval" in prose and scheduled.high < 0
    drafts = {policy: verified for policy, (verified, _) in worlds.throughputs("deep-two-passes", 16).items()}
    assert "there it verifies fewer drafts than pay" in prose and drafts["algorithm1"] < found[16][0]


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


def test_a_change_of_one_field_keeps_its_neighbours():
    base, change = load_recipe("lesson-tiny"), {"config": {"markov_rank": 4}}
    assert len(base["config"]["target_layer_ids"]) == 4 and "One tap in place of four" in stated.prose("13")
    (line,) = (line for cell in stated.cells("13") for line in cell.source.splitlines() if line.strip().startswith("changed = base |"))
    scope = {"base": base, "change": change}
    exec(line.strip(), scope)
    assert scope["changed"] == {**base, "config": {**base["config"], "markov_rank": 4}}


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


def test_what_the_served_drafter_commits_is_told_as_measured():
    lengths = [our_results.accepted_lengths(DEEP_PASSES[passes]["dspark"][0])["all"].value for passes in (2, 1)]
    assert "{:.1f} tokens are committed per round in place of {:.1f}".format(*lengths) in stated.prose("13")
