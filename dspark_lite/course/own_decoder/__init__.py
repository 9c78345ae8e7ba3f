"""A decoder of the reader's own: the file my_dspark.py, the rule and the engine that it needs, and the judge of it."""
