"""The proof of losslessness: exact output distributions, ties, parity with reference tensors."""

from .enumeration import (
    find_violation,
    joint_distribution,
    marginal,
    outcomes,
    output_distribution,
    total_variation,
)

__all__ = [
    "find_violation",
    "joint_distribution",
    "marginal",
    "outcomes",
    "output_distribution",
    "total_variation",
]
