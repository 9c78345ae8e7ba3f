"""Drawing examples: the three domains of prompts and answers, and the kinds of sheets that the target learns from."""

import random
from collections.abc import Callable
from functools import partial

from .chat_text import article, chat, quiz
from .code_text import code, snippet
from .example import Example, is_held_out
from .math_text import drill, math, workings
from .wording import fashion


def _retold(make: Callable[[random.Random], Example], rng: random.Random) -> Example:
    """Return an example with its answer in other words; questions are in nobody's voice and stay as
    they are."""
    with fashion("retold"):
        return make(rng)


OF_DOMAINS = {"math": math, "code": code, "chat": chat}
# those with prompts to hold out
PROMPTED = OF_DOMAINS | {
    f"{domain}_retold": partial(_retold, make) for domain, make in OF_DOMAINS.items()
}
MAKERS = {
    **PROMPTED,
    "article": article,
    "drill": drill,
    "quiz": quiz,
    "workings": workings,
    "snippet": snippet,
}


def examples(domain: str, count: int, seed: int, *, held_out: bool = False) -> list[Example]:
    """Draw `count` examples of a domain; `held_out` chooses the side of the split, and no held-out
    prompt comes twice.

    The other kinds have no prompts to hold out: they are drawn for training only.
    """
    rng = random.Random(f"{domain}-{seed}")
    drawn, seen = [], set()
    while len(drawn) < count:
        example = MAKERS[domain](rng)
        if (
            domain in PROMPTED
            and is_held_out(example.prompt) != held_out
            or held_out
            and example.prompt in seen
        ):
            continue
        seen.add(example.prompt)
        drawn.append(example)
    return drawn
