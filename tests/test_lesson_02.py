"""Lesson 02: its figures show what they are given, and what it says is what it prints."""

import inspect
import re
from functools import partial

from unittest.mock import patch

import pytest
import stated
import torch
from helpers import bars, drawn

from dspark_lite.decoding import rounds
from dspark_lite.decoding.sampling import probabilities, residual
from dspark_lite.scheduling import retrospective
from dspark_course.exercises import verifying
from dspark_course.exercises.verifying import as_accept, draw_token, toss, variant, verify
from dspark_course.figures import lesson_02 as figures
from dspark_lite.losslessness import outcomes, output_distribution, total_variation
from dspark_lite.losslessness.enumeration import Path
from dspark_lite.losslessness.toys import ToyDrafter, ToyTarget, appendix_a

P, Q = torch.tensor([0.6, 0.4]), torch.tensor([0.25, 0.75])


def test_what_is_refused_is_what_is_owed(closing):
    left, right = figures.overlap_figure(P, Q, ["A", "B"]).axes
    assert left.get_title() == "kept 0.65; refused 0.35 = owed 0.35" and bars(right) == [[1.0, 0.0]]
    _, none = figures.overlap_figure(P, P, ["A", "B"]).axes
    assert none.get_title() == "no residual: nothing is refused" and bars(none) == [[0.0, 0.0]] and not none.axison


def test_no_tick_is_above_a_probability_of_one(closing):
    left, _ = figures.overlap_figure(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), ["A", "B"]).axes
    assert left.get_ylim() == pytest.approx((0, 1.4)) and max(left.get_yticks()) <= 1.01


def test_lossy_decoders_are_counted(closing):
    (axes,) = figures.total_variation_figure({"exact": 1e-8, "wrong": 0.1, "worse": 0.3}).axes
    assert axes.get_title() == "2 of 3 decoders do not reproduce the target's distribution"


def test_counts_within_two_deviations_are_counted(closing):
    """Of 100 draws with p = 0.5 the bar reaches from 40 to 60; what is not named is one more bar, 25 ± 8.7 here."""
    (axes,) = figures.counts_figure([" a", " b"], [0.5, 0.25], 100, {"right": [41, 30], "wrong": [39, 17]}).axes
    assert axes.get_title() == "counts within the bars: 3 of 3 (right), 1 of 3 (wrong)"
    assert drawn(axes) == {"right": [41, 30, 29], "wrong": [39, 17, 44]}
    assert [label.get_text() for label in axes.get_xticklabels()] == ["·a", "·b", "all others"]


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"\*\*1, the coin\*\* \(([\d.]+)\): every token that is offered too often is kept",
     r"1 p and q swapped in the coin \(([\d.]+)\), then"),
    (r"\*\*3, not renormalised\*\* \(([\d.]+)\).* \*\*2, drawn from \$p\$\*\* \(([\d.]+)\)",
     r"residual not renormalised \(([\d.]+)\), then 2 correction drawn from p \(([\d.]+)\)"),
    (r"\*\*4, the bonus\*\* \(([\d.]+)\): acts only after", r"4 bonus from the row before \(([\d.]+)\)$"),
    (r"\$0\.5 \+ 0\.5 \\cdot 0\.7 = ([\d.]+)\$", r"measured +([\d.]+); without a drafter 0\.7000$"),
    (r"moves the text by only ([\d.]+)\. That is still", r"^5 drawn in 16 bits, float32 claimed +([\d.e-]+)$"),
    (r"draft 1 is a 0 \| ([\d.]+) \| ([\d.]+) \| \*\*([\d.]+)\*\* \|",
     r"^first draft 0: .* per second \[([\d.]+), ([\d.]+), ([\d.]+)\] -> verify 2 drafts"),
    (r"draft 1 is a 1 \| \*\*([\d.]+)\*\* \| ([\d.]+) \| ([\d.]+) \|",
     r"^first draft 1: .* per second \[([\d.]+), ([\d.]+), ([\d.]+)\] -> verify 0 drafts"),
    (r"so it acts less often: ([\d.]+), not", r"^7 policy: unlikely draws withheld +([\d.e-]+)$"),
    (r"so it acts less often: [\d.]+, not ([\d.]+)\.", r"^6 policy: retrospective length +([\d.e-]+)$"),
    (r"the smallest p-value is ([\d.]+)\.", r"^dflash +p-value ([\d.]+)"),
    (r"and (\d+) % of its draws go to tokens outside these ten, where the target puts (\d+) %",
     r"^outside these ten tokens: (\d+)% of the planted draws, (\d+)% of the target's"),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("02", sentence, output)


