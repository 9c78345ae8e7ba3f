"""Lesson 06: its prose says what it prints, its figures show what they are given."""

import json
import math

import numpy as np
import pytest
import torch
from helpers import written
from stated import between, caught, printed, prose, tied

from dspark_lite.common import paper
from dspark_lite.common.estimates import Estimate
from dspark_lite.common.files import ROOT
from dspark_lite.common.names import DOMAINS
from dspark_lite.common.recorded import reference
from dspark_course.figures import lesson_06 as figures
from dspark_course.measure import studies
from dspark_lite.decoding.block_verification import block_ends
from dspark_lite.decoding.sampling import probability_ratios
from dspark_lite.models import inspection
from dspark_course.replication import experiments, our_results

NUMBER = r"([+-]?\d+(?:\.\d+)?)"


@pytest.mark.parametrize(("sentence", "output"), [
    (rf"The accepted length does: {NUMBER} in place of", rf"^never rolled back +{NUMBER}"),
    (rf"in place of {NUMBER}\. Entries", rf"^rolled back +{NUMBER}"),
    (rf"Eagle3 commits {NUMBER} tokens per round on chat", rf"^chat +eagle3 +τ {NUMBER}"),
    (rf"on chat, DSpark {NUMBER}: the rival wins", rf"^chat +dspark +τ {NUMBER}"),
    (rf"acceptance falls further, from {NUMBER} to {NUMBER}, Eagle3's", rf"^chat +dspark +τ \S+ +{NUMBER} .* {NUMBER}$"),
    (rf"Eagle3's from {NUMBER} to {NUMBER}\. That fits", rf"^chat +eagle3 +τ \S+ +{NUMBER} .* {NUMBER}$"),
    (rf"far steeper \({NUMBER} against", rf"^DFlash, here .* \S+ {NUMBER}$"),
    (rf"far steeper \(\S+ against {NUMBER}\)", rf"^DFlash, paper .* \S+ {NUMBER}$"),
    (rf"Eagle3's rise \(\+{NUMBER}, from a first", rf"^Eagle3, here +\S+ \+{NUMBER}"),
    (rf"from a first position of {NUMBER}\)", rf"^Eagle3, here +{NUMBER}"),
    (rf"lead at the first, {NUMBER} against", rf"^DSpark, here +{NUMBER}"), (rf"first, \S+ against {NUMBER}, is", rf"^DFlash, here +{NUMBER}"),
    (rf"and DSpark falls by {NUMBER}\. On code", rf"^DSpark, here .* \S+ -{NUMBER}$"),
    (rf"DSpark seems to rise, by {NUMBER}, because", rf"^DSpark, here +\S+ \S+ +\S+ \+{NUMBER}"),
    (rf"first position is bad: {NUMBER}, where", rf"^DSpark, here +\S+ \S+ +{NUMBER}"),
    (rf"with a backbone of the same kind has {NUMBER}\.", rf"^DFlash, here +\S+ \S+ +{NUMBER}"),
    (rf"first position on math was {NUMBER} on eight", rf"^math +eagle3 +τ \S+ +{NUMBER}"), (rf"and is {NUMBER} on 200", rf"^Eagle3, here +{NUMBER}"),
    (rf"DSpark commits {NUMBER} % fewer tokens per round than Eagle3", rf"DSpark against Eagle3, mean of the domains: -{NUMBER}%"),
    (rf"where the paper's commits {NUMBER} % more", rf"here, \+{NUMBER}% in the paper"),
    (rf"MTP-1 has one layer and is best in every domain, with {NUMBER} to", rf"^MTP-1 +\S+ \S+ \S+ +\S+ \S+ \S+ +{NUMBER}"),
    (rf"with \S+ to {NUMBER}\. But it was", rf"^MTP-1 +{NUMBER} \["),
    (rf"one layer is {NUMBER} % behind Eagle3, in the paper \(Figure 3 and Table 1\) {NUMBER} %",
     rf"1 layer against Eagle3: -{NUMBER}% here, -{NUMBER}% in the paper"),
    (rf"it ends at {NUMBER}, the other at", rf"teacher-forced +.*: {NUMBER} with the target's"),
    (rf"the other at {NUMBER}\. \(Both rise", rf"training-time test +.*: {NUMBER} with the target's"),
    (rf"teacher forcing loses {NUMBER} by the fifth", rf"teacher-forced .*\(-{NUMBER}\)"),
    (rf"the training-time test {NUMBER}, and", rf"training-time test .*\(-{NUMBER}\)"),
    (rf"the order turns: {NUMBER} against", rf"teacher-forced .*features, {NUMBER} with"),
    (rf"the order turns: \S+ against {NUMBER}\.", rf"training-time test .*features, {NUMBER} with"),
    (rf"loses {NUMBER} in seven passes", rf"the lab's Eagle3 .*\(-{NUMBER}\)"),
    (rf"below the coloured one, {NUMBER} against", rf"{NUMBER} at position 7"),
    (rf"coloured one, \S+ against {NUMBER}; but", rf"the lab's Eagle3 .*features, {NUMBER} with"),
    (rf"gives Eagle3 {NUMBER} tokens per round where", rf"by the formula: .*Eagle3 {NUMBER}"),
    (rf"tokens per round where {NUMBER} were counted", rf"^chat +eagle3 +τ {NUMBER}"),
    (rf"With {NUMBER}, {NUMBER} and {NUMBER} twice", rf"^chat +dspark +τ \S+ +{NUMBER} +{NUMBER} +{NUMBER} "),
    (rf"one block of seven has {NUMBER}\.", rf"by the formula: .*DSpark {NUMBER}"),
    (rf"were counted, and DSpark {NUMBER} for", rf"by the formula: .*DSpark {NUMBER}"),
    (rf"and DSpark \S+ for {NUMBER}\. ", rf"^chat +dspark +τ {NUMBER}"),
    (rf"Little: {NUMBER} % on math and code", rf"^math +τ .*verification: \+{NUMBER}%"),
    (rf"Little: {NUMBER} % on math and code", rf"^code +τ .*verification: \+{NUMBER}%"),
    (rf"on math and code, {NUMBER} % on chat\. \(Its authors", rf"^chat +τ .*verification: \+{NUMBER}%"),
    (rf"which {NUMBER} % do on math", rf"^math +τ .*; {NUMBER}% of the blocks break"),
    (rf"do on math and {NUMBER} % on chat", rf"^chat +τ .*; {NUMBER}% of the blocks break"),
    (rf"On code {NUMBER} % break", rf"^code +τ .*; {NUMBER}% of the blocks break"),
    (rf"for whole blocks {NUMBER} against", rf"^math +AUC .* estimator {NUMBER}"),
    (rf"for whole blocks \S+ against {NUMBER} \(at 2 and 3 drafts better\)\. On chat", rf"^math +AUC .* head {NUMBER},"),
    (rf"On chat it is far worse, {NUMBER} against", rf"^chat +AUC .* estimator {NUMBER}"),
    (rf"On chat it is far worse, \S+ against {NUMBER}:", rf"^chat +AUC .* head {NUMBER},"),
    (rf"One seed loses {NUMBER} %, with an interval below zero", rf"^direct-acceptance-seed-1 τ .*\n +mean of the domains -{NUMBER}%"),
    (rf"the other's {NUMBER} % may be chance", rf"^direct-acceptance-seed-2 τ .*\n +mean of the domains -{NUMBER}%"),
])
def test_what_the_lesson_says_it_prints(sentence, output):
    tied("06", sentence, output)


