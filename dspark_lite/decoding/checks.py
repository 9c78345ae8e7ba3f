"""Check a request, and raise RequestError with one sentence if it is wrong."""

from numbers import Integral

import torch

from ..common.errors import RequestError
from .proposal import Drafter
from .sampling import check_temperature


def check_models(target, drafter) -> None:
    """Raise RequestError for an object that is no target or no drafter (None is allowed), and for a
    drafter that was loaded for another target. Raise CheckpointError for a drafter of a target that
    cannot roll back."""
    if not (hasattr(target, "prefill") and hasattr(target, "verify")):
        raise RequestError(
            f"the target is a {type(target).__name__}; give what load_target returned, or Target(model)"
        )
    if drafter is not None and not isinstance(drafter, Drafter):
        raise RequestError(
            f"the drafter is a {type(drafter).__name__}; give what load_drafter "
            "returned, an object of a subclass of Drafter, or None"
        )
    if drafter is not None and getattr(target, "has_states", False):
        target.check_rollback()
    if (weight := getattr(getattr(drafter, "lm_head", None), "weight", None)) is not None:
        loaded, here = (
            f"{model.dtype} on {model.device} with {size} tokens"
            for model, size in ((weight, drafter.config.vocab_size), (target, target.vocab_size))
        )
        if loaded != here:
            raise RequestError(
                f"the drafter was loaded for a target with {loaded}; this target has {here}: "
                "load the drafter again"
            )


def check_request(target, input_ids: torch.Tensor, max_new_tokens: int, temperature: float) -> None:
    """Raise RequestError for an empty or overlong prompt, for ids that this target does not have,
    for a negative temperature, and for an answer without tokens."""
    check_temperature(temperature)
    if not isinstance(input_ids, torch.Tensor):
        raise RequestError(
            f"input_ids is a {type(input_ids).__name__}; generate takes a tensor of token ids, [1, n]"
        )
    if input_ids.ndim != 2 or input_ids.shape[0] != 1:
        raise RequestError(
            f"input_ids has shape {tuple(input_ids.shape)}; generate takes one request, [1, n]"
        )
    if input_ids.shape[1] == 0:
        raise RequestError("the prompt is empty; give at least one token")
    if not isinstance(max_new_tokens, Integral) or max_new_tokens < 1:
        raise RequestError(
            f"max_new_tokens is {max_new_tokens!r}; it must be a whole number, 1 or more"
        )
    longest = target.max_positions - max_new_tokens
    if input_ids.shape[1] > longest:
        raise RequestError(
            f"the prompt has {input_ids.shape[1]} tokens; with {max_new_tokens} new ones this target "
            f"has positions for at most {longest}"
        )
    least, most = torch.stack(input_ids.aminmax()).tolist()
    if (
        input_ids.dtype not in (torch.int32, torch.int64)
        or not 0 <= least <= most < target.vocab_size
    ):
        raise RequestError(
            f"the prompt holds {input_ids.dtype} from {least} to {most}; the token ids of this target "
            f"are whole numbers from 0 to {target.vocab_size - 1}"
        )


def stop_set(target, stop_token_ids) -> set[int]:
    """Return the ids that end an answer, the target's own for None. Raise RequestError unless they
    are whole numbers."""
    if stop_token_ids is None:
        return set(target.stop_token_ids)
    try:
        stop = set(stop_token_ids)
    except TypeError:
        stop = {None}
    if not all(isinstance(token, Integral) for token in stop):
        raise RequestError(
            f"stop_token_ids is {stop_token_ids!r}; give a list of token ids, as [0], or an empty one"
        )
    return stop


def until_stop(tokens: list[int], stop_token_ids) -> list[int]:
    """Return the tokens up to and including the first stop token."""
    for index, token in enumerate(tokens):
        if token in stop_token_ids:
            return tokens[: index + 1]
    return tokens
