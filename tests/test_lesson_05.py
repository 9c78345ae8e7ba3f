"""Lesson 05: the paper's numbers are read as they are printed, the lesson's prose says what it prints, figures show what they get."""

import math
import re

import numpy as np
import pytest
import torch
from stated import between, caught, cells, printed, prose, tied
from safetensors.torch import load_file
from transformers import AutoTokenizer

from dspark_lite.common import paper
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.estimates import Estimate
from dspark_lite.drafters.heads import SEQUENTIAL_HEADS, transition_biases
from dspark_lite.losslessness import total_variation
from dspark_lite.models.checkpoints import EMBEDDED
from dspark_course.exercises import lesson_05 as exercises
from dspark_course.exercises.verifying import EXACT, draw_token, target_texts, toss, verify
from dspark_course.figures import lesson_05 as figures
from dspark_course.figures import scoreboard, style
from dspark_course.figures.positions import last_point, position_panels
from dspark_course.measure import multimodality
from dspark_course.measure.studies import TABLE_1
from dspark_course.replication import our_results


def test_paper_gains_are_those_of_its_text():
    gains = {target: round(100 * paper.macro_gain(target, "dspark", "dflash"), 1) for target in paper.TARGETS[:3]}
    assert gains == {"Qwen3-4B": 16.3, "Qwen3-8B": 18.4, "Qwen3-14B": 18.3}
    assert paper.domain_means("Qwen3-4B", "dspark") == pytest.approx({"math": 5.57, "code": 5.12, "chat": 3.49}, abs=0.005)


def test_paper_refuses_what_it_does_not_have():
    with pytest.raises(DSparkLiteError, match="Table 1 has no 'mtp'"):
        paper.table1("Qwen3-4B", "mtp")


# The exercises ----------------------------------------------------------------------------------------------------------


def test_the_rnn_head_by_hand_is_the_packages():
    torch.manual_seed(0)
    previous, hidden, state, biases = torch.randint(9, (5,)), torch.randn(5, 6), torch.zeros(4), []
    rnn = SEQUENTIAL_HEADS["rnn"](9, 4, 6).requires_grad_(False)
    for token, h in zip(rnn.markov_w1(previous), hidden):
        bias, state = exercises.rnn_step(state, token, h, rnn.joint_proj, rnn.markov_w2.weight)
        biases.append(bias)
    assert torch.allclose(torch.stack(biases), transition_biases(rnn, previous, hidden), atol=1e-5)


def greedily(scores):
    """A reader's drafter that takes the largest of `scores(base logits, k, bias after the token before)` at each slot k."""
    def draft(base, anchor, bias):
        tokens = [int(anchor)]
        for k in range(len(base)):
            tokens.append(int(scores(base, k, bias(tokens[-1])).argmax()))
        return tokens[1:]

    return draft


def test_a_greedy_block_of_whole_numbers_is_right(capsys):
    assert exercises.check_left_to_right(greedily(lambda base, k, bias: base[k] + bias)), capsys.readouterr().out


def best_table(w1, w2, rank):
    """The table of the largest terms, written out."""
    u, s, vh = torch.linalg.svd(w1 @ w2.T)
    return u[:, :rank] * s[:rank] @ vh[:rank]


def rooted(w1, w2, rank):
    """The largest terms with the root of each singular value on both sides."""
    u, s, vh = torch.linalg.svd(w1 @ w2.T)
    return u[:, :rank] * s[:rank].sqrt(), (s[:rank].sqrt()[:, None] * vh[:rank]).T


@pytest.mark.parametrize("right", [rooted, lambda *case: list(rooted(*case)),
                                   lambda w1, w2, rank: (best_table(w1, w2, rank) @ rooted(w2, w1, rank)[0].pinverse().T,
                                                         rooted(w2, w1, rank)[0])])
def test_singular_values_may_go_to_either_side(right, capsys):
    assert exercises.check_cut(right), capsys.readouterr().out


def test_the_cut_table_is_the_best():
    w1, w2, rank = exercises.CUT_CASES[1]
    a, b = exercises.cut_to_rank(w1, w2, rank)
    assert torch.allclose(a @ b.T, best_table(w1, w2, rank), atol=1e-5)


