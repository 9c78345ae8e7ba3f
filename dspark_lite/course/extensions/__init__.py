"""What goes beyond the paper, each behind the system's own protocols: trees, block verification, an estimated confidence, online STS."""