@pytest.mark.parametrize(("sentence", "output", "signs"), [
    (rf"trails Eagle3 by {NUMBER} points on math, {NUMBER} on code and {NUMBER} on chat; with three",
     rf"^DSpark, 1 layer - Eagle3 +{NUMBER} +{NUMBER} +{NUMBER}$", (-1, -1, -1)),
    (rf"it leads by {NUMBER} on math, and trails by {NUMBER} on code, where the name is, and by {NUMBER} on chat",
     rf"^DSpark, 3 layers - Eagle3 +{NUMBER} +{NUMBER} +{NUMBER}$", (1, -1, -1))])
def test_points_at_the_first_position(sentence, output, signs):
    said = caught(sentence, prose("06"), "the prose")
    between("06", sentence, output, *((sign * float(points) / 100 - 1e-6, sign * float(points) / 100 + 1e-6) for sign, points in zip(signs, said)))


def test_the_shapes_of_the_papers_curves_and_of_ours():
    caught("Eagle3 begins lowest and rises in every domain, DFlash begins high and drops by the third position, and DSpark begins highest",
           prose("06"), "the prose")
    caught("On code and chat ours keeps only DFlash's fall, and on math the signs of all three, not their forms", prose("06"), "the prose")
    ours = {domain: {name: [e.value for e in our_results.conditional_acceptance(f"tiny-{name}", domain)] for name in paper.LABELS}
            for domain in DOMAINS}
    theirs = {domain: {name: paper.conditional_acceptance(name, domain) for name in paper.LABELS} for domain in DOMAINS}
    assert [keeps_the_shapes(theirs[domain]) for domain in DOMAINS] == [True, True, True]
    assert [keeps_the_shapes(ours[domain]) for domain in DOMAINS] == [domain == "math" for domain in DOMAINS]
    assert all(curves["dflash"][2] < curves["dflash"][0] for curves in ours.values())
    caught("Eagle3's rise .* is one jump at position 2, DFlash's fall goes on where the paper's ends at the third, and DSpark's lead at the "
           "first, .*, is within the intervals", prose("06"), "the prose")
    jump, *rest = np.diff(ours["math"]["eagle3"])
    assert jump > 0.08 and max(map(abs, rest)) < 0.03
    assert min(ours["math"]["dflash"][3:]) < ours["math"]["dflash"][2] - 0.05 and theirs["math"]["dflash"][2] == min(theirs["math"]["dflash"])
    ahead, behind = (our_results.conditional_acceptance(f"tiny-{name}", "math")[0] for name in ("dspark", "dflash"))
    assert ahead.low < behind.value and ahead.value < behind.high
    assert ours["code"]["dspark"][3] < min(ours["code"]["dspark"][2], ours["code"]["dspark"][4]) - 0.05  # the dent at the fourth


