"""Checkers of the lessons' exercises, one module a lesson. A checker prints one line, returns a bool, never raises."""
