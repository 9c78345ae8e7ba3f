"""Measurements for the lessons: each script writes a file below assets/measurements."""
