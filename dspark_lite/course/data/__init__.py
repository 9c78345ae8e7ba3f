"""The checkpoints of the course: recipes, answers of the target, language models, estimates."""