@pytest.mark.parametrize(("check", "wrong", "named"), [
    (exercises.check_transition_bias, lambda w1, w2, x: (w1[x] @ w2.T).T, "in the shape [V, B]"),
    (exercises.check_left_to_right, lambda logits, anchor, bias: [anchor, *exercises.draft_greedily(logits, anchor, bias)], "g + 1 tokens"),
    (exercises.check_transition_bias, lambda w1, w2, x: w2 @ w1[x], "multiply by w2.T from the right"),
    (exercises.check_left_to_right, greedily(lambda base, k, bias: bias), "the base logits are missing"),
    (exercises.check_left_to_right, greedily(lambda base, k, bias: base[0] + bias), "the base logits of the first"),
    (exercises.check_left_to_right, greedily(lambda base, k, bias: base[k].softmax(-1) + bias), "added to probabilities"),
    (exercises.check_transition_bias, lambda w1, w2, x: (w1[x] @ w2.T).tolist(), "this is a list"),
    (exercises.check_cut, lambda w1, w2, rank: best_table(w1, w2, rank), "return two matrices"),
    (exercises.check_cut, lambda *case: (lambda a, b: (a, b.T))(*exercises.cut_to_rank(*case)), "b is made of Vh transposed"),
    (exercises.check_transition_bias, lambda w1, w2, x: (w1 @ w2.T)[:, x], "W1 and W2 are swapped"),
    (exercises.check_cut, lambda w1, w2, rank: (exercises.alone(w1, rank)[0], exercises.alone(w2, rank)[0]), "you cut each factor alone"),
    (exercises.check_round, lambda base, anchor, bias, p_of, path: p_of([anchor, 0, 1]), "without the anchor; it got 3 tokens"),
    (exercises.check_round, lambda base, anchor, bias, p_of, path: [draw_token(p_of([0, 1])[0], path)], "not drawn left to right"),
    (exercises.check_round, lambda base, anchor, bias, p_of, path: [draw_token(base[0].softmax(0), path)], "nobody asked the target"),
    (exercises.check_round, exercises.round_of(rule=lambda p, q, drafts, path: verify(p, q, drafts, path)[:2]), "a whole block gets one more"),
    (exercises.check_round, exercises.round_of(rule=lambda p, q, drafts, path: [draw_token(p[0], path)]), "commits 1.00 tokens on average"),
    (exercises.check_round, exercises.round_of(exercises.drafting_round(pick=lambda probs, path: int(torch.multinomial(probs, 1)))),
     "something is drawn at random without `generator`"),
    (exercises.check_round, 3, "takes the function itself"), (exercises.check_round, None, "Not done yet"),
    (exercises.check_rnn_step, lambda s, e, h, proj, w2: (proj(torch.cat([s, e, h])).chunk(3)[2], exercises.rnn_step(s, e, h, proj, w2)[1]),
     "W2 is missing"),
    (exercises.check_rnn_step, lambda *case: exercises.rnn_step(*case)[1], "return both"),
    (exercises.check_rnn_step, lambda s, e, h, proj, w2: exercises.rnn_step(s, h[:2], torch.cat([h[2:], e]), proj, w2), "in this order"),
])
def test_what_readers_got_wrong_is_named(check, wrong, named, capsys):
    assert check(wrong) is False and named in capsys.readouterr().out


def in_another_way(base, anchor, bias, p_of, path):
    """A right round: rows of q as a tensor, logits corrected first, the coins from a vector."""
    drafts, logits = [], base.clone()
    for k in range(len(base)):
        logits[k] += bias(drafts[-1] if drafts else anchor)
        drafts.append(draw_token(logits[k].softmax(0), path))
    p, q, kept = p_of(torch.tensor(drafts)), logits.softmax(-1), 0
    while kept < len(drafts) and toss(p[kept, drafts[kept]] / q[kept, drafts[kept]], path):
        kept += 1
    owed = (p[kept] - q[kept]).clamp(min=0) if kept < len(drafts) else p[kept]
    return torch.tensor([*drafts[:kept], draw_token(owed / owed.sum(), path)])


@pytest.mark.parametrize("right", [exercises.one_round, in_another_way])
def test_a_right_round_passes(right, capsys):
    assert exercises.check_round(right) is True, capsys.readouterr().out


