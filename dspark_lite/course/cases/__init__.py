"""Cases: a silent failure a lesson, to be found with at most three measurements."""

from .showing import case

__all__ = ["case"]
