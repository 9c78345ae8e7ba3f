"""Many requests at once: the engine with its slots, and a pipeline that hides the host."""