def keeps_the_shapes(curves: dict) -> bool:
    """Whether Eagle3 begins lowest and ends higher, DFlash drops by the third position, DSpark begins highest and stays level."""
    firsts = {name: curve[0] for name, curve in curves.items()}
    return (min(firsts, key=firsts.get) == "eagle3" and max(firsts, key=firsts.get) == "dspark" and curves["eagle3"][-1] > firsts["eagle3"]
            and curves["dflash"][2] < firsts["dflash"] and abs(curves["dspark"][-1] - firsts["dspark"]) < 0.04)


def test_what_was_tested_and_what_differs_in_training():
    caught("With the training that ends lesson 07 our DSpark commits more in every domain than it does here", prose("06"), "the prose")
    lengths = {row["drafter"]: row["accepted_length"] for row in experiments.diagnosis()["drafters"]}
    assert all(lengths["diagnosis-5-full-length"][domain] > lengths["tiny-dspark"][domain] for domain in DOMAINS)
    said = caught(rf"the block drafters from a sample of {NUMBER} anchors", prose("06"), "the prose")
    assert said == (str(our_results.measured("tiny-dspark")["recipe"]["config"]["num_anchors"]),)


def test_only_math_has_the_papers_winner():
    tied("06", "Only (math) has the paper's winner", r"^(\w+) +here DSpark .*; paper DSpark")


def draft_times(drafter):
    """Milliseconds that the lesson prints of a drafter: for one token, for each further one, for seven."""
    found = caught(rf"^{drafter} +{NUMBER} ms for one token, +{NUMBER} ms for each further one, +{NUMBER} ms for 7$", printed("06"), "the output")
    return [float(number) for number in found]


def test_what_a_further_token_costs():
    caught("A further token costs Eagle3 about as much as its first, a whole pass: one token is cheaper than a whole block of seven, "
           "seven cost more than DFlash's seven", prose("06"), "the prose")
    (first, more, whole), *blocks = map(draft_times, ("eagle3", "dflash", "dspark"))
    assert 0.5 < more / first < 1.5 and whole > blocks[0][2]
    assert all(first < block_first and block_more < block_first / 4 for block_first, block_more, _ in blocks)


def verification():
    """What the lesson prints of a verification: its milliseconds, its plain passes, and τ on chat by the formula of each drafter with seven."""
    found = caught(rf"^a verification takes {NUMBER} ms, {NUMBER} plain passes; .*: .*Eagle3 {NUMBER}, DFlash {NUMBER}, DSpark {NUMBER}$",
                   printed("06"), "the output")
    verify, ratio, *taus = map(float, found)
    return verify, ratio, dict(zip(("eagle3", "dflash", "dspark"), taus))