@pytest.mark.parametrize("sentence", exercises.WRONG_BLOCKS)
def test_a_block_drawn_wrongly_is_named_and_lossless(sentence, capsys):
    wrong = exercises.round_of(exercises.WRONG_BLOCKS[sentence])
    assert exercises.check_round(wrong) is False and capsys.readouterr().out.endswith(f": {sentence}\n")
    if "most probable" not in sentence:  # the rule needs the distribution of the draw; here nothing was drawn
        assert total_variation(exercises.blocks_and_texts(wrong)[1], target_texts()) < EXACT


@pytest.mark.parametrize("sentence", exercises.WRONG_ROUNDS)
def test_a_wrong_row_of_q_and_a_wrong_rule_are_named(sentence, capsys):
    assert exercises.check_round(exercises.WRONG_ROUNDS[sentence]) is False
    assert re.fullmatch(rf"Not yet: your total variation is 0\.\d\d: {re.escape(sentence)}\n", capsys.readouterr().out)


# What the lesson says is what it prints ---------------------------------------------------------------------------------

NUMBER = r"([+-]?\d+(?:\.\d+)?)"


@pytest.mark.parametrize(("sentence", "output"), [
    (rf"{NUMBER} % of its map is on pairs", rf"^DSpark, head off +\d+% of all pairs are in the map, +{NUMBER}%"),
    (rf"hardly ever writes. With the head it is {NUMBER} %", rf"^DSpark +\d+% of all pairs are in the map, +{NUMBER}%"),
    (rf"keeps {NUMBER} of its drafts at position 2", rf"DFlash {NUMBER}, DSpark without its head"),
    (rf"accepts {NUMBER} at position 2 where DFlash", rf"DFlash .*, DSpark without its head {NUMBER}"),
    (rf"at position 2 where DFlash accepts {NUMBER}", rf"DFlash {NUMBER}, DSpark without its head"),
    (rf"where DFlash accepts \S+, and with the head {NUMBER}:", rf"^chat +dspark +\S+ +{NUMBER}"),
    (rf"Position 1 falls, too, from {NUMBER} to", rf"^chat +dspark +{NUMBER}"),
    (rf"falls, too, from \S+ to {NUMBER}:", rf"^chat +head off +{NUMBER}"),
    (rf"On chat DFlash falls to {NUMBER} by position 5", rf"^chat +dflash(?: +\S+){{4}} +{NUMBER}"),
    (rf"by position 5, DSpark to {NUMBER}", rf"^chat +dspark(?: +\S+){{4}} +{NUMBER}"),
    (rf"position 4 on code is the only other such place, {NUMBER} against {NUMBER};",
     rf"^  code, position 4: {NUMBER} \[\S+ \S+\], DFlash {NUMBER} \["),
    (rf"At rank 16 DSpark accepts {NUMBER} % less", rf"^rank 16 +\S+  -{NUMBER}% \["),
    (rf"as a whole rank 16 accepts {NUMBER} % less", rf"^rank 16 +\S+  -{NUMBER}% \["),
    (rf"Alone it adds {NUMBER} to ' ' after ':'", rf"^the largest term alone, after ':' +' ' \+{NUMBER} "),
    (rf"after ' ' it takes {NUMBER} away", rf"^the largest term alone, after ' ' .* ' ' -{NUMBER}$"),
    (rf"With the head {NUMBER} of 200 blocks fit, with the head off {NUMBER}\*\*;", rf"with the head {NUMBER}, head off {NUMBER}$"),
    (rf"the head makes {NUMBER} of 200 blocks fit, {NUMBER} without it", rf"with the head {NUMBER}, head off {NUMBER}$"),
    (rf"head off \d+\*\*; {NUMBER} against \d+ are mixed", rf"^with the head of 200 blocks \d+ fit, {NUMBER} are mixed"),
    (rf"head off \d+\*\*; \d+ against {NUMBER} are mixed", rf"^head off +of 200 blocks \d+ fit, {NUMBER} are mixed"),
    (rf"where {NUMBER} of the blocks without it go astray", rf"^head off .* neither; {NUMBER} begin with none of the likely five$"),
    (rf"after the 'r' of \" group\" 'ou' rises from {NUMBER} % to", rf"^slot 4 alone .*'ou' {NUMBER}%"),
    (rf"'ou' rises from \S+ % to {NUMBER} %", rf"^slot 4 after 'r' .*'ou' {NUMBER}%"),
    (rf"drew a comma all the same, at {NUMBER} %", rf"^slot 4 after 'r' .*',' {NUMBER}%"),
    (rf"\(the cosine of the two is {NUMBER}\)", rf"^the rows of ' ' and '1': cosine {NUMBER}$"),
    (rf"the RNN head accepts {NUMBER} against the Markov head's \S+ after the first", rf"^first training, RNN .* {NUMBER}$"),
    (rf"against the Markov head's {NUMBER} after the first training, and", rf"^first training, Markov .* {NUMBER}$"),
    (rf"after the first training, and {NUMBER} against \S+ after the second", rf"^second training, RNN .* {NUMBER}$"),
    (rf"after the first training, and \S+ against {NUMBER} after the second", rf"^second training, Markov .* {NUMBER}$"),
    (rf"more tokens: {NUMBER} times plain decoding against", rf"^DSpark(?: +\S+){{6}} +{NUMBER} "),
    (rf"times plain decoding against {NUMBER}\. \(The cell above", rf"^DFlash(?: +\S+){{6}} +{NUMBER} "),
    (rf"Rank 1 keeps {NUMBER} % of the table's squares", rf"^rank +1: .* {NUMBER}% of the table's squares kept"),
    (rf"next to nothing: {NUMBER} % of the map stays wasted", rf"^rank +1: +{NUMBER}% of the map"),
    (rf"RNN head is {NUMBER} % behind", rf"RNN head against the Markov head -{NUMBER}%"),
    (rf"behind, the gated head {NUMBER} %", rf"gated head against the Markov head -{NUMBER}%"),
    (rf"On 200 prompts it is \+{NUMBER} %, its whole", rf"on 200 prompts per domain: .*all \+{NUMBER}%"),
    (rf"below the paper's \+{NUMBER} to \+{NUMBER} %", rf"in the paper \+{NUMBER}% to \+{NUMBER}%"),
    (rf"comes from chat: \+{NUMBER} %", rf"on 200 prompts per domain: .*chat \+{NUMBER}%"),
    (rf"against \+{NUMBER} % on math and \+{NUMBER} % on code", rf"on 200 prompts per domain: math \+{NUMBER}% .*code \+{NUMBER}%"),
    (rf"uncertain by {NUMBER} nats per token there, by {NUMBER} on chat", rf"mean entropy, in nats per token: math {NUMBER}, .*chat {NUMBER}$"),
    (rf"It gains {NUMBER} % in accepted length", rf"on 200 prompts per domain: .*all \+{NUMBER}%"),
    (rf"in the paper {NUMBER} to {NUMBER} %\. -", rf"in the paper \+{NUMBER}% to \+{NUMBER}%"),
    (rf"On chat DSpark commits {NUMBER} tokens", rf"^DSpark +\d\S+ +\d\S+ +{NUMBER} "),
    (rf"per round, DFlash {NUMBER}, and now", rf"^DFlash +\S+ +\S+ +{NUMBER} "),
    (rf"small LM, which commits {NUMBER} ", rf"^small LM +\S+ +\S+ +{NUMBER} "),
    (rf"than DFlash's, {NUMBER} passes against", rf"^DSpark(?: +\S+){{3}} +{NUMBER} "),
    (rf"passes against {NUMBER} in", rf"^DFlash(?: +\S+){{3}} +{NUMBER} "),
    (rf"gains \S+ % here, on 200 prompts {NUMBER} %", rf"on 200 prompts per domain: .*code \+{NUMBER}%"),
])
def test_what_the_lesson_says_it_prints(sentence, output):
    tied("05", sentence, output)


