"""Fixtures of more than one test file."""

from made_measurements import all_made, made  # noqa: F401
