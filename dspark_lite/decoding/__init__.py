"""Speculative decoding: rounds of drafting, scheduling, verifying, accepting and committing.

Begin with rounds.py: `generate` is its loop. docs/house.md names what to read after it. lockstep.py
and rows.py are for several requests at once.
"""

from .answer import Generation, Round
from .lockstep import generate_together, stream, stream_text
from .rounds import generate

__all__ = ["Generation", "Round", "generate", "generate_together", "stream", "stream_text"]
