"""Lesson 06: its prose says what it prints, its figures show what they are given."""

import math

import pytest
from helpers import written
from stated import between, caught, prose, tied

from dspark_lite.common.estimates import Estimate
from dspark_lite.common.recorded import reference
from dspark_lite.figures import lesson_06 as figures
from dspark_lite.models import inspection

NUMBER = r"([+-]?\d+(?:\.\d+)?)"


@pytest.mark.parametrize(("sentence", "output"), [
    (rf"The accepted length tells: {NUMBER} in place of", rf"^never rolled back +{NUMBER}"),
    (rf"in place of {NUMBER}, because the guesses", rf"^rolled back +{NUMBER}"),
    (rf"Eagle3 commits {NUMBER} tokens per round on chat, DSpark {NUMBER}", rf"measured +Eagle3 {NUMBER}, then DSpark {NUMBER}"),
    (rf"far steeper \({NUMBER} against", rf"^DFlash, here .* \S+ {NUMBER}$"),
    (rf"far steeper \(\S+ against {NUMBER}\)", rf"^DFlash, paper .* \S+ {NUMBER}$"),
    (rf"on math alone \({NUMBER}, from a first", rf"^Eagle3, here +\S+ {NUMBER}"),
    (rf"from a first position of {NUMBER}\)", rf"^Eagle3, here +{NUMBER}"),
    (rf"DSpark falls by {NUMBER} on chat", rf"^DSpark, here .* \S+ -{NUMBER}$"),
    (rf"it seems to rise, by {NUMBER}, because", rf"^DSpark, here +\S+ \S+ +\S+ \+{NUMBER}"),
    (rf"first position is bad: {NUMBER}, where", rf"^DSpark, here +\S+ \S+ +{NUMBER}"),
    (rf"with the same backbone has {NUMBER}\.", rf"^DFlash, here +\S+ \S+ +{NUMBER}"),
    (rf"first position on math was {NUMBER} on eight", rf"^math +eagle3 +τ \S+ +{NUMBER}"), (rf"and is {NUMBER} on 200", rf"^Eagle3, here +{NUMBER}"),
    (rf"DSpark accepts {NUMBER} % less than Eagle3", rf"DSpark against Eagle3, mean of the domains: -{NUMBER}%"),
    (rf"where the paper's accepts {NUMBER} % more", rf"here, \+{NUMBER}% in the paper"),
    (rf"MTP-1 has one layer and is best in every domain, with {NUMBER} to", rf"^MTP-1 +\S+ \S+ \S+ +\S+ \S+ \S+ +{NUMBER}"),
    (rf"with \S+ to {NUMBER}\. What flows", rf"^MTP-1 +{NUMBER} \["),
    (rf"it ends at {NUMBER}, the other at", rf"teacher-forced +.*: {NUMBER} with the target's"),
    (rf"the other at {NUMBER}\. But no drafter", rf"training-time test +.*: {NUMBER} with the target's"),
    (rf"teacher forcing loses {NUMBER} by the fifth", rf"teacher-forced .*\(-{NUMBER}\)"),
    (rf"the training-time test {NUMBER}, and", rf"training-time test .*\(-{NUMBER}\)"),
    (rf"the order turns: {NUMBER} against", rf"teacher-forced .*features, {NUMBER} with"),
    (rf"the order turns: \S+ against {NUMBER}\.", rf"training-time test .*features, {NUMBER} with"),
    (rf"loses {NUMBER} in seven passes", rf"the lab's Eagle3 .*\(-{NUMBER}\)"), (rf"Position 7 \({NUMBER}\)", rf"{NUMBER} at position 7"),
])
def test_what_the_lesson_says_it_prints(sentence, output):
    tied("06", sentence, output)


def test_points_at_the_first_position():
    said = caught(rf"trails Eagle3 by {NUMBER} points at position 1; three layers close the gap to {NUMBER}", prose("06"), "the prose")
    between("06", "trails Eagle3 by", rf"at position 1, mean over domains: {NUMBER}, and {NUMBER} with one layer",
            *((-float(points) / 100 - 0.0005, -float(points) / 100 + 0.0005) for points in reversed(said)))


def test_only_math_has_the_papers_winner():
    tied("06", "Only (math) has the paper's winner", r"^(\w+) +here DSpark .*; paper DSpark")


def test_what_a_further_token_costs():
    between("06", "A further token costs DSpark less than a tenth of its first", rf"^dspark +{NUMBER} ms for one token, +{NUMBER} ms for each",
            (0, 1e3), (0, 0.26))
    between("06", "Every further token costs Eagle3 a whole pass",
            rf"^eagle3 +{NUMBER} ms for one token, +{NUMBER} ms for each", (0, 1e3), (0.3, 1e3))


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


def test_here_stands_above_the_paper_with_who_accepts_most(closing):
    rates = {"dspark": [Estimate(0.9, 0.8, 1.0)] * 2, "eagle3": [Estimate(0.5, 0.4, 0.6)] * 2}
    fig = figures.here_and_paper({"math": rates, "chat": rates}, {domain: {name: [0.7, 0.6] for name in rates} for domain in ("math", "chat")},
                                 ({"math": "dspark", "chat": "eagle3"}, {"math": "dspark", "chat": "dspark"}))
    assert [axes.get_title() for axes in fig.axes] == ["math, here: DSpark accepts most", "chat, here: Eagle3 accepts most",
                                                       "math, paper: DSpark accepts most", "chat, paper: DSpark accepts most"]


def test_passes_stand_on_one_scale_and_say_what_the_last_one_loses(closing):
    fig = figures.passes_figure({"toy": ([0.6, 0.7], [0.6, 0.55]), "lab": ([0.9, 0.9], [0.9, 0.9])}, [0.9, 0.8])
    assert [axes.get_title() for axes in fig.axes] == ["toy: the last pass loses 0.150", "lab: the last pass loses 0.000"]
    assert len({axes.get_ylim() for axes in fig.axes}) == 1


def test_the_cheapest_token_is_named(closing):
    (axes,) = figures.token_cost({"eagle3": [4.0, 2.0, 3.0], "dspark": [5.0, 4.0, 3.5]}, 8.0, "chat").axes
    assert axes.get_title() == "chat:\nEagle3 is cheapest, 2.00 ms per token with 2 drafts"
