"""Lesson 11: its exercises are the package's layout and mask, and its figures say what they are given."""

import ast
import re

import matplotlib.pyplot as plt
import numpy as np
import pytest
import stated
import torch

from dspark_lite.common.estimates import Estimate
from dspark_lite.decoding import Round
from dspark_lite.decoding.policy import chosen_lengths
from dspark_lite.decoding.proposal import Proposal
from dspark_lite.scheduling import LAG
from dspark_lite.scheduling.step_costs import StepCosts
from dspark_course.exercises import lesson_11
from dspark_course.figures import lesson_11 as figures
from dspark_course.figures.lesson_11 import Journey
from dspark_course.measure import roofline
from dspark_course.replication import experiments, recorded_serving
from dspark_lite.serving.simulator import EngineModel, simulate
from dspark_lite.serving.slots import Layout, SlotStore, sees


@pytest.fixture(autouse=True)
def closed():
    """Leaves no figure open."""
    yield
    plt.close("all")


def test_the_exercises_are_the_packages_layout_and_mask():
    starts, counts = torch.tensor([4, 2, 9]), torch.tensor([3, 1, 5])
    layout = Layout(SlotStore(1, 3, 16, torch.device("cpu")), [0, 1, 2], starts.numpy(), counts.numpy())
    request, position = lesson_11.index_tensors(starts, counts)
    assert torch.equal(layout.row, request) and torch.equal(layout.position, position)
    assert torch.equal(sees(request[:, None], position[:, None], request, position), lesson_11.may_see(request, position, request, position))


def rounds(*pairs):
    """Rounds that had so many drafts verified and accepted."""
    return [Round(proposed, accepted, accepted + 1, [], [], 0.0, 0.0) for proposed, accepted in pairs]


def test_the_timeline_gives_a_request_the_slot_that_was_free():
    journeys = [Journey("0", 0, 0, rounds((3, 1), (2, 2)), "length"), Journey("1", 0, 0, rounds((1, 0)), "aborted"),
                Journey("2", 0, 1, rounds((3, 3), (0, 0)), "stop"), Journey("3", 1, 2, rounds((1, 1)), "length")]
    above, axes = figures.timeline(journeys, slots=2, gamma=3).axes
    slot_of = {text.get_text(): int(text.get_position()[1]) for text in axes.texts}
    assert slot_of == {"request 0": 0, "request 1": 1, "request 2": 1, "request 3": 0}
    assert [bar.get_height() for bar in above.patches] == [1, 1, 0], "waiting: request 2 before step 1, request 3 at step 1"
    heights = sorted(round(box.get_height() / (0.66 / 3)) for box in axes.patches)
    assert heights == sorted([3] * 6 + [3, 2, 1, 3, 0, 1] + [1, 2, 0, 3, 0, 1]), "a frame, what was verified and what was accepted"


def test_the_mask_picture_tells_context_and_block_apart():
    request = torch.tensor([0, 0, 1])
    visible = torch.tensor([[1, 0, 1, 0, 0], [1, 0, 1, 1, 0], [0, 1, 0, 0, 1]]).bool()
    axes = figures.ragged_batch(request, visible, cached=2).axes[0]
    assert axes.images[0].get_array().tolist() == [[1, 0, 2, 0, 0], [1, 0, 2, 2, 0], [0, 1, 0, 0, 2]]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["request A", "request B"]


def estimates(*values):
    """Estimates by load 1, 2, 4, ..."""
    return {2 ** index: Estimate(value, value - 0.1, value + 0.1) for index, value in enumerate(values)}


