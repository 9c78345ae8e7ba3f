"""The corridor that data walks: the target, a drafted block, the rule that accepts it, the rounds of a request."""

from .rounds import Generation, Round, generate, generate_together
from .streaming import stream

__all__ = ["Generation", "Round", "generate", "generate_together", "stream"]
