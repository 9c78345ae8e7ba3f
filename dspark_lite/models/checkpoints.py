"""Load and save targets and drafters by embedded name, folder or Hub id.

A checkpoint is safetensors and JSON. Nothing in it is executed.
"""

import json
import sys
import warnings
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError, safe_open

from ..common.devices import named_device
from ..common.errors import CheckpointError, RequestError, near_miss
from ..common.files import data_folder, read_object, write_tensors, write_text
from ..decoding.proposal import Drafter
from ..decoding.target import Target
from ..drafters import MTP, DraftConfig, DSpark, PromptLookup, SmallLM
from ..drafters.layers import Draft
from .draft_forms import PublishedDraft, read_draft
from .draft_weights import added_ids, load_draft, widen_embedding, within_vocabulary
from .hub import download
from .short_vocabulary import shorten, vocabulary_ids
from .weights import target_weights

EMBEDDED = data_folder("checkpoints")
# Multimodal models and their language model, whose tensors have other names there.
TEXT_PARTS = {
    "Gemma4ForConditionalGeneration": "Gemma4ForCausalLM",
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
}
TEXT_NAMES = {
    r"^model\.language_model\.": "model.",
    r"^language_model\.model\.": "model.",
    r"^language_model\.lm_head\.": "lm_head.",
}
# Files by which transformers finds a tokenizer.
TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")
# The errors of transformers for damaged configurations and weights.
LOADING_ERRORS = (
    StrictDataclassError,
    SafetensorError,
    ArithmeticError,
    AttributeError,
    ImportError,
    LookupError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
LOADING_BAR = 2**30  # bytes from which loading a target shows transformers' progress bar
OTHER_HEAD = 0.05  # relative distance from which two LM heads are different weights


def resolve(name: str, fetched=download) -> Path:
    """Return the folder of a checkpoint; for a Hub id, `fetched(name)`.

    Raise CheckpointError if there is none.
    """
    name = str(name)
    if Path(name).name == name and (EMBEDDED / name).is_dir():
        return EMBEDDED / name
    if name and Path(name).is_dir():
        return Path(name)
    if name.partition("@")[0].count("/") == 1 and not name.startswith((".", "/")):
        return fetched(name)
    known = sorted(folder.name for folder in EMBEDDED.glob("*") if folder.is_dir())
    raise CheckpointError(
        f"there is no checkpoint {name!r}: it is neither a folder nor a Hub id (org/name) nor one of the embedded "
        f"{', '.join(known) or 'checkpoints, of which there are none'}{near_miss(name, known)}"
    )


def read_config(folder: Path) -> dict:
    """Return the config.json of a checkpoint. Raise CheckpointError if it is missing or damaged."""
    if not (folder / "config.json").exists():
        raise CheckpointError(
            f"{folder} has no config.json; a checkpoint folder holds config.json and model.safetensors"
        )
    config = read_object(folder / "config.json")
    names = config.get("architectures") or []
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise CheckpointError(
            f"architectures in {folder / 'config.json'} is {names!r}; it is a list of names"
        )
    return config


def architecture_of(config: dict) -> str:
    """Return the first architecture that a config.json names, or "?"."""
    return (config.get("architectures") or ["?"])[0]


def is_language_model(architecture: str) -> bool:
    """Return whether transformers has a causal language model of this architecture."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    return architecture in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values()


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of a checkpoint: one, or the shards of its index.

    Raise CheckpointError if a file is missing or damaged.
    """
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = read_object(index).get("weight_map")
        names = list(shards.values()) if isinstance(shards, dict) else []
        if not names or any(type(name) is not str or Path(name).name != name for name in names):
            raise CheckpointError(
                f"{index} has no weight_map from tensors to files beside it; copy or download it again"
            )
        files = [folder / name for name in sorted(set(names))]
    else:
        files = [folder / "model.safetensors"]
    for path in files:
        _check_file(path)
    return files


def _check_file(path: Path) -> None:
    """Raise CheckpointError if a safetensors file is missing or damaged."""
    if not path.exists():
        pickles = sorted(other.name for other in path.parent.glob("*.bin"))
        raise CheckpointError(
            f"{path} is missing; {pickles[0]} is not read, because a pickle can execute code: convert it to safetensors"
            if pickles
            else f"{path} is missing; copy or download it again"
        )
    try:
        with safe_open(path, "pt") as weights:
            weights.keys()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({error}); copy or download it again"
        ) from None


