"""The course around the system: its miniature world, its laboratory, the paper beside it, figures and exercises."""
