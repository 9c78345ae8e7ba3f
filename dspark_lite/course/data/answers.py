"""The target's own answers to a recipe's prompts, which drafters learn from."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm
from transformers import GenerationConfig

from ...common.errors import DSparkLiteError
from ...common.files import write_text
from ...models.weights import kv_bytes
from ...training.drafts import seeded
from ...training.plan import ANSWER_TIME_SHARE, Allowance
from ...training.recipe import Data
from ..world.prompts import prompt_ids
from .endpoint import Endpoint

PARALLEL = 192  # answers that a CPU writes at once
CHUNK = 1536  # answers that a GPU writes at once, at most, and answers between two saves


def chunk_size(data: Data) -> int:
    """Return the number of answers between two saves."""
    return data.chunk or CHUNK


def answered_rows(
    target,
    data: Data,
    path: Path,
    endpoint: str | None = None,
    allowance: Allowance | None = None,
) -> list[tuple[list[int], int]]:
    """Return (token ids, prompt length) of a recipe's prompts with the target's own answers, drawn
    as the recipe says.

    Prompts are examples of the tiny world, shuffled over its domains, or those of a data set
    (world/prompts.py). `target` answers in this process, or a server at the URL `endpoint` does.
    Each answer goes to `path` as a line of JSON when it comes, in any order, so a stopped run loses
    nothing. When an `allowance` has no more time for answers, prompts without one are left out.
    Raise DSparkLiteError if prompts are missing, if a line of `path` does not fit, and if the
    server fails.
    """
    if target.tokenizer is None:
        raise DSparkLiteError(
            f"{target.name} has no tokenizer files, so no prompt can be put to it; save its tokenizer beside it"
        )
    prompts = prompt_ids(target.tokenizer, data)
    rows = read_answers(path, prompts, target.vocab_size)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        path.open("a", encoding="utf-8") as file,
        tqdm(total=len(prompts), initial=len(rows), desc="answers", unit="answer") as bar,
    ):
        for index, answer in _answers_to_missing(target, data, prompts, rows, endpoint, allowance):
            if index not in rows:
                rows[index] = (prompts[index] + answer, len(prompts[index]))
                file.write(json.dumps(rows[index]) + "\n")
                file.flush()
                bar.update()
    if len(rows) < len(prompts):
        print(
            f"{len(rows)} of {len(prompts)} prompts are answered, for which {ANSWER_TIME_SHARE:.0%} of the minutes are spent; "
            "more minutes in a new folder answer more"
        )
    return [rows[index] for index in sorted(rows)]


def _answers_to_missing(
    target, data: Data, prompts: list, rows: dict, endpoint: str | None, allowance: Allowance | None
) -> Iterator[tuple[int, list[int]]]:
    """Yield (index, answer) of the prompts without an answer in `rows`, and perhaps of others."""
    size = chunk_size(data)
    server = (
        None
        if endpoint is None
        else Endpoint(
            endpoint, target.name.partition("@")[0], target.tokenizer, target.stop_token_ids
        )
    )
    for start in range(0, len(prompts), size):
        if allowance is not None and rows and allowance.spent() >= ANSWER_TIME_SHARE:
            return
        chunk = range(start, min(start + size, len(prompts)))
        missing = {index: prompts[index] for index in chunk if index not in rows}
        if missing and server:
            yield from server.write(missing, data)
        elif missing:  # the whole chunk: its answers share random draws
            answers = write_answers(
                target,
                prompts[start : start + size],
                data.temperature,
                data.max_new_tokens,
                data.seed + start,
                top_k=data.top_k,
                top_p=data.top_p,
            )
            yield from zip(chunk, answers)
        if allowance is not None:
            allowance.keep()


@torch.inference_mode()
def write_answers(
    target,
    prompts: list[list[int]],
    temperature: float,
    max_new_tokens: int,
    seed: int,
    *,
    top_k: int = 0,
    top_p: float = 1.0,
) -> list[list[int]]:
    """Return the target's answers (token ids, stop token included) to tokenised prompts, decoded by
    transformers in batches.

    A temperature of 0 is greedy, a `top_k` of 0 keeps all candidates.
    """
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    answers: list[list[int]] = [[] for _ in prompts]
    count = batch_size_that_fits(target, max(map(len, prompts)) + max_new_tokens)
    sampling = {"do_sample": False}
    if temperature:
        sampling = {"do_sample": True, "temperature": temperature, "top_k": top_k, "top_p": top_p}
    with nothing_else_set(target.model), seeded(seed, target.device):
        for start in range(0, len(order), count):
            rows = order[start : start + count]
            ids, mask = padded_on_the_left([prompts[row] for row in rows])
            out = target.model.generate(
                input_ids=ids.to(target.device),
                attention_mask=mask.to(target.device),
                max_new_tokens=max_new_tokens,
                pad_token_id=0,  # whatever follows a stop token is cut off
                **sampling,
            )
            for row, tokens in zip(rows, out[:, ids.shape[1] :].tolist()):
                stops = [at for at, token in enumerate(tokens) if token in target.stop_token_ids]
                answers[row] = tokens[: stops[0] + 1] if stops else tokens
    return answers


def padded_on_the_left(prompts: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the ids [B, n] of prompts and their mask, 0 before each: some tokenizers have no token
    for padding."""
    ids, mask = (
        pad_sequence([torch.tensor(row) for row in rows], batch_first=True, padding_side="left")
        for rows in (prompts, [[1] * len(prompt) for prompt in prompts])
    )
    return ids, mask


