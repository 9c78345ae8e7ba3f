"""The race that ends a lesson: plain decoding, the course's drafters so far, and the reader's own decoder."""

from .running import race

__all__ = ["race"]
