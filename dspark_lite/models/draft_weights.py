"""The tensors of a draft: checked against its config before one is read, and taken from the target where they are the target's.

An embedding or an LM head that the files leave out is the target's own, and one that they hold as a copy shares its memory.
"""

from dataclasses import replace
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn

from ..common.errors import CheckpointError
from ..drafters import DraftConfig
from .draft_forms import Z_LAB, PublishedDraft
from .weights import of_target

# A row for each id that may come before a draft
BY_TOKEN = (
    "embed_tokens.weight",
    "markov_head.markov_w1.weight",
)
MAPS = ("d2t", "t2d")  # between a draft's ids and its target's
MOST_ADDED = 1024  # ids that a target's vocabulary may have more than its draft's, which it may at most double: more are another vocabulary
COMPARED = 4096  # rows of a tensor that are read at a time to compare it


def added_ids(vocab_size: int, target) -> int:
    """How many ids a target has that a draft of this vocabulary lacks, because it was padded or resized since; 0 where it has the
    same vocabulary, or another one."""
    added = target.vocab_size - vocab_size
    return added if 0 < added <= min(MOST_ADDED, vocab_size) else 0


def within_vocabulary(config: DraftConfig, target) -> DraftConfig:
    """The config of a draft on a target whose vocabulary has been resized or padded since: the draft's own ids stay its outputs,
    so that none of the others is drafted."""
    if not added_ids(config.vocab_size, target):
        return config
    return replace(
        config,
        vocab_size=target.vocab_size,
        draft_vocab_size=config.draft_vocab_size or config.vocab_size,
    )


def widen_embedding(model, vocab_size: int, added: int) -> None:
    """Give a language model of transformers so many ids more to read, each as nothing; its LM head stays as it is, tied or not."""
    for module in model.modules():
        if isinstance(module, nn.Embedding) and module.num_embeddings == vocab_size:
            module.weight = nn.Parameter(
                F.pad(module.weight.detach(), (0, 0, 0, added)), requires_grad=False
            )
            module.num_embeddings += added


def stored_shapes(draft: PublishedDraft, files: list[Path]) -> dict[str, tuple[int, ...]]:
    """The shape of each tensor in a draft's files, by its name in the drafter; no numbers are read."""
    found = {}
    for path in files:
        with safe_open(path, "pt") as weights:
            found |= {
                draft.tensor_name(stored): tuple(weights.get_slice(stored).get_shape())
                for stored in weights.keys()
            }
    found.pop(None, None)
    return found


def check_tensors(name: str, draft: PublishedDraft, found: dict[str, tuple], lent) -> None:
    """Raise CheckpointError unless a draft holds exactly the tensors that its config asks for, less those in `lent`."""
    with torch.device("meta"):
        drafter = draft.kind(draft.config)
    wanted = {tensor: tuple(value.shape) for tensor, value in drafter.state_dict().items()}
    if draft.config.draft_vocab_size:
        wanted["t2d"] = (draft.config.vocab_size,)  # which ids it has: d2t says it, too
        found = {"t2d": wanted["t2d"], **found}
    for tensor in sorted(wanted.keys() | found.keys()):
        if found.get(tensor) == wanted.get(tensor) or tensor in lent and tensor not in found:
            continue
        if tensor in ("embed_tokens.weight", "lm_head.weight") and tensor not in found:
            raise CheckpointError(
                f"tensor {tensor} of {name} has shape none, and its target's cannot be taken: load it with a target, and one whose "
                f"{tensor.removesuffix('.weight')} is not quantised"
            )
        raise CheckpointError(
            f"tensor {tensor} of {name} has shape {found.get(tensor, 'none')}; its config.json asks for "
            f"{wanted.get(tensor, 'none')}"
        )


