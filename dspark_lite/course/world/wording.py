"""How the tiny world's texts choose their words: templates with alternatives, and voices that prefer some of them.

In a template `[a|b|c]` stands for one of its alternatives, which may hold more of them, and `{name}` for a value or for
the rule of that name, itself a template. Which alternative is taken depends on the voice: each key of a voice (a town, a
profession, a project) likes some better than others, by chance and always in the same way. To know what comes next one
has to know whose text it is.
"""

import itertools
import math
import random
import re
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

STRENGTH = 1.4  # deviation of what one key of a voice adds to the logit of an alternative
FASHION = ContextVar("FASHION", default="")  # in another one, all voices have other tastes


@dataclass(frozen=True)
class Choice:
    """One place of a template where the voice decides: its source text and the parsed alternatives."""

    source: str
    alternatives: tuple[tuple, ...]


@dataclass(frozen=True)
class Name:
    """A place of a template that a value or a rule fills."""

    name: str


class Voice:
    """Who speaks: keys whose tastes add up."""

    def __init__(self, *keys: str):
        self.keys = tuple(FASHION.get() + key for key in keys)

    def choose(self, choice: Choice, rng: random.Random) -> tuple:
        """Choose the parsed alternative that this voice takes."""
        weights = _weights(choice.source, len(choice.alternatives), self.keys)
        return rng.choices(choice.alternatives, cum_weights=weights)[0]


@contextmanager
def fashion(name: str):
    """Let every voice inside like other words than outside: the same rules and facts in other
    words."""
    token = FASHION.set(f"{name}, ")
    try:
        yield
    finally:
        FASHION.reset(token)


@cache
def _taste(source: str, count: int, key: str) -> tuple[float, ...]:
    """Return what a key adds to the logit of each alternative: normal numbers, always the same."""
    rng = random.Random(f"{key}: {source}")
    return tuple(rng.gauss(0, STRENGTH) for _ in range(count))


@cache
def _weights(source: str, count: int, keys: tuple[str, ...]) -> list[float]:
    """Return the cumulative weights of the alternatives."""
    tastes = [_taste(source, count, key) for key in keys] or [(0.0,) * count]
    return list(itertools.accumulate(math.exp(sum(logits)) for logits in zip(*tastes)))


@cache
def parse(template: str) -> tuple:
    """Parse a template into strings, names and choices. Raise ValueError for brackets that do not
    match."""
    alternatives, _ = _alternatives(template, inside=False)
    return alternatives[0] if len(alternatives) == 1 else (Choice(template, tuple(alternatives)),)


def _alternatives(text: str, inside: bool) -> tuple[list[tuple], str]:
    """Return the alternatives up to the end, or `inside` a bracket up to the one that closes it,
    and what stands after that."""
    alternatives, pieces = [], []
    while text and text[0] != "]":
        literal = re.match(r"[^\[\]|{}]+", text)
        if literal:
            pieces.append(literal[0])
            text = text[literal.end() :]
        elif text[0] == "{":
            name, _, text = text[1:].partition("}")
            pieces.append(Name(name))
        elif text[0] == "[":
            inner, rest = _alternatives(text[1:], inside=True)
            pieces.append(Choice(text[: len(text) - len(rest)], tuple(inner)))
            text = rest
        else:  # "|"
            alternatives.append(tuple(pieces))
            pieces, text = [], text[1:]
    if bool(text) != inside:
        raise ValueError(
            f"a bracket of the template {'is not closed' if inside else f'has no beginning: {text!r}'}"
        )
    return [*alternatives, tuple(pieces)], text[1:]


def expand(
    template: str, voice: Voice, rng: random.Random, rules: dict[str, str] | None = None, **values
) -> str:
    """Return the text that a voice makes of a template; names are looked up among the values, then
    among the rules.

    Blanks left over by empty alternatives are taken out. Raise KeyError for an unknown name.
    """
    text: list[str] = []
    _write(parse(template), text, voice, rng, rules or {}, values)
    return re.sub(r" +(?=[.,?!;:]( |$))", "", re.sub(r"(?<=\S)  +", " ", "".join(text)))


def _write(
    pieces: tuple, text: list[str], voice: Voice, rng: random.Random, rules: dict, values: dict
) -> None:
    for piece in pieces:
        if isinstance(piece, str):
            text.append(piece)
        elif isinstance(piece, Choice):
            _write(voice.choose(piece, rng), text, voice, rng, rules, values)
        elif piece.name in values:
            text.append(str(values[piece.name]))
        else:
            _write(parse(rules[piece.name]), text, voice, rng, rules, values)