def load_target(
    name: str | Path,
    *,
    profile: str | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Target:
    """Load a target by embedded name, folder or Hub id.

    `profile` sets the defaults of `device` and `dtype`. "tiny" takes float32 on the CPU; "released"
    takes a GPU if there is one, in the widest 16-bit type that it computes natively. Tensors go to
    the device one by one, each in its final type. From a Gemma 4 with a vision part only the text
    part is loaded, with a warning. Raise CheckpointError for a checkpoint that cannot be loaded,
    RequestError for a device that is not there.
    """
    name = str(name)
    folder = resolve(name)
    architecture = architecture_of(read_config(folder))
    model_class = target_class(name, architecture)
    size = sum(path.stat().st_size for path in weight_files(folder))
    gpu = profile == "released" and torch.cuda.is_available()
    device = named_device(("cuda" if gpu else "cpu") if device is None else device)
    dtype = dtype or default_dtype(device)
    _check_dtype(dtype, device)
    try:
        with _quiet_transformers(bars=size >= LOADING_BAR):
            model, report = model_class.from_pretrained(
                folder,
                dtype=dtype,
                device_map={"": device},
                trust_remote_code=False,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                key_mapping=TEXT_NAMES if architecture in TEXT_PARTS else None,
            )
            tokenizer = load_tokenizer(folder)
    except torch.OutOfMemoryError as error:
        raise _no_room(name) from error
    except LOADING_ERRORS as error:
        raise _unloadable(name, architecture, error) from error
    _check_filled(name, report)
    if tokenizer is not None and len(tokenizer) > model.config.vocab_size:
        raise CheckpointError(
            f"the tokenizer of {name} knows {len(tokenizer)} tokens, its model {model.config.vocab_size}; copy or download "
            "both again"
        )
    return Target(model, tokenizer, name)


def unloaded_target(name: str, config: dict) -> Target:
    """Return a target on the meta device, without weights, from its config.json.

    Raise CheckpointError as `load_target` does for a config that is no target's.
    """
    architecture = architecture_of(config)
    model_class = target_class(name, architecture)
    try:
        with torch.device("meta"):
            model = model_class(model_class.config_class.from_dict(text_config(config)))
    except LOADING_ERRORS as error:
        raise _unloadable(name, architecture, error) from error
    return Target(model, None, name)


def text_config(config: dict) -> dict:
    """Return the config of a model's text part; for a model of text alone, its whole config."""
    return config["text_config"] if architecture_of(config) in TEXT_PARTS else config


def _unloadable(name: str, architecture: str, error: Exception) -> CheckpointError:
    """Return the error for a target that transformers does not load."""
    reason = " ".join(str(error).split())
    return CheckpointError(
        f"{name} does not load as {architecture} ({reason}); copy or download it again"
    )


def target_class(name: str, architecture: str):
    """Return transformers' class of a target. Warn if it is the text part of a multimodal model.

    Raise CheckpointError if the architecture is no target, or if transformers does not have it.
    """
    import transformers

    if not (is_language_model(architecture) or architecture in TEXT_PARTS):
        raise CheckpointError(
            f"{name} is a {architecture}, not a target; targets are causal language models that transformers "
            f"{transformers.__version__} has, such as Qwen3ForCausalLM or LlamaForCausalLM"
        )
    model_class = getattr(transformers, TEXT_PARTS.get(architecture, architecture), None)
    if model_class is None:
        raise CheckpointError(
            f"{name} is a {architecture}, which transformers {transformers.__version__} does not have; install a newer one"
        )
    if architecture in TEXT_PARTS:
        warnings.warn(
            f"{name} also has a vision part; its text part is loaded alone, so it answers text and sees no pictures",
            stacklevel=3,
        )
    return model_class


@contextmanager
def _quiet_transformers(bars: bool):
    """Silence transformers' report of missing weights and, without `bars`, its progress bar.

    We check the weights ourselves. The switch of the bar also switches the Hub client's bars, so it
    stays untouched if either is off.
    """
    from huggingface_hub.utils import are_progress_bars_disabled
    from transformers.utils import logging

    verbosity = logging.get_verbosity()
    hidden = not bars and logging.is_progress_bar_enabled() and not are_progress_bars_disabled()
    logging.set_verbosity_error()
    if hidden:
        logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if hidden:
            logging.enable_progress_bar()


def load_tokenizer(folder: Path):
    """Return the tokenizer of a checkpoint's folder, or None without one.

    Raise ValueError for damaged files.
    """
    from transformers import AutoTokenizer

    if not any((folder / name).exists() for name in TOKENIZER_FILES):
        return None
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises Exception itself
        raise ValueError(f"its tokenizer is damaged: {error}") from error


def _check_filled(name: str, report: dict) -> None:
    """Raise CheckpointError if transformers filled missing weights with random numbers."""
    mismatched = [entry[0] for entry in report["mismatched_keys"]]
    if mismatched or report["missing_keys"]:
        tensor = sorted([*mismatched, *report["missing_keys"]])[0]
        raise CheckpointError(
            f"tensor {tensor} of {name} is missing or has another shape than config.json asks for; copy or download it again"
        )


def _no_room(name: str) -> CheckpointError:
    """Return the error for a model that the memory of the GPU is too small for."""
    return CheckpointError(
        f"{name} does not fit beside what this GPU's memory holds; restart the kernel, end what else runs on the GPU, or "
        "set DSPARK_PROFILE=tiny (python -m dspark_lite doctor says what fits)"
    )


def default_dtype(device: torch.device) -> torch.dtype:
    """Return float32 on a CPU; on a GPU bfloat16, or float16 if bfloat16 is emulated (T4)."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def _check_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Raise CheckpointError for bfloat16 on a GPU that emulates it. torch calls it supported."""
    if dtype == torch.bfloat16 and default_dtype(device) == torch.float16:
        major, minor = torch.cuda.get_device_capability(device)
        raise CheckpointError(
            f"this GPU (compute capability {major}.{minor}) has no bfloat16 and would emulate it several times slower; load with "
            "dtype=torch.float16"
        )


def load_drafter(
    name: str | Path,
    target: Target,
    *,
    vocabulary: int | Iterable[int] | None = None,
    text: str | None = None,
) -> Drafter:
    """Load a drafter for `target`.

    `name` is a published draft in any form, a small language model, or "prompt_lookup". With a
    `vocabulary` a trained draft chooses among these ids of the target alone, which takes less time
    and leaves the text as it is (models/short_vocabulary.py): the ids, or their number; then they
    are the most frequent tokens of `text`, and without a text the first ids. Warn if the target has
    more positions, scales them, or has another LM head. Raise CheckpointError for a drafter of
    another target, and for a drafter that cannot be loaded; RequestError for a vocabulary that is
    none of this target.
    """
    if not isinstance(target, Target):
        raise CheckpointError(
            f"the target is a {type(target).__name__}; give what load_target returned, or Target(model)"
        )
    target.check_rollback()
    if text is not None and vocabulary is None:
        raise RequestError(
            "a text chooses the ids of a vocabulary; give its size, as vocabulary=32768"
        )
    ids = None if vocabulary is None else vocabulary_ids(vocabulary, text, target)
    drafter = _load_whole(str(name), target)
    if ids is not None:
        shorten(drafter, ids)
    return drafter


def _load_whole(name: str, target: Target) -> Drafter:
    """Load a drafter with its whole vocabulary."""
    if name == "prompt_lookup":
        return PromptLookup(target.vocab_size)
    folder = resolve(name)
    config = read_config(folder)
    if is_language_model(architecture_of(config)):
        drafter = _load_small_lm(name, target)
        weaknesses = position_warnings(drafter.model, target)
    else:
        draft = read_draft(name, config, target.num_layers)
        check_pair(draft.kind, draft.config, target)
        drafter = _load(folder, draft, target)
        weaknesses = position_warnings(draft, target) + head_warnings(drafter, target)
    for weakness in weaknesses:
        warnings.warn(f"{name} {weakness}", stacklevel=3)
    return drafter


def load_draft_alone(folder: Path):
    """Load a trained draft without its target, in float32 on the CPU.

    It cannot decode, but its passes can be compared. Raise CheckpointError if the folder holds no
    draft, or a draft without its embedding or LM head.
    """
    return _load(folder, read_draft(str(folder), read_config(folder)), None)


def _load(folder: Path, draft: PublishedDraft, target):
    """Load a draft from its files.

    Raise CheckpointError if the files or the memory do not suffice.
    """
    try:
        drafter = load_draft(folder.name, draft, weight_files(folder), target)
    except torch.OutOfMemoryError as error:
        raise _no_room(folder.name) from error
    drafter.max_positions = draft.max_positions
    return drafter


def _load_small_lm(name: str, target) -> SmallLM:
    """Load a small language model for `target`.

    It reads ids that padding added to the target as zeros.
    """
    small = load_target(name, device=target.device, dtype=target.dtype)
    added = added_ids(small.vocab_size, target)
    _check_equal("a vocabulary of", small.vocab_size + added, target.vocab_size, "tokens")
    if other := _ids_named_otherwise(small.tokenizer, target.tokenizer):
        warnings.warn(
            f"the tokenizer of {name} names {other:,} ids otherwise than the target's: the text stays exact, "
            "and few drafts are accepted; take a model of the target's family",
            stacklevel=4,
        )
    if added:
        widen_embedding(small.model, small.vocab_size, added)
    return SmallLM(small, added=added)


def _ids_named_otherwise(tokenizer, other) -> int:
    """Return the number of token ids that two tokenizers give to different texts; 0 if one is
    missing."""
    if tokenizer is None or other is None:
        return 0
    names = {index: text for text, index in other.get_vocab().items()}
    return sum(names.get(index, text) != text for text, index in tokenizer.get_vocab().items())


def check_loaded(drafter, target):
    """Return a drafter that was loaded before.

    Raise CheckpointError if its target had another shape or dtype.
    """
    if not isinstance(drafter, Drafter):
        raise CheckpointError(
            f"the drafter is a {type(drafter).__name__}; give the name of a drafter, or what load_drafter returned"
        )
    target.check_rollback()
    if isinstance(drafter, SmallLM):
        _check_equal(
            "a vocabulary of", drafter.model.vocab_size + drafter.added, target.vocab_size, "tokens"
        )
    if isinstance(drafter, Draft):
        check_pair(type(drafter), drafter.config, target)
        _check_equal("a target in", drafter.lm_head.weight.dtype, target.dtype, "")
    return drafter


def check_pair(kind: type, config: DraftConfig, target) -> None:
    """Raise CheckpointError unless a drafter was made for a target of this shape.

    `kind` and `config` are the drafter's class and config.
    """
    vocab_size = within_vocabulary(config, target).vocab_size
    _check_equal("a vocabulary of", vocab_size, target.vocab_size, "tokens")
    _check_equal("a hidden size of", config.hidden_size, target.hidden_size, "")
    if config.num_target_layers is not None:
        _check_equal("a target of", config.num_target_layers, target.num_layers, "layers")
    target.check_taps(config.target_layer_ids, after_norm=kind is MTP)
    theta = rotary_parameters(target).get("rope_theta", config.rope_theta)
    _check_equal("positions of rope_theta", config.rope_theta, theta, "")
    if issubclass(kind, DSpark) and not 0 <= config.mask_token_id < config.vocab_size:
        raise CheckpointError(
            f"the drafter's mask token is {config.mask_token_id}; it must be one of its {config.vocab_size} tokens"
        )


def _check_equal(what: str, drafter, target, unit: str) -> None:
    """Raise CheckpointError unless a drafter and a target have the same number."""
    if drafter != target:
        wanted = f"{what} {drafter} {unit}".rstrip()
        raise CheckpointError(
            f"the drafter was made for {wanted}, this target has {target}: load the drafter that belongs to it"
        )


def rotary_parameters(target) -> dict:
    """Return the rotary parameters of a target; for Gemma 4 those of its full-attention layers."""
    positions = getattr(target.config, "rope_parameters", None) or {}
    return positions.get("full_attention", positions)


def position_warnings(draft: PublishedDraft | Target, target) -> list[str]:
    """Return why a drafter is weaker than the target far into a text, a predicate each.

    The text is the target's all the same.
    """
    reasons, own = [], rotary_parameters(draft) if isinstance(draft, Target) else None
    scaling, drafter_scaling = (
        None if name in (None, "default", "proportional") else name
        for name in (
            rotary_parameters(target).get("rope_type"),
            (draft.config.rope_scaling or {} if own is None else own).get("rope_type"),
        )
    )
    if scaling != drafter_scaling:
        words = (
            ("does not scale its positions", "does")
            if scaling
            else ("scales its positions", "does not")
        )
        reasons.append(
            f"{words[0]}, and {target.name} {words[1]} ({scaling or drafter_scaling}): the text stays exact, and fewer drafts are "
            "accepted far into it"
        )
    if draft.max_positions and draft.max_positions < target.max_positions:
        reasons.append(
            f"was made for {draft.max_positions} positions, and {target.name} has {target.max_positions}: beyond them the text stays exact, "
            "and fewer drafts are accepted"
        )
    return reasons


def head_warnings(drafter, target) -> list[str]:
    """Return a warning if a block draft's LM head differs from its target's.

    Training copies and freezes that head.
    """
    head = target_weights(target).get("lm_head.weight")
    if head is None or not isinstance(drafter, DSpark) or drafter.d2t is not None:
        return []
    draft_head, head = drafter.lm_head.weight[:4096].float(), head[:4096].float()
    if (draft_head - head).norm() <= OTHER_HEAD * head.norm():
        return []
    return [
        f"has an LM head of other weights than {target.name}: the text stays exact, and few drafts are accepted if it was made for another "
        "target"
    ]


def save_draft(folder: Path, model, target, extra: dict | None = None) -> None:
    """Write a draft in the released format: config.json and model.safetensors, in bfloat16.

    The draft is for the positions of `target`. `extra` are more fields of config.json. Each file is
    whole or not there.
    """
    positions = target.max_positions
    config = {name: value for name, value in asdict(model.config).items() if value is not None}
    rope = {"rope_type": "default", **config.pop("rope_scaling", {})}
    rope["rope_theta"] = config.pop("rope_theta")
    family = {"model_type": "qwen3", "hidden_act": "silu"}
    if "partial_rotary_factor" in config:  # a Gemma 4 draft
        rope |= {
            "rope_type": "proportional",
            "partial_rotary_factor": config.pop("partial_rotary_factor"),
        }
        family = {"model_type": "gemma4_text", "hidden_activation": "gelu_pytorch_tanh"}
    config |= {
        "architectures": [model.architecture],
        **family,
        "dtype": "bfloat16",
        "layer_types": ["full_attention"] * model.config.num_hidden_layers,
        "tie_word_embeddings": False,
        **({"max_position_embeddings": positions} if positions not in (None, sys.maxsize) else {}),
        "rope_parameters": rope,
        "target_layer_ids": list(model.config.target_layer_ids),
        **(extra or {}),
    }
    tensors = {
        name: value.detach()
        .to("cpu", torch.bfloat16 if value.is_floating_point() else None)
        .contiguous()
        .clone()
        for name, value in model.state_dict().items()
    }
    write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
    write_text(folder / "config.json", json.dumps(config, indent=2) + "\n")
