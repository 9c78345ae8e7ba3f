"""How a drafter is trained: anchors, the target's hidden states, losses, optimisers, the loop, many processes."""
