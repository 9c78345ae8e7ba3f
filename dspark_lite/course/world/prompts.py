"""Where the prompts of a training come from: the tiny world's generator, or a data set on the Hub
or in a folder."""

import warnings
from collections.abc import Iterator
from pathlib import Path

import torch
from tqdm import tqdm

from dspark_lite.common.errors import DSparkLiteError
from .example import is_held_out
from .examples import examples
from .tokenizer import chat_ids, messages_ids

SHUFFLED = 10_000  # rows of a streamed data set that are shuffled at a time
USERS = ("user", "human")
ROW = "number of the row"  # a field that no data set has
LAYOUTS = (
    "a row holds `conversations` or `messages` of {from, value} or {role, content}, `turns` of text, "
    "a `prompt`, or `instruction` and `input`"
)


def prompt_ids(tokenizer, data) -> list[list[int]]:
    """Return tokenised first turns, in the order in which the target answers them; `data` is a
    recipe's (training/recipe.py).

    With a `dataset` (a Hub id, "@revision" if need be, a folder or a JSON file) they are its first
    user turns with the system prompt, shuffled by `seed`, without held-out ones and those that
    leave no room for an answer in `max_length`; rows that hold none are passed over with one
    warning; else examples of the tiny world, `prompts` of them by domain. With
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
    prompts, unread = [], []  # prompts, and the numbers of the rows that hold none
    with tqdm(total=data.prompts, desc=f"prompts of {data.dataset}", unit="prompt") as bar:
        for number, row in _rows(data):
            messages = opening(row)
            if messages is None:
                unread.append(number)
                continue
            if is_held_out(messages[-1]["content"]):
                continue
            ids = messages_ids(tokenizer, messages, enable_thinking=data.enable_thinking)
            if len(ids) <= longest:
                prompts.append(ids)
                bar.update()
            if len(prompts) == data.prompts:
                break
    odd = ""
    if unread:
        listed = ", ".join(map(str, sorted(unread)[:5])) + (", ..." if len(unread) > 5 else "")
        odd = f"{len(unread)} rows of {data.dataset} hold no user turn that can be read (row {listed})"
    if len(prompts) < data.prompts:
        raise DSparkLiteError(
            f"{data.dataset} has {len(prompts)} prompts of at most {longest} tokens, the recipe asks "
            f'for {data.prompts}; lower its "prompts"' + (f". {odd}: {LAYOUTS}" if odd else "")
        )
    if odd:
        warnings.warn(f"{odd} and were passed over: {LAYOUTS}", stacklevel=2)
    return prompts


def _rows(data) -> Iterator[tuple[int, dict]]:
    """Yield the data set's rows in a seeded order, each with its number in the data set, from 1.

    They are streamed: only rows that are used are fetched."""
    import datasets  # slow to import, and the tiny world does without

    name, _, revision = data.dataset.partition("@")
    path, options = (
        ("json", {"data_files": name})
        if Path(name).is_file()
        else (name, {"revision": revision or None})
    )
    try:
        rows = datasets.load_dataset(path, split=data.split, streaming=True, **options)
        numbered = rows.map(lambda row, index: {ROW: index + 1, **row}, with_indices=True)
        for row in numbered.shuffle(seed=data.seed, buffer_size=SHUFFLED):
            yield row.pop(ROW), row
    except DSparkLiteError:
        raise
    except Exception as error:  # the library raises many kinds; the reader needs one sentence
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DSparkLiteError(
            f"the data set {data.dataset!r} (split {data.split!r}) cannot be read ({reason}); "
            "check name, split and network, or give a folder or a JSON file"
        ) from error


def opening(row: dict) -> list[dict] | None:
    """Return the messages {role, content} of a row up to its first user turn, a system prompt
    included; None if it has none that can be read (LAYOUTS says what can).

    An answer before the first user turn is left out.
    """
    turns = row.get("conversations") or row.get("messages") or row.get("turns")
    if isinstance(row.get("instruction"), str):  # Alpaca's columns
        given = row.get("input")
        readable = given is None or isinstance(given, str)  # else the question is not whole
        turns = ["\n\n".join(filter(None, [row["instruction"], given]))] if readable else None
    elif prompt := row.get("prompt"):
        turns = [prompt] if isinstance(prompt, str) else prompt
    messages = []
    for turn in turns if isinstance(turns, list) else []:
        if isinstance(turn, str):
            turn = {"role": "user", "content": turn}
        if not isinstance(turn, dict):
            continue
        role = turn.get("from", turn.get("role"))
        text = _text_of(turn.get("value", turn.get("content")))
        if role == "system" and text:
            messages.append({"role": "system", "content": text})
        if role in USERS:  # a later turn would be another question
            return [*messages, {"role": "user", "content": text}] if text else None
    return None


def _text_of(content) -> str:
    """Return a message's text, which may come in parts {type, text}; "" if it has any other
    part, or nothing but blanks."""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(texts) if all(isinstance(text, str) for text in texts) else ""
    return content if isinstance(content, str) and content.strip() else ""
