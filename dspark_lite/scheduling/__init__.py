"""Confidence and the scheduler: policies with Algorithm 1 among them, cost tables, calibration."""

from .policies import (
    LAG,
    LaggedTopK,
    algorithm1,
    fixed,
    global_optimum,
    retrospective,
    schedule,
    survival,
    threshold,
    throughput,
    top_k,
)

__all__ = [
    "LAG",
    "LaggedTopK",
    "algorithm1",
    "fixed",
    "global_optimum",
    "retrospective",
    "schedule",
    "survival",
    "threshold",
    "throughput",
    "top_k",
]
