"""Where the project lives and which version this is; badges and setup cells are generated from it."""

REPOSITORY = "dspark-lite/dspark-lite"
VERSION = "0.1.0"


def repository_url() -> str:
    """Return the address that `git clone` takes."""
    return f"https://github.com/{REPOSITORY}"


def colab_url(path: str) -> str:
    """Return the address that opens the notebook at `path` (relative to the repository root) in Colab."""
    return f"https://colab.research.google.com/github/{REPOSITORY}/blob/main/{path}"
