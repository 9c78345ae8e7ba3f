"""Write a trained draft in the form that an engine loads, or in speculators' form.

The engines are vLLM 0.32, SGLang 0.5.23 and llama.cpp of November 2026. All three read a saved
DSpark unchanged. They read a DFlash whose anchor slot predicts as a DSpark, so it needs a Markov
head, which we fill with zeros. vLLM reads an Eagle3 under other field names.
"""

import json
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from safetensors.torch import load_file

from ..common.errors import CheckpointError, RequestError
from ..common.files import write_tensors, write_text
from ..drafters import MTP, DSpark, Eagle3, Gemma4DSpark
from .checkpoints import architecture_of, is_language_model, read_config, resolve, weight_files
from .draft_config import LAYERS, flattened
from .draft_forms import DEEPSPEC, FORMS, SPECULATORS, Form, PublishedDraft, first_value, read_draft
from .draft_weights import MAPS, check_tensors, check_values, stored_shapes
from .weights import SHARED_TENSORS


class EngineFormat(NamedTuple):
    """The drafts that an engine runs (heads, Gemma 4, Eagle3), and its serving command."""

    heads: tuple[str, ...]
    gemma4: bool
    eagle3: bool
    command: str


ENGINES = {
    "vllm": EngineFormat(
        ("vanilla",),
        True,
        True,
        "vllm serve {target} --speculative-config {speculative}",
    ),
    "sglang": EngineFormat(
        ("vanilla", "gated", "rnn"),
        False,
        False,
        "python -m sglang.launch_server --model-path {target} --speculative-algorithm DSPARK "
        "--speculative-draft-model-path {folder}",
    ),
    "llama.cpp": EngineFormat(
        ("vanilla",),
        False,
        False,
        "python convert_hf_to_gguf.py {folder} --target-model-dir {target} --outfile draft.gguf\n"
        "llama-server -m target.gguf -md draft.gguf --spec-type draft-dspark --spec-draft-n-max {gamma}",
    ),
}
SPECULATORS_COMMAND = "vllm serve {folder}"  # config.json names the target
SPECULATORS_ARCHITECTURES = {
    "dspark": "DSparkSpeculator",
    "dflash": "DFlashSpeculator",
    "eagle3": "Eagle3Speculator",
    "mtp": "MTPDraftModel",
}
ZERO_RANK = 8  # of the Markov head of zeros


def export(name: str, engine: str, folder: Path, target: str = "TARGET") -> str:
    """Write a draft to `folder` in the form of an engine, with a model card.

    Return the command that serves it.

    `name` is an embedded name, a folder or a Hub id, `engine` a key of ENGINES or "speculators",
    `target` the name of the target in the command. Raise RequestError for an unknown engine and for
    a folder that is not empty, CheckpointError for a draft that the engine does not run.
    """
    if engine not in (*ENGINES, SPECULATORS):
        raise RequestError(
            f"there is no export for {engine!r}; engines are {', '.join(ENGINES)}, and there is the form of speculators"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"{folder} is there already and is no empty folder; name another one")
    source = resolve(name)
    config = read_config(source)
    if is_language_model(architecture_of(config)):
        raise CheckpointError(
            f"{name} is a {architecture_of(config)}, which needs no export: an engine loads a language model as it is"
        )
    draft = read_draft(name, config)
    if draft.publisher != DEEPSPEC:
        raise CheckpointError(
            f"{name} is in the form of {draft.publisher}, and drafts are exported from DeepSpec's; vLLM and SGLang load it as it is"
        )
    _check_runs(name, engine, draft)
    tensors = _stored_tensors(name, draft, source)
    if engine == SPECULATORS:
        config = _speculators_config(draft, target)
        tensors = _speculators_tensors(draft, tensors)
        command = SPECULATORS_COMMAND.format(folder=quote(str(folder)))
    else:
        fields, added = _engine_changes(draft)
        config, tensors = flattened(config) | fields, tensors | added
        eagle3 = draft.kind is Eagle3
        gamma = draft.config.ttt_length if eagle3 else draft.config.block_size
        speculative = {
            "method": "eagle3" if eagle3 else "dspark",
            "model": str(folder),
            "num_speculative_tokens": gamma,
        }
        command = ENGINES[engine].command.format(
            target=quote(target),
            folder=quote(str(folder)),
            gamma=gamma,
            speculative=quote(json.dumps(speculative, ensure_ascii=False)),
        )
    _write_folder(folder, config, tensors, model_card(config, engine, command, target))
    return command