def test_none_of_the_six_is_rejected_and_the_planted_error_is():
    found = dict(re.findall(r"^(\w+(?: error)?) +p-value (\S+)", stated.printed("02"), re.M))
    assert "None of the six is rejected" in stated.prose("02") and len(found) == 7 and found.pop("planted error") == "below"
    assert min(map(float, found.values())) == float(found["dflash"]) >= 1e-3


def test_prompt_lookups_draft_is_hardly_ever_kept_and_the_others_are_kept_and_refused():
    shares = {name: int(share) for name, share in re.findall(r"^(\w+) +p-value .* draft kept in (\d+)% of", stated.printed("02"), re.M)}
    assert "Prompt lookup's draft is hardly ever kept here" in stated.prose("02") and len(shares) == 6
    assert shares.pop("prompt_lookup") <= 1 and all(20 <= share <= 90 for share in shares.values())


def test_sixteen_bits_move_the_text_further_than_float32_rounds():
    assert "That is still far above what float32 rounding leaves" in stated.prose("02")
    wrong, right = (float(stated.caught(line, stated.printed("02"), "the output")[0])
                    for line in (r"^5 drawn in 16 bits, float32 claimed +([\d.e-]+)$", r"^the rule as derived +([\d.e-]+)$"))
    assert wrong > 10 * verifying.EXACT > 1e3 * right


def test_one_guess_has_eleven_paths():
    assert "Eleven paths: five kept drafts, and three words that can be refused, each with two replacements" in stated.prose("02")
    ways = re.findall(r"[\d.]+ (kept|for a refused '\w+')", stated.printed("02"))
    assert len(ways) == 11 and ways.count("kept") == 5 and len(set(ways)) == 1 + 3


# What it says without printing it: the tables of "Seven ways to break the rule" ---------------------------------------

TABLE, DRAFTED = torch.tensor([[0.7, 0.3], [0.4, 0.6]]), torch.tensor([[0.45, 0.55], [0.8, 0.2]])


def distance_with(rule=verify, policy=None, table=TABLE, drafted=DRAFTED) -> float:
    """The lesson's function of this name, on its tables or on others."""
    target = ToyTarget(table)
    drafter = ToyDrafter(drafted, first_confidence=0.5, confidence=[0.5, 0.5], gamma=2)
    with patch.object(rounds, "accept", as_accept(rule)):
        found = output_distribution(target, drafter, policy, length=4)
    return total_variation(found, output_distribution(target, None, None, length=4))


def test_swapped_in_the_coin_p_and_q_fill_a_drafts_place_from_q():
    assert "so with two tokens the result is $q$ itself" in stated.prose("02")
    for p, q in zip(TABLE, DRAFTED, strict=True):
        kept = q * (q / p).clamp(max=1)
        assert torch.allclose(kept + (1 - kept.sum()) * residual(p, q), q)


def test_what_is_not_renormalised_is_wrong_after_a_0_alone():
    assert "after a 0 only a 0 is owed, but three of four replacements are a 1. After a 1 the missing mass lands where it is owed" \
        in stated.prose("02")
    owed = (TABLE - DRAFTED).clamp(min=0)
    owed[:, -1] += 1 - owed.sum(-1)  # the lesson's draw along the cumulative sum
    assert [torch.allclose(row, residual(p, q)) for row, p, q in zip(owed, TABLE, DRAFTED, strict=True)] == [False, True]
    assert owed[0].tolist() == pytest.approx([0.25, 0.75]) and residual(TABLE[0], DRAFTED[0]).tolist() == [1, 0]


def test_of_what_is_drawn_from_p_so_much_is_not_owed():
    said = stated.caught(r"(\d+) % of the replacements after a 0 and (\d+) % of those after a 1 are not owed",
                         stated.prose("02"), "the prose")
    assert all(stated.says(percent, f"{100 * p[residual(p, q) == 0].sum():.3f}")
               for percent, p, q in zip(said, TABLE, DRAFTED, strict=True))