def test_eagle3s_tokens_cost_no_more_than_dsparks_on_chat():
    caught("On chat Eagle3's tokens cost no more than DSpark's. DSpark drafts faster, but seven passes cost less than one verification, "
           "and Eagle3 commits more", prose("06"), "the prose")
    verify, ratio, taus = verification()
    wholes = {name: draft_times(name)[2] for name in taus}
    token = {name: (whole + verify) / taus[name] for name, whole in wholes.items()}
    assert taus["eagle3"] == max(taus.values()) and wholes["dspark"] < wholes["eagle3"] < verify
    assert token["eagle3"] < 1.05 * token["dspark"] and max(token["eagle3"], token["dspark"]) < min(token["dflash"], verify / ratio)


def test_where_a_verification_is_cheap_eagle3_drafts_less_and_hardly_a_drafter_pays():
    caught("Eagle3's best length shrinks to a few drafts, while the block drafters' stays longer.* But there every drafter gains "
           "little or loses: even a draft of one costs most of the pass that it may save, or more", prose("06"), "the prose")
    _, ratio, taus = verification()
    plain, costs = 0.5 / ratio, {}
    for name in taus:
        first, more, _ = draft_times(name)
        rates = caught(rf"^chat +{name} +τ \S+((?: +[\d.]+)+)", printed("06"), "the output")[0].split()
        by_length = 1 + np.cumsum(np.cumprod([float(rate) for rate in rates]))
        costs[name] = [(first + k * more + 0.5) / tau for k, tau in enumerate(by_length)]
        assert first > 0.6 * plain
    assert np.argmin(costs["eagle3"]) < 4  # at most four drafts of seven
    assert all(np.argmin(costs[name]) > np.argmin(costs["eagle3"]) for name in ("dflash", "dspark"))
    assert min(min(some) for some in costs.values()) > 0.8 * plain


def test_judged_as_a_whole_a_block_keeps_more_and_the_text_stays():
    caught("average. Look at the block AB.*Eleven ninths, and the text is still the target's", prose("06"), "the prose")
    rows = [caught(rf"^{rule} +keeps {NUMBER}/9 of two drafts; the text begins with A in {NUMBER} of", printed("06"), "the output")
            for rule in ("token rule", "block verification")]
    assert rows == [("10", "0.3333"), ("11", "0.3333")]


def test_where_the_ninth_goes():
    caught(r"AB is now always kept whole: 2/9 more. But the text may begin with A in only 1/3 of all cases, and AB takes 2/9. The 1/9 that is "
           r"left goes to AA, drafted in 4/9: it is kept whole in one case of four or not at all, half a draft on average where the token rule "
           r"keeps three quarters. That is 1/9 less", prose("06"), "the prose")
    p, q = torch.tensor([1, 2]) / 3, torch.tensor([2, 1]) / 3
    block = p.expand(4, 3, 2), q.expand(4, 2, 2), torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    ends, _, _ = block_ends(*block, None)  # [4, 3]: how much of each block is kept
    assert ends[0].tolist() == pytest.approx([3 / 4, 0, 1 / 4]) and ends[1].tolist() == pytest.approx([0, 0, 1])
    by_token = probability_ratios(*block).clamp(max=1).cumprod(1).sum(1)
    more = (ends @ torch.arange(3.0) - by_token) * torch.tensor([4, 2, 2, 1]) / 9
    assert more.tolist() == pytest.approx([-1 / 9, 2 / 9, 0, 0], abs=1e-6)


def test_on_how_many_prompts_both_rules_judged():
    said = caught(rf"has judged the same blocks, from {NUMBER} prompts per domain, by both rules", prose("06"), "the prose")
    rows = json.loads((ROOT / "assets" / "measurements" / "beyond.json").read_text())["rows"]
    assert {row["prompts"] for row in rows} == {int(said[0])}


