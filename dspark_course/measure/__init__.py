"""The lab, and what is measured in it: accepted length, speed, latency, thresholds, serving, quality, machines.

It may import `common`, `decoding`, `drafters`, `scheduling`, `models`, `serving`, `training`, `world` and `making`.
"""
