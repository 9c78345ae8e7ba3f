"""The scoreboard of lessons 03 to 06: what the drafters so far accept, cost and gain, from the stored
benchmark."""

import numpy as np

from dspark_lite.common.files import ROOT
from dspark_lite.course.names import DOMAINS, DRAFTER_LABELS
from dspark_lite.course.result_files import read
from .style import DRAFTER_STYLES, SMALL, domain_axes, figure, grouped_bars, slower_than_plain

BENCHMARK = ROOT / "assets" / "measurements" / "bench.json"


def benchmark_rows() -> dict[tuple[str, str], dict]:
    """Return the rows of the stored benchmark by drafter and domain."""
    return {(row["drafter"], row["domain"]): row for row in benchmark()["rows"]}


def benchmark() -> dict:
    """Return the benchmark that `python -m dspark_lite bench` wrote."""
    return read(BENCHMARK, "python -m dspark_lite bench --json assets/measurements/bench.json")


def scoreboard_figure(*drafters: str):
    """Draw these drafters by domain as groups of bars: tokens per round (left) and times plain decoding (right)."""
    fig, panels = figure(2, width=4.6, height=3.0)
    for axes, column, title in zip(
        panels, ("accepted_length", "speedup"), ("what a round brings", "what that is worth")
    ):
        values = {DRAFTER_LABELS[name]: by_domain(name, column) for name in drafters}
        colours = [DRAFTER_STYLES[name][0] for name in drafters]
        for bars in grouped_bars(axes, values, colours).values():
            axes.bar_label(bars, fmt="%.1f", fontsize=SMALL, padding=1)
        axes.set_title(title)
    for axes, label in zip(panels, ("tokens per round, τ", "times plain decoding")):
        domain_axes(
            axes,
            DOMAINS,
            label,
            f"{benchmark()['device']}, {benchmark()['prompts']} prompts per domain",
        )
    panels[0].get_legend().remove()
    panels[0].texts[-1].remove()  # the device stands under the other panel
    slower_than_plain(panels[1])
    return fig


def by_domain(drafter: str, column: str):
    """Return a column of the stored benchmark [domains] for a drafter; nan where it was not measured."""
    return np.array([benchmark_rows()[drafter, domain].get(column, np.nan) for domain in DOMAINS])


def cost_in_passes(drafter: str, part: str):
    """Return the cost [domains] of `part` of a round, draft or verify, in plain passes of the target."""
    return by_domain(drafter, f"{part}_milliseconds") / by_domain("plain", "verify_milliseconds")