def _check_runs(name: str, engine: str, draft: PublishedDraft) -> None:
    """Raise CheckpointError for a draft that an engine does not run or speculators lacks."""
    kind, config = draft.kind, draft.config
    if engine == SPECULATORS:
        if kind is Gemma4DSpark:
            raise CheckpointError(
                f"{name} is a {kind.architecture}, and speculators has drafts with Qwen3's layers alone; export a DSpark, a "
                "DFlash, an Eagle3 or an MTP"
            )
        if kind is MTP and config.ttt_length > 1:
            raise CheckpointError(
                f"{name} drafts {config.ttt_length} tokens a round, and what an MTP of speculators reads for the second is not "
                "pinned by any reference; export an MTP of one draft"
            )
        return
    runs = ENGINES[engine]
    if kind is MTP:
        raise CheckpointError(
            f"{name} is an MTP trained by this course, and {engine} runs an MTP only with a target that was released with "
            "one; export a DSpark, a DFlash or an Eagle3"
        )
    if kind is Eagle3:
        if not runs.eagle3:
            raise CheckpointError(
                f"{name} is an Eagle3 whose attention norms queries and keys, as Qwen3's does; "
                f"{engine} has no such Eagle3, vllm has: export it for vllm"
            )
        return
    if kind is Gemma4DSpark and not runs.gemma4:
        raise CheckpointError(
            f"{name} is a draft for Gemma 4, which {engine} does not load; vllm does"
        )
    if not config.sample_from_anchor:
        raise CheckpointError(
            f"{name} is in the original DFlash layout, whose anchor slot predicts nothing; {engine} loads it from its "
            "publisher's folder"
        )
    if config.markov_rank and config.markov_head_type not in runs.heads:
        raise CheckpointError(
            f"{name} has a {config.markov_head_type} head, and {engine} runs {' and '.join(runs.heads)} heads alone; "
            f"export it for {' or '.join(other for other in ENGINES if config.markov_head_type in ENGINES[other].heads)}"
        )


def _stored_tensors(name: str, draft: PublishedDraft, source: Path) -> dict[str, torch.Tensor]:
    """Return the tensors of a draft as its files store them.

    Raise CheckpointError if a tensor is missing or wrong.
    """
    files = weight_files(source)
    check_tensors(name, draft, stored_shapes(draft.form, files), optional=SHARED_TENSORS)
    tensors = {tensor: value for path in files for tensor, value in load_file(path).items()}
    for tensor, value in tensors.items():
        check_values(tensor, source, value, integers=tensor in MAPS)
    return tensors


def _engine_changes(draft: PublishedDraft) -> tuple[dict, dict[str, torch.Tensor]]:
    """Return the fields of config.json and the tensors that engines need besides the saved ones."""
    config = draft.config
    if draft.kind is Eagle3:
        # vLLM numbers the inputs of the target's layers, we number their outputs.
        return {
            "architectures": ["Eagle3Qwen3ForCausalLM"],
            "num_aux_layers": len(config.target_layer_ids),
            "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in config.target_layer_ids],
        }, {}
    if config.markov_rank:
        return {}, {}
    fields = {
        "markov_rank": ZERO_RANK,
        "markov_head_type": "vanilla",
        "confidence_head_with_markov": False,
    }
    outputs = config.draft_vocab_size or config.vocab_size
    return fields, {
        f"markov_head.{table}.weight": torch.zeros(rows, ZERO_RANK, dtype=torch.bfloat16)
        for table, rows in (("markov_w1", config.vocab_size), ("markov_w2", outputs))
    }