def test_the_table_would_be_nearly_six_times_the_target():
    between("05", "nearly six times as large as the target itself", r"draft of Qwen3-4B .* table +([\d]+),084.55 M", (23.0, 23.1))
    assert 5.5 < 151_936**2 / 4e9 < 6


def shown_blocks():
    """The eight pairs of blocks that are printed: tokens and verdict with the head, tokens and verdict with the head off."""
    found = re.findall(r"^(\S+\|\S+) +(fits|mixed|neither) +(\S+\|\S+) +(fits|mixed|neither) *$", printed("05"), re.M)
    assert len(found) == 8
    return found


def test_the_second_block_is_a_group_that_breaks_off_in_a_comma():
    caught("The second block drew a comma all the same", prose("05"), "the prose")
    tokens, verdict, *_ = shown_blocks()[1]
    (group,) = caught(r"^the tokens of ' small group': \[(.*)\]$", printed("05"), "the output")
    assert tokens.startswith("·small|·g|r|,|") and verdict == "fits" and group == "' small', ' g', 'r', 'ou', 'p'"


def test_greedily_the_block_is_a_choir():
    caught("Greedily the block is a choir", prose("05"), "the prose")
    (choir,) = caught(r"^the tokens of ' choir': \[(.*)\]$", printed("05"), "the output")
    (greedy,) = caught(r"^greedily after ' a': \[(.*)\]$", printed("05"), "the output")
    assert greedy.startswith(choir)