def test_figures_7_and_8_draw_the_papers_lines_beside_ours():
    budgets = {"mtp": estimates(2, 2, 2), "lagged": estimates(7, 6, 5), "fixed 7": estimates(8, 8, 8)}
    left, right = figures.figure_8(budgets, {"lagged": estimates(2, 1.5, 1.2)}, "a made device").axes
    theirs = [[line for line in axes.lines if line.get_linestyle() in ("--", ":")] for axes in (left, right)]
    assert [len(lines) for lines in theirs] == [4, 2], "two models; MTP-1 and DSpark, and the one over the other"
    assert all(line.get_ydata().min() > 1 for line in theirs[1]), "the paper's DSpark is above its MTP-1 at every load"
    at_load_1 = [container.lines[0].get_xdata()[0] for container in left.containers]
    assert at_load_1 == [pytest.approx(1.13 ** place) for place in (-1, 0, 1)], "no mark hides another"
    drawn = figures.figure_8(budgets, {"lagged": estimates(2, 1.5, 1.2)}, "a made device", modelled={"lagged": {1: 8, 2: 6}}).axes[0]
    (hollow,) = [line for line in drawn.lines if line.get_label() == "DSpark, lagged top-K, the model"]
    assert hollow.get_ydata().tolist() == [100, 75] and hollow.get_markerfacecolor() == "none"
    frontiers = {name: np.array([[90.0, 90.0], [40.0, 160.0]]) for name in ("mtp", "lagged")}
    ours, papers = figures.figure_7(frontiers, "a made device").axes
    assert (len(ours.lines), len(papers.lines)) == (2, 4)
    assert [text.get_text() for text in ours.texts if text.get_text().isdigit()] == ["1", "4"] * 2, "points say how many requests are under way"
    assert [text.get_text() for text in papers.texts if "%" in text.get_text()] == ["+60 %", "+85 %", "+57 %", "+78 %"]
    assert papers.get_title().endswith("DSpark's users are 57 to 85 % faster")


def test_the_operating_point_sorts_requests_by_their_length():
    curves = {"algorithm1": np.array([[90.0, 90.0], [40.0, 160.0]])}
    lengths, accepted, alive = np.array([1, 3, 0]), np.array([2, 3, 1]), np.array([[0.9, 0.5, 0.1], [0.9, 0.9, 0.9], [0.1, 0.1, 0.1]])
    measured = curves | {"mtp": np.array([[200.0, 100.0], [50.0, 400.0]])}
    left, right = figures.operating_point(curves, measured, "algorithm1", (90.0, 90.0), lengths, accepted, alive, "three", "a made device").axes
    drafted, verified, kept = ([bar.get_height() for bar in bars] for bars in right.containers)
    assert (drafted, verified, kept) == ([3, 3, 3], [3, 1, 0], [3, 1, 0]), "what was not verified is not accepted"
    assert left.lines[-1].get_xydata().tolist() == [[90.0, 90.0]] and left.get_title() == "ring: 90 tokens/s for each user, 90 in all"
    assert [text.get_text() for text in left.get_legend().get_texts()][1:] == ["lines: the model", "marks: measured"]
    assert (left.get_xlim(), left.get_ylim()) == (pytest.approx((0, 220)), pytest.approx((0, 440))), "room for curves that are not drawn"


