"""Answers of the target itself: what drafters are trained on (as the recipe samples, thinking off unless it says `enable_thinking`)."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from tqdm import tqdm
from transformers import GenerationConfig

from dspark_lite.common.errors import DSparkLiteError
from dspark_lite.common.files import write_text
from dspark_lite.models.weights import kv_bytes
from dspark_lite.training.drafts import ANSWERING, seeded
from ..world.prompts import prompt_ids
from .endpoint import Endpoint

PARALLEL = 192  # answers that a CPU writes at once
CHUNK = 1536  # answers between two saves, and those that a GPU writes at once, at most


class Sampling(NamedTuple):
    """How answers are drawn: the temperature (0 is greedy), the largest number of candidates (0: all) and the probability
    that they have together at most. The paper takes what each target's publisher recommends."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0

    @classmethod
    def of(cls, data: dict) -> "Sampling":
        """What a recipe's "data" says of it."""
        return cls(**{name: data[name] for name in cls._fields if name in data})


def most_at_once(device: torch.device) -> int:
    """Answers that a device writes at once, at most."""
    return CHUNK if device.type == "cuda" else PARALLEL


def batch_size_that_fits(target, tokens: int) -> int:
    """Answers to write at once: the most, or on a GPU as many rows of so many `tokens` as have keys and values in half of what it
    has free."""
    most = most_at_once(target.device)
    if target.device.type != "cuda":
        return most
    row = tokens * kv_bytes(target.config, target.dtype.itemsize)
    return max(1, min(most, torch.cuda.mem_get_info(target.device)[0] // (2 * row)))


@contextmanager
def nothing_else_set(model):
    """Has transformers generate by what a call says alone: whatever else the model's generation_config asks for (a repetition
    penalty, min_p, ...) would make a distribution that no drafter is verified against."""
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
    """Answers of the target (token ids, stop token included) to tokenised prompts, many at once, by transformers."""
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    answers: list[list[int]] = [[] for _ in prompts]
    count = batch_size_that_fits(target, max(map(len, prompts)) + max_new_tokens)
    with nothing_else_set(target.model), seeded(seed, target.device):
        for start in range(0, len(order), count):
            rows = order[start : start + count]
            padded = target.tokenizer.pad(
                {"input_ids": [prompts[row] for row in rows]}, return_tensors="pt"
            )
            sampling = {"do_sample": False}
            if temperature:
                sampling = {
                    "do_sample": True,
                    "temperature": temperature,
                    "top_k": top_k,
                    "top_p": top_p,
                }
            out = target.model.generate(
                **padded.to(target.device),
                max_new_tokens=max_new_tokens,
                pad_token_id=target.tokenizer.pad_token_id,
                **sampling,
            )
            for row, tokens in zip(rows, out[:, padded["input_ids"].shape[1] :].tolist()):
                stops = [at for at, token in enumerate(tokens) if token in target.stop_token_ids]
                answers[row] = tokens[: stops[0] + 1] if stops else tokens
    return answers


def answered_rows(
    target, data: dict, path: Path, endpoint: str | None = None, allowance=None
) -> list[tuple[list[int], int]]:
    """(token ids, prompt length) of a recipe's prompts with the target's own answers, sampled as the recipe says.

    Prompts are examples of the tiny world, its domains shuffled together, or a data set's first turns (world/prompts.py).
    The answers are written by `target` in this process, or by the server at the URL `endpoint`. They are appended to
    `path` as JSON lines as they come, in any order, so that a stopped run goes on where it was and loses nothing. Where
    an `allowance` of time leaves no more of it for answers, the prompts that have one are all there are.
    """
    prompts = prompt_ids(target.tokenizer, data)
    rows = read_answers(path, prompts, target.vocab_size)
    path.parent.mkdir(parents=True, exist_ok=True)
    with (
        path.open("a") as file,
        tqdm(total=len(prompts), initial=len(rows), desc="answers", unit="answer") as bar,
    ):
        for index, answer in _answers_to_missing(target, data, prompts, rows, endpoint, allowance):
            if index not in rows:
                rows[index] = (prompts[index] + answer, len(prompts[index]))
                file.write(json.dumps(rows[index]) + "\n")
                file.flush()
                bar.update()
    return [rows[index] for index in sorted(rows)]


def _answers_to_missing(
    target, data: dict, prompts: list, rows: dict, endpoint: str | None, allowance
) -> Iterator[tuple[int, list[int]]]:
    """Yields (index, answer) of the prompts that `rows` has no answer to, and perhaps of others."""
    size = data.get("chunk") or CHUNK
    sampling = Sampling.of(data)
    server = (
        None
        if endpoint is None
        else Endpoint(
            endpoint, target.name.partition("@")[0], target.tokenizer, target.stop_token_ids
        )
    )
    for start in range(0, len(prompts), size):
        if allowance is not None and rows and allowance.spent() >= ANSWERING:
            return
        chunk = range(start, min(start + size, len(prompts)))
        missing = {index: prompts[index] for index in chunk if index not in rows}
        if missing and server:
            yield from server.write(missing, data["max_new_tokens"], data["seed"], sampling)
        elif missing:  # the whole chunk: its random draws are shared
            yield from zip(
                chunk,
                write_answers(
                    target,
                    prompts[start : start + size],
                    sampling.temperature,
                    data["max_new_tokens"],
                    data["seed"] + start,
                    top_k=sampling.top_k,
                    top_p=sampling.top_p,
                ),
            )
        if allowance is not None:
            allowance.keep()


def read_answers(
    path: Path, prompts: list[list[int]], vocab_size: int
) -> dict[int, tuple[list[int], int]]:
    """The answers kept in `path` by the index of their prompt; a last line that was only half written is cut off, and more
    answers than a prompt is asked for, as two runs at once leave them, are passed over.

    Raises DSparkLiteError for a line that is no answer, of ids below `vocab_size`, to one of the prompts.
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
                "delete this line and train again: it alone is then written anew"
            ) from None
        if unanswered:
            rows[unanswered.pop(0)] = (ids, length)
    return rows
