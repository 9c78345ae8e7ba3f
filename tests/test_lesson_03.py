"""Lesson 03: its figures show what they are given, its checker of a round names what went wrong, its prose is its outputs."""

import ast
import re

import nbformat
import pytest
import stated
import torch
from helpers import bars, drawn, written

from dspark_course.exercises import lesson_03 as exercises
from dspark_course.exercises.verifying import verify
from dspark_course.figures import lesson_03 as figures


def test_bars_of_latency_divide_a_rounds_seconds_by_its_tokens(closing):
    fig = figures.latency_bars({("plain", "math"): (1.0, 0.0, 0.004), ("small_lm", "math"): (4.0, 0.01, 0.006)}, "a made device")
    verify, draft, of_small, of_its_drafts, _ = bars(fig.axes[0])
    assert [verify, draft, of_small, of_its_drafts] == [[4.0], [0.0], [pytest.approx(1.5)], [pytest.approx(2.5)]]
    assert written(fig) == ["τ 1.00", "τ 4.00", "measured on a made device"]
    assert fig.axes[0].get_title() == "drafting is 62% of a round of the small LM\nslower than plain decoding: none"


def test_the_title_of_the_latencies_names_what_loses(closing):
    costs = {("plain", "chat"): (1.0, 0.0, 0.004), ("prompt_lookup", "chat"): (1.1, 0.0, 0.005),
             ("plain", "code"): (1.0, 0.0, 0.004), ("prompt_lookup", "code"): (1.0, 0.0, 0.00404)}  # no more than a measurement varies
    assert figures.latency_bars(costs, "CPU").axes[0].get_title().endswith("\nslower than plain decoding: prompt lookup on chat")
    costs |= {("plain", "math"): (1.0, 0.0, 0.004), ("prompt_lookup", "math"): (1.1, 0.0, 0.005), ("prompt_lookup", "code"): (1.0, 0.0, 0.005)}
    assert figures.latency_bars(costs, "CPU").axes[0].get_title().endswith(": prompt lookup on chat, code and math")


def test_the_sweep_of_draft_lengths_shows_measurement_and_formula(closing):
    sweep = {("math", 7): (4.0, 0.8), ("math", 1): (1.7, 1.1)}
    sweep |= {("chat", length): (2.0, 0.5 * length) for length in (1, 7)}
    model = {key: (tau + 0.1, speedup + 0.2) for key, (tau, speedup) in sweep.items()}
    fig = figures.draft_length_sweep(sweep, model, "CPU")
    math, chat, math_speed, chat_speed = fig.axes
    assert drawn(math) == {"measured": [1.7, 4.0], "formula": [1.8, 4.1]}
    assert drawn(math_speed) == {"measured": [1.1, 0.8], "formula": [1.3, 1.0]}
    assert drawn(chat) == {"measured": [2.0, 2.0], "formula": [2.1, 2.1]}
    assert [math.get_title(), chat.get_title()] == ["math: fastest at γ = 1", "chat: fastest at γ = 7"]
    assert written(fig).count("slower than plain") == 2 and chat_speed.get_ylim()[1] == pytest.approx(1.2 * 3.7)