TIES = [
    (r"the skewed mix, and the step takes ([\d.]+) times", r"^ 64 under way, skewed .* takes ([\d.]+) "),
    (r"whose lengths differ less, ([\d.]+) times", r"^ 64 under way, algorithm1: .* takes ([\d.]+) "),
    (r"whole blocks take ([\d.]+) times as long as anchors alone\. With 64 they take ([\d.]+)",
     r"times as long by load: 1: ([\d.]+), .*64: ([\d.]+)$"),
    (r"Prompts are read besides, (\d+) ms of a step with 64", r"^ 64 under way, Algorithm 1, milliseconds per step: prefill ([\d.]+)"),
    (r"Whole blocks still give ([\d.]+) times plain", r"^64 under way: whole blocks give ([\d.]+) "),
    (r"chooses it up to (\d+) under way, and (\d) with 64", r"^best length by exercise 4: .*(32): 7, 64: (\d)$"),
    (r"So seven drafts double the time of a request and bring ([\d.]+) times the tokens",
     r"^with 64 under way a request .* ([\d.]+) times the tokens$"),
    (r"it says ([\d.]+) times the time; measured", r"drafts add [\d.]+ ms: ([\d.]+) times the time"),
    (r"times the time; measured it was ([\d.]+)\.", r"times as long by load: .*64: ([\d.]+)$"),
    (r"more requests share the (\d+) ms of the step", r"^the fit: (\d+) ms a step"),
    (r"finds (\d) drafts best, and 7 only half a percent", r"^without the part of the step (\d) drafts are best; 7 give 99\.5% "),
    (r"gives (\d+) % of the best with one request, (\d+) % with 64", r"^the worst length gives of the best: 1: (\d+)%, .*64: (\d+)%$"),
    (r"though with 8 \(([\d.]+)\) and", r"^  8 under way: Algorithm 1 over the best fixed length \(7\) ([\d.]+) "),
    (r"and 64 \(([\d.]+)\) it is close", r"^ 64 under way: Algorithm 1 over the best fixed length \(7\) ([\d.]+) "),
    (r"In the fit above \$c_r / c_1\$ is ([\d.]+)\.", r"a request costs as much as ([\d.]+) verified tokens$"),
    (r"its budget falls from ([\d.]+) tokens to ([\d.]+)\.",
     r"^DSpark, lagged top-K, measured, tokens per request by load: 1: ([\d.]+), .*, 64: ([\d.]+)$"),
    (r"falls from 2 on at every doubling, to ([\d.]+) with 64", r"^DSpark, lagged top-K, the model, tokens per request .*, 64: ([\d.]+)$"),
    (r"each token of it costs about ([\d.]+) ms there", r"^ 64 under way, skewed .*: ([\d.]+) ms for each$"),
    (r"each token of it costs about ([\d.]+) ms there", r"^ 64 under way, algorithm1: .*: ([\d.]+) ms for each$"),
    (r"drafting the blocks takes (\d+) ms of a step above", r"^ 64 under way, Algorithm 1, .* draft ([\d.]+),"),
    (r"at that load a user of DSpark is only (\d+) % faster", r"^R = 64  +[\d.]+  +[\d.]+  +\+(\d+)%$"),
    (r"Measured on the engine with 64 it was ([\d.]+), not told apart", r"^ 64 under way: Algorithm 1 over the best fixed length \(7\) ([\d.]+) "),
    (r"With a constant \$a\$ it swings from (\d+) to every load", r"^with a = 0\.86 the whole block is best up to (\d+) under way$"),
    (r"Whole blocks waste (\d+) % of what is verified with 64", r"^DSpark, fixed length 7 .* (\d+)%$"),
    (r"the lagged scheduler (\d+) %, and it", r"^DSpark, lagged top-K   .* (\d+)%$"),
    (r"each user is (\d+) to \d+ % faster", r"^16 under way +\d+ tokens/s: \+(\d+)% "),
    (r"each user is \d+ to (\d+) % faster", r"^32 under way +\d+ tokens/s: \+(\d+)% "),
    (r"there is (\d+) to \d+ % more throughput", r"^32 under way .*tokens/s.*tokens/s: \+(\d+)% "),
    (r"there is \d+ to (\d+) % more throughput", r"^ 4 under way .*tokens/s.*tokens/s: \+(\d+)% "),
    (r"of a gain of (\d+) % with one request under way", r"^R =  1  +[\d.]+  +[\d.]+  +\+(\d+)%$"),
    (r"with one request under way (\d+) % is left with 64", r"^R = 64  +[\d.]+  +[\d.]+  +\+(\d+)%$"),
    (r"With 32 the gain was \+(\d+) % above", r"^32 under way +\d+ tokens/s: \+(\d+)% "),
    (r"above and is \+(\d+) % here", r"^R = 32  +[\d.]+  +[\d.]+  +\+(\d+)%$"),
    (r"first row of each model\), \+\d+ and \+(\d+) %", r"^Pro +3737 tokens/s: +\+(\d+)%"),
    (r"first row of each model\), \+(\d+) and \+\d+ %", r"^Flash +10612 tokens/s: +\+(\d+)%"),
    (r"of DSpark gets (\d+) tokens per second, one of MTP-1 \d+ and one of plain decoding \d+, on the full server (\d+),",
     r"^DSpark, lagged top-K   median [^\d]*(\d+), .*, (\d+)$"),
    (r"one of MTP-1 (\d+) and one of plain decoding \d+, on the full server \d+, (\d+) and",
     r"^MTP-1                  median [^\d]*(\d+), .*, (\d+)$"),
    (r"one of plain decoding (\d+), on the full server \d+, \d+ and (\d+)\.", r"^plain decoding         median [^\d]*(\d+), .*, (\d+)$"),
    (r"second rate plain decoding has (\d+) requests in the server", r"^plain decoding         median .*\n +requests in the server: +\d+, (\d+),"),
    (r"requests in the server and DSpark (\d+)\.", r"^DSpark, lagged top-K   median .*\n +requests in the server: +\d+, (\d+),"),
    (r"With 32 under way it is ([\d.]+) tokens; with the engine's", r"^ 32 under way: ([\d.]+) tokens verified per request"),
    (r"with the engine's costs the model gave ([\d.]+) \(lagged", r"^DSpark, lagged top-K, the model, tokens per request .*, 32: ([\d.]+), 64"),
    (r"of the loads tried here up to (\d+),", r"^H200, predicted: whole blocks up to (\d+) under way"),
    (r"of the loads tried here up to (\d+),", r"^A100, predicted: whole blocks up to (\d+) under way"),
    (r"and up to (\d+) on an L4\.", r"^L4, predicted: whole blocks up to (\d+) under way"),
    (r"at about ([\d.]+) tokens on an H200", r"^H200, predicted: .* ([\d.]+) tokens per request with 512"),
]


