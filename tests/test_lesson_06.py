"""Lesson 06: its prose says what it prints, its figures show what they are given."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from helpers import written
from stated import caught, printed, prose, tied

from dspark_lite.common import paper
from dspark_lite.common.estimates import Estimate
from dspark_lite.common.files import ROOT
from dspark_lite.common.names import DOMAINS
from dspark_course.exercises import lesson_06 as exercises
from dspark_course.figures import lesson_06 as figures
from dspark_lite.decoding.block_verification import block_ends
from dspark_lite.decoding.sampling import probability_ratios
from dspark_course.measure.evaluation import mean_accepted_length
from dspark_course.replication import experiments, our_results

NUMBER = r"([+-]?\d+(?:\.\d+)?)"


@pytest.mark.parametrize(("sentence", "output"), [
    (rf"The accepted length does: {NUMBER} in place of", rf"^never rolled back +{NUMBER}"),
    (rf"in place of {NUMBER}\. Entries", rf"^rolled back +{NUMBER}"),
    (rf"Eagle3 commits {NUMBER} tokens per round on chat", rf"^chat +Eagle3 +τ {NUMBER}"),
    (rf"on chat, DSpark {NUMBER}: the rival wins", rf"^chat +DSpark +τ {NUMBER}"),
    (rf"acceptance falls further, from {NUMBER} to {NUMBER}, Eagle3's", rf"^chat +DSpark +τ \S+ +{NUMBER} .* {NUMBER}$"),
    (rf"Eagle3's from {NUMBER} to {NUMBER}\. That fits", rf"^chat +Eagle3 +τ \S+ +{NUMBER} .* {NUMBER}$"),
    (rf"on chat at {NUMBER}, from where it falls to {NUMBER}\.", rf"^DSpark, here .* {NUMBER} → {NUMBER}$"),
    (rf"DSpark begins lowest: on code at {NUMBER}, with a dent at position 4", rf"^DSpark, here +\S+ → \S+ +{NUMBER} "),
    (rf"DSpark commits {NUMBER} % fewer tokens per round than Eagle3", rf"DSpark against Eagle3, mean of the domains: -{NUMBER}%"),
    (rf"where the paper's commits {NUMBER} % more", rf"here, \+{NUMBER}% in the paper"),
    (rf"The paper's Eagle3 starts low, on chat with {NUMBER};", rf"^Eagle3, paper +\S+ → \S+ +\S+ → \S+ +{NUMBER} "),
    (rf"ours starts with {NUMBER}\. One layer", rf"^Eagle3, here +\S+ → \S+ +\S+ → \S+ +{NUMBER} "),
    (rf"it ends at {NUMBER}, the other at", rf"teacher-forced +.*: {NUMBER} with the target's"),
    (rf"the other at {NUMBER}\. \(Both rise", rf"training-time test +.*: {NUMBER} with the target's"),
    (rf"teacher forcing loses {NUMBER} by the fifth", rf"teacher-forced .*\(-{NUMBER}\);"),
    (rf"the training-time test {NUMBER}, and", rf"training-time test .*\(-{NUMBER}\);"),
    (rf"the order turns: {NUMBER} against", rf"teacher-forced .*features, {NUMBER} with"),
    (rf"the order turns: \S+ against {NUMBER}\.", rf"training-time test .*features, {NUMBER} with"),
    (rf"Its toy begins lower, {NUMBER} against", rf"training-time test +pass 1: {NUMBER};"),
    (rf"Its toy begins lower, \S+ against {NUMBER}, perhaps since one", rf"teacher-forced +pass 1: {NUMBER};"),
    (rf"with five it would commit {NUMBER} tokens per round", rf"training-time test +.*; τ with 1 to 5 drafts .* {NUMBER}$"),
    (rf"with five it would commit \S+ tokens per round, the other {NUMBER}\.", rf"teacher-forced +.*; τ with 1 to 5 drafts .* {NUMBER}$"),
    (rf"loses {NUMBER} in seven passes", rf"the lab's Eagle3 .*\(-{NUMBER}\)$"),
    (rf"gives Eagle3 {NUMBER} tokens per round where", rf"by the formula: .*Eagle3 {NUMBER}"),
    (rf"tokens per round where {NUMBER} were counted", rf"^chat +Eagle3 +τ {NUMBER}"),
    (rf"With {NUMBER}, {NUMBER} and {NUMBER} twice", rf"^chat +DSpark +τ \S+ +{NUMBER} +{NUMBER} +{NUMBER} "),
    (rf"one block of seven has {NUMBER}\.", rf"by the formula: .*DSpark {NUMBER}"),
    (rf"Little: {NUMBER} % on chat,", rf"^chat +τ .*verification: \+{NUMBER}%"),
    (rf"on chat, {NUMBER} % on math, on code next to nothing", rf"^math +τ .*verification: \+{NUMBER}%"),
])
def test_what_the_lesson_says_it_prints(sentence, output):
    tied("06", sentence, output)


def test_the_shapes_of_the_papers_curves_and_of_ours():
    caught("There Eagle3 begins lowest and rises, and DSpark begins highest and stays nearly level. "
           "Here that is so on math alone. On code and chat Eagle3 begins high and stays level, and DSpark begins lowest", prose("06"), "the prose")
    ours = {domain: {name: [e.value for e in our_results.conditional_acceptance(f"tiny-{name}", domain)] for name in paper.LABELS}
            for domain in DOMAINS}
    theirs = {domain: {name: paper.conditional_acceptance(name, domain) for name in paper.LABELS} for domain in DOMAINS}
    assert [keeps_the_shapes(theirs[domain]) for domain in DOMAINS] == [True, True, True]
    assert [keeps_the_shapes(ours[domain]) for domain in DOMAINS] == [domain == "math" for domain in DOMAINS]
    rise = np.diff(ours["math"]["eagle3"])
    assert rise[0] > 0.09 and sum(rise[1:]) < 0 and max(rise[1:]) < 0.01
    assert all(curves["dflash"][2] < curves["dflash"][0] for curves in ours.values())
    drops = {domain: curves["dflash"][0] - curves["dflash"][2] for domain, curves in ours.items()}
    assert max(drops["math"], drops["code"]) < 0.025 and drops["chat"] > 0.3
    assert all(max(ours[domain]["dflash"][4:]) < ours[domain]["dflash"][2] - 0.03 for domain in DOMAINS)
    assert all(max(ours[domain]["dflash"][3:]) < ours[domain]["dflash"][2] - 0.04 for domain in ("code", "chat"))
    assert all(np.mean(theirs[domain]["dflash"][3:]) > theirs[domain]["dflash"][2] - 0.005 for domain in DOMAINS)
    for domain in ("code", "chat"):
        firsts = {name: curve[0] for name, curve in ours[domain].items()}
        assert min(firsts, key=firsts.get) == "dspark" and min(firsts["eagle3"], firsts["dflash"]) > 0.92
        assert abs(np.mean(ours[domain]["eagle3"][4:]) - firsts["eagle3"]) < 0.005
    assert ours["chat"]["dspark"][-1] < ours["chat"]["dspark"][0] - 0.1
    assert ours["code"]["dspark"][3] < min(ours["code"]["dspark"][2], ours["code"]["dspark"][4]) - 0.05  # the dent at the fourth


def keeps_the_shapes(curves: dict) -> bool:
    """Whether Eagle3 begins lowest and ends higher, DFlash drops by the third position, DSpark begins highest and stays level."""
    firsts = {name: curve[0] for name, curve in curves.items()}
    return (min(firsts, key=firsts.get) == "eagle3" and max(firsts, key=firsts.get) == "dspark" and curves["eagle3"][-1] > firsts["eagle3"]
            and curves["dflash"][2] < firsts["dflash"] and abs(curves["dspark"][-1] - firsts["dspark"]) < 0.04)


def test_what_is_said_of_the_three_suspects():
    said = caught(rf"There are three suspects: .*On math the better training puts it far ahead of this Eagle3, on code and chat it makes the "
                  rf"two about level.*the block drafters from at most {NUMBER} blocks of it", prose("06"), "the prose")
    shown = caught(rf"^tokens per round, on the same {NUMBER} prompts per domain$", printed("06"), "the output")
    (cured,) = (row["accepted_length"] for row in experiments.diagnosis()["drafters"] if row["drafter"] == "diagnosis-5-full-length")
    prompts, anchors = int(shown[0]), int(said[0])
    rival = {domain: mean_accepted_length([rows[:prompts]]) for domain, rows in zip(DOMAINS, our_results.tallies("tiny-eagle3"))}
    more = {domain: cured[domain] - rival[domain] for domain in DOMAINS}
    # Two recordings of one drafter on these prompts, this and the experiments', differ by so much.
    noise = max(abs(row["accepted_length"][domain] - mean_accepted_length([rows[:prompts]]))
                for row in experiments.diagnosis()["drafters"] if row["drafter"] == "tiny-dspark"
                for domain, rows in zip(DOMAINS, our_results.tallies("tiny-dspark")))
    assert more["math"] > 3 * noise and all(0 < more[domain] < noise for domain in ("code", "chat"))
    assert f"EVALUATED, SLOTS = {prompts}, " in (ROOT / "scripts" / "diagnosis.py").read_text()
    assert anchors == our_results.measured("tiny-dspark")["recipe"]["config"]["num_anchors"]


def test_the_end_of_the_training_time_test_is_told():
    caught("each pass reads the one before, and yet errors in its features hardly add up", prose("06"), "the prose")
    assert float(caught(rf"the lab's Eagle3 .*\(-{NUMBER}\)$", printed("06"), "the output")[0]) < 0.02


def test_the_toy_that_reads_its_own_output_is_ahead_with_three_drafts():
    caught("costs a little at the first draft and pays after it.* it is level with two drafts and ahead with three", prose("06"), "the prose")
    forced, unrolled = ([float(tau) for tau in caught(rf"^toy, {way} +pass 1.*; τ with 1 to 5 drafts ((?:{NUMBER} ?)+)$", printed("06"),
                                                      "the output")[0].split()] for way in ("teacher-forced", "training-time test"))
    ahead = [ours - theirs for ours, theirs in zip(unrolled, forced, strict=True)]
    assert ahead[0] < 0 and abs(ahead[1]) < 0.02 and min(ahead[2:]) > 0.03


def test_only_math_has_the_papers_winner():
    tied("06", "Only (math) has the paper's winner", r"^(\w+) +here DSpark .*; paper DSpark")


def test_on_a_full_machine_every_drafter_loses_and_mtp_1_least():
    caught("Every further draft adds to what a round commits. But on a full machine every drafter loses, and MTP-1 least", prose("06"), "the prose")
    rows = [caught(rf"^{name} +{NUMBER} tokens per round, {NUMBER} per token sent$", printed("06"), "the output")
            for name in ("plain decoding", "MTP-1", "MTP-3", "MTP-5")]
    per_round, per_token_sent = zip(*(map(float, row) for row in rows))
    assert list(per_round) == sorted(per_round) and list(per_token_sent) == sorted(per_token_sent, reverse=True)


def draft_times(drafter):
    """Milliseconds that the lesson prints of a drafter: for one token, for each further one, for seven."""
    found = caught(rf"^{drafter} +{NUMBER} ms \(\S+ plain passes\) for one token, +{NUMBER} ms for each further one \(slope\), "
                   rf"+{NUMBER} ms \(\S+\) for 7$", printed("06"), "the output")
    return [float(number) for number in found]


def test_what_a_further_token_costs():
    caught(r"a further token costs Eagle3 a whole pass\. That is about half of what the first costs, or more, .* So Eagle3's draft is the "
           r"cheaper one up to three or four tokens, and its seven cost one and a half to two blocks\.", prose("06"), "the prose")
    assert caught(rf"^ +measured +up to {NUMBER}$", printed("06"), "the output")[0] in ("3", "4")
    (first, more, whole), *blocks = map(draft_times, ("Eagle3", "DFlash", "DSpark"))
    assert 0.45 * first < more < 1.05 * first
    assert all(1.35 < whole / block_whole < 2.15 for _, _, block_whole in blocks)
    assert all(first < block_first and block_more < more / 2 for block_first, block_more, _ in blocks)
    assert all(block_whole - block_first < (whole - first) / 2 for block_first, _, block_whole in blocks)


def draft_times_in_passes(drafter):
    """Plain passes that the lesson prints of a draft of seven."""
    return float(caught(rf"^{drafter} .* ms \({NUMBER}\) for 7$", printed("06"), "the output")[0])


def test_what_the_paper_says_of_eagle3_is_said_of_chains():
    caught("it drafts one chain, as all drafters do in the paper's Table 1", prose("06"), "the prose")
    assert "chain drafting" in paper.numbers()["table1"]["setting"]


def verification():
    """What the lesson prints of a verification: its milliseconds, its plain passes, and τ on chat by the formula of each drafter with seven."""
    passes = caught(rf"^a plain pass takes {NUMBER} ms, a verification of 7 drafts {NUMBER} plain passes$", printed("06"), "the output")
    plain, ratio = map(float, passes)
    taus = caught(rf"^τ on chat by the formula: .*Eagle3 {NUMBER}, DFlash {NUMBER}, DSpark {NUMBER}$", printed("06"), "the output")
    return plain * ratio, ratio, dict(zip(("Eagle3", "DFlash", "DSpark"), map(float, taus)))


def taus_by_length(domain):
    """τ with 1, 2, ... 7 drafts by the formula, from the acceptances that the lesson prints; a dash counts as 0."""
    found = {name: caught(rf"^{domain} +{name} +τ \S+((?: +[\d.-]+)+) *$", printed("06"), "the output")[0].split()
             for name in ("Eagle3", "DFlash", "DSpark")}
    return {name: 1 + np.cumsum(np.cumprod([0.0 if rate == "-" else float(rate) for rate in rates])) for name, rates in found.items()}


def token_costs(domain, verify):
    """Milliseconds per token with 1, 2, ... 7 drafts, from what the lesson prints, where a verification takes `verify` milliseconds."""
    costs = {}
    for name, taus in taus_by_length(domain).items():
        first, more, whole = draft_times(name)
        costs[name] = (np.array([*(first + k * more for k in range(6)), whole]) + verify) / taus
    return costs


def test_on_chat_eagle3s_token_is_a_little_cheaper():
    caught("On chat, at the verification that we measured, DSpark drafts faster and Eagle3 commits more: here Eagle3's token is "
           "cheaper, by about a tenth.* "
           "and what a draft costs hardly counts: the larger", prose("06"), "the prose")
    verify, ratio, taus = verification()
    wholes = {name: draft_times(name)[2] for name in taus}
    token = {name: (whole + verify) / taus[name] for name, whole in wholes.items()}
    assert taus["Eagle3"] == max(taus.values()) and wholes["DSpark"] < wholes["Eagle3"]
    assert 0.85 < token["Eagle3"] / token["DSpark"] < 0.95 and max(token["Eagle3"], token["DSpark"]) < min(token["DFlash"], verify / ratio)
    for domain in DOMAINS:
        at_right, longest = token_costs(domain, 20 * verify), {name: taus[-1] for name, taus in taus_by_length(domain).items()}
        assert min(at_right, key=lambda name: min(at_right[name])) == max(longest, key=longest.get)


def test_where_a_verification_is_cheap_no_drafter_pays_on_chat():
    caught("the target is no larger than its drafters. There a further pass costs Eagle3 about as much as it brings, while DSpark's curve falls "
           "on.* But on chat no drafter beats plain decoding there: even a draft of one token costs more than a plain pass", prose("06"), "the prose")
    plain, costs = 0.5 / verification()[1], token_costs("chat", 0.5)
    assert all(draft_times(name)[0] > plain for name in costs) and all(min(some) > plain for some in costs.values())
    assert np.diff(costs["Eagle3"][2:]).min() > -0.02 * costs["Eagle3"][2] and np.argmin(costs["DSpark"]) > 4


def test_who_is_cheapest_on_math_and_on_code():
    caught("On math DFlash and DSpark commit a little more than Eagle3, for cheaper drafts; DFlash's are the cheapest. On code Eagle3 has the "
           "largest .* by a little, and pays more for its drafts than that brings: DSpark is cheapest\\.", prose("06"), "the prose")
    verify = verification()[0]
    for domain, cheapest in (("math", "DFlash"), ("code", "DSpark")):
        least = {name: min(some) for name, some in token_costs(domain, verify).items()}
        assert min(least, key=least.get) == cheapest
    math_taus, code_taus = ({name: taus[-1] for name, taus in taus_by_length(domain).items()} for domain in ("math", "code"))
    assert all(0 < math_taus[name] - math_taus["Eagle3"] < 0.4 for name in ("DFlash", "DSpark"))
    assert 0 < code_taus["Eagle3"] - code_taus["DSpark"] < 0.4 and code_taus["Eagle3"] == max(code_taus.values())


def test_judged_as_a_whole_a_block_keeps_more_and_the_text_stays():
    caught("average. Look at the block AB.*Eleven ninths, and the text is still the target's", prose("06"), "the prose")
    rows = [caught(rf"^{rule} +keeps {NUMBER}/9 of two drafts; the text begins with A in {NUMBER} of", printed("06"), "the output")
            for rule in ("token rule", "block verification")]
    assert rows == [("10", "0.3333"), ("11", "0.3333")]


def test_where_the_ninth_goes():
    rows = [caught(rf"\| {block} \| (\d)/9 \| (\S+) \| (\S+) \| (\S+) \| (\S+) \|", prose("06"), "the answer") for block in ("AA", "AB", "BA", "BB")]
    said = torch.tensor([[float(Fraction(number)) for number in row] for row in rows])  # [4, 5]: drafted, w_1, w_2, kept whole by either rule
    caught(r"in 2/9 of all cases by AB and in 4/9 · 1/4 = 1/9 by AA, kept whole. That is all of its 3/9.*AB now keeps two drafts where the token "
           r"rule keeps one on average, which is 2/9 more over all blocks. AA keeps half a draft where the token rule keeps three quarters: 1/9 "
           r"less. In all 10/9 \+ 2/9 - 1/9 = 11/9", prose("06"), "the answer")
    p, q = torch.tensor([1, 2]) / 3, torch.tensor([2, 1]) / 3
    block = p.expand(4, 3, 2), q.expand(4, 2, 2), torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]])
    ends, weights, _ = block_ends(*block, None)  # [4, 3]: how much of each block is kept, and w_0, w_1, w_2
    whole = probability_ratios(*block).clamp(max=1).cumprod(1)  # [4, 2]: that so many drafts are kept by the token rule
    drafted = torch.tensor([4.0, 2.0, 2.0, 1.0])
    assert torch.allclose(said, torch.stack([drafted, weights[:, 1], weights[:, 2], whole[:, 1], ends[:, 2]], 1))
    assert ends[0].tolist() == pytest.approx([3 / 4, 0, 1 / 4])  # its first draft is never kept alone
    more = (ends @ torch.arange(3.0) - whole.sum(1)) * drafted / 9
    assert more.tolist() == pytest.approx([-1 / 9, 2 / 9, 0, 0], abs=1e-6)


def test_on_how_many_prompts_both_rules_judged():
    said = caught(rf"has judged the same blocks, from {NUMBER} prompts per domain, by both rules", prose("06"), "the prose")
    rows = json.loads((ROOT / "assets" / "measurements" / "beyond.json").read_text())["rows"]
    assert {row["prompts"] for row in rows} == {int(said[0])}
    code = next(row["accepted_length"]["gain"] for row in rows if row["domain"] == "code")
    assert code["low"] < 0 < code["high"] < 0.003


def scoreboard_row(name):
    """A row of the scoreboard that the lesson prints: τ by domain, plain passes of a round, speed-up by domain."""
    row = caught(rf"^{name}((?: +[\d.-]+){{9}})$", printed("06"), "the scoreboard")[0].split()
    return dict(zip(DOMAINS, map(float, row[:3]))), float(row[3]), dict(zip(DOMAINS, map(float, row[6:])))


def test_tokens_per_round_are_not_speed():
    said = caught(rf"On chat the small LM commits {NUMBER}, Eagle3 {NUMBER}, and yet they gain {NUMBER} and {NUMBER}: a round of the small LM costs "
                  rf"{NUMBER} plain passes, Eagle3's {NUMBER}\. On math", prose("06"), "the prose")
    (tau, cost, speed), (rival_tau, rival_cost, rival_speed) = scoreboard_row("small LM"), scoreboard_row("Eagle3")
    assert [*map(float, said)] == [tau["chat"], rival_tau["chat"], speed["chat"], rival_speed["chat"], cost, rival_cost]


def test_where_eagle3_loses_what_it_won():
    caught("On math DSpark beats Eagle3 on both counts, since it commits more at less cost. On code Eagle3 commits a tenth more than DSpark, but "
           "its round costs a seventh more: it loses what it won. On chat it commits almost a quarter more, and stays ahead",
           prose("06"), "the prose")
    (tau, cost, speed), (rival_tau, rival_cost, rival_speed) = scoreboard_row("DSpark"), scoreboard_row("Eagle3")
    assert 1.08 < rival_tau["code"] / tau["code"] < 1.12 and rival_speed["code"] < speed["code"]
    assert 1.12 < rival_cost / cost < 1.18
    assert 1.2 < rival_tau["chat"] / tau["chat"] < 1.25 and rival_speed["chat"] > speed["chat"]
    assert tau["math"] > rival_tau["math"] and cost < rival_cost and speed["math"] > rival_speed["math"]


def test_drafting_in_the_table_is_near_what_the_lesson_times():
    caught("so verifying is more than the pass that we timed", prose("06"), "the prose")
    for name in ("DFlash", "DSpark", "Eagle3"):
        drafting, verifying = map(float, caught(rf"^{name}(?: +[\d.-]+){{4}} +{NUMBER} +{NUMBER} ", printed("06"), "the scoreboard"))
        assert abs(drafting - draft_times_in_passes(name)) < 0.12 and verifying > verification()[1]


def test_two_short_blocks_have_the_length_that_the_answer_says():
    said = caught(rf"With {NUMBER}, {NUMBER} and {NUMBER} twice \$\\tau\$ is about {NUMBER}, from six drafts;", prose("06"), "the prose")
    first, second, third, tau = map(float, said)
    assert math.isclose(1 + sum(np.cumprod([first, second, third] * 2)), tau, abs_tol=0.05)


def test_two_short_blocks_make_a_token_more_expensive():
    caught("Then a token costs more in all three: by about half, an eighth, a few per cent. "
           "Two blocks pay only where a verification costs as much as dozens of blocks, and even that crossing rests on less than 0.1 tokens",
           prose("06"), "the prose")
    first, more, whole = draft_times("DSpark")
    rates = caught(rf"^chat +DSpark +τ \S+ +{NUMBER} +{NUMBER} +{NUMBER} ", printed("06"), "the output")
    two, one = 1 + sum(np.cumprod([*map(float, rates)] * 2)), verification()[2]["DSpark"]
    assert 0.03 < two - one < 0.1  # below it by more than the two decimals of the rates and of τ allow
    drafts = 2 * (first + 2 * more)
    for verify, low, high in ((0.5, 1.3, 1.7), (5, 1.05, 1.2), (15, 1.005, 1.07), (24, 1, 1.1)):
        assert low < (drafts + verify * whole) / two / ((1 + verify) * whole / one) < high


def chain_loss_that_cuts(cut):
    """The right chain loss, but what a pass reads or what is returned goes through `cut`, by name."""
    def loss(one_pass, loss_of, cache, tokens, features, decay):
        passes = one_pass if cut != "between" else lambda cache, token, feature: one_pass(cache, token, feature.detach())
        value = exercises.chain_loss(passes, loss_of, cache, tokens, features, decay)
        return value.item() if cut == "number" else value

    return loss


@pytest.mark.parametrize(("cut", "said"), [("between", "its gradient stops between two passes"), ("number", "it has lost its gradient")])
def test_a_chains_loss_must_teach_every_pass(cut, said, capsys):
    assert not exercises.check_chain_loss(chain_loss_that_cuts(cut))
    assert said in capsys.readouterr().out
    assert exercises.check_chain_loss(exercises.chain_loss)


@pytest.mark.parametrize("form", [tuple, torch.cat, lambda drafted: torch.stack(drafted, 1), lambda drafted: [int(token) for token in drafted]],
                         ids=["tuple", "a row", "a batch of one", "numbers"])
def test_a_chain_of_drafts_may_have_several_forms(form):
    assert exercises.check_draft_chain(lambda *case: form(exercises.draft_chain(*case)))


def test_a_slope_is_not_moved_by_one_slow_moment():
    assert figures.per_token({1: 1.0, 2: 1.5, 3: 2.0, 4: 9.0}) == 0.5 and figures.per_token({1: 3.0}) == 0.0


def test_draft_costs_are_labelled_where_they_end(closing):
    (axes,) = figures.draft_cost({"mtp": {1: 0.5}, "eagle3": {1: 0.5, 2: 1.0}, "dspark": {1: 2.0, 2: 2.1}}, "CPU").axes
    assert axes.get_title() == "one token more costs Eagle3 0.50 ms, DSpark 0.10 ms"
    assert written(axes.figure) == ["Eagle3", "DSpark", "MTP-1", "measured on CPU"]


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
    assert all(text.xy[0] < 1 and text.get_ha() == "right" for axes in fig.axes for text in axes.texts if text.get_text() == "MTP-1")
    fig = figures.passes_figure({"toy": ([0.6, 0.7], [0.6, 0.55]), "lab": ([0.9, 0.9], [0.9, 0.9])}, [Estimate(0.9, 0.8, 0.95), None])
    assert [len(axes.texts) for axes in fig.axes] == [2, 3]


def test_panels_of_acceptance_have_one_axis_which_shows_the_lowest_interval(closing):
    fig = figures.acceptance_panels({"math": {"mtp": [Estimate(0.9, 0.72, 1.0)], "eagle3": [Estimate(0.9, 0.85, 1.0)] * 3},
                                     "chat": {"eagle3": [Estimate(0.5, 0.33, 0.6)] * 3}}, {"math": "math", "chat": "chat"})
    assert [axes.get_ylim() for axes in fig.axes] == [(pytest.approx(0.3), 1.02)] * 2
    assert [axes.get_ylabel() for axes in fig.axes] == ["accepted, given that all before were", ""]


def test_passes_stand_on_one_scale_and_say_how_far_the_last_is_below(closing):
    live = [Estimate(0.9, 0.8, 0.95), None]
    fig = figures.passes_figure({"toy": ([0.6, 0.7], [0.6, 0.55]), "lab": ([0.9, 0.9], [0.9, 0.9])}, live)
    assert [axes.get_title() for axes in fig.axes] == ["toy: last pass 0.150 below grey", "lab: last pass 0.000 below grey"]
    assert len({axes.get_ylim() for axes in fig.axes}) == 1


def test_the_cheapest_token_is_named(closing):
    (axes,) = figures.token_cost({"eagle3": [4.0, 2.0, 3.0], "dspark": [5.0, 4.0, 3.5]}, 8.0, "chat").axes
    assert axes.get_title() == "chat:\nEagle3 is cheapest, 2.00 ms per token, draft length 2"
    assert sorted(written(axes.figure)) == ["DSpark", "Eagle3", "plain decoding"]


def test_plain_decoding_is_named_where_it_is_cheaper_than_all(closing):
    (axes,) = figures.token_cost({"eagle3": [4.0, 2.0, 3.0]}, 1.5, "chat").axes
    assert axes.get_title() == "chat:\nplain decoding is cheapest, 1.50 ms per token"
