"""Loading and saving targets and drafters: an embedded name, a folder, or a Hub id. Safetensors and JSON only.

Nothing in a checkpoint is executed. A Hub id may pin a revision: "org/name@revision".
"""

import json
import warnings
from dataclasses import asdict
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from ..common.errors import CheckpointError
from ..common.files import data_folder, read_object, write_tensors, write_text
from ..decoding.proposal import Drafter
from ..decoding.target import Target
from ..drafters import MTP, DraftConfig, DSpark, PromptLookup, SmallLM
from ..drafters.layers import Draft
from .draft_forms import PublishedDraft, read_draft
from .draft_weights import added_ids, load_draft, widen_embedding, within_vocabulary
from .hub import download
from .weights import of_target

EMBEDDED = data_folder("checkpoints")
LANGUAGE_MODELS = ("Qwen3ForCausalLM", "Gemma4ForCausalLM")
# The language model of a multimodal one.
TEXT_PARTS = {"Gemma4ForConditionalGeneration": "Gemma4ForCausalLM"}
TEXT_NAMES = {r"^model\.language_model\.": "model."}  # what its tensors are called there, and alone


def resolve(name: str, fetched=download) -> Path:
    """The folder of a checkpoint, `fetched(name)` if `name` is a Hub id. Raise CheckpointError where there is none."""
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
        f"{', '.join(known) or 'checkpoints, of which there are none'}"
    )


def read_config(folder: Path) -> dict:
    """The parsed config.json of a checkpoint folder."""
    if not (folder / "config.json").exists():
        raise CheckpointError(
            f"{folder} has no config.json; a checkpoint folder holds config.json and model.safetensors"
        )
    config = read_object(folder / "config.json")
    named = config.get("architectures") or []
    if not (isinstance(named, list) and all(isinstance(one, str) for one in named)):
        raise CheckpointError(
            f"architectures in {folder / 'config.json'} is {named!r}; it is a list of names"
        )
    return config


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, one or the shards that the index names; all are checked to be readable."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = read_object(index).get("weight_map")
        if not (
            isinstance(shards, dict)
            and shards
            and all(isinstance(one, str) and Path(one).name == one for one in shards.values())
        ):
            raise CheckpointError(
                f"{index} has no weight_map from tensors to files beside it; copy or download it again"
            )
        files = [folder / shard for shard in sorted(set(shards.values()))]
    else:
        files = [folder / "model.safetensors"]
    for path in files:
        _check_weights(path)
    return files


def _check_weights(path: Path) -> None:
    if not path.exists():
        others = [other.name for other in path.parent.glob("*.bin")]
        hint = (
            f"; {others[0]} is not read, because a pickle can execute code: convert it to safetensors"
            if others
            else ""
        )
        raise CheckpointError(f"{path} is missing{hint or '; copy or download it again'}")
    try:
        with safe_open(path, "pt") as weights:
            list(weights.keys())
    except (SafetensorError, OSError) as error:
        raise CheckpointError(
            f"{path} is not a whole safetensors file ({error}); copy or download it again"
        ) from None


def load_target(name: str, *, profile: str | None = None, device=None, dtype=None) -> Target:
    """Load a target by embedded name, folder or Hub id.

    `profile` "tiny" or "released" only sets what `device` and `dtype` default to: float32 on the CPU for tiny, the
    widest 16-bit type that the GPU computes in for released. Tensors go to the device one by one, each in its final type.
    Of a Gemma 4 with a vision part the text part is loaded, and a warning says so. Raise CheckpointError for anything that
    cannot be loaded.
    """
    from huggingface_hub.utils import are_progress_bars_disabled
    from transformers import AutoTokenizer
    from transformers.utils import logging

    folder = resolve(name)
    architecture = (read_config(folder).get("architectures") or ["?"])[0]
    model_class = target_class(name, architecture)
    small = sum(path.stat().st_size for path in weight_files(folder)) < 2**30
    try:
        device = torch.device(
            device or ("cuda" if profile == "released" and torch.cuda.is_available() else "cpu")
        )
    except RuntimeError:
        raise CheckpointError(f'the device is {device!r}; it is "cpu" or "cuda"') from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise CheckpointError(
            f'{name} cannot be loaded on a GPU, because torch finds none; load with device="cpu"'
        )
    dtype = dtype or default_dtype(device)
    _check_dtype(dtype, device)
    # transformers' switch turns the Hub's bars on and off, too: it is left alone where either is off already.
    verbosity, quiet = (
        logging.get_verbosity(),
        small and logging.is_progress_bar_enabled() and not are_progress_bars_disabled(),
    )
    logging.set_verbosity_error()  # what transformers would report of the weights is checked below
    if quiet:
        logging.disable_progress_bar()  # it is loaded before its bar could be read
    try:
        renamed = {"key_mapping": TEXT_NAMES} if architecture in TEXT_PARTS else {}
        model, report = model_class.from_pretrained(
            folder,
            dtype=dtype,
            device_map={"": device},
            trust_remote_code=False,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **renamed,
        )
        tokenizer = (
            AutoTokenizer.from_pretrained(folder) if (folder / "tokenizer.json").exists() else None
        )
    except torch.OutOfMemoryError as error:
        raise _no_room(name) from error
    except Exception as error:  # configuration, weights and tokenizer each raise their own kinds; the reader needs one sentence
        reason = " ".join(str(error).split())
        raise CheckpointError(
            f"{name} does not load as {architecture} ({reason}); copy or download it again"
        ) from error
    finally:
        logging.set_verbosity(verbosity)
        if quiet:
            logging.enable_progress_bar()
    _check_filled(name, report)
    if tokenizer is not None and len(tokenizer) > model.config.vocab_size:
        raise CheckpointError(
            f"the tokenizer of {name} knows {len(tokenizer)} tokens, its model {model.config.vocab_size}; copy or download "
            "both again"
        )
    return Target(model, tokenizer, name)


