"""Lesson 03: its figures show what they are given."""

import pytest
import stated
from helpers import bars, drawn, written

from dspark_lite.figures import lesson_03 as figures


def test_bars_of_latency_divide_a_rounds_seconds_by_its_tokens(closing):
    fig = figures.latency_bars({("plain", "math"): (1.0, 0.0, 0.004), ("small_lm", "math"): (4.0, 0.01, 0.006)}, "a made device")
    verify, draft, of_small, of_its_drafts, _ = bars(fig.axes[0])
    assert [verify, draft, of_small, of_its_drafts] == [[4.0], [0.0], [pytest.approx(1.5)], [pytest.approx(2.5)]]
    assert written(fig) == ["τ 1.00", "τ 4.00", "measured on a made device"]
    assert fig.axes[0].get_title() == "slower than plain decoding: none"


def test_the_title_of_the_latencies_names_what_loses(closing):
    costs = {("plain", "chat"): (1.0, 0.0, 0.004), ("prompt_lookup", "chat"): (1.1, 0.0, 0.005)}
    assert figures.latency_bars(costs, "CPU").axes[0].get_title() == "slower than plain decoding: prompt lookup on chat"


def test_the_sweep_of_draft_lengths_shows_measurement_and_formula(closing):
    sweep = {("math", 7): (4.0, 0.8), ("math", 1): (1.7, 1.1)}
    sweep |= {("chat", length): (2.0, 0.5 * length) for length in (1, 7)}
    fig = figures.draft_length_sweep(sweep, {"math": [1.8, 4.2], "chat": [1.0, 2.0]}, "CPU")
    math, chat, math_speed, chat_speed = fig.axes
    assert drawn(math) == {"measured": [1.7, 4.0], "formula": [1.8, 4.2]} and drawn(math_speed) == {"math": [1.1, 0.8]}
    assert drawn(chat) == {"measured": [2.0, 2.0], "formula": [1.0, 2.0]} and math.get_title() == "math: τ 4.0 at γ = 7"
    assert [text for text in written(fig) if "best" in text] == ["best: γ = 1", "best: γ = 7"]


def test_the_figure_of_when_it_pays_marks_the_best_length_and_where_it_breaks_even(closing):
    left, right = figures.when_it_pays(0.8, 7, 0.1, 1.0).axes
    tokens = {gamma: (1 - 0.8 ** (gamma + 1)) / 0.2 for gamma in (6, 7)}  # in rounds of 1.6 and 1.7 plain passes
    assert drawn(left) == {"best: γ = 6": [pytest.approx(tokens[6] / 1.6)], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    assert drawn(right) == {"breaks even at a = 0.42": [1], "here: 2.45": [pytest.approx(tokens[7] / 1.7)]}
    _, never = figures.when_it_pays(0.05, 16, 1.0, 3.0).axes
    assert list(drawn(never)) == ["here: 0.06"]


# What the lesson says is what it prints ------------------------------------------------------------------------------


@pytest.mark.parametrize(("sentence", "output"), [
    (r"another question: (\d) of (\d) answers are its own", r"a refused draft stays in the target's +(\d) of (\d) answers"),
    (r"phantom leaves (\d) of (\d) answers right", r"a refused draft stays in the small LM's +(\d) of (\d) answers"),
    (r"only drafts worse: ([\d.]+) tokens per round in place of", r"stays in the small LM's .* own, ([\d.]+) tokens per round"),
    (r"tokens per round in place of ([\d.]+)\.", r"clean caches .* own, ([\d.]+) tokens per round"),
    (r"rounds for (\d+) tokens: most rounds", r"^(\d+) tokens in 40 rounds"),
    (r"gains almost nothing: ([\d.]+) tokens per round on math", r"^prompt lookup +math .* / ([\d.]+) tokens"),
    (r"per round on math, ([\d.]+) on code", r"^prompt lookup +code .* / ([\d.]+) tokens"),
    (r"an answer repeats nothing, ([\d.]+)\.", r"^prompt lookup +chat .* / ([\d.]+) tokens"),
    (r"has it at ([\d.]+) times plain decoding on chat", r"^prompt lookup .* ([\d.]+)$"),
    (r"guesses anywhere, ([\d.]+) to [\d.]+ tokens per round", r"^small LM +math .* / ([\d.]+) tokens"),
    (r"guesses anywhere, [\d.]+ to ([\d.]+) tokens per round", r"^small LM +chat .* / ([\d.]+) tokens"),
    (r"would equal the first, (\d+)%", r"the small LM has (\d+)% of the target's"), (r"nearer the second, (\d+)%", r"^layers: +(\d+)%"),
    (r"Every guess is right, a round brings ([\d.]+) tokens", r"measured   ([\d.]+) tokens per round"),
    (r"chat keeps ([\d.]+) of the first drafts and ([\d.]+) of the seventh", r"^chat +by position ([\d.]+) .* ([\d.]+)   all together"),
    (r"of the seventh, math ([\d.]+) and ([\d.]+)\.", r"^math +by position ([\d.]+) .* ([\d.]+)   all together"),
    (r"Code has ([\d.]+) at one place and ([\d.]+) at the next", r"^code +by position .* ([\d.]+) ([\d.]+) [\d.]+   all together"),
    (r"it gives [\d.]+ on chat where ([\d.]+) were measured", r"^chat .* measured τ ([\d.]+), formula"),
    (r"it gives ([\d.]+) on chat where", r"^chat .* formula ([\d.]+); best"),
    (r"were measured, ([\d.]+) against [\d.]+ on code", r"^code .* formula ([\d.]+); best"),
    (r"were measured, [\d.]+ against ([\d.]+) on code", r"^code .* measured τ ([\d.]+), formula"),
    (r"The small LM brings ([\d.]+) to ([\d.]+) tokens per round, and a round costs ([\d.]+) plain passes",
     r"^small LM +([\d.]+) +[\d.]+ +([\d.]+) +([\d.]+) "),
])
def test_its_numbers_are_its_outputs(sentence, output):
    stated.tied("03", sentence, output)


@pytest.mark.parametrize(("sentence", "output", "bands"), [
    ("it is still slower than plain decoding", r"tokens per round, ([\d.]+) times plain decoding; the formula", [(0.4, 1.02)]),
    ("it lies nearer the second", r"one pass takes c = (\d+)% of a plain pass", [(17, 60)]),
])
def test_its_timings_bear_its_sentences(sentence, output, bands):
    stated.between("03", sentence, output, *bands)


@pytest.mark.parametrize("domain", ["math", "code", "chat"])
def test_the_small_lm_is_faster_everywhere_and_drafts_half_of_its_time(domain):
    assert "and is faster everywhere" in stated.prose("03") and "half of its time or more is drafting" in stated.prose("03")
    draft, verify, speedup = map(float, stated.caught(
        rf"^small LM +{domain} +\( *([\d.]+) \+ +([\d.]+)\) ms .* per token, ([\d.]+) times plain", stated.printed("03"), "the output"))
    assert speedup > 1 and draft > 0.4 * (draft + verify)
