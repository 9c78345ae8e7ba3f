"""A short vocabulary: a draft that chooses among the frequent ids of its target alone.

The LM head and the sequential head's table have a row for each id, and a draft reads both for every
token. Most ids are rare. A draft without their rows reads less, and the text stays the target's: an
id that is never drafted is written after a rejection or as the bonus. Engines know such drafts by
their map `d2t`, as Eagle3's (Li et al. 2025) are released.

Shapes: V ids of the target, U of them in the short vocabulary.
"""

from collections.abc import Iterable
from dataclasses import replace
from numbers import Integral

import torch
from torch import nn

from ..common.errors import CheckpointError, RequestError
from ..drafters.layers import Draft


def frequent_ids(token_ids, size: int, target) -> torch.Tensor:
    """Return the `size` most frequent of a text's token ids, ascending [U].

    A target's stop tokens are always among them. Of equally frequent ids the smaller count: a
    tokenizer of byte pairs (BPE) numbers its pairs from frequent to rare. Raise RequestError for a
    size that is no number of ids or that leaves no id out.
    """
    if not isinstance(size, Integral) or not 1 <= size < target.vocab_size:
        raise RequestError(
            f"the vocabulary has {size!r} ids; a short one has between 1 and {target.vocab_size - 1} of this "
            f"target's {target.vocab_size}"
        )
    counts = torch.bincount(torch.as_tensor(token_ids).long(), minlength=target.vocab_size)
    stops = [token for token in target.stop_token_ids if token < target.vocab_size]
    counts[stops] = len(token_ids) + 1
    return counts.argsort(descending=True, stable=True)[:size].sort().values


def vocabulary_ids(vocabulary: int | Iterable[int], text: str | None, target) -> torch.Tensor:
    """Return the ids [U] of a vocabulary, ascending: its ids themselves, or its size; then they are
    those of `frequent_ids` in `text`. Raise RequestError if they are not ids of the target."""
    if isinstance(vocabulary, Integral):
        if text is not None and target.tokenizer is None:
            raise RequestError(
                "a text is counted in tokens, and this target has no tokenizer; give the ids of the vocabulary"
            )
        token_ids = target.tokenizer(text, verbose=False)["input_ids"] if text else []
        return frequent_ids(token_ids, vocabulary, target)
    if text is not None:
        raise RequestError(
            "a text chooses the ids of a vocabulary of a given size, and this one names its ids; leave one of them out"
        )
    try:
        ids = torch.as_tensor(
            vocabulary if isinstance(vocabulary, torch.Tensor) else list(vocabulary)
        )
    except (TypeError, ValueError):
        ids = torch.empty(0)
    if (
        ids.ndim != 1
        or ids.dtype not in (torch.int32, torch.int64)
        or not len(ids)
        or ids.min() < 0
        or ids.max() >= target.vocab_size
    ):
        raise RequestError(
            "the vocabulary is no number of ids and no list of them; the ids of this target are whole "
            f"numbers from 0 to {target.vocab_size - 1}"
        )
    return ids.unique()


def shorten(drafter, ids: torch.Tensor) -> None:
    """Let a draft choose among `ids` [U] alone, as far as it has them. Its LM head and the table of
    its sequential head keep the rows of these.

    Raise CheckpointError for a drafter without an LM head of its own, and for a draft that has none
    of the ids.
    """
    if not isinstance(drafter, Draft):
        raise CheckpointError(
            f"{drafter.name} drafts from its whole vocabulary; a short one is for a trained draft (DSpark, "
            "DFlash, Eagle3, MTP)"
        )
    known = drafter.output_ids
    rows = torch.isin(known, ids.to(known.device)).nonzero()[:, 0]
    if not len(rows):
        raise CheckpointError(
            f"this draft chooses among {len(known)} ids, and the vocabulary has none of them"
        )
    if len(rows) == len(known):
        return
    drafter.config = replace(drafter.config, draft_vocab_size=len(rows))
    drafter.output_size = len(rows)
    drafter.d2t = known[rows] - torch.arange(len(rows), device=known.device)
    markov_head = getattr(drafter, "markov_head", None)
    for layer in (drafter.lm_head, markov_head and markov_head.markov_w2):
        if layer is not None:
            kept = layer.weight.detach()[rows]
            layer.weight = nn.Parameter(kept, requires_grad=layer.weight.requires_grad)
            layer.out_features = len(rows)