@pytest.mark.parametrize(("sentence", "output"), TIES)
def test_what_the_lesson_states_is_what_it_prints(sentence, output):
    stated.tied("11", sentence, output)


def test_what_the_lagged_scheduler_gives_up_per_step():
    assert "and it gives up only 0.32 tokens per request and step for that" in stated.prose("11")
    lagged, whole = (float(stated.caught(rf"^{way} .* ([\d.]+), +\d+%$", stated.printed("11"), "the output")[0])
                     for way in ("DSpark, lagged top-K  ", "DSpark, fixed length 7"))
    assert round(whole - lagged, 2) == 0.32


def test_dspark_alone_is_about_twice_as_fast_as_mtp_1():
    assert "Alone, a user of DSpark is about twice as fast here as one of MTP-1." in stated.prose("11")
    (gain,) = stated.caught(r"^R =  1  +[\d.]+  +[\d.]+  +\+(\d+)%$", stated.printed("11"), "the output")
    assert round(1 + int(gain) / 100) == 2


def test_no_length_is_measurably_better_than_seven():
    prose, printed = stated.prose("11"), stated.printed("11")
    assert "At no load is another length measurably better than 7." in prose and "Here length 7 comes first at six of seven loads" in prose
    (found,) = stated.caught(r"^best fixed length by load: (.*)$", printed, "the output")
    assert sorted(length.split(": ")[1] for length in found.split(", ")) == ["5", *["7"] * 6]
    assert re.findall(r"^32 under way: 5 drafts give .* times what 7 give, (.*) it$", printed, re.M) == ["not told apart from"]
    (chosen,) = stated.caught(r"^best length by exercise 4: (.*)$", printed, "the output")
    assert [length.split(": ")[1] for length in chosen.split(", ")] == [*["7"] * 6, "6"]
    (times,) = stated.caught(r"drafts add [\d.]+ ms: ([\d.]+) times the time", printed, "the output")
    assert round(float(times)) == 2, "seven drafts double the time of a request"


