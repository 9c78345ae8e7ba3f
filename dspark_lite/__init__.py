"""dspark-lite: DeepSeek's DSpark, speculative decoding with a block drafter, rebuilt piece by piece.

Decode one request with a drafter; the text is the target's own:

    from dspark_lite import generate, load_drafter, load_target

    target = load_target("tiny-target")  # embedded here; a folder or a Hub id elsewhere
    drafter = load_drafter("tiny-dspark", target)
    answer = generate(target, drafter, input_ids, max_new_tokens=64)  # input_ids [1, n]
    answer.token_ids, answer.accepted_length

In transformers' own `generate`, for any causal model with a cache of keys and values:

    model.generate(**inputs, custom_generate=CustomGenerate("prompt_lookup", model))

Text as it is written, a piece a round:

    for piece in stream_text(target, drafter, "Once upon a time", max_new_tokens=64):
        print(piece, end="", flush=True)

Many requests at once, each with its own temperature, top-p, stop tokens and drafts:

    engine = Engine(target, drafter, slots=8, capacity=2048)
    answers = engine.generate(["One prompt", "Another"], max_new_tokens=64, temperature=0.7)
    answers[0].text, engine.acceptance.by_position

With a policy, such as `algorithm1(CostTable(batch_tokens, steps_per_second))`, as much of each
block is verified as pays. `async for piece in engine.stream(prompt)` is for servers.

A drafter for a model of your own is trained by `dspark-lite train --target MODEL --data FILE`.

The lessons begin with `lab = dspark_lite.setup()`. `python -m dspark_lite` lists the commands.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .common.about import VERSION as __version__
from .common.errors import near_miss

if TYPE_CHECKING:
    from .common.errors import CheckpointError, DSparkLiteError, RequestError
    from .course.measure.lab import Lab, setup
    from .custom_generate.custom_generate import CustomGenerate
    from .decoding.answer import Acceptance, Generation, Round
    from .decoding.lockstep import stream, stream_text
    from .decoding.proposal import Drafter
    from .decoding.rounds import generate
    from .decoding.target import Target
    from .drafters import MTP, DSpark, Eagle3, PromptLookup
    from .fast import fast_path
    from .models.checkpoints import load_drafter, load_target
    from .scheduling.calibration import fit_sts
    from .scheduling.cost_table import CostTable
    from .scheduling.policies import LaggedTopK, algorithm1, fixed, schedule, threshold
    from .serving.engine import Engine
    from .serving.requests import Answer, Request

# Where each public name is found. `setup` and `Lab` are the course's, which a program that only
# decodes never imports.
PLACES = {
    "Acceptance": ".decoding.answer",
    "Answer": ".serving.requests",
    "CheckpointError": ".common.errors",
    "CostTable": ".scheduling.cost_table",
    "CustomGenerate": ".custom_generate.custom_generate",
    "DSparkLiteError": ".common.errors",
    "DSpark": ".drafters",
    "Drafter": ".decoding.proposal",
    "Eagle3": ".drafters",
    "Engine": ".serving.engine",
    "Generation": ".decoding.answer",
    "Lab": ".course.measure.lab",
    "LaggedTopK": ".scheduling.policies",
    "MTP": ".drafters",
    "PromptLookup": ".drafters",
    "Request": ".serving.requests",
    "RequestError": ".common.errors",
    "Round": ".decoding.answer",
    "Target": ".decoding.target",
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
    "stream_text": ".decoding.lockstep",
    "threshold": ".scheduling.policies",
}
__all__ = [
    "Acceptance",
    "Answer",
    "CheckpointError",
    "CostTable",
    "CustomGenerate",
    "DSpark",
    "DSparkLiteError",
    "Drafter",
    "Eagle3",
    "Engine",
    "Generation",
    "Lab",
    "LaggedTopK",
    "MTP",
    "PromptLookup",
    "Request",
    "RequestError",
    "Round",
    "Target",
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
    "stream_text",
    "threshold",
]


if not TYPE_CHECKING:  # a checker reads the imports above, and finds a name that is misspelt

    def __getattr__(name: str) -> object:
        """Import a public name when it is first asked for: torch and transformers take seconds."""
        if name not in PLACES:
            hint = near_miss(name, PLACES)
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
        return getattr(import_module(PLACES[name], __name__), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
