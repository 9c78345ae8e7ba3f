"""dspark-lite: DeepSeek's DSpark, speculative decoding with a block drafter, rebuilt piece by piece.

Decode one request with a drafter; the text is the target's own:

    from dspark_lite import generate, load_drafter, load_target

    target = load_target("tiny-target")  # embedded here; a folder or a Hub id elsewhere
    drafter = load_drafter("tiny-dspark", target)
    answer = generate(target, drafter, input_ids, max_new_tokens=64)  # input_ids [1, n]
    answer.token_ids, answer.accepted_length

In transformers' own `generate`, for any causal model with a cache of keys and values:

    model.generate(**inputs, custom_generate=CustomGenerate("prompt_lookup", model))

Many requests at once, with as much of each block verified as pays: `Engine`, `Request`, and a
policy, such as `algorithm1(CostTable(batch_tokens, steps_per_second))`.

The lessons begin with `lab = dspark_lite.setup()`. `python -m dspark_lite` lists the commands.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .common.about import VERSION as __version__

if TYPE_CHECKING:
    from .common.errors import CheckpointError, DSparkLiteError, RequestError
    from .course.measure.lab import Lab, setup
    from .custom_generate.custom_generate import CustomGenerate
    from .decoding.answer import Generation, Round
    from .decoding.lockstep import stream
    from .decoding.rounds import generate
    from .fast import fast_path
    from .models.checkpoints import load_drafter, load_target
    from .scheduling.policies import LaggedTopK, algorithm1, fixed, schedule, threshold
    from .scheduling.calibration import fit_sts
    from .scheduling.cost_table import CostTable
    from .serving.engine import Engine, Request

# Where each public name is found. `setup` and `Lab` are the course's, which a program that only
# decodes never imports.
PLACES = {
    "CheckpointError": ".common.errors",
    "CostTable": ".scheduling.cost_table",
    "CustomGenerate": ".custom_generate.custom_generate",
    "DSparkLiteError": ".common.errors",
    "Engine": ".serving.engine",
    "Generation": ".decoding.answer",
    "Lab": ".course.measure.lab",
    "LaggedTopK": ".scheduling.policies",
    "Request": ".serving.engine",
    "RequestError": ".common.errors",
    "Round": ".decoding.answer",
    "algorithm1": ".scheduling.policies",
    "fast_path": ".fast",
    "fit_sts": ".scheduling.calibration",
    "fixed": ".scheduling.policies",
    "generate": ".decoding.rounds",
    "load_drafter": ".models.checkpoints",
    "load_target": ".models.checkpoints",
    "schedule": ".scheduling.policies",
    "setup": ".course.measure.lab",
    "stream": ".decoding.lockstep",
    "threshold": ".scheduling.policies",
}
__all__ = [
    "CheckpointError",
    "CostTable",
    "CustomGenerate",
    "DSparkLiteError",
    "Engine",
    "Generation",
    "Lab",
    "LaggedTopK",
    "Request",
    "RequestError",
    "Round",
    "__version__",
    "algorithm1",
    "fast_path",
    "fit_sts",
    "fixed",
    "generate",
    "load_drafter",
    "load_target",
    "schedule",
    "setup",
    "stream",
    "threshold",
]


def __getattr__(name: str):
    """Import a public name when it is first asked for: torch and transformers take seconds."""
    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PLACES[name], __name__), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