def test_a_wrong_bonus_acts_half_as_often_as_a_wrong_correction():
    """In the first block, after a first token from the target; two drafts that differ leave rows 0.3 apart."""
    assert "those kept whole whose two drafts differ" in stated.prose("02")
    kept = torch.minimum(TABLE, DRAFTED)
    whole = torch.einsum("a,ab,bc->bc", TABLE[0], kept, kept)  # [V, V]: kept whole, by its two drafts
    differ = (whole[0, 1] + whole[1, 0]).item()
    said = stated.caught(r"(\d+) first blocks in 100 have a refusal.* acts only after (\d+) first blocks in 100",
                         stated.prose("02"), "the prose")
    assert all(map(stated.says, said, (f"{100 * (1 - whole.sum().item()):.3f}", f"{100 * differ:.3f}")))
    assert stated.says(*stated.caught(r"the bonus\*\* \(([\d.]+)\)", stated.prose("02"), "the prose"), f"{0.3 * differ:.6f}")


def not_renormalised(p, q):
    """The lesson's draw of this name, along the cumulative sum."""
    owed = (p - q).clamp(min=0)
    owed[-1] += 1 - owed.sum()
    return owed


def test_with_other_tables_mistakes_2_3_and_4_change_places():
    mistakes = {2: variant(correction=lambda p, q, k: p[k]), 3: variant(correction=lambda p, q, k: not_renormalised(p[k], q[k])),
                4: variant(bonus=lambda p, q: p[len(q) - 1])}

    def most_harmful_first(*tables):
        return sorted(mistakes, key=lambda number: distance_with(mistakes[number], None, *tables), reverse=True)

    target, flatter, steeper = (torch.tensor([[stay, 1 - stay], [1 - stay, stay]]) for stay in (0.9, 0.8, 0.95))
    assert "With other tables mistakes 2, 3 and 4 may change places" in stated.prose("02")
    assert most_harmful_first() == [3, 2, 4]
    assert most_harmful_first(target, flatter) == [3, 4, 2] and most_harmful_first(target, steeper) == [2, 4, 3]


def unlikely_draws(proposal):
    """The lesson's policy of this name."""
    return (proposal.probs.gather(-1, proposal.tokens.unsqueeze(-1)).squeeze(-1) >= 0.3).long().cumprod(-1).sum(-1)


@pytest.mark.parametrize("anchor", [0, 1])
def test_policy_6_withholds_blocks_that_begin_with_a_1_and_7_a_1_after_a_1(anchor):
    assert re.search("6 withholds every block that begins with a 1, .* 7 withholds only a 1 drafted after a 1", stated.prose("02"))
    drafter, policy_6 = ToyDrafter(DRAFTED, 0.8, [0.9, 0.0], gamma=2), retrospective(appendix_a()[2])
    for proposal, _ in outcomes(lambda path: drafter.propose(None, torch.tensor([anchor]), temperature=1.0, generator=path)):
        first, second = proposal.tokens[0].tolist()
        assert policy_6(proposal).item() == (0 if first == 1 else 2)
        assert unlikely_draws(proposal).item() == (0 if (anchor, first) == (1, 1) else 1 if (first, second) == (1, 1) else 2)


def changed(old, new):
    """The lesson's function of this name."""
    source, names = inspect.getsource(verify), dict(vars(verifying))
    assert source.count(old) == 1
    exec(source.replace(old, new), names)
    return names["verify"]


def test_the_answers_of_exercise_7_are_what_they_measure():
    rows = re.findall(r"\| `([^`]+)` \| `([^`]+)` \| (0\.\d+) \|", stated.prose("02"))
    assert len(rows) == 4 and all(stated.says(said, f"{distance_with(changed(old, new)):.6f}") for old, new, said in rows)


def test_a_count_needs_so_many_draws_for_the_third():
    moved, draws = stated.caught(r"For the third a count needs about \$1/([\d.]+)\^2\$, some ([\d,]+) draws", stated.prose("02"), "the prose")
    assert f".round(decimals=2)` | {moved} |" in stated.prose("02")
    assert 1 / float(moved) ** 2 == pytest.approx(int(draws.replace(",", "")), rel=0.05)
    assert "30 million" in stated.prose("02") and 1 / 0.00018**2 == pytest.approx(30e6, rel=0.05)


