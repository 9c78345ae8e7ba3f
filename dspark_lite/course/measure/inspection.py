"""A checkpoint under the glass (lesson 08): the tensors of its files, their places in our modules,
and the error of each module."""

from typing import NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import load_file

from ...drafters.dspark import transition_biases
from ...models.checkpoints import load_draft_alone, resolve, weight_files
from ...models.draft_config import DRAFTS, parse_draft_config
from ..result_files import REFERENCE

TENSOR_PARTS = {  # beginning of a tensor's name: what it belongs to
    "embed_tokens": "embedding",
    "lm_head": "LM head",
    "fc": "context projection",
    "hidden_norm": "context projection",
    "layers": "backbone",
    "norm": "backbone",
    "markov_head": "sequential head",
    "confidence_head": "confidence head",
}
MODULES = {  # module: the reference tensor that it gives
    "backbone": "block_hidden",
    "LM head": "base_logits",
    "sequential head": "corrected_logits",
    "confidence head": "confidence_logits",
}


class Stored(NamedTuple):
    """A tensor as a safetensors file describes it."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Return the bytes that the tensor takes in the file."""
        return torch.Size(self.shape).numel() * self.dtype.itemsize


class Placement(NamedTuple):
    """Names of tensors that a module asks for and a file lacks, that only the file has, and whose
    shapes differ."""

    missing: set[str]
    unexpected: set[str]
    misshapen: set[str]


def stored(name: str) -> dict[str, Stored]:
    """Return every tensor of a checkpoint (embedded name, folder or Hub id), from its files'
    headers: no numbers are read.

    Raise CheckpointError for a checkpoint that cannot be had.
    """
    tensors = {}
    for path in weight_files(resolve(name)):
        with safe_open(path, "pt") as weights:
            for tensor in weights.keys():
                entry = weights.get_slice(tensor)
                tensors[tensor] = Stored(tuple(entry.get_shape()), entry[:0].dtype)
    return tensors


def asked_for(config: dict) -> dict[str, tuple[int, ...]]:
    """Return name and shape of every tensor of our module for a draft with this config.json;
    nothing is allocated.

    Raise CheckpointError for a layout that is not drafted here.
    """
    kind = DRAFTS[config["architectures"][0]]
    with torch.device("meta"):
        drafter = kind(parse_draft_config(kind, config))
    return {tensor: tuple(value.shape) for tensor, value in drafter.state_dict().items()}


def place(wanted: dict[str, tuple], stored: dict[str, tuple]) -> Placement:
    """Compare two {name: shape}: the tensors that a module wants and those of a file."""
    both = wanted.keys() & stored.keys()
    differing = {name for name in both if tuple(wanted[name]) != tuple(stored[name])}
    return Placement(wanted.keys() - both, stored.keys() - both, differing)


def by_part(sizes: dict[str, int]) -> dict[str, int]:
    """Return bytes of each part of a draft, from the bytes of its tensors by name."""
    parts = dict.fromkeys(TENSOR_PARTS.values(), 0)
    for tensor, size in sizes.items():
        parts[TENSOR_PARTS[tensor.split(".")[0]]] += size
    return {part: size for part, size in parts.items() if size}


@torch.inference_mode()
def module_errors(case: str, dtype: torch.dtype = torch.float32) -> dict[str, float]:
    """Return largest absolute error of each module of a block draft against the reference tensors
    of a golden case.

    Each module reads the reference's input, not the output of the one before, and computes in
    `dtype`, so that an error is its own. The reference is float32.
    """
    drafter = load_draft_alone(REFERENCE / "golden" / case / "draft").to(dtype)
    reference = load_file(REFERENCE / "golden" / case / "tensors.safetensors")
    inputs = {
        name: value.to(dtype) if value.is_floating_point() else value
        for name, value in reference.items()
    }
    outputs = module_outputs(drafter, inputs)
    return {
        module: (outputs[name].float() - reference[name]).abs().max().item()
        for module, name in MODULES.items()
        if name in outputs
    }


def module_outputs(drafter, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the output of each module of a block draft on the reference's inputs, by the name of
    the reference's output."""
    anchor, hidden = inputs["anchor"], inputs["block_hidden"]
    previous = drafter.previous(anchor, inputs["draft_tokens"])
    outputs = {
        "block_hidden": drafter.block_hidden(
            drafter.begin(None, inputs["context_features"]), anchor
        ),
        "base_logits": drafter.lm_head(hidden),
    }
    if drafter.markov_head is not None:
        bias = transition_biases(drafter.markov_head, previous, hidden)
        outputs["corrected_logits"] = inputs["base_logits"] + bias
    if drafter.confidence_head is not None:
        outputs["confidence_logits"] = drafter.confidence_logits(hidden, previous)
    return outputs
