"""Text on its way in and out: the token ids of a prompt, and tokens as text while they come."""

from numbers import Integral

import torch

from ..common.errors import RequestError
from .target import Target

UNFINISHED = "\ufffd"  # what a tokenizer writes for the first bytes of a character


def check_tokenizer(target: Target) -> None:
    """Raise RequestError for a target without a tokenizer, whose answers have no text."""
    if target.tokenizer is None:
        raise RequestError(f"{target.name} has no tokenizer, so its answers have no text")


class TextPieces:
    """The text of tokens that come a few at a time, in pieces that add up to the text of all.

    A character of several tokens is held back until it is whole. Special tokens are left out. After
    a line's end, only later tokens are decoded anew: the cost stays that of a line.
    """

    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
        self.tokens: list[int] = []  # those that are decoded anew
        self.shown = 0  # characters of them that were returned

    def add(self, tokens: list[int]) -> str:
        """Return the text that these tokens add."""
        self.tokens += tokens
        text = self._decoded()
        if text.endswith(UNFINISHED):
            return ""
        piece, self.shown = text[self.shown :], len(text)
        if "\n" in piece:  # tokenizers join words, not lines: lines are decoded alone
            self._forget(len(tokens))
        return piece

    def end(self) -> str:
        """Return the text that was held back."""
        text = self._decoded()
        piece, self.shown = text[self.shown :], len(text)
        return piece

    def _decoded(self) -> str:
        return self.tokenizer.decode(self.tokens, skip_special_tokens=True)

    def _forget(self, kept: int) -> None:
        """Decode only the last `kept` tokens from now on, if their text stands alone."""
        tail = self.tokens[-kept:]
        alone = self.tokenizer.decode(tail, skip_special_tokens=True)
        if self._decoded().endswith(alone) and UNFINISHED not in alone:
            self.tokens, self.shown = tail, len(alone)


def prompt_ids(target: Target, prompt: str | list | torch.Tensor) -> torch.Tensor:
    """Return the token ids [1, n] of a prompt: a text, a list of messages {role, content}, or token
    ids. Raise RequestError for anything else, and for text without a tokenizer or messages without
    a chat template."""
    tokenizer = target.tokenizer
    messages = isinstance(prompt, list) and prompt and isinstance(prompt[0], dict)
    if isinstance(prompt, torch.Tensor):
        return (prompt if prompt.ndim == 2 else prompt[None]).to(target.device)
    if (isinstance(prompt, str) or messages) and tokenizer is None:
        raise RequestError(f"{target.name} has no tokenizer; give token ids")
    if isinstance(prompt, str):
        return tokenizer(prompt, return_tensors="pt")["input_ids"].to(target.device)
    if messages:
        if tokenizer.chat_template is None:
            raise RequestError(
                "the tokenizer has no chat template, so messages cannot be put to this model; give a text"
            )
        text = tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False, return_tensors="pt")["input_ids"]
        return ids.to(target.device)
    if isinstance(prompt, list) and all(isinstance(token, Integral) for token in prompt):
        return torch.tensor([prompt], dtype=torch.long, device=target.device)
    raise RequestError(
        f"the prompt is a {type(prompt).__name__}; give a text, a list of messages, or token ids"
    )
