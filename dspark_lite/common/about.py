"""Where the project lives and which version this is; badges and setup cells are generated from it."""

REPOSITORY = "dspark-lite/dspark-lite"
VERSION = "0.1.0"
TAG = ""  # of an instructor's edition: the tag or branch that its badges and setup cells lead to