def test_the_figure_of_when_it_pays_marks_the_best_length_and_where_it_breaks_even(closing):
    left, right = figures.when_it_pays(0.8, 7, 0.1, 1.0).axes
    tokens = {gamma: (1 - 0.8 ** (gamma + 1)) / 0.2 for gamma in (6, 7)}  # in rounds of 1.6 and 1.7 plain passes
    assert drawn(left) == {"best": [pytest.approx(tokens[6] / 1.6)], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    assert drawn(right) == {"breaks even": [1], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    assert [left.get_title(), right.get_title()] == ["best γ = 6, 2.47 times plain decoding", "γ = 7 breaks even at a = 0.41"]
    _, never = figures.when_it_pays(0.05, 16, 1.0, 3.0).axes
    assert list(drawn(never)) == ["here: 0.06"] and never.get_title() == "γ = 16 never breaks even"
    assert [left.get_ylim(), never.get_ylim()] == [(0, 3)] * 2, "settings can be compared"


# The checker of a round ----------------------------------------------------------------------------------------------


def round_with(target=lambda drafts, accepted: len(drafts) - accepted, small=lambda drafts, accepted: max(0, len(drafts) - 1 - accepted),
               tokens=lambda tokens: tokens, unread=lambda drafts, tokens: drafts[-1:] * (len(tokens) > len(drafts)) + tokens[-1:]):
    """A `settle` with one of its parts done in another way."""
    def settle(models, caches, p, q, drafts, generator):
        committed = verify(p, q, drafts, generator)
        for model, cache, dropped in zip(models, caches, (target, small)):
            model.roll_back(cache, dropped(drafts, len(committed) - 1))
        return tokens(committed), unread(drafts, committed)
    return settle


def test_a_right_round_passes(capsys):
    assert exercises.check_settle(exercises.settle) and exercises.check_settle(round_with())
    assert capsys.readouterr().out == "Correct.\n" * 2


@pytest.mark.parametrize(("settle", "said"), [
    (round_with(target=lambda drafts, accepted: 0), "with 1 of 3 drafts accepted the target's cache still holds refused drafts, 2 too many"),
    (round_with(target=lambda drafts, accepted: len(drafts)), "the target's cache has forgotten 1 too many"),
    (round_with(small=lambda drafts, accepted: len(drafts) - accepted), "the small LM's cache has forgotten 1 too many"),
    (round_with(small=lambda drafts, accepted: len(drafts) - 1 - accepted), "the small LM's cache holds 5 positions and cannot forget -1"),
    (round_with(unread=lambda drafts, tokens: tokens[-1:]), "with 3 of 3 drafts accepted the small LM has still to read its own last draft"),
    (round_with(unread=lambda drafts, tokens: tokens), "with 1 of 3 drafts accepted the small LM has still to read the target's own token and"),
    (round_with(unread=lambda drafts, tokens: tokens[-2:] if len(tokens) >= len(drafts) else tokens[-1:]),
     "with 2 of 3 drafts accepted the small LM has still to read the target's own token and nothing else"),
    (round_with(tokens=lambda tokens: tokens[:-1]), "the first list is not what verify(p, q, drafts, generator) returns"),
    (round_with(tokens=len), "return two lists"), (lambda *_: [1, 4], "return two lists"),
    (3, "takes the function itself, not a value of type int"), (None, "Not done yet"), (lambda *_: None, "Not done yet")])
def test_a_wrong_round_is_told_what_is_wrong(settle, said, capsys):
    assert exercises.check_settle(settle) is False
    (line,) = capsys.readouterr().out.splitlines()
    assert said in line and "raised" not in line


def in_place(p, q, drafts, generator):
    """A right `verify` that writes its tokens into `drafts`."""
    drafts[:] = verify(p, q, drafts, generator)
    return drafts


def settle_with(verify):
    """A right `settle`, with the drafts counted after `verify`."""
    def settle(models, caches, p, q, drafts, generator):
        tokens = verify(p, q, drafts, generator)
        gamma, accepted = len(drafts), len(tokens) - 1
        for model, cache, dropped in zip(models, caches, exercises.forget(gamma, gamma, accepted)):
            model.roll_back(cache, dropped)
        return tokens, drafts[-1:] * (accepted == gamma) + tokens[-1:]
    return settle


def test_a_verify_that_changes_the_drafts_is_named_where_it_makes_a_round_wrong(capsys):
    assert exercises.check_settle(settle_with(exercises.in_use(in_place, True))) and exercises.check_settle(settle_with(verify))
    assert exercises.check_settle(settle_with(in_place)) is False
    *right, line = capsys.readouterr().out.splitlines()
    assert right[1:] == ["Correct."] * 2 and line.endswith(exercises.CHANGED)


@pytest.mark.parametrize("verify", [lambda *round_: torch.tensor(verify(*round_)), in_place], ids=["a tensor", "the drafts, changed in place"])
def test_a_right_verify_in_another_form_serves_the_loop(verify, capsys):
    assert exercises.check_verify(verify)
    ours, drafts = exercises.in_use(verify, True), [1, 2, 3]
    p, q = exercises.one_hot([1, 2, 4, 4]), exercises.one_hot(drafts)
    assert ours(p, q, drafts, None) == [1, 2, 4] and drafts == [1, 2, 3]
    assert capsys.readouterr().out.startswith("Correct.\nFrom here on your own verify decides.")


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"Only the drafts differ: (\d+) rounds in place of", r"^drawn, (\d+) rounds"),
    (r"rounds in place of (\d+)\.", r"^greedy, (\d+) rounds"),
    (r"holds refused tokens: (\d) of (\d) answers are its own", r"a refused draft stays in the target's +(\d) of (\d) answers"),
    (r"The ([\d.]+) tokens per round are those of other texts", r"stays in the target's .* own, ([\d.]+) tokens per round"),
    (r"phantom leaves (\d) of (\d) answers right", r"a refused draft stays in the small LM's +(\d) of (\d) answers"),
    (r"only drafts worse: ([\d.]+) tokens per round in place of", r"stays in the small LM's .* own, ([\d.]+) tokens per round"),
    (r"tokens per round in place of ([\d.]+)\.", r"clean caches .* own, ([\d.]+) tokens per round"),
    (r"Forty rounds for (\d+) tokens, so only", r"^1 token from the prefill, (\d+) in 40 rounds"),
    (r"gains almost nothing: ([\d.]+) tokens per round on math", r"^prompt lookup +math .* / ([\d.]+) tokens"),
    (r"per round on math, ([\d.]+) on code", r"^prompt lookup +code .* / ([\d.]+) tokens"),
    (r"repeats hardly anything, ([\d.]+)\.", r"^prompt lookup +chat .* / ([\d.]+) tokens"),
    (r"prompt lookup \*loses\* on chat, at ([\d.]+) times plain decoding", r"^prompt lookup .* ([\d.]+)$"),
    (r"guesses anywhere, ([\d.]+) to [\d.]+ tokens per round", r"^small LM +math .* / ([\d.]+) tokens"),
    (r"guesses anywhere, [\d.]+ to ([\d.]+) tokens per round", r"^small LM +chat .* / ([\d.]+) tokens"),
    (r"followed the parameters, \$c\$ would be (\d+)%", r"the small LM has (\d+)% of the target's"),
    (r"lies nearer the share of the layers, (\d+)%", r"^layers: +(\d+)%"),
    (r"its share of the layers \((\d+)%\)", r"^layers: +(\d+)%"),
    (r"than that of the parameters \((\d+)%\)", r"the small LM has (\d+)% of the target's"),
    (r"Every guess is right, a round brings ([\d.]+) tokens", r"measured   ([\d.]+) tokens per round"),
    (r"the target keeps ([\d.]+) of the first drafts and", r"^math +200 prompts ([\d.]+) "),
    (r"of the first drafts and ([\d.]+) of the seventh on math", r"^math +200 prompts .* ([\d.]+)$"),
    (r"of the seventh on math, ([\d.]+) and [\d.]+ on code", r"^code +200 prompts ([\d.]+) "),
    (r"of the seventh on math, [\d.]+ and ([\d.]+) on code", r"^code +200 prompts .* ([\d.]+)$"),
    (r"on code, ([\d.]+) and [\d.]+ on chat", r"^chat +200 prompts ([\d.]+) "),
    (r"on code, [\d.]+ and ([\d.]+) on chat", r"^chat +200 prompts .* ([\d.]+)$"),
    (r"the fifth on code: ([\d.]+) on 200 prompts", r"^code +200 prompts(?: [\d.]+){4} ([\d.]+) "),
    (r"for no reason that we know, and ([\d.]+) on three\.", r"^code +3 prompts(?: [\d.]+){4} ([\d.]+) [\d.]+ [\d.]+   all together"),
    (r"At 2 drafts on math it says ([\d.]+) tokens where", r"^math +2 +[\d.]+ +[\d.]+ +([\d.]+) "),
    (r"tokens where ([\d.]+) were measured, at 4 on code", r"^math +2 +([\d.]+) "),
    (r"at 4 on code ([\d.]+) where", r"^code +4 +[\d.]+ +[\d.]+ +([\d.]+) "),
    (r"at 4 on code [\d.]+ where ([\d.]+) were\.", r"^code +4 +([\d.]+) "),
    (r"too high everywhere, on chat ([\d.]+) where", r"^chat +7 +[\d.]+ +[\d.]+ +([\d.]+) "),
    (r"too high everywhere, on chat [\d.]+ where ([\d.]+) were measured", r"^chat +7 +([\d.]+) "),
    (r"So it is ([\d.]+) to ([\d.]+) times as fast, not five to seven", r"^small LM +(?:[\d.]+ +){6}([\d.]+) +[\d.]+ +([\d.]+)$"),
    (r"The small LM brings ([\d.]+) to ([\d.]+) tokens per round, and a round costs ([\d.]+) plain passes",
     r"^small LM +([\d.]+) +[\d.]+ +([\d.]+) +([\d.]+) "),
    (r"plain passes: ([\d.]+) for drafting, ([\d.]+) for verifying", r"^small LM +(?:[\d.]+ +){4}([\d.]+) +([\d.]+) "),
    ])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("03", sentence, output)


