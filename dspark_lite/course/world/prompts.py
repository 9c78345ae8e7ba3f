"""Where the prompts of a training come from: the tiny world's generator, or a data set on the Hub
or in a folder."""

from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm

from dspark_lite.common.errors import DSparkLiteError
from .example import is_held_out
from .examples import examples
from .tokenizer import chat_ids

SHUFFLED = 10_000  # rows of a streamed data set that are shuffled at a time
USERS = ("user", "human")


def prompt_ids(tokenizer, data) -> list[list[int]]:
    """Return tokenised first turns, in the order in which the target answers them; `data` is a
    recipe's (training/recipe.py).

    With a `dataset` (a Hub id, "@revision" if need be, a folder or a JSON file) they are its first
    user turns, shuffled by `seed`, without held-out ones and those that leave no room for an answer
    in `max_length`; else examples of the tiny world, `prompts` of them by domain. With
    `enable_thinking` the target may think before it answers. Raise DSparkLiteError if there are too
    few, or none that can be read.
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


def _ids_of_dataset(tokenizer, data) -> list[list[int]]:
    longest = data.max_length - data.max_new_tokens
    found = []
    with tqdm(total=data.prompts, desc=f"prompts of {data.dataset}", unit="prompt") as bar:
        for number, row in enumerate(_rows(data)):
            prompt = first_turn(row, f"row {number} of {data.dataset}")
            if is_held_out(prompt):
                continue
            ids = chat_ids(tokenizer, prompt, enable_thinking=data.enable_thinking)
            if len(ids) <= longest:
                found.append(ids)
                bar.update()
            if len(found) == data.prompts:
                return found
    raise DSparkLiteError(
        f"{data.dataset} has {len(found)} prompts of at most {longest} tokens, the recipe asks "
        f'for {data.prompts}; lower its "prompts"'
    )


def _rows(data) -> Iterator[dict]:
    """Yield the data set's rows in a seeded order, streamed: only rows that are used are
    fetched."""
    import datasets  # slow to import, and the tiny world does without

    name, _, revision = data.dataset.partition("@")
    path, options = (
        ("json", {"data_files": name})
        if Path(name).is_file()
        else (name, {"revision": revision or None})
    )
    try:
        rows = datasets.load_dataset(path, split=data.split, streaming=True, **options)
        yield from rows.shuffle(seed=data.seed, buffer_size=SHUFFLED)
    except DSparkLiteError:
        raise
    except Exception as error:  # the library raises many kinds; the reader needs one sentence
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DSparkLiteError(
            f"the data set {data.dataset!r} (split {data.split!r}) cannot be read ({reason}); "
            "check name, split and network, or give a folder or a JSON file"
        ) from error


def first_turn(row: dict, where: str) -> str:
    """Return the first user turn of a row: `conversations` or `messages` of {from, value} or {role,
    content}, or `turns`.

    Raise DSparkLiteError for any other layout.
    """
    turns = row.get("conversations") or row.get("messages") or row.get("turns")
    if isinstance(turns, list):
        for turn in turns:
            if isinstance(turn, str):
                turn = {"role": "user", "content": turn}
            role, text = turn.get("from", turn.get("role")), turn.get("value", turn.get("content"))
            if role in USERS and isinstance(text, str) and text.strip():
                return text
    raise DSparkLiteError(
        f"{where} has no user turn that can be read: its fields are {', '.join(row)}; a row holds "
        "`conversations` or `messages` of {from, value} or {role, content}, or `turns` of text"
    )