def test_the_fourth_loss_helps_no_seed():
    rises = caught(f"other's 0.3 % may be chance. On held-out texts the cross-entropy rises by more than a tenth, and L1 by {NUMBER} and {NUMBER}, "
                   "about as much as it differs between the seeds or less", prose("06"), "the prose")
    ends = [our_results.gains(f"direct-acceptance-seed-{seed}", f"three-losses-seed-{seed}")["all"] for seed in (1, 2)]
    assert ends[0].high < 0 and ends[1].low < 0 < ends[1].high
    held_out = {recipe: our_results.measured(recipe)["training"]["held_out_losses"] for recipe in studies.DIRECT_ACCEPTANCE}
    between_seeds = abs(held_out["three-losses-seed-1"]["l1"] - held_out["three-losses-seed-2"]["l1"])
    for seed, rise in zip((1, 2), rises):
        without, with_it = held_out[f"three-losses-seed-{seed}"], held_out[f"direct-acceptance-seed-{seed}"]
        assert with_it["cross_entropy"] > 1.1 * without["cross_entropy"]
        assert round(with_it["l1"] - without["l1"], 3) == float(rise) < 1.2 * between_seeds
    said = caught("four times for ([0-9,]+) steps \\(the one above had ([0-9,]+), and another recipe, so steps do not compare\\)",
                  prose("06"), "the prose")
    steps = [our_results.measured(recipe)["training"]["steps"] for recipe in (*studies.DIRECT_ACCEPTANCE, "tiny-dspark")]
    assert steps == [int(said[0])] * 4 + [int(said[1].replace(",", ""))]


def scoreboard_row(name):
    """A row of the scoreboard that the lesson prints: τ by domain, plain passes of a round, speed-up by domain."""
    row = caught(rf"^{name}((?: +[\d.-]+){{9}})$", printed("06"), "the scoreboard")[0].split()
    return dict(zip(DOMAINS, map(float, row[:3]))), float(row[3]), dict(zip(DOMAINS, map(float, row[6:])))


def test_tokens_per_round_are_not_speed():
    caught("On code Eagle3 commits more than DSpark and gains less, because its round costs more \\(there even more than the mean shown\\). On chat "
           "the small LM commits most of all and gains less than either, for the same reason", prose("06"), "the prose")
    rows = {name: scoreboard_row(name) for name in ("small LM", "DFlash", "DSpark", "Eagle3", "MTP-1")}
    (tau, cost, speed), (rival_tau, rival_cost, rival_speed), small = rows["DSpark"], rows["Eagle3"], rows["small LM"]
    assert rival_tau["code"] > tau["code"] and rival_speed["code"] < speed["code"] and rival_cost > cost
    assert rival_tau["code"] / rival_speed["code"] > rival_cost  # in plain passes, what a round on code took
    assert small[0]["chat"] == max(row[0]["chat"] for row in rows.values()) and small[1] > rival_cost
    assert small[2]["chat"] < min(speed["chat"], rival_speed["chat"])
    assert tau["code"] / cost > rival_tau["code"] / rival_cost  # with the mean cost of a round as well


def test_two_short_blocks_have_the_length_that_the_answer_says():
    said = caught(rf"With {NUMBER}, {NUMBER} and {NUMBER} twice \$\\tau\$ is about {NUMBER}, from six drafts;", prose("06"), "the prose")
    first, second, third, tau = map(float, said)
    assert math.isclose(1 + sum(np.cumprod([first, second, third] * 2)), tau, abs_tol=0.05)


def test_two_short_blocks_make_a_token_more_expensive():
    caught("Then a token becomes more expensive each time: by about half, by about a tenth, by a few per cent. "
           "Two blocks pay only where a verification costs as much as dozens of blocks", prose("06"), "the prose")
    first, more, whole = draft_times("dspark")
    rates = caught(rf"^chat +dspark +τ \S+ +{NUMBER} +{NUMBER} +{NUMBER} ", printed("06"), "the output")
    two, one = 1 + sum(np.cumprod([*map(float, rates)] * 2)), verification()[2]["dspark"]
    drafts = 2 * (first + 2 * more)
    for verify, low, high in ((0.5, 1.3, 1.7), (5, 1.05, 1.2), (15, 1.005, 1.07), (24, 1, 1.1)):
        assert low < (drafts + verify * whole) / two / ((1 + verify) * whole / one) < high


def own_numbers(shapes: dict) -> int:
    """Numbers in tensors {name: shape} outside the embedding and the LM head."""
    return sum(math.prod(shape) for name, shape in shapes.items() if not name.removeprefix("model.").startswith(("embed_tokens", "lm_head")))


def test_eagle3s_shares_of_its_targets():
    said = caught(rf"{NUMBER} % of the target's weights outside the embeddings, where the released Eagle3 for Qwen3-4B has {NUMBER} %",
                  prose("06"), "the prose")
    draft, target = (own_numbers({name: found.shape for name, found in inspection.stored(checkpoint).items()})
                     for checkpoint in ("tiny-eagle3", "tiny-target"))
    qwen = reference("released_targets.json")["Qwen/Qwen3-4B"]
    large = qwen["file_bytes"] / 2 - qwen["config"]["vocab_size"] * qwen["config"]["hidden_size"]
    released = own_numbers(reference("released_manifest.json")["deepseek-ai/eagle3_qwen3_4b_ttt7"]["tensors"])
    assert [int(share) for share in said] == [round(100 * draft / target), round(100 * released / large)]