@pytest.mark.parametrize(("sentence", "output", "bands"), [
    ("and nothing is gained: the formula says", r"tokens per round, ([\d.]+) times plain decoding; the formula", [(0.4, 1.1)]),
    ("it lies nearer the share of the layers", r"one pass takes c = (\d+)% of a plain pass", [(17, 60)]),
    ("lies nearer its share of the layers", r"one pass takes c = (\d+)% of a plain pass", [(17, 60)]),
    ("Prompt lookup drafts almost for free and gains almost nothing", r"^prompt lookup +chat .* ([\d.]+) times plain$", [(0.5, 1.2)]),
    ("here it was more, as printed above", r"verifying a block takes v = ([\d.]+) plain passes", [(1.02, 3.0)]),
])
def test_its_timings_bear_its_sentences(sentence, output, bands):
    stated.between("03", sentence, output, *bands)


@pytest.mark.parametrize("domain", ["math", "code", "chat"])
def test_the_small_lm_is_faster_everywhere_and_drafts_half_of_its_time(domain):
    assert "and is faster everywhere" in stated.prose("03") and "about half of its time is drafting" in stated.prose("03")
    draft, verifying, speedup = map(float, stated.caught(
        rf"^small LM +{domain} +\( *([\d.]+) \+ +([\d.]+)\) ms .* per token, ([\d.]+) times plain", stated.printed("03"), "the output"))
    assert speedup > 1 and 0.4 * (draft + verifying) < draft < 0.65 * (draft + verifying)


