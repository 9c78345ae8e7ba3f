"""Speculative decoding: rounds of drafting, scheduling, verifying, accepting and committing.

Begin with rounds.py: `generate` is its loop. sequence.py has the five parts of a round, sampling.py
the accept rule, proposal.py what a drafter and a policy are.
"""

from .answer import Generation, Round
from .rounds import generate
from .lockstep import generate_together, stream

__all__ = ["Generation", "Round", "generate", "generate_together", "stream"]