def test_blocks_without_the_head_take_tokens_of_several_words():
    assert [verdict for *_, verdict in shown_blocks()].count("fits") == 1 and "·c|o|" in shown_blocks()[2][2]
    counted = {name: caught(rf"^{name} +of 200 blocks (\d+) fit, (\d+) are mixed, (\d+) are neither; (\d+) begin with", printed("05"), "the output")
               for name in ("with the head", "head off")}
    for fit, mixed, neither, astray in (map(int, found) for found in counted.values()):
        assert fit + mixed + neither == 200 and astray <= neither


FIRST, JOINT = torch.tensor([4, 7]), torch.tensor([[0.0, 0.5, 0.004, 0.001], [0.0, 0.002, 0.45, 0.01]])


@pytest.mark.parametrize(("drafted", "said"), [([4, 1], "fits"), ([4, 2], "mixed"), ([7, 1], "mixed"), ([7, 2], "fits"), ([4, 0], "neither"),
                                               ([5, 1], "neither"), ([4, 3], "neither"), ([7, 3], "fits")])
def test_a_block_fits_is_mixed_or_neither(drafted, said):
    assert multimodality.block_verdict(torch.tensor(drafted), FIRST, JOINT) == said


def test_lesson_04_calls_the_same_blocks_mixed():
    """Lesson 04 writes the rule out; lesson 05 has it from the package and repeats what lesson 04 counted."""
    sources = "\n".join(cell.source for cell in cells("04") if cell.cell_type == "code")
    first, every = caught(r"\b(\w+) < 0\.01 and (\w+) > 0\.02", sources, "lesson 04")
    for together in (0.0, 0.009, 0.01, 0.5):
        for alone in (0.0, 0.02, 0.021, 0.5):
            joint = torch.tensor([[1 - together, together], [1.0, 0.0]], dtype=torch.float64)
            joint[1] *= max(alone - together, 0.0)
            joint[1] = joint[1].flip(0)  # all that stands after the other first token is the second asked for
            total = joint[:, 1].sum()
            verdict = multimodality.block_verdict(torch.tensor([0, 1]), torch.tensor([0, 1]), joint)
            assert (verdict == "mixed") == eval(f"{first} < 0.01 and {every} > 0.02",
                                                {first: torch.tensor(together, dtype=torch.float64), every: total}), (together, alone)
            assert (verdict == "fits") == (together >= 0.01)
    mixed, blocks = caught(r"At lesson 04's place (\d+) of DFlash's (\d+) blocks were mixed", prose("05"), "the prose")
    assert (blocks, mixed) == caught(r"Of (\d+) blocks (\d+) are mixed", prose("04"), "lesson 04")


@pytest.mark.parametrize(("before", "raised", "other"), [("' s' raises 'et'", "' s' +'et'", "'m'"),
                                                         ("' and' raises ' later'", "' and' +' later'", "' returns'"),
                                                         ("a colon raises a space", "':' +' '", "' good'")])
def test_biases_differ_as_the_lesson_says(before, raised, other):
    (said,) = caught(rf"{before} by {NUMBER} more than {other}", prose("05"), "the prose")
    first, second = caught(rf"^after {raised} \+{NUMBER}  {other} \+{NUMBER}", printed("05"), "the output")
    assert float(said) == pytest.approx(float(first) - float(second))


def test_three_quarters_of_the_gain_come_from_chat():
    between("05", "here three quarters of it comes from chat", rf"; chat has {NUMBER}% of the sum$", (70, 80))


def test_the_richer_heads_gain_is_most_on_chat():
    caught("after the second, most of that lead on chat", prose("05"), "the prose")
    rnn, markov = ([float(word) for word in caught(rf"^second training, {head}((?: +\d\S+){{4}})$", printed("05"), "the output")[0].split()]
                   for head in ("RNN", "Markov"))
    *leads, _ = (ours - theirs for ours, theirs in zip(rnn, markov))
    assert leads[2] > 0.5 * sum(leads) > 0