def test_a_slope_is_not_moved_by_one_slow_moment():
    assert figures.per_token({1: 1.0, 2: 1.5, 3: 2.0, 4: 9.0}) == 0.5 and figures.per_token({1: 3.0}) == 0.0


def test_draft_costs_are_labelled_where_they_end(closing):
    (axes,) = figures.draft_cost({"mtp": {1: 0.5}, "eagle3": {1: 0.5, 2: 1.0}, "dspark": {1: 2.0, 2: 2.1}}, "CPU").axes
    assert axes.get_title() == "one token more costs Eagle3 0.50 ms, DSpark 0.10 ms"
    assert written(axes.figure) == ["MTP-1", "Eagle3", "DSpark", "measured on CPU"]


def test_here_stands_above_the_paper_with_whose_tau_is_largest(closing):
    rates = {"dspark": [Estimate(0.9, 0.8, 1.0)] * 2, "eagle3": [Estimate(0.5, 0.4, 0.6)] * 2}
    fig = figures.here_and_paper({"math": rates, "chat": rates}, {domain: {name: [0.7, 0.6] for name in rates} for domain in ("math", "chat")},
                                 ({"math": "dspark", "chat": "eagle3"}, {"math": "dspark", "chat": "dspark"}))
    assert [axes.get_title() for axes in fig.axes] == ["math, here (largest τ: DSpark)", "chat, here (largest τ: Eagle3)",
                                                       "math, paper (largest τ: DSpark)", "chat, paper (largest τ: DSpark)"]


def test_every_panel_names_its_lines(closing):
    rates = {"mtp": [Estimate(0.9, 0.8, 1.0)], "eagle3": [Estimate(0.9, 0.8, 1.0)] * 3, "dflash": [Estimate(0.5, 0.4, 0.6)] * 2 + [None]}
    fig = figures.acceptance_panels({"math": rates, "chat": rates}, {"math": "math", "chat": "chat"})
    assert [sorted(text.get_text() for text in axes.texts) for axes in fig.axes] == [["DFlash", "Eagle3", "MTP-1"]] * 2
    fig = figures.passes_figure({"toy": ([0.6, 0.7], [0.6, 0.55]), "lab": ([0.9, 0.9], [0.9, 0.9])}, [Estimate(0.9, 0.8, 0.95), None])
    assert [len(axes.texts) for axes in fig.axes] == [2, 3]


def test_the_name_of_plain_decoding_keeps_clear_of_the_curves():
    curves = {"mtp": [0.42], "eagle3": [0.42, 0.38, 0.36, 0.36, 0.36, 0.37, 0.38], "dspark": [0.87, 0.61, 0.49, 0.45, 0.41, 0.39, 0.38]}
    assert figures.free_place(curves, 0.43) == 2
    assert figures.free_place({"mtp": [0.4]}, 0.4) == 1
    assert figures.free_place({"eagle3": [1.0, 0.9, 0.5, 0.5]}, 1.0) == 3


def test_passes_stand_on_one_scale_and_say_what_the_last_one_loses(closing):
    live = [Estimate(0.9, 0.8, 0.95), None]
    fig = figures.passes_figure({"toy": ([0.6, 0.7], [0.6, 0.55]), "lab": ([0.9, 0.9], [0.9, 0.9])}, live)
    assert [axes.get_title() for axes in fig.axes] == ["toy: the last pass loses 0.150", "lab: the last pass loses 0.000"]
    assert len({axes.get_ylim() for axes in fig.axes}) == 1


def test_the_cheapest_token_is_named(closing):
    (axes,) = figures.token_cost({"eagle3": [4.0, 2.0, 3.0], "dspark": [5.0, 4.0, 3.5]}, 8.0, "chat").axes
    assert axes.get_title() == "chat:\nEagle3 is cheapest, 2.00 ms per token, draft length 2"


def test_plain_decoding_is_named_where_it_is_cheaper_than_all(closing):
    (axes,) = figures.token_cost({"eagle3": [4.0, 2.0, 3.0]}, 1.5, "chat").axes
    assert axes.get_title() == "chat:\nplain decoding is cheapest, 1.50 ms per token"