def _speculators_form(draft: PublishedDraft) -> tuple[str, Form]:
    """Return speculators' type for a draft in DeepSpec's form, and its row of FORMS."""
    if draft.kind is DSpark:
        name = "dspark" if draft.config.markov_rank else "dflash"
    else:
        name = draft.kind.name
    return name, FORMS[name]


def _speculators_config(draft: PublishedDraft, target: str) -> dict:
    """Return the config.json of a draft in speculators' form, for the verifier `target`."""
    model_type, form = _speculators_form(draft)
    config = draft.config
    values = asdict(config) | {
        "draft_vocab_size": config.draft_vocab_size or config.vocab_size,
        "max_position_embeddings": draft.max_positions,
        "rope_parameters": {
            "rope_type": "default",
            **(config.rope_scaling or {}),
            "rope_theta": config.rope_theta,
        },
        "target_layer_ids": [layer + form.first_layer for layer in config.target_layer_ids],
        "gamma": config.block_size - (not config.sample_from_anchor) if draft.kind is DSpark else 1,
    }
    written = {
        "architectures": [SPECULATORS_ARCHITECTURES[model_type]],
        "speculators_model_type": model_type,
        "speculators_version": "0.9.0",
        "dtype": "bfloat16",
        LAYERS: {"model_type": "qwen3", "hidden_act": "silu", "tie_word_embeddings": False},
        "speculators_config": {
            "algorithm": model_type,
            "default_proposal_method": "greedy",
            "proposal_methods": [{"proposal_type": "greedy"}],
            "verifier": {"name_or_path": target, "architectures": []},
        },
    }
    for field, (path, *_) in form.fields.items():
        section, _, name = path.rpartition(".")
        if values[field] is not None:
            (first_value(written, section) if section else written)[name] = values[field]
    if draft.kind is MTP:
        written["num_nextn_predict_layers"] = 1
    return written


def _speculators_tensors(
    draft: PublishedDraft, tensors: dict[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return a draft's tensors by speculators' names, with `t2d` [V] if it needs one."""
    _, form = _speculators_form(draft)
    renamed = {
        form.stored_name(name): form.reordered(name, value) for name, value in tensors.items()
    }
    if draft.config.draft_vocab_size is not None:
        renamed["t2d"] = torch.zeros(draft.config.vocab_size, dtype=torch.bool)
        renamed["t2d"][torch.arange(draft.config.draft_vocab_size) + tensors["d2t"]] = True
    return renamed


def _write_folder(folder: Path, config: dict, tensors: dict, card: str) -> None:
    """Write a draft and its model card to `folder`.

    The files are written beside the folder first, then moved into it one by one.
    """
    parent = folder.resolve().parent
    parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{folder.name}.", dir=parent) as temporary:
        write_tensors(Path(temporary) / "model.safetensors", tensors, {"format": "pt"})
        write_text(Path(temporary) / "config.json", json.dumps(config, indent=2) + "\n")
        write_text(Path(temporary) / "README.md", card)
        folder.mkdir(exist_ok=True)
        for path in Path(temporary).iterdir():
            path.replace(folder / path.name)


CARD_FIELDS = (
    "architectures",
    "block_size",
    "ttt_length",
    "mask_token_id",
    "target_layer_ids",
    "num_hidden_layers",
    "markov_rank",
    "markov_head_type",
    "enable_confidence_head",
    "speculators_model_type",
    "aux_hidden_state_layer_ids",
    "eagle_aux_hidden_state_layer_ids",
)


def model_card(config: dict, engine: str, command: str, target: str) -> str:
    """Return a README.md for the Hub: the target, the fields that engines read, the command."""
    fields = "\n".join(
        f"| `{name}` | `{json.dumps(config[name])}` |" for name in CARD_FIELDS if name in config
    )
    return (
        f"---\nbase_model: {target}\npipeline_tag: text-generation\ntags:\n- speculative-decoding\n- draft-model\n---\n\n"
        f"# A draft model for {target}\n\nIt proposes tokens that {target} verifies, so it changes the speed of an answer and not its "
        f"distribution. It cannot write by itself.\n\n| field | value |\n|---|---|\n{fields}\n\nIn the form that {engine} loads:\n\n"
        f"```\n{command}\n```\n"
    )