def test_on_200_prompts_dspark_is_lower_at_three_positions_with_intervals_apart():
    caught(r"lower of the two on code and on chat\.\*\* It is so on 200 prompts, too, where position 4 on code is the only other such place, "
           r"\S+ against \S+ at all three the intervals are apart", prose("05"), "the prose")
    lower = re.findall(r"^  (\w+), position (\d): \S+ \[\S+, (\S+)\], DFlash \S+ \[(\S+), \S+\]$", printed("05"), re.M)
    assert [place for *place, _, _ in lower] == [["code", "1"], ["code", "4"], ["chat", "1"]]
    assert all(float(high) < float(low) for *_, high, low in lower)


def test_a_thinner_table_wastes_as_the_lesson_says():
    said = "Rank 8 still wastes an eighth of the map, rank 16 less than a tenth"
    between("05", said, rf"^rank +8: +{NUMBER}% of the map", (11.5, 13.5))
    between("05", said, rf"^rank 16: +{NUMBER}% of the map", (0, 10))
    three = np.eye(3) - np.eye(3).mean(1, keepdims=True)  # the rows of three phrasings that share no word, centred
    assert "for these phrasings alone could do with two terms: three phrasings have three rows of three words" in prose("05")
    assert np.linalg.matrix_rank(three) == 2


def test_at_rank_32_no_loss_shows():
    between("05", "At rank 32 no loss shows on these 15 prompts", rf"^rank 32 +\S+  \S+ \[{NUMBER}%, {NUMBER}%\]$", (-5, 0), (0, 10))


def test_cut_to_an_eighth_dspark_accepts_no_more_than_dflash():
    caught("at rank 8 no more than DFlash", prose("05"), "the prose")
    eighth, dflash = (float(*caught(rf"^{name} +{NUMBER}  -", printed("05"), "the output")) for name in ("rank 8", "DFlash"))
    assert eighth <= dflash


def test_join_and_visit_begin_after_a_space():
    assert """'jo' and 'vis' begin "join" and "visit", after a space""" in prose("05")
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "tiny-target")
    for text, pieces in ((" join", [" ", "jo", "in"]), (" visit", [" ", "vis", "it"]), (" Jo", [" ", "J", "o"])):
        assert [tokenizer.decode([token]) for token in tokenizer(text, add_special_tokens=False)["input_ids"]] == pieces
    for row in ("' '", "'1'"):
        assert caught(rf"^after {row} +('jo') \S+  ('vis') ", printed("05"), "the output")


def test_no_sum_of_two_tokens_decides_as_the_phrases_of_exercise_5():
    phrases = {("very", "good"): 1, ("very", "bad"): -1, ("not", "good"): -1, ("not", "bad"): 1}
    for first, second in phrases:
        assert f'"{first} {second}"' in prose("05"), (first, second)
    table = np.array([[phrases[first, second] for second in ("good", "bad")] for first in ("very", "not")])
    assert (table[0] + table[1] == 0).all() and (table.sum(1) == 0).all()  # the leads of a sum cannot have these signs


def test_odds_are_multiplied_as_the_lesson_says():
    assert round(math.exp(1), 1) == 2.7 and 19 < math.exp(3) < 21 and 900 < math.exp(7) < 1200


def test_in_the_paper_the_first_position_is_ahead_in_every_domain():
    assert all(paper.conditional_acceptance("dspark", domain)[0] > paper.conditional_acceptance("dflash", domain)[0]
               for domain in ("math", "code", "chat"))


def test_the_gain_is_below_the_papers_and_on_code_it_may_be_none():
    (high,) = caught(rf"on 200 prompts per domain: .*all \S+ \[\S+, \+{NUMBER}%\]", printed("05"), "the output")
    low, (end,) = 100 * min(paper.macro_gain(target, "dspark", "dflash") for target in paper.TARGETS), caught(
        rf"on 200 prompts per domain: .*code \S+ \[{NUMBER}%", printed("05"), "the output")
    assert float(high) < low and float(end) < 0
    assert {len(our_results.recipe_row(TABLE_1[name], "chat")["rounds"]) for name in ("dspark", "dflash")} == {200}