def target_class(name: str, architecture: str):
    """transformers' class of a target. Raise CheckpointError for what is no language model, or none that this version has."""
    import transformers

    if architecture not in (*LANGUAGE_MODELS, *TEXT_PARTS):
        raise CheckpointError(
            f"{name} is a {architecture}, not a target; targets are {', '.join(LANGUAGE_MODELS)}"
        )
    found = getattr(transformers, TEXT_PARTS.get(architecture, architecture), None)
    if found is None:
        raise CheckpointError(
            f"{name} is a {architecture}, which transformers {transformers.__version__} does not have; install a newer one"
        )
    if architecture in TEXT_PARTS:
        warnings.warn(
            f"{name} also has a vision part; its text part is loaded alone, so it answers text and sees no pictures",
            stacklevel=3,
        )
    return found


def _check_filled(name: str, report: dict) -> None:
    """Raise CheckpointError where transformers filled parameters with random numbers, which it only warns of."""
    mismatched = [entry[0] for entry in report["mismatched_keys"]]
    if mismatched or report["missing_keys"]:
        tensor = sorted([*mismatched, *report["missing_keys"]])[0]
        raise CheckpointError(
            f"tensor {tensor} of {name} is missing or has another shape than config.json asks for; copy or download it again"
        )


def _no_room(name: str) -> CheckpointError:
    return CheckpointError(
        f"{name} does not fit beside what this GPU's memory holds; restart the kernel, end what else runs on the GPU, or "
        "set DSPARK_PROFILE=tiny (python -m dspark_lite doctor says what fits)"
    )


def _check_dtype(dtype: torch.dtype, device: torch.device) -> None:
    """Raise CheckpointError for bfloat16 on a GPU that has none: what `is_bf16_supported` answers there is an emulation."""
    if dtype == torch.bfloat16 and default_dtype(device) == torch.float16:
        major, minor = torch.cuda.get_device_capability(device)
        raise CheckpointError(
            f"this GPU (compute capability {major}.{minor}) has no bfloat16 and would emulate it several times slower; load with "
            "dtype=torch.float16"
        )


def default_dtype(device: torch.device) -> torch.dtype:
    """float32 on a CPU; on a GPU bfloat16 where it is computed natively and float16 where it would be emulated (T4)."""
    if device.type != "cuda":
        return torch.float32
    return torch.bfloat16 if torch.cuda.get_device_capability(device) >= (8, 0) else torch.float16


def load_drafter(name: str, target):
    """Load the drafter `name` for `target`: a trained draft in any of the forms of models/draft_forms.py, a small language
    model, or "prompt_lookup".

    Warns of a draft that was made for fewer positions than the target has, for none that are scaled, or for other weights. Raises
    CheckpointError for a drafter of another target, or one that is not drafted here.
    """
    if not isinstance(target, Target):
        raise CheckpointError(
            f"the target is a {type(target).__name__}; give what load_target returned, or Target(model)"
        )
    target.check_rollback()
    if name == "prompt_lookup":
        return PromptLookup(target.vocab_size)
    folder = resolve(name)
    config = read_config(folder)
    if (config.get("architectures") or ["?"])[0] in LANGUAGE_MODELS:
        small = load_target(name, device=target.device, dtype=target.dtype)
        added = added_ids(small.vocab_size, target)
        _check_equal("a vocabulary of", small.vocab_size + added, target.vocab_size, "tokens")
        if added:
            widen_embedding(small.model, small.vocab_size, added)
        _warn(name, far_positions(small, target))
        return SmallLM(small, added=added)
    draft = read_draft(name, config, target.num_layers)
    check_pair(draft.kind, draft.config, target)
    drafter = _load_draft(folder, draft, target)
    _warn(name, far_positions(draft, target) + other_head(drafter, target))
    return drafter