def test_the_papers_budget_is_near_ours_where_the_lesson_says_so():
    assert "near the paper's lines with 32 and 64 under way, and well below that of Pro with 8" in stated.prose("11")
    ours = {load: found.value / 8 for load, found in recorded_serving.budgets_by_load()["lagged"].items()}
    for model in figures.PAPER_MODELS:
        requests, tokens = figures.paper_line(model, "verification_budget", "DSpark-5")
        assert all(abs(ours[load] - np.interp(load, requests, tokens) / 6) < 0.05 for load in (32, 64))
    assert ours[8] < np.interp(8, requests, tokens) / 6 - 0.1 and model == "DeepSeek-V4-Pro"
    assert "All of the measured fall comes between 4 and 8." in stated.prose("11") and ours[4] - ours[8] > ours[1] - ours[64]
    assert min(ours[load] for load in (1, 2, 4)) > max(ours[load] for load in (8, 16, 32, 64)), "a busy server verifies less of a block"


def test_the_model_misses_the_engine_once():
    assert "The one case outside is MTP-1 with 2 under way." in stated.prose("11")
    found = stated.caught(r"within 10 % of the engine in (\d+) of (\d+) cases; at worst (\d+)%", stated.printed("11"), "the output")
    assert found == ("27", "28", "11")
    assert "Seven of 28 bars (the engine's intervals) miss 1, where its noise alone would make one or two miss" in stated.prose("11")
    assert "with 32 three of four do, 5 to 8 % low. So the model has errors of its own, and we trust it to about a tenth." in stated.prose("11")
    missed = dict(re.findall(r"^(.*?) +bars that miss 1, by load: (.*)$", stated.printed("11"), re.M))
    assert missed == {"MTP-1": "1 2 4 32", "DSpark, lagged top-K": "32", "DSpark, Algorithm 1": "1 32", "DSpark, fixed length 7": "none"}


def test_waits_are_drawn_in_milliseconds():
    lines = figures.arrivals({name: {6.4: wait, 19.1: 2.0} for name, wait in (("plain", 0.07), ("lagged", 0.08))}, "CPU").axes[0].lines
    assert [line.get_ydata()[0] for line in lines] == [70, 80]


def test_no_load_tells_the_scheduler_or_its_lag_apart():
    for sentence, line in (("At no load can the two be told apart, though with 8 (0.92) and 64 (1.05) it is close.",
                            "Algorithm 1 over the best fixed length"),
                           ("At no load can the lagged scheduler and Algorithm 1 be told apart: what two steps of age cost",
                            "lagged over Algorithm 1 [0-9]")):
        assert sentence in stated.prose("11")
        verdicts = re.findall(rf"under way: {line}.*, (.*) it$", stated.printed("11"), re.M)
        assert verdicts == ["not told apart from"] * 7
    assert ("Against whole blocks the lagged scheduler is measurably better at no load, and worse at one:** 0.88 with 8 under way."
            in stated.prose("11"))
    against = re.findall(r"^ *(\d+) under way: lagged over length 7 ([\d.]+) .*, (.*) it$", stated.printed("11"), re.M)
    assert len(against) == 7 and [row for row in against if row[2] != "not told apart from"] == [("8", "0.88", "below")]
    bounds = {int(load): (float(low), float(high)) for load, low, high in re.findall(
        r"^ *(\d+) under way: Algorithm 1 over .* \[([\d.]+), ([\d.]+)\]", stated.printed("11"), re.M)}
    assert {load for load, (low, high) in bounds.items() if low >= 0.995 or high <= 1.015} == {8, 64}, "only just not told apart"


