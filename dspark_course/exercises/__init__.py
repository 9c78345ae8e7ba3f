"""Checkers of the exercises, one file per lesson; each prints one line, returns a bool, and never raises.

They may import `common`, `decoding`, `drafters`, `scheduling`, `models`, `serving` and `losslessness`.
"""
