"""How a lane writes a greedy answer: by the package, or by the functions of a my_dspark.py."""

import time
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from transformers import DynamicCache

from ...common.errors import RequestError
from ...decoding.rounds import generate
from ..own_decoder.keep import own_file
from ..own_decoder.small_engine import SmallEngine


class Run(NamedTuple):
    """The `texts` of a run, how many `tokens` its `rounds` committed in how many `passes` of the
    target, the `seconds` of passes with the drafting before them, and how many tokens the target
    `verified` in them, anchors included.

    The prompt's pass and the token that it brings belong to no round. Requests that share a pass
    have a round each.
    """

    texts: list[list[int]]
    tokens: int
    rounds: int
    passes: int
    seconds: list[float]
    verified: int


def by_package(target, drafter, ids: list[int], count: int) -> Run:
    """Return the run of the package's `generate` after a prompt's ids; `drafter` None is plain
    decoding."""
    answer = generate(
        target, drafter, torch.tensor([ids]), max_new_tokens=count + 1, stop_token_ids=()
    )
    seconds = [r.draft_seconds + r.verify_seconds for r in answer.rounds]
    verified = sum(r.proposed + 1 for r in answer.rounds)
    return Run([answer.token_ids], count, len(seconds), len(seconds), seconds, verified)


class Passes:
    """The `read` of a my_dspark.py, which notes when the target's passes end, the prompt's first.

    It raises RequestError where there are more than `most` after the prompt's, so that a wrong loop
    ends.
    """

    def __init__(self, read, model, most: int):
        self.read, self.model, self.most = read, model, most
        self.ends, self.verified = [], 0

    def __call__(self, model, token_ids, cache, taps=()):
        found = self.read(model, token_ids, cache, taps)
        if model is self.model:
            self.verified += len(token_ids) if self.ends else 0
            self.ends.append(time.perf_counter())
            if len(self.ends) > self.most + 1:
                raise RequestError(f"{self.most} passes do not write {self.most} tokens")
        return found


def by_own(target, mine, answer, ids: list[int], count: int, **instead) -> Run:
    """Return the run of a my_dspark.py, the module `mine`, after a prompt's ids.

    `answer(ids, count)` returns new tokens, a list, and how many each round committed. `instead`
    are functions that take the places of the module's. Raise RequestError with the error that the
    file's code raises.
    """
    passes = Passes(mine.read, target.model, count)
    try:
        with patch.multiple(mine, read=passes, **instead):
            text, _ = answer(ids, count + 1)
    except Exception as error:
        raise RequestError(f"{own_file().name} raised {type(error).__name__}: {error}") from error
    seconds = np.diff(passes.ends).tolist()
    return Run([text], count, len(seconds), len(seconds), seconds, passes.verified)


def with_small_lm(mine, models, gamma: int, ids: list[int], count: int):
    """Return lesson 03's loop around the pieces of a my_dspark.py, greedy: new tokens, and how many
    each round committed. `models` are the target and the small LM."""
    target, small = models
    caches = [DynamicCache(config=model.config) for model in models]
    logits, _ = mine.read(target, ids, caches[0])
    mine.read(small, ids, caches[1])
    text, rounds = [mine.draw(mine.probabilities(logits[-1], 0.0), None)], []
    unread = text[:]  # what the small LM has still to read
    while len(text) < count:
        drafts, q, entering = [], [], unread
        for _ in range(min(gamma, count - len(text) - 1)):
            logits, _ = mine.read(small, entering, caches[1])
            q.append(mine.probabilities(logits[-1], 0.0))
            entering = [mine.draw(q[-1], None)]
            drafts += entering
        logits, _ = mine.read(target, [text[-1], *drafts], caches[0])
        q = torch.stack(q) if q else logits[:0]  # the last round may have no room for a draft
        new = mine.verify(mine.probabilities(logits, 0.0), q, drafts, None)
        for cache, refused in zip(caches, mine.forget(len(drafts), len(new) - 1)):
            if refused:
                cache.crop(-refused)
        unread = new[-2:] if len(new) > len(drafts) else new[-1:]
        text += new
        rounds.append(len(new))
    return text, rounds


def sharing(target, drafter, mine, prompts: list[list[int]], count: int) -> Run:
    """Return the run of a my_dspark.py's `step` where all prompts share each step.

    The first step reads the prompts and is not timed. Raise RequestError with the error that the
    file's code raises, or where `count` steps do not end the answers.
    """
    engine = SmallEngine(target, drafter, len(prompts), count + 1)
    engine.waiting, ends = list(enumerate(prompts)), []
    try:
        while engine.waiting or engine.running:
            mine.step(engine)
            ends.append(time.perf_counter())
            if len(ends) > count:
                raise RequestError(f"{count} steps do not write {count} tokens")
    except Exception as error:
        raise RequestError(f"{own_file().name} raised {type(error).__name__}: {error}") from error
    blocks = engine.passes[len(prompts) :]
    answers = [engine.answers[number] for number in range(len(prompts))]
    rounds, verified = sum(map(len, blocks)), sum(sum(block.values()) for block in blocks)
    return Run(answers, count * len(prompts), rounds, len(ends), np.diff(ends).tolist(), verified)
