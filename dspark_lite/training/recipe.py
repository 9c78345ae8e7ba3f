"""What a training is asked for: dataclasses that are checked when a JSON object is read into them."""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

from ..common.errors import DSparkLiteError

# The smallest and the largest number: float32 holds everything computed from them.
ABOVE_ZERO, IN_FLOAT32 = (
    1e-30,
    1e30,
)
# Type, smallest and largest value, and both in words.
Count = Annotated[int, 1, math.inf, "a whole number of at least 1"]
Natural = Annotated[int, 0, math.inf, "a whole number of at least 0"]
# Seeds derived from it still fit torch's 64 bits.
Seed = Annotated[int, 0, 2**32 - 1, "a whole number from 0 to 2^32 - 1"]
NonNegative = Annotated[float, 0.0, IN_FLOAT32, "a number of at least 0, at most 1e30"]
Positive = Annotated[float, ABOVE_ZERO, IN_FLOAT32, "a number above 0, at most 1e30"]
Precision = Literal["float32", "bfloat16", "float16"]
WORDS = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    NoneType: "null",
    object: "anything",
}


def read_fields(kind: type, fields: object, where: str):
    """The instance of a dataclass that a JSON object describes; `where` says in errors whose object it is.

    Raise DSparkLiteError for an unknown or a missing field and for a value of another type, nested ones included.
    """
    if not isinstance(fields, dict):
        raise DSparkLiteError(
            f"{where} is {fields!r}; it must be an object with the fields {', '.join(kind.__dataclass_fields__)}"
        )
    hints = get_type_hints(kind, include_extras=True)
    for name in sorted(fields.keys() - hints.keys()):
        raise DSparkLiteError(
            f"{where} has a field {name!r} that is not known; its fields are {', '.join(hints)}"
        )
    for one in dataclasses.fields(kind):
        if one.name not in fields and one.default is one.default_factory is dataclasses.MISSING:
            raise DSparkLiteError(
                f"{where} has no field {one.name!r}; it must be {says(hints[one.name])}"
            )
    return kind(
        **{name: _value(hints[name], value, f"{where}: {name}") for name, value in fields.items()}
    )


def _value(hint, value, where: str):
    """A JSON value as the type `hint` says."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return read_fields(hint, value, where)
    if origin in (Union, UnionType):
        kinds = [one for one in inner if one is not NoneType]
        if value is None and NoneType in inner:
            return None
        if fitting := [
            one
            for one in kinds
            if len(kinds) == 1 or isinstance(value, getattr(one, "__origin__", one))
        ]:
            return _value(fitting[0], value, where)
    elif hint is object:
        return value
    elif origin is Annotated:
        number = int if inner[0] is int else (int, float)
        if (
            isinstance(value, number)
            and not isinstance(value, bool)
            and inner[1] <= value <= inner[2]
        ):
            return inner[0](value)
    elif origin is Literal and value in inner:
        return value
    elif origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_value(inner[0], one, where) for one in value)
    elif origin is dict and isinstance(value, dict):
        return {
            _value(inner[0], key, where): _value(inner[1], one, f"{where}: {key}")
            for key, one in value.items()
        }
    elif (
        hint is float
        and isinstance(value, (int, float))
        and not isinstance(value, bool)
        and -IN_FLOAT32 <= value <= IN_FLOAT32
    ):
        return float(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    raise DSparkLiteError(f"{where} is {value!r}; it must be {says(hint)}")


def says(hint) -> str:
    """A type in words, for errors."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return "an object with the fields " + ", ".join(hint.__dataclass_fields__)
    if origin in (Union, UnionType):
        return " or ".join(map(says, inner))
    if origin is Annotated:
        return inner[3]
    if origin is Literal:
        return ("one of " if len(inner) > 1 else "") + ", ".join(map(repr, inner))
    if origin in (tuple, dict):
        return (
            f"a list, each of it {says(inner[0])}"
            if origin is tuple
            else f"an object of names, each with {says(inner[1])}"
        )
    return WORDS[hint]


