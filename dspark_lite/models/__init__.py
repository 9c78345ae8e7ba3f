"""Loading and saving targets and drafters, here and on the Hub, and handing drafts to engines.

`load_target` and `load_drafter` are in checkpoints.py.
"""