def test_the_head_is_a_small_part_of_a_round():
    between("05", "Drawing left to right takes longer than drawing all slots at once, and is still a small part of the round",
            rf"with the head takes {NUMBER} times as long as independently; the round becomes {NUMBER}% longer", (1.0, 10.0), (0.0, 20.0))
    assert f"{paper.overhead('dspark')[8]:.1%}" == "0.6%" and "The paper measures 0.6 %" in prose("05")


def test_on_chat_the_block_drafter_is_the_faster():
    speeds = [float(*caught(rf"^{name} +\d.* {NUMBER}$", printed("05"), "the output")) for name in ("small LM", "DSpark")]
    assert speeds[0] < speeds[1]


def test_the_head_pays_for_itself_even_on_math():
    costlier, longer = caught(rf"costs about {NUMBER} % more than DFlash's.* pays for itself even on math, where it brings only {NUMBER} % more "
                              "tokens", prose("05"), "the prose")
    dspark, dflash = [[float(word) for word in caught(rf"^{name}((?: +\d\S+){{9}})$", printed("05"), "the output")[0].split()]
                      for name in ("DSpark", "DFlash")]  # τ by domain, the costs of a round, the speed by domain
    rounds = {name: scoreboard.by_domain(name, "accepted_length") / scoreboard.by_domain(name, "speedup") for name in ("dspark", "dflash")}
    assert float(costlier) == round(100 * (rounds["dspark"].mean() / rounds["dflash"].mean() - 1))
    assert float(longer) == pytest.approx(100 * (dspark[0] / dflash[0] - 1), abs=0.05)
    assert all(ours > theirs for ours, theirs in zip(dspark[6:], dflash[6:]))
    (on_code,) = caught(rf"on code DSpark gains {NUMBER} % here", prose("05"), "the prose")
    assert float(on_code) == pytest.approx(100 * (dspark[1] / dflash[1] - 1), abs=0.05)


def test_a_guess_stands_before_the_cost_and_the_gain():
    questions = "\n".join(cell.source for cell in cells("05") if "predict(" in cell.source)
    assert "make a round longer?" in questions and "on math, on code, on chat? Three numbers" in questions
    domains = [rf"{domain} \+{NUMBER}%" for domain in ("math", "code", "chat")]
    assert caught("^  measured   " + ", ".join(domains) + "$", printed("05"), "the output") == caught(
        "^on 200 prompts per domain: " + ".*?, ".join(domains), printed("05"), "the output")
    caught(rf"^  measured   {NUMBER}%$", printed("05"), "the output")


def test_after_a_full_stop_the_end_leads_and_the_stop_comes_last():
    caught(r"`row\(\"\.\"\)`: the end of the answer leads, then words that begin a sentence, such as ' You'; '\.' itself comes last",
           prose("05"), "the prose")
    weights = {name: weight.float() for name, weight in load_file(EMBEDDED / "tiny-dspark" / "model.safetensors").items() if "markov_w" in name}
    w1, w2 = (weights[f"markov_head.markov_w{k}.weight"] for k in (1, 2))
    tokenizer = AutoTokenizer.from_pretrained(EMBEDDED / "tiny-target")
    (stop,) = tokenizer(".", add_special_tokens=False)["input_ids"]
    order = [tokenizer.decode([token]) for token in (w2 @ w1[stop]).argsort(descending=True).tolist()]
    assert order[0] == "<|im_end|>" and order[1] == " You" and order[-1] == "."


def test_from_position_2_on_dspark_is_ahead_of_dflash_but_at_one():
    caught(r"from position 2 on, except at position 4 on code; most on chat", prose("05"), "the prose")
    rates = {(name, domain): our_results.conditional_acceptance(TABLE_1[name], domain) for name in ("dspark", "dflash")
             for domain in ("math", "code", "chat")}
    leads = {domain: [ours.value - theirs.value for ours, theirs in zip(rates["dspark", domain], rates["dflash", domain])][1:]
             for domain in ("math", "code", "chat")}
    behind = [(domain, k) for domain, found in leads.items() for k, lead in enumerate(found, start=2) if lead <= 0]
    assert behind == [("code", 4)] and max(leads, key=lambda domain: sum(leads[domain])) == "chat"


