"""Checkers of the exercises, one file per lesson; each prints one line, returns a bool, and never
raises."""
