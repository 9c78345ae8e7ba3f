"""The judge of my_dspark.py: lossless by enumeration, tokens and rounds equal to the package's,
accepted length, speed.

Everything is asked of the reader's own functions. What they decide at random they decide by their
own `toss` and `draw`, which are exchanged for ones that visit every outcome.
"""

import importlib.util
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

import torch

from ...common.errors import RequestError
from ...decoding.rounds import generate
from ...losslessness.enumeration import (
    outcomes,
    output_distribution,
    summed,
    total_variation,
)
from ...losslessness.toys import toy_models
from ...models.checkpoints import EMBEDDED, save_draft
from ...scheduling.cost_table import CostTable
from ...scheduling.policies import schedule
from ..checkers.checking import Mistake
from ..names import PROFILES
from . import small_engine, verifying
from .engine_board import MOST_STEPS, Device
from .keep import EDITION, own_file, split
from .pipeline import RUNS, judge_run

EXACT = 1e-5  # what float32 probabilities leave of a total variation
RANDOM_CASES = 200
MOST_TOKENS = 96  # of an answer that is compared
# Steps per second of 1, 2, 3 tokens: a second draft may pay where the first alone does not.
JAGGED = [9.0, 4.5, 4.2]


class Finding(NamedTuple):
    """What the judge asked, whether the answer is right, and what it saw."""

    asked: str
    right: bool
    said: str


def load(path: Path):
    """Return the reader's file as a module; raise RequestError where it is missing or cannot be
    run."""
    if not path.is_file():
        raise RequestError(
            f"there is no {path}; keep(...) in the lessons writes it, or give the judge the path of your file"
        )
    return run_file(path)


def run_file(path: Path, module=None):
    """Return a file of somebody's as a module, or run it inside `module`, whose functions of the
    same names it replaces. Raise RequestError where it cannot be run."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if module is None:
        module = importlib.util.module_from_spec(spec)
    module.__name__ = path.stem
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise RequestError(f"{path} cannot be run: {type(error).__name__}: {error}") from None
    return module


def questions(mine, lab, prompts: int) -> dict[str, tuple[tuple[str, ...], Callable[[], str]]]:
    """Return {question: (the functions it needs, the check that answers it)} for the reader's
    module. A check raises Mistake."""
    return {
        "speculate writes the big model's text": (("speculate",), lambda: _speculates(mine)),
        "verify is lossless, every outcome visited": (
            ("verify", "residual"),
            lambda: _verifies(mine),
        ),
        "generate is lossless, every outcome visited": (
            ("generate",),
            lambda: _lossless(mine, None),
        ),
        "scheduled, it is lossless still": (
            ("generate", "algorithm_1", "survival"),
            lambda: _lossless(mine, JAGGED),
        ),
        "algorithm_1 is the paper's": (("algorithm_1",), lambda: _schedules(mine)),
        "greedy tokens and rounds are the package's": (
            ("generate",),
            lambda: _decodes(mine, lab, prompts),
        ),
        "the engine's step serves the target's texts": (
            ("step", "algorithm_1", "verify", "residual"),
            lambda: _serves(mine),
        ),
        "the engine verifies what algorithm_1 admits": (
            ("step", "algorithm_1", "verify", "residual"),
            lambda: _admits(mine),
        ),
        "the engine is lossless, every outcome visited": (
            ("step", "algorithm_1", "verify", "residual"),
            lambda: _shares(mine),
        ),
        "the engine's budgets are two steps old": (
            ("step", "algorithm_1", "verify", "residual", "pipelined"),
            lambda: _pipelines(mine),
        ),
    }


def judge(path: Path, lab, prompts: int = 3) -> list[Finding]:
    """Return all findings on the reader's file. `prompts` prompts per domain are decoded with the
    lab's tiny models."""
    mine = load(path)
    missing = [
        name for name in split(EDITION.read_text(encoding="utf-8"))[1] if not hasattr(mine, name)
    ]
    lines = len(path.read_text(encoding="utf-8").splitlines())
    complete = Finding(
        "the file is complete",
        not missing,
        f"{lines} lines" if not missing else f"missing: {', '.join(missing)}",
    )
    return [
        complete,
        *(
            answered(asked, check)
            for asked, (needed, check) in questions(mine, lab, prompts).items()
            if not set(needed) & set(missing)
        ),
    ]


def answered(asked: str, check: Callable[[], str]) -> Finding:
    """Return the finding of a check; an exception is a finding, too."""
    try:
        with torch.inference_mode():
            return Finding(asked, True, check())
    except Mistake as mistake:
        return Finding(asked, False, str(mistake))
    except Exception as error:
        return Finding(asked, False, f"your code raised {type(error).__name__}: {error}")


