"""The models of the released profile by their shapes alone: bytes of files, of weights, of what a
request adds.

Nothing is downloaded: shapes come from assets/reference (the drafts' as DeepSeek published them,
the language models' and the sizes of their files as Qwen did), and modules are built without
numbers (the meta device). All sizes are in bytes, of 16-bit weights.
"""

from functools import cache
from types import SimpleNamespace

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from ...common.errors import DSparkLiteError
from ...common.fingerprint import module_of
from ...decoding.target import Target
from ...drafters import SmallLM
from ...models.draft_config import DRAFTS, parse_draft_config
from ...models.weights import kv_bytes, memory_bytes
from ..names import PROFILES
from ..result_files import reference

# role: Hub id
RELEASED_MODELS = {role: name for role, name in PROFILES["released"].items() if "/" in name}
RELEASED_DRAFTERS = tuple(role for role in RELEASED_MODELS if role != "target")
ITEM = 2  # bytes of a 16-bit number
FLOAT = 4
PROMPT_TOKENS = 1024  # tokens of a prompt that must fit beside the weights
NARROW = {
    "vocab_size": 64,
    "mask_token_id": 63,
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "markov_rank": 4,
}
CUDA = int(0.5e9)  # what CUDA and its libraries take on the device by themselves, about
T4 = int(15e9)  # what a T4 has for all of it


def is_language_model(role: str) -> bool:
    """Return whether a model of the profile ("target", "small_lm") is a Qwen3 by itself and no
    draft."""
    return RELEASED_MODELS.get(role) in reference("released_targets.json")


def config(role: str) -> dict:
    """Return the config.json of a model of the released profile, as far as shapes depend on it."""
    if role not in RELEASED_MODELS:
        raise DSparkLiteError(
            f"there is no {role!r} in the released profile; its models are {', '.join(RELEASED_MODELS)}"
        )
    file = "released_targets.json" if is_language_model(role) else "released_manifest.json"
    return reference(file)[RELEASED_MODELS[role]]["config"]


def build(role: str, shape: dict):
    """Return a model of this config: a Target for "target", else a drafter, with whatever numbers
    torch begins with."""
    architecture = shape["architectures"][0]
    if architecture in DRAFTS:
        kind = DRAFTS[architecture]
        return kind(parse_draft_config(kind, shape)).eval().requires_grad_(False)
    language_model = Qwen3ForCausalLM(Qwen3Config(**shape)).requires_grad_(False)
    language_model.tie_weights()  # transformers 5.0 ties only what it loads
    model = Target(language_model, name=RELEASED_MODELS[role])
    return model if role == "target" else SmallLM(model)


@cache
def module(role: str):
    """Return a model of the released profile in 16 bit, with shapes and no numbers."""
    with torch.device("meta"):
        model = build(role, config(role))
    module_of(model).bfloat16()
    return model


def narrow_config(role: str) -> dict:
    """Return the config of a model of the released profile, as narrow as can be and as deep as the
    real one: it asks for the same operations on smaller tensors."""
    shape = config(role)
    return shape | {name: value for name, value in NARROW.items() if shape.get(name)}


def parameter_count(model) -> int:
    """Return numbers in a target or a drafter, each once, however many places share it."""
    return sum(parameter.numel() for parameter in module_of(model).parameters())


def file_bytes(role: str) -> int:
    """Return bytes of a model's weights on the Hub; Qwen3-0.6B stores its LM head beside the
    embedding that it equals."""
    if is_language_model(role):
        return reference("released_targets.json")[RELEASED_MODELS[role]]["file_bytes"]
    return ITEM * parameter_count(module(role))


def weight_bytes(role: str) -> int:
    """Return the bytes of a model's weights in memory, alone."""
    return ITEM * parameter_count(module(role))


def keys_values(role: str, tokens: int) -> int:
    """Return bytes of the keys and values of `tokens` tokens; a draft's buffer doubles as it grows,
    and may be half empty."""
    return (
        kv_bytes(SimpleNamespace(**config(role)), ITEM)
        * tokens
        * (1 if is_language_model(role) else 2)
    )


def activations(role: str | None, tokens: int) -> int:
    """Return bytes at most of what a pass over `tokens` tokens and a verified block of the
    drafter's hold meanwhile, about.

    With taps, transformers keeps every layer's hidden states of the prompt; three copies of the
    widest layer, and of each position of a block logits in 16 bit, logits, probabilities and
    residual in float32.
    """
    target = config("target")
    hidden, inner, vocabulary = (
        target[name] for name in ("hidden_size", "intermediate_size", "vocab_size")
    )
    taps, gamma = (len(module(role).taps), module(role).gamma) if role else (0, 0)
    states = (target["num_hidden_layers"] + 1 + 2 * taps if taps else 2) * hidden
    return ITEM * tokens * (states + 3 * inner) + (2 * gamma + 1) * vocabulary * (ITEM + 3 * FLOAT)


def memory(role: str | None, tokens: int = PROMPT_TOKENS) -> dict[str, int]:
    """Return bytes of the target with one drafter (None: alone) and a prompt of `tokens` tokens:
    what `memory_bytes` counts, with the room that drafts' buffers have, and "activations". Raise
    DSparkLiteError for a drafter that the profile does not have."""
    room = sum(keys_values(model, tokens) for model in ("target", role) if model)
    return {
        **memory_bytes(module("target"), module(role) if role else None, tokens),
        "keys and values": room,
        "activations": activations(role, tokens),
    }


def fits(role: str | None, available: float) -> bool:
    """Return whether the target with a drafter and a prompt of PROMPT_TOKENS tokens fits in
    `available` bytes of a GPU, what CUDA takes included."""
    return sum(memory(role).values()) + CUDA <= available
