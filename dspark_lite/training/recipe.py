"""Recipes: the dataclasses that describe a training, and the reader that checks a JSON object
against them."""

import dataclasses
import math
from dataclasses import dataclass, field
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin, get_type_hints

from ..common.errors import DSparkLiteError, near_miss
from ..common.fingerprint import json_digest

# Between these two, float32 holds every number that is computed from a field.
SMALLEST, LARGEST = 1e-30, 1e30
# A type, the smallest and the largest value, and all three in words for errors.
Count = Annotated[int, 1, math.inf, "a whole number of at least 1"]
Natural = Annotated[int, 0, math.inf, "a whole number of at least 0"]
# A product of a seed with 1,000,003 fits torch's 64 bits.
Seed = Annotated[int, 0, 2**32 - 1, "a whole number from 0 to 2^32 - 1"]
NonNegative = Annotated[float, 0.0, LARGEST, "a number of at least 0, at most 1e30"]
Positive = Annotated[float, SMALLEST, LARGEST, "a number above 0, at most 1e30"]
Share = Annotated[float, SMALLEST, 1.0, "a number above 0, at most 1"]
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
    """Return the dataclass `kind` with the values of a JSON object. `where` names the object in
    errors.

    Raise DSparkLiteError for an unknown field, a missing field, and a value of another type, in
    inner objects too.
    """
    if not isinstance(fields, dict):
        raise DSparkLiteError(
            f"{where} is {fields!r}; it must be an object with the fields {', '.join(kind.__dataclass_fields__)}"
        )
    hints = get_type_hints(kind, include_extras=True)
    for name in sorted(fields.keys() - hints.keys()):
        raise DSparkLiteError(
            f"{where} has a field {name!r} that is not known; its fields are {', '.join(hints)}"
            + near_miss(name, hints)
        )
    for known in dataclasses.fields(kind):
        required = known.default is known.default_factory is dataclasses.MISSING
        if required and known.name not in fields:
            raise DSparkLiteError(
                f"{where} has no field {known.name!r}; it must be {in_words(hints[known.name])}"
            )
    return kind(
        **{name: _read(hints[name], value, f"{where}: {name}") for name, value in fields.items()}
    )