def digest_of(value) -> str:
    """A digest of a value's JSON, with sorted keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Data:
    """The answers that a drafter learns from."""

    prompts: Count | dict[str, Natural]  # of a data set, or of each domain of the tiny world
    seed: Seed  # of the prompts and of the answers' draws
    max_new_tokens: Count  # longest answer
    dataset: str | None = None  # a Hub id, or a file or folder of JSON lines
    split: str | None = None
    max_length: Count | None = None  # tokens of a prompt and its answer, at most
    temperature: NonNegative = 1.0
    top_k: Natural = 0  # candidates of a draw, at most; 0: all
    top_p: Annotated[float, ABOVE_ZERO, 1.0, "a number above 0, at most 1"] = 1.0
    enable_thinking: bool = False  # whether the target may think before it answers
    held_out: Natural = 0  # the last answers, which are judged by and never learned from
    chunk: Count | None = None  # answers between two saves


@dataclass(frozen=True)
class LossWeights:
    """The factors of a block drafter's losses (paper, equation 12) and how they come in; the losses of chains have none."""

    cross_entropy: NonNegative = 0.1
    l1: NonNegative = 0.9
    confidence: NonNegative = 1.0
    acceptance: NonNegative | None = None  # of direct acceptance (blocks.py); None: not computed
    cross_entropy_first: NonNegative = 0.0  # share of the progress with cross-entropy alone
    position_decay: Positive | None = (
        None  # of the position weights; None: the draft length, as in the paper
    )


@dataclass(frozen=True)
class DraftShape:
    """A drafter's shape; what is not given is the target's, or nothing where the kind of drafter has no such part. What another kind
    has alone is passed over, as a recipe may extend one of that kind."""

    num_hidden_layers: Count
    target_layer_ids: tuple[int, ...]  # the taps
    drafter: Literal["block", "eagle3", "mtp"] = "block"
    block_size: Count | None = None  # draft length
    mask_token_id: int | None = None
    num_anchors: Count | None = None  # blocks of a row, at most; None: as many as there are
    markov_rank: Natural | None = None  # 0: no sequential head
    markov_head_type: str | None = None
    enable_confidence_head: bool | None = None
    confidence_head_with_markov: bool | None = None
    sample_from_anchor: bool | None = None
    ttt_length: Count | None = None  # passes of Eagle3, in training and at most when drafting
    step_loss_decay: float | None = (
        None  # weight of each of its passes' losses, of that of the one before
    )
    intermediate_size: Count | None = None
    num_attention_heads: Count | None = None
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None

    def given(self) -> dict:
        """The fields that have a value."""
        return {name: value for name, value in vars(self).items() if value is not None}


@dataclass(frozen=True)
class DraftRecipe:
    """The training of a drafter."""

    name: str
    seed: Seed  # of weights, batches and anchors
    epochs: Count  # passes over the answers; with `patience` at most
    batch: Count  # answers an update
    learning_rate: NonNegative  # AdamW's, at its peak
    precision: Precision  # of the matrix products
    config: DraftShape
    kind: Literal["draft"] = "draft"
    target: str | None = (
        None  # an embedded checkpoint, a folder or a Hub id; None only where hidden states are handed over
    )
    data: Data | None = None  # None only where hidden states are handed over
    loss: LossWeights = field(default_factory=LossWeights)  # of block drafters
    matrix_rate: NonNegative | None = (
        None  # Muon's for the layers' matrices, at its peak; None: AdamW moves them, too
    )
    steps: Count | None = None  # updates, at most
    patience: float | None = (
        None  # ends the training where a further pass lowers the loss held out by a smaller share (drafts.py)
    )
    initialisation: Literal["width"] | None = (
        None  # deviations that a width asks for (drafts.py); None: the target's
    )
    initial: str | None = None  # a checkpoint to begin from, which may have another draft length
    trained: Literal["heads"] | None = None  # what is trained of `initial`; None: everything
    features: Literal["cached", "online"] = (
        "cached"  # hidden states on the disk, or computed anew for each batch
    )
    cached_layer_ids: tuple[int, ...] | None = (
        None  # taps of the cache, where another recipe's is to be shared
    )
    evaluate: Count | None = (
        None  # held-out prompts a domain to measure the accepted length on after the training
    )
    mean_tokens: Count | None = None  # of a prompt and its answer, for estimates
    target_config: dict[str, object] | None = (
        None  # the target's config.json, for estimates without a download
    )
    published_cache_bytes: Positive | None = (
        None  # what the publisher says of the cache, for estimates
    )

    @classmethod
    def of(cls, fields: "DraftRecipe | dict") -> "DraftRecipe":
        """A recipe, or one from the fields of its JSON object."""
        return (
            fields
            if isinstance(fields, cls)
            else read_fields(cls, fields, f"recipe {fields.get('name', 'without a name')}")
        )

    @property
    def digest(self) -> str:
        """What tells this recipe from a changed one of its name."""
        return digest_of(dataclasses.asdict(self))
