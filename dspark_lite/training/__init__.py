"""The training of drafters: recipes, hidden states, batches and losses, and the loop."""
