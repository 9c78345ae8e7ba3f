"""How checkpoints are made: anchors, losses, the target's answers and hidden states, the loop, recipes.

It may import `common`, `world`, `decoding`, `drafters` and `models`.
"""
