"""A trained draft in the form that an engine loads: vLLM 0.32, SGLang 0.5.23, llama.cpp as of November 2026; and in that of
speculators 0.9.

All three engines read a DSpark as it is saved. What they read differently: a DFlash of this layout, whose anchor slot predicts, is a
DSpark to them, and each wants a Markov head in it; vLLM has Eagle3 under names of its own.
"""

import json
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from safetensors.torch import load_file

from ..common.errors import CheckpointError, RequestError
from ..common.files import write_tensors, write_text
from ..drafters import DSpark, Eagle3, Gemma4DSpark
from .checkpoints import LANGUAGE_MODELS, read_config, resolve, weight_files
from .draft_config import flattened
from .draft_forms import DEEPSPEC, as_speculators, read_draft, speculators_tensors
from .draft_weights import MAPS, check_numbers, check_tensors, stored_shapes


class EngineFormat(NamedTuple):
    """What an engine runs: sequential `heads`, drafts for Gemma 4, Eagle3; and the `command` that serves with a draft."""

    heads: tuple[str, ...]
    gemma4: bool
    eagle3: bool
    command: str


ENGINES = {
    "vllm": EngineFormat(
        ("vanilla",),
        True,
        True,
        """vllm serve {target} --speculative-config '{{"method": "{method}", "model": "{folder}", """
        """"num_speculative_tokens": {gamma}}}'""",
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
SPECULATORS_COMMAND = "vllm serve {folder}"  # which reads from it what its target is
ZERO_RANK = 8  # of a Markov head that adds nothing


def export(name: str, engine: str, folder: Path, target: str = "TARGET") -> str:
    """Write the draft `name` (embedded name, folder or Hub id) to `folder` as `engine` loads it, with a model card, and
    returns the command that serves `target` with it. `engine` may be "speculators", whose form several trainers and engines read.

    Raise RequestError for an unknown engine or a folder that holds something, CheckpointError for a draft that the engine
    cannot run, with its reason.
    """
    if engine not in (*ENGINES, "speculators"):
        raise RequestError(
            f"there is no export for {engine!r}; engines are {', '.join(ENGINES)}, and there is the form of speculators"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RequestError(f"{folder} is there already and is no empty folder; name another one")
    source = resolve(name)
    config = read_config(source)
    if (config.get("architectures") or ["?"])[0] in LANGUAGE_MODELS:
        raise CheckpointError(
            f"{name} is a {config['architectures'][0]}, which needs no export: an engine loads a language model as it is"
        )
    draft = read_draft(name, config)
    if draft.form != DEEPSPEC:
        raise CheckpointError(
            f"{name} is in the form of {draft.form}, and drafts are exported from DeepSpec's; vLLM and SGLang load it as it is"
        )
    _check_runs(name, engine, draft.kind, draft.config)
    files = weight_files(source)
    # Embedding and LM head may be left out: they are then the target's.
    check_tensors(
        name, draft, stored_shapes(draft, files), ("embed_tokens.weight", "lm_head.weight")
    )
    stored = {tensor: value for path in files for tensor, value in load_file(path).items()}
    for tensor, value in stored.items():
        check_numbers(tensor, source, value, of_ids=draft.tensor_name(tensor) in MAPS)
    if engine == "speculators":
        config = as_speculators(draft.kind, draft.config, draft.max_positions, target)
        tensors = {
            tensor: value.contiguous()
            for tensor, value in speculators_tensors(draft.kind, draft.config, stored).items()
        }
        command = SPECULATORS_COMMAND.format(folder=quote(str(folder)))
    else:
        changed, added = _changes(draft.kind, draft.config)
        config, tensors = flattened(config) | changed, stored | added
        method, gamma = (
            ("eagle3", draft.config.ttt_length)
            if draft.kind is Eagle3
            else ("dspark", draft.config.block_size)
        )
        command = ENGINES[engine].command.format(
            target=quote(target),
            folder=folder if engine == "vllm" else quote(str(folder)),
            method=method,
            gamma=gamma,
        )
    folder.resolve().parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f"{folder.name}.", dir=folder.resolve().parent) as temporary:
        write_tensors(Path(temporary) / "model.safetensors", tensors, {"format": "pt"})
        write_text(Path(temporary) / "config.json", json.dumps(config, indent=2) + "\n")
        write_text(Path(temporary) / "README.md", model_card(config, engine, command, target))
        folder.mkdir(exist_ok=True)
        for path in Path(temporary).iterdir():
            path.replace(folder / path.name)
    return command


def _check_runs(name: str, engine: str, kind: type, config) -> None:
    """Raise CheckpointError for a draft that an engine does not run, or speculators does not hold."""
    if engine == "speculators":
        if kind is Gemma4DSpark:
            raise CheckpointError(
                f"{name} is a {kind.architecture}, and speculators has drafts with Qwen3's layers alone; export a DSpark, a "
                "DFlash, an Eagle3 or an MTP"
            )
        return
    format_ = ENGINES[engine]
    if not issubclass(kind, (DSpark, Eagle3)):
        raise CheckpointError(
            f"{name} is an MTP layer of this course's own training, which {engine} reads with a target of its own kind alone; "
            "export a DSpark, a DFlash or an Eagle3"
        )
    if kind is Eagle3 and not format_.eagle3:
        raise CheckpointError(
            f"{name} is an Eagle3 whose attention norms queries and keys, as Qwen3's does; it is exported for vllm, which has "
            "such a one"
        )
    if kind is Gemma4DSpark and not format_.gemma4:
        raise CheckpointError(
            f"{name} is a draft for Gemma 4, which {engine} does not load; vllm does"
        )
    if issubclass(kind, DSpark) and not config.sample_from_anchor:
        raise CheckpointError(
            f"{name} is in the original DFlash layout, whose anchor slot predicts nothing; {engine} loads it from its "
            "publisher's folder"
        )
    if (
        issubclass(kind, DSpark)
        and config.markov_rank
        and config.markov_head_type not in format_.heads
    ):
        raise CheckpointError(
            f"{name} has a {config.markov_head_type} head, and {engine} runs {' and '.join(format_.heads)} heads alone; "
            f"export it for {' or '.join(other for other in ENGINES if config.markov_head_type in ENGINES[other].heads)}"
        )


def _changes(kind: type, config) -> tuple[dict, dict[str, torch.Tensor]]:
    """The fields of config.json and the tensors that an engine wants beside what is saved."""
    if kind is Eagle3:
        # Their taps are counted as inputs of layers, ours as outputs.
        return {
            "architectures": ["Eagle3Qwen3ForCausalLM"],
            "num_aux_layers": len(config.target_layer_ids),
            "eagle_aux_hidden_state_layer_ids": [layer + 1 for layer in config.target_layer_ids],
        }, {}
    if config.markov_rank:
        return {}, {}
    zeros = torch.zeros(config.vocab_size, ZERO_RANK, dtype=torch.bfloat16)
    return (
        {
            "markov_rank": ZERO_RANK,
            "markov_head_type": "vanilla",
            "confidence_head_with_markov": False,
        },
        {"markov_head.markov_w1.weight": zeros, "markov_head.markov_w2.weight": zeros.clone()},
    )


def model_card(config: dict, engine: str, command: str, target: str) -> str:
    """A README.md for the Hub: what the draft is, for which target, and the fields that engines read."""
    read = (
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
    fields = "\n".join(
        f"| `{name}` | `{json.dumps(config[name])}` |" for name in read if name in config
    )
    return (
        f"---\nbase_model: {target}\npipeline_tag: text-generation\ntags:\n- speculative-decoding\n- draft-model\n---\n\n"
        f"# A draft model for {target}\n\nIt proposes tokens that {target} verifies, so it changes the speed of an answer and not its "
        f"distribution. It cannot write by itself.\n\n| field | value |\n|---|---|\n{fields}\n\nIn the form that {engine} loads:\n\n"
        f"```\n{command}\n```\n"
    )