def _read(hint, value, where: str):
    """Return a JSON value as the type `hint`. Raise DSparkLiteError if it has another type."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return read_fields(hint, value, where)
    if origin in (Union, UnionType):
        kinds = [kind for kind in inner if kind is not NoneType]
        if value is None and NoneType in inner:
            return None
        for kind in kinds:
            if len(kinds) == 1 or isinstance(value, getattr(kind, "__origin__", kind)):
                return _read(kind, value, where)
    elif hint is object:
        return value
    elif origin is Annotated:
        if _is_number(value, inner[0]) and inner[1] <= value <= inner[2]:
            return inner[0](value)
    elif origin is Literal and value in inner:
        return value
    elif origin is tuple and isinstance(value, (list, tuple)):
        return tuple(_read(inner[0], item, where) for item in value)
    elif origin is dict and isinstance(value, dict):
        return {
            _read(inner[0], key, where): _read(inner[1], item, f"{where}: {key}")
            for key, item in value.items()
        }
    elif hint is float and _is_number(value, float) and -LARGEST <= value <= LARGEST:
        return float(value)
    elif hint in (int, str, bool) and type(value) is hint:
        return value
    raise DSparkLiteError(f"{where} is {value!r}; it must be {in_words(hint)}")


def _is_number(value, kind: type) -> bool:
    """Return whether a JSON value is a number of this kind: an int is also a float, a bool is
    neither."""
    kinds = int if kind is int else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool)


def in_words(hint) -> str:
    """Return the type of a field in words, for errors."""
    origin, inner = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return "an object with the fields " + ", ".join(hint.__dataclass_fields__)
    if origin in (Union, UnionType):
        return " or ".join(map(in_words, inner))
    if origin is Annotated:
        return inner[3]
    if origin is Literal:
        return ("one of " if len(inner) > 1 else "") + ", ".join(map(repr, inner))
    if origin is tuple:
        return f"a list, each of it {in_words(inner[0])}"
    if origin is dict:
        return f"an object of names, each with {in_words(inner[1])}"
    return WORDS[hint]


def without_nones(fields) -> dict:
    """Return the fields of a dataclass that are not None, by name. Inner dataclasses become dicts,
    too."""
    return dataclasses.asdict(
        fields,
        dict_factory=lambda items: {name: value for name, value in items if value is not None},
    )


@dataclass(frozen=True)
class Data:
    """The prompts of a training, and how the target answers them."""

    prompts: Count | dict[str, Natural]  # of a data set, or of each domain of the tiny world
    seed: Seed  # of the prompts and of the answers' draws
    max_new_tokens: Count  # longest answer
    dataset: str | None = None  # a Hub id, a folder, or a file of JSON lines or plain text
    split: str | None = None  # of a data set; None: "train"
    turns: Literal["first", "all"] = "first"  # of a conversation, that the target answers
    # Tokens of a prompt and its answer, at most; None: prompts.py chooses.
    max_length: Count | None = None
    temperature: NonNegative = 1.0  # 0: greedy
    top_k: Natural = 0  # candidates of a draw, at most; 0: all
    top_p: Share = 1.0  # probability of a draw's candidates, at most
    enable_thinking: bool = False  # whether the target may think before it answers
    held_out: Natural = 0  # the last answers: they measure the loss and train nothing
    chunk: Count | None = None  # answers between two saves; None: answers.py chooses

    source_fields = None  # the JSON object that these values were read from, where there is one

    @property
    def count(self) -> int:
        """Return the number of prompts."""
        return self.prompts if isinstance(self.prompts, int) else sum(self.prompts.values())

    @property
    def digest(self) -> str:
        """Return eight hexadecimal digits that name the folder of these answers.

        They hash the JSON as written, without defaults, so stored answers keep their names when a
        default is added.
        """
        return json_digest(self.source_fields or dataclasses.asdict(self))[:8]


@dataclass(frozen=True)
class LossWeights:
    """The factors of a block drafter's losses (paper, equation 12). Chains have one loss and ignore
    them."""

    cross_entropy: NonNegative = 0.1
    l1: NonNegative = 0.9
    confidence: NonNegative = 1.0
    acceptance: NonNegative | None = None  # of direct acceptance (blocks.py); None: not computed
    cross_entropy_first: NonNegative = 0.0  # share of the progress with cross-entropy alone
    position_decay: Positive | None = None  # positions; None: the draft length, as in the paper


@dataclass(frozen=True)
class DraftShape:
    """The shape of a drafter.

    A size that is None is the target's. A part that is None is left out. A kind of drafter ignores
    the fields of other kinds, because a recipe may extend a recipe of another kind.
    """

    num_hidden_layers: Count
    target_layer_ids: tuple[int, ...] | None = None  # the taps; None: evenly spaced (drafts.py)
    drafter: Literal["block", "eagle3", "mtp"] = "block"
    block_size: Count | None = None  # draft length
    mask_token_id: int | None = None  # None: a token that the target never writes (drafts.py)
    num_anchors: Count | None = None  # blocks of a row, at most; None: all anchors of the row
    markov_rank: Natural | None = None  # 0: no sequential head
    markov_head_type: str | None = None
    enable_confidence_head: bool | None = None
    confidence_head_with_markov: bool | None = None
    sample_from_anchor: bool | None = None
    # Ids that it chooses among: the most frequent of the answers that it learns from. None: all.
    draft_vocab_size: Count | None = None
    # Passes of Eagle3 and MTP, in training and at most when drafting. None: MTP's one.
    ttt_length: Count | None = None
    step_loss_decay: float | None = (
        None  # of Eagle3 and MTP: a pass weighs this share of the one before
    )
    intermediate_size: Count | None = None
    num_attention_heads: Count | None = None
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None


# Fields that recipes did not have at first, and their values if a recipe does not set them.
LATER_FIELDS = {
    "data.enable_thinking": False,
    "data.turns": "first",
    "micro_batch": None,
    "config.draft_vocab_size": None,
}


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
    # Answers of an update whose gradients are computed at once; None: all of its `batch`.
    micro_batch: Count | None = None
    kind: Literal["draft"] = "draft"
    # An embedded checkpoint, a folder or a Hub id. None only where the caller has hidden states.
    target: str | None = None
    data: Data | None = None  # None only where the caller has hidden states
    loss: LossWeights = field(default_factory=LossWeights)
    # Muon's for the layers' matrices, at its peak. None: AdamW moves them, too.
    matrix_rate: NonNegative | None = None
    steps: Count | None = None  # updates, at most
    # Training ends after a pass that lowers the held-out loss by a smaller share (train.py).
    patience: float | None = None
    # "width": deviations that follow the layers' widths (drafts.py). None: the target's deviation.
    initialisation: Literal["width"] | None = None
    initial: str | None = None  # a checkpoint to start from; its draft length may differ
    trained: Literal["heads"] | None = None  # the part of `initial` to train; None: everything
    # Hidden states on the disk, or computed anew for each batch.
    features: Literal["cached", "online"] = "cached"
    # The cache's taps, to share the cache of another recipe. None: the drafter's.
    cached_layer_ids: tuple[int, ...] | None = None
    # Held-out prompts a domain for the accepted length after the training. None: not measured.
    evaluate: Count | None = None
    mean_tokens: Count | None = None  # of a prompt and its answer, for estimates
    # The target's config.json, for estimates without a download.
    target_config: dict[str, object] | None = None
    published_cache_bytes: Positive | None = None  # the publisher's cache, for estimates

    @property
    def digest(self) -> str:
        """Return 16 hexadecimal digits that differ from those of a changed recipe of this name.

        A field of LATER_FIELDS counts only if it is set: stored trainings are older than the field.
        """
        fields = dataclasses.asdict(self)
        for name, unset in LATER_FIELDS.items():
            *outer, last = name.split(".")
            inside = fields
            for part in outer:
                inside = inside[part] or {}
            if inside.get(last) == unset:
                inside.pop(last, None)
        return json_digest(fields)

    @property
    def cached_taps(self) -> tuple[int, ...]:
        """Return the target's layers whose outputs the cache holds."""
        return self.cached_layer_ids or self.config.target_layer_ids
