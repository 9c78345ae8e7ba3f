"""dspark-lite: DeepSeek's DSpark, rebuilt piece by piece, on a package small enough to read in an afternoon."""

import sys

from .common.about import VERSION as __version__
from .common.errors import CheckpointError, DSparkLiteError, RequestError
from .common.supported import check_versions

check_versions()  # before what it imports fails in its own words

from .decoding import Generation, Round, generate, stream  # noqa: E402
from .models.checkpoints import load_drafter, load_target  # noqa: E402
from .models.custom_generate import CustomGenerate  # noqa: E402
from .scheduling import calibration, cost_table  # noqa: E402

# Other programs import these two by the names without their room, as os.path is found under its.
sys.modules[f"{__name__}.calibration"], sys.modules[f"{__name__}.cost_table"] = calibration, cost_table

__all__ = [
    "CheckpointError",
    "CustomGenerate",
    "DSparkLiteError",
    "Generation",
    "Lab",
    "RequestError",
    "Round",
    "__version__",
    "calibration",
    "cost_table",
    "generate",
    "load_drafter",
    "load_target",
    "setup",
    "stream",
]


def __getattr__(name):
    """`setup` and `Lab` are the course's: a program that only decodes never imports it."""
    if name in ("Lab", "setup"):
        from dspark_course.measure import lab

        return getattr(lab, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