def test_what_a_lag_costs_in_the_model():
    assert "with 64 under way every lag costs about 1 % or less, with 8 a lag of two or more 4 to 5 %." in stated.prose("11")
    assert "With one request two steps cost 7 %, and eight about as much" in stated.prose("11")
    assert "one step costs less than half of that." in stated.prose("11")
    lags = {load: [float(ratio) for ratio in ratios] for load, *ratios in re.findall(
        r"^ *(\d+) under way, lagged over Algorithm 1: lag 1 ([\d.]+), lag 2 ([\d.]+), lag 4 ([\d.]+), lag 8 ([\d.]+)$", stated.printed("11"), re.M)}
    assert all(abs(ratio - 1) <= 0.0105 for ratio in lags["64"]) and round(100 * (1 - lags["1"][1])) == 7 and lags["1"][3] > lags["1"][1] - 0.01
    assert 1 - lags["1"][0] < (1 - lags["1"][1]) / 2 and {round(100 * (1 - ratio)) for ratio in lags["8"][1:]} == {4, 5}


def test_what_a_step_costs_is_the_fit_of_the_ledger():
    _, request, token = 1e3 * experiments.additive_step()
    assert stated.caught(r"^the fit: \d+ ms a step, ([\d.]+) ms a request, ([\d.]+) ms a verified token;", stated.printed("11"),
                         "the output") == (f"{request:.2f}", f"{token:.2f}")
    assert "a request costs almost four times as much as a verified token" in stated.prose("11") and 3.6 < request / token < 4


def test_the_models_budget_falls_from_two_on():
    (found,) = stated.caught(r"^DSpark, lagged top-K, the model, tokens per request by load: 1: [\d.]+, (.*)$", stated.printed("11"), "the output")
    budgets = [float(each.split(": ")[1]) for each in found.split(", ")]
    assert budgets == sorted(set(budgets), reverse=True) and len(budgets) == 6
    assert budgets[1] - budgets[2] < (budgets[0] - budgets[-1]) / 2


def growing(survival):
    """f(1), f(2), ... of exercise 7, from survivals [g]."""
    return [(1 + survival[:index].sum()) / survival[index] - index - 1 for index in range(len(survival))]


def test_the_answer_of_exercise_7_has_the_lessons_numbers():
    f = growing((recorded_serving.record().accepted[:, None] > np.arange(7)).mean(0))
    assert "$f(6) = 3.07$, $f(7) = 4.55$." in stated.prose("11") and [round(value, 2) for value in f[5:]] == [3.07, 4.55]
    assert f == sorted(f) and growing(0.88 ** np.arange(1, 8)) == pytest.approx(np.cumsum(0.88 ** -np.arange(1, 8) - 1))
    assert r"$R = 25 / (0.23 \cdot (4.55 - 3.88)) \approx 160$, and six above." in stated.prose("11")
    step, request, token = experiments.additive_step()
    assert f[5] < request / token < f[6] and round(step / (token * f[6] - request), -1) == 160 == round(25 / (0.23 * (4.55 - 3.88)), -1)
    assert stated.caught(r"^the fit: (\d+) ms .*, ([\d.]+) ms a verified token", stated.printed("11"), "the output") == ("25", "0.23")
    (last,) = stated.caught(r"^with the recorded survivals the whole block is best up to (\d+) under way$", stated.printed("11"), "the output")
    assert int(last) == int(step / (token * f[6] - request))
    assert "with a = 0.91 the whole block is best at every load up to 1000" in stated.printed("11")


def paid():
    """The rows of the table of what the scheduler pays: (costs, load, best fixed length, mean length, and three ratios)."""
    row = r"^(engine|lesson 10's table|H200, predicted) +(\d+) under way +(\d) +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)$"
    return [(name, *map(float, numbers)) for name, *numbers in re.findall(row, stated.printed("11"), re.M)]


