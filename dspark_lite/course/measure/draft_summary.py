"""The form of a draft and its fit to a target, from config.json and the headers of its weights; no
weights are read or downloaded."""

from pathlib import Path
from typing import NamedTuple

import torch
from transformers import AutoConfig

from ...common.errors import CheckpointError
from ...decoding.target import Target
from ...drafters import MTP, Eagle3
from ...models.checkpoints import (
    check_pair,
    position_warnings,
    read_config,
    resolve,
    target_class,
)
from ...models.draft_forms import PublishedDraft, read_draft
from ...models.draft_weights import check_tensors
from ...models.hub import fetch, fetch_header
from ...models.weights import SHARED_TENSORS
from .inspection import stored


class Fit(NamedTuple):
    """Whether a draft fits a target, and in one sentence why not, or where it is weaker (empty:
    nothing is to say)."""

    target: str
    fits: bool
    reason: str


class Summary(NamedTuple):
    """A draft as its files describe it: the `shapes` of its tensors by their names in the drafter,
    and the `size` of all in bytes."""

    name: str
    draft: PublishedDraft
    shapes: dict[str, tuple[int, ...]]
    size: int

    def lines(self) -> list[str]:
        """Return form, kind, taps, vocabulary and size, a line each."""
        config, kind = self.draft.config, self.draft.kind
        lacking = [
            tensor.removesuffix(".weight") for tensor in SHARED_TENSORS if tensor not in self.shapes
        ]
        reduced = f"{config.draft_vocab_size:,} of " if config.draft_vocab_size else ""
        of_layers = f" of {config.num_target_layers}" if config.num_target_layers else ""
        return [
            self.name,
            f"form        {self.draft.publisher}"
            + (f", for {self.draft.target}" if self.draft.target else ""),
            f"kind        {kind.architecture}: {_kind(kind, config)}",
            f"taps        layers {', '.join(map(str, config.target_layer_ids))}{of_layers} of the target, of hidden size {config.hidden_size:,}",
            f"vocabulary  {reduced}{config.vocab_size:,} ids",
            f"weights     {len(self.shapes)} tensors, {_size(self.size)}"
            + (f"; {' and '.join(lacking)} of the target" if lacking else ""),
        ]

    def fit(self, target: Target) -> Fit:
        """Return whether the draft fits a target; the target's shapes are enough."""
        try:
            target.check_rollback()
            check_pair(self.draft.kind, self.draft.config, target)
            check_tensors(self.name, self.draft, self.shapes, SHARED_TENSORS)
        except CheckpointError as error:
            return Fit(target.name, False, str(error))
        return Fit(
            target.name,
            True,
            "; ".join(f"it {weakness}" for weakness in position_warnings(self.draft, target)),
        )


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e8 else f"{size / 1e6:.2f} MB"


def _kind(kind: type, config) -> str:
    layers = f"{config.num_hidden_layers} layer{'s' * (config.num_hidden_layers > 1)}"
    if kind is MTP:
        return f"{layers}, {config.ttt_length} draft{'s' * (config.ttt_length > 1)} a round"
    if kind is Eagle3:
        return f"{layers}, {config.ttt_length} drafts a round, token by token"
    head = (
        f"{config.markov_head_type} head of rank {config.markov_rank}"
        if config.markov_rank
        else "no sequential head"
    )
    confidence = ", confidence head" if config.enable_confidence_head else ""
    return f"{layers}, {config.block_size - (not config.sample_from_anchor)} drafts a round from blocks of {config.block_size}, {head}{confidence}"


def summarise(name: str, num_target_layers: int | None = None) -> Summary:
    """Return the summary of a draft (embedded name, folder or Hub id); `num_target_layers` of the
    target it is for, where that is known.

    Of a Hub id config.json and the headers of the weights are fetched. Raise CheckpointError for
    anything but a draft.
    """
    folder = _config_folder(name)
    draft = read_draft(name, read_config(folder), num_target_layers)
    on_hub = resolve(name, lambda hub: None) is None
    header = (
        fetch_header(name)
        if on_hub and not any(folder.glob("model*.safetensors"))
        else {tensor: (entry.shape, entry.nbytes) for tensor, entry in stored(str(folder)).items()}
    )
    shapes = {draft.form.tensor_name(tensor): shape for tensor, (shape, _) in header.items()}
    shapes.pop(None, None)
    return Summary(name, draft, shapes, sum(size for _, size in header.values()))


def _config_folder(name: str) -> Path:
    """Return a folder with a checkpoint's config.json; download nothing else of a Hub id."""
    return resolve(name, lambda hub: fetch(hub, ["config.json"]))


def target_shape(name: str) -> Target:
    """Return a target (embedded name, folder or Hub id) from its config.json alone: on the meta
    device, without numbers.

    Raise CheckpointError for anything but a target.
    """
    folder = _config_folder(name)
    model_class = target_class(name, (read_config(folder).get("architectures") or ["?"])[0])
    with torch.device("meta"):
        return Target(model_class(AutoConfig.from_pretrained(folder).get_text_config()), name=name)
