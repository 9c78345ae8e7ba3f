"""The tensors of a draft: check them, read them, and share its target's copies of them.

A draft uses its target's embedding and LM head if its files leave them out, and shares their memory
if its files hold equal copies.
"""

from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

from ..common.errors import CheckpointError
from ..drafters import DraftConfig
from .draft_forms import Z_LAB, Form, PublishedDraft
from .weights import SHARED_TENSORS, target_weights

# a row for each of the target's ids
BY_TOKEN = (
    "embed_tokens.weight",
    "markov_head.markov_w1.weight",
)
MAPS = ("d2t", "t2d")  # between the ids of a draft and of its target
# Ids by which a target's vocabulary may exceed its draft's; more are another vocabulary.
MAX_ADDED = 1024
COMPARED = 4096  # rows of a tensor that are read at a time to compare it


def added_ids(vocab_size: int, target) -> int:
    """Return how many ids padding or resizing has added to a target since its draft was trained.

    A target with at most MAX_ADDED ids more, and at most twice as many, counts as padded. Return 0
    for an equal vocabulary and for any other.
    """
    added = target.vocab_size - vocab_size
    return added if 0 < added <= min(MAX_ADDED, vocab_size) else 0


def within_vocabulary(config: DraftConfig, target) -> DraftConfig:
    """Return the config of a draft over the ids of a padded target.

    The draft still draws from its own ids only.
    """
    if not added_ids(config.vocab_size, target):
        return config
    return replace(
        config,
        vocab_size=target.vocab_size,
        draft_vocab_size=config.draft_vocab_size or config.vocab_size,
    )


def widen_embedding(model, vocab_size: int, added: int) -> None:
    """Add rows of zeros to the embedding of a transformers model for `added` ids.

    The LM head stays as it is.
    """
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.num_embeddings == vocab_size:
            module.weight = nn.Parameter(
                F.pad(module.weight.detach(), (0, 0, 0, added)), requires_grad=False
            )
            module.num_embeddings += added


