"""The proof: exact output distributions by enumeration, chi-square tests, ties, parity with reference tensors.

It may import `common`, `decoding`, `drafters`, `scheduling`, `models` and `training`.
"""

from .enumeration import find_violation, joint_distribution, marginal, outcomes, output_distribution, total_variation

__all__ = ["find_violation", "joint_distribution", "marginal", "outcomes", "output_distribution", "total_variation"]
