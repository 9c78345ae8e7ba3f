"""Where the prompts of a training come from: the tiny world's generator, a reader's own file, or a
data set on the Hub or in a folder."""

import random
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm

from ...common.errors import DSparkLiteError
from .example import is_held_out
from .examples import examples
from .prompt_files import LAYOUTS, Prompt, Unread, file_rows, prompts_of_row
from .tokenizer import chat_ids

SHUFFLED = 10_000  # rows of a streamed data set that are shuffled at a time
ROW = "number of the row"  # a field that no data set has
PROMPT_TOKENS = 512  # of a prompt, at most, where a recipe names no "max_length"


def prompt_ids(tokenizer, data) -> list[list[int]]:
    """Return tokenised prompts, in the order in which the target answers them; `data` is a
    recipe's (training/recipe.py).

    With a `dataset` (a Hub id, "@revision" if need be, a folder or a file) they are its user turns
    or passages (prompt_files.py), shuffled by `seed`, without held-out ones and those that leave no
    room for an answer in `max_length`; rows that hold none are passed over with one warning; else
    examples of the tiny world, `prompts` of them by domain. A file may have fewer than `prompts`.
    With `enable_thinking` the target may think before it answers. Raise DSparkLiteError if there
    are too few, or none that can be read.
    """
    if data.dataset:
        return _ids_of_dataset(tokenizer, data)
    ids = [
        chat_ids(tokenizer, example.prompt, enable_thinking=data.enable_thinking)
        for domain, count in data.prompts.items()
        for example in examples(domain, count, data.seed)
    ]
    # Domains are interleaved, so that every chunk (and every prefix of the answers) holds all of
    # them.
    order = torch.randperm(len(ids), generator=torch.Generator().manual_seed(data.seed)).tolist()
    return [ids[index] for index in order]


def longest_prompt(data) -> int:
    """Return the tokens that a prompt of a data set may have beside its answer."""
    return (data.max_length or data.max_new_tokens + PROMPT_TOKENS) - data.max_new_tokens


def _ids_of_dataset(tokenizer, data) -> list[list[int]]:
    longest, prompts, unread = longest_prompt(data), [], Unread(data.dataset)
    with tqdm(total=data.prompts, desc=f"prompts of {data.dataset}", unit="prompt") as bar:
        for prompt in dataset_prompts(data, unread, held_out=False):
            ids = prompt.token_ids(tokenizer, enable_thinking=data.enable_thinking)
            if prompt.turns[0][0] is None:
                ids = ids[:longest]  # a passage may begin anywhere and end anywhere
            if len(ids) <= longest:
                prompts.append(ids)
                bar.update()
            if len(prompts) == data.prompts:
                break
    enough = bool(prompts) if Path(data.dataset).is_file() else len(prompts) == data.prompts
    if not enough:
        raise DSparkLiteError(
            f"{data.dataset} has {len(prompts)} prompts of at most {longest} tokens, the recipe asks "
            f'for {data.prompts}; lower its "prompts"'
            + (f". {unread.sentence}: {LAYOUTS}" if unread.lines else "")
        )
    if unread.lines:
        warnings.warn(f"{unread.sentence} and were passed over: {LAYOUTS}", stacklevel=2)
    return prompts


def held_out_of(data, count: int) -> list[Prompt]:
    """Return up to `count` held-out prompts of a recipe's data set, which no training has read."""
    found = []
    for prompt in dataset_prompts(data, Unread(data.dataset), held_out=True):
        found.append(prompt)
        if len(found) == count:
            break
    return found


def dataset_prompts(data, unread: Unread, held_out: bool) -> Iterator[Prompt]:
    """Yield the prompts of a recipe's data set in a seeded order: those that are held out, or all
    others. A row without any is added to `unread`.

    A prompt is held out by the hash of its conversation's first user turn, one in twenty, whatever
    the seed.
    """
    for number, row in _rows(data):
        prompts = prompts_of_row(row, data.turns == "all")
        if not prompts:
            unread.lines.append(number)
        elif is_held_out(prompts[0].text) == held_out:
            yield from prompts


def _rows(data) -> Iterator[tuple[int, object]]:
    """Yield the data set's rows in a seeded order, each with its number in the data set (its line
    in a file), from 1.

    A data set is streamed: only rows that are used are fetched. A file is read whole.
    """
    name, _, revision = data.dataset.partition("@")
    if Path(name).is_file():
        if data.split not in (None, "train"):
            raise _unreadable(data, "a file has no splits")
        rows = list(file_rows(name))
        if not rows:
            raise _unreadable(data, "it is empty")
        random.Random(data.seed).shuffle(rows)
        yield from rows
        return
    import datasets  # slow to import, and a file does without

    try:
        rows = datasets.load_dataset(
            name, split=data.split or "train", streaming=True, revision=revision or None
        )
        numbered = rows.map(lambda row, index: {ROW: index + 1, **row}, with_indices=True)
        for row in numbered.shuffle(seed=data.seed, buffer_size=SHUFFLED):
            yield row.pop(ROW), row
    except DSparkLiteError:
        raise
    except Exception as error:  # the library raises many kinds; the reader needs one sentence
        raise _unreadable(data, " ".join(str(error).split()) or type(error).__name__) from error


def _unreadable(data, reason: str) -> DSparkLiteError:
    """Return the error for a data set that cannot be read."""
    return DSparkLiteError(
        f"the data set {data.dataset!r} (split {data.split!r}) cannot be read ({reason}); "
        "check name, split and network, or give a folder or a file of JSON lines or text"
    )
