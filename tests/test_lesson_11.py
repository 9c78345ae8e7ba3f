"""Lesson 11: the checkers know right from wrong, and its figures say what they are given."""

import lesson_cells
import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from dspark_lite import serving_plots
from dspark_lite.decoding import Round
from dspark_lite.evaluation import Estimate
from dspark_lite.exercises import lesson_11
from dspark_lite.serving_plots import Journey
from dspark_lite.slots import Layout, SlotStore, sees


@pytest.fixture(autouse=True)
def closed():
    """Leaves no figure open."""
    yield
    plt.close("all")


def test_solutions_pass(capsys):
    assert lesson_cells.run("11", "solution", exercises=lesson_11, np=np, torch=torch) == 4
    assert capsys.readouterr().out == 4 * "Correct.\n"


def test_stubs_are_reminders(capsys):
    assert lesson_cells.run("11", "exercise", exercises=lesson_11, np=np, torch=torch) == 4
    assert capsys.readouterr().out.count("Not done yet") == 4


def flattened(starts, counts):
    """The right answer of exercise 1."""
    request = torch.repeat_interleave(torch.arange(len(counts)), counts)
    return request, starts[request] + torch.cat([torch.arange(count) for count in counts])


def through(starts, counts):
    """A count through the whole batch."""
    return torch.arange(int(counts.sum()))


def own(request, key_request):
    """Whether a key is of the token's request."""
    return request[:, None] == key_request


def before(position, key_position):
    """Whether a key is not behind the token."""
    return key_position <= position[:, None]


def fixed(tau, seconds=None):
    """An answer to exercise 3: requests times tau(mean survival, length) over the seconds of a step."""
    seconds = seconds or (lambda costs, length, requests: costs(requests, requests * (1 + length)))
    return lambda alive, length, requests, costs: requests * tau(alive.mean(0), length) / seconds(costs, length, requests)


def prefix(mean, length):
    """Tokens that a request is expected to commit."""
    return 1 + mean[:length].sum()


def speed(curve, throughput):
    """The speed at a throughput."""
    return np.interp(throughput, curve[:, 1], curve[:, 0])


def total(curve, user):
    """The throughput at a speed."""
    return np.interp(user, curve[::-1, 0], curve[::-1, 1])