def _speculates(mine) -> str:
    """Check on random tables as models that the text is the big one's own, in as many of its passes
    as a first difference allows."""
    generator, reference, passes = torch.Generator().manual_seed(0), load(EDITION), 0
    for case in range(20):
        big, little = torch.rand(2, 5, 5, generator=generator)
        tables, gamma, start = (big, big + 0.5 * little), 1 + case % 4, torch.tensor([[case % 5]])
        text, read = _speculated(mine, tables, start, gamma)
        wanted, enough = _speculated(reference, tables, start, gamma)
        if not torch.equal(text, wanted):
            raise Mistake(
                f"the text is {text[0].tolist()}, the big model's own is {wanted[0].tolist()}"
            )
        if read != enough:
            raise Mistake(f"{read} passes of the big model where {enough} do")
        passes += read
    return f"240 tokens in {passes} passes"


def _speculated(module, tables, start, gamma: int):
    """Return 12 tokens after `start` by a module's `speculate`, with tables as big and little
    model, and the number of the big one's passes."""
    passes = []

    def big(ids):
        passes.append(ids)
        return tables[0][ids]

    return module.speculate(big, lambda ids: tables[1][ids], start, 12, gamma), len(passes)


def visited(mine):
    """Have a module's random decisions visit every outcome while it is entered."""
    return patch.multiple(mine, toss=verifying.toss, draw=verifying.draw)


def _verifies(mine) -> str:
    with visited(mine):
        verifying.judge_verify(mine.verify)
    return "total variation 0, as many tokens per round as possible"


def _lossless(mine, speeds: list[float] | None) -> str:
    """Compare the exact distribution of the reader's decoder, on random models of two tokens, with
    the target's own. With a scheduler there are more outcomes, so the texts are a token shorter.
    """
    (target, drafters), count = toy_models(), 4 if speeds is None else 3
    sps = None if speeds is None else lambda tokens: speeds[tokens - 1]
    with tempfile.TemporaryDirectory() as folder, visited(mine):
        save_draft(Path(folder), drafters["dspark"], target)
        draft = mine.Draft(folder)
        texts = summed(
            (tuple(text), chance)
            for text, chance in outcomes(
                lambda path: mine.generate(
                    target.model, draft, [0], count, temperature=1.0, generator=path, sps=sps
                )[0]
            )
        )
    wanted = output_distribution(target, None, None, count)
    if not all(len(text) == count for text in texts):
        raise Mistake(
            f"{count} tokens were asked for, and there are answers of {sorted({len(text) for text in texts})}"
        )
    distance = total_variation(texts, wanted)
    if distance > EXACT:
        raise Mistake(f"your total variation is {distance:.2g} over all texts of {count} tokens")
    return f"{len(texts)} texts, total variation {distance:.0e}"


def _schedules(mine) -> str:
    generator = torch.Generator().manual_seed(0)
    # 1 * 1.5 against 1.5 * 1.0.
    if any(mine.algorithm_1(torch.tensor([[0.5, 0.5]]), {1: 1.5, 2: 1.0, 3: 1.0}.get)):
        raise Mistake(
            "a token that leaves the throughput as it is was admitted; each one must raise it"
        )
    for case in range(RANDOM_CASES):
        requests, gamma = torch.randint(1, 5, (2,), generator=generator).tolist()
        # Many survivals are equal, across requests too.
        survivals = (torch.randint(1, 5, (requests, gamma), generator=generator) / 4).cumprod(1)
        seconds = torch.rand(requests * (gamma + 1), generator=generator).cumsum(0)
        seconds += (1, 8, 32, 128)[case % 4]  # a token more costs much, or hardly anything
        table = CostTable(range(1, len(seconds) + 1), 1 / seconds)
        wanted = schedule(survivals, table).tolist()
        lengths = [
            int(length)
            for length in mine.algorithm_1(
                survivals, lambda tokens, seconds=seconds: float(1 / seconds[tokens - 1])
            )
        ]
        if lengths != wanted:
            raise Mistake(f"lengths {lengths} where the paper's algorithm has {wanted}")
    return f"{RANDOM_CASES} random steps"


