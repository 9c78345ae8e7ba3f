"""The lab and its measurements: accepted length, speed, latency, thresholds, serving, machines and
the memory of models."""
