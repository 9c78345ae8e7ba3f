"""One prompt of the tiny world, its reference answer, and what a right answer must show."""

import hashlib
from dataclasses import dataclass

HELD_OUT_SHARE = 20  # one prompt in twenty is held out


@dataclass(frozen=True)
class Example:
    """A prompt and its reference answer.

    `check` is the final number for math, [name, [[arguments, result], ...]] for code, and the facts that have to be
    found in the answer for chat.
    """

    domain: str
    prompt: str
    answer: str
    check: object = None


def is_held_out(prompt: str) -> bool:
    """Whether the prompt belongs to the held-out part of the tiny world: decided by its hash, whatever the seed."""
    return hashlib.sha256(prompt.encode()).digest()[0] % HELD_OUT_SHARE == 0
