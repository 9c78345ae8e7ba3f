"""The lab, and what is measured in it: accepted length, speed, latency, thresholds, serving, quality, machines.

It may import `common`, `world`, `decoding`, `drafters`, `scheduling`, `models`, `serving` and `training`.
"""