def stored_shapes(form: Form, files: list[Path]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a draft's files by our name. Reads the headers only."""
    shapes = {}
    for path in files:
        with safe_open(path, "pt") as weights:
            shapes |= {
                form.tensor_name(stored): tuple(weights.get_slice(stored).get_shape())
                for stored in weights.keys()
            }
    shapes.pop(None, None)
    return shapes


def check_tensors(name: str, draft: PublishedDraft, shapes: dict[str, tuple], optional) -> None:
    """Raise CheckpointError unless a draft's files hold the tensors of its config.

    Tensors in `optional` may be missing.
    """
    with torch.device("meta"):
        drafter = draft.kind(draft.config)
    expected = {tensor: tuple(value.shape) for tensor, value in drafter.state_dict().items()}
    if draft.config.draft_vocab_size and "t2d" in shapes:
        expected["t2d"] = (draft.config.vocab_size,)
    for tensor in sorted(expected.keys() | shapes.keys()):
        if (
            shapes.get(tensor) == expected.get(tensor)
            or tensor in optional
            and tensor not in shapes
        ):
            continue
        if tensor in SHARED_TENSORS and tensor not in shapes:
            raise CheckpointError(
                f"{name} has no tensor {tensor}, and there is none to share: load it with a target whose "
                f"{tensor.removesuffix('.weight')} is neither quantised nor offloaded"
            )
        raise CheckpointError(
            f"tensor {tensor} of {name} has shape {shapes.get(tensor, 'none')}; its config.json asks for "
            f"{expected.get(tensor, 'none')}"
        )


def load_draft(name: str, draft: PublishedDraft, files: list[Path], target):
    """Load a draft for `target`, in its dtype and on its device (None: float32 on the CPU).

    Raise CheckpointError if the files do not hold the tensors of its config.
    """
    shared = target_weights(target) if target else {}
    check_tensors(name, draft, stored_shapes(draft.form, files), shared)
    device, dtype = (target.device, target.dtype) if target else ("cpu", torch.float32)
    tensors = read_tensors(draft.form, files, shared, device, dtype)
    ids = _output_ids(name, draft.config, tensors)
    config = within_vocabulary(draft.config, target) if target else draft.config
    tensors = _completed(config, tensors, shared, ids)
    with torch.device("meta"):
        drafter = draft.kind(config)
    drafter.load_state_dict(tensors, strict=True, assign=True)
    if target:
        _scale_as_target(drafter, draft.form, target, shared)
    return drafter.eval().requires_grad_(False)


def read_tensors(
    form: Form, files: list[Path], shared: dict[str, torch.Tensor], device, dtype
) -> dict[str, torch.Tensor]:
    """Return the tensors in a draft's files by our names, in `dtype` on `device`.

    A tensor that equals the first rows of the target's tensor in `shared` is a view of it. Raise
    CheckpointError for values that no draft can have.
    """
    tensors = {}
    for path in files:
        with safe_open(path, "pt", device=str(device)) as weights:
            for stored in weights.keys():
                name = form.tensor_name(stored)
                if name in shared and _same_rows(weights.get_slice(stored), shared[name]):
                    rows = weights.get_slice(stored).get_shape()[0]
                    tensors[name] = shared[name] if name in BY_TOKEN else shared[name][:rows]
                elif name is not None:
                    value = form.reordered(name, weights.get_tensor(stored))
                    tensors[name] = value.to(dtype) if value.is_floating_point() else value
                    check_values(stored, path, tensors[name], integers=name in MAPS)
    return tensors


def check_values(tensor: str, path: Path, value: torch.Tensor, integers: bool = False) -> None:
    """Raise CheckpointError for a tensor with infinite or undefined values.

    Integers are wrong too, unless `integers`.
    """
    if not (integers or value.is_floating_point()):
        raise CheckpointError(
            f"tensor {tensor} of {path} holds {value.dtype}; a draft's weights are floating-point numbers, not quantised"
        )
    if not value.isfinite().all():
        raise CheckpointError(
            f"tensor {tensor} of {path} holds numbers that are not finite in {value.dtype}; copy or download it again, or train "
            "anew with a smaller learning rate"
        )


def _same_rows(stored, loaded: torch.Tensor) -> bool:
    """Return whether `stored` equals the first rows of `loaded`. Reads a few rows at a time."""
    rows, *width = stored.get_shape()
    return (
        rows <= len(loaded)
        and width == list(loaded.shape[1:])
        and all(
            torch.equal(
                stored[start : start + COMPARED].to(loaded.dtype),
                loaded[start : min(start + COMPARED, rows)],
            )
            for start in range(0, rows, COMPARED)
        )
    )


def _output_ids(name: str, config: DraftConfig, tensors: dict) -> torch.Tensor | slice:
    """Return the target's ids of a draft's outputs, and drop `t2d` from `tensors`.

    Output i is the target's id i + d2t[i]. `t2d` marks the same ids among the target's. Raise
    CheckpointError for maps that are no such thing.
    """
    known = tensors.pop("t2d", None)
    if config.draft_vocab_size is None:
        return slice(config.vocab_size)
    ids = torch.arange(config.draft_vocab_size, device=tensors["d2t"].device) + tensors["d2t"]
    outside = ((ids < 0) | (ids >= config.vocab_size)).nonzero()
    if len(outside):
        first = outside[0].item()
        raise CheckpointError(
            f"d2t of {name} maps its id {first} to {ids[first]} ({first} + {tensors['d2t'][first]}); the target's ids are 0 to "
            f"{config.vocab_size - 1}"
        )
    if len(ids.unique()) < len(ids):
        raise CheckpointError(
            f"d2t of {name} maps two of its ids to one of the target's; each needs one of its own"
        )
    if known is not None and not torch.equal(known.bool().nonzero()[:, 0], ids.sort().values):
        raise CheckpointError(
            f"t2d and d2t of {name} name different ids of the target; copy or download it again"
        )
    return ids


def _completed(
    config: DraftConfig, tensors: dict, shared: dict, ids: torch.Tensor | slice
) -> dict[str, torch.Tensor]:
    """Return a draft's tensors with its target's, and with a row for each of the target's ids.

    `config` counts the target's ids, `ids` are the target's ids of the draft's outputs. An id that
    the draft was not trained on gets a row of zeros.
    """
    if "lm_head.weight" in shared and "lm_head.weight" not in tensors:
        shared = shared | {"lm_head.weight": shared["lm_head.weight"][ids]}
    tensors = shared | tensors
    if config.draft_vocab_size and "d2t" not in tensors:
        device = tensors["lm_head.weight"].device
        tensors["d2t"] = torch.zeros(config.draft_vocab_size, dtype=torch.long, device=device)
    for name in tensors.keys() & set(BY_TOKEN):
        if missing := config.vocab_size - len(tensors[name]):
            tensors[name] = F.pad(tensors[name], (0, 0, 0, missing))
    return tensors


def _scale_as_target(drafter, form: Form, target, shared: dict) -> None:
    """Set the soft cap of the target's LM head, and in z-lab's form its embedding's scale."""
    head = shared.get("lm_head.weight")
    if head is not None and drafter.lm_head.weight.data_ptr() == head.data_ptr():
        drafter.logit_softcap = getattr(target.config, "final_logit_softcapping", None)
    scale = getattr(target.model.get_input_embeddings(), "embed_scale", None)
    if form.publisher == Z_LAB and scale is not None:
        drafter.embedding_scale = scale.detach().to(target.device, target.dtype)
