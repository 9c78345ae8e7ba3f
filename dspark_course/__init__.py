"""The course around dspark_lite: its miniature world, its laboratory, the paper beside it, figures and exercises."""