def _decodes(mine, lab, prompts: int) -> str:
    """Decode with the tiny models by the package and by the reader's decoder. Return a sentence on
    what the reader's accepts and how fast it is; raise Mistake if its tokens or rounds differ."""
    drafter = lab.drafter("dspark")
    draft = mine.Draft(EMBEDDED / PROFILES[lab.profile]["dspark"])
    sentences = []
    for domain, texts in lab.prompts.items():
        committed, seconds, plain_seconds = [], 0.0, 0.0
        for text in texts[:prompts]:
            ids, most = lab.encode(text), min(lab.max_new_tokens, MOST_TOKENS)
            wanted, plain = (
                generate(lab.target, chosen, ids, max_new_tokens=most) for chosen in (drafter, None)
            )
            begun = time.perf_counter()
            tokens, rounds = mine.generate(
                lab.target.model, draft, ids[0].tolist(), most, stop=lab.stop_token_ids
            )
            seconds += time.perf_counter() - begun
            plain_seconds += plain.prefill_seconds + plain.decode_seconds
            if tokens != plain.token_ids:
                raise Mistake(
                    f"on {domain}, token {_first_difference(tokens, plain.token_ids)} is not plain decoding's"
                )
            if (theirs := [r.committed for r in wanted.rounds]) != rounds:
                raise Mistake(
                    f"on {domain}, round {_first_difference(rounds, theirs)} commits other tokens than the package's: the text is "
                    "right and the drafts are not"
                )
            committed += rounds
        sentences.append(
            f"{domain} {sum(committed) / len(committed):.2f} tokens per round, {plain_seconds / seconds:.1f} times plain decoding"
        )
    return "; ".join(sentences)


def _serves(mine) -> str:
    small_engine.judge_step(mine.step)
    return f"{len(small_engine.PROMPTS)} requests in {small_engine.SLOTS} slots, as plain decoding"


def _admits(mine) -> str:
    small_engine.judge_schedule(mine.step)
    return "lengths by survivals and cost alone"


def _shares(mine) -> str:
    """Check two requests that share steps, whose draft pays only if it is likely, against the
    target's own distribution."""
    (target, drafters), prompts = toy_models(gamma=1), ((0,), (1, 0))

    def served(path):
        engine = small_engine.SmallEngine(
            target, drafters["dspark"], slots=2, longest=2, temperature=1.0, generator=path
        )
        engine.waiting = [*enumerate(map(list, prompts))]
        engine.sps = lambda tokens: 1 / tokens**0.7
        while engine.waiting or engine.running:
            mine.step(engine)
        return tuple(engine.answers[0]), tuple(engine.answers[1])

    with visited(mine):
        texts = summed(outcomes(served))
    first, second = (
        output_distribution(target, None, None, 2, prompt=prompt) for prompt in prompts
    )
    wanted = {(x, y): p * q for x, p in first.items() for y, q in second.items()}
    distance = total_variation(texts, wanted)
    if distance > EXACT:
        raise Mistake(
            f"your total variation is {distance:.2g} over the texts of two requests: a draw helps decide whether it is verified, "
            "or verify is not lossless"
        )
    return f"{len(texts)} pairs of texts, total variation {distance:.0e}"


def _pipelines(mine) -> str:
    """Run the reader's pipelined loop alone, then around the reader's step."""
    for steps in RUNS:
        judge_run(mine.pipelined, steps)
    target, drafters = toy_models(vocab_size=11, gamma=small_engine.GAMMA)
    engine = small_engine.SmallEngine(
        target, drafters["dspark"], small_engine.SLOTS, small_engine.LONGEST, small_engine.STOP
    )
    engine.waiting = list(enumerate(small_engine.PROMPTS))
    device = Device(engine, mine.step)
    mine.pipelined(
        device,
        lambda survivals: sum(mine.algorithm_1(survivals, small_engine.falling)),
        MOST_STEPS,
    )
    if engine.answers != small_engine.plain_answers():
        raise Mistake("in the loop, greedy answers are not the target's own")
    return f"{len(device.steps)} steps, the target's texts"


def assembled() -> tuple[ModuleType, list[str]]:
    """Return the course's edition with the reader's functions in their places, and their names.

    The course's functions call the reader's, and the other way round. Raise RequestError for a
    file that cannot be run.
    """
    mine, file = run_file(EDITION), own_file()
    course = {name: getattr(mine, name) for name in split(EDITION.read_text(encoding="utf-8"))[1]}
    if file.is_file():
        run_file(file, mine)
    return mine, [name for name in course if getattr(mine, name) is not course[name]]


def own_or_course(*names: str) -> ModuleType:
    """Return what `assembled` does, without the names; print whose the functions of these names
    are."""
    mine, own = assembled()
    for name in names:
        print(name, "is yours" if name in own else "is the course's")
    return mine


def _first_difference(found: list, wanted: list) -> int:
    """Return the place (from 1) at which two lists part."""
    return next(
        (at for at, (ours, theirs) in enumerate(zip(found, wanted), 1) if ours != theirs),
        1 + min(len(found), len(wanted)),
    )


def report(findings: list[Finding]) -> str:
    """Return the findings, a line each, and the verdict."""
    width = max(len(finding.asked) for finding in findings)
    lines = [
        f"{'ok ' if finding.right else 'NO '} {finding.asked:{width}}  {finding.said}"
        for finding in findings
    ]
    wrong = sum(not finding.right for finding in findings)
    return "\n".join(
        [
            *lines,
            "It is lossless, and it is DSpark."
            if not wrong
            else f"{wrong} of {len(findings)} not yet.",
        ]
    )
