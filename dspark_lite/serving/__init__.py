"""Many requests at once: the engine with its slots, the traffic that drives it, and a simulator of it."""