def test_of_the_tokens_it_copies_one_is_right():
    assert "so only ` get` was matched. Seven tokens are copied, and one is right" in stated.prose("03")
    copied, followed = (stated.caught(rf"^{label} +(\[.*\])$", stated.printed("03"), "the output")[0]
                        for label in ("what followed before", "what follows now"))
    copied, followed = ast.literal_eval(copied), ast.literal_eval(followed)
    assert len(copied) == 7 and copied[0] == followed[0] and copied[1] != followed[1]
    *_, before, last = ast.literal_eval(stated.caught(r"^the text ends with +(\[.*\])$", stated.printed("03"), "the output")[0])
    (prompt,) = stated.caught(r"^(Give me a Python function .*)$", stated.printed("03"), "the output")
    assert [before, last] == ["def", " get"] and "def get" not in prompt and " get" in prompt


def test_the_kept_copies_are_counted():
    said, printed = stated.prose("03"), stated.printed("03")
    tokens, rounds = map(int, stated.caught(r"^1 token from the prefill, (\d+) in (\d+) rounds", printed, "the output"))
    assert f"so only {tokens - rounds} copied tokens were kept" in said and f"Ten of the {tokens - rounds} stand in the first 14" in said


def swept(output: str) -> dict[tuple[str, int], tuple[float, ...]]:
    """The table of draft lengths: (τ, with the ends, formula, a draft, verifying, total, γc + v, speed-up, formula) by domain and length."""
    found = re.findall(r"^(math|code|chat) +([1247])" + r" +(\d+\.\d\d)" * 9 + "$", output, re.M)
    return {(domain, int(length)): tuple(map(float, numbers)) for domain, length, *numbers in found}


