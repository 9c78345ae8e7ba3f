"""The exceptions that wrong input raises, and hints at what was meant."""

from collections.abc import Iterable
from difflib import get_close_matches


class DSparkLiteError(Exception):
    """Wrong input. The message is one sentence: the fault, and a remedy."""


class CheckpointError(DSparkLiteError):
    """A checkpoint that is missing, damaged, or made for another target."""


class RequestError(DSparkLiteError):
    """A request that cannot be decoded: its prompt, temperature or draft length is out of range."""


def near_miss(name: str, names: Iterable[str]) -> str:
    """Return "; did you mean X?" for the most similar of `names`, or "" if none is."""
    near = get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]}?" if near else ""
