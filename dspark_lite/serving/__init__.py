"""Serving many requests at once: an engine whose requests share each step.

`Engine` is in engine.py: queue.py decides who runs, runner.py plays the round, slots.py stores the
keys and values. pipeline.py hides the host's work behind the device's.
"""