def check_loaded(drafter, target):
    """A drafter that has been loaded already. Raise CheckpointError unless it was loaded for a target like this one."""
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


def load_draft_alone(folder: Path):
    """Load a trained draft without its target, in float32 on the CPU; it cannot decode, but its passes can be compared.

    Raise CheckpointError for a folder that holds none, or one that is not whole without a target.
    """
    return _load_draft(folder, read_draft(str(folder), read_config(folder)), None)


def check_pair(kind: type, config: DraftConfig, target) -> None:
    """Raise CheckpointError unless a drafter of this config was made for a target of this shape."""
    _check_equal(
        "a vocabulary of", within_vocabulary(config, target).vocab_size, target.vocab_size, "tokens"
    )
    _check_equal("a hidden size of", config.hidden_size, target.hidden_size, "")
    if config.num_target_layers is not None:
        _check_equal("a target of", config.num_target_layers, target.num_layers, "layers")
    target.check_taps(config.target_layer_ids, after_norm=kind is MTP)
    _check_equal(
        "positions of rope_theta",
        config.rope_theta,
        _positions(target).get("rope_theta", config.rope_theta),
        "",
    )
    if issubclass(kind, DSpark) and not 0 <= config.mask_token_id < config.vocab_size:
        raise CheckpointError(
            f"the drafter's mask token is {config.mask_token_id}; it must be one of its {config.vocab_size} tokens"
        )


def _positions(target) -> dict:
    """The rotary parameters of a target; Gemma 4 has them by kind of layer."""
    positions = getattr(target.config, "rope_parameters", None) or {}
    return positions.get("full_attention", positions)


def far_positions(draft: PublishedDraft | Target, target) -> list[str]:
    """What makes a draft, a trained one or a small language model, weaker far into a text than the target is; the text stays the
    target's all the same."""
    found, scaling = [], _positions(target).get("rope_type", "default")
    if scaling not in (
        "default",
        "proportional",
        _positions(draft).get("rope_type") if isinstance(draft, Target) else None,
    ):
        found.append(
            f"does not scale its positions, and {target.name} does ({scaling}): the text stays exact, and fewer drafts are accepted "
            "far into it"
        )
    if draft.max_positions and draft.max_positions < target.max_positions:
        found.append(
            f"was made for {draft.max_positions} positions, and {target.name} has {target.max_positions}: beyond them the text stays exact, "
            "and fewer drafts are accepted"
        )
    return found


def other_head(drafter, target) -> list[str]:
    """What is said of a block draft whose LM head, in training its target's, is that of other weights."""
    theirs = of_target(target).get("lm_head.weight")
    if theirs is None or not isinstance(drafter, DSpark) or drafter.d2t is not None:
        return []
    ours, theirs = drafter.lm_head.weight[:4096].float(), theirs[:4096].float()
    return [
        f"has an LM head of other weights than {target.name}: the text stays exact, and few drafts are accepted if it was made for another "
        "target"
    ] * bool((ours - theirs).norm() > 0.05 * theirs.norm())


def _warn(name: str, weaknesses: list[str]) -> None:
    """One warning each, at the line that loads."""
    for weakness in weaknesses:
        warnings.warn(f"{name} {weakness}", stacklevel=3)


def _check_equal(what: str, drafter, target, unit: str) -> None:
    if drafter != target:
        raise CheckpointError(
            f"the drafter was made for {what} {drafter} {unit}".rstrip()
            + f", this target has {target}: load the "
            "drafter that belongs to it"
        )


def _load_draft(folder: Path, draft: PublishedDraft, target):
    try:
        return load_draft(folder.name, draft, weight_files(folder), target)
    except torch.OutOfMemoryError as error:
        raise _no_room(folder.name) from error


def save_draft(folder: Path, model, target, extra: dict | None = None) -> None:
    """Write a draft in the released format: config.json and bfloat16 model.safetensors, each moved into place."""
    config = {name: value for name, value in asdict(model.config).items() if value is not None}
    rope = {"rope_type": "default", "rope_theta": config.pop("rope_theta")}
    if "partial_rotary_factor" in config:  # a Gemma 4 draft
        rope |= {
            "rope_type": "proportional",
            "partial_rotary_factor": config.pop("partial_rotary_factor"),
        }
    config |= {
        "architectures": [model.architecture],
        "model_type": "qwen3",
        "dtype": "bfloat16",
        "hidden_act": "silu",
        "layer_types": ["full_attention"] * model.config.num_hidden_layers,
        "tie_word_embeddings": False,
        "max_position_embeddings": target.max_positions,
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
