"""Lesson 03: its figures draw."""

import matplotlib.pyplot as plt

from dspark_lite import plots


def test_figures_draw():
    costs = {("plain", "math"): (1.0, 0.0, 0.004), ("small_lm", "math"): (4.0, 0.01, 0.006)}
    sweep = {("math", 1): (1.7, 1.1), ("math", 7): (4.0, 0.8)}
    drawn = [plots.latency_bars(costs, "CPU"), plots.draft_length_sweep(sweep, {"math": [1.8, 4.2]}, "CPU"),
             plots.when_it_pays(0.8, 7, 0.1, 1.0), plots.when_it_pays(0.05, 16, 1.0, 3.0)]
    for fig in drawn:
        fig.canvas.draw()
        plt.close(fig)
