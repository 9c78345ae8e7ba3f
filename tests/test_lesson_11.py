"""Lesson 11: its exercises are the package's layout and mask, and its figures show what they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from dspark_lite.course.estimates import Estimate
from dspark_lite.course.exercises import lesson_11
from dspark_lite.course.figures import lesson_11 as figures
from dspark_lite.course.figures.lesson_11 import Journey
from dspark_lite.course.replication import machine_results
from dspark_lite.decoding import Round
from dspark_lite.serving.slots import Layout, SlotStore, sees


@pytest.fixture(autouse=True)
def closed():
    """Leaves no figure open."""
    yield
    plt.close("all")


def test_the_exercises_are_the_packages_layout_and_mask():
    starts, counts = torch.tensor([4, 2, 9]), torch.tensor([3, 1, 5])
    layout = Layout(
        SlotStore(1, 3, 16, torch.device("cpu")), [0, 1, 2], starts.numpy(), counts.numpy()
    )
    request, position = lesson_11.index_tensors(starts, counts)
    assert torch.equal(layout.row, request) and torch.equal(layout.position, position)
    assert torch.equal(
        sees(request[:, None], position[:, None], request, position),
        lesson_11.may_see(request, position, request, position),
    )


def rounds(*pairs):
    """Rounds that had so many drafts verified and accepted."""
    return [
        Round(proposed, accepted, accepted + 1, [], [], 0.0, 0.0) for proposed, accepted in pairs
    ]


def test_the_timeline_gives_a_request_the_slot_that_was_free():
    journeys = [
        Journey("0", 0, 0, rounds((3, 1), (2, 2)), "length"),
        Journey("1", 0, 0, rounds((1, 0)), "aborted"),
        Journey("2", 0, 1, rounds((3, 3), (0, 0)), "stop"),
        Journey("3", 1, 2, rounds((1, 1)), "length"),
    ]
    above, axes = figures.timeline(journeys, slots=2, gamma=3).axes
    slot_of = {text.get_text(): int(text.get_position()[1]) for text in axes.texts}
    assert slot_of == {"request 0": 0, "request 1": 1, "request 2": 1, "request 3": 0}
    assert [bar.get_height() for bar in above.patches] == [1, 1, 0], (
        "waiting: request 2 before step 1, request 3 at step 1"
    )
    heights = sorted(round(box.get_height() / (0.66 / 3)) for box in axes.patches)
    assert heights == sorted([3] * 6 + [3, 2, 1, 3, 0, 1] + [1, 2, 0, 3, 0, 1]), (
        "a frame, what was verified and what was accepted"
    )


def test_the_mask_picture_tells_context_and_block_apart():
    request = torch.tensor([0, 0, 1])
    context = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 1]])  # three keys of A, one of B
    block = torch.tensor([[1, 0, 0], [1, 1, 0], [0, 0, 1]])
    visible = torch.cat([context, block], 1).bool()
    axes = figures.ragged_batch(request, visible, cached=4).axes[0]
    assert axes.images[0].get_array().tolist() == [
        [1, 1, 1, 0, 0, 0, 2, 0, 0],
        [1, 1, 1, 0, 0, 0, 2, 2, 0],
        [0, 0, 0, 1, 1, 1, 0, 0, 2],
    ], "contexts are stubs of one width"
    ticks = [tick.get_text() for tick in axes.get_xticklabels()]
    assert ticks == ["A: 3\nkeys", "B: 1\nkeys", "3 keys of this step"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["request A", "request B"]


def estimates(*values):
    """Estimates by load 1, 2, 4, ..."""
    return {
        2**index: Estimate(value, value - 0.1, value + 0.1) for index, value in enumerate(values)
    }


def test_figures_7_and_8_draw_the_papers_lines_beside_ours():
    budgets = {
        "mtp": estimates(2, 2, 2),
        "lagged": estimates(7, 6, 5),
        "fixed 7": estimates(8, 8, 8),
    }
    left, right = figures.figure_8(
        budgets, {"lagged": estimates(2, 1.5, 1.2)}, "a made device"
    ).axes
    theirs = [
        [line for line in axes.lines if line.get_linestyle() in ("--", ":")]
        for axes in (left, right)
    ]
    assert [len(lines) for lines in theirs] == [4, 2], (
        "two models; MTP-1 and DSpark, and the one over the other"
    )
    assert [
        round(line.get_ydata()[0], 1)
        for line in theirs[0]
        if line.get_color() == figures.style("mtp")["color"]
    ] == [2.0, 2.0], "in tokens"
    assert all(line.get_ydata().min() > 1 for line in theirs[1]), (
        "the paper's DSpark is above its MTP-1 at every load"
    )
    at_load_1 = [container.lines[0].get_xdata()[0] for container in left.containers]
    assert at_load_1 == [pytest.approx(1.13**place) for place in (-1, 0, 1)], (
        "no mark hides another"
    )
    frontiers = {name: np.array([[90.0, 90.0], [40.0, 160.0]]) for name in ("mtp", "lagged")}
    ours, papers = figures.figure_7(frontiers, "a made device").axes
    assert (len(ours.lines), len(papers.lines)) == (2, 4)
    assert [text.get_text() for text in ours.texts if text.get_text().isdigit()] == [
        "1",
        "4",
    ] * 2, "points say how many requests are under way"
    assert [text.get_text() for text in papers.texts if "%" in text.get_text()] == [
        "+60 %",
        "+85 %",
        "+57 %",
        "+78 %",
    ]
    assert papers.get_title().endswith("DSpark's users are 57 to 85 % faster")


def test_the_operating_point_sorts_requests_by_their_length():
    curves = {"algorithm1": np.array([[90.0, 90.0], [40.0, 160.0]])}
    lengths = np.array([1, 3, 0])
    accepted = np.array([2, 3, 1])
    alive = np.array([[0.9, 0.5, 0.1], [0.9, 0.9, 0.9], [0.1, 0.1, 0.1]])
    measured = curves | {"mtp": np.array([[200.0, 100.0], [50.0, 400.0]])}
    left, right = figures.operating_point(
        curves,
        measured,
        "algorithm1",
        (90.0, 90.0),
        lengths,
        accepted,
        alive,
        "three",
        "a made device",
    ).axes
    drafted, verified, kept = ([bar.get_height() for bar in bars] for bars in right.containers)
    assert (drafted, verified, kept) == ([3, 3, 3], [3, 1, 0], [3, 1, 0]), (
        "what was not verified is not accepted"
    )
    assert (
        left.lines[-1].get_xydata().tolist() == [[90.0, 90.0]]
        and left.get_title() == "ring: 90 tokens/s for each user, 90 in all"
    )
    assert [text.get_text() for text in left.get_legend().get_texts()][1:] == [
        "lines: the model",
        "marks: measured",
    ]
    assert (left.get_xlim(), left.get_ylim()) == (
        pytest.approx((0, 220)),
        pytest.approx((0, 440)),
    ), "room for curves that are not drawn"


def test_index_tensors_come_as_a_tuple_or_a_list(capsys):
    assert lesson_11.check_indices(
        lambda starts, counts: list(lesson_11.index_tensors(starts, counts))
    )
    assert capsys.readouterr().out == "Correct.\n"


def test_index_tensors_are_whole_numbers(capsys):
    assert not lesson_11.check_indices(
        lambda starts, counts: tuple(
            part.float() for part in lesson_11.index_tensors(starts, counts)
        )
    )
    assert "tensors of whole numbers" in capsys.readouterr().out


@pytest.mark.parametrize("form", [np.float64, torch.tensor])
def test_a_load_is_a_number_of_any_type(form, capsys):
    assert lesson_11.check_stops_paying(lambda *case: form(lesson_11.stops_paying(*case)))
    assert capsys.readouterr().out == "Correct.\n"


@pytest.mark.parametrize("name", ["this CPU", "H100", "DeepSeek-V4-Flash, at most"])
def test_a_seventh_draft_stops_paying_where_the_exercise_says(name):
    """Throughput with and without it, by the machine's own steps, one request below and one above."""
    step = machine_results.machines()[name].step("dspark")
    load = lesson_11.stops_paying(*step.line(256, 2048), 5.3, 0.6)

    def gain(requests):
        seven, eight = (step.seconds(requests, count * requests) for count in (7, 8))
        return 5.9 / eight - 5.3 / seven

    if np.isinf(load):
        assert all(gain(requests) > 0 for requests in (1, 64, 512, 4096))
    else:
        assert gain(load - 1) > 0 > gain(load + 1)