def load_draft(name: str, draft: PublishedDraft, files: list[Path], target):
    """A draft's drafter for `target`, whose dtype and device it gets (None: float32 on the CPU).

    Raise CheckpointError for files that do not hold what its config asks for.
    """
    device, dtype = (
        (target.device, target.dtype) if target else (torch.device("cpu"), torch.float32)
    )
    lent = of_target(target) if target else {}
    check_tensors(name, draft, stored_shapes(draft, files), lent)
    tensors = _read(draft, files, lent, device, dtype)
    ids = _output_ids(name, draft.config, tensors)
    for missing in lent.keys() - tensors.keys():
        tensors[missing] = lent[missing][ids] if missing == "lm_head.weight" else lent[missing]
    config = within_vocabulary(draft.config, target) if target else draft.config
    if config.draft_vocab_size and "d2t" not in tensors:
        tensors["d2t"] = torch.zeros(config.draft_vocab_size, dtype=torch.long, device=device)
    for tensor in tensors.keys() & set(BY_TOKEN):
        if added := config.vocab_size - len(
            tensors[tensor]
        ):  # ids that came later are read as nothing
            tensors[tensor] = F.pad(tensors[tensor], (0, 0, 0, added))
    with torch.device("meta"):
        drafter = draft.kind(config)
    drafter.load_state_dict(tensors, assign=True)
    if target:
        _scale_as_target(drafter, draft, target, lent)
    return drafter.eval().requires_grad_(False)


def _read(
    draft: PublishedDraft, files: list[Path], lent: dict, device, dtype
) -> dict[str, torch.Tensor]:
    """The tensors in a draft's files by their names in the drafter, the target's own in the place of copies."""
    tensors = {}
    for path in files:
        with safe_open(path, "pt", device=str(device)) as weights:
            for stored in weights.keys():
                name = draft.tensor_name(stored)
                if name in lent and _same_rows(weights.get_slice(stored), lent[name]):
                    rows = weights.get_slice(stored).get_shape()[0]
                    tensors[name] = lent[name] if name in BY_TOKEN else lent[name][:rows]
                elif name is not None:
                    value = draft.tensor(name, weights.get_tensor(stored))
                    tensors[name] = value.to(dtype) if value.is_floating_point() else value
                    check_numbers(stored, path, tensors[name], of_ids=name in MAPS)
    return tensors


def check_numbers(tensor: str, path: Path, value: torch.Tensor, of_ids: bool = False) -> None:
    """Raise CheckpointError for a tensor of a draft whose numbers are not finite, or are integers where none are `of_ids`."""
    if not (of_ids or value.is_floating_point()):
        raise CheckpointError(
            f"tensor {tensor} of {path} holds {value.dtype}; a draft's weights are floating-point numbers, not quantised"
        )
    if not value.isfinite().all():
        raise CheckpointError(
            f"tensor {tensor} of {path} holds numbers that are not finite in {value.dtype}; copy or download it again, or train "
            "anew with a smaller learning rate"
        )


def _same_rows(stored, held: torch.Tensor) -> bool:
    """Return whether a stored tensor, of which a few rows are read at a time, is the first rows of the one that is held (at 4B each
    is 0.8 GB)."""
    rows, *width = stored.get_shape()
    return (
        rows <= len(held)
        and width == list(held.shape[1:])
        and all(
            torch.equal(
                stored[start : start + COMPARED].to(held.dtype),
                held[start : min(start + COMPARED, rows)],
            )
            for start in range(0, rows, COMPARED)
        )
    )


def _output_ids(name: str, config: DraftConfig, tensors: dict) -> torch.Tensor | slice:
    """The target's ids of a draft's outputs, of which `d2t` holds how far each lies from its own number; takes `t2d` out.

    Raise CheckpointError for a map that is none.
    """
    has = tensors.pop("t2d", None)
    if config.draft_vocab_size is None:
        return slice(config.vocab_size)
    own = torch.arange(config.draft_vocab_size, device=tensors["d2t"].device)
    ids = own + tensors["d2t"]
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
    if has is not None and not torch.equal(has.bool().nonzero()[:, 0], ids.sort().values):
        raise CheckpointError(
            f"t2d and d2t of {name} name different ids of the target; copy or download it again"
        )
    return ids


def _scale_as_target(drafter, draft: PublishedDraft, target, lent: dict) -> None:
    """Give a drafter the target's soft cap where its LM head is the target's, and the scale of its embedding where the form is
    one that embeds with the target's module."""
    if (
        "lm_head.weight" in lent
        and drafter.lm_head.weight.data_ptr() == lent["lm_head.weight"].data_ptr()
    ):
        drafter.logit_softcap = getattr(target.config, "final_logit_softcapping", None)
    if draft.form == Z_LAB:
        scale = getattr(target.model.get_input_embeddings(), "embed_scale", None)
        drafter.embedding_scale = (
            None if scale is None else scale.detach().to(target.device, target.dtype)
        )
