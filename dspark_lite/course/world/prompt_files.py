"""Prompts of a reader's own files: JSON lines of conversations, or plain text."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import DSparkLiteError
from .tokenizer import messages_ids

USERS = ("user", "human")
ANSWERERS = ("assistant", "gpt")
LAYOUTS = (
    "a row holds `conversations` or `messages` of {from, value} or {role, content}, `turns` of text, "
    "a `prompt`, `instruction` and `input`, or `text` to go on from"
)
PASSAGE = 400  # characters of a passage of plain text, about
SHORT_PASSAGE = 100  # characters below which a passage goes on over an empty line


@dataclass(frozen=True)
class Prompt:
    """The `turns` (role, text) of a conversation up to the user's, which is to be answered.

    The role of plain text is None: the target goes on from it, without a chat template.
    """

    turns: tuple[tuple[str | None, str], ...]

    @property
    def text(self) -> str:
        """Return the last turn."""
        return self.turns[-1][1]

    @property
    def key(self) -> str:
        """Return the whole prompt as one text, which differs from that of any other prompt."""
        return json.dumps(self.turns, ensure_ascii=False)

    def token_ids(self, tokenizer, *, enable_thinking: bool = False) -> list[int]:
        """Return the prompt's token ids, up to the place where the answer starts.

        Without a chat template, the turns are plain text with an empty line between them. Raise
        DSparkLiteError if the template refuses the turns.
        """
        plain = self.turns[0][0] is None
        if not plain and tokenizer.chat_template is not None:
            messages = [{"role": role, "content": text} for role, text in self.turns]
            return messages_ids(tokenizer, messages, enable_thinking=enable_thinking)
        ids = tokenizer("\n\n".join(text for _, text in self.turns))["input_ids"]
        while len(ids) > 1 and ids[-1] == tokenizer.eos_token_id:
            ids = ids[:-1]  # some tokenizers end every text
        return ids


def file_rows(path: str | Path) -> Iterator[tuple[int, object]]:
    """Yield the line of each row of a file, from 1, and the row: a JSON object of a line or of an
    array, or a passage of plain text as {"text": ...}; None for a line that is not JSON.

    The file is UTF-8, with or without a mark. Its first character says whether it is JSON. Raise
    DSparkLiteError if it is not UTF-8.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DSparkLiteError(
            f"{path} cannot be read as UTF-8 ({error}); save it as UTF-8"
        ) from None
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        for line, passage in passages(text):
            yield line, {"text": passage}
        return
    if start == "[":
        try:
            yield from enumerate(json.loads(text), 1)
            return
        except ValueError:
            pass  # lines of arrays, or a text that begins with a bracket
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except ValueError:
                yield number, None


def passages(text: str) -> Iterator[tuple[int, str]]:
    """Yield the passages of a plain text, each with its first line from 1: whole lines of about
    PASSAGE characters together, up to an empty line. Longer lines are cut between words."""
    begun, parts = 1, []
    for number, line in enumerate(text.split("\n"), 1):
        size = sum(map(len, parts))
        if size >= PASSAGE or (not line.strip() and size >= SHORT_PASSAGE):
            yield begun, "\n".join(parts).strip()
            parts = []
        while len(line) > 2 * PASSAGE:
            cut = line.rfind(" ", 1, PASSAGE)
            cut = PASSAGE if cut < 0 else cut
            yield begun if parts else number, "\n".join([*parts, line[:cut]]).strip()
            parts, line = [], line[cut:].lstrip()
        if not parts:
            begun = number
        if parts or line.strip():
            parts.append(line)
    if "".join(parts).strip():
        yield begun, "\n".join(parts).strip()


def prompts_of_row(row: object, every_turn: bool = False) -> list[Prompt]:
    """Return the prompts of a row: its first user turn with the system prompt before it, with
    `every_turn` each user turn with all turns before it; [] if none can be read (LAYOUTS says what
    can).

    An answer before the first user turn is left out. A turn that cannot be read ends the row.
    """
    if not isinstance(row, dict):
        return []
    turns = row.get("conversations") or row.get("messages") or row.get("turns")
    if isinstance(row.get("instruction"), str):  # Alpaca's columns
        given = row.get("input")
        readable = given is None or isinstance(given, str)  # else the question is not whole
        turns = ["\n\n".join(filter(None, [row["instruction"], given]))] if readable else None
    elif prompt := row.get("prompt"):
        turns = [prompt] if isinstance(prompt, str) else prompt
    elif turns is None and text_of(row.get("text")):
        return [Prompt(((None, row["text"]),))]
    before, prompts = [], []
    for turn in turns if isinstance(turns, list) else []:
        if isinstance(turn, str):
            turn = {"role": "user", "content": turn}
        if not isinstance(turn, dict):
            continue
        role = turn.get("from", turn.get("role"))
        text = text_of(turn.get("value", turn.get("content")))
        if role == "system" and text:
            before.append(("system", text))
        elif role in ANSWERERS and prompts and text:
            before.append(("assistant", text))
        elif role in USERS and text:
            before.append(("user", text))
            prompts.append(Prompt(tuple(before)))
        elif role in USERS or prompts:  # what follows would answer something else
            break
        if prompts and not every_turn:
            break
    return prompts


def text_of(content) -> str:
    """Return a message's text, which may come in parts {type, text}; "" if it has any other
    part, or nothing but blanks."""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(texts) if all(isinstance(text, str) for text in texts) else ""
    return content if isinstance(content, str) and content.strip() else ""


class Unread:
    """The rows of a data set that hold no prompt, for one sentence about them."""

    def __init__(self, name: str):
        self.name, self.lines = name, []

    @property
    def sentence(self) -> str:
        """Return how many rows hold nothing that can be read, and the first of their lines; "" for
        none."""
        if not self.lines:
            return ""
        listed = ", ".join(map(str, sorted(self.lines)[:5])) + ", ..." * (len(self.lines) > 5)
        return f"{len(self.lines)} rows of {self.name} hold no user turn that can be read (row {listed})"


def read_prompts(path: str | Path, every_turn: bool = False) -> tuple[list[Prompt], Unread]:
    """Return the prompts of a file in its order, each once, and the rows that hold none.

    Raise DSparkLiteError for a file that is missing, not UTF-8, or without any prompt.
    """
    if not Path(path).is_file():
        raise DSparkLiteError(f"there is no file {path}; give JSON lines or a text file")
    unread, prompts = Unread(str(path)), {}
    for line, row in file_rows(path):
        found = prompts_of_row(row, every_turn)
        prompts |= dict.fromkeys(found)
        if not found:
            unread.lines.append(line)
    if not prompts:
        raise DSparkLiteError(f"{path} holds no prompt: {LAYOUTS}; a text file holds text")
    return list(prompts), unread