def test_where_the_scheduler_pays():
    prose, rows = stated.prose("11"), paid()
    assert ("6 to 10 % over whole blocks with lesson 10's table from 8 under way on, on the H200 from 64 on, and on the engine with 64."
            in prose) and "In the model the scheduler gains 6 to 10 % on a full server" in prose
    gains = {(name, load): over for name, load, _, _, over, *_ in rows}
    full = {case: over for case, over in gains.items() if case[1] >= {"engine": 64, "lesson 10's table": 8, "H200, predicted": 64}[case[0]]}
    assert (min(full.values()), max(full.values()), len(full)) == (1.06, 1.10, 6)
    assert max(over for case, over in gains.items() if case not in full) <= 1.01 and "has room it gains nothing over whole blocks" in prose
    assert "with 8 under way on the engine it loses 3 %" in prose and min(gains.values()) == gains["engine", 8] == 0.97
    assert "and Algorithm 1 gains 8 %." in prose and {gains["H200, predicted", 64], gains["H200, predicted", 256]} == {1.08}
    assert "the best fixed length is 7 in nine of the eleven rows" in prose and [row[2] for row in rows].count(7) == 9 and len(rows) == 11
    assert "it beats its own mean length, given to everybody, by 5 to 14 % wherever it cuts." in prose
    by_mean = [over for *_, length, _, _, over in rows if length < 6.95]
    assert (min(by_mean), max(by_mean)) == (1.05, 1.14)


def test_seven_is_best_on_the_predicted_h200_at_every_load():
    assert "on the H200 it is 7 at every load up to 512" in stated.prose("11")
    scope = {"roofline": roofline, "StepCosts": StepCosts, "gamma": 7, "context": 1024}
    for name in ("costs_of", "predicted"):  # the lesson's own
        (found,) = [node for cell in stated.cells("11") if cell.cell_type == "code" and f"def {name}(" in cell.source
                    for node in ast.parse(cell.source).body if getattr(node, "name", "") == name]
        exec(ast.unparse(found), scope)
    costs = scope["predicted"](roofline.DEVICES["H200"], 512)
    alive = recorded_serving.record().accepted[:, None] > np.arange(7)
    for load in costs.requests.astype(int).tolist():
        assert max(range(1, 8), key=lambda length: lesson_11.fixed_throughput(alive, length, load, costs)) == 7


def test_exercise_8s_question_has_the_measured_answer():
    assert ("39 ms of a step against 6 ms. So its step takes 130 ms against 66, nearly twice as long, and commits 1.8 times the tokens."
            in stated.prose("11"))
    ours = recorded_serving.row("policies", concurrency=64, drafter="dspark", policy="fixed 3")
    theirs = recorded_serving.row("policies", concurrency=64, drafter="mtp", policy="all")
    assert [round(1e3 * recorded_serving.value("draft_seconds", row)) for row in (ours, theirs)] == [39, 6]
    seconds, tokens = ([recorded_serving.value(name, row) for row in (ours, theirs)] for name in ("step_seconds", "accepted_length"))
    assert [round(1e3 * each) for each in seconds] == [130, 66] and round(tokens[0] / tokens[1], 1) == 1.8


def test_dsparks_first_token_comes_last_while_there_is_room():
    assert "While there is room, DSpark's wait is the longest of the three" in stated.prose("11")
    waits = stated.caught(r"plain decoding (\d+) ms, MTP-1 (\d+) ms, DSpark, lagged top-K (\d+) ms$", stated.printed("11"), "the output")
    assert [int(wait) for wait in waits] == sorted(map(int, waits))


def test_six_and_seven_drafts_are_nearly_level_with_64_under_way():
    assert "exercise 4 chose six with 64 under way already, where the two are nearly level." in stated.prose("11")
    costs = recorded_serving.engine_costs("dspark")
    alive = recorded_serving.record().accepted[:, None] > np.arange(7)
    six, seven = (lesson_11.fixed_throughput(alive, length, 64, costs) for length in (6, 7))
    assert 1 < six / seven < 1.005


def modelled_budgets(costs, policy):
    """Tokens verified per request by load, in the model of the engine, when `policy` decides by `costs`."""
    engine_costs, found = recorded_serving.engine_costs("dspark"), {}
    for load in (1, 2, 4, 8, 16, 32, 64):
        model = EngineModel(recorded_serving.record(), engine_costs, recorded_serving.policy_of(policy, costs), slots=load)
        steps = [step for step in simulate(model, np.zeros(200 + 10 * load), np.random.default_rng(0)) if step.requests == load]
        found[load] = sum(step.verified for step in steps) / sum(step.requests for step in steps)
    return found