WRONG = {
    lesson_11.check_indices: {
        lambda s, c: flattened(s, c)[::-1]: "swapped",
        lambda s, c: flattened(torch.zeros_like(s), c): "count from 0",
        lambda s, c: (flattened(s, c)[0], through(s, c)): "run on through the whole batch",
        lambda s, c: (flattened(s, c)[0], s[flattened(s, c)[0]] + through(s, c)): "added the start to a count",
        lambda s, c: (flattened(s, c)[0], s[flattened(s, c)[0]]): "the position of its first",
        lambda s, c: flattened(s + 1, c): "one too high",
        lambda s, c: (through(s, c) % 3, s[through(s, c) % 3] + through(s, c) // 3): "take turns",
        lambda s, c: (flattened(s, c)[0] + 1, flattened(s, c)[1]): "counted from 1",
        lambda s, c: (torch.arange(3), s): "as many as the counts",
        lambda s, c: flattened(s, c)[1]: "return two tensors",
        lambda s, c: (torch.zeros(7), torch.zeros(7)): "in a row",
    },
    lesson_11.check_mask: {
        lambda r, p, kr, kp: own(r, kr): "keys behind it",
        lambda r, p, kr, kp: before(p, kp): "sees other requests",
        lambda r, p, kr, kp: own(r, kr) & before(p, kp) & (torch.arange(len(kr)) >= len(kr) - len(r)): "cached context is forgotten",
        lambda r, p, kr, kp: own(r, r) & before(p, p): "the keys are the cached context too",
        lambda r, p, kr, kp: own(r, kr) & (kp < p[:, None]): "does not see itself",
        lambda r, p, kr, kp: (own(r, kr) & before(p, kp)).T: "turned around",
        lambda r, p, kr, kp: ~(own(r, kr) & before(p, kp)): "wrong way round",
        lambda r, p, kr, kp: own(r, kr) & ~(kp < p[:, None]): "not what stands before",
        lambda r, p, kr, kp: own(r, kr) & before(torch.arange(len(r)), torch.arange(len(kr))): "places in the batch",
        lambda r, p, kr, kp: own(r, kr) | before(p, kp): "both, not one",
        lambda r, p, kr, kp: (own(r, kr) & before(p, kp)).long(): "True where a token sees",
        lambda r, p, kr, kp: own(r, kr) & False: "of the same request",
    },
    lesson_11.check_fixed_throughput: {
        lambda alive, k, R, costs: fixed(prefix)(alive, k, R, costs) / R: "speed of one request",
        fixed(lambda mean, k: mean[:k].sum()): "the target adds itself",
        fixed(prefix, lambda costs, k, R: costs(R, R * max(k, 1))): "anchors are missing",
        fixed(lambda mean, k: 1 + k): "counted as accepted",
        fixed(lambda mean, k: 1 + (k * mean[k - 1] if k else 0)): "the last position",
        fixed(lambda mean, k: prefix(mean, 3)): "behind the length",
        fixed(prefix, lambda costs, k, R: costs(1, 1 + k)): "that of one request",
        fixed(prefix, lambda costs, k, R: 1 / costs(R, R * (1 + k))): "divide by it",
        lambda alive, k, R, costs: R * (1 + alive[:, :k].sum()) / costs(R, R * (1 + k)): "mean block",
        lambda alive, k, R, costs: 1.0: "over the seconds",
    },
    lesson_11.check_speed_gain: {
        lambda a, b, y: speed(b, y) / speed(a, y) - 1: "upside down",
        lambda a, b, y: speed(a, y) / speed(b, y): "that is the ratio",
        lambda a, b, y: speed(a, y) - speed(b, y): "a difference",
        lambda a, b, y: total(a, speed(b, y)) / y - 1: "the other way across",
        lambda a, b, y: total(a, y) / total(b, y) - 1: "asked for a throughput",
        lambda a, b, y: np.interp(y, *a.T) / np.interp(y, *b.T) - 1: "grid to rise",
        lambda a, b, y: 100 * (speed(a, y) / speed(b, y) - 1): "in percent",
        lambda a, b, y: 0.5: "read each curve",
    },
}


@pytest.mark.parametrize(("check", "answer", "name"),
                         [(check, answer, name) for check, wrong in WRONG.items() for answer, name in wrong.items()],
                         ids=lambda value: value if isinstance(value, str) else "")
def test_mistakes_are_named(check, answer, name, capsys):
    assert check(answer) is False
    assert name in capsys.readouterr().out


def test_the_row_of_the_nearest_load_is_a_named_mistake(capsys):
    def same_row(ours, theirs, throughput):
        row = abs(theirs[:3, 1] - throughput).argmin()
        return ours[row, 0] / theirs[row, 0] - 1

    assert lesson_11.check_speed_gain(same_row) is False
    assert "same concurrency" in capsys.readouterr().out


def test_the_exercises_are_the_packages_layout_and_mask():
    starts, counts = torch.tensor([4, 2, 9]), torch.tensor([3, 1, 5])
    layout = Layout(SlotStore(1, 3, 16, torch.device("cpu")), [0, 1, 2], starts.numpy(), counts.numpy())
    request, position = flattened(starts, counts)
    assert torch.equal(layout.row, request) and torch.equal(layout.position, position)
    assert torch.equal(sees(request[:, None], position[:, None], request, position), own(request, request) & before(position, position))


def rounds(*pairs):
    """Rounds that had so many drafts verified and accepted."""
    return [Round(proposed, accepted, accepted + 1, [], [], 0.0, 0.0) for proposed, accepted in pairs]


def test_the_timeline_gives_a_request_the_slot_that_was_free():
    journeys = [Journey("0", 0, 0, rounds((3, 1), (2, 2)), "length"), Journey("1", 0, 0, rounds((1, 0)), "aborted"),
                Journey("2", 0, 1, rounds((3, 3), (0, 0)), "stop"), Journey("3", 1, 2, rounds((1, 1)), "length")]
    above, axes = serving_plots.timeline(journeys, slots=2, gamma=3).axes
    slot_of = {text.get_text(): int(text.get_position()[1]) for text in axes.texts}
    assert slot_of == {"request 0": 0, "request 1": 1, "request 2": 1, "request 3": 0}
    assert [bar.get_height() for bar in above.patches] == [1, 1, 0], "waiting: request 2 before step 1, request 3 at step 1"
    heights = sorted(round(box.get_height() / (0.66 / 3)) for box in axes.patches)
    assert heights == sorted([3] * 6 + [3, 2, 1, 3, 0, 1] + [1, 2, 0, 3, 0, 1]), "a frame, what was verified and what was accepted"


def test_the_mask_picture_tells_context_and_block_apart():
    request = torch.tensor([0, 0, 1])
    visible = torch.tensor([[1, 0, 1, 0, 0], [1, 0, 1, 1, 0], [0, 1, 0, 0, 1]]).bool()
    axes = serving_plots.ragged_batch(request, visible, cached=2).axes[0]
    assert axes.images[0].get_array().tolist() == [[1, 0, 2, 0, 0], [1, 0, 2, 2, 0], [0, 1, 0, 0, 2]]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["request A", "request B"]


def estimates(*values):
    """Estimates by load 1, 2, 4, ..."""
    return {2 ** index: Estimate(value, value - 0.1, value + 0.1) for index, value in enumerate(values)}


def test_figures_7_and_8_draw_the_papers_lines_beside_ours():
    budgets = {"mtp": estimates(2, 2, 2), "lagged": estimates(7, 6, 5), "fixed 7": estimates(8, 8, 8)}
    left, right = serving_plots.figure_8(budgets, {"lagged": estimates(2, 1.5, 1.2)}, "a made device").axes
    theirs = [[line for line in axes.lines if line.get_linestyle() in ("--", ":")] for axes in (left, right)]
    assert [len(lines) for lines in theirs] == [4, 2], "two models; MTP-1 and DSpark, and the one over the other"
    assert all(line.get_ydata().min() > 1 for line in theirs[1]), "the paper's DSpark is above its MTP-1 at every load"
    frontiers = {name: np.array([[90.0, 90.0], [40.0, 160.0]]) for name in ("mtp", "lagged")}
    ours, papers = serving_plots.figure_7(frontiers, "a made device").axes
    assert (len(ours.lines), len(papers.lines)) == (2, 4)
    assert [text.get_text() for text in papers.texts if "%" in text.get_text()] == ["+60 %", "+85 %", "+57 %", "+78 %"]


def test_the_operating_point_sorts_requests_by_their_length():
    curves = {"algorithm1": np.array([[90.0, 90.0], [40.0, 160.0]])}
    lengths, accepted, alive = np.array([1, 3, 0]), np.array([2, 3, 1]), np.array([[0.9, 0.5, 0.1], [0.9, 0.9, 0.9], [0.1, 0.1, 0.1]])
    left, right = serving_plots.operating_point(curves, curves, "algorithm1", (90.0, 90.0), lengths, accepted, alive, "three").axes
    drafted, verified, kept = ([bar.get_height() for bar in bars] for bars in right.containers)
    assert (drafted, verified, kept) == ([3, 3, 3], [3, 1, 0], [3, 1, 0]), "what was not verified is not accepted"
    assert left.lines[-1].get_xydata().tolist() == [[90.0, 90.0]]
