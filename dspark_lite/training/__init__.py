"""How a drafter is trained: anchors, the target's hidden states, losses, recipes, the loop."""
