"""Decoding: one round of drafting and verifying, and answers made of rounds."""

from .answer import Generation, Round
from .rounds import generate
from .lockstep import generate_together, stream

__all__ = ["Generation", "Round", "generate", "generate_together", "stream"]
