"""dspark-lite: DeepSeek's DSpark, rebuilt piece by piece, on a package small enough to read in an afternoon."""

from .about import VERSION as __version__
from .checkpoints import load_drafter, load_target
from .decoding import Generation, Round, generate
from .errors import CheckpointError, DSparkLiteError, RequestError
from .lab import Lab, setup

__all__ = [
    "CheckpointError",
    "DSparkLiteError",
    "Generation",
    "Lab",
    "RequestError",
    "Round",
    "__version__",
    "generate",
    "load_drafter",
    "load_target",
    "setup",
]
