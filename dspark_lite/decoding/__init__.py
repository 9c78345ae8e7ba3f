"""The corridor that data walks: the target, a drafted block, the rule that accepts it, the rounds of a request."""

from .rounds import Generation, Round, generate, generate_together, stream

__all__ = ["Generation", "Round", "generate", "generate_together", "stream"]