@pytest.mark.parametrize("policy", ["algorithm1", "lagged"])
def test_the_step_of_the_budget_comes_from_the_costs_that_decided(policy):
    assert "given these tables, the model's budget falls there too." in stated.prose("11")
    assert "less than half of that fall comes between 4 and 8." in stated.prose("11")
    deciding = modelled_budgets(recorded_serving.step_costs(recorded_serving.rows("deciding")), policy)
    assert deciding[4] - deciding[8] > 0.9 * (deciding[1] - deciding[64]) and deciding[64] > deciding[8]
    later = modelled_budgets(recorded_serving.engine_costs("dspark"), policy)
    assert later[4] - later[8] < 0.5 * (later[1] - later[64]) and min(later, key=later.get) == 64


def test_three_drafts_for_everybody_lose_to_one_on_a_full_server():
    assert "On a full server three drafts for everybody give less than MTP-1's one" in stated.prose("11")
    ours = recorded_serving.row("policies", concurrency=64, drafter="dspark", policy="fixed 3")
    assert recorded_serving.gain("throughput", ours, recorded_serving.row("policies", concurrency=64, drafter="mtp", policy="all")).high < 1


def lengths_of(load, steps):
    """The lengths that lagged top-K gives so many recorded blocks in each of so many steps."""
    policy, record = recorded_serving.policy_of("lagged", recorded_serving.engine_costs("dspark")), recorded_serving.record()
    tokens, rng = torch.zeros(load, record.gamma, dtype=torch.long), np.random.default_rng(0)
    drawn = (record.logits[rng.integers(len(record.accepted), size=load)] for _ in range(steps))
    return np.array([chosen_lengths(policy, Proposal(tokens, torch.empty(load, record.gamma, 0), logits)) for logits in drawn])[LAG:]


def test_what_moving_the_load_shows():
    assert "One request mostly gets the whole block, now and then less. With 24, in most steps one or two get none." in stated.prose("11")
    alone, none = lengths_of(1, 102), (lengths_of(24, 102) == 0).sum(1)
    assert 0.5 < (alone == 7).mean() < 0.9
    assert ((none == 1) | (none == 2)).mean() > 0.5
    assert "the ring moves a little outwards with up to 32 under way, and inwards with 64" in stated.prose("11")
    for load in (1, 2, 4, 8, 16, 32, 64):
        whole, lagged = (sum(step.committed for step in steps) / sum(step.seconds["round"] for step in steps) for steps in
                         (recorded_serving.modelled("dspark", policy, load, requests=30 + 3 * load) for policy in ("fixed 7", "lagged")))
        assert 1 < whole / lagged < 1.1 if load < 64 else whole < lagged


def test_index_tensors_come_as_a_tuple_or_a_list(capsys):
    assert lesson_11.check_indices(lambda starts, counts: list(lesson_11.index_tensors(starts, counts)))
    assert capsys.readouterr().out == "Correct.\n"


def test_index_tensors_are_whole_numbers(capsys):
    assert not lesson_11.check_indices(lambda starts, counts: tuple(part.float() for part in lesson_11.index_tensors(starts, counts)))
    assert "tensors of whole numbers" in capsys.readouterr().out


@pytest.mark.parametrize("form", [float, np.float32, torch.tensor, lambda answer: round(float(answer), 6)])
def test_a_throughput_is_a_number_of_any_type(form, capsys):
    assert lesson_11.check_fixed_throughput(lambda *case: form(lesson_11.fixed_throughput(*case)))
    assert capsys.readouterr().out == "Correct.\n"


def test_a_wrong_throughput_of_another_type_is_named_too(capsys):
    assert not lesson_11.check_fixed_throughput(lambda *case: float(lesson_11.fixed_throughput(*case)) / case[2])
    assert "that is the speed of one request" in capsys.readouterr().out