def test_what_it_says_of_theory_and_machine_is_what_the_sweep_prints():
    said, found = stated.prose("03"), swept(stated.printed("03"))
    assert len(found) == 12
    assert "On chat the formula is right to a tenth for 1, 2 and 4 drafts" in said
    assert all(abs(found["chat", length][0] - found["chat", length][2]) < 0.1 for length in (1, 2, 4))
    assert r"At $\gamma = 7$ the formula is too high everywhere" in said
    assert all(formula > tau for (_, length), (tau, _, formula, *_) in found.items() if length == 7)
    assert "all three domains lie nearer to the formula" in said
    assert all(abs(whole - formula) < abs(tau - formula) for (_, length), (tau, whole, formula, *_) in found.items() if length == 7)
    assert "The formula misses it by the same share as $\\tau$, since the costs are measured" in said
    assert all(abs(formula / tau - expected / speedup) < 0.05 for tau, _, formula, *_, speedup, expected in found.values())
    assert "By the formula 7 drafts are less than a fifth faster than 4." in said
    assert "In our run the gain was smaller than the formula's in every domain, and on code it was a loss" in said
    formula, measured = ({domain: found[domain, 7][column] / found[domain, 4][column] for domain in ("math", "code", "chat")} for column in (8, 7))
    assert all(1 < formula[domain] < 6 / 5 and measured[domain] < formula[domain] for domain in formula)
    assert measured["code"] < 1 < measured["chat"] and measured["math"] < 1.1


def test_what_a_round_should_cost_is_near_what_it_costs():
    said, printed = stated.prose("03"), stated.printed("03")
    found = swept(printed)
    draft, c, verifying, v = map(float, stated.caught(
        r"a draft ([\d.]+), c = ([\d.]+); verifying ([\d.]+), v = ([\d.]+)$", printed, "the output"))
    assert "it lies within 15% of all twelve totals" in said
    assert len(found) == 12 and all(0.85 < sum_ / total < 1.15 for *_, total, sum_, _, _ in found.values())
    assert all(abs(length * c + v - sum_) < 0.05 for (_, length), (*_, sum_, _, _) in found.items())
    assert "Verifying costs less than $v$" in said and "The draft costs more than $c$" in said
    assert draft > c and verifying < v


def test_the_answer_on_the_slips_is_what_the_solution_prints():
    (source,) = stated.notebooks.lesson_sources("03")
    solved = nbformat.read(stated.notebooks.notebook_path(source, solutions=True), as_version=4).cells
    said = stated.caught(r"wrong \((\d) of (\d)\).* has read that token: ([\d.]+) tokens per round.* drafts get worse: ([\d.]+)\. Every"
                         r".* so it costs least: ([\d.]+)\.", stated.prose("03"), "the prose")
    (*wrong, a), (right_b, b), (right_c, c) = (
        stated.caught(rf"^\({slip}\) {counts} answers are the target's own, ([\d.]+) tokens per round$", stated.printed_by(solved), "the solution")
        for slip, counts in (("a", r"(\d) of (\d)"), ("b", r"(\d of \d)"), ("c", r"(\d of \d)")))
    assert said == (*wrong, a, b, c) and right_b == right_c == "6 of 6"


def test_the_cost_of_the_large_pair_lies_between_its_shares():
    taus, speedup, (low, high), (least, most), (parameters, layers) = (
        tuple(map(float, stated.caught(pattern, stated.prose("03"), "the prose"))) for pattern in (
            r"On three prompts it makes ([\d.]+) to ([\d.]+) tokens per round", r"speculation > \*loses\*, at ([\d.]+) times plain",
            r"over this speed-up: between ([\d.]+) and ([\d.]+) plain passes", r"would cost > ([\d.]+), with .* they would cost ([\d.]+)\.",
            r"small LM has (\d+)% of the parameters and (\d+)% of the layers"))
    assert stated.says(str(low), str(min(taus) / speedup[0])) and stated.says(str(high), str(max(taus) / speedup[0]))
    assert stated.says(str(least), str(1 + 4 * parameters / 100)) and stated.says(str(most), str(1 + 4 * layers / 100))
    assert "The truth lies between the two." in stated.prose("03") and least < low < high < most