def test_policy_b_of_exercise_6_is_lossless():
    assert distance_with(policy=lambda proposal: torch.where(proposal.tokens[:, 0] == 0, 2, 1)) < 1e-5


def test_its_policy_c_moves_the_text_as_far_as_exercise_7_says():
    policy, said = stated.caught(r"Policy C, as `(lambda [^`]+)`, moves the text by ([\d.]+)\. ", stated.prose("02"), "the prose")
    assert stated.says(said, f"{distance_with(policy=eval(policy)):.6f}")


def test_the_paths_of_the_example_are_those_of_its_table():
    def work(path):
        if not toss(0.25, path):
            draw_token(torch.tensor([0.5, 0.5]), path)
        return str(path.taken)

    first = Path([])
    assert work(first) == "[0, 0]" and first.open == [[1], [0, 1]]
    found = dict(outcomes(work))
    rows = re.findall(r"\| `(\[[^`]*\])` \| [^|]+ \| (?:[^|]* = )?([\d.]+) \|", stated.prose("02"))
    assert rows == [("[]", "0.375"), ("[0, 1]", "0.375"), ("[1]", "0.25")]
    assert found == {"[0, 0]": 0.375, "[0, 1]": 0.375, "[1]": 0.25}


def green(draft_logits, temperature: float) -> float:
    """The acceptance probability that the sliders' picture shows."""
    p, q = (probabilities(torch.tensor(logits), temperature) for logits in ([1.5, 0.5, 0.0, -1.0], draft_logits))
    return torch.minimum(p, q).sum().item()


def test_where_the_favourites_differ_a_lower_temperature_shrinks_the_green_area():
    assert "Where they differ, as at the sliders' start, the green area shrinks, to 0 at temperature 0" in stated.prose("02")
    start = [green([0.5, 1.5, -1.0, 0.0], step / 10) for step in range(20, -1, -1)]
    assert start == sorted(start, reverse=True) and start[-1] == 0
    assert green([2.0, 1.0, -1.0, 0.0], 0.0) == 1  # and where they agree it ends at 1


def test_where_they_agree_it_may_fall_first():
    temperatures = stated.caught(r"it is ([\d.]+) at temperature 2, ([\d.]+) at 1\.5 and ([\d.]+) at 1\.", stated.prose("02"), "the prose")
    assert all(stated.says(said, f"{green([2.0, 1.0, -1.0, 0.0], at):.6f}") for said, at in zip(temperatures, (2.0, 1.5, 1.0), strict=True))


def test_the_sliders_reach_no_less_than_the_green_area_named():
    (said,) = stated.caught(r"About ([\d.]+), with all three sliders at \$-3\$", stated.prose("02"), "the prose")
    assert stated.says(said, f"{green([-3.0, -3.0, -3.0, 0.0], 1.0):.4f}")


def test_swapped_everywhere_no_token_is_nearer_to_p_than_the_drafters_is():
    assert "at no token is it nearer to $p$ than $q$ is" in stated.prose("02")
    generator = torch.Generator().manual_seed(0)
    for _ in range(200):
        p, q = (torch.rand(6, generator=generator).double() ** 3 for _ in range(2))
        p, q = p / p.sum(), q / q.sum()
        kept = q * (q / p).clamp(max=1)
        found = kept + (1 - kept.sum()) * residual(q, p)
        assert ((found - p).abs() >= (q - p).abs() - 1e-12).all()


def test_a_block_is_lossless_position_by_position_and_kept_drafts_alone_are_not():
    """Given the tokens before, the token at each position is the target's; a kept one alone has another distribution."""
    assert "kept drafts alone are not distributed as $p$, nor are replacements" in stated.prose("02")
    for gamma in (1, 2, 3):
        found, first = verifying.texts(verify, gamma)[0], {}
        assert total_variation(found, verifying.target_texts(gamma)) < verifying.EXACT
        for tokens, share in outcomes(partial(verifying.committed, verify, block=gamma)):
            first[tokens[0], len(tokens) > 1] = first.get((tokens[0], len(tokens) > 1), 0.0) + share
        for kept in (True, False):
            shares = torch.tensor([first.get((token, kept), 0.0) for token in range(3)])
            assert (shares / shares.sum() - verifying.TARGET[verifying.ANCHOR]).abs().max() > 0.05
