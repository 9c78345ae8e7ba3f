"""The fast path: the same rounds in fixed shapes, each part one compiled pass.

At batch 1 a round is thousands of small operations, and calling them costs more than computing
them. So each part is compiled once and called as a whole; with CUDA it is one captured graph. For
this, keys and values are in storage that never moves (static_context.py), a verification always has
gamma + 1 slots, the last ones perhaps padding, and random numbers are drawn before a pass. The fast
path compiles the target's and the drafter's own code. Above temperature 0 both paths draw the same
random numbers in the same order, so they write the same tokens, up to ties that rounding decides.
"""

from .path import fast_path

__all__ = ["fast_path"]
