"""How the course's checkpoints are made: the target's answers, language models of the tiny world, estimates, recipes."""
