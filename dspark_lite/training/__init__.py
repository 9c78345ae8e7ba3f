"""Training a drafter on the target's own answers.

A recipe (recipe.py) says what to train. cache.py stores the target's hidden states, drafts.py makes
the drafter, blocks.py and chains.py have the losses, and train.py runs the updates.
"""
