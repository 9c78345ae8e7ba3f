"""Lesson 13: its loop's checker names mistakes, a calibration keeps up with what drifts, and its figures show what they are given."""

import math

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

from dspark_lite.common.errors import RequestError
from dspark_lite.course.estimates import Estimate
from dspark_lite.course.exercises import lesson_13
from dspark_lite.course.extensions.online_sts import OnlineSTS
from dspark_lite.course.figures import lesson_13 as figures
from dspark_lite.course.replication.drift import (
    EVERY,
    WRONG_HEADS,
    Drift,
    Phase,
    Point,
    drift,
    halves,
    throughput_by_head,
)
from dspark_lite.scheduling.calibration import STS, Observations, by_position, fit_sts


@pytest.fixture(autouse=True)
def closed():
    """Leaves no figure open."""
    yield
    plt.close("all")


# The loop


def in_turn(device, host, steps):
    """The host works after the device."""
    budget = None
    for _ in range(steps):
        device.start(budget)
        budget = host(device.finish())


def two_at_once(device, host, steps):
    """A step is started while the one before runs."""
    for _ in range(steps):
        device.start(None)


def without_end(device, host, steps):
    """The last step is never waited for."""
    budget, told = None, None
    for step in range(steps):
        device.start(budget)
        budget = None if told is None else host(told)
        told = device.finish() if step + 1 < steps else None


def three_old(device, host, steps):
    """The budget is kept a step too long."""
    ready, budget, told = None, None, None
    for _ in range(steps):
        device.start(ready)
        ready = budget
        budget = None if told is None else host(told)
        told = device.finish()


def without_host(device, host, steps):
    """Nobody searches a budget."""
    for _ in range(steps):
        device.start(None)
        device.finish()


def before_any(device, host, steps):
    """The host is given nothing to work on."""
    device.start(None)
    host(None)


def waits_first(device, host, steps):
    """Waits for what does not run."""
    device.finish()


def working_to_the_end(device, host, steps):
    """The host works on the last step's confidences, too: right, if needless."""
    device.start(None)
    confidences, budget = device.finish(), None
    for _ in range(steps - 1):
        device.start(budget)
        budget, confidences = host(confidences), device.finish()
    host(confidences)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (in_turn, "one after another"),
        (two_at_once, "finish that one first"),
        (without_end, "7 steps were started and 6 finished"),
        (three_old, "of step t - 2"),
        (without_host, "found no budget"),
        (before_any, "host was given None"),
        (waits_first, "none was started"),
    ],
)
def test_the_loops_checker_names_the_mistake(wrong, says, capsys):
    assert lesson_13.check_pipeline(wrong) is False
    assert says in capsys.readouterr().out


def test_the_loops_checker_passes_the_loop_and_reminds_of_a_stub(capsys):
    assert lesson_13.check_pipeline(lesson_13.pipelined) and lesson_13.check_pipeline(
        working_to_the_end
    )
    assert not lesson_13.check_pipeline(lambda device, host, steps: None)
    assert not lesson_13.check_pipeline(...) and not lesson_13.check_pipeline(3)
    right, also_right, *said = capsys.readouterr().out.splitlines()
    assert (
        right == also_right == "Correct."
        and said[0] == said[1]
        and said[0].startswith("Not done yet")
    )
    assert len(said) == 3 and "takes the function itself" in said[2]


def test_machines_are_counted_by_users_or_by_throughput():
    curve = np.array([[200.0, 200.0], [80.0, 640.0]])
    assert (
        lesson_13.machines_for(curve, 80, 80.0) == 10
        and lesson_13.machines_for(curve, 81, 80.0) == 11
    )
    assert lesson_13.machines_for(curve, 1, 201.0) == math.inf


# Calibration that lives


