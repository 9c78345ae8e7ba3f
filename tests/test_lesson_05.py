"""Lesson 05: the paper's numbers are read as they are printed, the lesson's prose says what it prints, figures show what they get."""

import pytest
from stated import between, caught, prose, tied

from dspark_lite.common import paper
from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.estimates import Estimate
from dspark_lite.figures import lesson_05 as figures
from dspark_lite.figures import style
from dspark_lite.figures.positions import last_point, position_panels
from dspark_lite.replication.experiments import answer_entropy


def test_paper_gains_are_those_of_its_text():
    gains = {target: round(100 * paper.macro_gain(target, "dspark", "dflash"), 1) for target in paper.TARGETS[:3]}
    assert gains == {"Qwen3-4B": 16.3, "Qwen3-8B": 18.4, "Qwen3-14B": 18.3}
    assert paper.domain_means("Qwen3-4B", "dspark") == pytest.approx({"math": 5.57, "code": 5.12, "chat": 3.49}, abs=0.005)


def test_paper_refuses_what_it_does_not_have():
    with pytest.raises(DSparkLiteError, match="Table 1 has no 'mtp'"):
        paper.table1("Qwen3-4B", "mtp")


# What the lesson says is what it prints ---------------------------------------------------------------------------------

NUMBER = r"([+-]?\d+(?:\.\d+)?)"


@pytest.mark.parametrize(("sentence", "output"), [
    (rf"{NUMBER} % of its draws are pairs that nobody writes", rf"^DSpark, head off +{NUMBER}%"),
    (rf"With the head {NUMBER} % are", rf"^DSpark +{NUMBER}% of it"),
    (rf"' s' raises 'et' by {NUMBER}", rf"' s' +'et' \+{NUMBER}"), (rf"' c' raises 'all' by {NUMBER}", rf"' c' +'all' \+{NUMBER}"),
    (rf"' and' goes on with ' later' \(\+{NUMBER}\)", rf"' and' +' later' \+{NUMBER}"),
    (rf"after a colon stands a blank \(\+{NUMBER}\)", rf"':' +' ' \+{NUMBER}"),
    (rf"accepts {NUMBER} at position 2 where DFlash", rf"DFlash .*, DSpark without its head {NUMBER}"),
    (rf"at position 2 where DFlash accepts {NUMBER}", rf"DFlash {NUMBER}, DSpark without its head"),
    (rf"With the head position 2 is at {NUMBER}", rf"^chat +dspark +\S+ +{NUMBER}"),
    (rf"On chat DFlash falls to {NUMBER} by position 5", rf"^chat +dflash(?: +\S+){{4}} +{NUMBER}"),
    (rf"by position 5, DSpark to {NUMBER}", rf"^chat +dspark(?: +\S+){{4}} +{NUMBER}"),
    (rf"DFlash is still at {NUMBER} at position 5", rf"^math +dflash(?: +\S+){{4}} +{NUMBER}"),
    (rf"on code \({NUMBER} against \S+\) and on chat", rf"^code +dspark +{NUMBER}"),
    (rf"on code \(\S+ against {NUMBER}\) and on chat", rf"^code +dflash +{NUMBER}"),
    (rf"and on chat \({NUMBER} against", rf"^chat +dspark +{NUMBER}"), (rf"and on chat \(\S+ against {NUMBER}\)", rf"^chat +dflash +{NUMBER}"),
    (rf"the gated one {NUMBER} %", rf"gated head .*Markov head -{NUMBER}%"), (rf"the RNN {NUMBER} %", rf"RNN head .*Markov head -{NUMBER}%"),
    (rf"\+{NUMBER} % lies within", rf"mean over the domains, 15 prompts each: \+{NUMBER}%"),
    (rf"the paper's range of \+{NUMBER} to \+{NUMBER} %", rf"in the paper \+{NUMBER}% to \+{NUMBER}%"),
    (rf"on 200 prompts \+{NUMBER} %, against \+{NUMBER} % on math and \+{NUMBER} % on code",
     rf"(?=.*chat \+{NUMBER}%)on 200 prompts per domain: math \+{NUMBER}% .*code \+{NUMBER}%"),
])
def test_what_the_lesson_says_it_prints(sentence, output):
    tied("05", sentence, output)


def test_the_table_would_be_nearly_six_times_the_target():
    between("05", "nearly six times as large as the target itself", r"draft of Qwen3-4B .* table +([\d]+),084.55 M", (23.0, 23.1))
    assert 5.5 < 151_936**2 / 4e9 < 6


def test_the_uncertainty_of_the_target_is_what_was_measured():
    said = caught(rf"uncertain by {NUMBER} nats on math, {NUMBER} on code and {NUMBER} on chat", prose("05"), "the prose")
    assert [float(number) for number in said] == [round(value, 2) for value in answer_entropy().values()]


def test_gains_stand_above_ours_and_the_papers_lengths(closing):
    ours = {"dflash": {"chat": Estimate(4.0, 3.9, 4.1)}, "dspark": {"chat": Estimate(6.0, 5.9, 6.1)}}
    fig = figures.accepted_length_figure({**ours, **{name: {**found, "math": found["chat"]} for name, found in ours.items()}},
                                         {"dflash": {"chat": 2.0, "math": 2.0}, "dspark": {"chat": 2.5, "math": 2.0}})
    assert [axes.get_title() for axes in fig.axes] == ["chat: +50% (paper +25%)", "math: +50% (paper +0%)"]


def test_the_cost_of_the_head_is_in_the_title(closing):
    (axes,) = figures.costs({"target": 9.0, "draw with the head": 1.0}, 0.5, 10.0, "CPU").axes
    assert axes.get_title() == "the head adds 0.50 ms to a round of 10.0 ms: 5.0%"
    assert [bar.get_width() for bar in axes.patches] == [9.0, 1.0]


def test_lines_by_position_are_labelled_where_they_end(closing):
    styles = {name: {**style.drafter_style(name)} for name in ("dspark", "dflash")}
    rates = [Estimate(0.9, 0.8, 1.0), Estimate(0.5, 0.4, 0.6)]
    fig = position_panels({"math": {"dspark": rates, "dflash": [rates[0], None]}, "chat": {"dspark": rates, "dflash": [rates[0], None]}},
                          styles, {"math": "m", "chat": "c"})
    assert [text.get_text() for text in fig.axes[1].texts] == ["DFlash", "DSpark"] and not fig.axes[0].texts
    assert last_point(rates, styles["dspark"])[:3] == (2, 0.5, "DSpark") and last_point([rates[0], None], styles["dflash"])[:2] == (1, 0.9)
