"""The lab, and what is measured in it: accepted length, speed, latency, thresholds, serving, machines, and what models take of them."""
