"""Cases: a silent failure a lesson, to be found with at most three measurements."""

from .case import case

__all__ = ["case"]