def blocks(seed, count, times=1.0, gamma=3):
    """Blocks of a head that is `times` as sure as it should be: logits [N, gamma] and accepted drafts."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(1.0, 1.0, (count, gamma))
    alive = (rng.random((count, gamma)) < 1 / (1 + np.exp(-logits))).cumprod(1)
    return times * logits, alive.sum(1)


FLAT = STS([1.0, 1.0, 1.0])


def test_temperatures_that_fit_stay():
    online = OnlineSTS(FLAT, window=2000, every=500)
    assert not online.observe(*blocks(0, 6000)) and online.sts is FLAT and online.refits == 0


def test_a_head_that_goes_wrong_is_fitted_anew_within_two_windows():
    online = OnlineSTS(FLAT, window=1000, every=200)
    online.observe(*blocks(0, 1500))
    assert online.observe(*blocks(1, 2000, times=3.0))
    logits, accepted = blocks(2, 4000, times=3.0)
    kept, stored = (
        np.mean(by_position(logits, accepted, one.temperatures)["ece"])
        for one in (online.sts, FLAT)
    )
    best = np.mean(
        by_position(logits, accepted, fit_sts(*blocks(3, 4000, times=3.0)).temperatures)["ece"]
    )
    assert kept < best + 0.02 and stored > 2 * kept


def test_nothing_is_checked_before_the_window_is_full():
    online = OnlineSTS(FLAT, window=1000, every=100)
    assert not online.observe(*blocks(0, 999, times=5.0)) and online.observe(
        *blocks(1, 1, times=5.0)
    )
    assert online.sts.num_samples == 1000, "the whole window is fitted to"


@pytest.mark.parametrize(("window", "every"), [(100, 101), (100, 0)])
def test_a_window_is_at_least_as_long_as_the_time_between_checks(window, every):
    with pytest.raises(RequestError, match="cannot be checked every"):
        OnlineSTS(FLAT, window=window, every=every)


def test_a_drift_is_judged_on_prompts_that_taught_nothing():
    observed = {}
    for seed, domain in enumerate(("math", "chat")):
        logits, accepted = blocks(seed, 3000)
        observed[domain] = Observations(logits, accepted, np.repeat(np.arange(100), 30))
    (taught, _), (judged, _) = halves(observed["math"])
    assert len(taught) == len(judged) == 1500 and not set(map(tuple, taught)) & set(
        map(tuple, judged)
    )
    found = drift(observed, FLAT, [Phase("math", 1.0, 1000), Phase("chat", 3.0, 2000)])
    assert [point.at for point in found.points] == list(range(EVERY, 3001, EVERY))
    assert [point.phase for point in found.points] == [0] * 5 + [1] * 10
    stored, online, fresh = found.after(1, 2000)
    assert (
        online < fresh + 0.02 < stored
        and all(1000 < at <= 3000 for at in found.refits)
        and found.refits
    )


def test_the_wrong_heads_of_the_model_begin_with_the_right_one():
    """Of few requests: what is compared is that the same traffic gives the same ratio, and that order does not suffer from a factor."""
    found = throughput_by_head(4, seeds=2, requests=12)
    assert list(found) == list(WRONG_HEADS) and all(
        value.low <= value.value <= value.high for value in found.values()
    )
    assert found == throughput_by_head(4, seeds=2, requests=12)
    fitted = throughput_by_head(4, "fitted", seeds=2, requests=12)
    assert list(fitted) == list(found) and fitted != found


# Figures


@pytest.mark.parametrize(("host", "says"), [(2.0, "1.40"), (6.0, "1.83"), (5.0, "2.00")])
def test_the_model_overlaps_the_shorter_with_the_longer(host, says):
    assert figures.model_lanes(1.0, 4.0, host).get_suptitle() == f"overlapped: {says} times as fast"


def test_arrows_end_on_the_draft_of_the_step_that_spends_the_budget():
    """Draft 1, verify 4, host 2: host 1 ends at 7; step 2 begins then, and step 3, overlapped, at 10."""
    in_turn, overlapped = figures.model_lanes(1.0, 4.0, 2.0).axes
    for axes, spent in ((in_turn, 7.5), (overlapped, 10.5)):
        first, *_ = (text for text in axes.texts if getattr(text, "arrow_patch", None))
        assert (first.xyann[0], first.xy[0]) == (7.0, spent)
        alike = [bar for bar in axes.patches if bar.get_facecolor() == to_rgba(figures.ORANGE)]
        assert {bar.get_x() for bar in alike} == {5.0, spent + 0.5}


def test_machines_stop_at_the_wall_and_rounds_say_whether_they_pay():
    promises = np.array([10.0, 20.0, 30.0])
    found = [Estimate(20, 18, 22), Estimate(300, 90, np.inf), Estimate(np.inf, np.inf, np.inf)]
    (axes,) = figures.machines_needed(
        {"mtp": (promises, found), "dspark": (promises, [Estimate(20, 19, 21)] * 3)},
        20.0,
        1000,
        "a made device",
    ).axes
    mtp, dspark, wall = axes.lines
    assert mtp.get_xdata().tolist() == [10.0, 20.0] and dspark.get_xdata().tolist() == [10, 20, 30]
    assert wall.get_xdata() == [20.0, 20.0]
    (axes,) = figures.rounds_in_plain_steps({"pays": (0.5, 1.5, 4.0), "not": (0.5, 1.2, 1.25)}).axes
    colours = [line.get_color() for line in axes.lines]
    assert colours == [figures.GREEN, figures.RED]
    assert [line.get_xdata()[0] for line in axes.lines] == [4.0, 1.25]


def test_the_other_figures_draw_what_they_are_given():
    found = Drift(
        [Point(200, 0, 7.0, 0.02, 0.02, 0.02), Point(400, 1, 5.0, 0.1, 0.03, 0.02)], refits=[400]
    )
    above, below = figures.drift_series(
        found, [Phase("math", 1.0, 200), Phase("chat", 2.0, 200)]
    ).axes
    assert [text.get_text() for text in above.texts] == ["math", "chat,\nhead 2 times as sure"]
    assert below.lines[-1].get_xdata().tolist() == [400]
    said = {text.get_text(): text.xy for text in below.texts}
    assert said == {
        "fitted to this traffic": (200, 2.0),
        "kept online": (200, 2.0),
        "as stored": (400, 10.0),
    }
    heads = {
        "as calibrated": Estimate(0.1, 0.0, 0.2),
        "2 nats too doubtful": Estimate(-0.1, -0.2, 0.0),
    }
    above, below = figures.wrong_heads({"here": heads, "there": heads}).axes
    assert [text.get_text() for text in above.texts] == ["+10.0", "−10.0"]
    assert (above.get_title("left"), below.get_title("left")) == ("here", "there")
    (interval, _) = below.collections
    assert interval.get_segments()[0].tolist() == [[0.0, 0.0], [20.0, 0.0]]


def test_a_drafted_tree_joins_each_word_to_its_parent():
    (axes,) = figures.drafted_tree(["the", " a", " b", "c"], [0, 0, 1]).axes
    places = {text.get_text(): text.get_position() for text in axes.texts}
    assert {word: x for word, (x, _) in places.items()} == {"the": 0, " a": 1, " b": 1, "c": 2}
    joined = [sorted(map(tuple, line.get_xydata().tolist())) for line in axes.lines]
    assert joined == [sorted([places["the"], places[child]]) for child in (" a", " b")] + [
        sorted([places[" a"], places["c"]])
    ]


def test_the_figures_beside_the_lesson_draw_what_they_are_given():
    counts = {"math": [[6.0, 2.0], [4.0, 1.0]], "chat": [[2.0, 1.0], [2.0, 1.0]]}
    rows = [{"name": "chain", "nodes": 7, "temperature": t, "tallies": counts} for t in (0.0, 1.0)]
    rows += [
        {"name": "tree", "nodes": nodes, "temperature": t, "tallies": counts}
        for t in (0.0, 1.0)
        for nodes in (7, 15)
    ]
    greedy, drawn = figures.tree_lengths(rows).axes
    heights = [container.lines[0].get_ydata().tolist() for container in greedy.containers]
    assert (
        heights == [pytest.approx([(10 / 3 + 2) / 2] * 2), pytest.approx([(10 / 3 + 2) / 2])]
        and drawn.get_title() == "temperature 1"
    )
    assert figures.tree_mask(torch.eye(3).bool()).axes[0].images[0].get_array().sum() == 3
    left, right = figures.v4_variants(
        {"one": {"parameters": 3e6, "active": 1e6, "steps": 10, "l1": [2.0, 1.0]}}
    ).axes
    assert [bar.get_width() for bar in left.patches] == [3.0, 1.0] and list(
        right.lines[0].get_ydata()
    ) == [2.0, 1.0]
