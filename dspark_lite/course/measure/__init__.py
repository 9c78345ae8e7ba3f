"""The lab and its measurements: accepted length, speed, latency, thresholds, serving, quality, machines and the memory of models."""
