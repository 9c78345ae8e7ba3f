"""The repository and the version. Badges and setup cells are generated from them."""

REPOSITORY = "dspark-lite/dspark-lite"
VERSION = "0.1.0"
TAG = ""  # the tag or branch of an instructor's edition, for its badges and setup cells
