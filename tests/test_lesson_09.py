"""Lesson 09: its figures show what they are given."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from dspark_lite.course import paper
from dspark_lite.course.figures import lesson_09 as figures
from dspark_lite.course.replication import confidence_results
from dspark_lite.scheduling.calibration import Observations
from dspark_lite.scheduling.cost_table import CostTable
from helpers import bars


def test_the_cost_of_a_token_averages_the_time_over_the_tokens_of_a_step():
    found = Observations(np.zeros((2, 1)), np.array([1, 0]), np.array([0, 1]))
    said = np.array([[0.9], [0.1]])  # cut at 0.5: a draft, or none
    assert figures.step_tokens(np.array([1, 0]), 2).tolist() == [0, 0, 0.25, 0.5, 0.25]
    table = CostTable([1, 2, 3, 4], [1 / 0.001, 1 / 0.002, 1 / 0.007, 1 / 0.004])
    mean = 0.25 * 2 + 0.5 * 7 + 0.25 * 4
    assert figures.token_milliseconds(table, 2, found, said, 0.5) == pytest.approx(mean / (2 * 1.5))
    assert figures.token_milliseconds(table, 2, found, said, 0.95) == pytest.approx(2 / (2 * 1.0))


def test_the_gaps_are_drawn_and_weighted_by_blocks():
    curve = [(0.2, 0.1, 10), (0.8, 0.9, 30), (0.9, 0.9, 60)]
    fig = figures.gaps(curve, drafts=3)
    drawn = [bars(axes) for axes in fig.axes if axes.containers]
    assert np.allclose(drawn[0], [[-10, 10, 0]]) and drawn[1] == [[10, 30, 60]]
    assert fig.axes[0].get_title() == "The first 3 drafts survive as predicted, within 10.0 points"
    assert "weighted by blocks they are 4.0 points" in fig.axes[1].get_title()


@pytest.mark.parametrize("rows_of_panels", [1, 2])
def test_the_rate_by_threshold_stands_filled_and_the_papers_hollow(rows_of_panels):
    swept = confidence_results.threshold_sweep()["rows"]
    fig = figures.figure_5() if rows_of_panels == 2 else figures.threshold_rates("a device", swept)
    panel = fig.axes[-1]  # chat
    lines = [line for line in panel.lines if line.get_marker() == "^"]
    ours, theirs = (
        [line.get_ydata() for line in lines if (line.get_markerfacecolor() == "none") == hollow]
        for hollow in (False, True)
    )
    rates = [100 * row["rate"] for row in swept if row["domain"] == "chat"]
    assert len(ours) == len(theirs) == 1 and np.allclose(ours[0], rates)
    assert np.allclose(theirs[0], 100 * paper.threshold_sweep("chat")["rate"])
    plt.close(fig)