@pytest.mark.parametrize(
    ("speed", "throughput"), [(75, 150), (100, 100), (120, 0), (10, 200), (50, 200)]
)
def test_throughput_at_a_speed_reads_between_the_loads(speed, throughput):
    curve = np.array([[100.0, 100.0], [50.0, 200.0]])
    assert lesson_11.throughput_at(curve, speed) == throughput


def test_throughput_at_a_speed_is_the_highest_of_a_frontier_that_bends_back():
    bent = np.array([[90.0, 90.0], [60.0, 120.0], [70.0, 280.0], [40.0, 320.0]])
    assert lesson_11.throughput_at(bent, 65) == pytest.approx(280 + 40 / 6)
    assert lesson_11.throughput_at(bent, 75) == pytest.approx(105)


def test_the_picture_of_an_engine_names_what_a_step_uses():
    drawn = figures.engine_at_work().axes + figures.block_in_a_step().axes
    written = " ".join(text.get_text() for axes in drawn for text in axes.texts)
    assert all(f"engine.{name}" in written for name in ("waiting", "running", "read", "keep"))


def test_the_papers_frontier_has_its_gains_to_the_right_and_upwards():
    (axes,) = figures.paper_frontier().axes
    written = {text.get_text() for text in axes.texts}
    assert {"+60 %", "+85 %", "+51 %", "+661 %"} <= written


def test_steps_are_drawn_as_dots_their_means_and_a_line():
    turns = {1: {1: [0.03, 0.04], 8: [0.05]}, 4: {1: [0.1], 8: [0.2, 0.22]}}
    means = {
        load: {t: Estimate(np.mean(v), min(v), max(v)) for t, v in found.items()}
        for load, found in turns.items()
    }
    (axes,) = figures.step_times(turns, means, lambda requests, tokens: 0.01 * tokens, "made").axes
    drawn = {
        marker: [line.get_ydata().tolist() for line in axes.lines if line.get_marker() == marker]
        for marker in ("o", "D", "None")
    }
    assert drawn["o"] == [[30, 40], [50], [100], [200, 220]]
    assert [[round(value, 9) for value in marks] for marks in drawn["D"]] == [[35, 50], [100, 210]]
    assert drawn["None"] == [[10, 80], [40, 320]]
    written = {text.get_text() for text in axes.texts}
    assert written >= {"1 under way", "4 under way", "the line is 110 ms\ntoo high here"}


def test_what_scheduling_brings_has_a_label_at_each_line():
    made = {"one": estimates(90, 80), "two": estimates(100, 95)}
    left, right = figures.scheduling_pays(made, made).axes
    assert all({"one", "two"} <= {text.get_text() for text in axes.texts} for axes in (left, right))
