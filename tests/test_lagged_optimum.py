"""Algorithm 1 beside the optimum that engines plan by: how often they agree on measured costs, and what an early stop gives up."""

import pytest
import torch

from dspark_lite.course.replication.confidence_results import stored_cost_table
from dspark_lite.scheduling import global_optimum, schedule

CASES = 300


def survivals():
    """Random survivals [R, 7] of 1 to 8 requests."""
    generator = torch.Generator().manual_seed(0)
    return [
        torch.rand(1 + case % 8, 7, generator=generator).pow(0.5).cumprod(1)
        for case in range(CASES)
    ]


def value(alive, lengths, table):
    """Expected tokens per second of these lengths."""
    expected = len(alive) + sum(
        row[:length].sum().item() for row, length in zip(alive, lengths.tolist())
    )
    return expected * table.sps(len(alive), len(alive) + int(lengths.sum()))


def test_the_early_stop_misses_the_top_of_a_measured_table_and_never_passes_it():
    table, same = stored_cost_table(), 0
    for alive in survivals():
        early, best = schedule(alive, table), global_optimum(alive, table)
        assert (
            value(alive, early, table) <= value(alive, best, table) * (1 + 1e-9)
            and early.sum() <= best.sum()
        )
        same += torch.equal(early, best)
    assert same < CASES / 4, "on this table it hardly matters which of them plans"


def test_without_bumps_they_are_one():
    table = stored_cost_table().lower_hull()
    for alive in survivals():
        early, best = schedule(alive, table), global_optimum(alive, table)
        assert value(alive, early, table) == pytest.approx(value(alive, best, table))