@contextmanager
def nothing_else_set(model):
    """Let transformers generate by the arguments of a call alone, inside a `with` block.

    A model's generation_config may ask for more (a repetition penalty, min_p, ...), and no drafter
    is verified against such a distribution.
    """
    usual = model.generation_config
    model.generation_config = GenerationConfig(
        eos_token_id=usual.eos_token_id,
        pad_token_id=usual.pad_token_id,
        bos_token_id=usual.bos_token_id,
    )
    try:
        yield
    finally:
        model.generation_config = usual


def most_at_once(device: torch.device) -> int:
    """Return the largest number of answers that a device writes at once."""
    return CHUNK if device.type == "cuda" else PARALLEL


def batch_size_that_fits(target, tokens: int) -> int:
    """Return the number of answers of up to `tokens` tokens, prompt included, to write at once.

    On a GPU their keys and values take half of the free memory, at most.
    """
    most = most_at_once(target.device)
    if target.device.type != "cuda":
        return most
    row = tokens * kv_bytes(target.config, target.dtype.itemsize)
    return max(1, min(most, torch.cuda.mem_get_info(target.device)[0] // (2 * row)))


def read_answers(
    path: Path, prompts: list[list[int]], vocab_size: int
) -> dict[int, tuple[list[int], int]]:
    """Return the answers in `path` by the index of their prompt, as (token ids, prompt length).

    A last line that was only half written is cut off. Two runs at once may leave more answers than
    prompts; the surplus is ignored. Raise DSparkLiteError for a line that is no answer to one of
    the prompts, of ids below `vocab_size`.
    """
    if not path.exists():
        return {}
    text = path.read_text(encoding="utf-8", errors="replace")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        write_text(path, whole)
    waiting: dict[tuple[int, ...], list[int]] = {}
    for index, ids in enumerate(prompts):
        waiting.setdefault(tuple(ids), []).append(index)
    rows = {}
    for number, line in enumerate(whole.splitlines(), 1):
        try:
            ids, length = json.loads(line)
            unanswered = waiting[tuple(ids[:length])]
            if not (
                0 < length < len(ids)
                and {*map(type, ids)} == {int}
                and 0 <= min(ids) <= max(ids) < vocab_size
            ):
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise DSparkLiteError(
                f"line {number} of {path} is no answer to a prompt of this recipe in the target's {vocab_size:,} tokens; "
                "delete this line and train again: the target answers only the prompts without a line"
            ) from None
        if unanswered:
            rows[unanswered.pop(0)] = (ids, length)
    return rows