def test_the_largest_term_raises_a_space_and_what_rides_along():
    caught("whatever raises ' ' by this term raises ' good', too", prose("05"), "the prose")
    (after_colon,) = caught(r"^the largest term alone, after ':' +(.*)$", printed("05"), "the output")
    (after_space,) = caught(r"^the largest term alone, after ' ' +(.*)$", printed("05"), "the output")
    assert after_colon.startswith("' ' +") and "' good' +" in after_colon and "' ' +" not in after_space


def test_lesson_04_says_what_dflash_wasted():
    said = caught(rf"which never had a head, wasted {NUMBER} % of its map in lesson 04", prose("05"), "the prose")
    assert said == caught(rf"DFlash wastes as much, {NUMBER}%", prose("04"), "lesson 04")


def test_a_function_that_writes_into_the_base_logits_spoils_no_later_cell():
    (cell,) = [cell.source for cell in cells("05") if "greedy = draft(" in cell.source]
    assert "draft(base_logits[0].clone(), " in cell


def test_tokens_that_are_drawn_are_not_taken_for_the_greedy_block(capsys):
    torch.manual_seed(0)

    def drawn(base_logits, anchor, bias):
        tokens = [anchor]
        for logits in base_logits:
            tokens.append(torch.multinomial(torch.softmax(logits + bias(tokens[-1]), -1), 1)[0])
        return torch.stack(tokens[1:])

    assert not any(exercises.check_left_to_right(drawn) for _ in range(50))
    assert "this is not the greedy block" in capsys.readouterr().out


def test_gains_stand_above_ours_and_the_papers_lengths(closing):
    ours = {"dflash": {"chat": Estimate(4.0, 3.9, 4.1)}, "dspark": {"chat": Estimate(6.0, 5.9, 6.1)}}
    fig = figures.accepted_length_figure({**ours, **{name: {**found, "math": found["chat"]} for name, found in ours.items()}},
                                         {"dflash": {"chat": 2.0, "math": 2.0}, "dspark": {"chat": 2.5, "math": 2.0}}, 200)
    assert [axes.get_title() for axes in fig.axes] == ["chat: DSpark +50.0%\n(paper +25%)", "math: DSpark +50.0%\n(paper +0%)"]


def test_what_a_rank_wastes_stands_beside_what_it_keeps(closing):
    (axes,) = figures.by_rank({0: 0.7, 1: 0.6, 2: 0.1}, {0: 0.0, 1: 0.8, 2: 1.0}).axes
    assert axes.get_title() == "rank 1 keeps 80% of the squares and wastes 60% of the map"
    assert [list(line.get_ydata()) for line in axes.lines] == [[0.0, 0.8, 1.0], [0.7, 0.6, 0.1]]


def test_small_biases_are_drawn_on_one_scale(closing):
    for bias, ends in (([2.0, -1.0], 8.0), ([-20.0, 1.0], 21.0)):
        fig = figures.corrected_distribution(["a", "b"], [0.5, 0.5], bias, [0.9, 0.1], " c")
        assert fig.axes[1].get_xlim() == pytest.approx((-ends, ends))
        assert fig.get_suptitle() == "the bias after '·c' takes 'a' from 50% to 90%"


def test_the_cost_of_the_head_is_in_the_title(closing):
    (axes,) = figures.costs({"target": 9.0, "draw with the head": 1.0}, 0.5, 10.0, "CPU").axes
    assert axes.get_title() == "the head adds 0.50 ms to a round of 10.0 ms: 5.0%"
    assert [bar.get_width() for bar in axes.patches] == [9.0, 1.0, 0.5] and axes.patches[2].get_x() == 0.5


def test_lines_by_position_are_labelled_where_they_end(closing):
    styles = {name: {**style.drafter_style(name)} for name in ("dspark", "dflash")}
    rates = [Estimate(0.9, 0.8, 1.0), Estimate(0.5, 0.4, 0.6)]
    fig = position_panels({"math": {"dspark": rates, "dflash": [rates[0], None]}, "chat": {"dspark": rates, "dflash": [rates[0], None]}},
                          styles, {"math": "m", "chat": "c"})
    assert [text.get_text() for text in fig.axes[1].texts] == ["DFlash", "DSpark"] and not fig.axes[0].texts
    assert fig.axes[1].texts[0].xy == (1, 0.8)  # under its interval
    assert last_point(rates, styles["dspark"])[:3] == (2, 0.5, "DSpark") and last_point([rates[0], None], styles["dflash"])[:2] == (1, 0.9)
