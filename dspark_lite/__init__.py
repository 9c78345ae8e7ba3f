"""dspark-lite: DeepSeek's DSpark, rebuilt piece by piece, on a package small enough to read in an afternoon."""

from .common.about import VERSION as __version__
from .common.errors import CheckpointError, DSparkLiteError, RequestError
from .decoding import Generation, Round, generate, stream
from .models.checkpoints import load_drafter, load_target
from .models.custom_generate import CustomGenerate
from .scheduling import schedule
from .scheduling.calibration import fit_sts
from .scheduling.cost_table import CostTable

__all__ = [
    "CheckpointError",
    "CostTable",
    "CustomGenerate",
    "DSparkLiteError",
    "Generation",
    "Lab",
    "RequestError",
    "Round",
    "__version__",
    "fit_sts",
    "generate",
    "load_drafter",
    "load_target",
    "schedule",
    "setup",
    "stream",
]


def __getattr__(name):
    """`setup` and `Lab` are the course's: a program that only decodes never imports it."""
    if name in ("Lab", "setup"):
        from dspark_lite.course.measure import lab

        return getattr(lab, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
